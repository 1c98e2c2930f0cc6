"""The sparse time index of a segment, ``.timeindex`` (docs/format/kafka-index.md).

An entry says that the largest timestamp up to and including ``offset`` is ``timestamp_ms``; the offset is the last one
of the batch that holds that timestamp.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from mqstore.errors import UsageError
from mqstore.layout.buffers import Buffer

ENTRY: Final = struct.Struct(">qi")
ENTRY_SIZE: Final = ENTRY.size


class TimeEntry(NamedTuple):
    """One entry: milliseconds since 1970 and an absolute offset."""

    timestamp_ms: int
    offset: int


class TimeIndex:
    """The entries of one index in order: times ascend strictly, offsets never fall. Only :meth:`append` changes it."""

    __slots__ = ("_offsets", "_times", "base_offset")

    def __init__(self, base_offset: int, entries: Iterable[TimeEntry] = ()) -> None:
        self.base_offset = base_offset
        self._times: list[int] = []
        self._offsets: list[int] = []
        for entry in entries:
            self.append(entry)

    @classmethod
    def decode(cls, buffer: Buffer, base_offset: int) -> TimeIndex:
        """The entries of ``buffer``, up to the first whose time is not later or whose offset is smaller.

        The zeros behind the entries of a running segment are no entries: taking one for the segment's largest
        timestamp would make the segment look fifty years old, and retention delete it. One single entry of zeros in
        a file of just that length is one.
        """
        index = cls(base_offset)
        last_time, last_offset = -1, 0
        whole = len(buffer) - len(buffer) % ENTRY_SIZE
        for timestamp, relative in ENTRY.iter_unpack(memoryview(buffer)[:whole]):
            is_padding = timestamp == relative == 0 and whole > ENTRY_SIZE
            if timestamp <= last_time or relative < last_offset or is_padding:
                break
            index.append(TimeEntry(timestamp, base_offset + relative))
            last_time, last_offset = timestamp, relative
        return index

    def encode(self, first: int = 0) -> bytes:
        """The bytes of the file, from entry number ``first`` on.

        Raises UsageError when an offset is 2**31 or more away from the base offset.
        """
        rest = map(TimeEntry, self._times[first:], self._offsets[first:])
        return b"".join(encode_time_entry(entry, self.base_offset) for entry in rest)

    def append(self, entry: TimeEntry) -> None:
        """Add an entry behind the last. Offset first: a reader of another thread goes by the times."""
        self._offsets.append(entry.offset)
        self._times.append(entry.timestamp_ms)

    def floor(self, timestamp_ms: int) -> TimeEntry:
        """The last entry at or before ``timestamp_ms``; time -1 and the base offset when there is none."""
        number = bisect_right(self._times, timestamp_ms) - 1
        if number < 0:
            return TimeEntry(-1, self.base_offset)
        return TimeEntry(self._times[number], self._offsets[number])

    @property
    def last(self) -> TimeEntry:
        """The last entry; time -1 and the base offset when there is none."""
        count = len(self._times)
        return TimeEntry(self._times[count - 1], self._offsets[count - 1]) if count else TimeEntry(-1, self.base_offset)

    def __len__(self) -> int:
        return len(self._times)

    def __iter__(self) -> Iterator[TimeEntry]:
        return map(TimeEntry, self._times, self._offsets)


def encode_time_entry(entry: TimeEntry, base_offset: int) -> bytes:
    """The 12 bytes of ``entry``. Raises UsageError when its offset does not fit."""
    try:
        return ENTRY.pack(entry.timestamp_ms, entry.offset - base_offset)
    except struct.error as error:
        raise UsageError(
            "an offset does not fit the index of its segment", expected=base_offset, found=entry
        ) from error
