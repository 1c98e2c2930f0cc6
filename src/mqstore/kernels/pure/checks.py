"""Checks of arguments that all kernels share, and text as Java reads it."""

from __future__ import annotations

from typing import Final

from mqstore.errors import UsageError
from mqstore.kernels.api import LogColumns
from mqstore.layout.buffers import Buffer
from mqstore.layout.text import decode_text

MAX_PHYSICAL_OFFSET: Final = 1 << 62
"""Log offsets of buffers end here, so that adding a position never overflows 64 bits."""


def check_range(buffer: Buffer, position: int, end: int, physical_offset: int = 0) -> None:
    """Raises UsageError unless 0 <= position <= end <= the buffer's size and the log offset is sensible."""
    size = memoryview(buffer).nbytes
    if not 0 <= position <= end <= size:
        raise UsageError(
            "the range lies outside the buffer",
            offset=position,
            expected=f"0..{size}",
            found=f"{position}..{end}",
        )
    if not 0 <= physical_offset <= MAX_PHYSICAL_OFFSET:
        raise UsageError("the physical offset is out of range", found=physical_offset)


def check_rows(count: int, start: int, stop: int) -> None:
    """Raises UsageError unless 0 <= start <= stop <= count."""
    if not 0 <= start <= stop <= count:
        raise UsageError("no such rows", expected=f"0..{count}", found=f"{start}..{stop}")


def part(view: memoryview, position: int, size: int) -> bytes:
    """``size`` bytes at ``position``; raises UsageError when they are not all there."""
    if position < 0 or position > len(view) - size:
        raise UsageError("the columns belong to another buffer", offset=position, found=f"{len(view)} bytes")
    return bytes(view[position : position + size])


def optional_part(view: memoryview, position: int, size: int) -> bytes | None:
    """The same, or None for a negative size."""
    return None if size < 0 else part(view, position, size)


def text_of(view: memoryview, position: int, size: int) -> str | None:
    """Text at ``position``, None for a negative size."""
    raw = optional_part(view, position, size)
    return None if raw is None else decode_text(raw)


def properties_text(view: memoryview, columns: LogColumns, row: int) -> str:
    """The properties string of a row."""
    return decode_text(part(view, columns.properties_position[row], columns.properties_size[row]))
