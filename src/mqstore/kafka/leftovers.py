"""Finishing or undoing what a crash broke off in the middle of renaming segments (docs/format/kafka-directory.md).

A cleaned segment appears in three steps: its files are written under ``.cleaned``, renamed to ``.swap`` when they are
complete, and renamed to their own names once the segments they replace are out of the way. Wherever that stops, what is
left can be told from the names.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from mqstore.files import durable
from mqstore.files.pool import FilePool
from mqstore.kafka.lookup import start_position
from mqstore.kafka.segment import Segment
from mqstore.kafka.stock import PartitionStock, odd_file_error
from mqstore.layout.constants import LONG_MAX
from mqstore.layout.kafka.names import FileKind, FileStage, SegmentFile

_log = logging.getLogger(__name__)

_SEGMENT_KINDS = (FileKind.LOG, FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TXN_INDEX)


@dataclass(frozen=True)
class Leftovers:
    """What is to be done about what a crash broke off: files that go, then those that get their own names."""

    directory: Path
    removed: list[SegmentFile]
    renamed: list[SegmentFile]

    @property
    def count(self) -> int:
        """How many files that concerns."""
        return len(self.removed) + len(self.renamed)

    @property
    def replacements(self) -> list[int]:
        """Base offsets of the segments whose logs get their own names: see :meth:`segment`."""
        return [file.offset for file in self.renamed if file.kind is FileKind.LOG]

    def remove(self) -> None:
        """The first half. What shows that a replacement was broken off, ``.cleaned``, goes after its ``.swap``."""
        swaps = [file for file in self.removed if file.stage is FileStage.SWAP]
        for files in (swaps, [file for file in self.removed if file.stage is not FileStage.SWAP]):
            for file in files:
                durable.remove_file(self.directory / file.name)
            if files:
                durable.sync_directory(self.directory)

    def rename(self) -> None:
        """The second half."""
        for file in self.renamed:
            durable.rename(self.directory / file.name, self.directory / file._replace(stage=FileStage.LIVE).name)
        durable.sync_directory(self.directory)

    def live_after(self, stock: PartitionStock) -> PartitionStock:
        """The live files that there will be; some lie under other names yet, see :meth:`segment`."""
        after = PartitionStock(self.directory)
        for kind, offsets in stock.files.items():
            gone = {file.offset for file in self.removed if (file.kind, file.stage) == (kind, FileStage.LIVE)}
            new = {file.offset for file in self.renamed if file.kind is kind}
            after.files[kind] = sorted(set(offsets) - gone | new)
        return after

    def segment(self, base_offset: int, pool: FilePool) -> Segment:
        """A segment that there will be, read where its files lie now."""
        moving = {file.kind for file in (*self.renamed, *self.removed)
                  if file.offset == base_offset and (file in self.renamed or file.stage is FileStage.LIVE)}  # fmt: skip
        return _PartlySwapped(self.directory, base_offset, pool, moving)


def find_leftovers(stock: PartitionStock, pool: FilePool) -> Leftovers:
    """What is to be done so that there are only live files."""
    swaps = complete_swaps(stock)
    removed = [file for file in stock.leftovers if file not in swaps]
    for base, end in _replaced_ranges(stock, swaps, pool):
        removed += [
            SegmentFile(offset, kind) for kind in _SEGMENT_KINDS for offset in stock.files[kind] if base <= offset < end
        ]
    return Leftovers(stock.directory, removed, swaps)


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
    live: dict[int, type[Segment]] = {**dict.fromkeys(stock.odd_logs, OddSegment), **dict.fromkeys(stock.logs, Segment)}
    visible = {base: kind for base, kind in live.items() if not any(start <= base < end for start, end in hidden)}
    for base in stock.odd_swaps:
        visible.setdefault(base, OddSwapSegment)
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


class OddSegment(Segment):
    """A segment with something else than a file in place of its ``.log``: whoever needs its records is told."""

    @property
    def identity(self) -> int:
        """None: there is no file."""
        return -1

    @property
    def size_bytes(self) -> int:
        """Raises CorruptFileError."""
        raise odd_file_error(self.path())

    def read(self, position: int, size_bytes: int) -> bytes:
        """Raises CorruptFileError."""
        raise odd_file_error(self.path())


class OddSwapSegment(OddSegment, SwapSegment):
    """The same in place of a ``.log.swap``, where the segments that it was to replace may be gone."""


class _PartlySwapped(Segment):
    """A segment with files that still bear ``.swap``, or that go without any that takes their place."""

    def __init__(self, directory: Path, base_offset: int, pool: FilePool, moving: set[FileKind]) -> None:
        self._moving = moving
        super().__init__(directory, base_offset, pool)

    def _make_path(self, kind: FileKind) -> Path:
        stage = FileStage.SWAP if kind in self._moving else FileStage.LIVE
        return self.directory / SegmentFile(self.base_offset, kind, stage).name
