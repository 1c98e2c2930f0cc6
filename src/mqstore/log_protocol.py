"""What both layouts can do: one small face for tools, tests and benchmarks that drive either.

:class:`mqstore.Store` and :class:`mqstore.kafka.KafkaStore` both are a :class:`MessageLog`, by structure. It covers
what the ideas share: messages in numbered queues (partitions) of topics. Both take a :class:`mqstore.Message`; keys,
headers, tags, transactions and cleaning are each layout's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, SupportsIndex

from mqstore.findings import Finding
from mqstore.status import GetMessageStatus


class StoredMessage(Protocol):
    """A message that was got: its payload and its number in its queue."""

    @property
    def body(self) -> bytes | None:
        """The payload; None is a tombstone, which only one layout knows."""

    @property
    def queue_offset(self) -> int:
        """Its number in its queue."""


class PutPlace(Protocol):
    """Where a message was stored."""

    @property
    def topic(self) -> str:
        """The topic."""

    @property
    def queue_id(self) -> int:
        """The queue of it."""

    @property
    def queue_offset(self) -> int:
        """The number in the queue."""


class Got(Protocol):
    """Messages of one queue, and where to go on."""

    @property
    def status(self) -> GetMessageStatus:
        """Why these and no more."""

    @property
    def next_offset(self) -> int:
        """Where to go on."""

    @property
    def messages(self) -> Sequence[StoredMessage]:
        """The messages in order."""


class QueueStats(Protocol):
    """A queue and its range."""

    @property
    def topic(self) -> str:
        """The topic."""

    @property
    def queue_id(self) -> int:
        """The queue of it."""

    @property
    def min_offset(self) -> int:
        """First offset still stored."""

    @property
    def max_offset(self) -> int:
        """One past the last."""


class MessageLog(Protocol):
    """A running store of either layout."""

    def put(self, message: Any, /) -> PutPlace:
        """Store one message."""

    def put_batch(self, messages: Any, /) -> Sequence[PutPlace]:
        """Store messages in order."""

    def get(self, topic: str, queue_id: int, offset: int, max_messages: int, /) -> Got:
        """Messages of one queue from ``offset`` on."""

    def offset_at(self, topic: str, queue_id: int, timestamp_ms: int, /) -> SupportsIndex | None:
        """First message not older than a time, as something that ``operator.index`` makes an offset of.

        Where there is none, one layout answers with the end of the queue and the other with None; None also means that
        there is no such queue.
        """

    def min_offset(self, topic: str, queue_id: int, /) -> int:
        """First offset still stored; 0 without such a queue."""

    def max_offset(self, topic: str, queue_id: int, /) -> int:
        """One past the last offset; 0 without such a queue."""

    def flush(self) -> None:
        """Force everything to the device."""

    def check(self) -> list[Finding]:
        """Everything that is wrong on disk."""

    def stats(self) -> Sequence[QueueStats]:
        """Every queue with its range, ordered by topic and number."""

    def close(self) -> None:
        """Make everything durable and end."""
