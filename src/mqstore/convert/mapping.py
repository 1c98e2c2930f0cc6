"""Records of Kafka's as messages of RocketMQ's and back (docs/kafka.md, "Moving data").

What once was a message becomes that message again, and what once was a record that record.
"""

from __future__ import annotations

from typing import NamedTuple

from mqstore.convert import kafka_origin, rocketmq_origin
from mqstore.convert.rocketmq_origin import FormerMessage
from mqstore.kernels.api import PreparedMessage
from mqstore.layout import constants as c
from mqstore.layout.constants import SysFlag
from mqstore.layout.kafka.constants import TimestampType
from mqstore.layout.kafka.record import Record as KafkaRecord
from mqstore.layout.record import Record as Message
from mqstore.layout.record import record_size


class Mapped(NamedTuple):
    """A message that lacks only its place.

    Attributes:
        fields: as :meth:`mqstore.kernels.api.Kernels.put_batch` takes them.
        size_bytes: size of its record in the log.
        store_timestamp_ms: when it was stored, as far as the record tells; less than 0 when it does not.
        physical_offset: its place in the log that it once was in, or -1.
        queued: whether it takes a queue offset.
        enveloped: whether its body is an envelope.
        misfit: whether the record has marks of a message that it is not, or no longer.
        former_topic: the topic that the record names as the one it was in as a message.
    """

    fields: PreparedMessage
    size_bytes: int
    store_timestamp_ms: int
    physical_offset: int
    queued: bool = True
    enveloped: bool = False
    misfit: bool = False
    former_topic: str | None = None


def former_message(record: KafkaRecord, queue_offset: int) -> FormerMessage | None:
    """The message that ``record`` was made from, as one at ``queue_offset``; None if it was not made from one.

    Marks can be made up, and of both kinds in one record. So a record counts as a message only if that message does
    not count as yet another record: it would be that one after the way back.
    """
    former = rocketmq_origin.former_message(record)
    if former is None or kafka_origin.TIMESTAMP_TYPE.encode() not in former.properties_raw:
        return former
    return former if former_record(_placed(former, queue_offset)) is None else None


def former_record(message: Message) -> KafkaRecord | None:
    """The record that ``message`` was made from; None if it was not made from one.

    As with :func:`former_message`, a record that counts as yet another message is none.
    """
    former = kafka_origin.former_record(message)
    return None if former is None or former_message(former, message.queue_offset) is not None else former


def _placed(former: FormerMessage, queue_offset: int) -> Message:
    """``former`` at a place of a queue; what else it lacks says nothing of where it came from."""
    return Message(
        physical_offset=0,
        total_size=0,
        magic=c.MAGIC_V1,
        body_crc=0,
        queue_id=0,
        flag=former.flag,
        queue_offset=queue_offset,
        sys_flag=former.sys_flag,
        born_timestamp_ms=former.born_timestamp_ms,
        born_host_raw=former.born_host_raw,
        store_timestamp_ms=former.store_timestamp_ms,
        store_host_raw=former.store_host_raw,
        reconsume_times=former.reconsume_times,
        prepared_transaction_offset=former.prepared_transaction_offset,
        body=former.body,
        topic_raw=b"",
        properties_raw=former.properties_raw,
    )


def message_of(
    record: KafkaRecord,
    topic: str,
    queue_id: int,
    queue_offset: int,
    *,
    original_topic: str | None = None,
    rolled_back: bool = False,
) -> Mapped:
    """The message that stands for ``record`` at ``queue_offset`` of a queue.

    Args:
        record: the record.
        topic: the message's topic.
        queue_id: its queue, which is the record's partition.
        queue_offset: the offset that it is going to have there.
        original_topic: the record's topic, if it is not ``topic``.
        rolled_back: make it a message of a transaction that was rolled back, which no queue shows.
    """
    former = former_message(record, queue_offset)
    if former is not None and not rolled_back:
        return _mapped(former, topic, queue_id)._replace(former_topic=rocketmq_origin.former_topic(record))
    raw, body, enveloped = kafka_origin.packed(record, queue_offset, original_topic)
    flags = SysFlag.TRANSACTION_ROLLBACK if rolled_back else 0
    born_ms, host = kafka_origin.born_timestamp_ms(record), kafka_origin.HOST
    made = FormerMessage(record.timestamp_ms, -1, born_ms, host, host, 0, flags, 0, 0, raw, body)
    misfit = former is None and rocketmq_origin.has_marks(record)
    return _mapped(made, topic, queue_id)._replace(enveloped=enveloped, misfit=misfit)


def _mapped(made: FormerMessage, topic: str, queue_id: int) -> Mapped:
    topic_raw = topic.encode()
    fields: PreparedMessage = (
        topic_raw,
        made.body,
        made.properties_raw,
        queue_id,
        made.flag,
        made.sys_flag,
        made.born_timestamp_ms,
        made.born_host_raw,
        made.store_host_raw,
        made.reconsume_times,
        made.prepared_transaction_offset,
        c.MAGIC_V1,
    )
    size = record_size(
        len(made.body),
        len(topic_raw),
        len(made.properties_raw),
        born_host_size=len(made.born_host_raw),
        store_host_size=len(made.store_host_raw),
    )
    queued = made.sys_flag & SysFlag.TRANSACTION_MASK not in rocketmq_origin.WITHOUT_QUEUE
    return Mapped(fields, size, made.store_timestamp_ms, made.physical_offset, queued)


def record_of(
    message: Message,
    former: KafkaRecord | None,
    offset: int,
    *,
    body: bytes | None = None,
    original_topic: str | None = None,
) -> KafkaRecord:
    """The record that stands for ``message`` at ``offset`` of a partition.

    Args:
        message: the message.
        former: the record that it once was, as :func:`former_record` tells.
        offset: the record's offset.
        body: the body inflated, where that of the message is compressed.
        original_topic: the message's topic, if the record's topic is not that.
    """
    if former is not None:
        # Batches of magic 2 know two kinds of time only.
        kind = max(former.timestamp_type, TimestampType.CREATE_TIME)
        return former._replace(offset=offset, timestamp_type=kind)
    sys_flag = message.sys_flag
    if body is not None:
        sys_flag &= ~(SysFlag.COMPRESSED | SysFlag.COMPRESSION_MASK)
    return KafkaRecord(
        offset,
        message.born_timestamp_ms,
        TimestampType.CREATE_TIME,
        rocketmq_origin.key_of(message.properties_raw),
        message.body if body is None else body,
        rocketmq_origin.headers_of(message, sys_flag, original_topic),
        -1,
    )
