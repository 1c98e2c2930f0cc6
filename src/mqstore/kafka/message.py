"""What goes into a Kafka log and what comes out of it."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field

from mqstore import errors
from mqstore.layout.kafka.record import Record
from mqstore.status import GetMessageStatus, PutMessageStatus


class Isolation(str, enum.Enum):
    """Which records a reader is shown."""

    READ_UNCOMMITTED = "read_uncommitted"
    """All up to the end of the log, those of aborted and open transactions among them."""
    READ_COMMITTED = "read_committed"
    """Those of committed transactions and of none, up to the last stable offset."""

    @classmethod
    def parse(cls, text: str) -> Isolation:
        """``"read_committed"`` or ``"read_uncommitted"``; UsageError for anything else."""
        try:
            return cls(text)
        except ValueError:
            expected = "read_committed or read_uncommitted"
            raise errors.UsageError("no such isolation level", expected=expected, found=repr(text)) from None


@dataclass(slots=True)
class KafkaMessage:
    """A message to put.

    Attributes:
        topic: 1 to 249 of ``a-z A-Z 0-9 . _ -``.
        value: the payload; None is a tombstone, which makes compaction remove the key.
        key: what compaction goes by; None and empty are different things.
        headers: names and values in order; a name may repeat, a value may be None.
        timestamp_ms: when it was made; None is now. LogAppendTime replaces it.
        partition: the partition to append to.
    """

    topic: str
    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp_ms: int | None = None
    partition: int = 0


@dataclass(frozen=True, slots=True)
class PutResult:
    """Where a message was stored, and with which timestamp.

    ``is_duplicate`` says that an idempotent producer had stored it before: nothing was added.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    is_duplicate: bool = False

    @property
    def status(self) -> PutMessageStatus:
        """PUT_OK: what is refused is an error."""
        return PutMessageStatus.PUT_OK

    @property
    def queue_id(self) -> int:
        """The partition, under the other layout's name."""
        return self.partition

    @property
    def queue_offset(self) -> int:
        """The offset, under the other layout's name."""
        return self.offset

    @property
    def store_timestamp_ms(self) -> int:
        """The timestamp, under the other layout's name."""
        return self.timestamp_ms


@dataclass(frozen=True, slots=True)
class GetResult:
    """Records of one partition from one offset on.

    Attributes:
        status: why these and no more.
        next_offset: where to go on; counts what was looked at, not what was returned.
        min_offset: first offset still stored in the partition.
        max_offset: one past the last that this reader may see.
        messages: the records in order; they own their bytes and stay valid for ever.
        skipped: damaged batches that were passed over, where the caller asked for that.
    """

    status: GetMessageStatus
    next_offset: int
    min_offset: int
    max_offset: int
    messages: list[Record] = field(default_factory=list)
    skipped: int = 0
