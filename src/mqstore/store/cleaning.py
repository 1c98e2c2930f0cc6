"""Queues that nobody needs any more: all their messages have expired, or their topic was deleted.

Records stay in the log until they expire, as RocketMQ has it: a rebuild of the queues of a deleted topic brings them
back while the log still holds its records (docs/operations.md).
"""

from __future__ import annotations

from collections.abc import Callable, Container

from mqstore.layout.constants import HALF_TOPIC, LMQ_PREFIX, OP_HALF_TOPIC, SCHEDULE_TOPIC
from mqstore.store.consume_queue import ConsumeQueue
from mqstore.store.engine import Engine
from mqstore.store.message import QueueInfo

_KEPT = (SCHEDULE_TOPIC, HALF_TOPIC, OP_HALF_TOPIC)


def is_expired(queue: QueueInfo) -> bool:
    """Whether its messages are all gone with the log's old files; those that the store works with itself stay."""
    return queue.max_offset > 0 and queue.count == 0 and queue.topic not in _KEPT


def is_unused(queue: QueueInfo, topics: Container[str]) -> bool:
    """Whether its topic is not among the known ``topics``; those that the store works with itself stay."""
    return queue.topic not in topics and queue.topic not in _KEPT and not queue.topic.startswith(LMQ_PREFIX)


def remove_queues(engine: Engine, is_needless: Callable[[QueueInfo], bool]) -> list[QueueInfo]:
    """Remove the files of the queues that are needless, note that they are gone, and say which.

    Raises:
        StoreIOError: one could not be removed; the next open builds it, and what went before it, from the log.
    """
    found = [one for queue in engine.queues.all() if is_needless(one := info_of(queue))]
    removed = []
    for one in found:
        queue = engine.queues.find(one.topic, one.queue_id)
        # Asked once more where nothing is put into it meanwhile: a message may have come since.
        if queue is not None and engine.dispatcher.remove(queue, lambda queue: is_needless(info_of(queue))):
            removed.append(one)
    for topic in {one.topic for one in removed}:
        if not engine.queues.of_topic(topic):
            engine.topic_counts.forget(topic)
    engine.note_removed_queues()
    return removed


def info_of(queue: ConsumeQueue) -> QueueInfo:
    """A queue with its range at this moment."""
    return QueueInfo(queue.topic, queue.queue_id, queue.min_offset, queue.max_offset)
