"""What goes into a store and what comes out of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import NamedTuple

from mqstore.kernels import MessageFields
from mqstore.layout.constants import SysFlag
from mqstore.layout.hosts import decode_host
from mqstore.layout.record import Record
from mqstore.status import GetMessageStatus, PutMessageStatus


@dataclass(init=False)
class Message(MessageFields):
    """A message to put.

    Attributes:
        topic: 1 to 127 bytes of ``A-Z a-z 0-9 _ - % |``.
        body: the payload, up to ``max_message_size`` bytes.
        tags: one tag that consumers filter by.
        keys: words to look the message up by; a key holds no space.
        properties: user properties; names and values without the characters U+0000 to U+0002.
        queue_id: the queue to append to; None spreads over the topic's queues in turn.
        delay_level: 0 is for at once; 1 to 18 puts it into the schedule topic, due after the time that
            ``message_delay_level`` gives the level, and delivered then.
        flag: a 32-bit number the store carries along.
        sys_flag: bits of docs/format/commit-log.md (compression, transaction type, multi tags).
        born_timestamp_ms: when the producer made it; None is now.
        born_host: ``address:port`` of the producer; None is the store's own.
        reconsume_times: how often consuming it failed.
        prepared_transaction_offset: log offset of the half message that this one completes.
        wait_store_msg_ok: False lets a SYNC_FLUSH put return before the sync.
    """

    __slots__ = ()

    topic: str
    body: bytes
    tags: str | None
    keys: Sequence[str]
    properties: dict[str, str]
    queue_id: int | None
    delay_level: int
    flag: int
    sys_flag: int
    born_timestamp_ms: int | None
    born_host: str | None
    reconsume_times: int
    prepared_transaction_offset: int
    wait_store_msg_ok: bool

    def __reduce__(self) -> tuple[type[Message], tuple[object, ...]]:
        """A copy is made, and read elsewhere, by the constructor."""
        return type(self), tuple(getattr(self, one.name) for one in fields(self))


def once_more(
    record: Record, topic: str, properties: dict[str, str], reconsume_times: int, delay_level: int = 0
) -> Message:
    """A message that says what ``record`` says, for queue 0 of ``topic``; it is part of no transaction."""
    return Message(
        topic,
        record.body,
        properties=properties,
        queue_id=0,
        delay_level=delay_level,
        flag=record.flag,
        sys_flag=record.sys_flag & ~SysFlag.TRANSACTION_MASK,
        born_timestamp_ms=record.born_timestamp_ms,
        born_host=decode_host(record.born_host_raw),
        reconsume_times=reconsume_times,
    )


class PutResult(NamedTuple):
    """Where a message was stored. ``topic`` and ``queue_id`` are the schedule queue's for a delayed message."""

    status: PutMessageStatus
    msg_id: str
    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size_bytes: int
    store_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class GetResult:
    """Messages of one queue from one offset on.

    Attributes:
        status: why these and no more.
        next_offset: where to go on; counts the units looked at, not the messages returned.
        min_offset: first offset still stored in the queue.
        max_offset: one past the last.
        messages: decoded records in queue order; they own their bytes and stay valid for ever.
    """

    status: GetMessageStatus
    next_offset: int
    min_offset: int
    max_offset: int
    messages: list[Record] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class QueryResult:
    """Messages found by key, oldest first.

    ``truncated`` says that more may exist than ``max_messages`` allowed; ask again with ``end_ms`` at the first
    message's store time.
    """

    messages: list[Record]
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """One queue: ``min_offset`` is the first message still stored, ``max_offset`` one past the last."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int

    @property
    def count(self) -> int:
        """Messages between the two offsets."""
        return self.max_offset - self.min_offset
