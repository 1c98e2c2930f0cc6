"""Messages by key: candidates from an index file, and the record behind one, read by descriptor or from a map."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

from mqstore.errors import CorruptRecordError, UsageError
from mqstore.kernels.pure.index import TRUNCATED_MS, check_dimensions
from mqstore.layout import index as layout
from mqstore.layout.buffers import Buffer
from mqstore.layout.constants import INT_MAX, LONG_MAX
from mqstore.layout.index import INDEX_ENTRY, INDEX_HEADER, INDEX_SLOT, IndexEntry
from mqstore.layout.record import Record, decode_record
from mqstore.layout.text import decode_text

_LOOK_AT_MOST = 64
_LARGE_SIZE = 8 << 20
_LATEST_BEGIN = 1 << 62


class _OutOfTheOrdinary(Exception):
    """What was read is left to the plain path."""


@dataclass(frozen=True)
class _Place:
    """A file to read from: its descriptor, or its bytes before ``end`` in memory."""

    source: int | Buffer
    end: int

    def read(self, position: int, size_bytes: int) -> bytes:
        """Exactly so many bytes."""
        if isinstance(self.source, int):
            data = os.pread(self.source, size_bytes, position)
        else:
            data = bytes(self.source[position : min(position + size_bytes, self.end)])
        if len(data) != size_bytes:
            raise _OutOfTheOrdinary
        return data


def key_hash(topic: bytes, key: bytes, /) -> int:
    """See :meth:`mqstore.kernels.api.Kernels.key_hash`."""
    return layout.key_hash(decode_text(topic), decode_text(key))


def index_find(
    source: int | Buffer,
    end: int,
    hash_slots: int,
    max_entries: int,
    key_hash: int,
    number: int,
    most: int,
    begin_ms: int,
    end_ms: int,
    /,
) -> tuple[list[int], int] | None:
    """See :meth:`mqstore.kernels.api.Kernels.index_find`."""
    check_dimensions(LONG_MAX, hash_slots, max_entries)
    if not 0 <= key_hash <= INT_MAX or not 0 <= number <= INT_MAX:
        raise UsageError("no such hash or entry", expected=f"0 to {INT_MAX}", found=(key_hash, number))
    place = _Place(source, end)
    most = min(most, _LOOK_AT_MOST)
    try:
        return _follow_chain(place, hash_slots, max_entries, key_hash, number, most, begin_ms, end_ms)
    except (_OutOfTheOrdinary, OSError):
        return None


def _follow_chain(
    place: _Place, hash_slots: int, max_entries: int, key_hash: int, number: int, most: int, begin_ms: int, end_ms: int
) -> tuple[list[int], int]:
    header = layout.decode_header(place.read(0, INDEX_HEADER.size))
    if header.index_count > max_entries or min(header[:5]) < 0:
        raise _OutOfTheOrdinary
    if number == 0:
        if header.index_count <= 1 or header.begin_timestamp_ms > end_ms or header.end_timestamp_ms < begin_ms:
            return [], 0
        slot = place.read(layout.slot_position(key_hash, hash_slots), INDEX_SLOT.size)
        number = max(INDEX_SLOT.unpack(slot)[0], 0)
    if number >= header.index_count or header.begin_timestamp_ms > _LATEST_BEGIN:
        raise _OutOfTheOrdinary
    found = []
    for _ in range(most):
        if number == 0:
            break
        data = place.read(layout.entry_position(number, hash_slots), INDEX_ENTRY.size)
        entry = IndexEntry._make(INDEX_ENTRY.unpack(data))
        if entry.previous >= number:
            raise _OutOfTheOrdinary
        at_least = header.begin_timestamp_ms + 1000 * entry.time_diff_s
        if entry.key_hash == key_hash and at_least <= end_ms and at_least + TRUNCATED_MS >= begin_ms:
            found.append(entry.physical_offset)
        number = max(entry.previous, 0)
    return found, number


def record_with_key(
    source: int | Buffer,
    end: int,
    position: int,
    room: int,
    physical_offset: int,
    topic: bytes,
    key: bytes,
    begin_ms: int,
    end_ms: int,
    record_type: type[Record],
    /,
) -> Record | Literal[False] | None:
    """See :meth:`mqstore.kernels.api.Kernels.record_with_key`."""
    if position < 0 or room < 4:
        return None
    place = _Place(source, end)
    try:
        size = int.from_bytes(place.read(position, 4), "big", signed=True)
        if not 0 < size <= min(room, _LARGE_SIZE):
            return None
        record = decode_record(place.read(position, size), physical_offset=physical_offset)
    except (_OutOfTheOrdinary, OSError, CorruptRecordError):
        return None
    if not isinstance(record, Record) or record.total_size != size:
        return None
    if record.topic_raw != topic or key.decode() not in layout.index_keys(record):
        return False
    return record if begin_ms <= record.store_timestamp_ms <= end_ms else False
