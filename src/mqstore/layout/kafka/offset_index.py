"""The sparse offset index of a segment, ``.index`` (docs/format/kafka-index.md).

An entry gives the last offset of a batch (or of a whole append) and the position in the ``.log`` where that batch (or
append) starts. Offsets are stored relative to the segment's base offset.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import pairwise
from operator import gt
from typing import Final, NamedTuple

from mqstore.errors import UsageError
from mqstore.layout.buffers import Buffer

ENTRY: Final = struct.Struct(">ii")
ENTRY_SIZE: Final = ENTRY.size


class OffsetEntry(NamedTuple):
    """One entry: ``offset`` is absolute, ``position`` a byte of the ``.log``."""

    offset: int
    position: int


class OffsetIndex:
    """The entries of one index in order; both columns ascend strictly. Only :meth:`append` changes it."""

    __slots__ = ("_offsets", "_positions", "base_offset")

    def __init__(self, base_offset: int, entries: Iterable[OffsetEntry] = ()) -> None:
        self.base_offset = base_offset
        self._offsets: list[int] = []
        self._positions: list[int] = []
        for entry in entries:
            self.append(entry)

    @classmethod
    def decode(cls, buffer: Buffer, base_offset: int) -> OffsetIndex:
        """The entries of ``buffer``, up to the first that does not lie behind the one before it.

        The file of a running segment is as long as it may ever become and ends in zeros; its length says nothing.
        An entry with offset or position of the segment's very start is never written, so that a file of zeros is an
        empty index.
        """
        count = len(buffer) // ENTRY_SIZE
        values = struct.unpack(">" + "ii" * count, memoryview(buffer)[: count * ENTRY_SIZE])
        relative, positions = values[0::2], values[1::2]
        count = min(_ascending(relative, -1), _ascending(positions, 0))
        index = cls(base_offset)
        index._offsets = [base_offset + offset for offset in relative[:count]]
        index._positions = list(positions[:count])
        return index

    def encode(self, first: int = 0) -> bytes:
        """The bytes of the file, from entry number ``first`` on.

        Raises UsageError when an offset is 2**31 or more away from the base offset.
        """
        rest = map(OffsetEntry, self._offsets[first:], self._positions[first:])
        return b"".join(encode_offset_entry(entry, self.base_offset) for entry in rest)

    def append(self, entry: OffsetEntry) -> None:
        """Add an entry behind the last. Position first: a reader of another thread goes by the offsets."""
        self._positions.append(entry.position)
        self._offsets.append(entry.offset)

    def floor(self, offset: int) -> OffsetEntry:
        """The last entry at or before ``offset``; base offset and position 0 when there is none."""
        number = bisect_right(self._offsets, offset) - 1
        if number < 0:
            return OffsetEntry(self.base_offset, 0)
        return OffsetEntry(self._offsets[number], self._positions[number])

    def __len__(self) -> int:
        return len(self._offsets)

    def __iter__(self) -> Iterator[OffsetEntry]:
        return map(OffsetEntry, self._offsets, self._positions)


def encode_offset_entry(entry: OffsetEntry, base_offset: int) -> bytes:
    """The 8 bytes of ``entry``. Raises UsageError when its offset does not fit."""
    try:
        return ENTRY.pack(entry.offset - base_offset, entry.position)
    except struct.error as error:
        raise UsageError(
            "an offset does not fit the index of its segment", expected=base_offset, found=entry
        ) from error


def _ascending(values: tuple[int, ...], floor: int) -> int:
    """How many of ``values`` ascend strictly from above ``floor`` on."""
    if not values or values[0] <= floor:
        return 0
    if all(map(gt, values[1:], values)):
        return len(values)
    return 1 + next(number for number, (before, after) in enumerate(pairwise(values)) if after <= before)
