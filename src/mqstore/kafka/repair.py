"""Recovering and reindexing offline: told first, done only when asked for, to a copy unless in place.

What a broker does by itself at its start can throw records away that could be read. So :func:`recover` says what it
would do and changes nothing, until it is given an ``output`` or told to work ``in_place``.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from mqstore import errors
from mqstore.files import copying, durable
from mqstore.files.lock import StoreLock
from mqstore.files.pool import FilePool
from mqstore.files.whole import mode_of
from mqstore.kafka.damage import BatchDamage
from mqstore.kafka.data_directory import DataDirectory
from mqstore.kafka.loading import LoadReport, PartitionLoader
from mqstore.kafka.producer_state import ProducerStates
from mqstore.kafka.segment import Segment
from mqstore.kafka.segment_recovery import derived_differences, walk_segment, write_derived
from mqstore.kafka.stock import take_data_directory_stock, take_partition_stock
from mqstore.kafka.transactions import producers_at
from mqstore.layout.kafka import names

_PathLike = str | os.PathLike[str]


@dataclass
class RecoveryReport:
    """What a recovery found, partition by partition. ``was_done``: it was carried out, in ``output`` or in place."""

    partitions: list[LoadReport] = field(default_factory=list)
    was_done: bool = False
    output: Path | None = None


def recover(
    path: _PathLike,
    *,
    output: _PathLike | None = None,
    in_place: bool = False,
    dry_run: bool = True,
    index_interval_bytes: int = 4096,
) -> RecoveryReport:
    """Recover every partition of a data directory, or one partition's directory, as a broker does after a crash.

    Every segment is walked and each batch checked. At the first damage of a partition the log is cut, and all later
    segments are removed; indexes, transaction indexes, producer snapshots and leader epochs are made anew where they
    are wrong.

    Args:
        path: a data directory or a partition's directory.
        output: do it to a copy in this new directory.
        in_place: do it to ``path`` itself; nobody may have it open for writing.
        dry_run: with neither, only tell what would be done. False without either is refused.
        index_interval_bytes: the distance of index entries, which the files do not tell.

    Raises:
        UsageError: the arguments contradict each other, or ``output`` exists.
        NotAStoreError: nothing of Kafka's at ``path``.
        StoreLockedError: a writer has it open.
        DiskFullError, StoreIOError: something could not be read or written.
    """
    source = Path(path)
    partitions, is_data_directory = _partitions_of(source)
    target = _target(source, output, in_place, dry_run)
    report = RecoveryReport(output=target if output is not None else None, was_done=target is not None)
    if target is None:
        report.partitions = [_survey(one, index_interval_bytes) for one in partitions]
        return report
    if output is not None:
        copying.copy_tree(source, target)
        (target / names.LOCK).unlink(missing_ok=True)
    starts = DataDirectory(target).load_log_starts() if is_data_directory else {}
    with _locked(target, is_data_directory):
        for directory in partitions:
            name = names.parse_partition_directory(directory.name)
            where = target / directory.name if is_data_directory else target
            before = _survey(where, index_interval_bytes).end_before
            start = 0 if name is None else starts.get((name.topic, name.partition), 0)
            report.partitions.append(_recover_one(where, before, start, index_interval_bytes))
        if is_data_directory:
            _cut_checkpoints(DataDirectory(target), report.partitions)
    return report


def _cut_checkpoints(files: DataDirectory, reports: list[LoadReport]) -> None:
    """Let no checkpoint speak of offsets that a log no longer has."""
    ends = {}
    for report in reports:
        parsed = names.parse_partition_directory(report.directory.name)
        if parsed is not None:
            ends[parsed.topic, parsed.partition] = report.end_after
    for name in (names.RECOVERY_POINTS, names.HIGH_WATERMARKS, names.CLEANER_OFFSETS):
        if mode_of(files.path / name):
            offsets = files.load_checkpoint(name)
            files.save_checkpoint(name, {one: min(offset, ends.get(one, offset)) for one, offset in offsets.items()})


def _recover_one(directory: Path, end_before: int, log_start: int, interval_bytes: int) -> LoadReport:
    pool = FilePool()
    try:
        loader = PartitionLoader(directory, pool, interval_bytes=interval_bytes, log_start=log_start)
        loader.report.end_before = end_before
        loaded = loader.run()
        for segment in loaded.unsynced:
            durable.sync_path(segment.path())
        return loaded.report
    finally:
        pool.close()


def _survey(directory: Path, interval_bytes: int) -> LoadReport:
    """What recovery would do to one partition; nothing is changed."""
    report = LoadReport(directory)
    pool = FilePool()
    try:
        stock = take_partition_stock(directory)
        report.finished = len(stock.leftovers)
        segments = [Segment(directory, base, pool) for base in stock.logs]
        states = ProducerStates(end_offset=segments[0].base_offset if segments else 0)
        for number, segment in enumerate(segments):
            report.end_before = max(report.end_before, _end_by_headers(segment))
            if report.removed:
                report.removed.append(segment.base_offset)
                continue
            walk = walk_segment(segment, states, interval_bytes)
            report.end_after = walk.end_offset
            report.rebuilt += [segment.path(kind).name for kind in derived_differences(walk)]
            following = segments[number + 1].base_offset if number + 1 < len(segments) else None
            is_cut = walk.valid_bytes < segment.size_bytes
            if walk.damage is not None:
                report.damage = walk.damage
                report.cut_bytes = segment.size_bytes - walk.valid_bytes
            if following is not None and (is_cut or following < walk.end_offset):
                report.damage = report.damage or BatchDamage(segment.path(), walk.valid_bytes, "NOT_FOLLOWED")
                report.removed = [-1]  # from here on all segments go
        report.removed = [base for base in report.removed if base >= 0]
        return report
    finally:
        pool.close()


def _end_by_headers(segment: Segment) -> int:
    end = segment.base_offset
    for chunk in segment.scan(check_crc=False):
        end = max(end, chunk.columns.last_offset[chunk.columns.count - 1] + 1)
    return end


def reindex(
    path: _PathLike, *, output: _PathLike | None = None, in_place: bool = False, index_interval_bytes: int = 4096
) -> list[Path]:
    """Make the indexes of every segment anew from its log, by the rule for one batch at a time; logs stay as they are.

    Args:
        path: a data directory or a partition's directory.
        output: write the index files into this new directory, laid out as ``path``.
        in_place: replace those of ``path`` that differ.
        index_interval_bytes: bytes between entries.

    Returns the index files written.

    Raises:
        UsageError: neither or both of ``output`` and ``in_place``, or ``output`` exists.
        NotAStoreError, StoreLockedError, DiskFullError, StoreIOError: as :func:`recover`.
    """
    source = Path(path)
    partitions, is_data_directory = _partitions_of(source)
    target = _target(source, output, in_place, dry_run=False)
    assert target is not None
    written: list[Path] = []
    with _locked(source, is_data_directory) if in_place else _unlocked():
        for directory in partitions:
            where = target / directory.name if is_data_directory else target
            durable.make_directories(where)
            written += _reindex_one(directory, None if in_place else where, index_interval_bytes)
    return written


def _reindex_one(directory: Path, target: Path | None, interval_bytes: int) -> list[Path]:
    pool = FilePool()
    written = []
    try:
        stock = take_partition_stock(directory)
        segments = [Segment(directory, base, pool) for base in stock.logs]
        for number, segment in enumerate(segments):
            states = producers_at(stock, segments[:number], segment.base_offset)
            walk = walk_segment(segment, states, interval_bytes)
            written += write_derived(walk, target)
        durable.sync_directory(directory if target is None else target)
        return written
    finally:
        pool.close()


def _partitions_of(source: Path) -> tuple[list[Path], bool]:
    if not stat.S_ISDIR(mode_of(source)):
        raise errors.NotAStoreError("no such directory", path=source, hint="give a data directory or a partition's")
    if names.parse_partition_directory(source.absolute().name) or take_partition_stock(source).logs:
        return [source], False
    found = list(take_data_directory_stock(source).partitions.values())
    if not found:
        raise errors.NotAStoreError("no partition in this directory", path=source, expected="directories like topic-0")
    return found, True


def _target(source: Path, output: _PathLike | None, in_place: bool, dry_run: bool) -> Path | None:
    """Where to work: None only tells."""
    if output is not None and in_place:
        raise errors.UsageError("give either output or in_place")
    if in_place:
        return source
    if output is None:
        if not dry_run:
            raise errors.UsageError("nothing says where to write", hint="give output, or in_place=True")
        return None
    target = Path(output)
    if os.path.lexists(target):
        raise errors.UsageError("the output exists", path=target, hint="name a directory that does not exist")
    if target.absolute().is_relative_to(source.absolute()):
        raise errors.UsageError("the output lies inside the source", path=target, hint="name one outside of it")
    return target


@contextmanager
def _locked(directory: Path, is_data_directory: bool) -> Iterator[None]:
    """Hold the lock of the data directory that ``directory`` is, or lies in if it is a partition's."""
    root = directory if is_data_directory else directory.absolute().parent
    if not is_data_directory and mode_of(root / names.LOCK) == 0:
        yield  # a partition by itself: nobody could have it open
        return
    lock = StoreLock(root / names.LOCK)
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _unlocked() -> Iterator[None]:
    yield
