"""One record: what a reader gets of it, and its bytes inside a batch of the present format
(docs/format/kafka-batch.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from mqstore.errors import MessageIllegalError, UsageError
from mqstore.layout.buffers import Buffer
from mqstore.layout.constants import INT_MAX
from mqstore.layout.kafka.constants import NO_SEQUENCE, TimestampType
from mqstore.layout.kafka.varint import VARLONG_BITS, decode_varint, encode_varint
from mqstore.layout.text import decode_text

Header = tuple[str, "bytes | None"]
"""Name and value of a record's header. Names may repeat and be empty; their order counts."""


class Record(NamedTuple):
    """One record of a partition.

    ``key`` and ``value`` are None where the record has none, which is not the same as empty; a record without a value
    is a tombstone to compaction. ``timestamp_ms`` is -1 without a time; ``sequence`` is the producer's number of the
    record, -1 without one.
    """

    offset: int
    timestamp_ms: int
    timestamp_type: TimestampType
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
    sequence: int = NO_SEQUENCE

    @property
    def body(self) -> bytes | None:
        """The value, under the name that messages of the other store have for it."""
        return self.value

    @property
    def queue_offset(self) -> int:
        """The offset, under the name that messages of the other store have for it."""
        return self.offset


class RecordLike(Protocol):
    """What of a record is written: :class:`Record` has it, and so has any message with these attributes."""

    @property
    def timestamp_ms(self) -> int:
        """Milliseconds since 1970, -1 for none."""

    @property
    def key(self) -> bytes | None:
        """The key."""

    @property
    def value(self) -> bytes | None:
        """The value."""

    @property
    def headers(self) -> Sequence[Header]:
        """The headers in order."""


class RecordFields(NamedTuple):
    """A record as its batch stores it: time and offset are less those of the batch."""

    timestamp_delta_ms: int
    offset_delta: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


class RecordPlaces(NamedTuple):
    """Where the parts of a stored record lie; sizes of key and value are -1 where there is none."""

    timestamp_delta_ms: int
    offset_delta: int
    key_position: int
    key_size: int
    value_position: int
    value_size: int
    headers_position: int
    headers_size: int
    headers_count: int


def find_record(buffer: Buffer, position: int, end: int) -> tuple[RecordPlaces, int]:
    """The record at ``position`` and the position behind it. Its attributes are unused and not looked at.

    Raises ValueError, saying what is wrong, when lengths reach past the record or ``end``, or leave bytes over.
    """
    size, position = decode_varint(buffer, position, end)
    if not 0 < size <= end - position:
        raise ValueError(f"a record of {size} bytes where {end - position} are left")
    end = position + size
    timestamp_delta, position = decode_varint(buffer, position + 1, end, VARLONG_BITS)
    offset_delta, position = decode_varint(buffer, position, end)
    key_size, key = _find_bytes(buffer, position, end)
    value_size, value = _find_bytes(buffer, key + max(key_size, 0), end)
    count, headers = decode_varint(buffer, value + max(value_size, 0), end)
    if not 0 <= 2 * count <= end - headers:
        raise ValueError(f"{count} headers where {end - headers} bytes are left")
    position = headers
    for _ in range(count):
        name_size, position = _find_bytes(buffer, position, end)
        if name_size < 0:
            raise ValueError("a header without a name")
        content_size, position = _find_bytes(buffer, position + name_size, end)
        position += max(content_size, 0)
    if position != end:
        raise ValueError(f"{end - position} bytes are left over in a record")
    return RecordPlaces(
        timestamp_delta, offset_delta, key, key_size, value, value_size, headers, end - headers, count
    ), end


def _find_bytes(buffer: Buffer, position: int, end: int) -> tuple[int, int]:
    """Size and position of bytes with their length before them."""
    size, position = decode_varint(buffer, position, end)
    if not -1 <= size <= end - position:
        raise ValueError(f"a length of {size} where {end - position} bytes are left")
    return size, position


def decode_headers(buffer: Buffer, places: RecordPlaces) -> tuple[Header, ...]:
    """The headers of a record that :func:`find_record` has found. Raises ValueError when it was in another buffer."""
    position, end = places.headers_position, places.headers_position + places.headers_size
    headers = []
    for _ in range(places.headers_count):
        name_size, name = _find_bytes(buffer, position, end)
        if name_size < 0:
            raise ValueError("a header without a name")
        content_size, content = _find_bytes(buffer, name + name_size, end)
        headers.append((decode_text(bytes(buffer[name : name + name_size])), cut(buffer, content, content_size)))
        position = content + max(content_size, 0)
    if position != end:
        raise ValueError(f"{end - position} bytes are left over behind the headers")
    return tuple(headers)


def cut(buffer: Buffer, position: int, size: int) -> bytes | None:
    """``size`` bytes at ``position``, None for a size of -1."""
    return None if size < 0 else bytes(buffer[position : position + size])


def encode_record_fields(fields: RecordFields) -> bytes:
    """The bytes of a record.

    Raises MessageIllegalError when they are too many for a length, or a header has no name; UsageError when a number
    does not fit.
    """
    parts = [
        b"\0",
        encode_varint(fields.timestamp_delta_ms, VARLONG_BITS),
        encode_varint(fields.offset_delta),
        _encode_bytes(fields.key),
        _encode_bytes(fields.value),
        encode_varint(len(fields.headers)),
    ]
    for name, content in fields.headers:
        if name is None:
            raise MessageIllegalError("a header needs a name")
        parts += (_encode_bytes(name.encode("utf-8", "replace")), _encode_bytes(content))
    body = b"".join(parts)
    if len(body) > INT_MAX:
        raise MessageIllegalError("the record is too large", expected=f"at most {INT_MAX} bytes", found=len(body))
    return encode_varint(len(body)) + body


def _encode_bytes(value: Buffer | None) -> bytes:
    return encode_varint(-1) if value is None else encode_varint(len(value)) + value


def encode_records(
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    headers: Sequence[Sequence[Header]] | None,
    timestamp_deltas_ms: Sequence[int],
    offset_deltas: Sequence[int] | None = None,
) -> bytearray:
    """The records of one batch, one behind the other; the columns are those of ``kafka_encode`` of the kernels.

    Raises UsageError when the columns differ in length or a number does not fit, MessageIllegalError when a record or
    all together are too large.
    """
    count = len(keys)
    columns = (values, timestamp_deltas_ms, headers, offset_deltas)
    if any(column is not None and len(column) != count for column in columns):
        raise UsageError("every record needs a value, a time, headers and an offset", expected=count)
    body = bytearray()
    for row in range(count):
        fields = RecordFields(
            timestamp_deltas_ms[row],
            row if offset_deltas is None else offset_deltas[row],
            keys[row],
            values[row],
            () if headers is None else tuple(headers[row]),
        )
        body += encode_record_fields(fields)
        if len(body) > INT_MAX:
            raise MessageIllegalError("the batch is too large", expected=f"at most {INT_MAX} bytes", found=len(body))
    return body
