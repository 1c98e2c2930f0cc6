"""A table of messages into a new store, every task writing its own range of the commit log.

First Spark sorts the messages and puts them aside in Parquet files, so that from there on their order is fixed. Tasks
measure the records of each file; from the sizes follows where every record lies, which queue offset it has and where a
log file ends with a blank record, as in a store that took the messages one by one. Then each task writes its messages
to their places. A task that runs twice writes the same bytes to the same places.
"""

from __future__ import annotations

import itertools
import logging
import os
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from mqstore import errors, kernels
from mqstore.files import copying, durable
from mqstore.files.stage import Stage
from mqstore.layout.constants import BLANK_SIZE, LONG_MAX
from mqstore.layout.delay import DEFAULT_DELAY_LEVELS, parse_delay_levels
from mqstore.layout.queue_unit import QueueKey
from mqstore.layout.record import encode_blank
from mqstore.spark.jobs.clock import Clock
from mqstore.spark.jobs.derived import TargetStore, build_derived
from mqstore.spark.jobs.load_input import BODY_BYTES, in_order, store_time_of
from mqstore.spark.message_rows import message_of
from mqstore.spark.tasks import Progress, run_tasks, watched
from mqstore.spark.telling import refusing
from mqstore.store.arguments import check_store_path, check_whole
from mqstore.store.commit_log import Pending
from mqstore.store.config import StoreConfig, given_config
from mqstore.store.paths import StorePaths
from mqstore.store.settings import Settings
from mqstore.store.writer import prepare

if TYPE_CHECKING:
    import numpy.typing as npt
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger(__name__)

_ROWS_AT_A_TIME: Final = 1024
_BUFFER_BYTES: Final = 4 << 20
_READ_BUFFER_BYTES: Final = 1 << 20
_SMALL_PAGES: Final = {
    f"parquet.{what}.size.row.check.{bound}": rows
    for what in ("page", "block")
    for bound, rows in (("min", "1"), ("max", "16"))
}
"""Spark's writer looks at the size of a page after a hundred rows, and then after as many as it expects to fit, up to
ten thousand; these are 100 MiB and more where each is large."""


@dataclass(frozen=True)
class LoadResult:
    """What a load made.

    Attributes:
        output: the new store.
        records, log_bytes: what its log holds.
        units, keys: what its queues and its index hold.
        seconds: how long it took.
        stage_seconds: the same by stage: sort, measure, write, derive.
    """

    output: Path
    records: int
    log_bytes: int
    units: int
    keys: int
    seconds: float
    stage_seconds: dict[str, float] = field(default_factory=dict)


def load(
    spark: SparkSession,
    frame: DataFrame,
    output: str | os.PathLike[str],
    *,
    config: StoreConfig | None = None,
    store_timestamp_ms: int | None = None,
    on_progress: Progress | None = None,
) -> LoadResult:
    """Make a new store of a table of messages.

    Args:
        spark: the session; its workers must see ``output`` under the same path.
        frame: columns ``topic`` and ``body``, and any of ``tags``, ``keys``, ``properties`` (map), ``delayLevel``,
            ``queueId``, ``bornTimestamp`` and ``storeTimestamp``. Messages are stored in the order of their times.
        output: the new store's directory, which must not exist or be empty.
        config: file sizes, limits, delay levels, and the number of queues that topics get.
        store_timestamp_ms: store time of messages when ``frame`` does not say it; None is now. With the same time and
            rows the store has the same bytes, however the rows are spread over partitions.
        on_progress: called with (tasks done, tasks in all) of each stage in turn: the table is sorted, measured,
            written, and queues and index are built.

    Raises:
        UsageError: a column that a message does not have, or that is missing; ``output`` is in use; no store time.
        MessageIllegalError: a message that a store would not take.
        StoreIOError, DiskFullError.
    """
    clock = Clock()
    target = check_store_path(output).absolute()
    config = given_config(config)
    stored_ms = time.time_ns() // 1_000_000 if store_timestamp_ms is None else store_timestamp_ms
    check_whole("store_timestamp_ms", stored_ms, 1, LONG_MAX)
    with refusing("Spark cannot take the table"):
        rows = in_order(frame, stored_ms)
    with Stage(target) as stage:
        new = _new_store(stage, config)
        spool = new.scratch / "sorted"
        with watched(spark, None, on_progress), refusing("a value of the table cannot be meant"):
            rows.write.options(**_SMALL_PAGES).parquet(str(spool))
        clock.note("sort")
        measured = _measure(spark, new, spool, on_progress)
        clock.note("measure")
        log_bytes = _write(spark, new, measured, on_progress)
        clock.note("write")
        copying.remove_tree(spool)
        _note_topics(new, measured)
        built = build_derived(spark, new, on_progress=on_progress)
        clock.note("derive")
        stage.put_in_place()
    return LoadResult(
        target,
        sum(one.rows for one in measured),
        log_bytes,
        sum(one.units for one in built.found),
        sum(one.keys for one in built.found),
        clock.seconds,
        clock.stages,
    )


def _new_store(stage: Stage, config: StoreConfig) -> TargetStore:
    paths = StorePaths(stage.root)
    durable.make_directories(paths.commit_log)
    return TargetStore.of(paths, stage.scratch(), config)


# -- measuring


@dataclass
class Measured:
    """What one sorted file holds: rows, messages by queue, and the highest queue of each topic.

    The sizes of its records lie beside it, four bytes each.
    """

    path: Path
    rows: int = 0
    queues: Counter[QueueKey] = field(default_factory=Counter)
    highest: dict[str, int] = field(default_factory=dict)

    @property
    def sizes_path(self) -> Path:
        """Where the sizes lie."""
        return self.path.with_name(f".{self.path.name}.sizes")


class _Work(NamedTuple):
    """What tasks need to know of the new store."""

    log: Path
    file_size: int
    config: StoreConfig

    def measure(self, path: Path) -> Measured:
        """Measure one sorted file."""
        found = Measured(path)
        sizes = []
        for pending, topic, _ in self._messages(path):
            sizes.append(pending.size_bytes)
            if pending.queue_key is not None:
                found.queues[pending.queue_key] += 1
            found.highest[topic] = max(found.highest.get(topic, 0), pending.target_queue_id)
        found.rows = len(sizes)
        own = path.with_name(f".{uuid.uuid4().hex}.sizes")
        np.array(sizes, np.int32).tofile(own)
        os.replace(own, found.sizes_path)
        return found

    def write(self, plan: WritePlan) -> None:
        """Write the messages of one sorted file to their places."""
        messages = self._messages(plan.path)
        queues = dict(plan.queues)
        for one in plan.ranges:
            start = one.begin // self.file_size * self.file_size
            path = self.log / f"{start:020d}"
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                position = one.begin
                for data in self._encoded(itertools.islice(messages, one.rows), position, queues):
                    durable.write_at(fd, data, position - start, path)
                    position += len(data)
                if position != one.end:
                    raise errors.CorruptFileError(
                        "the sorted messages are not those that were measured", path=plan.path,
                        expected=f"{one.end - one.begin} bytes", found=position - one.begin,
                        hint="start again",
                    )  # fmt: skip
                if one.closes:
                    durable.write_at(fd, encode_blank(start + self.file_size - position), position - start, path)
                durable.sync_file(fd, path)
            finally:
                os.close(fd)

    def _messages(self, path: Path) -> Iterator[tuple[Pending, str, int]]:
        """Every message of a sorted file, with its topic and its store time."""
        import pyarrow.parquet as pq

        level = max(parse_delay_levels(self.config.message_delay_level or DEFAULT_DELAY_LEVELS))
        # Page by page: read at once, a row group would be in memory as a whole.
        with pq.ParquetFile(path, buffer_size=_READ_BUFFER_BYTES, pre_buffer=False) as file:
            for batch in _batches(file):
                for row in batch.to_pylist():
                    stored_ms = store_time_of(row)
                    message, queue_id = message_of(row, self.config)
                    pending = prepare(message, queue_id, self.config, level)
                    # A delayed message must fit under its own topic, too, or it could not be delivered.
                    size_bytes = pending.size_bytes + max(0, len(message.topic) - len(pending.fields[0]))
                    if size_bytes + BLANK_SIZE > self.file_size:
                        raise errors.MessageIllegalError(
                            "does not fit into one commit log file",
                            expected=f"at most {self.file_size - BLANK_SIZE} bytes", found=size_bytes,
                        )  # fmt: skip
                    yield pending, message.topic, stored_ms

    def _encoded(
        self, messages: Iterable[tuple[Pending, str, int]], position: int, queues: dict[QueueKey, int]
    ) -> Iterator[memoryview]:
        """Records from ``position`` of the log on, some megabytes at a time; ``queues`` are counted on."""
        group: list[tuple[Pending, int]] = []
        size = 0
        for pending, _, stored_ms in messages:
            group.append((pending, stored_ms))
            size += pending.size_bytes
            if size >= _BUFFER_BYTES:
                yield _encode(group, size, position, queues)
                position += size
                group, size = [], 0
        if group:
            yield _encode(group, size, position, queues)


def _batches(file: Any) -> Iterator[Any]:
    """The rows of a sorted file, so few at a time that they take about as much memory as what is written together."""
    import pyarrow.compute as pc

    names = [name for name in file.schema_arrow.names if name != BODY_BYTES]
    for number in range(file.num_row_groups):
        sizes = file.read_row_group(number, [BODY_BYTES], use_threads=False).column(0)
        metadata = file.metadata.row_group(number)
        beside = max(0, metadata.total_byte_size - (pc.sum(sizes).as_py() or 0)) // max(1, metadata.num_rows)
        rows = _rows_at_a_time(sizes.fill_null(0).to_numpy().astype(np.int64) + beside)
        yield from file.iter_batches(rows, row_groups=[number], columns=names, use_threads=False)


def _rows_at_a_time(sizes: npt.NDArray[np.int64]) -> int:
    """By how many rows to go on: no more together than are written together, and one that is large by itself."""
    rows, most = _ROWS_AT_A_TIME, _BUFFER_BYTES + int(sizes.max(initial=0))
    while rows > 1 and len(sizes) and np.add.reduceat(sizes, np.arange(0, len(sizes), rows)).max() > most:
        rows //= 2
    return rows


def _encode(group: list[tuple[Pending, int]], size: int, position: int, queues: dict[QueueKey, int]) -> memoryview:
    buffer = bytearray(size + BLANK_SIZE)
    done = 0
    for stored_ms, same in itertools.groupby(group, key=lambda one: one[1]):
        fields, offsets = [], []
        for pending, _ in same:
            fields.append(pending.fields)
            offsets.append(0 if pending.queue_key is None else queues.get(pending.queue_key, 0))
            if pending.queue_key is not None:
                queues[pending.queue_key] = offsets[-1] + 1
        done += sum(kernels.put_batch(buffer, done, len(buffer), position, stored_ms, offsets, fields))
    return memoryview(buffer)[:done]


def _measure(spark: SparkSession, new: TargetStore, spool: Path, on_progress: Progress | None) -> list[Measured]:
    work = _Work(new.paths.commit_log, new.sizes.commit_log, new.config)
    # Spark numbers the files of a sorted table in its order.
    return run_tasks(spark, work.measure, sorted(spool.glob("part-*.parquet")), on_progress)


# -- placing and writing


class LogRange(NamedTuple):
    """Rows that lie in [begin, end) of one log file; ``closes``: a blank record follows."""

    rows: int
    begin: int
    end: int
    closes: bool


class WritePlan(NamedTuple):
    """What one task writes: a sorted file's rows, range by range, and the first free offsets of their queues."""

    path: Path
    ranges: list[LogRange]
    queues: dict[QueueKey, int]


def plan_writes(measured: list[Measured], file_size: int) -> tuple[list[WritePlan], int]:
    """Where everything goes, and where the log ends. Only the sizes of one sorted file are held at a time."""
    plans: list[WritePlan] = []
    queues: Counter[QueueKey] = Counter()
    position = 0
    for one in measured:
        sums = np.cumsum(np.fromfile(one.sizes_path, np.int32).astype(np.int64))
        ranges: list[LogRange] = []
        first = 0
        while first < len(sums):
            before = int(sums[first - 1]) if first else 0
            file_end = (position // file_size + 1) * file_size
            stop = int(np.searchsorted(sums, before + file_end - BLANK_SIZE - position, side="right"))
            if stop > first:
                end = position + int(sums[stop - 1]) - before
                ranges.append(LogRange(stop - first, position, end, closes=False))
                position, first = end, stop
            if first < len(sums):  # the next does not fit: the file is closed by whoever wrote its last record
                _close(ranges or plans[-1].ranges)
                position = file_end
        if ranges:
            plans.append(WritePlan(one.path, ranges, {key: queues[key] for key in one.queues}))
        queues.update(one.queues)
    return plans, position


def _close(ranges: list[LogRange]) -> None:
    ranges[-1] = ranges[-1]._replace(closes=True)


def _write(spark: SparkSession, new: TargetStore, measured: list[Measured], on_progress: Progress | None) -> int:
    file_size = new.sizes.commit_log
    plans, end = plan_writes(measured, file_size)
    for start in range(0, end, file_size):
        os.close(durable.create_file(new.paths.commit_log / f"{start:020d}", file_size))
    work = _Work(new.paths.commit_log, file_size, new.config)
    run_tasks(spark, work.write, plans, on_progress)
    durable.sync_directory(new.paths.commit_log)
    return end


def _note_topics(new: TargetStore, measured: list[Measured]) -> None:
    """Make the topics known, as a store does that takes a message of a new one."""
    settings = Settings(new.paths.config)
    settings.load()
    for topic in sorted({topic for one in measured for topic in one.highest}):
        highest = max(one.highest.get(topic, 0) for one in measured)
        settings.ensure_topic(topic, highest + 1, new.config)
    settings.save()
