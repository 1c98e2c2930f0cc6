"""The columns of ``kafkalog`` as Arrow arrays, straight from the bytes of the records."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from mqstore import kernels
from mqstore.kernels.api import Strings
from mqstore.kernels.kafka_api import BatchColumns, RecordColumns
from mqstore.layout.buffers import Buffer
from mqstore.layout.kafka.constants import LOG_APPEND_TIME_BIT, MAGIC_V0, TimestampType
from mqstore.layout.kafka.record import Record
from mqstore.store.columns import TIMESTAMP, allocate, strings_of

BATCH_ROWS: Final = 8192

_FIELDS: Final = [
    ("key", pa.binary()),
    ("value", pa.binary()),
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("offset", pa.int64()),
    ("timestamp", TIMESTAMP),
    ("timestampType", pa.int32()),
]
_HEADER: Final = pa.struct([("key", pa.string()), ("value", pa.binary())])
_HEADERS: Final = pa.list_(pa.field("element", _HEADER))


def arrow_schema(include_headers: bool) -> Any:
    """Names and Arrow types of the columns, in their order: those of Spark's own Kafka source."""
    return pa.schema([*_FIELDS, ("headers", _HEADERS)] if include_headers else _FIELDS)


class RowMaker:
    """Makes record batches of the wanted columns and offsets of one partition."""

    def __init__(self, topic: str, partition: int, first_offset: int, end_offset: int, columns: Sequence[str]) -> None:
        self.schema = pa.schema([arrow_schema(True).field(name) for name in columns])
        self._topic = pa.scalar(topic, pa.string())
        self._partition = pa.scalar(partition, pa.int32())
        self._first = first_offset
        self._end = end_offset

    def from_columns(self, buffer: Buffer, batches: BatchColumns, records: RecordColumns) -> list[Any]:
        """The records that the kernels found in ``buffer``."""
        begin = bisect_left(records.offset, self._first, 0, records.count)
        end = bisect_left(records.offset, self._end, begin, records.count)
        found = []
        for start in range(begin, end, BATCH_ROWS):
            stop = min(end, start + BATCH_ROWS)
            arrays = [self._column(name, buffer, batches, records, start, stop) for name in self.schema.names]
            found.append(pa.RecordBatch.from_arrays(arrays, schema=self.schema))
        return found

    def _column(
        self, name: str, buffer: Buffer, batches: BatchColumns, records: RecordColumns, start: int, stop: int
    ) -> Any:
        if name == "headers":
            return _headers(buffer, records, start, stop)
        if name in ("key", "value"):
            positions, sizes = getattr(records, f"{name}_position"), getattr(records, f"{name}_size")
            return strings_of(kernels.gather(buffer, positions, sizes, start, stop, allocate=allocate), pa.binary())
        if name == "offset":
            return _numbers(pa.int64(), records.offset, start, stop)
        if name == "timestamp":
            times = kernels.ms_to_us(records.timestamp_ms, start, stop, allocate=allocate)
            return pa.Array.from_buffers(TIMESTAMP, stop - start, [None, pa.py_buffer(times)])
        if name == "timestampType":
            return _timestamp_types(batches, records, start, stop)
        return pa.repeat(self._topic if name == "topic" else self._partition, stop - start)

    def from_records(self, records: Sequence[Record]) -> list[Any]:
        """Records that were decoded one by one."""
        wanted = [one for one in records if self._first <= one.offset < self._end]
        if not wanted:
            return []
        columns = {
            "key": [one.key for one in wanted],
            "value": [one.value for one in wanted],
            "offset": [one.offset for one in wanted],
            "timestamp": [one.timestamp_ms * 1000 for one in wanted],
            "timestampType": [int(one.timestamp_type) for one in wanted],
            "headers": [[{"key": name, "value": value} for name, value in one.headers] or None for one in wanted],
            "topic": [self._topic.as_py()] * len(wanted),
            "partition": [self._partition.as_py()] * len(wanted),
        }
        arrays = [pa.array(columns[field.name], field.type) for field in self.schema]
        return [pa.RecordBatch.from_arrays(arrays, schema=self.schema)]


def _numbers(kind: Any, column: Any, start: int, stop: int) -> Any:
    return pa.Array.from_buffers(kind, stop - start, [None, pa.py_buffer(column[start:stop])])


def _timestamp_types(batches: BatchColumns, records: RecordColumns, start: int, stop: int) -> Any:
    """Whose times they are is said by the batches, which seldom differ."""
    rows = records.batch_row[start:stop]
    kinds = {row: _timestamp_type(batches, row) for row in range(rows[0], rows[-1] + 1)}
    if len(set(kinds.values())) == 1:
        return pa.repeat(pa.scalar(kinds[rows[0]], pa.int32()), stop - start)
    return pa.array([kinds[row] for row in rows], pa.int32())


def _timestamp_type(batches: BatchColumns, row: int) -> int:
    if batches.magic[row] == MAGIC_V0:
        return int(TimestampType.NONE)
    return int(bool(batches.attributes[row] & LOG_APPEND_TIME_BIT))


def _headers(buffer: Buffer, records: RecordColumns, start: int, stop: int) -> Any:
    """As in Spark's own source, a record without headers has null here."""
    lists = kernels.kafka_headers(buffer, records, start, stop, allocate=allocate)
    names = strings_of(Strings(lists.name_offsets, lists.name_data, None), pa.string())
    values = strings_of(Strings(lists.value_offsets, lists.value_data, lists.value_validity), pa.binary())
    pairs = pa.StructArray.from_arrays([names, values], fields=list(_HEADER))
    has_any = pc.greater(_numbers(pa.int32(), records.headers_count, start, stop), 0)
    return pa.Array.from_buffers(
        _HEADERS, stop - start, [has_any.buffers()[1], pa.py_buffer(lists.list_offsets)], children=[pairs]
    )
