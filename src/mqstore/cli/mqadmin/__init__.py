"""RocketMQ's own commands, by their names and short options, over a store's directory instead of a broker.

Scripts name these commands, so a name is found in any case: RocketMQ itself has spelled some in two ways. Each is a
function that asks what one of our commands asks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from mqstore.cli.mqadmin import broker, messages, queues

COMMANDS: Final[Mapping[str, Callable[..., int]]] = {
    "queryMsgById": messages.query_msg_by_id,
    "queryMsgByKey": messages.query_msg_by_key,
    "queryMsgByUniqueKey": messages.query_msg_by_unique_key,
    "queryMsgByOffset": messages.query_msg_by_offset,
    "printMsg": messages.print_msg,
    "printMsgByQueue": messages.print_msg_by_queue,
    "decodeMessageId": messages.decode_msg_id,
    "queryCq": queues.query_cq,
    "topicList": queues.topic_list,
    "topicStatus": queues.topic_status,
    "consumerProgress": queues.consumer_progress,
    "resetOffsetByTime": queues.reset_offset_by_time,
    "exportMetadata": queues.export_metadata,
    "brokerStatus": broker.broker_status,
    "cleanExpiredCQ": broker.clean_expired_cq,
    "cleanUnusedTopic": broker.clean_unused_topic,
    "deleteExpiredCommitLog": broker.delete_expired_commit_log,
}
"""By RocketMQ's names, in the order of the help."""
