"""Messages of the old formats 0 and 1, plain and as compressed wrappers (docs/format/kafka-message-set.md)."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final
from zlib import crc32

from mqstore.errors import CorruptBatchError, MessageIllegalError, UsageError
from mqstore.layout.buffers import Buffer
from mqstore.layout.constants import INT_MAX
from mqstore.layout.kafka import constants as c
from mqstore.layout.kafka.codec import compress, inflate
from mqstore.layout.kafka.constants import Codec, TimestampType
from mqstore.layout.kafka.damage import Damage, damaged
from mqstore.layout.kafka.header import HEADS_OLD, BatchHeader, check_batch, decode_header
from mqstore.layout.kafka.record import Record, RecordLike, cut

_LENGTH: Final = struct.Struct(">i")
_CRC: Final = struct.Struct(">I")
_CRC_POSITION: Final = 12
_CHECKED_FROM: Final = 16


def decode_messages(
    buffer: Buffer, header: BatchHeader, *, check_crc: bool = True, max_inflated_bytes: int | None = None
) -> list[Record]:
    """The message that ``header`` was read from, or those inside if it is a wrapper.

    The wrapper's own checksum is not compared here. Raises as :func:`~mqstore.layout.kafka.batch.decode_records`.
    """
    key, value = _decode_parts(buffer, header, header.position)
    if not header.is_wrapper:
        return [_record(header, header.last_offset, key, value)]
    if value is None:
        damaged(Damage.WRAPPER, header.position, "compressed messages", "no value")
    data = inflate(header.codec, value, position=header.position, magic=header.magic, limit_bytes=max_inflated_bytes)
    inner = _inner_headers(data, header, check_crc)
    shift = _offset_shift(header, inner)
    records = []
    for one in inner:
        key, value = _decode_parts(data, one, header.position)
        marked = one
        if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
            marked = header
        records.append(_record(marked, one.last_offset + shift, key, value))
    return records


def _inner_headers(data: bytes, wrapper: BatchHeader, check_crc: bool) -> list[BatchHeader]:
    """The messages of a wrapper: at least one, none compressed again, nothing behind the last."""
    found: list[BatchHeader] = []
    position = 0
    while position < len(data):
        try:
            header = decode_header(data, position)
            if check_crc:
                check_batch(data, header)
        except CorruptBatchError as error:
            damaged(Damage.RECORD, wrapper.position, f"message {len(found)} inside to be sound", error.found)
        if header.is_wrapper or header.magic == c.MAGIC_V2:
            damaged(Damage.WRAPPER, wrapper.position, "plain messages inside", f"magic {header.magic}")
        found.append(header)
        position = header.end_position
    if not found:
        damaged(Damage.WRAPPER, wrapper.position, "messages inside", "none")
    return found


def _offset_shift(wrapper: BatchHeader, inner: Sequence[BatchHeader]) -> int:
    """What makes the offsets inside absolute: format 1 counts from the wrapper's start, and the wrapper has its end's.

    Some early clients of format 1 left 0 in the wrapper and true offsets inside.
    """
    last = inner[-1].last_offset
    if wrapper.magic == c.MAGIC_V0 or wrapper.last_offset == 0:
        return 0
    if wrapper.last_offset < last:
        damaged(Damage.RECORD_OFFSET, wrapper.position, f"at most {wrapper.last_offset} inside", last)
    return wrapper.last_offset - last


def find_message(buffer: Buffer, header: BatchHeader, place: int) -> tuple[int, int, int, int]:
    """Position and size of the key, then of the value, of one message; sizes are -1 where there is none.

    ``place`` is the position of the batch, for errors. Raises CorruptBatchError with the reason RECORD when the parts
    do not fill the message.
    """
    end = header.end_position
    key, key_size = _find_bytes(buffer, header.position + HEADS_OLD[header.magic].size, end, place)
    value, value_size = _find_bytes(buffer, key + max(key_size, 0), end, place)
    position = value + max(value_size, 0)
    if position != end:
        damaged(Damage.RECORD, place, "nothing behind the value", f"{end - position} bytes")
    return key, key_size, value, value_size


def _find_bytes(buffer: Buffer, position: int, end: int, place: int) -> tuple[int, int]:
    if end - position < _LENGTH.size:
        damaged(Damage.RECORD, place, "a length", f"{end - position} bytes")
    (size,) = _LENGTH.unpack_from(buffer, position)
    position += _LENGTH.size
    if not -1 <= size <= end - position:
        damaged(Damage.RECORD, place, f"-1 to {end - position} bytes", f"a length of {size}")
    return position, size


def _decode_parts(buffer: Buffer, header: BatchHeader, place: int) -> tuple[bytes | None, bytes | None]:
    key, key_size, value, value_size = find_message(buffer, header, place)
    return cut(buffer, key, key_size), cut(buffer, value, value_size)


def _record(header: BatchHeader, offset: int, key: bytes | None, value: bytes | None) -> Record:
    return Record(offset, header.max_timestamp_ms, header.timestamp_type, key, value)


def encode_message(
    record: RecordLike,
    *,
    offset: int,
    magic: int,
    codec: Codec = Codec.NONE,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
) -> bytes:
    """One message of format 0 or 1 with its offset and length; a wrapper, if there is a codec and its value is the
    compressed messages.

    Raises MessageIllegalError for headers, which these formats have not got, and for too large a message; UsageError
    for another format and for a number that does not fit.
    """
    if magic not in HEADS_OLD or codec not in (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4):
        raise UsageError("no such message format, or no such codec in it", found=(magic, codec.name))
    if record.headers:
        raise MessageIllegalError("message formats 0 and 1 have no headers", found=len(record.headers))
    attributes = int(codec)
    if magic == c.MAGIC_V1 and timestamp_type is TimestampType.LOG_APPEND_TIME:
        attributes |= c.LOG_APPEND_TIME_BIT
    parts = _encode_bytes(record.key) + _encode_bytes(record.value)
    length = HEADS_OLD[magic].size - c.PREFIX_SIZE + len(parts)
    if length > INT_MAX - c.PREFIX_SIZE:
        raise MessageIllegalError("the message is too large", expected=f"at most {INT_MAX} bytes", found=length)
    times = [record.timestamp_ms] if magic == c.MAGIC_V1 else []
    try:
        message = bytearray(HEADS_OLD[magic].pack(offset, length, 0, magic, attributes, *times) + parts)
    except struct.error as error:
        raise UsageError(f"a number does not fit its field of the message: {error}") from error
    _CRC.pack_into(message, _CRC_POSITION, crc32(memoryview(message)[_CHECKED_FROM:]))
    return bytes(message)


def encode_wrapper(
    records: Iterable[RecordLike],
    *,
    base_offset: int,
    magic: int,
    codec: Codec,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    log_append_time_ms: int = c.NO_TIMESTAMP,
) -> bytes:
    """Messages of format 0 or 1, compressed into one that bears the last one's offset and the largest time.

    Raises UsageError without records; otherwise as :func:`encode_message`.
    """
    items = list(records)
    if not items or codec is Codec.NONE:
        raise UsageError("a wrapper needs messages and a codec", found=(len(items), codec.name))
    first = base_offset if magic == c.MAGIC_V0 else 0
    data = b"".join(
        encode_message(item, offset=first + number, magic=magic, timestamp_type=timestamp_type)
        for number, item in enumerate(items)
    )
    last_offset = base_offset + len(items) - 1
    time_ms = log_append_time_ms
    if timestamp_type is not TimestampType.LOG_APPEND_TIME:
        time_ms = max(item.timestamp_ms for item in items)
    outer = Record(last_offset, time_ms, timestamp_type, None, compress(codec, data, magic=magic))
    return encode_message(outer, offset=last_offset, magic=magic, codec=codec, timestamp_type=timestamp_type)


def _encode_bytes(value: bytes | None) -> bytes:
    return _LENGTH.pack(-1) if value is None else _LENGTH.pack(len(value)) + value
