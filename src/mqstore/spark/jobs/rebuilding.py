"""Queues and index from the commit log alone, in parallel, byte for byte what a running store would have written.

Every queue unit has one place, so each task writes the units of its split straight to it, and doing it twice changes
nothing. The index depends on the order of the log: the same tasks take the keys along into files of their own, and how
many there are tells where each index file begins; then each is filled by one task from those. So the log is gone
through once. A log whose queues have gaps, or that gives one queue offset twice, is left to the store itself, which
goes through it in order.
"""

from __future__ import annotations

import functools
import logging
import os
import uuid
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from mqstore import errors
from mqstore.files import copying, durable
from mqstore.files.stage import Stage
from mqstore.layout import index as index_layout
from mqstore.spark.jobs import index_files, queue_files
from mqstore.spark.jobs.queue_files import SplitUnits
from mqstore.spark.jobs.tasks import Clock, Progress, run_tasks
from mqstore.spark.option_values import DEFAULT_SPLIT_BYTES
from mqstore.spark.splits import open_log, plan_splits, with_hint
from mqstore.spark.stores import StoreRef
from mqstore.store import checkpoint as notes
from mqstore.store.arguments import check_store_path
from mqstore.store.checkpoint import DispatchCheckpoint, FileSizes
from mqstore.store.config import StoreConfig
from mqstore.store.delay_levels import delay_levels_of
from mqstore.store.dispatch import Dispatched
from mqstore.store.engine import put_in_order
from mqstore.store.log_places import given_places
from mqstore.store.paths import StorePaths
from mqstore.store.rebuild import copy_beside_log, inventory_to_copy
from mqstore.store.sizes import in_one_directory, resolve_sizes, with_sizes
from mqstore.store.view import StoreView, check_is_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RebuildResult:
    """What a rebuild made.

    Attributes:
        output: the new store.
        records, log_bytes: what its log holds.
        queues, units: what its queues hold.
        keys, index_files: what its index holds.
        seconds: how long it took.
        in_order: True when the log was irregular, so that it had to be gone through in order on the driver.
        stage_seconds: by stage: copy, build.
        left_out: messages of the log that are in no queue, as their records claim queues or places that cannot be.
    """

    output: Path
    records: int
    log_bytes: int
    queues: int
    units: int
    keys: int
    index_files: int
    seconds: float
    in_order: bool = False
    stage_seconds: dict[str, float] = field(default_factory=dict)
    left_out: int = 0


class NewStore(NamedTuple):
    """The store being made, under another name until it is complete.

    Attributes:
        paths: where it lies.
        scratch: where an attempt writes what counts when it is finished. Attempts that Spark has given up may go on
            for a while, so that nothing of theirs may lie in the store.
        sizes, config: the shape of its files, and the rest.
    """

    paths: StorePaths
    scratch: Path
    sizes: FileSizes
    config: StoreConfig

    @property
    def store(self) -> StoreRef:
        """The same for those who read it."""
        return StoreRef(str(self.paths.root), "")


def rebuild(
    spark: SparkSession,
    source: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    split_bytes: int = DEFAULT_SPLIT_BYTES,
    config: StoreConfig | None = None,
    on_progress: Progress | None = None,
) -> RebuildResult:
    """Make a new store of the commit log and the settings of ``source``, with queues and index built from the log.

    Args:
        spark: the session; its workers must see both paths.
        source: a store; untouched. Of a running one, what it holds at the moment.
        output: the new store's directory, which must not exist or be empty.
        split_bytes: how much of the log one task takes.
        config: file sizes, where they are not those of ``source``, and the delay levels.
        on_progress: called with (tasks done, tasks in all) while queues are built, which is most of the work.

    Raises:
        UsageError: ``output`` is in use.
        CorruptRecordError, CorruptFileError: damage in the log; :func:`mqstore.store.rebuild.rebuild` can pass over it.
        NotAStoreError, StoreIOError, DiskFullError.
    """
    clock = Clock()
    if split_bytes < 1:
        raise errors.UsageError("split_bytes is below 1", found=split_bytes)
    old = StorePaths(check_store_path(source).absolute())
    target = check_store_path(output).absolute()
    check_is_store(old)
    with Stage(target, old.root) as stage:
        new = _begin(spark, old, stage, config or StoreConfig())
        clock.note("copy")
        try:
            found, in_order, left_out = build_derived(spark, new, split_bytes, on_progress)
        except errors.CorruptRecordError as error:
            raise with_hint(error, errors.HINT_SALVAGE) from None
        stage.put_in_place()
    clock.note("build")
    return replace(_result(target, found, clock, in_order), left_out=left_out)


def build_derived(
    spark: SparkSession, stage: NewStore, split_bytes: int, on_progress: Progress | None = None
) -> tuple[list[SplitUnits], bool, int]:
    """Build queues and index of a store that has its log alone, and close it as a broker would.

    Returns what each split of the log holds, whether the log had to be gone through in order on the driver, and how
    many messages are in no queue, as their records claim queues or places that cannot be.
    """
    splits = plan_splits(stage.store, split_bytes)
    queues = StorePaths(stage.scratch / "queues")
    levels = delay_levels_of(stage.paths, stage.config.message_delay_level)
    keys = stage.scratch if stage.config.message_index_enable else None
    work = queue_files.Work(queues.root, stage.sizes.consume_queue, levels, keys)
    found = run_tasks(spark, functools.partial(queue_files.build_units, work), splits, on_progress)
    ranges = queue_files.join_ranges(found)
    if ranges is None:
        _log.warning("%s: queues with gaps or doubles, going through the log in order", stage.paths.root)
    else:
        if ranges:
            durable.rename(queues.consume_queue, stage.paths.consume_queue)
            durable.sync_directory(stage.paths.root)
        queue_files.fill_fronts(stage.paths, stage.sizes.consume_queue, ranges)
        names = _build_index(spark, stage, found)
        _note(stage, found, ranges, names)
    left_out = put_in_order(stage.paths.root, stage.config)  # of a log whose queues are built, what comes behind them
    if ranges is not None:
        left_out += sum(one.left_out for one in found)
    return found, ranges is None, left_out


def _begin(spark: SparkSession, source: StorePaths, stage: Stage, config: StoreConfig) -> NewStore:
    """Copy log and settings, the log's files side by side."""
    source = StorePaths(
        source.root, given_places(source.root, config.store_path_commit_log, config.read_only_commit_log_store_paths)
    )
    config = in_one_directory(config)
    sizes = resolve_sizes(source, config)
    paths = StorePaths(stage.root)
    durable.make_directories(paths.commit_log)
    pairs = [(entry.path, paths.commit_log / entry.path.name) for entry in inventory_to_copy(source).entries]
    run_tasks(spark, functools.partial(_copy, stage.scratch()), pairs)
    durable.sync_directory(paths.commit_log)
    copy_beside_log(source, paths)
    levels = delay_levels_of(source, config.message_delay_level)
    return NewStore(paths, stage.scratch(), sizes, replace(with_sizes(config, sizes), message_delay_level=levels))


def _copy(scratch: Path, pair: tuple[Path, Path]) -> None:
    """Runs in a task: copy a file under a name of the attempt's own first, so that running twice does no harm."""
    source, target = pair
    own = scratch / f"{target.name}-{uuid.uuid4().hex}"
    copying.copy_file(source, own)
    os.replace(own, target)


def _build_index(spark: SparkSession, stage: NewStore, found: list[SplitUnits]) -> list[str]:
    """Build the index files; their names, oldest first."""
    if not stage.config.message_index_enable:
        return []
    log = open_log(stage.store)
    try:
        plans = index_files.plan_files(log, found, stage.sizes.index.max_entries - 1)
    finally:
        log.close()
    if not plans:
        return []
    durable.make_directories(stage.paths.index)
    work = index_files.Work(stage.paths.index, stage.scratch, stage.sizes.index)
    return index_files.name_files(work, run_tasks(spark, functools.partial(index_files.build_file, work), plans))


def _note(
    stage: NewStore,
    found: list[SplitUnits],
    ranges: dict[tuple[str, int], tuple[int, int]],
    names: list[str],
) -> None:
    """Tell the store that its derived files are complete, so that opening it finds nothing to do."""
    if not any(one.records for one in found):
        return
    last = [one for one in found if one.records][-1]
    index_count = 1
    if names:
        with (stage.paths.index / names[-1]).open("rb") as file:
            index_count = index_layout.decode_header(file.read(index_layout.INDEX_HEADER.size)).index_count
    moment = Dispatched(
        last.end_offset,
        last.last_record_offset,
        max(one.last_timestamp_ms for one in found),
        ranges,
        names[-1] if names else None,
        index_count,
    )
    log = open_log(stage.store)
    record = log.record_at(last.last_record_offset)
    log.close()
    note = DispatchCheckpoint.of(moment, record, stage.sizes)
    durable.replace_file(stage.paths.dispatch_checkpoint, note.to_json())
    if len(names) > 1:
        with (stage.paths.index / names[-2]).open("rb") as file:
            end_ms = index_layout.decode_header(file.read(index_layout.INDEX_HEADER.size)).end_timestamp_ms
        known = notes.load_checkpoint(stage.paths.checkpoint)
        notes.save_checkpoint(stage.paths.checkpoint, known._replace(index_msg_timestamp_ms=end_ms))


def _result(target: Path, found: list[SplitUnits], clock: Clock, in_order: bool) -> RebuildResult:
    with StoreView(target) as view:
        if ends := [one.end_offset for one in found if one.records]:
            view.log.trust_to(ends[-1])
        queues = view.queues()
        files = view.index_files()
        keys = sum(file.header.index_count - 1 for file in files)
        log_bytes = view.log_end - view.min_physical_offset
    return RebuildResult(
        target,
        sum(one.records for one in found),
        log_bytes,
        len(queues),
        sum(queue.count for queue in queues),
        keys,
        len(files),
        clock.seconds,
        in_order,
        clock.stages,
    )
