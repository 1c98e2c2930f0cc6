"""Checksums, records and index entries of Kafka's batches."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from mqstore.kernels.kafka_api import BatchColumns, IndexRun, IndexState
from mqstore.kernels.pure.checks import check_rows
from mqstore.layout.buffers import Buffer
from mqstore.layout.kafka import crc32c as plain
from mqstore.layout.kafka.record import encode_records


def crc32c(data: Buffer, value: int = 0, /) -> int:
    """See :meth:`mqstore.kernels.kafka_api.KafkaKernels.crc32c`."""
    return plain.crc32c(data, value & 0xFFFFFFFF)


def kafka_encode(
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    headers: Sequence[Sequence[tuple[str, bytes | None]]] | None,
    timestamp_deltas_ms: Sequence[int],
    offset_deltas: Sequence[int] | None = None,
) -> bytearray:
    """See :meth:`mqstore.kernels.kafka_api.KafkaKernels.kafka_encode`."""
    checked = None
    if headers is not None:
        checked = [[(name, _checked(value)) for name, value in pairs] for pairs in headers]
    return encode_records(
        list(map(_checked, keys)), list(map(_checked, values)), checked, timestamp_deltas_ms, offset_deltas
    )


def _checked(value: bytes | None) -> bytes | None:
    if value is not None and type(value) is not bytes:
        raise TypeError(f"bytes are needed, not {type(value).__name__}")
    return value


def kafka_index(batches: BatchColumns, start: int, stop: int, interval_bytes: int, state: IndexState) -> IndexRun:
    """See :meth:`mqstore.kernels.kafka_api.KafkaKernels.kafka_index`."""
    check_rows(batches.count, start, stop)
    bytes_since, largest_ms, largest_offset, indexed_ms = state
    rows, times, offsets = array("i"), array("q"), array("q")
    for row in range(start, stop):
        if batches.max_timestamp_ms[row] > largest_ms:
            largest_ms, largest_offset = batches.max_timestamp_ms[row], batches.last_offset[row]
        if bytes_since > interval_bytes:
            rows.append(row)
            if largest_ms > indexed_ms:
                times.append(largest_ms)
                offsets.append(largest_offset)
                indexed_ms = largest_ms
            bytes_since = 0
        bytes_since += batches.size[row]
    after = IndexState(bytes_since, largest_ms, largest_offset, indexed_ms)
    return IndexRun(memoryview(rows), memoryview(times), memoryview(offsets), after)
