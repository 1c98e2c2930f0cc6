"""Times of messages in a queue, and the offset by time as RocketMQ 4.9 answers it, for comparison only.

docs/format/consume-queue.md, look-up by time, tells how the two differ.
"""

from __future__ import annotations

from collections.abc import Sequence

from mqstore import errors
from mqstore.files.inventory import FileEntry
from mqstore.layout.constants import QUEUE_UNIT_SIZE
from mqstore.status import BoundaryType
from mqstore.store.log_reader import LogReader
from mqstore.store.reading import QueueRange, UnitSource


def offset_at_by_file_times(log: LogReader, where: QueueRange, entries: Sequence[FileEntry], timestamp_ms: int) -> int:
    """The offset of the nearest message, searched in the one file that modification times point to; 0 for none."""
    entry = _file_for(entries, timestamp_ms)
    if entry is None:
        return 0
    first = entry.start // QUEUE_UNIT_SIZE
    low = max(first, where.min_offset) - first
    high = min(where.max_offset, (entry.start + entry.length) // QUEUE_UNIT_SIZE) - first - 1
    left = right = -1
    left_ms = right_ms = -1
    found = -1
    while high >= low:
        middle = (low + high) // 2
        unit = where.queue.unit(first + middle)
        if unit is None or unit.physical_offset < log.min_offset:
            low = middle + 1
            continue
        record = log.record_at(unit.physical_offset, unit.size_bytes)
        if record is None:
            return 0
        stored_ms = record.store_timestamp_ms
        if stored_ms == timestamp_ms:
            found = middle
            break
        if stored_ms > timestamp_ms:
            high, right, right_ms = middle - 1, middle, stored_ms
        else:
            low, left, left_ms = middle + 1, middle, stored_ms
    if found < 0:
        found = _nearest(left, left_ms, right, right_ms, timestamp_ms)
    # Nothing seen is byte position -1 in the original, which divides and truncates towards zero.
    return first + found if found >= 0 else max(0, first - 1)


def _nearest(left: int, left_ms: int, right: int, right_ms: int, timestamp_ms: int) -> int:
    if left_ms == -1:
        return right
    if right_ms == -1:
        return left
    return right if abs(timestamp_ms - left_ms) > abs(timestamp_ms - right_ms) else left


def _file_for(entries: Sequence[FileEntry], timestamp_ms: int) -> FileEntry | None:
    for entry in entries:
        if entry.path.stat().st_mtime_ns // 1_000_000 >= timestamp_ms:
            return entry
    return entries[-1] if entries else None


def store_time_of(log: LogReader, queue: UnitSource, offset: int) -> int | None:
    """Store time in ms of the message at a queue offset; None when its record is gone."""
    unit = queue.unit(offset)
    if unit is None or not unit.is_written:
        return None
    record = log.record_at(unit.physical_offset, unit.size_bytes)
    return None if record is None else record.store_timestamp_ms


def parse_boundary(boundary: str | BoundaryType) -> BoundaryType:
    """``"lower"`` or ``"upper"``; UsageError for anything else."""
    try:
        return BoundaryType(boundary)
    except ValueError:
        raise errors.UsageError("no such boundary", expected="lower or upper", found=repr(boundary)) from None
