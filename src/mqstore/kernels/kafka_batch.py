"""One batch of a Kafka log to records and back, as the layout does it, at the speed of the kernels."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

from mqstore import kernels
from mqstore.kernels.kafka_api import RecordColumns, RecordStop
from mqstore.layout.buffers import Buffer
from mqstore.layout.constants import INT_MAX
from mqstore.layout.kafka import batch as layout
from mqstore.layout.kafka import constants as c
from mqstore.layout.kafka.codec import inflate
from mqstore.layout.kafka.constants import Codec, TimestampType
from mqstore.layout.kafka.header import BatchHeader, check_batch
from mqstore.layout.kafka.record import Header, Record, RecordPlaces, decode_headers

encode_batch: Final = partial(layout.encode_batch, checksum=kernels.crc32c, encoder=kernels.kafka_encode)
"""See :func:`mqstore.layout.kafka.batch.encode_batch`; keys and values must be bytes, not other buffers."""


def decode_records(
    buffer: Buffer, header: BatchHeader, *, check_crc: bool = True, max_inflated_bytes: int | None = None
) -> list[Record]:
    """See :func:`mqstore.layout.kafka.batch.decode_records`: the same records, and the same errors."""
    if check_crc:
        check_batch(buffer, header, kernels.crc32c)
    if header.magic == c.MAGIC_V2:
        # Bytes give bytes when they are cut.
        body = bytes(buffer[header.position + c.BATCH_HEADER_SIZE : header.end_position])
        if header.codec is not Codec.NONE:
            body = inflate(
                header.codec, body, position=header.position, magic=header.magic, limit_bytes=max_inflated_bytes
            )
        stamped = header.timestamp_type is TimestampType.LOG_APPEND_TIME
        columns = kernels.kafka_records(
            body,
            0,
            len(body),
            base_offset=header.base_offset,
            last_offset=header.last_offset,
            base_timestamp_ms=header.base_timestamp_ms,
            count=header.record_count,
            log_append_time_ms=header.max_timestamp_ms if stamped else None,
        )
        if columns.stop is RecordStop.END:
            return list(_records(header, body, columns))
    # Messages of the old formats; or something is wrong with the records, and the layout says what.
    return layout.decode_records(
        buffer, header, check_crc=check_crc, max_inflated_bytes=max_inflated_bytes, checksum=kernels.crc32c
    )


def _records(header: BatchHeader, body: bytes, columns: RecordColumns) -> Iterable[Record]:
    kind, base_offset, base_sequence = header.timestamp_type, header.base_offset, header.base_sequence
    headers = _headers(body, columns)
    for offset, timestamp_ms, key, key_size, value, value_size, pairs in zip(
        columns.offset.tolist(),
        columns.timestamp_ms.tolist(),
        columns.key_position.tolist(),
        columns.key_size.tolist(),
        columns.value_position.tolist(),
        columns.value_size.tolist(),
        headers,
        strict=True,
    ):
        yield Record(
            offset,
            timestamp_ms,
            kind,
            None if key_size < 0 else body[key : key + key_size],
            None if value_size < 0 else body[value : value + value_size],
            pairs,
            c.NO_SEQUENCE if base_sequence < 0 else (base_sequence + offset - base_offset) & INT_MAX,
        )


def _headers(body: bytes, columns: RecordColumns) -> list[tuple[Header, ...]]:
    places = zip(columns.headers_position, columns.headers_size, columns.headers_count, strict=True)
    return [
        decode_headers(body, RecordPlaces(0, 0, 0, -1, 0, -1, position, size, count)) if count else ()
        for position, size, count in places
    ]
