"""Consume queue units: 20 bytes that point at a record (docs/format/consume-queue.md)."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from mqstore.errors import UsageError
from mqstore.layout.buffers import Buffer
from mqstore.layout.constants import INT_MAX, QUEUE_UNIT_SIZE

QUEUE_UNIT: Final = struct.Struct(">qiq")
QueueKey = tuple[str, int]
"""A queue by its topic and its number."""


class QueueUnit(NamedTuple):
    """One unit: the place of a record, its size, a tags code (in the schedule topic: the time it is due)."""

    physical_offset: int
    size_bytes: int
    tags_code: int

    @property
    def end_offset(self) -> int:
        """Physical offset of the byte behind the record."""
        return self.physical_offset + self.size_bytes

    @property
    def is_pre_blank(self) -> bool:
        """True for the filler in front of a queue whose first message is not number 0."""
        return self == PRE_BLANK

    @property
    def is_written(self) -> bool:
        """True when this may point at a record: False for unwritten (zero), damaged and filler units."""
        return self.physical_offset >= 0 and self.size_bytes > 0 and not self.is_pre_blank


PRE_BLANK: Final = QueueUnit(0, INT_MAX, 0)
"""Fills a queue's first file up to its first message; never counts as a message."""


def encode_unit(unit: QueueUnit) -> bytes:
    """The 20 bytes of one unit. Raises UsageError when a value does not fit its field."""
    try:
        return QUEUE_UNIT.pack(*unit)
    except struct.error as error:
        raise UsageError("a value does not fit a queue unit", found=str(tuple(unit))) from error


def encode_units(units: Iterable[QueueUnit]) -> bytes:
    """The units one behind the other."""
    return b"".join(map(encode_unit, units))


def decode_unit(buffer: Buffer, position: int = 0) -> QueueUnit:
    """The unit at ``position``. Raises UsageError when fewer than 20 bytes lie there."""
    if not 0 <= position <= len(buffer) - QUEUE_UNIT_SIZE:
        raise UsageError("no whole queue unit at this position", offset=position, found=f"{len(buffer)} bytes")
    return QueueUnit._make(QUEUE_UNIT.unpack_from(buffer, position))


def iter_units(buffer: Buffer, position: int = 0, end: int | None = None) -> Iterator[QueueUnit]:
    """Every unit from ``position`` up to ``end`` (default: the buffer's end), written or not.

    Raises UsageError for a range that lies outside the buffer or is no multiple of 20 bytes long.
    """
    stop = len(buffer) if end is None else end
    if not 0 <= position <= stop <= len(buffer):
        raise UsageError("the range lies outside the buffer", found=f"{position}..{stop} of {len(buffer)}")
    if (stop - position) % QUEUE_UNIT_SIZE:
        raise UsageError("the range is no multiple of a unit's 20 bytes", found=f"{position}..{stop}")
    return map(QueueUnit._make, QUEUE_UNIT.iter_unpack(buffer[position:stop]))
