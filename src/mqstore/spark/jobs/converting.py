"""Data from one layout into the other on Spark: the tasks read and write, the driver sees sizes and times only.

Into a Kafka log each queue is one task's work, which writes a partition's directory under another name and renames it.

Into a RocketMQ store the partitions' messages must be merged. First each partition is cut into blocks, of which only
size and time come back. The driver puts blocks together by time until they fill a commit log file, and each file is
merged and written by one task. What a file holds follows from its plan alone, so that a task that runs twice writes the
same bytes. Between messages of different partitions the order is that of time to within a block.
"""

from __future__ import annotations

import dataclasses
import heapq
import os
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from mqstore import errors
from mqstore.convert import group_offsets
from mqstore.convert import into_kafka as kafka_side
from mqstore.convert import into_rocketmq as rocketmq_side
from mqstore.convert.into_rocketmq import FIRST_TIME_MS, Next, ordered
from mqstore.convert.log_writer import LogWriter
from mqstore.convert.options import ConvertOptions
from mqstore.convert.partition_reader import PartitionReader, Reach
from mqstore.convert.partition_writer import finish_data_directory
from mqstore.convert.report import ConversionReport, Loss, PartitionReport
from mqstore.files import copying, durable
from mqstore.files.stage import Stage
from mqstore.kafka.arguments import check_number, check_path
from mqstore.kafka.config import KafkaConfig
from mqstore.kafka.view import KafkaView
from mqstore.layout.constants import BLANK_SIZE
from mqstore.layout.kafka.names import partition_directory_name
from mqstore.spark.jobs.derived import TargetStore, build_derived
from mqstore.spark.tasks import Progress, run_tasks
from mqstore.store.message import QueueInfo
from mqstore.store.paths import StorePaths
from mqstore.store.view import StoreView

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BLOCK_BYTES: Final = 1 << 20
"""How much of a partition is put into one file as a whole."""


def convert(
    spark: SparkSession,
    source: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    options: ConvertOptions | None = None,
    block_bytes: int = BLOCK_BYTES,
    on_progress: Progress | None = None,
) -> ConversionReport:
    """Make a RocketMQ store of a Kafka log, or a Kafka data directory of a RocketMQ store; the source tells which.

    Args:
        spark: the session; its workers must see ``source`` and ``output`` under the same paths.
        source: untouched; a broker may be running on it.
        output: the new directory, which must not exist or be empty.
        options: what to take, and how.
        block_bytes: how finely messages of different partitions are merged.
        on_progress: called with (tasks done, tasks in all) of each stage in turn.

    Raises:
        UsageError: an argument that cannot be meant; ``output`` is in use.
        NotAStoreError, DamageError, StoreIOError, DiskFullError.
    """
    check_number("block_bytes", block_bytes, 1)
    options = ConvertOptions.given(options)
    started = time.monotonic()
    source, output = check_path(source).absolute(), check_path(output).absolute()
    report = ConversionReport(source, output)
    with Stage(output, source) as stage:
        if StorePaths(source).looks_like_store():
            _to_kafka(spark, stage, report, options, on_progress)
        else:
            _to_rocketmq(spark, stage, report, options, block_bytes, on_progress)
        stage.put_in_place()
    report.seconds = time.monotonic() - started
    return report


# -- into a Kafka log


class _QueueTask(NamedTuple):
    queue: QueueInfo
    report: PartitionReport


class _QueueWork(NamedTuple):
    source: Path
    root: Path
    scratch: Path
    config: KafkaConfig
    options: ConvertOptions

    def run(self, task: _QueueTask) -> PartitionReport:
        """Write one partition's directory; of two attempts the first to be ready counts."""
        own = self.scratch / uuid.uuid4().hex
        name = partition_directory_name(task.report.target_topic, task.queue.queue_id)
        with StoreView(self.source) as view:
            kafka_side.convert_queue(view, task.queue, task.report, own, self.config, self.options)
        try:
            if (own / name).exists():
                (own / name).rename(self.root / name)
        except OSError:
            if not (self.root / name).is_dir():
                raise
        copying.remove_tree(own)
        return task.report


def _to_kafka(
    spark: SparkSession,
    stage: Stage,
    report: ConversionReport,
    options: ConvertOptions,
    on_progress: Progress | None,
) -> None:
    config = kafka_side.kafka_config(options)
    with StoreView(report.source) as view:
        kafka_side.check_log(view)
        queues = kafka_side.wanted_queues(view, options)
        names = kafka_side.topic_names(view, queues, options)
        commits = group_offsets.saved_offsets(view.settings)
    empty = [PartitionReport(one.topic, one.queue_id, names[one.topic]) for one in queues]
    group_offsets.ask_for(commits, empty)
    tasks = [_QueueTask(*one) for one in zip(queues, empty, strict=True)]
    work = _QueueWork(report.source, stage.root, stage.scratch(), config, options)
    report.partitions = run_tasks(spark, work.run, tasks, on_progress)
    (rest,) = run_tasks(spark, _count_rest, [report.source])
    report.losses = rest
    ends = group_offsets.write(commits, report, stage.root, config, options)
    finish_data_directory(stage.root, {**kafka_side.partition_ends(report.partitions), **ends}, config)


def _count_rest(source: Path) -> dict[Loss, int]:
    report = ConversionReport(source, source)
    with StoreView(source) as view:
        kafka_side.note_what_is_left(view, report)
    return report.losses


# -- into a RocketMQ store


class Block(NamedTuple):
    """Messages of one partition that come into one file.

    Attributes:
        source: number of the partition.
        reach: the part of it.
        begin_ms, end_ms: times of the first and the last message, as :func:`ordered` gives them.
        before_ms: latest time of the partition before it.
        size_bytes: size of the messages' records.
    """

    source: int
    reach: Reach
    begin_ms: int
    end_ms: int
    before_ms: int
    size_bytes: int


class FilePlan(NamedTuple):
    """One commit log file: where it starts, what comes into it, and the earliest store time in it."""

    start: int
    not_before_ms: int
    blocks: list[Block]
    is_last: bool


class _MergeWork(NamedTuple):
    source: Path
    log: Path
    scratch: Path
    file_size: int
    options: ConvertOptions
    block_bytes: int

    def measure(self, task: tuple[int, PartitionReport]) -> tuple[PartitionReport, list[Block]]:
        """Cut one partition into blocks."""
        source, report = task
        blocks = []
        with KafkaView(self.source) as view:
            partition = view.partition(report.topic, report.number)
            latest = FIRST_TIME_MS
            for reach, messages in PartitionReader(partition, report, self.options, self.block_bytes).groups():
                if not messages:
                    continue
                before = latest
                times = [latest := max(latest, message.store_timestamp_ms) for message, _ in messages]
                size = sum(message.size_bytes for message, _ in messages)
                blocks.append(Block(source, reach, times[0], times[-1], before, size))
                for message, queue_offset in messages:
                    if message.queued:
                        report.add(queue_offset)
        return report, blocks

    def write(self, task: tuple[FilePlan, list[PartitionReport]]) -> Counter[tuple[int, Loss]]:
        """Write one file; what its messages lost by it, by partition and kind."""
        plan, reports = task
        lost: Counter[tuple[int, Loss]] = Counter()
        own = self.scratch / uuid.uuid4().hex
        durable.make_directories(own)
        with KafkaView(self.source) as view, LogWriter(own, self.file_size, plan.start) as writer:
            for one in self._merged(view, plan, reports):
                stored_ms = max(one.time_ms, plan.not_before_ms)
                writer.append(one.message, one.queue_offset if one.message.queued else 0, stored_ms)
                lost[one.source, Loss.LATER_TIMES] += 0 <= one.message.store_timestamp_ms < stored_ms
                lost[one.source, Loss.MOVED_IN_LOG] += one.message.physical_offset not in (-1, writer.last_offset)
            if not plan.is_last:
                writer.close_file()
        name = f"{plan.start:020d}"
        os.replace(own / name, self.log / name)
        copying.remove_tree(own)
        return lost

    def _merged(self, view: KafkaView, plan: FilePlan, reports: list[PartitionReport]) -> Iterator[Next]:
        """The messages of all blocks by time; those of one partition in their own order."""
        by_source: dict[int, list[Block]] = {}
        for block in plan.blocks:
            by_source.setdefault(block.source, []).append(block)
        return heapq.merge(*(self._messages(view, found, reports) for found in by_source.values()))

    def _messages(self, view: KafkaView, blocks: list[Block], reports: list[PartitionReport]) -> Iterator[Next]:
        number = 0
        for block in blocks:
            report = dataclasses.replace(reports[block.source], losses={}, queue_offsets={})
            partition = view.partition(report.topic, report.number)
            reader = PartitionReader(partition, report, self.options, self.block_bytes, block.reach)
            for one in ordered(reader, block.source, block.before_ms):
                yield one._replace(number=number)
                number += 1


def plan_files(blocks: list[list[Block]], file_size: int) -> list[FilePlan]:
    """Put the blocks of all partitions, each in its own order, together by time, as many as a file holds.

    Raises:
        UsageError: a block is larger than a file.
    """
    plans: list[FilePlan] = []
    room = 0
    latest = FIRST_TIME_MS
    order = heapq.merge(*blocks, key=lambda block: (block.begin_ms, block.source, block.reach))
    for block in order:
        if block.size_bytes + BLANK_SIZE > file_size:
            raise errors.UsageError(
                "a block of messages is larger than a commit log file",
                expected=f"at most {file_size - BLANK_SIZE} bytes",
                found=block.size_bytes,
                hint="make block_bytes smaller, or mapped_file_size_commit_log larger",
            )
        if not plans or block.size_bytes > room:
            plans.append(FilePlan(len(plans) * file_size, latest, [], False))
            room = file_size - BLANK_SIZE
        plans[-1].blocks.append(block)
        room -= block.size_bytes
        latest = max(latest, block.end_ms)
    return [*plans[:-1], *(plan._replace(is_last=True) for plan in plans[-1:])]


def _to_rocketmq(
    spark: SparkSession,
    stage: Stage,
    report: ConversionReport,
    options: ConvertOptions,
    block_bytes: int,
    on_progress: Progress | None,
) -> None:
    paths = StorePaths(stage.root)
    durable.make_directories(paths.commit_log)
    config = rocketmq_side.store_config(options, paths)
    new = TargetStore.of(paths, stage.scratch(), config)
    file_size = new.sizes.commit_log
    with KafkaView(report.source) as view:
        partitions = rocketmq_side.wanted_partitions(view, options)
        names = rocketmq_side.topic_names(partitions, options)
        rocketmq_side.note_what_is_left(partitions, report)
        commits = group_offsets.committed_offsets(view, options)
    empty = [PartitionReport(one.topic, one.partition, names[one.topic]) for one in partitions]
    group_offsets.ask_for(commits, empty)
    block_bytes = min(block_bytes, max(1, file_size // 8))
    work = _MergeWork(report.source, paths.commit_log, new.scratch, file_size, options, block_bytes)
    measured = run_tasks(spark, work.measure, list(enumerate(empty)), on_progress)
    report.partitions = [one for one, _ in measured]
    plans = plan_files([blocks for _, blocks in measured], file_size)
    for lost in run_tasks(spark, work.write, [(plan, empty) for plan in plans], on_progress):
        for (source, loss), count in lost.items():
            report.partitions[source].lose(loss, count)
    durable.sync_directory(paths.commit_log)
    build_derived(spark, new, on_progress=on_progress)
    rocketmq_side.finish_store(stage.root, config, report, commits)
