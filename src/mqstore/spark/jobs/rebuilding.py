"""Queues and index from the commit log alone, in parallel, byte for byte what a running store would have written."""

from __future__ import annotations

import contextlib
import functools
import os
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from mqstore import errors
from mqstore.files import copying, durable
from mqstore.files.lock import is_locked
from mqstore.files.stage import Stage
from mqstore.files.whole import mode_of
from mqstore.spark.jobs.clock import Clock
from mqstore.spark.jobs.derived import Built, Sharing, TargetStore, build_aside, build_derived, move_in
from mqstore.spark.jobs.log_copies import FileCopy, LogCopy, copy_whole
from mqstore.spark.jobs.log_shares import check_split_bytes, plan_splits
from mqstore.spark.splits import Split, with_hint
from mqstore.spark.stores import StoreRef, one_store
from mqstore.spark.tasks import Progress, cores, run_tasks
from mqstore.store.arguments import check_store_path
from mqstore.store.aside import call_complete, move_aside, put_back
from mqstore.store.config import StoreConfig, given_config
from mqstore.store.engine import put_in_order
from mqstore.store.log_places import given_places, save_places
from mqstore.store.paths import StorePaths
from mqstore.store.rebuild import (
    build_or_put_back,
    check_ways,
    copy_beside_log,
    end_while_running,
    inventory_to_copy,
    settings_kept,
    taken_in_place,
)
from mqstore.store.sizes import in_one_directory
from mqstore.store.view import StoreView

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
    config = given_config(config)
    if config.enable_consume_queue_ext:
        raise errors.UsageError("Spark builds no extension files of queues", hint="mqstore.rebuild does")
    old = one_store(source)
    target = old.root if output is None else check_store_path(output).absolute()

    def build(sharing: Sharing) -> Built:
        if output is None:
            return _rebuild_in_place(spark, old, config, sharing, on_progress)
        return _rebuild_copy(spark, old, target, config, sharing, on_progress, clock)

    sharing = functools.partial(plan_splits, split_bytes=split_bytes, cores=cores(spark))
    try:
        built = _build_trusting(build, sharing, StoreRef(str(old.root), ""))
    except errors.CorruptRecordError as error:
        raise with_hint(error, errors.HINT_SALVAGE) from None
    clock.note("build")
    return _result(target, built, clock)


def _build_trusting(build: Callable[[Sharing], Built], sharing: Callable[..., list[Split]], store: StoreRef) -> Built:
    """Build what the log holds up to where the store's note leads; once more without it if that was no longer its end.

    So it is when a broker has cut the log off in front of that since, and what lay there is still in the file.
    """
    trusting = functools.partial(sharing, trust_note=True)
    try:
        return build(trusting)
    except errors.CorruptRecordError:
        if _share_alike(trusting, sharing, store):
            raise
    return build(sharing)


def _share_alike(one: Sharing, other: Sharing, store: StoreRef) -> bool:
    try:
        return one(store) == other(store)
    except errors.MqstoreError:  # of a log that lies where only the config says
        return False


def _rebuild_in_place(
    spark: SparkSession, store: StorePaths, config: StoreConfig, sharing: Sharing, on_progress: Progress | None
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
                built = build_aside(spark, target, sharing, on_progress)
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
        move_in(target, built)
        if built.ranges is not None:
            call_complete(target.paths)  # a broker may take the store before another removes what lies aside
    except BaseException:
        put_back(target.paths)
        raise


def _rebuild_copy(
    spark: SparkSession,
    source: StorePaths,
    target: Path,
    config: StoreConfig,
    sharing: Sharing,
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
        built = build_derived(spark, new, sharing, on_progress, log)
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
