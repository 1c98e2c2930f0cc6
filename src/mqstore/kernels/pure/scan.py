"""Reading a log into columns, and finding a record's start in the middle of one."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from typing import Final

from mqstore.errors import CorruptRecordError, UsageError
from mqstore.kernels.api import LogColumns, Stop
from mqstore.kernels.pure.checks import check_range
from mqstore.kernels.pure.crc import PartialSums
from mqstore.layout import constants as c
from mqstore.layout.buffers import Buffer
from mqstore.layout.properties import defect
from mqstore.layout.record import HEADS, PREFIX, Blank, Damage, Record, body_crc, decode_record

OWN_OFFSET_END: Final = c.PHYSICAL_OFFSET_POSITION + 8
DIRECT_CRC_SIZE: Final = 16384
"""Up to this size :func:`resync` takes a body's checksum directly: a bounded cost for each candidate."""

_MAGIC: Final = re.compile(rb"\xda\xa3\x20[\xa7\xab]")
_OWN_OFFSET: Final = struct.Struct(">q")
_PROPERTIES_LENGTH: Final = struct.Struct(">h")
_TOPIC_LENGTHS: Final = {c.MAGIC_V1: struct.Struct(">b"), c.MAGIC_V2: struct.Struct(">h")}


def scan(
    buffer: Buffer,
    position: int,
    end: int,
    physical_offset: int,
    *,
    max_records: int = 65536,
    check_crc: bool = True,
) -> LogColumns:
    """See :meth:`mqstore.kernels.api.Kernels.scan`."""
    check_range(buffer, position, end, physical_offset)
    if max_records < 1:
        raise UsageError("max_records must be at least 1", found=max_records)
    rows: list[tuple[int, ...]] = []
    stop, damage, blank_size, short_size = Stop.END, 0, 0, 0
    with memoryview(buffer) as view:
        while position < end:
            if len(rows) == max_records:
                stop = Stop.FULL
                break
            own_offset = physical_offset + position
            try:
                record = decode_record(view, position, physical_offset=own_offset, check_crc=check_crc, end=end)
            except CorruptRecordError as error:
                stop, damage, short_size = _judge(view, position, end, own_offset, error)
                break
            if isinstance(record, Blank):
                stop, blank_size = Stop.BLANK, record.size_bytes
                break
            rows.append(row_of(record, position))
            position += record.total_size
    arena = LogColumns.arena_of(rows)
    return LogColumns(arena, len(rows), len(rows), physical_offset, position, stop, damage, blank_size, short_size)


def _judge(
    view: memoryview, position: int, end: int, own_offset: int, error: CorruptRecordError
) -> tuple[Stop, int, int]:
    """(stop, damage, size of a short record) for bytes that are no record."""
    if error.found != Damage.SHORT:
        return Stop.DAMAGED, int(error.found), 0  # type: ignore[call-overload]
    if end - position < c.BLANK_SIZE:
        return Stop.SHORT, 0, 0
    stored = position + c.PHYSICAL_OFFSET_POSITION
    if end - position >= OWN_OFFSET_END and _OWN_OFFSET.unpack_from(view, stored)[0] != own_offset:
        return Stop.DAMAGED, Damage.PHYSICAL_OFFSET, 0
    return Stop.SHORT, 0, PREFIX.unpack_from(view, position)[0]


def row_of(record: Record, position: int) -> tuple[int, ...]:
    """The columns of one record, in their order in the arena."""
    topic_length_size = 1 if record.magic == c.MAGIC_V1 else 2
    store_host = position + c.BORN_HOST_POSITION + len(record.born_host_raw) + 8
    body = store_host + len(record.store_host_raw) + 16
    topic = body + len(record.body) + topic_length_size
    properties = topic + len(record.topic_raw) + 2
    marks = find_values(record.properties_raw, (b"TAGS", b"KEYS", b"UNIQ_KEY"))
    wide = (
        position,
        record.queue_offset,
        record.born_timestamp_ms,
        record.store_timestamp_ms,
        record.prepared_transaction_offset,
        body,
        topic,
        properties,
        position + c.BORN_HOST_POSITION,
        store_host,
        *(properties + start if size >= 0 else 0 for start, size in marks),
        record.physical_offset,
    )
    narrow = (
        record.total_size,
        record.magic,
        record.body_crc,
        record.queue_id,
        record.flag,
        record.sys_flag,
        record.reconsume_times,
        len(record.body),
        len(record.topic_raw),
        len(record.properties_raw),
        *(size for _, size in marks),
    )
    return wide + narrow


def find_values(raw: bytes, names: Iterable[bytes]) -> list[tuple[int, int]]:
    """(start, size) in ``raw`` of the last value that is not empty, for each name; size -1 without one."""
    found: dict[bytes, tuple[int, int]] = {}
    at = 0
    for segment in raw.split(b"\x02"):
        name, separator, value = segment.partition(b"\x01")
        if separator and value:
            found[name] = (at + len(name) + 1, len(value))
        at += len(segment) + 1
    return [found.get(name, (0, -1)) for name in names]


def resync(buffer: Buffer, position: int, end: int, physical_offset: int) -> int:
    """See :meth:`mqstore.kernels.api.Kernels.resync`."""
    check_range(buffer, position, end, physical_offset)
    with memoryview(buffer) as view:
        sums = PartialSums(view, position)
        for match in _MAGIC.finditer(view, min(position + c.MAGIC_POSITION, end), end):
            start = match.start() - c.MAGIC_POSITION
            if start + OWN_OFFSET_END > end:
                break
            if _starts_here(view, start, end, physical_offset, sums):
                return start
    return -1


def _starts_here(view: memoryview, start: int, end: int, physical_offset: int, sums: PartialSums) -> bool:
    """Whether a record starts at ``start``, where a magic code was seen; bodies are not copied."""
    if _OWN_OFFSET.unpack_from(view, start + c.PHYSICAL_OFFSET_POSITION)[0] != physical_offset + start:
        return False
    size, magic = PREFIX.unpack_from(view, start)
    topic_length = _TOPIC_LENGTHS[magic]
    if size < c.MIN_RECORD_SIZE + topic_length.size - 1:
        return False
    stop = start + size
    if stop > end:
        return True
    v6 = view[start + c.SYS_FLAG_POSITION + 3] >> 4 & 3
    body = start + HEADS[v6].size
    if body > stop:
        return False
    fields = HEADS[v6].unpack_from(view, start)
    topic = body + fields[14]
    if fields[14] < 0 or topic + topic_length.size > stop:
        return False
    length = topic_length.unpack_from(view, topic)[0]
    properties = topic + topic_length.size + length
    if length < 0 or properties + 2 > stop:
        return False
    length = _PROPERTIES_LENGTH.unpack_from(view, properties)[0]
    if length < 0 or properties + 2 + length != stop:
        return False
    return _crc_of(view, body, topic, sums) == fields[2] and defect(bytes(view[properties + 2 : stop])) is None


def _crc_of(view: memoryview, begin: int, end: int, sums: PartialSums) -> int:
    if end - begin <= DIRECT_CRC_SIZE:
        return body_crc(view[begin:end])
    return sums.crc32(begin, end) & c.CRC_MASK
