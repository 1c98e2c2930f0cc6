"""Where a log ends for its readers: behind the last record that belongs to it, which only the records tell."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

import numpy as np

from mqstore import errors
from mqstore.files.inventory import FileEntry
from mqstore.layout.record import Record
from mqstore.store.log_reader import LogDamage, LogReader

_log = logging.getLogger(__name__)

LOOK_BACK_BYTES: Final = 8 << 20
"""More than the largest record of an ordinary store, so that a blank record or a whole body lies within."""

_LAST_FILES: Final = 3


def readable_end(log: LogReader, known: Record | None = None) -> int:
    """Offset behind the last record that belongs to the log.

    Sound records behind damage belong to it unless they are older than those before: such ones are remains of a
    log that was cut off there. Of the last three files only those are gone through that may hold the end, most often
    one. Checksums are looked at near the end alone: what is torn further in front makes no difference.

    Args:
        log: the log.
        known: a record of it, if one is known: then no more is gone through than what is behind it.
    """
    entries = log.inventory.entries[-_LAST_FILES:]
    if not entries:
        return 0
    if known is not None:
        return _end_behind(log, known.end_offset, known.store_timestamp_ms) or 0
    start, newest_ms = _where_to_begin(log, entries)
    end = _end_behind(log, start, newest_ms, quick=True)
    if end is not None:
        near = max(start, end - LOOK_BACK_BYTES)
        first = near if near == start else log.resync(log.entry_at(near) or entries[-1], near)
        if first is not None and _end_behind(log, first, 0) == end:
            return end
    return _end_behind(log, entries[0].start, 0) or 0


def _where_to_begin(log: LogReader, entries: Sequence[FileEntry]) -> tuple[int, int]:
    """The start of the newest file that surely continues the one before it, and the store time of what is in front.

    It begins with a record, and the file before it goes on soundly up to the blank record that closes it.
    """
    for before, entry in zip(entries[-2::-1], entries[:0:-1], strict=True):
        head = log.record_at(entry.start)
        if head is None:
            continue
        newest_ms = _closing_time_ms(log, before)
        if newest_ms is None or newest_ms > head.store_timestamp_ms:
            break
        return entry.start, newest_ms
    return entries[0].start, 0


def _closing_time_ms(log: LogReader, entry: FileEntry) -> int | None:
    """The newest store time at the end of a file that is closed there as it should be; None of any other."""
    damages: list[LogDamage] = []

    def note(damage: LogDamage) -> bool:
        damages.append(damage)
        return False

    near = max(entry.start, entry.start + entry.length - LOOK_BACK_BYTES)
    first = near if near == entry.start else log.resync(entry, near)
    newest_ms, end = None, first
    if first is not None:
        for chunk in log.scan(first, entry.start + entry.length, on_damage=note):
            times = np.frombuffer(chunk.columns.store_timestamp_ms, np.int64)
            newest_ms, end = max(newest_ms or 0, int(times.max())), chunk.end_offset
    closed = end is not None and (end == entry.start + entry.length or log.end_of_closed_file(end) is not None)
    return newest_ms if closed and not damages else None


def _end_behind(log: LogReader, start: int, newest_ms: int, quick: bool = False) -> int | None:
    """Go from the record at ``start``, in front of which ``newest_ms`` is the newest store time, to the log's end.

    ``quick``: without a look at checksums; None when a record is older than the one before it, as then it takes them
    to tell why.
    """
    end = start
    damaged: list[LogDamage] = []

    def note(damage: LogDamage) -> bool:
        damaged.append(damage)
        return True

    chunks = (
        chunk
        for entry in log.inventory.entries
        if entry.start + entry.length > start
        for chunk in log.scan(max(start, entry.start), entry.start + entry.length, on_damage=note, check_crc=not quick)
    )
    for chunk in chunks:
        times = chunk.columns.store_timestamp_ms
        if damaged and times[0] < newest_ms:
            _log.warning(
                "%s: older records behind the log's end at %d are left out", errors.shown_path(damaged[0].path), end
            )
            break
        moments = np.frombuffer(times, np.int64)
        if quick and (times[0] < newest_ms or (moments[1:] < moments[:-1]).any()):
            return None
        damaged.clear()
        end = chunk.end_offset
        newest_ms = max(newest_ms, int(moments.max()))
    return end
