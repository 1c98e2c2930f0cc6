"""Whether the header of an index file can be right (docs/format/index-file.md).

A header follows from the file's first and last entries and from the records they point to. It decides which files a
query looks into and how far, so a wrong one makes messages missing without a word.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from mqstore.errors import CorruptFileError
from mqstore.layout.index import IndexEntry, IndexHeader, time_diff_s

_BEGIN_MS, _END_MS, _BEGIN_OFFSET, _END_OFFSET, _SLOTS_IN_USE, _COUNT = 0, 8, 16, 24, 32, 36
_NO_ENTRY: Final = IndexEntry(0, 0, 0, 0)

StoreTime = Callable[[int], int | None]
"""Gives the store time in ms of the record at a physical offset, None when no record is there."""


class Misfit(NamedTuple):
    """A field of a header that contradicts something: its place in the file, what it should be, and what it is."""

    position: int
    message: str
    expected: object
    found: object


def entries_misfit(header: IndexHeader, first: IndexEntry, last: IndexEntry) -> Misfit | None:
    """What is wrong with a header by its file's entries number 1 and ``index_count`` - 1; None when nothing is.

    In a file without keys, where there is no last one, ``last`` does not matter.
    """
    if header.index_count <= 1:
        if first != _NO_ENTRY:
            return Misfit(_COUNT, "index header counts no entries, and there are some", "2 or more", header.index_count)
        return _one_moment(header)
    if last == _NO_ENTRY:  # no key has all of that 0
        return Misfit(_COUNT, "index header counts entries that were never written", "fewer", header.index_count)
    if last.physical_offset != header.end_physical_offset:
        message = "index header does not end with its last entry"
        return Misfit(_END_OFFSET, message, last.physical_offset, header.end_physical_offset)
    if first.physical_offset != header.begin_physical_offset:
        message = "index header does not begin with its first entry"
        return Misfit(_BEGIN_OFFSET, message, first.physical_offset, header.begin_physical_offset)
    if header.index_count == 2:
        return _one_moment(header)
    seconds = time_diff_s(header.begin_timestamp_ms, header.end_timestamp_ms)
    if last.time_diff_s != seconds:
        message = "times of the index header contradict its last entry"
        return Misfit(_BEGIN_MS, message, f"{last.time_diff_s} s from begin to end", f"{seconds} s")
    return None


def _one_moment(header: IndexHeader) -> Misfit | None:
    """A file with one key or none begins and ends with the same record."""
    if header.begin_timestamp_ms != header.end_timestamp_ms:
        message = "index header ends at another time than its only record"
        return Misfit(_END_MS, message, header.begin_timestamp_ms, header.end_timestamp_ms)
    if header.begin_physical_offset != header.end_physical_offset:
        message = "index header ends with another record than its only one"
        return Misfit(_END_OFFSET, message, header.begin_physical_offset, header.end_physical_offset)
    return None


def log_misfit(header: IndexHeader, previous: IndexHeader | None, store_time: StoreTime) -> Misfit | None:
    """What is wrong with a header by the log, or, in a file without keys, by the header of the file before.

    Only records that still are in the log tell anything.
    """
    if header.index_count <= 1:
        if previous is None or header == start_after(previous):
            return None
        message = "index header of a file without keys does not begin where the file before ends"
        return Misfit(_BEGIN_MS, message, tuple(start_after(previous)), tuple(header))
    for position, name, time_ms, physical_offset in (
        (_BEGIN_MS, "begin", header.begin_timestamp_ms, header.begin_physical_offset),
        (_END_MS, "end", header.end_timestamp_ms, header.end_physical_offset),
    ):
        right = store_time(physical_offset)
        if right is not None and right != time_ms:
            return Misfit(position, f"index header does not {name} at its record's time", right, time_ms)
    return None


def slots_misfit(header: IndexHeader, used: int) -> Misfit | None:
    """Whether the header counts other slots than the ``used`` ones; some brokers count one with every key."""
    if header.hash_slot_count in (used, header.index_count - 1):
        return None
    return Misfit(_SLOTS_IN_USE, "index header counts other slots than are in use", used, header.hash_slot_count)


def start_after(previous: IndexHeader | None) -> IndexHeader:
    """The header of a file that took no key yet: it begins where the one before ended."""
    if previous is None:
        return IndexHeader()
    time_ms, physical_offset = previous.end_timestamp_ms, previous.end_physical_offset
    return IndexHeader(time_ms, time_ms, physical_offset, physical_offset, 0, 1)


def misfit_error(path: Path, misfit: Misfit) -> CorruptFileError:
    """The error to raise where a wrong header cannot be worked with."""
    return CorruptFileError(
        misfit.message,
        path=path,
        offset=misfit.position,
        expected=misfit.expected,
        found=misfit.found,
        hint="mqstore rebuild makes the index anew from the log",
    )
