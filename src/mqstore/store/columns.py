"""The columns of the ``messages`` view as Arrow arrays, straight from the bytes of the log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

from mqstore import kernels
from mqstore.kernels.api import Strings
from mqstore.layout.record import body_crc
from mqstore.store.log_reader import Chunk

TIMESTAMP: Final = pa.timestamp("us", "UTC")

SCHEMA: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("queueId", pa.int32()),
        ("queueOffset", pa.int64()),
        ("physicalOffset", pa.int64()),
        ("msgId", pa.string()),
        ("keys", pa.list_(pa.field("element", pa.string()))),
        ("tags", pa.string()),
        ("body", pa.binary()),
        ("properties", pa.map_(pa.string(), pa.string())),
        ("propertiesString", pa.string()),
        ("flag", pa.int32()),
        ("sysFlag", pa.int32()),
        ("bornTimestamp", TIMESTAMP),
        ("bornHost", pa.string()),
        ("storeTimestamp", TIMESTAMP),
        ("storeHost", pa.string()),
        ("reconsumeTimes", pa.int32()),
        ("preparedTransactionOffset", pa.int64()),
        ("bodyCRC", pa.int32()),
        ("storeSize", pa.int32()),
        ("brokerName", pa.string()),
    ]
)
"""Names and Arrow types of all columns, in their order (docs/spark.md)."""

KEEPING_SCHEMA: Final = SCHEMA.append(pa.field("corruptReason", pa.string()))
"""And with the column that there is under ``onCorruptRecord=keep``: what is wrong with the record, and where."""

BATCH_ROWS: Final = 8192

Builder = Callable[[Chunk, int, int], Any]


def allocate(size_bytes: int) -> memoryview:
    """A buffer from Arrow's pool, which reuses memory instead of taking fresh pages."""
    return memoryview(pa.allocate_buffer(size_bytes)).cast("B") if size_bytes else memoryview(bytearray())


def message_batches(chunk: Chunk, names: Sequence[str], broker_name: str) -> Iterator[Any]:
    """The records of ``chunk`` as record batches of at most :data:`BATCH_ROWS` rows with the columns ``names``."""
    count = chunk.columns.count
    for start in range(0, count, BATCH_ROWS):
        stop = min(count, start + BATCH_ROWS)
        yield pa.RecordBatch.from_arrays(
            [_column(name, chunk, start, stop, broker_name) for name in names],
            schema=pa.schema([KEEPING_SCHEMA.field(name) for name in names]),
        )


def _column(name: str, chunk: Chunk, start: int, stop: int, broker_name: str) -> Any:
    if name == "brokerName":
        return pa.repeat(pa.scalar(broker_name, pa.string()), stop - start)
    return _BUILDERS[name](chunk, start, stop)


def _numbers(name: str, kind: Any) -> Builder:
    def build(chunk: Chunk, start: int, stop: int) -> Any:
        column: memoryview = getattr(chunk.columns, name)
        return pa.Array.from_buffers(kind, stop - start, [None, pa.py_buffer(column[start:stop])])

    return build


def _times(name: str) -> Builder:
    def build(chunk: Chunk, start: int, stop: int) -> Any:
        times = kernels.ms_to_us(getattr(chunk.columns, name), start, stop, allocate=allocate)
        return pa.Array.from_buffers(TIMESTAMP, stop - start, [None, pa.py_buffer(times)])

    return build


def _bytes(name: str, kind: Any) -> Builder:
    def build(chunk: Chunk, start: int, stop: int) -> Any:
        columns = chunk.columns
        positions, sizes = getattr(columns, f"{name}_position"), getattr(columns, f"{name}_size")
        utf8 = kind == pa.string()
        parts = kernels.gather(chunk.buffer, positions, sizes, start, stop, utf8=utf8, allocate=allocate)
        return strings_of(parts, kind)

    return build


def strings_of(parts: Strings, kind: Any) -> Any:
    """An Arrow array of strings or bytes over what a kernel has gathered."""
    validity = None if parts.validity is None else pa.py_buffer(parts.validity)
    rows = memoryview(parts.offsets).nbytes // 4 - 1
    return pa.Array.from_buffers(kind, rows, [validity, pa.py_buffer(parts.offsets), pa.py_buffer(parts.data)])


def _keys(chunk: Chunk, start: int, stop: int) -> Any:
    """No keys are an empty list, whether the property is missing or empty."""
    lists = kernels.split_keys(chunk.buffer, chunk.columns, start, stop, allocate=allocate)
    keys = strings_of(Strings(lists.offsets, lists.data, None), pa.string())
    return pa.Array.from_buffers(
        SCHEMA.field("keys").type, stop - start, [None, pa.py_buffer(lists.list_offsets)], children=[keys]
    )


def _properties(chunk: Chunk, start: int, stop: int) -> Any:
    maps = kernels.properties_map(chunk.buffer, chunk.columns, start, stop, allocate=allocate)
    names = strings_of(Strings(maps.name_offsets, maps.name_data, None), pa.string())
    values = strings_of(Strings(maps.value_offsets, maps.value_data, None), pa.string())
    kind = SCHEMA.field("properties").type
    fields = [kind.key_field, kind.item_field]
    pairs = pa.StructArray.from_arrays([names, values], fields=fields)
    return pa.Array.from_buffers(kind, stop - start, [None, pa.py_buffer(maps.list_offsets)], children=[pairs])


def _host(store: bool) -> Builder:
    def build(chunk: Chunk, start: int, stop: int) -> Any:
        parts = kernels.host_text(chunk.buffer, chunk.columns, start, stop, store=store, allocate=allocate)
        return strings_of(parts, pa.string())

    return build


def _msg_id(chunk: Chunk, start: int, stop: int) -> Any:
    return strings_of(kernels.msg_id_text(chunk.buffer, chunk.columns, start, stop, allocate=allocate), pa.string())


def _corrupt_reason(chunk: Chunk, start: int, stop: int) -> Any:
    """Null for a sound record. The body's checksum is all that can be wrong: what else is makes no row."""
    columns, data = chunk.columns, memoryview(chunk.buffer)
    reasons: list[str | None] = []
    for row in range(start, stop):
        begin = columns.body_position[row]
        right, stored = body_crc(data[begin : begin + columns.body_size[row]]), columns.body_crc[row]
        reasons.append(
            None
            if right == stored
            else f"the body has another checksum at {columns.own_offset[row]}: the record says {stored}, it is {right}"
        )
    return pa.array(reasons, pa.string())


_BUILDERS: Final[dict[str, Builder]] = {
    "topic": _bytes("topic", pa.string()),
    "queueId": _numbers("queue_id", pa.int32()),
    "queueOffset": _numbers("queue_offset", pa.int64()),
    "physicalOffset": _numbers("own_offset", pa.int64()),
    "msgId": _msg_id,
    "keys": _keys,
    "tags": _bytes("tags", pa.string()),
    "body": _bytes("body", pa.binary()),
    "properties": _properties,
    "propertiesString": _bytes("properties", pa.string()),
    "flag": _numbers("flag", pa.int32()),
    "sysFlag": _numbers("sys_flag", pa.int32()),
    "bornTimestamp": _times("born_timestamp_ms"),
    "bornHost": _host(store=False),
    "storeTimestamp": _times("store_timestamp_ms"),
    "storeHost": _host(store=True),
    "reconsumeTimes": _numbers("reconsume_times", pa.int32()),
    "preparedTransactionOffset": _numbers("prepared_transaction_offset", pa.int64()),
    "bodyCRC": _numbers("body_crc", pa.int32()),
    "storeSize": _numbers("size", pa.int32()),
    "corruptReason": _corrupt_reason,
}
