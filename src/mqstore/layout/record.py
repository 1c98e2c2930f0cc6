"""One commit log record: bytes to :class:`Record` and back (docs/format/commit-log.md).

This is the readable definition of the record. The compiled kernels judge bytes by the same rules in the same
order, see :class:`Damage`.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, NoReturn
from zlib import crc32

from mqstore.errors import CorruptRecordError, MessageIllegalError, UsageError
from mqstore.layout import constants as c
from mqstore.layout import properties as props
from mqstore.layout.buffers import Buffer
from mqstore.layout.constants import SysFlag
from mqstore.layout.delay import DEFAULT_DELAY_TABLE, delay_level, deliver_timestamp
from mqstore.layout.hosts import decode_host
from mqstore.layout.message_id import encode_message_id
from mqstore.layout.tags import tags_code
from mqstore.layout.text import decode_text

PREFIX: Final = struct.Struct(">ii")
"""Size and magic: all that a blank record has."""

_HOST_SIZES: Final = (c.HOST_V4_SIZE, c.HOST_V6_SIZE)
HEADS: Final = tuple(struct.Struct(f">iiiiiqqiq{_HOST_SIZES[v6 & 1]}sq{_HOST_SIZES[v6 >> 1]}siqi") for v6 in range(4))
"""Everything up to and including the body's length, by the two IPv6 bits of SYSFLAG (born host + 2 * store
host).
"""

_V6_BITS: Final = SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6
_V6_SHIFT: Final = 4
_TOPIC_LENGTHS: Final = {c.MAGIC_V1: struct.Struct(">b"), c.MAGIC_V2: struct.Struct(">h")}
_TOPIC_GUESS_BYTES: Final = 256
_PROPERTIES_LENGTH: Final = struct.Struct(">h")
_TRANSACTIONS_WITHOUT_OFFSET: Final = (SysFlag.TRANSACTION_PREPARED, SysFlag.TRANSACTION_ROLLBACK)


class Damage(enum.IntEnum):
    """Why bytes are no valid record. The rules are tried in this order; the first to fail is the reason."""

    SHORT = 1
    """Fewer than 8 bytes are left, or the size field reaches past the end."""
    UNWRITTEN = 2
    """Size and magic are both zero: space that was never written."""
    MAGIC = 3
    """No known magic code."""
    SIZE = 4
    """The size field is smaller than the smallest record of this version."""
    PHYSICAL_OFFSET = 5
    """The record belongs to another place of the log: remains of an older use of the file, or a misplaced
    copy.
    """
    LENGTHS = 6
    """The parts do not add up to the size, or a length is negative or reaches past the record's end."""
    BODY_CRC = 7
    """The body does not have the stored checksum."""
    PROPERTIES = 8
    """The properties hold a NUL byte or a segment without a separator."""

    def __str__(self) -> str:
        return self.name

    def __format__(self, spec: str) -> str:
        return format(self.name, spec)


class Blank(NamedTuple):
    """The record that closes a file: no record follows in this file.

    ``size_bytes`` is what the record says (the bytes left in the file, itself included); continue at the
    start of the next file whatever it says. ``physical_offset`` is where it lies, in the log when that was
    given to :func:`decode_record`, otherwise in the buffer.
    """

    physical_offset: int
    size_bytes: int


class Record(NamedTuple):
    """One stored message. Fields are those of the record; what is derived from them are properties below."""

    physical_offset: int
    total_size: int
    magic: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    sys_flag: int
    born_timestamp_ms: int
    born_host_raw: bytes
    store_timestamp_ms: int
    store_host_raw: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes
    topic_raw: bytes
    properties_raw: bytes

    @property
    def topic(self) -> str:
        """The topic; malformed UTF-8 becomes U+FFFD (``topic_raw`` has the stored bytes)."""
        return decode_text(self.topic_raw)

    @property
    def born_host(self) -> str:
        """Address and port of the producer, as :func:`~mqstore.layout.hosts.decode_host` writes them."""
        return decode_host(self.born_host_raw)

    @property
    def store_host(self) -> str:
        """Address and port of the broker that stored the message."""
        return decode_host(self.store_host_raw)

    @property
    def end_offset(self) -> int:
        """Physical offset of the byte behind this record."""
        return self.physical_offset + self.total_size

    @property
    def msg_id(self) -> str:
        """The offset message id, 32 or 56 hexadecimal digits."""
        return encode_message_id(self.store_host_raw, self.physical_offset)

    @property
    def properties_string(self) -> str:
        """The properties as stored, separators included; malformed UTF-8 becomes U+FFFD."""
        return decode_text(self.properties_raw)

    @property
    def properties(self) -> dict[str, str]:
        """The properties as a new dict; computed at each access."""
        return props.parse(self.properties_raw)

    @property
    def tags(self) -> str | None:
        """The whole tag string, or None."""
        return self.properties.get(c.PROPERTY_TAGS)

    @property
    def keys(self) -> list[str]:
        """The non-empty user keys (property KEYS, separated by blanks), in stored order with repetitions."""
        return props.split_keys(self.properties.get(c.PROPERTY_KEYS))

    @property
    def uniq_key(self) -> str | None:
        """The id that the producing client gave the message, or None."""
        return self.properties.get(c.PROPERTY_UNIQ_KEY)

    @property
    def transaction_type(self) -> int:
        """One of SysFlag.TRANSACTION_NOT, _PREPARED, _COMMIT, _ROLLBACK."""
        return self.sys_flag & SysFlag.TRANSACTION_MASK

    @property
    def is_queued(self) -> bool:
        """Whether a consume queue gets a unit for it: prepared and rollback records are in no queue."""
        return self.transaction_type not in _TRANSACTIONS_WITHOUT_OFFSET

    def tags_code(self, delay_table: Mapping[int, int] = DEFAULT_DELAY_TABLE) -> int:
        """The code in the queue unit: the hash of the tags, or in the schedule topic the time it is due."""
        properties = self.properties
        if self.topic_raw == _SCHEDULE_TOPIC:
            level = delay_level(properties.get(c.PROPERTY_DELAY), delay_table)
            if level > 0:
                return deliver_timestamp(level, self.store_timestamp_ms, delay_table)
        return tags_code(properties.get(c.PROPERTY_TAGS))

    def encode(self) -> bytes:
        """The record's bytes. For a decoded record these are the bytes it was decoded from."""
        return encode_record(
            topic=self.topic_raw,
            body=self.body,
            properties=self.properties_raw,
            queue_id=self.queue_id,
            flag=self.flag,
            queue_offset=self.queue_offset,
            physical_offset=self.physical_offset,
            sys_flag=self.sys_flag,
            born_timestamp_ms=self.born_timestamp_ms,
            born_host=self.born_host_raw,
            store_timestamp_ms=self.store_timestamp_ms,
            store_host=self.store_host_raw,
            reconsume_times=self.reconsume_times,
            prepared_transaction_offset=self.prepared_transaction_offset,
            magic=self.magic,
        )


_SCHEDULE_TOPIC: Final = c.SCHEDULE_TOPIC.encode()


def body_crc(body: Buffer) -> int:
    """The checksum that a record stores for ``body``: CRC-32 without its top bit."""
    return crc32(body) & c.CRC_MASK


def decode_record(
    buffer: Buffer,
    position: int = 0,
    *,
    physical_offset: int | None = None,
    check_crc: bool = True,
    end: int | None = None,
) -> Record | Blank:
    """Decode the record that starts at ``position`` of ``buffer``.

    Args:
        buffer: bytes of the log; nothing at or behind ``end`` (default: the buffer's end) is looked at.
        position: where the record starts, in the buffer.
        physical_offset: where it starts in the log; given, the record's own offset must equal it; otherwise
        it must not
            be negative.
        check_crc: whether the body's checksum is compared.

    Raises CorruptRecordError when no valid record starts there: ``found`` is a :class:`Damage`, ``offset``
    the physical offset (the position, when that was not given). Raises UsageError when the position is
    outside the buffer.
    """
    limit = len(buffer) if end is None else end
    if not 0 <= position <= limit <= len(buffer):
        raise UsageError("the position lies outside the buffer", offset=position, found=f"{limit} of {len(buffer)}")
    place = position if physical_offset is None else physical_offset
    size, magic = _decode_prefix(buffer, position, limit, place)
    if magic == c.MAGIC_BLANK:
        return Blank(place, size)

    stop = position + size
    head = HEADS[0]
    fields = head.unpack_from(buffer, position)
    if fields[6] != (max(fields[6], 0) if physical_offset is None else physical_offset):
        _damaged(Damage.PHYSICAL_OFFSET, place, "its own place" if physical_offset is None else place, fields[6])
    if v6 := (fields[7] & _V6_BITS) >> _V6_SHIFT:
        head = HEADS[v6]
        if position + head.size > stop:
            _damaged(Damage.LENGTHS, place, f"a head of {head.size} bytes", f"a record of {size}")
        fields = head.unpack_from(buffer, position)

    body, at = _part(buffer, position + head.size, fields[14], stop, place)
    topic, at = _counted_part(buffer, at, _TOPIC_LENGTHS[magic], stop, place)
    raw, at = _counted_part(buffer, at, _PROPERTIES_LENGTH, stop, place)
    if at != stop:
        _damaged(Damage.LENGTHS, place, size, at - position)
    if check_crc and crc32(body) & c.CRC_MASK != fields[2]:
        _damaged(Damage.BODY_CRC, place, fields[2], body_crc(body))
    if (reason := props.defect(raw)) is not None:
        _damaged(Damage.PROPERTIES, place, "name and value pairs", reason)
    return Record._make((fields[6], size, magic, *fields[2:6], *fields[7:14], body, topic, raw))


def queue_of(read: Callable[[int, int], Buffer], size_bytes: int) -> tuple[int, str, int, int] | None:
    """Place, topic, queue id and queue offset that a record of ``size_bytes`` names; its body is passed over.

    Args:
        read: gives so many bytes of the record from a position in it on, fewer where they end.
        size_bytes: how long it should be.

    Nothing else is judged. None where no such record is.
    """
    try:
        start = read(0, min(size_bytes, HEADS[-1].size))
        head = HEADS[(HEADS[0].unpack_from(start)[7] & _V6_BITS) >> _V6_SHIFT]
        fields = head.unpack_from(start)
        length = _TOPIC_LENGTHS.get(fields[1])
        at = head.size + fields[14]
        if length is None or fields[0] != size_bytes or fields[14] < 0 or at + length.size > size_bytes:
            return None
        rest = read(at, min(size_bytes - at, _TOPIC_GUESS_BYTES))
        stop = length.size + length.unpack_from(rest)[0]
        if stop > len(rest):
            rest = read(at, min(size_bytes - at, stop))
    except struct.error:
        return None
    if not length.size <= stop <= len(rest):
        return None
    return fields[6], decode_text(bytes(rest[length.size : stop])), fields[3], fields[5]


def _decode_prefix(buffer: Buffer, position: int, limit: int, place: int) -> tuple[int, int]:
    """Size and magic of a record that lies whole before ``limit``, or of a blank record."""
    if limit - position < c.BLANK_SIZE:
        _damaged(Damage.SHORT, place, f"{c.BLANK_SIZE} bytes", limit - position)
    size, magic = PREFIX.unpack_from(buffer, position)
    if magic == c.MAGIC_BLANK:
        return size, magic
    if magic not in _TOPIC_LENGTHS:
        if size == 0 and magic == 0:
            _damaged(Damage.UNWRITTEN, place, "a record", "zeros")
        _damaged(Damage.MAGIC, place, "a magic code", f"0x{magic & 0xFFFFFFFF:08X}")
    smallest = c.MIN_RECORD_SIZE + (magic == c.MAGIC_V2)
    if size < smallest:
        _damaged(Damage.SIZE, place, f"at least {smallest}", size)
    if size > limit - position:
        _damaged(Damage.SHORT, place, f"{size} bytes", limit - position)
    return size, magic


def _part(buffer: Buffer, start: int, length: int, stop: int, place: int) -> tuple[bytes, int]:
    """A part of ``length`` bytes that must end at or before ``stop``, and the position behind it."""
    end = start + length
    if length < 0 or end > stop:
        _damaged(Damage.LENGTHS, place, f"a length from 0 to {stop - start}", length)
    return bytes(buffer[start:end]), end


def _counted_part(buffer: Buffer, position: int, length: struct.Struct, stop: int, place: int) -> tuple[bytes, int]:
    """A part that is preceded by its length."""
    start = position + length.size
    if start > stop:
        _damaged(Damage.LENGTHS, place, f"{length.size} bytes for a length", stop - position)
    return _part(buffer, start, length.unpack_from(buffer, position)[0], stop, place)


def _damaged(reason: Damage, offset: int, expected: object, found: object) -> NoReturn:
    raise CorruptRecordError(
        f"no valid record: {_SENTENCES[reason]} ({found})", offset=offset, expected=expected, found=reason
    )


_SENTENCES: Final = {
    Damage.SHORT: "the bytes end inside it",
    Damage.UNWRITTEN: "nothing was ever written here",
    Damage.MAGIC: "no magic code",
    Damage.SIZE: "its size is too small",
    Damage.PHYSICAL_OFFSET: "it belongs to another offset",
    Damage.LENGTHS: "its parts do not add up to its size",
    Damage.BODY_CRC: "its body has another checksum",
    Damage.PROPERTIES: "its properties are malformed",
}


def record_size(
    body_size: int,
    topic_size: int,
    properties_size: int,
    *,
    born_host_size: int = c.HOST_V4_SIZE,
    store_host_size: int = c.HOST_V4_SIZE,
    magic: int = c.MAGIC_V1,
) -> int:
    """Bytes that a record with these parts takes, all sizes in bytes."""
    fixed = c.MIN_RECORD_SIZE - 2 * c.HOST_V4_SIZE + (magic == c.MAGIC_V2)
    return fixed + born_host_size + store_host_size + body_size + topic_size + properties_size


def encode_record(
    *,
    topic: bytes,
    body: bytes,
    properties: bytes,
    queue_id: int,
    flag: int,
    queue_offset: int,
    physical_offset: int,
    sys_flag: int,
    born_timestamp_ms: int,
    born_host: bytes,
    store_timestamp_ms: int,
    store_host: bytes,
    reconsume_times: int = 0,
    prepared_transaction_offset: int = 0,
    magic: int = c.MAGIC_V1,
) -> bytes:
    """Encode one record. Its checksum is computed, and the IPv6 bits of ``sys_flag`` follow the hosts' sizes.

    Raises MessageIllegalError when topic, properties or the whole do not fit their length fields or the
    properties would read as damage, and UsageError for a host that has not 8 or 20 bytes, an unknown magic
    code, or a number that does not fit its field.
    """
    topic_length = _TOPIC_LENGTHS.get(magic)
    if topic_length is None:
        raise UsageError("unknown magic code", expected=f"{c.MAGIC_V1} or {c.MAGIC_V2}", found=magic)
    if len(topic) > (c.MAX_TOPIC_SIZE_V1 if magic == c.MAGIC_V1 else c.MAX_TOPIC_SIZE_V2):
        raise MessageIllegalError("the topic is too long for this version of the record", found=len(topic))
    if (reason := props.defect(props.check_size(properties))) is not None:
        raise MessageIllegalError("the properties string is malformed", found=reason)
    v6 = _v6_index(born_host, store_host)
    size = record_size(
        len(body),
        len(topic),
        len(properties),
        born_host_size=len(born_host),
        store_host_size=len(store_host),
        magic=magic,
    )
    if size > c.INT_MAX:
        raise MessageIllegalError("the message is too large", expected=f"at most {c.INT_MAX} bytes", found=size)
    try:
        head = HEADS[v6].pack(
            size,
            magic,
            body_crc(body),
            queue_id,
            flag,
            queue_offset,
            physical_offset,
            sys_flag & ~_V6_BITS | v6 << _V6_SHIFT,
            born_timestamp_ms,
            born_host,
            store_timestamp_ms,
            store_host,
            reconsume_times,
            prepared_transaction_offset,
            len(body),
        )
    except struct.error as error:
        raise UsageError(f"a number does not fit its field of the record: {error}") from error
    return b"".join(
        (
            head,
            body,
            topic_length.pack(len(topic)),
            topic,
            _PROPERTIES_LENGTH.pack(len(properties)),
            properties,
        )
    )


def _v6_index(born_host: bytes, store_host: bytes) -> int:
    for host in (born_host, store_host):
        if len(host) not in _HOST_SIZES:
            raise UsageError("a host field has 8 or 20 bytes", expected="8 or 20", found=len(host))
    return (len(born_host) == c.HOST_V6_SIZE) | (len(store_host) == c.HOST_V6_SIZE) << 1


def encode_blank(remaining: int) -> bytes:
    """The 8 bytes of a blank record that gives up the ``remaining`` bytes of its file.

    Raises UsageError when fewer than 8 are left: there is no room for the blank record itself.
    """
    if not c.BLANK_SIZE <= remaining <= c.INT_MAX:
        raise UsageError("no blank record for this many bytes", expected=f"8..{c.INT_MAX}", found=remaining)
    return PREFIX.pack(remaining, c.MAGIC_BLANK)
