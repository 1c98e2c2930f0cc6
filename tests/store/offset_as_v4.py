"""The offset by time as a broker of RocketMQ 4.9 answers it: what golden stores and the real classes are compared with.

docs/format/consume-queue.md, look-up by time, tells how it differs from that of mqstore and of RocketMQ 5.
"""

from __future__ import annotations

from collections.abc import Sequence

from mqstore import StoreView
from mqstore.files.inventory import FileEntry
from mqstore.layout.constants import QUEUE_UNIT_SIZE
from mqstore.store.log_reader import LogReader
from mqstore.store.queue_reader import QueueReader
from mqstore.store.reading import QueueRange


def offset_at_as_v4(view: StoreView, topic: str, queue_id: int, timestamp_ms: int) -> int:
    """It picks the queue's file by modification time and gives the nearest message, which may be on either side."""
    found = view._find(topic, queue_id)
    if found is None or not isinstance(found.queue, QueueReader):
        return 0
    return _by_file_times(view.log, found, found.queue.inventory.entries, timestamp_ms)


def _by_file_times(log: LogReader, where: QueueRange, entries: Sequence[FileEntry], timestamp_ms: int) -> int:
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
