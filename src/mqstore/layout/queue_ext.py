"""Consume queue extensions: filter bits beside a queue's units (docs/format/consume-queue-ext.md)."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from mqstore.errors import CorruptFileError, UsageError
from mqstore.layout.buffers import Buffer
from mqstore.layout.constants import LONG_MIN

EXT_HEAD: Final = struct.Struct(">hqqh")
END_MARKER: Final = struct.Struct(">h").pack(-1)
"""Stands where a file has no room for the next unit."""

MAX_EXT_UNIT_SIZE: Final = 32767
SPARE_SIZE: Final = 4
"""Bytes that stay free at a file's end, for the end marker."""
MAX_EXT_ADDRESS: Final = -(2**31) - 1
"""Tags codes up to this number are addresses of ext units; every hash and every time lies above."""
_ADDRESS_BASE: Final = LONG_MIN


class ExtUnit(NamedTuple):
    """What a plain unit has no room for: the bits of the filters that the message passed, and when it was
    stored.
    """

    tags_code: int
    store_timestamp_ms: int
    bitmap: bytes

    @property
    def size_bytes(self) -> int:
        """Bytes it takes in the file."""
        return EXT_HEAD.size + len(self.bitmap)


def is_ext_address(tags_code: int) -> bool:
    """Whether the tags code of a queue unit is the address of an ext unit."""
    return tags_code <= MAX_EXT_ADDRESS


def address_of(offset: int) -> int:
    """Address of the unit at byte ``offset`` of the queue's ext files. Raises UsageError for impossible
    offsets.
    """
    address = offset + _ADDRESS_BASE
    if offset < 0 or not is_ext_address(address):
        raise UsageError("no ext unit can start at this offset", found=offset)
    return address


def offset_of(address: int) -> int:
    """Byte offset in the queue's ext files of the unit at ``address``. Raises UsageError for no address."""
    if not _ADDRESS_BASE <= address <= MAX_EXT_ADDRESS:
        raise UsageError("this tags code is no address of an ext unit", found=address)
    return address - _ADDRESS_BASE


def fits(size_bytes: int, remaining: int) -> bool:
    """Whether a unit of this size goes into a file with ``remaining`` bytes left."""
    return size_bytes <= remaining - SPARE_SIZE


def encode_ext_unit(unit: ExtUnit) -> bytes:
    """The bytes of a unit. Raises UsageError when it exceeds 32,767 bytes or a number does not fit."""
    if unit.size_bytes > MAX_EXT_UNIT_SIZE:
        raise UsageError("an ext unit is too large", expected=f"at most {MAX_EXT_UNIT_SIZE}", found=unit.size_bytes)
    try:
        head = EXT_HEAD.pack(unit.size_bytes, unit.tags_code, unit.store_timestamp_ms, len(unit.bitmap))
    except struct.error as error:
        raise UsageError("a number does not fit an ext unit", found=str(unit[:2])) from error
    return head + unit.bitmap


def decode_ext_unit(buffer: Buffer, position: int = 0) -> ExtUnit | None:
    """The unit at ``position`` of a file, or None when no unit follows in this file (end marker, unwritten
    space).

    Raises CorruptFileError when the sizes contradict each other or the file's end, UsageError for a position
    outside the file.
    """
    left = len(buffer) - position
    if position < 0 or left < 0:
        raise UsageError("the position lies outside the file", offset=position, found=len(buffer))
    start = bytes(buffer[position : position + len(END_MARKER)])
    if start == END_MARKER or not any(start):
        return None
    if left < EXT_HEAD.size:
        raise CorruptFileError("the file ends inside an ext unit", offset=position, found=left)
    size, tags_code, store_timestamp_ms, bitmap_size = EXT_HEAD.unpack_from(buffer, position)
    if bitmap_size < 0 or size != EXT_HEAD.size + bitmap_size or size > left:
        raise CorruptFileError(
            "the sizes of an ext unit are wrong",
            offset=position,
            expected=f"20..{left}",
            found=(size, bitmap_size),
        )
    bitmap_start = position + EXT_HEAD.size
    return ExtUnit(tags_code, store_timestamp_ms, bytes(buffer[bitmap_start : bitmap_start + bitmap_size]))
