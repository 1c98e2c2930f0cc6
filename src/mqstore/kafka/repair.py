"""Recovering and reindexing offline: told first, done only when asked for, to a copy unless in place.

What a broker does by itself at its start can throw records away that could be read. So :func:`recover` says what it
would do and changes nothing, until it is given an ``output`` or told to work ``in_place``.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from mqstore import errors
from mqstore.files import copying, durable
from mqstore.files.lock import StoreLock
from mqstore.files.pool import FilePool
from mqstore.files.stage import Stage
from mqstore.files.whole import mode_of
from mqstore.kafka.arguments import check_number, check_path
from mqstore.kafka.damage import BatchDamage, Reporter, next_batch
from mqstore.kafka.data_directory import DataDirectory
from mqstore.kafka.loading import LoadReport, PartitionLoader, cut_off, refuse_odd
from mqstore.kafka.segment import Segment
from mqstore.kafka.segment_recovery import SegmentWalk, walk_segment, write_derived
from mqstore.kafka.stock import odd_file_error, odd_partition_error, take_data_directory_stock, take_partition_stock
from mqstore.kafka.survey import PartitionSurvey
from mqstore.kafka.transactions import producers_at
from mqstore.layout.constants import INT_MAX
from mqstore.layout.kafka import names
from mqstore.layout.kafka.names import FileKind, FileStage

_log = logging.getLogger(__name__)

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
        output: do it to a copy in this new directory, which has its name when it is complete and not before.
        in_place: do it to ``path`` itself; nobody may have it open for writing.
        dry_run: with neither, only tell what would be done. False without either is refused.
        index_interval_bytes: the distance of index entries, which the files do not tell.

    Raises:
        UsageError: the arguments contradict each other, or ``output`` exists.
        NotAStoreError: nothing of Kafka's at ``path``, or a file.
        CorruptFileError: what keeps a writer from opening it as well: the log start offsets or ``meta.properties`` are
            damaged, or something else than a file lies under a segment's name. Nothing was made or changed.
        StoreLockedError: a writer has it open.
        DiskFullError, StoreIOError: something could not be read or written.
    """
    check_number("index_interval_bytes", index_interval_bytes, 0, INT_MAX)
    source = check_path(path)
    partitions, is_data_directory = _partitions_of(source)
    target = _target(source, output, in_place, dry_run)
    _refuse(source, partitions, is_data_directory)
    report = RecoveryReport(output=target if output is not None else None, was_done=target is not None)
    if target is None or in_place:
        with _locked(source, is_data_directory) if in_place else _unlocked():
            report.partitions = _recover_all(source, partitions, is_data_directory, in_place, index_interval_bytes)
        return report
    with Stage(target, source) as stage:
        _copy(source, stage.root, partitions if is_data_directory else [])
        with _locked(stage.root, is_data_directory):
            found = _recover_all(stage.root, partitions, is_data_directory, True, index_interval_bytes)
        stage.put_in_place()
    report.partitions = [_moved(one, stage.root, target) for one in found]
    return report


def _recover_all(
    root: Path, partitions: list[Path], is_data_directory: bool, is_done: bool, interval_bytes: int
) -> list[LoadReport]:
    """Recover the partitions of these names below ``root``, or the one that it is; only tell unless ``is_done``."""
    files = DataDirectory(root)
    starts = files.load_log_starts() if is_data_directory else {}
    reports = []
    cuts: list[Segment] = []
    for directory in partitions:
        name = names.parse_partition_directory(directory.name)
        where = root / directory.name if is_data_directory else root
        start = 0 if name is None else starts.get((name.topic, name.partition), 0)
        if is_done:
            reports.append(_recover_one(where, start, interval_bytes, cuts))
        else:
            reports.append(_survey_one(where, start, interval_bytes))
    if is_data_directory and is_done:
        files.remove_temporaries()
        _cut_checkpoints(files, reports)
    cut_off(cuts)  # when all else is done: whatever fails before, the next recovery tells the same loss
    return reports


def _moved(report: LoadReport, root: Path, target: Path) -> LoadReport:
    """The same, of a directory that has got its name since."""
    report.directory = target / report.directory.relative_to(root)
    if report.damage is not None:
        report.damage = replace(report.damage, path=target / report.damage.path.relative_to(root))
    return report


def _refuse(source: Path, partitions: list[Path], is_data_directory: bool) -> None:
    """Raise what would keep a writer from opening it: no recovery mends that."""
    for directory in partitions:
        refuse_odd(take_partition_stock(directory))
    if is_data_directory:
        DataDirectory(source).load_log_starts()
        DataDirectory(source).has_meta_properties()


def _copy(source: Path, target: Path, partitions: list[Path]) -> None:
    """Copy a data directory or a partition's, with partitions that are only linked from here."""
    copying.copy_tree(source, target)
    for directory in partitions:
        if directory.is_symlink():
            copying.copy_tree(directory.resolve(), target / directory.name)
    durable.remove_file(target / names.LOCK)


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


def _recover_one(directory: Path, log_start: int, interval_bytes: int, cuts: list[Segment]) -> LoadReport:
    """Recover one partition, but for the cuts, which are added to ``cuts``."""
    pool = FilePool()
    try:
        loader = PartitionLoader(directory, pool, interval_bytes=interval_bytes, log_start=log_start)
        for segment in loader.prepare().unsynced:
            durable.sync_path(segment.path())
        cuts += loader.cuts
        return loader.report
    finally:
        pool.close()


def _survey_one(directory: Path, log_start: int, interval_bytes: int) -> LoadReport:
    pool = FilePool()
    try:
        return PartitionSurvey(directory, pool, interval_bytes=interval_bytes, log_start=log_start).survey()
    finally:
        pool.close()


def _pass_over(damage: BatchDamage) -> bool:
    _log.warning(
        "the indexes of a damaged segment end before %d of %s: %s", damage.position, damage.path, damage.reason
    )
    return True


def reindex(
    path: _PathLike,
    *,
    output: _PathLike | None = None,
    in_place: bool = False,
    index_interval_bytes: int = 4096,
    on_damage: Reporter = _pass_over,
) -> list[Path]:
    """Make the indexes of every segment anew from its log, by the rule for one batch at a time; logs stay as they are.

    Args:
        path: a data directory, a partition's directory, or the ``.log`` of one segment.
        output: write the index files into this new directory, laid out as ``path``; named when it is complete.
        in_place: replace those of ``path`` that differ.
        index_interval_bytes: bytes between entries.
        on_damage: told of the first damage of each segment, where its indexes end: what lies behind is found by
            walking. False stops there, as an error. Without it a warning is logged.

    Returns the index files written.

    Raises:
        UsageError: neither or both of ``output`` and ``in_place``, or ``output`` exists.
        CorruptFileError: something else than a file lies in place of a ``.log``. Nothing was made or changed.
        CorruptBatchError: ``on_damage`` decided to stop.
        NotAStoreError, StoreLockedError, DiskFullError, StoreIOError: as :func:`recover`.
    """
    check_number("index_interval_bytes", index_interval_bytes, 0, INT_MAX)
    source = check_path(path)
    only = _base_offset_of(source)
    if only is not None:
        source = source.absolute().parent
    partitions, is_data_directory = ([source], False) if only is not None else _partitions_of(source)
    target = _target(source, output, in_place, dry_run=False)
    assert target is not None
    for directory in partitions:
        for base, path in take_partition_stock(directory).odd_logs.items():
            if only is None or base <= only:  # what a producer did before is read as well
                raise odd_file_error(path)
    if in_place:
        with _locked(source, is_data_directory):
            return [
                path for one in partitions for path in _reindex_one(one, None, index_interval_bytes, only, on_damage)
            ]
    written: list[Path] = []
    with Stage(target, source) as stage:
        for directory in partitions:
            where = stage.root / directory.name if is_data_directory else stage.root
            durable.make_directories(where)
            written += _reindex_one(directory, where, index_interval_bytes, only, on_damage)
        stage.put_in_place()
    return [target / path.relative_to(stage.root) for path in written]


def _is_torn_end(walk: SegmentWalk) -> bool:
    """Whether what follows the sound batches is one that was cut off, and nothing behind it: no damage to readers."""
    found = walk.damage
    return (
        found is not None
        and found.reason == "CUT_OFF"
        and next_batch(walk.segment, found.position, found.size_bytes) is None
    )


def _base_offset_of(path: Path) -> int | None:
    """The base offset of a segment whose ``.log`` is given; None for a directory."""
    if not stat.S_ISREG(mode_of(path)):
        return None
    parsed = names.parse_segment_file(path.name)
    if parsed is None or (parsed.kind, parsed.stage) != (FileKind.LOG, FileStage.LIVE):
        raise errors.NotAStoreError("not the log of a segment", path=path, expected="20 digits and .log")
    return parsed.offset


def _reindex_one(
    directory: Path, target: Path | None, interval_bytes: int, only: int | None, on_damage: Reporter
) -> list[Path]:
    pool = FilePool()
    written = []
    try:
        stock = take_partition_stock(directory)
        segments = [Segment(directory, base, pool) for base in stock.logs]
        for number, segment in enumerate(segments):
            if only is not None and segment.base_offset != only:
                continue
            states = producers_at(stock, segments[:number], segment.base_offset)
            walk = walk_segment(segment, states, interval_bytes)
            is_torn_end = segment is segments[-1] and _is_torn_end(walk)
            if walk.damage is not None and not is_torn_end and not on_damage(walk.damage):
                raise walk.damage.to_error()
            written += write_derived(walk, target)
        durable.sync_directory(directory if target is None else target)
        return written
    finally:
        pool.close()


def _partitions_of(source: Path) -> tuple[list[Path], bool]:
    if stat.S_ISREG(mode_of(source)):
        hint = "give a data directory or a partition's: what becomes of a segment depends on those before it"
        raise errors.NotAStoreError("a file by itself cannot be recovered", path=source, hint=hint)
    if not stat.S_ISDIR(mode_of(source)):
        raise errors.NotAStoreError("no such directory", path=source, hint="give a data directory or a partition's")
    stock = take_partition_stock(source)
    if names.parse_partition_directory(source.absolute().name) or stock.logs or stock.odd_logs:
        return [source], False
    listed = take_data_directory_stock(source)
    for path in listed.odd.values():
        raise odd_partition_error(path)
    found = list(listed.partitions.values())
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
    target = check_path(output)
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
