"""Kafka's batches and their records into columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mqstore.errors import CorruptBatchError, UsageError
from mqstore.kernels.kafka_api import BatchColumns, BatchStop, HeaderLists, RecordColumns, RecordStop
from mqstore.kernels.pure.arrow import offsets_of, strings_of
from mqstore.kernels.pure.checks import check_range, check_rows
from mqstore.layout.buffers import Buffer
from mqstore.layout.kafka import constants as c
from mqstore.layout.kafka.batch import find_records, record_timestamp_ms
from mqstore.layout.kafka.constants import Codec
from mqstore.layout.kafka.damage import Damage
from mqstore.layout.kafka.header import BatchHeader, check_batch, decode_header
from mqstore.layout.kafka.message_set import find_message
from mqstore.layout.kafka.record import RecordPlaces, decode_headers

_STOPS = {Damage.SHORT: BatchStop.SHORT, Damage.UNWRITTEN: BatchStop.PADDING}


def kafka_batches(
    buffer: Buffer, position: int, end: int, *, max_batches: int = 65536, check_crc: bool = True
) -> BatchColumns:
    """See :meth:`mqstore.kernels.kafka_api.KafkaKernels.kafka_batches`."""
    check_range(buffer, position, end)
    if max_batches < 1:
        raise UsageError("max_batches must be at least 1", found=max_batches)
    rows: list[tuple[int, ...]] = []
    stop, damage = BatchStop.END, 0
    with memoryview(buffer) as view:
        while position < end:
            if len(rows) == max_batches:
                stop = BatchStop.FULL
                break
            try:
                header = decode_header(view, position, end)
                if check_crc:
                    check_batch(view, header)
            except CorruptBatchError as error:
                reason = Damage(error.found)  # type: ignore[arg-type]
                stop = _STOPS.get(reason, BatchStop.DAMAGED)
                damage = 0 if stop is BatchStop.SHORT else reason
                break
            rows.append(_batch_row(header))
            position += header.size
    return BatchColumns(BatchColumns.arena_of(rows), len(rows), len(rows), position, stop, damage)


def _batch_row(header: BatchHeader) -> tuple[int, ...]:
    fields = header._asdict()
    return tuple(fields[name] for name in BatchColumns.COLUMN_NAMES)


def header_of(batches: BatchColumns, row: int) -> BatchHeader:
    """A row as the header it was made of."""
    return BatchHeader(*(int(getattr(batches, name)[row]) for name in BatchHeader._fields))


def kafka_records(
    buffer: Buffer,
    position: int,
    end: int,
    *,
    base_offset: int,
    last_offset: int,
    base_timestamp_ms: int,
    count: int,
    log_append_time_ms: int | None = None,
    batch_row: int = 0,
) -> RecordColumns:
    """See :meth:`mqstore.kernels.kafka_api.KafkaKernels.kafka_records`."""
    check_range(buffer, position, end)
    if not 0 <= base_offset <= last_offset or count < 0:
        raise UsageError("no such batch", found=(base_offset, last_offset, count))
    header = BatchHeader(
        position, end - position, c.MAGIC_V2, base_offset, last_offset, c.NO_LEADER_EPOCH, 0,
        0 if log_append_time_ms is None else c.LOG_APPEND_TIME_BIT, base_timestamp_ms,
        c.NO_TIMESTAMP if log_append_time_ms is None else log_append_time_ms, c.NO_PRODUCER_ID, c.NO_PRODUCER_EPOCH,
        c.NO_SEQUENCE, count,
    )  # fmt: skip
    rows: list[tuple[int, ...]] = []
    stop, damage = RecordStop.END, 0
    with memoryview(buffer) as view:
        try:
            rows = _batch_records(view, header, batch_row, position, end)
        except CorruptBatchError as error:
            stop, damage = RecordStop.DAMAGED, Damage(error.found)  # type: ignore[arg-type]
    next_row = batch_row + (stop is RecordStop.END)
    return RecordColumns(RecordColumns.arena_of(rows), len(rows), len(rows), next_row, stop, damage)


def kafka_batch_records(
    buffer: Buffer, batches: BatchColumns, start: int, stop: int, *, bodies: Sequence[int] | None = None
) -> RecordColumns:
    """See :meth:`mqstore.kernels.kafka_api.KafkaKernels.kafka_batch_records`."""
    check_rows(batches.count, start, stop)
    size = memoryview(buffer).nbytes
    ends = _checked_bodies(size, bodies, stop - start)
    headers = [_checked_header(size, batches, row, ends is not None) for row in range(start, stop)]
    rows: list[tuple[int, ...]] = []
    row, why, damage = start, RecordStop.END, 0
    with memoryview(buffer) as view:
        for row, header in enumerate(headers, start):
            if ends is None and header.codec is not Codec.NONE:
                why = RecordStop.PACKED
                break
            try:
                if ends is not None:
                    rows += _batch_records(view, header, row, ends[row - start], ends[row - start + 1])
                elif header.magic == c.MAGIC_V2:
                    body = header.position + c.BATCH_HEADER_SIZE
                    rows += _batch_records(view, header, row, body, header.end_position)
                else:
                    rows.append(_message_row(view, header, row))
            except CorruptBatchError as error:
                why, damage = RecordStop.DAMAGED, Damage(error.found)  # type: ignore[arg-type]
                break
        else:
            row = stop
    return RecordColumns(RecordColumns.arena_of(rows), len(rows), len(rows), row, why, damage)


def _checked_bodies(size: int, bodies: Sequence[int] | None, rows: int) -> list[int] | None:
    if bodies is None:
        return None
    ends = list(bodies)
    if len(ends) != rows + 1 or sorted(ends) != ends or ends[0] < 0 or ends[-1] > size:
        raise UsageError("the bodies do not fit the rows or the buffer", expected=rows + 1, found=len(ends))
    return ends


def _checked_header(size: int, batches: BatchColumns, row: int, has_body: bool) -> BatchHeader:
    header = header_of(batches, row)
    if has_body and header.magic == c.MAGIC_V2:
        return header
    if has_body or header.magic not in c.MIN_LENGTHS:
        raise UsageError("a batch of another format cannot be read so", found=header.magic)
    is_inside = 0 <= header.position <= size - header.size
    if not is_inside or header.size < c.PREFIX_SIZE + c.MIN_LENGTHS[header.magic]:
        raise UsageError("the columns belong to another buffer", offset=header.position, found=f"{size} bytes")
    return header


def _batch_records(view: memoryview, header: BatchHeader, row: int, position: int, end: int) -> list[tuple[int, ...]]:
    """Rows of the records of one batch."""
    return [
        (
            header.base_offset + places.offset_delta,
            record_timestamp_ms(header, places.timestamp_delta_ms),
            places.key_position,
            places.value_position,
            places.headers_position,
            places.key_size,
            places.value_size,
            places.headers_size,
            places.headers_count,
            row,
        )
        for places in find_records(view, header, position, end)
    ]


def _message_row(view: memoryview, header: BatchHeader, row: int) -> tuple[int, ...]:
    key, key_size, value, value_size = find_message(view, header, header.position)
    end = header.end_position
    return header.last_offset, header.max_timestamp_ms, key, value, end, key_size, value_size, 0, 0, row


def kafka_headers(
    buffer: Buffer,
    records: RecordColumns,
    start: int,
    stop: int,
    *,
    allocate: Callable[[int], Any] | None = None,
) -> HeaderLists:
    """See :meth:`mqstore.kernels.kafka_api.KafkaKernels.kafka_headers`."""
    check_rows(records.count, start, stop)
    counts: list[int] = []
    names: list[bytes | None] = []
    values: list[bytes | None] = []
    with memoryview(buffer) as view:
        for row in range(start, stop):
            position, size = records.headers_position[row], records.headers_size[row]
            count = records.headers_count[row]
            if not 0 <= position <= len(view) - size or not 0 <= 2 * count <= size:
                raise UsageError("the columns belong to another buffer", offset=position, found=f"{len(view)} bytes")
            places = RecordPlaces(0, 0, 0, -1, 0, -1, position, size, count)
            try:
                headers = decode_headers(view, places)
            except ValueError as error:
                raise UsageError("the columns belong to another buffer", offset=position, found=error) from error
            names += [name.encode("utf-8") for name, _ in headers]
            values += [value for _, value in headers]
            counts.append(count)
    name_column, value_column = strings_of(names, allocate), strings_of(values, allocate)
    return HeaderLists(
        offsets_of(counts, allocate),
        name_column.offsets,
        name_column.data,
        value_column.offsets,
        value_column.data,
        value_column.validity,
    )
