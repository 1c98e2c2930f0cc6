"""How far behind consumer groups are, and since when: the messages that wait, by the hour they were stored in."""

from __future__ import annotations

import functools
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from mqstore.findings import Finding
from mqstore.spark.jobs.clock import Clock
from mqstore.spark.jobs.outputs import check_page
from mqstore.spark.jobs.report import HOUR_MS, write_lag
from mqstore.spark.option_values import DEFAULT_SPLIT_BYTES
from mqstore.spark.options import OnCorruptRecord, ReadOptions, Source
from mqstore.spark.queue_ranges import KnownQueues, Offsets, Queue
from mqstore.spark.queue_reading import read_queue_split
from mqstore.spark.queue_splits import QueueSplit, plan_queue_splits
from mqstore.spark.splits import SplitPolicy
from mqstore.spark.stores import StoreRef
from mqstore.spark.tasks import Progress, run_tasks
from mqstore.store.arguments import check_texts
from mqstore.store.columns import message_batches
from mqstore.store.log_reader import Chunk
from mqstore.store.view import StoreView

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


GroupOffsets = dict[tuple[str, int], list[tuple[str, int]]]
"""By topic and queue id: groups and the offsets that they have come to."""


class LagRow(NamedTuple):
    """A group in a queue.

    ``lag`` messages wait, the oldest of which was stored at ``oldest_ms`` and the newest at ``newest_ms``; both None
    when none waits, or none of them can be read. ``lag`` and ``max_offset`` are None when the queue does not exist.
    """

    broker_name: str
    group: str
    topic: str
    queue_id: int
    consumer_offset: int
    max_offset: int | None
    lag: int | None
    oldest_ms: int | None
    newest_ms: int | None


class WaitingCount(NamedTuple):
    """Messages stored in the hour that begins at ``begin_ms`` which a group has still to consume."""

    group: str
    topic: str
    begin_ms: int
    messages: int


@dataclass(frozen=True)
class LagResult:
    """Who is behind.

    Attributes:
        rows: by broker, group, topic and queue.
        waiting: by group, topic and hour of storing, without light queues (``%LMQ%``) and others whose messages are
            those of other queues. The sums up to an hour are the lag there would have been at its end, had the group
            stood where it stands now: how the backlog grew.
        seconds: how long it took, without the report.
        stage_seconds: the same by stage: plan, count.
        report: the page that was written.
        warnings: what could not be looked at, so that more may wait: files of the log and of the groups' queues.
    """

    rows: list[LagRow]
    waiting: list[WaitingCount]
    seconds: float
    report: Path | None = None
    stage_seconds: dict[str, float] = field(default_factory=dict)
    warnings: list[Finding] = field(default_factory=list)

    @property
    def lag(self) -> dict[str, int]:
        """Messages behind, by group."""
        totals: dict[str, int] = {}
        for row in self.rows:
            totals[row.group] = totals.get(row.group, 0) + (row.lag or 0)
        return totals


class _Waiting(NamedTuple):
    """What one task found, by broker, group, topic and queue: count by hour, oldest and newest."""

    hours: dict[tuple[str, str, int], int]
    times: dict[tuple[str, str, str, int], tuple[int, int]]


def lag(
    spark: SparkSession,
    source: Source,
    *,
    group: str | None = None,
    topic: str | None = None,
    report: str | os.PathLike[str] | None = None,
    on_progress: Progress | None = None,
) -> LagResult:
    """Tell for every group and queue what waits, and for how long it has. Only what waits is read.

    Args:
        spark: the session; its workers must see ``source``.
        source: a store, a glob or a URL, or several.
        group, topic: only these.
        report: file for a page in HTML with tables and a picture; the picture needs matplotlib.
        on_progress: called with (tasks done, tasks in all).

    Raises:
        UsageError: ``report`` lies in a store, or is no file; a group or topic that is no text.
        MqstoreError: what reading the stores raises. Damage among the messages that wait is passed over with a warning
            in the task's log: they are counted as waiting, and not in an hour.
    """
    clock = Clock()
    check_texts(**{name: value for name, value in {"group": group, "topic": topic}.items() if value is not None})
    options = ReadOptions.of(source)
    rows: list[LagRow] = []
    warnings: list[Finding] = []
    known = KnownQueues(options)
    try:
        page = check_page(report, known.stores)
        for store in known.stores:
            found_rows, overlooked = _rows(store, group, topic)
            rows += found_rows
            warnings += overlooked
        found = known.ranges()
        begins, ends = _ranges(rows, found)
        splits = plan_queue_splits(found, begins, ends, DEFAULT_SPLIT_BYTES, 1)
    finally:
        known.close()
    task = functools.partial(_count_waiting, _offsets(rows))
    clock.note("plan")
    counted = run_tasks(spark, task, splits, on_progress)
    clock.note("count")
    result = _result(rows, counted, clock, page)
    result = replace(result, rows=_with_missing_times(known.stores, result.rows), warnings=warnings)
    if page is not None:
        write_lag(result, options.paths, page)
    return result


def _rows(store: StoreRef, group: str | None, topic: str | None) -> tuple[list[LagRow], list[Finding]]:
    """The groups of a store, without times, and what could not be looked at."""
    with StoreView(store.path) as view:
        rows = [
            LagRow(
                store.broker_name, one.group, one.topic, one.queue_id, one.consumer_offset, one.max_offset, one.lag,
                None, None,
            )
            for one in view.progress()
            if group in (None, one.group) and topic in (None, one.topic)
        ]  # fmt: skip
        overlooked = view.overlooked({(row.topic, row.queue_id) for row in rows})
    return rows, overlooked


def _with_missing_times(stores: Sequence[StoreRef], rows: list[LagRow]) -> list[LagRow]:
    """Times also where messages wait that were not counted: those of light and other further queues.

    They are messages of other queues, which hold them in the order in which they were stored.
    """
    for store in stores:
        missing = [row for row in rows if row.lag and row.oldest_ms is None and row.broker_name == store.broker_name]
        if missing:
            with StoreView(store.path) as view:
                found = {row: _with_ends(view, row) for row in missing}
            rows = [found.get(row, row) for row in rows]
    return rows


def _with_ends(view: StoreView, row: LagRow) -> LagRow:
    """The times of the first and of the last message that wait, as far as they can be read."""
    last = (row.max_offset or 1) - 1
    units = [next(view.units(row.topic, row.queue_id, begin), None) for begin in (row.consumer_offset, last)]
    records = [None if unit is None else view.message_at(unit.physical_offset) for unit in units]
    oldest, newest = (None if record is None else record.store_timestamp_ms for record in records)
    return row._replace(oldest_ms=oldest, newest_ms=newest)


def _ranges(rows: list[LagRow], found: Any) -> tuple[Offsets, Offsets]:
    """What has to be read of each queue: from the group that is furthest behind to the end."""
    begins: Offsets = {}
    ends: Offsets = {}
    for row in rows:
        queue = Queue(row.topic, row.broker_name, row.queue_id)
        if row.lag and queue in found:
            begin, end = max(row.consumer_offset, found[queue].begin), found[queue].end
            if begin < end:
                begins[queue] = min(begin, begins.get(queue, begin))
                ends[queue] = end
    return begins, ends


def _offsets(rows: list[LagRow]) -> dict[str, GroupOffsets]:
    """By broker."""
    found: dict[str, GroupOffsets] = {}
    for row in rows:
        if row.lag:
            groups = found.setdefault(row.broker_name, {}).setdefault((row.topic, row.queue_id), [])
            groups.append((row.group, row.consumer_offset))
    return found


def _count_waiting(offsets: dict[str, GroupOffsets], split: QueueSplit) -> _Waiting:
    """Runs in a task. All queues are read in one go, as their messages lie among each other in the log."""
    broker = split.store.broker_name
    hours: Counter[tuple[str, str, int]] = Counter()
    times: dict[tuple[str, str, str, int], tuple[int, int]] = {}
    policy = SplitPolicy(OnCorruptRecord.SKIP, check_crc=False, fail_on_data_loss=False)
    for chunk in read_queue_split(split, policy):
        places = np.frombuffer(chunk.columns.queue_offset, np.int64)
        stored_ms = np.frombuffer(chunk.columns.store_timestamp_ms, np.int64)
        for (topic, queue_id), rows in _by_queue(chunk):
            for group, offset in offsets[broker][topic, queue_id]:
                waiting = stored_ms[rows][places[rows] >= offset]
                if not len(waiting):
                    continue
                begins, counts = np.unique(waiting - waiting % HOUR_MS, return_counts=True)
                for begin, count in zip(begins.tolist(), counts.tolist(), strict=True):
                    hours[group, topic, begin] += count
                key = (broker, group, topic, queue_id)
                low, high = times.get(key, (1 << 62, 0))
                times[key] = min(low, int(waiting.min())), max(high, int(waiting.max()))
    return _Waiting(dict(hours), times)


def _by_queue(chunk: Chunk) -> Iterator[tuple[tuple[str, int], Any]]:
    """The queues that the records of ``chunk`` are of, with the numbers of their rows."""
    batches = message_batches(chunk, ["topic"], "")
    topics = pa.concat_arrays([batch["topic"] for batch in batches]).dictionary_encode()
    ids = np.frombuffer(chunk.columns.queue_id, np.int32)
    codes = topics.indices.to_numpy(zero_copy_only=False).astype(np.int64) << 32 | ids.view(np.uint32)
    order = np.argsort(codes, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1):
        first = int(rows[0])
        yield (topics[first].as_py(), int(ids[first])), rows


def _result(rows: list[LagRow], counted: list[_Waiting], clock: Clock, report: Path | None) -> LagResult:
    hours: Counter[tuple[str, str, int]] = Counter()
    times: dict[tuple[str, str, str, int], tuple[int, int]] = {}
    for one in counted:
        hours.update(one.hours)
        for key, (low, high) in one.times.items():
            known = times.get(key, (low, high))
            times[key] = min(known[0], low), max(known[1], high)
    full = []
    for row in rows:
        key = (row.broker_name, row.group, row.topic, row.queue_id)
        oldest, newest = times.get(key, (None, None))
        full.append(row._replace(oldest_ms=oldest, newest_ms=newest))
    waiting = [WaitingCount(*key, messages) for key, messages in sorted(hours.items())]
    return LagResult(sorted(full, key=lambda row: row[:4]), waiting, clock.seconds, report, clock.stages)
