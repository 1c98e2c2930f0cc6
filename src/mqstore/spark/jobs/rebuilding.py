"""Queues and index from the commit log alone, in parallel, byte for byte what a running store would have written.

Every queue unit has one place, so each task writes the units of its split straight to it, and doing it twice changes
nothing. The index depends on the order of the log: the same tasks take the keys along into files of their own, and how
many there are tells where each index file begins; then each is filled by one task from those. So the log is gone
through once. A log whose queues have gaps, or that gives one queue offset twice, is left to the store itself, which
goes through it in order.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from mqstore import errors
from mqstore.files import copying, durable
from mqstore.files.lock import is_locked
from mqstore.files.stage import Stage
from mqstore.files.whole import mode_of
from mqstore.layout import index as index_layout
from mqstore.layout.delay import DEFAULT_DELAY_LEVELS
from mqstore.spark.jobs import index_files, queue_files
from mqstore.spark.jobs.clock import Clock
from mqstore.spark.jobs.log_copies import FileCopy, LogCopy, copy_whole, do_part
from mqstore.spark.jobs.log_shares import check_split_bytes, plan_splits
from mqstore.spark.jobs.queue_files import SplitUnits
from mqstore.spark.splits import Split, open_log, with_hint
from mqstore.spark.stores import StoreRef, one_store
from mqstore.spark.tasks import Progress, cores, run_tasks
from mqstore.store import checkpoint as notes
from mqstore.store.arguments import check_store_path
from mqstore.store.aside import call_complete, move_aside, put_back
from mqstore.store.checkpoint import DispatchCheckpoint, FileSizes
from mqstore.store.config import StoreConfig
from mqstore.store.dispatch import Dispatched
from mqstore.store.engine import put_in_order
from mqstore.store.log_places import given_places, save_places
from mqstore.store.multi_dispatch import MultiDispatch, resolve_multi_dispatch
from mqstore.store.paths import StorePaths
from mqstore.store.rebuild import (
    as_it_is,
    build_or_put_back,
    check_ways,
    copy_beside_log,
    end_while_running,
    inventory_to_copy,
    settings_kept,
    taken_in_place,
)
from mqstore.store.sizes import in_one_directory, sizes_in
from mqstore.store.view import StoreView

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

Plan = Callable[[StoreRef], list[Split]]
"""How a log is shared out among tasks."""


@dataclass(frozen=True)
class RebuildResult:
    """What a rebuild made.

    Attributes:
        output: the store that has them.
        records, log_bytes: what its log holds.
        queues, units: what its queues hold.
        keys, index_files: what its index holds.
        seconds: how long it took.
        in_order: True when the log was irregular, so that it had to be gone through in order on the driver.
        stage_seconds: by stage: copy, unless in place, and build, whose tasks copy the log if they can.
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


class TargetStore(NamedTuple):
    """The store whose queues and index are made: a new one under another name until it is complete, or one in place.

    Attributes:
        paths: where it lies.
        scratch: where tasks write. Attempts that Spark has given up may go on for a while. They make no file that the
            store would get by that; to files of queues that it has got they write the same bytes again.
        config: the shape of its files, and the rest; nothing of that is left open.
    """

    paths: StorePaths
    scratch: Path
    config: StoreConfig

    @classmethod
    def of(cls, paths: StorePaths, scratch: Path, config: StoreConfig, source: StorePaths | None = None) -> TargetStore:
        """A store with what ``config`` says, and what it leaves open as in ``source``, or as the store has it."""
        known = paths if source is None else source
        multi = resolve_multi_dispatch(known, config.enable_multi_dispatch, config.enable_lmq)
        config = replace(as_it_is(known, config), enable_multi_dispatch=multi.enabled, enable_lmq=multi.lmq)
        return cls(paths, scratch, config)

    @property
    def sizes(self) -> FileSizes:
        """The shape of its files."""
        return sizes_in(self.config)

    @property
    def store(self) -> StoreRef:
        """The same for those who read it."""
        return StoreRef(str(self.paths.root), "")


def rebuild(
    spark: SparkSession,
    source: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    in_place: bool = False,
    split_bytes: int | None = None,
    config: StoreConfig | None = None,
    on_progress: Progress | None = None,
) -> RebuildResult:
    """Build the queues and the index of ``source`` from its log, in a new store or in place.

    Args:
        spark: the session; its workers must see both paths.
        source: a store; untouched unless ``in_place``. A running one is copied as it is at the moment.
        output: the new store's directory, which must not exist or be empty.
        in_place: change ``source`` itself; give no ``output`` then. It is locked meanwhile, its log is not copied, and
            the new queues and index take the place of the old ones when they are complete.
        split_bytes: how much of the log one task takes; left out, 64 MiB to 1 GiB, by the log and the cores.
        config: file sizes, where they are not those of ``source``, and the delay levels.
        on_progress: called with (tasks done, tasks in all) while queues are built, which is most of the work.

    Raises:
        UsageError: both or neither of ``output`` and ``in_place``, ``output`` is in use, or ``config`` asks for
            extension files, or a store to be changed in place has some.
        StoreLockedError: ``source`` is running, and to be changed in place.
        CorruptRecordError, CorruptFileError: damage in the log; :func:`mqstore.store.rebuild.rebuild` can pass over it.
        NotAStoreError, StoreIOError, DiskFullError.
    """
    clock = Clock()
    check_split_bytes(split_bytes)
    check_ways(output, in_place)
    config = config or StoreConfig()
    if config.enable_consume_queue_ext:
        raise errors.UsageError("Spark builds no extension files of queues", hint="mqstore.rebuild does")
    old = one_store(source)
    target = old.root if output is None else check_store_path(output).absolute()

    def build(plan: Plan) -> Built:
        if output is None:
            return _rebuild_in_place(spark, old, config, plan, on_progress)
        return _rebuild_copy(spark, old, target, config, plan, on_progress, clock)

    plan = functools.partial(plan_splits, split_bytes=split_bytes, cores=cores(spark))
    try:
        built = _build_trusting(build, plan, StoreRef(str(old.root), ""))
    except errors.CorruptRecordError as error:
        raise with_hint(error, errors.HINT_SALVAGE) from None
    clock.note("build")
    return _result(target, built, clock)


def _build_trusting(build: Callable[[Plan], Built], plan: Callable[..., list[Split]], store: StoreRef) -> Built:
    """Build what the log holds up to where the store's note leads; once more without it if that was no longer its end.

    So it is when a broker has cut the log off in front of that since, and what lay there is still in the file.
    """
    trusting = functools.partial(plan, trust_note=True)
    try:
        return build(trusting)
    except errors.CorruptRecordError:
        if _is_same_plan(trusting, plan, store):
            raise
    return build(plan)


def _is_same_plan(one: Plan, other: Plan, store: StoreRef) -> bool:
    try:
        return one(store) == other(store)
    except errors.MqstoreError:  # of a log that lies where only the config says
        return False


class Built(NamedTuple):
    """Queues and index that wait to be put into a store.

    Attributes:
        paths: where they lie.
        found: what each split of the log holds.
        ranges: the offsets that each queue has; None when the log must be gone through in order, by the store itself.
        index_names: the index files, oldest first.
        left_out: messages that are in no queue, as the queues or places that their records claim cannot be.
    """

    paths: StorePaths
    found: list[SplitUnits]
    ranges: queue_files.QueueRanges | None
    index_names: list[str]
    left_out: int

    def and_left_out(self, count: int) -> Built:
        """The same, with so many more messages left out: of a log whose queues are built, what comes behind them."""
        return self._replace(left_out=self.left_out + count)


def build_derived(
    spark: SparkSession,
    target: TargetStore,
    plan: Plan | None = None,
    on_progress: Progress | None = None,
    log: LogCopy | None = None,
) -> Built:
    """Build queues and index of a store that has its log alone, or gets it by that; and close it as a broker would."""
    plan = plan or functools.partial(plan_splits, cores=cores(spark))
    built = _build(spark, target, plan, on_progress, log)
    _put(target, built)
    return built.and_left_out(put_in_order(target.paths.root, target.config))


def _rebuild_in_place(
    spark: SparkSession, store: StorePaths, config: StoreConfig, plan: Plan, on_progress: Progress | None
) -> Built:
    """The same in a store that has queues and index, which stay until the new ones are complete."""
    places = given_places(store.root, config.store_path_commit_log, config.read_only_commit_log_store_paths)
    store = StorePaths(store.root, places)
    with taken_in_place(store):
        if mode_of(store.consume_queue_ext):
            raise errors.UsageError(
                "Spark builds no extension files of queues, and these would go", path=store.consume_queue_ext,
                hint="mqstore.rebuild, with enable_consume_queue_ext in its config; or give an output",
            )  # fmt: skip
        # An attempt that a killed job left behind must not write to what this one makes.
        scratch = store.rebuild_scratch / uuid.uuid4().hex
        copying.remove_tree(store.rebuild_scratch)
        try:
            with settings_kept(store):
                if places is not None:
                    save_places(store.root, places)  # tasks know the store by its path alone
                target = TargetStore.of(store, scratch, config)
                durable.make_directories(scratch)
                built = _build(spark, target, plan, on_progress)
                _replace(target, built)
            if built.ranges is None:
                _drop_scratch(store)  # else it goes with the old ones, side by side
        except BaseException:
            _drop_scratch(store)
            raise
    if built.ranges is None:
        return built.and_left_out(build_or_put_back(store, target.config, on_progress))
    with contextlib.suppress(errors.StoreLockedError):  # a writer that came in between does the same
        return built.and_left_out(put_in_order(store.root, target.config))
    return built


def _drop_scratch(store: StorePaths) -> None:
    with contextlib.suppress(errors.StoreIOError):  # late attempts still write to it: the next start removes it
        copying.remove_tree(store.rebuild_scratch)


def _replace(target: TargetStore, built: Built) -> None:
    """Put what was built into a locked store in place of what it has, or nothing if that fails."""
    if mode_of(target.paths.abort):  # of a store that died, progress may claim more than its log holds
        durable.replace_file(target.paths.progress_in_doubt, b"")
    try:
        move_aside(target.paths)
        _put(target, built)
        if built.ranges is not None:
            call_complete(target.paths)  # a broker may take the store before another removes what lies aside
    except BaseException:
        put_back(target.paths)
        raise


def _build(
    spark: SparkSession,
    target: TargetStore,
    plan: Plan,
    on_progress: Progress | None,
    log: LogCopy | None = None,
) -> Built:
    """Build queues and index in the scratch directory."""
    config = target.config
    log = log or LogCopy(target.store)
    splits = plan(log.store)
    paths = StorePaths(target.scratch / "built")
    durable.make_directories(paths.root)
    keys = target.scratch if config.message_index_enable else None
    multi = MultiDispatch(bool(config.enable_multi_dispatch), bool(config.enable_lmq))
    levels = config.message_delay_level or DEFAULT_DELAY_LEVELS
    work = queue_files.Work(paths.root, target.sizes.consume_queue, queue_files.Kinds(levels, multi), keys)
    joined = queue_files.JoinedRanges()
    build = functools.partial(queue_files.build_units, work)
    do = functools.partial(do_part, build, target.scratch)
    found = run_tasks(spark, do, log.begin(splits), on_progress, joined.take)
    log.end()
    if joined.irregular:
        _log.warning("%s: queues with gaps or doubles, going through the log in order", target.paths.root)
        return Built(paths, found, None, [], 0)
    queue_files.fill_fronts(paths, target.sizes.consume_queue, joined.ranges)
    if joined.ranges:
        queue_files.sync_names(paths, joined.ranges)
    index_names = _build_index(spark, target, paths, found)
    return Built(paths, found, joined.ranges, index_names, sum(one.left_out for one in found))


def _put(target: TargetStore, built: Built) -> None:
    """Move what was built into a store that has none; nothing when the store itself must build it."""
    if built.ranges is None:
        return
    if built.ranges:
        durable.rename(built.paths.consume_queue, target.paths.consume_queue)
    if built.index_names:
        durable.rename(built.paths.index, target.paths.index)
    durable.sync_directory(target.paths.root)
    _note(target, built, built.ranges)


def _rebuild_copy(
    spark: SparkSession,
    source: StorePaths,
    target: Path,
    config: StoreConfig,
    plan: Plan,
    on_progress: Progress | None,
    clock: Clock,
) -> Built:
    places = given_places(source.root, config.store_path_commit_log, config.read_only_commit_log_store_paths)
    source = StorePaths(source.root, places)
    with Stage(target, source.root, {source.commit_log.name: source.commit_logs}) as stage:
        new, copies = _begin(source, stage, config)
        log = LogCopy(StoreRef(str(source.root), ""), copies)
        if places is not None or is_locked(source.lock):
            # Tasks know a store by its path alone, and a copy of a running one ends where that did.
            run_tasks(spark, functools.partial(copy_whole, stage.scratch()), copies)
            log.end()
            log = LogCopy(new.store)
        clock.note("copy")
        built = build_derived(spark, new, plan, on_progress, log)
        stage.put_in_place()
    return built


def _begin(source: StorePaths, stage: Stage, config: StoreConfig) -> tuple[TargetStore, list[FileCopy]]:
    """Copy the settings; and the files of the log, which are still to be copied."""
    paths = StorePaths(stage.root)
    durable.make_directories(paths.commit_log)
    end = end_while_running(source)
    inventory = inventory_to_copy(source)
    copies = [
        FileCopy(entry.path, paths.commit_log / entry.path.name, entry.start, inventory.size_bytes, end)
        for entry in inventory.entries
        if end is None or entry.start < end
    ]
    copy_beside_log(source, paths)
    return TargetStore.of(paths, stage.scratch(), in_one_directory(config), source), copies


def _build_index(spark: SparkSession, target: TargetStore, paths: StorePaths, found: list[SplitUnits]) -> list[str]:
    """Build the index files of ``paths``; their names, oldest first."""
    if not target.config.message_index_enable:
        return []
    log = open_log(target.store)
    try:
        plans = index_files.plan_files(log, found, target.sizes.index.max_entries - 1)
    finally:
        log.close()
    if not plans:
        return []
    durable.make_directories(paths.index)
    work = index_files.Work(paths.index, target.scratch, target.sizes.index)
    return index_files.name_files(work, run_tasks(spark, functools.partial(index_files.build_file, work), plans))


def _note(target: TargetStore, built: Built, ranges: queue_files.QueueRanges) -> None:
    """Tell the store that its derived files are complete, so that opening it finds nothing to do."""
    filled = [one for one in built.found if one.records]
    if not filled:
        return
    paths, names = target.paths, built.index_names
    headers = [_index_header(paths.index / name) for name in names[-2:]]
    moment = Dispatched(
        filled[-1].end_offset,
        filled[-1].last_record_offset,
        max(one.last_timestamp_ms for one in filled),
        ranges,
        names[-1] if names else None,
        headers[-1].index_count if headers else 1,
    )
    log = open_log(target.store)
    try:
        record = log.record_at(filled[-1].last_record_offset)
    finally:
        log.close()
    if len(headers) > 1:
        known = notes.checkpoint_or_zeros(paths.checkpoint)
        notes.save_checkpoint(paths.checkpoint, known._replace(index_msg_timestamp_ms=headers[0].end_timestamp_ms))
    durable.replace_file(paths.dispatch_checkpoint, DispatchCheckpoint.of(moment, record, target.sizes).to_json())


def _index_header(path: Path) -> index_layout.IndexHeader:
    with path.open("rb") as file:
        return index_layout.decode_header(file.read(index_layout.INDEX_HEADER.size))


def _result(target: Path, built: Built, clock: Clock) -> RebuildResult:
    with StoreView(target) as view:
        if ends := [one.end_offset for one in built.found if one.records]:
            view.log.trust_to(ends[-1])
        queues = view.queues()
        files = view.index_files()
        keys = sum(file.header.index_count - 1 for file in files)
        log_bytes = view.log_end - view.min_physical_offset
    return RebuildResult(
        target,
        sum(one.records for one in built.found),
        log_bytes,
        len(queues),
        sum(queue.count for queue in queues),
        keys,
        len(files),
        clock.seconds,
        built.ranges is None,
        clock.stages,
        built.left_out,
    )
