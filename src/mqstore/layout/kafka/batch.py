"""Record batches: the records of any format, and the bytes of the present one (docs/format/kafka-batch.md).

This is the readable definition. The compiled kernels judge bytes by the same rules in the same order, see
:class:`~mqstore.layout.kafka.damage.Damage`. For messages of the old formats see
:mod:`mqstore.layout.kafka.message_set`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from mqstore.errors import MessageIllegalError, UsageError
from mqstore.layout.buffers import Buffer
from mqstore.layout.constants import INT_MAX, LONG_MAX
from mqstore.layout.kafka import constants as c
from mqstore.layout.kafka.codec import compress, inflate
from mqstore.layout.kafka.constants import Codec, TimestampType
from mqstore.layout.kafka.crc32c import crc32c
from mqstore.layout.kafka.damage import Damage, damaged
from mqstore.layout.kafka.header import HEAD_V2, BatchHeader, Checksum, check_batch, decode_header
from mqstore.layout.kafka.message_set import decode_messages
from mqstore.layout.kafka.record import (
    Record,
    RecordLike,
    RecordPlaces,
    cut,
    decode_headers,
    encode_records,
    find_record,
)

__all__ = [
    "BatchHeader",
    "assemble_batch",
    "check_batch",
    "decode_header",
    "decode_records",
    "encode_batch",
    "encode_empty_batch",
    "rebase",
]

Encoder = Callable[..., Buffer]
"""Makes the bytes of records: :func:`~mqstore.layout.kafka.record.encode_records`, or the kernels' fast one."""

_CRC: Final = struct.Struct(">I")
_CRC_POSITION: Final = 17
_OFFSET: Final = struct.Struct(">q")
_EPOCH: Final = struct.Struct(">i")


def decode_records(
    buffer: Buffer,
    header: BatchHeader,
    *,
    check_crc: bool = True,
    max_inflated_bytes: int | None = None,
    checksum: Checksum = crc32c,
) -> list[Record]:
    """The records of the batch that ``header`` was read from, inflated where need be; none of an emptied batch.

    Args:
        buffer: the one the header was read from.
        check_crc: whether checksums are compared, those of messages inside a compressed one included.
        max_inflated_bytes: most that may come out of a compressed batch (default:
            :func:`~mqstore.layout.kafka.codec.default_limit`).
        checksum: computes CRC-32C; ``mqstore.kernels.crc32c`` is the fast one.

    Raises CorruptBatchError, with ``offset`` the batch's position and ``found`` the
    :class:`~mqstore.layout.kafka.damage.Damage`; UsageError when the library of its codec is not installed.
    """
    if check_crc:
        check_batch(buffer, header, checksum)
    if header.magic != c.MAGIC_V2:
        return decode_messages(buffer, header, check_crc=check_crc, max_inflated_bytes=max_inflated_bytes)
    body: Buffer = buffer
    position, end = header.position + c.BATCH_HEADER_SIZE, header.end_position
    if header.codec is not Codec.NONE:
        body = inflate(
            header.codec,
            buffer[position:end],
            position=header.position,
            magic=header.magic,
            limit_bytes=max_inflated_bytes,
        )
        position, end = 0, len(body)
    return [_record(header, body, places) for places in find_records(body, header, position, end)]


def find_records(buffer: Buffer, header: BatchHeader, position: int, end: int) -> list[RecordPlaces]:
    """Places in ``buffer`` of a batch's records, which fill [position, end) and are not compressed.

    Raises CorruptBatchError with the reason COUNT, RECORD or RECORD_OFFSET.
    """
    if header.record_count > (end - position) // c.MIN_RECORD_SIZE:
        damaged(Damage.COUNT, header.position, f"{end - position} bytes", f"{header.record_count} records")
    found: list[RecordPlaces] = []
    for _ in range(header.record_count):
        try:
            places, position = find_record(buffer, position, end)
        except ValueError as error:
            damaged(Damage.RECORD, header.position, f"record {len(found)} to be sound", error)
        offset = header.base_offset + places.offset_delta
        if not header.base_offset <= offset <= header.last_offset:
            damaged(Damage.RECORD_OFFSET, header.position, f"{header.base_offset} to {header.last_offset}", offset)
        found.append(places)
    if position != end:
        damaged(Damage.RECORD, header.position, f"{header.record_count} records", f"{end - position} more bytes")
    return found


def record_timestamp_ms(header: BatchHeader, delta_ms: int) -> int:
    """The time of a record, in 64 bits as Java adds."""
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        return header.max_timestamp_ms
    return (header.base_timestamp_ms + delta_ms + (1 << 63)) % (1 << 64) - (1 << 63)


def _record(header: BatchHeader, buffer: Buffer, places: RecordPlaces) -> Record:
    sequence = c.NO_SEQUENCE
    if header.base_sequence >= 0:
        sequence = (header.base_sequence + places.offset_delta) & INT_MAX
    return Record(
        header.base_offset + places.offset_delta,
        record_timestamp_ms(header, places.timestamp_delta_ms),
        header.timestamp_type,
        cut(buffer, places.key_position, places.key_size),
        cut(buffer, places.value_position, places.value_size),
        decode_headers(buffer, places) if places.headers_count else (),
        sequence,
    )


def encode_batch(
    records: Iterable[RecordLike],
    *,
    base_offset: int = 0,
    codec: Codec = Codec.NONE,
    leader_epoch: int = c.NO_LEADER_EPOCH,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    log_append_time_ms: int = c.NO_TIMESTAMP,
    producer_id: int = c.NO_PRODUCER_ID,
    producer_epoch: int = c.NO_PRODUCER_EPOCH,
    base_sequence: int = c.NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    delete_horizon_ms: int | None = None,
    offset_deltas: Sequence[int] | None = None,
    last_offset_delta: int | None = None,
    checksum: Checksum = crc32c,
    encoder: Encoder = encode_records,
) -> bytes:
    """A batch of the present format.

    Args:
        records: at least one; of each its time, key, value and headers are written.
        log_append_time_ms: the time of all records, for the timestamp type LOG_APPEND_TIME.
        delete_horizon_ms: what compaction has settled, None for nothing.
        offset_deltas: offsets of the records, less the base offset; None for 0, 1, 2 and so on.
        last_offset_delta: offset of the batch's end, less the base offset, when it is not the last record's:
            compaction removes records, not offsets.
        checksum, encoder: compute CRC-32C and make the records' bytes; :mod:`mqstore.kernels.kafka_batch` has the fast
            ones.

    Raises UsageError when there are no records, or a number does not fit; MessageIllegalError when a record is too
    large.
    """
    items = list(records)
    deltas = range(len(items)) if offset_deltas is None else offset_deltas
    if not items or len(deltas) != len(items):
        raise UsageError("a batch needs records, and each an offset", expected=len(deltas), found=len(items))
    base_ms = items[0].timestamp_ms if delete_horizon_ms is None else delete_horizon_ms
    headers = [item.headers for item in items]
    body = encoder(
        [item.key for item in items],
        [item.value for item in items],
        headers if any(headers) else None,
        [item.timestamp_ms - base_ms for item in items],
        deltas,
    )
    max_ms = log_append_time_ms
    if timestamp_type is not TimestampType.LOG_APPEND_TIME:
        max_ms = max(item.timestamp_ms for item in items)
    return assemble_batch(
        compress(codec, body),
        record_count=len(items),
        last_offset_delta=deltas[-1] if last_offset_delta is None else last_offset_delta,
        base_timestamp_ms=base_ms,
        max_timestamp_ms=max_ms,
        attributes=batch_attributes(codec, timestamp_type, transactional, control, delete_horizon_ms is not None),
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        checksum=checksum,
    )


def batch_attributes(
    codec: Codec = Codec.NONE,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    transactional: bool = False,
    control: bool = False,
    has_delete_horizon: bool = False,
) -> int:
    """The attribute bits of a batch of the present format. Raises UsageError for a timestamp type it cannot have."""
    if timestamp_type is TimestampType.NONE:
        raise UsageError("the present format has no records without a timestamp type", found=timestamp_type)
    flags = (
        (timestamp_type is TimestampType.LOG_APPEND_TIME, c.LOG_APPEND_TIME_BIT),
        (transactional, c.TRANSACTIONAL_BIT),
        (control, c.CONTROL_BIT),
        (has_delete_horizon, c.DELETE_HORIZON_BIT),
    )
    return int(codec) | sum(bit for is_set, bit in flags if is_set)


def assemble_batch(
    body: Buffer,
    *,
    record_count: int,
    last_offset_delta: int,
    base_timestamp_ms: int,
    max_timestamp_ms: int,
    attributes: int,
    base_offset: int = 0,
    leader_epoch: int = c.NO_LEADER_EPOCH,
    producer_id: int = c.NO_PRODUCER_ID,
    producer_epoch: int = c.NO_PRODUCER_EPOCH,
    base_sequence: int = c.NO_SEQUENCE,
    checksum: Checksum = crc32c,
) -> bytes:
    """Header, checksum and ``body``: the encoded records, compressed as ``attributes`` say.

    Raises UsageError when a number does not fit its field, MessageIllegalError when the body is too large.
    """
    if len(body) > INT_MAX - c.BATCH_HEADER_SIZE:
        raise MessageIllegalError("the batch is too large", expected=f"at most {INT_MAX} bytes", found=len(body))
    if min(base_offset, last_offset_delta, record_count) < 0 or base_offset + last_offset_delta > LONG_MAX:
        raise UsageError(
            "a batch's offsets and number of records are 0 or more",
            found=(base_offset, last_offset_delta, record_count),
        )
    length = c.BATCH_HEADER_SIZE - c.PREFIX_SIZE + len(body)
    try:
        head = HEAD_V2.pack(
            base_offset, length, leader_epoch, c.MAGIC_V2, 0, attributes, last_offset_delta, base_timestamp_ms,
            max_timestamp_ms, producer_id, producer_epoch, base_sequence, record_count,
        )  # fmt: skip
    except struct.error as error:
        raise UsageError(f"a number does not fit its field of the batch: {error}") from error
    batch = bytearray(head) + body
    with memoryview(batch) as view:
        crc = checksum(view[c.CHECKED_FROM :])
    _CRC.pack_into(batch, _CRC_POSITION, crc)
    return bytes(batch)


def encode_empty_batch(header: BatchHeader, *, checksum: Checksum = crc32c) -> bytes:
    """What compaction leaves of a batch of the present format whose records are all gone.

    It keeps offsets, sequence and the producer's last timestamp, and takes 61 bytes.
    """
    attributes = header.attributes & (c.LOG_APPEND_TIME_BIT | c.TRANSACTIONAL_BIT | c.CONTROL_BIT)
    return assemble_batch(
        b"",
        record_count=0,
        last_offset_delta=header.last_offset - header.base_offset,
        base_timestamp_ms=c.NO_TIMESTAMP,
        max_timestamp_ms=header.max_timestamp_ms,
        attributes=attributes,
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        checksum=checksum,
    )


def rebase(batch: Buffer, base_offset: int, leader_epoch: int) -> bytes:
    """The same batch of the present format at other offsets and under another leader epoch.

    Neither is under the checksum, so nothing is computed. Raises CorruptBatchError when ``batch`` is no batch,
    UsageError when it is of an old format or a number does not fit.
    """
    header = decode_header(batch)
    if header.magic != c.MAGIC_V2:
        raise UsageError("a message of an old format has its offset in its contents as well", found=header.magic)
    if base_offset < 0 or base_offset > LONG_MAX - (header.last_offset - header.base_offset):
        raise UsageError("the offset does not fit", found=base_offset)
    moved = bytearray(batch)
    try:
        _OFFSET.pack_into(moved, 0, base_offset)
        _EPOCH.pack_into(moved, c.PREFIX_SIZE, leader_epoch)
    except struct.error as error:
        raise UsageError(f"a number does not fit its field of the batch: {error}") from error
    return bytes(moved)
