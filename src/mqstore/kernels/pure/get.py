"""Reading a queue: which bytes of the log to fetch for its next units, and the messages in those bytes."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from mqstore.errors import CorruptRecordError
from mqstore.kernels.api import PLACE, LogColumns, Stop
from mqstore.kernels.pure.checks import MAX_PHYSICAL_OFFSET, check_rows
from mqstore.kernels.pure.scan import row_of
from mqstore.layout.buffers import Buffer
from mqstore.layout.constants import INT_MAX, QUEUE_UNIT_SIZE
from mqstore.layout.queue_unit import QueueUnit, decode_unit
from mqstore.layout.record import Record, decode_record
from mqstore.layout.tags import low_32_bits


def _is_wanted(unit: QueueUnit, tag_codes: Collection[int] | None) -> bool:
    if not 0 <= unit.physical_offset <= MAX_PHYSICAL_OFFSET or unit.size_bytes <= 0:
        return False
    return tag_codes is None or low_32_bits(unit.tags_code) in tag_codes


def unit_span(
    units: Buffer,
    first: int,
    most: int,
    tag_codes: Collection[int] | None,
    gap_bytes: int,
    span_bytes: int,
    /,
) -> tuple[int, int] | None:
    """See :meth:`mqstore.kernels.api.Kernels.unit_span`."""
    total = len(units) // QUEUE_UNIT_SIZE
    check_rows(total, first, total)
    start = end = -1
    for number in range(first, total):
        if most <= 0:
            break
        unit = decode_unit(units, number * QUEUE_UNIT_SIZE)
        if not _is_wanted(unit, tag_codes):
            continue
        most -= 1
        if start < 0:
            start, end = unit.physical_offset, unit.end_offset
        elif 0 <= unit.physical_offset - end <= gap_bytes and unit.end_offset - start <= span_bytes:
            end = unit.end_offset
        else:
            break
    return (start, end) if start >= 0 else None


def take_messages(
    units: Buffer,
    first: int,
    queue_offset: int,
    data: Buffer,
    data_offset: int,
    topic: bytes,
    queue_id: int,
    tags: Collection[bytes] | None,
    tag_codes: Collection[int],
    most: int,
    most_bytes: int,
    messages: list[Record],
    record_type: type[Record],
    /,
) -> tuple[int, int]:
    """See :meth:`mqstore.kernels.api.Kernels.take_messages`."""
    total = len(units) // QUEUE_UNIT_SIZE
    check_rows(total, first, total)
    number, used = first, 0
    while number < total and len(messages) < most:
        unit = decode_unit(units, number * QUEUE_UNIT_SIZE)
        at = unit.physical_offset - data_offset
        if unit.size_bytes <= 0 or at < 0 or at > len(data) - unit.size_bytes:
            break
        if _is_wanted(unit, None if tags is None else tag_codes):
            if messages and used + unit.size_bytes > most_bytes:
                break
            record = _record_at(data, at, unit)
            place = (topic, queue_id, queue_offset + number - first)
            if record is None or (record.topic_raw, record.queue_id, record.queue_offset) != place:
                break
            tag = record.tags
            if tag is not None and not tag.isascii() and tags is not None:
                break
            if tags is None or (tag is not None and tag.encode() in tags):
                messages.append(record)
                used += unit.size_bytes
        number += 1
    return number - first, used


def scan_units(
    units: Buffer, first: int, queue_offset: int, data: Buffer, data_offset: int, topic: bytes, queue_id: int, /
) -> LogColumns:
    """See :meth:`mqstore.kernels.api.Kernels.scan_units`."""
    total = len(units) // QUEUE_UNIT_SIZE
    check_rows(total, first, total)
    rows: list[tuple[int, ...]] = []
    end = 0
    for number in range(first, total):
        unit = decode_unit(units, number * QUEUE_UNIT_SIZE)
        at = unit.physical_offset - data_offset
        if unit.size_bytes <= 0 or at < 0 or at > len(data) - unit.size_bytes:
            break
        record = _record_at(data, at, unit)
        place = (topic, queue_id, queue_offset + len(rows))
        if record is None or (record.topic_raw, record.queue_id, record.queue_offset) != place:
            break
        rows.append(row_of(record, at))
        end = at + unit.size_bytes
    return LogColumns(LogColumns.arena_of(rows), len(rows), len(rows), data_offset, end, Stop.END, 0, 0, 0)


def scan_at(
    buffer: Buffer, places: Buffer, queues: Sequence[tuple[bytes, int]], *, check_crc: bool = True
) -> tuple[LogColumns, bytearray]:
    """See :meth:`mqstore.kernels.api.Kernels.scan_at`."""
    names = list(queues)
    numbers = bytes(places)
    rows: list[tuple[int, ...]] = []
    found = bytearray()
    end = 0
    with memoryview(buffer) as view:
        for place in PLACE.iter_unpack(numbers[: len(numbers) - len(numbers) % PLACE.size]):
            begin, size, queue_offset, queue, position = place
            record = None
            if 0 <= begin <= MAX_PHYSICAL_OFFSET and 0 <= queue < len(names) and _is_inside(view, position, size):
                record = _record_at(view, position, QueueUnit(begin, size, 0), check_crc=check_crc)
            found.append(
                record is not None
                and (record.topic_raw, record.queue_id, record.queue_offset) == (*names[queue], queue_offset)
            )
            if record is not None and found[-1]:
                rows.append(row_of(record, position))
                end = position + size
    return LogColumns(LogColumns.arena_of(rows), len(rows), len(rows), -1, end, Stop.END), found


def _is_inside(view: memoryview, position: int, size: int) -> bool:
    return 0 <= position <= len(view) - size and 0 <= size <= INT_MAX


def _record_at(data: Buffer, at: int, unit: QueueUnit, check_crc: bool = False) -> Record | None:
    try:
        record = decode_record(
            data, at, physical_offset=unit.physical_offset, end=at + unit.size_bytes, check_crc=check_crc
        )
    except CorruptRecordError:
        return None
    return record if isinstance(record, Record) and record.total_size == unit.size_bytes else None
