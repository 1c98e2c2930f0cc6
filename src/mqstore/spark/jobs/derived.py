"""Queues and index of a store that has its log alone, built by tasks.

Every queue unit has one place, so each task writes the units of its split straight to it, and doing it twice changes
nothing. The index depends on the order of the log: the same tasks take the keys along into files of their own, and how
many there are tells where each index file begins; then each is filled by one task from those. So the log is gone
through once. A log whose queues have gaps, or that gives one queue offset twice, is left to the store itself, which
goes through it in order.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from mqstore.files import durable
from mqstore.layout import index as index_layout
from mqstore.layout.delay import DEFAULT_DELAY_LEVELS
from mqstore.spark.jobs import index_files, queue_files
from mqstore.spark.jobs.log_copies import LogCopy, do_part
from mqstore.spark.jobs.log_shares import plan_splits
from mqstore.spark.jobs.queue_files import SplitUnits
from mqstore.spark.splits import Split, open_log
from mqstore.spark.stores import StoreRef
from mqstore.spark.tasks import Progress, cores, run_tasks
from mqstore.store import checkpoint as notes
from mqstore.store.checkpoint import DispatchCheckpoint, FileSizes
from mqstore.store.config import StoreConfig
from mqstore.store.dispatch import Dispatched
from mqstore.store.engine import put_in_order
from mqstore.store.multi_dispatch import MultiDispatch, resolve_multi_dispatch
from mqstore.store.paths import StorePaths
from mqstore.store.rebuild import as_it_is
from mqstore.store.sizes import sizes_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

Sharing = Callable[[StoreRef], list[Split]]
"""How a log is shared out among tasks."""


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
    sharing: Sharing | None = None,
    on_progress: Progress | None = None,
    log: LogCopy | None = None,
) -> Built:
    """Build queues and index of a store that has its log alone, or gets it by that; and close it as a broker would."""
    sharing = sharing or functools.partial(plan_splits, cores=cores(spark))
    built = build_aside(spark, target, sharing, on_progress, log)
    move_in(target, built)
    return built.and_left_out(put_in_order(target.paths.root, target.config))


def build_aside(
    spark: SparkSession,
    target: TargetStore,
    sharing: Sharing,
    on_progress: Progress | None,
    log: LogCopy | None = None,
) -> Built:
    """Build queues and index in the scratch directory."""
    config = target.config
    log = log or LogCopy(target.store)
    splits = sharing(log.store)
    paths = StorePaths(target.scratch / "built")
    durable.make_directories(paths.root)
    keys = target.scratch if config.message_index_enable else None
    multi = MultiDispatch(bool(config.enable_multi_dispatch), bool(config.enable_lmq))
    levels = config.message_delay_level or DEFAULT_DELAY_LEVELS
    work = queue_files.QueueWork(paths.root, target.sizes.consume_queue, queue_files.Kinds(levels, multi), keys)
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


def move_in(target: TargetStore, built: Built) -> None:
    """Move what was built into a store that has none; nothing when the store itself must build it."""
    if built.ranges is None:
        return
    if built.ranges:
        durable.rename(built.paths.consume_queue, target.paths.consume_queue)
    if built.index_names:
        durable.rename(built.paths.index, target.paths.index)
    durable.sync_directory(target.paths.root)
    _note(target, built, built.ranges)


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
    work = index_files.IndexWork(paths.index, target.scratch, target.sizes.index)
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
