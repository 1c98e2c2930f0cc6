"""Finishing or undoing what a crash broke off in the middle of renaming segments (docs/format/kafka-directory.md).

A cleaned segment appears in three steps: its files are written under ``.cleaned``, renamed to ``.swap`` when they are
complete, and renamed to their own names once the segments they replace are out of the way. Wherever that stops, what is
left can be told from the names.
"""

from __future__ import annotations

import logging
from pathlib import Path

from mqstore.files import durable
from mqstore.files.pool import FilePool
from mqstore.kafka.lookup import start_position
from mqstore.kafka.segment import Segment
from mqstore.kafka.stock import PartitionStock, take_partition_stock
from mqstore.layout.constants import LONG_MAX
from mqstore.layout.kafka.names import FileKind, FileStage, SegmentFile

_log = logging.getLogger(__name__)

_SEGMENT_KINDS = (FileKind.LOG, FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TXN_INDEX)


def finish_leftovers(directory: Path, pool: FilePool) -> int:
    """Bring the directory to where there are only live files; how many were removed or renamed."""
    stock = take_partition_stock(directory)
    if not stock.leftovers:
        return 0
    done = 0

    def remove(file: SegmentFile) -> None:
        nonlocal done
        done += 1
        durable.remove_file(directory / file.name)

    swaps = complete_swaps(stock)
    for file in stock.leftovers:
        if file not in swaps:
            remove(file)
    for base, end in _replaced_ranges(stock, swaps, pool):
        for kind in _SEGMENT_KINDS:
            for offset in stock.files[kind]:
                if base <= offset < end:
                    remove(SegmentFile(offset, kind))
    durable.sync_directory(directory)
    for file in swaps:
        done += 1
        durable.rename(directory / file.name, directory / file._replace(stage=FileStage.LIVE).name)
    durable.sync_directory(directory)
    _log.info("finished what a crash had broken off in %s: %d files removed or renamed", directory, done)
    return done


def complete_swaps(stock: PartitionStock) -> list[SegmentFile]:
    """The ``.swap`` files that stand for segments: not those whose making was broken off, as a ``.cleaned`` shows."""
    cleaned = [file.offset for file in stock.leftovers if file.stage is FileStage.CLEANED]
    broken_off_at = min(cleaned, default=None)
    return [
        file
        for file in stock.leftovers
        if file.stage is FileStage.SWAP and (broken_off_at is None or file.offset < broken_off_at)
    ]


def visible_segments(stock: PartitionStock, pool: FilePool) -> dict[int, type[Segment]]:
    """What a reader takes for the segments while a cleaning is on its way: by base offset, live or still ``.swap``."""
    swaps = complete_swaps(stock)
    hidden = _replaced_ranges(stock, swaps, pool)
    visible: dict[int, type[Segment]] = {
        base: Segment for base in stock.logs if not any(start <= base < end for start, end in hidden)
    }
    visible.update({file.offset: SwapSegment for file in swaps if file.kind is FileKind.LOG})
    return visible


def _replaced_ranges(stock: PartitionStock, swaps: list[SegmentFile], pool: FilePool) -> list[tuple[int, int]]:
    """The base offsets, from and up to, of the segments that the complete replacements stand for."""
    bases = [file.offset for file in swaps if file.kind is FileKind.LOG]
    if not bases:
        return []
    return [(min(bases), max(_next_offset(stock.directory, base, pool) for base in bases))]


def _next_offset(directory: Path, base_offset: int, pool: FilePool) -> int:
    """One past the last offset of a replacement's log."""
    segment = SwapSegment(directory, base_offset, pool)
    end = base_offset
    for chunk in segment.scan(start_position(segment, LONG_MAX), check_crc=False):
        end = chunk.columns.last_offset[chunk.columns.count - 1] + 1
    segment.forget()
    return end


class SwapSegment(Segment):
    """A segment whose files still bear ``.swap``."""

    def _make_path(self, kind: FileKind) -> Path:
        return self.directory / SegmentFile(self.base_offset, kind, FileStage.SWAP).name
