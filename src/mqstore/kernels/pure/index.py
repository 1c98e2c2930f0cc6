"""Keys of scanned records into index files, and out of them."""

from __future__ import annotations

from typing import Any, Final

from mqstore.errors import UsageError
from mqstore.kernels.api import INDEX_KEY, IndexSlots, LogColumns
from mqstore.kernels.pure.checks import check_rows, part, text_of
from mqstore.layout import index as layout
from mqstore.layout.buffers import Buffer
from mqstore.layout.constants import INT_MAX, SysFlag
from mqstore.layout.index import INDEX_ENTRY, INDEX_HEADER, INDEX_SLOT, IndexEntry, IndexHeader
from mqstore.layout.properties import split_keys
from mqstore.layout.text import decode_text

TRUNCATED_MS: Final = 999
"""What an entry's time may lack, because it counts whole seconds."""


def check_dimensions(size: int, hash_slots: int, max_entries: int) -> None:
    """Raises UsageError unless a file of ``size`` bytes has room for these."""
    if hash_slots < 1 or max_entries < 0 or layout.file_size(hash_slots, max_entries) > size:
        raise UsageError(
            "the index file is smaller than its dimensions",
            expected=f"{hash_slots} slots, {max_entries} entries",
            found=size,
        )


def index_put(
    index_buffer: Any,
    hash_slots: int,
    max_entries: int,
    buffer: Buffer,
    columns: LogColumns,
    row: int,
    key: int,
    stop: int,
) -> tuple[int, int]:
    """See :meth:`mqstore.kernels.api.Kernels.index_put`."""
    check_rows(columns.count, row, stop)
    if max_entries < 2 or key < 0:
        raise UsageError("an index file needs room for a key", expected="2 entries or more", found=max_entries)
    with memoryview(index_buffer) as file, memoryview(buffer) as view:
        check_dimensions(len(file), hash_slots, max_entries)
        header = layout.decode_header(file)
        for current in range(row, stop):
            topic = decode_text(part(view, columns.topic_position[current], columns.topic_size[current]))
            place = columns.own_offset[current], columns.store_timestamp_ms[current]
            first = key if current == row else 0
            for number, text in list(enumerate(_keys(view, columns, current)))[first:]:
                if header.index_count >= max_entries:
                    return _written(file, header, current, number)
                position = layout.entry_position(header.index_count, hash_slots)
                header, entry = _next_entry(file, hash_slots, header, layout.key_hash(topic, text), *place)
                INDEX_ENTRY.pack_into(file, position, *entry)
            if first == 0 and header.index_count >= max_entries and not _keys(view, columns, current):
                return _written(file, header, current, 0)
        return _written(file, header, stop, 0)


def _written(file: memoryview, header: IndexHeader, row: int, key: int) -> tuple[int, int]:
    INDEX_HEADER.pack_into(file, 0, *header)
    return row, key


def _keys(view: memoryview, columns: LogColumns, row: int) -> list[str]:
    if columns.sys_flag[row] & SysFlag.TRANSACTION_MASK == SysFlag.TRANSACTION_ROLLBACK:
        return []
    uniq_key = text_of(view, columns.uniq_key_position[row], columns.uniq_key_size[row])
    keys = split_keys(text_of(view, columns.keys_position[row], columns.keys_size[row]))
    return [uniq_key, *keys] if uniq_key else keys


def _next_entry(
    file: memoryview, hash_slots: int, header: IndexHeader, key_hash: int, physical_offset: int, timestamp_ms: int
) -> tuple[IndexHeader, IndexEntry]:
    """Put one key into its slot; the header to write afterwards, and the entry, which is ``header.index_count``."""
    number = header.index_count
    slot = layout.slot_position(key_hash, hash_slots)
    previous = INDEX_SLOT.unpack_from(file, slot)[0]
    if not 0 < previous < number:
        previous = 0
    diff = layout.time_diff_s(header.begin_timestamp_ms, timestamp_ms)
    INDEX_SLOT.pack_into(file, slot, number)
    first = number <= 1
    new = IndexHeader(
        timestamp_ms if first else header.begin_timestamp_ms,
        timestamp_ms,
        physical_offset if first else header.begin_physical_offset,
        physical_offset,
        header.hash_slot_count + (previous == 0),
        number + 1,
    )
    return new, IndexEntry(key_hash, physical_offset, diff, previous)


def index_keys(buffer: Buffer, columns: LogColumns, row: int, stop: int) -> bytes:
    """See :meth:`mqstore.kernels.api.Kernels.index_keys`."""
    check_rows(columns.count, row, stop)
    taken = bytearray()
    with memoryview(buffer) as view:
        for current in range(row, stop):
            topic = decode_text(part(view, columns.topic_position[current], columns.topic_size[current]))
            place = columns.own_offset[current], columns.store_timestamp_ms[current]
            for text in _keys(view, columns, current):
                taken += INDEX_KEY.pack(layout.key_hash(topic, text), *place)
    return bytes(taken)


def index_entries(head: Any, hash_slots: int, keys: Buffer) -> bytes:
    """See :meth:`mqstore.kernels.api.Kernels.index_entries`."""
    with memoryview(head) as file, memoryview(keys) as view:
        if view.nbytes % INDEX_KEY.size:
            raise UsageError("no such keys", expected=f"{INDEX_KEY.size} bytes each", found=view.nbytes)
        check_dimensions(len(file), hash_slots, 0)
        wanted = list(INDEX_KEY.iter_unpack(view))
        if any(key_hash < 0 for key_hash, _, _ in wanted):
            raise UsageError("the hash of a key is negative")
        header = layout.decode_header(file)
        room = INT_MAX - header.index_count
        if len(wanted) > room:
            raise UsageError("no index file takes so many keys", expected=room, found=len(wanted))
        entries = bytearray()
        for key in wanted:
            header, entry = _next_entry(file, hash_slots, header, *key)
            entries += INDEX_ENTRY.pack(*entry)
        INDEX_HEADER.pack_into(file, 0, *header)
        return bytes(entries)


def index_slots(entries: Buffer, hash_slots: int, log_end: int, after: IndexSlots | None = None) -> IndexSlots:
    """See :meth:`mqstore.kernels.api.Kernels.index_slots`."""
    if not 1 <= hash_slots <= INT_MAX:
        raise UsageError("an index file has slots", expected=f"1..{INT_MAX}", found=hash_slots)
    after = after or IndexSlots(bytearray(hash_slots * INDEX_SLOT.size), 0, 0, 0, 0)
    slots, count, used, end_physical_offset, bad = after
    with memoryview(entries) as view:
        size = INDEX_ENTRY.size
        if view.nbytes % size or not 0 <= count <= INT_MAX - view.nbytes // size or bad:
            raise UsageError("no such entries", expected=f"{size} bytes each, behind sound ones", found=view.nbytes)
        if len(slots) != hash_slots * INDEX_SLOT.size:
            raise UsageError("slots of another file", expected=hash_slots * INDEX_SLOT.size, found=len(slots))
        for number, fields in enumerate(INDEX_ENTRY.iter_unpack(view), count + 1):
            entry = IndexEntry._make(fields)
            if entry.physical_offset >= log_end:
                break
            slot = max(entry.key_hash, 0) % hash_slots * INDEX_SLOT.size
            previous = INDEX_SLOT.unpack_from(slots, slot)[0]
            if entry.key_hash < 0 or entry.physical_offset < end_physical_offset or entry.previous != previous:
                return IndexSlots(slots, count, used, end_physical_offset, number)
            used += previous == 0
            INDEX_SLOT.pack_into(slots, slot, number)
            count, end_physical_offset = number, entry.physical_offset
    return IndexSlots(slots, count, used, end_physical_offset, 0)
