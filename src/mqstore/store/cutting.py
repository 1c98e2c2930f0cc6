"""Cutting the end off a commit log, between two records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mqstore import errors
from mqstore.files import durable
from mqstore.files.mapped_file import MappedFile
from mqstore.store.arguments import check_long
from mqstore.store.log_reader import LogReader


def check_cut(directories: Sequence[Path], end: int) -> int:
    """``end``, if the log in ``directories`` may be cut there.

    The file's own records are walked up to it: inside a record, or behind damage, is no place to cut.

    Raises:
        UsageError: ``end`` lies outside the log, or no record starts or ends there.
    """
    check_long("physical offset", end)
    log = LogReader(directories)
    directory = directories[0]
    try:
        log_end = log.end_offset()
        if not log.min_offset < end <= log_end:
            raise errors.UsageError(
                "the log cannot be cut there",
                path=directory,
                offset=end,
                expected=f"an offset behind {log.min_offset} and up to {log_end}",
                found=end,
                hint="mqstore stats tells the range, mqstore dump the offsets of records",
            )
        reached = _boundary(log, end)
    finally:
        log.close()
    if reached != end:
        raise errors.UsageError(
            "no record starts or ends at this offset",
            path=directory,
            offset=end,
            expected=f"{reached}, the nearest before it",
            found=end,
            hint="mqstore dump lists the offsets of records",
        )
    return end


def _boundary(log: LogReader, end: int) -> int:
    """The last offset up to ``end`` at which a record starts or ends."""
    reached = end - end % log.inventory.size_bytes
    for chunk in log.scan(reached, end):
        sizes, positions = chunk.columns.size, chunk.columns.position
        ends = [chunk.physical_offset + at + size for at, size in zip(positions, sizes, strict=True)]
        reached = max((at for at in ends if at <= end), default=reached)
    return reached


def cut_log(directory: Path, end: int) -> None:
    """Make the log in ``directory`` end at ``end``, durably: later files go, the rest of its file becomes unwritten.

    Raises:
        StoreIOError: a file could not be changed. Give it a copy: a log half cut is neither the one nor the other.
    """
    log = LogReader([directory])
    entries, size = list(log.inventory.entries), log.inventory.size_bytes
    log.close()
    for entry in reversed(entries):
        if entry.start >= end:
            durable.remove_file(entry.path)
        elif entry.start + size > end:
            cut_file(entry.path, size, entry.start, end)
    durable.sync_directory(directory)


def cut_file(path: Path, size: int, start: int, end: int) -> None:
    """Make what lies behind ``end`` in a log file that begins at ``start`` unwritten, durably.

    Raises:
        StoreIOError: it could not be changed.
    """
    file = MappedFile(path, size, start=start)
    try:
        file.zero_from(end - start)
        file.sync()
    finally:
        file.close()
