"""Index files: a hash table on disk from "topic#key" to records (docs/format/index-file.md)."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from mqstore.errors import CorruptFileError, UsageError
from mqstore.layout.buffers import Buffer
from mqstore.layout.constants import INT_MAX, SysFlag
from mqstore.layout.java_hash import java_hash
from mqstore.layout.record import Record

INDEX_HEADER: Final = struct.Struct(">qqqqii")
INDEX_SLOT: Final = struct.Struct(">i")
INDEX_ENTRY: Final = struct.Struct(">iqii")


class IndexHeader(NamedTuple):
    """The first 40 bytes of an index file.

    ``index_count`` is the number of the next entry, so one more than the keys held; 0 on disk stands for 1 (a
    file that never took a key). ``hash_slot_count`` counts the slots in use.
    """

    begin_timestamp_ms: int = 0
    end_timestamp_ms: int = 0
    begin_physical_offset: int = 0
    end_physical_offset: int = 0
    hash_slot_count: int = 0
    index_count: int = 1


class IndexEntry(NamedTuple):
    """One key of one record. ``time_diff_s`` counts seconds from the file's begin; ``previous`` = 0 ends the
    chain.
    """

    key_hash: int
    physical_offset: int
    time_diff_s: int
    previous: int


def key_hash(topic: str, key: str) -> int:
    """The number under which a key is filed: the absolute value of a Java hash, from 0 to 2**31 - 1."""
    value = abs(java_hash(f"{topic}#{key}"))
    return 0 if value > INT_MAX else value


def index_keys(record: Record) -> list[str]:
    """The keys under which a record is indexed, in the order of their entries: its unique key, then its user
    keys.

    Rollback records have none. Combine each with the topic, see :func:`key_hash`.
    """
    if record.transaction_type == SysFlag.TRANSACTION_ROLLBACK:
        return []
    uniq_key = record.uniq_key
    return ([uniq_key] if uniq_key else []) + record.keys


def tag_key_hash(topic: str, tags: str) -> int:
    """The number under which RocketMQ from 5.5 on files a message's tags as well; 4.9 and this store do not."""
    return key_hash(topic, f"T#{tags}")


def file_size(hash_slots: int, max_entries: int) -> int:
    """Bytes of a file with this many slots and entries."""
    return INDEX_HEADER.size + hash_slots * INDEX_SLOT.size + max_entries * INDEX_ENTRY.size


def capacity(max_entries: int) -> int:
    """Keys that a file takes: one less than its entries, since entry 0 is never used."""
    return max(max_entries - 1, 0)


def slot_position(hash_value: int, hash_slots: int) -> int:
    """Where the slot of a key hash lies in the file. Raises UsageError for a file without slots."""
    if hash_slots <= 0:
        raise UsageError("an index file needs at least one slot", found=hash_slots)
    return INDEX_HEADER.size + hash_value % hash_slots * INDEX_SLOT.size


def entry_position(number: int, hash_slots: int) -> int:
    """Where entry ``number`` lies in the file; the first in use is number 1."""
    return INDEX_HEADER.size + hash_slots * INDEX_SLOT.size + number * INDEX_ENTRY.size


def time_diff_s(begin_timestamp_ms: int, store_timestamp_ms: int) -> int:
    """Whole seconds from a file's begin to a record, within 0 to 2**31 - 1; 0 while the file has no begin."""
    if begin_timestamp_ms <= 0:
        return 0
    return min(max(store_timestamp_ms - begin_timestamp_ms, 0) // 1000, INT_MAX)


def decode_header(buffer: Buffer) -> IndexHeader:
    """The header of a file. Raises CorruptFileError when the file is too short to have one."""
    if len(buffer) < INDEX_HEADER.size:
        raise CorruptFileError(
            "an index file is shorter than its header", expected=INDEX_HEADER.size, found=len(buffer)
        )
    header = IndexHeader._make(INDEX_HEADER.unpack_from(buffer, 0))
    return header if header.index_count > 0 else header._replace(index_count=1)


def encode_header(header: IndexHeader) -> bytes:
    """The 40 bytes of a header. Raises UsageError when a value does not fit its field."""
    try:
        return INDEX_HEADER.pack(*header)
    except struct.error as error:
        raise UsageError("a value does not fit the index header", found=str(tuple(header))) from error


def decode_slot(buffer: Buffer, slot: int, hash_slots: int) -> int:
    """Number of the newest entry of slot ``slot`` as stored; 0 when empty.

    Raises UsageError for a slot the file does not have, CorruptFileError when the file ends before it.
    Numbers below 1 or not below the header's ``index_count`` are to be taken as 0.
    """
    if not 0 <= slot < hash_slots:
        raise UsageError("no such slot", expected=f"0..{hash_slots - 1}", found=slot)
    position = INDEX_HEADER.size + slot * INDEX_SLOT.size
    return int(_bounded(INDEX_SLOT, buffer, position)[0])


def decode_entry(buffer: Buffer, number: int, hash_slots: int) -> IndexEntry:
    """Entry ``number``; UsageError for numbers below 0, CorruptFileError when the file ends before it."""
    if number < 0 or hash_slots < 0:
        raise UsageError("no such entry", found=number)
    return IndexEntry._make(_bounded(INDEX_ENTRY, buffer, entry_position(number, hash_slots)))


def encode_entry(entry: IndexEntry) -> bytes:
    """The 20 bytes of an entry. Raises UsageError when a value does not fit its field."""
    try:
        return INDEX_ENTRY.pack(*entry)
    except struct.error as error:
        raise UsageError("a value does not fit an index entry", found=str(tuple(entry))) from error


def _bounded(layout: struct.Struct, buffer: Buffer, position: int) -> tuple[int, ...]:
    if position + layout.size > len(buffer):
        raise CorruptFileError("an index file is too short", expected=position + layout.size, found=len(buffer))
    return layout.unpack_from(buffer, position)
