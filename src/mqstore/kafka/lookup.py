"""Finding a batch by offset and a record by time, with Kafka's meaning (docs/format/kafka-index.md)."""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from mqstore.kafka.damage import BatchDamage, Reporter, raise_at_damage, stop_at_damage
from mqstore.kafka.order import OUT_OF_ORDER, OffsetOrder
from mqstore.kafka.records import records_of
from mqstore.kafka.segment import Segment
from mqstore.layout.constants import LONG_MAX
from mqstore.layout.kafka.batch import BatchHeader
from mqstore.layout.kafka.time_index import TimeEntry

_log = logging.getLogger(__name__)


class OffsetTime(NamedTuple):
    """An offset and the timestamp of its record in ms; -1 where no record was asked for.

    ``operator.index`` gives the offset, as it does for the plain number that the other layout answers with.
    """

    offset: int
    timestamp_ms: int

    def __index__(self) -> int:
        return self.offset


class BatchPlace(NamedTuple):
    """Where a batch lies: segment, position in its ``.log``, header, and the buffer the header's position is in."""

    segment: Segment
    position: int
    header: BatchHeader
    buffer: bytes

    def to_damage(self) -> BatchDamage:
        """That this batch cannot stand where it does."""
        return BatchDamage(self.segment.path(), self.position, OUT_OF_ORDER, self.header.size)


def floor_segment(segments: Sequence[Segment], offset: int) -> int:
    """Number of the segment with the largest base offset not above ``offset``; 0 when there is none."""
    return max(0, bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1)


def start_position(segment: Segment, offset: int) -> int:
    """Position in ``segment`` from which to walk to the batch that holds ``offset``.

    The index is a hint: an entry that points at no batch, or behind the offset, is passed over with a warning.
    """
    entry = segment.offset_index().floor(offset)
    if entry.position == 0:
        return 0
    found = next(segment.headers(entry.position, on_damage=stop_at_damage), None)
    if found is not None and segment.base_offset <= found[1].base_offset <= entry.offset:
        return entry.position
    _log.warning("an index entry points at no batch, walking the whole segment: %s", segment.path())
    return 0


def batches_from(
    segments: Sequence[Segment], offset: int, on_damage: Reporter = raise_at_damage
) -> Iterator[BatchPlace]:
    """The batches from the one that holds ``offset``, or the first behind it, to the end.

    Raises:
        CorruptBatchError: something else than a batch, unless ``on_damage`` decides to go on behind it.
    """
    first = floor_segment(segments, offset)
    is_stopped = False
    order: OffsetOrder[BatchPlace] = OffsetOrder()

    def note(damage: BatchDamage) -> bool:
        nonlocal is_stopped
        is_stopped = not on_damage(damage)
        return not is_stopped

    for number in range(first, len(segments)):
        segment = segments[number]
        start = start_position(segment, offset) if number == first else 0
        # Who passes over damage must not trust the length of a damaged batch to get behind it.
        for position, header, buffer in segment.headers(
            start, check_crc=on_damage is not raise_at_damage, on_damage=note
        ):
            place = BatchPlace(segment, position, header, buffer)
            odd = order.odd_one(place, header.base_offset, header.last_offset)
            if odd is not None and not note(odd.to_damage()):
                return
            if odd is not place and header.last_offset >= offset:
                yield place
        if is_stopped:  # the log ends here, the following segments included
            return


def find_batch(segments: Sequence[Segment], offset: int) -> BatchPlace | None:
    """The first batch whose last offset is not below ``offset``; None behind the last."""
    return next(batches_from(segments, offset), None)


def largest_time(segment: Segment) -> TimeEntry:
    """Largest timestamp of a segment and the last offset of the batch that holds it; time -1 without timestamps.

    The last entry of its time index should tell. But the last segment may have had more since, and an index may have
    lost its end, so that the batches behind the entry are looked at, once.
    """
    size = segment.size_bytes
    if segment.walked_largest[0] == size:
        return segment.walked_largest[1]
    largest = segment.time_index().last
    start = segment.offset_index().floor(largest.offset).position if largest.timestamp_ms >= 0 else 0
    for _, header, _ in segment.headers(start, on_damage=lambda damage: True):  # told to whoever reads it
        if header.max_timestamp_ms > largest.timestamp_ms:
            largest = TimeEntry(header.max_timestamp_ms, header.last_offset)
    segment.walked_largest = size, largest
    return largest


def offset_at(segments: Sequence[Segment], timestamp_ms: int | str, log_start: int, log_end: int) -> OffsetTime | None:
    """The answer to a time in ms, or to ``earliest``, ``latest`` or ``max_timestamp``."""
    if timestamp_ms == "earliest":
        return OffsetTime(log_start, -1)
    if timestamp_ms == "latest":
        return OffsetTime(log_end, -1)
    if timestamp_ms == "max_timestamp":
        return find_max_time(segments)
    assert isinstance(timestamp_ms, int)
    return find_time(segments, timestamp_ms, log_start)


def find_time(segments: Sequence[Segment], timestamp_ms: int, log_start: int) -> OffsetTime | None:
    """The first record, in log order and from ``log_start`` on, that is not older than ``timestamp_ms``."""
    for number, segment in enumerate(segments):
        largest = largest_time(segment).timestamp_ms
        if (largest if largest >= 0 else segment.modified_ms) >= timestamp_ms:
            found = _find_time_in(segment, timestamp_ms, log_start, _next_base(segments, number))
            if found is not None:
                return found  # a segment without timestamps, or below the log start, may hold none
    return None


def _find_time_in(segment: Segment, timestamp_ms: int, log_start: int, ceiling: int) -> OffsetTime | None:
    # Up to the entry all is older; the batch that it speaks of is the first to judge offsets by.
    start = max(segment.time_index().floor(timestamp_ms - 1).offset, log_start)
    for place in _in_order(segment, start_position(segment, start), ceiling):
        if place.header.max_timestamp_ms >= timestamp_ms and place.header.last_offset >= log_start:
            for record in records_of(segment, place.position, place.header, place.buffer):
                if record.timestamp_ms >= timestamp_ms and record.offset >= log_start:
                    return OffsetTime(record.offset, record.timestamp_ms)
    return None


def _next_base(segments: Sequence[Segment], number: int) -> int:
    return segments[number + 1].base_offset if number + 1 < len(segments) else LONG_MAX


def _in_order(segment: Segment, start: int, ceiling: int) -> Iterator[BatchPlace]:
    """The batches from position ``start`` on, each when the one behind it has shown that its offset may be right.

    Raises:
        CorruptBatchError: damage, or an offset that cannot be right; none is at ``ceiling`` or behind.
    """
    order: OffsetOrder[BatchPlace] = OffsetOrder(segment.base_offset)
    damages: list[BatchDamage] = []
    waiting: BatchPlace | None = None

    def note(damage: BatchDamage) -> bool:
        damages.append(damage)
        return False

    for position, header, buffer in segment.headers(start, on_damage=note):
        place = BatchPlace(segment, position, header, buffer)
        odd = place if header.last_offset >= ceiling else order.odd_one(place, header.base_offset, header.last_offset)
        if odd is not None:
            raise odd.to_damage().to_error()
        if waiting is not None:
            yield waiting
        waiting = place
    if waiting is not None:
        yield waiting
    if damages:
        raise damages[0].to_error()


def find_max_time(segments: Sequence[Segment]) -> OffsetTime | None:
    """The first record that has the largest timestamp of all; None without timestamps."""
    best: tuple[int, TimeEntry] | None = None
    for number, segment in enumerate(segments):
        largest = largest_time(segment)
        if largest.timestamp_ms >= 0 and (best is None or largest.timestamp_ms > best[1].timestamp_ms):
            best = number, largest
    if best is None:
        return None
    number, largest = best
    segment = segments[number]
    for place in _in_order(segment, start_position(segment, largest.offset), _next_base(segments, number)):
        if place.header.max_timestamp_ms == largest.timestamp_ms:
            for record in records_of(segment, place.position, place.header, place.buffer):
                if record.timestamp_ms == largest.timestamp_ms:
                    return OffsetTime(record.offset, record.timestamp_ms)
    return None
