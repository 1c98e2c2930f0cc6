"""The checksum of a whole record that 5.x can put into the last property (docs/format/properties.md).

To write one: add :func:`reserve` to the properties, encode the record, then :func:`seal` it. The digits
depend on every other byte of the record, its place in the log included.
"""

from __future__ import annotations

from typing import Final
from zlib import crc32

from mqstore.errors import UsageError
from mqstore.layout.buffers import Buffer
from mqstore.layout.constants import CRC_MASK, PROPERTY_CRC32
from mqstore.layout.properties import append

_NAME: Final = f"{PROPERTY_CRC32}\x01".encode()
_DIGITS: Final = 10
_END: Final = b"\x02"
CRC_PROPERTY_SIZE: Final = len(_NAME) + _DIGITS + len(_END)
"""20 bytes at the record's end."""


def crc_property(value: int) -> bytes:
    """The 20 bytes that hold checksum ``value``: ten decimal digits, the lowest first.

    Raises UsageError when the value is no 31-bit number.
    """
    if not 0 <= value <= CRC_MASK:
        raise UsageError("a stored checksum has 31 bits", expected=f"0..{CRC_MASK}", found=value)
    return _NAME + f"{value:0{_DIGITS}d}"[::-1].encode() + _END


def reserve(properties: bytes) -> bytes:
    """The properties string with room for the checksum at its end.

    Raises MessageIllegalError when the result exceeds 32,767 bytes.
    """
    return append(properties, crc_property(0))


def seal(record: bytes) -> bytes:
    """The encoded record with the checksum in the room that :func:`reserve` made.

    Raises UsageError when the record does not end with that room.
    """
    if stored_crc(record) is None:
        raise UsageError("the record's properties do not end with room for a checksum")
    return record[:-CRC_PROPERTY_SIZE] + crc_property(_computed(record))


def stored_crc(record: Buffer) -> int | None:
    """The checksum that an encoded record ends with, None when it ends otherwise. 0 is a checksum like any
    other.
    """
    tail = bytes(record[-CRC_PROPERTY_SIZE:])
    digits = tail[len(_NAME) : -1]
    if not tail.startswith(_NAME) or not tail.endswith(_END) or len(digits) != _DIGITS or not digits.isdigit():
        return None
    return int(digits[::-1])


def is_intact(record: Buffer) -> bool | None:
    """Whether an encoded record has the checksum that it ends with; None when it carries none.

    A message that was copied from another record with its properties can end with that record's checksum, so
    False proves damage only in a store that was written with these checksums switched on.
    """
    stored = stored_crc(record)
    return None if stored is None else stored == _computed(record)


def _computed(record: Buffer) -> int:
    return crc32(record[:-CRC_PROPERTY_SIZE]) & CRC_MASK
