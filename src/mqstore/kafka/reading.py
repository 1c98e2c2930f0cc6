"""What a reader asks of a partition: records from an offset on. The same code serves a view and a running log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from mqstore import errors
from mqstore.kafka.damage import BatchDamage, Reporter, raise_at_damage
from mqstore.kafka.lookup import BatchPlace, batches_from
from mqstore.kafka.message import GetResult
from mqstore.kafka.records import no_records_of, records_of
from mqstore.kafka.segment import Segment
from mqstore.kafka.transactions import CommittedFilter
from mqstore.layout.kafka.record import Record
from mqstore.layout.kafka.txn_index import AbortedTransaction
from mqstore.status import GetMessageStatus

_OVERHEAD_BYTES = 16
"""What a record counts besides key and value."""


@dataclass(frozen=True)
class LogRange:
    """A partition as one reader sees it at one moment.

    Attributes:
        segments: in order; the last one's limit is where the log ends.
        start: first offset that may be read.
        end: one past the last that this reader may see.
        aborted: gives the aborted transactions between two offsets; None: aborted records are shown.
    """

    segments: Sequence[Segment]
    start: int
    end: int
    aborted: Callable[[int, int], list[AbortedTransaction]] | None = None

    def batches(self, offset: int, on_damage: Reporter = raise_at_damage) -> Iterator[BatchPlace]:
        """The batches from the one that holds ``offset`` on that begin before the end."""
        is_behind = False
        for place in batches_from(self.segments, max(offset, self.start), on_damage):
            was_behind, is_behind = is_behind, place.header.base_offset >= self.end
            # One that is behind may be so by a flipped bit, which the next one shows.
            if was_behind and is_behind:
                return
            if not is_behind or place.header.is_wrapper:  # which tells its last offset alone: its first may be before
                yield place

    def record_batches(
        self, offset: int, on_damage: Reporter = raise_at_damage
    ) -> Iterator[tuple[BatchPlace, list[Record]]]:
        """The same with their records from ``offset`` on; none of a batch that this reader is not shown."""
        hidden: CommittedFilter | None = None
        first = max(offset, self.start)
        for place in self.batches(offset, on_damage):
            header = place.header
            if self.aborted is not None and hidden is None and header.is_transactional:
                hidden = CommittedFilter(self.aborted(header.base_offset, self.end))
            is_shown = not (header.is_control or (hidden is not None and hidden.hides(header)))
            # What is not shown is checked as well: it may be a flipped bit that says so.
            records = _records_or_damage(place, on_damage, is_shown)
            if records is None:
                return
            yield place, [record for record in records if first <= record.offset < self.end]


def _records_or_damage(place: BatchPlace, on_damage: Reporter, is_shown: bool) -> list[Record] | None:
    """The records of a batch; none of one that is not shown, or is damaged and passed over; None to stop there."""
    read = records_of if is_shown else no_records_of
    try:
        return read(place.segment, place.position, place.header, place.buffer)
    except errors.CorruptBatchError as error:
        if on_damage is raise_at_damage:
            raise
        damage = BatchDamage(place.segment.path(), place.position, str(error.found), place.header.size)
        return [] if on_damage(damage) else None


def get_records(
    log: LogRange, offset: int, max_messages: int, max_bytes: int, on_damage: Reporter = raise_at_damage
) -> GetResult:
    """Up to ``max_messages`` records from ``offset`` on, of ``max_bytes`` in all unless one alone is larger."""
    outside = _outside(log, offset)
    if outside is not None:
        return GetResult(outside[0], outside[1], log.start, log.end)
    collector = _Collector(max_messages, max_bytes, on_damage)
    next_offset = collector.collect(log, offset)
    status = GetMessageStatus.FOUND if collector.messages else GetMessageStatus.NO_MATCHED_MESSAGE
    return GetResult(status, next_offset, log.start, log.end, collector.messages, collector.skipped)


class _Collector:
    """Gathers records until a limit is reached."""

    def __init__(self, max_messages: int, max_bytes: int, on_damage: Reporter) -> None:
        self._max_messages = max_messages
        self._bytes_left = max_bytes
        self._ask = on_damage
        self._is_stopped = False
        self.messages: list[Record] = []
        self.skipped = 0

    def collect(self, log: LogRange, offset: int) -> int:
        """Gather from ``offset`` on; the offset to go on from."""
        reporter = raise_at_damage if self._ask is raise_at_damage else self._on_damage
        for place, records in log.record_batches(offset, reporter):
            for record in records:
                if not self._take(record):
                    return record.offset
            offset = min(log.end, place.header.last_offset + 1)
            if len(self.messages) >= self._max_messages:
                return offset
        return offset if self._is_stopped else log.end

    def _take(self, record: Record) -> bool:
        size = _OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"")
        if self.messages and (len(self.messages) >= self._max_messages or size > self._bytes_left):
            return False
        self.messages.append(record)
        self._bytes_left -= size
        return True

    def _on_damage(self, damage: BatchDamage) -> bool:
        goes_on = self._ask(damage)
        self.skipped += goes_on
        self._is_stopped = not goes_on
        return goes_on


def _outside(log: LogRange, offset: int) -> tuple[GetMessageStatus, int] | None:
    if log.end == log.start == 0:
        return GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0
    if offset < log.start:
        return GetMessageStatus.OFFSET_TOO_SMALL, log.start
    if offset == log.end:
        return GetMessageStatus.OFFSET_OVERFLOW_ONE, offset
    if offset > log.end:
        return GetMessageStatus.OFFSET_OVERFLOW_BADLY, log.end
    return None
