"""A Kafka log into a new RocketMQ store (docs/kafka.md, "Moving data").

Kafka has no order between partitions. Here they are merged by time, each partition staying in its own order, so that
the commit log is about what a broker would have written that took all messages as they came. Only as much of every
partition is held as fits into a fixed amount of memory for all.
"""

from __future__ import annotations

import dataclasses
import heapq
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from mqstore.convert import group_offsets, rocketmq_origin
from mqstore.convert.log_writer import LogWriter
from mqstore.convert.mapping import Mapped, former_message
from mqstore.convert.options import ConvertOptions
from mqstore.convert.partition_reader import PartitionReader
from mqstore.convert.report import ConversionReport, Loss, PartitionReport
from mqstore.convert.topics import kafka_topic, target_names
from mqstore.files import durable
from mqstore.files.stage import Stage
from mqstore.kafka.arguments import check_path
from mqstore.kafka.data_directory import load_topic_id
from mqstore.kafka.partition_view import PartitionView
from mqstore.kafka.view import KafkaView
from mqstore.layout.kafka.internal_topics import is_internal
from mqstore.layout.kafka.names import METADATA_TOPIC
from mqstore.store.config import StoreConfig
from mqstore.store.engine import put_in_order
from mqstore.store.paths import StorePaths
from mqstore.store.settings import Settings
from mqstore.store.sizes import resolve_sizes

MEMORY_BYTES: Final = 256 << 20
"""For the messages held of all partitions, inflated; besides, one batch at a time is inflated as a whole."""
FIRST_TIME_MS: Final = 1
"""Store time of messages before which nothing has a time: 0 would count as no message."""


class Next(NamedTuple):
    """A message waiting for its turn; compared in this order."""

    time_ms: int
    physical_offset: int
    source: int
    number: int
    message: Mapped
    queue_offset: int


def to_rocketmq(
    source: str | os.PathLike[str], output: str | os.PathLike[str], options: ConvertOptions | None = None
) -> ConversionReport:
    """Make a RocketMQ store of the Kafka log at ``source``.

    Args:
        source: a data directory, or a partition's directory; a broker may be running on it.
        output: the new store's directory, which must not exist or be empty.
        options: what to take, and how.

    Returns what was converted and everything that was not carried over.

    Raises:
        UsageError: ``output`` is in use, or a topic has no fitting name.
        NotAStoreError: no Kafka log is at ``source``.
        CorruptBatchError: a damaged batch, unless the options say to pass over it.
        StoreIOError, DiskFullError.
    """
    options = ConvertOptions.given(options)
    target = check_path(output)
    started = time.monotonic()
    with KafkaView(source) as view, Stage(target, view.path) as stage:
        report = ConversionReport(view.path, target)
        partitions = wanted_partitions(view, options)
        names = topic_names(partitions, options)
        report.partitions = [PartitionReport(one.topic, one.partition, names[one.topic]) for one in partitions]
        note_what_is_left(partitions, report)
        commits = group_offsets.committed_offsets(view, options)
        group_offsets.ask_for(commits, report.partitions)
        config = store_config(options, StorePaths(stage.root))
        budget = MEMORY_BYTES // max(1, len(partitions))
        sources = [
            ordered(PartitionReader(partition, one, options, budget), number)
            for number, (partition, one) in enumerate(zip(partitions, report.partitions, strict=True))
        ]
        write_log(stage.root, config, heapq.merge(*sources), report.partitions)
        finish_store(stage.root, config, report, commits)
        stage.put_in_place()
    report.seconds = time.monotonic() - started
    return report


def wanted_partitions(view: KafkaView, options: ConvertOptions) -> list[PartitionView]:
    """The partitions that the options take, by topic and number.

    Raises:
        UsageError: there are topics, but none that the options take.
        CorruptFileError: something else than a directory bears the name of one of them.
    """
    known = view.partitions()
    view.refuse_odd_partitions(lambda topic, number: options.wants(topic, is_internal(topic)))
    options.check_topics([one.topic for one in known])
    wanted = [one for one in known if options.wants(one.topic, is_internal(one.topic) or one.topic == METADATA_TOPIC)]
    return [one for one in wanted if not group_offsets.holds_saved_offsets_alone(one)]


def topic_names(partitions: list[PartitionView], options: ConvertOptions) -> dict[str, str]:
    """The names that the topics get; those that once were RocketMQ's get their old ones."""
    known = {}
    for partition in partitions:
        if "." in partition.topic and partition.topic not in known:
            first = partition.get(partition.log_start_offset, max_messages=1).messages
            is_former = bool(first) and former_message(first[0], first[0].offset) is not None
            former = rocketmq_origin.former_topic(first[0]) if is_former else None
            if former is not None and kafka_topic(former) == partition.topic:
                known[partition.topic] = former
    topics = list(dict.fromkeys(one.topic for one in partitions))
    return target_names(topics, options.names, to_rocketmq=True, known=known)


def store_config(options: ConvertOptions, paths: StorePaths) -> StoreConfig:
    """The configuration under which the new store is made, with the sizes of its files."""
    config = StoreConfig.from_mapping({"default_topic_queue_nums": 1, **options.store_settings})
    sizes = resolve_sizes(paths, config)
    return dataclasses.replace(
        config,
        mapped_file_size_commit_log=sizes.commit_log,
        mapped_file_size_consume_queue=sizes.consume_queue,
        max_hash_slot_num=sizes.index.hash_slots,
        max_index_num=sizes.index.max_entries,
    )


def ordered(reader: PartitionReader, source: int, not_before_ms: int = FIRST_TIME_MS) -> Iterator[Next]:
    """The messages of one partition with what they are merged by: their time, which never goes back."""
    latest = not_before_ms
    for number, (message, queue_offset) in enumerate(reader):
        latest = max(latest, message.store_timestamp_ms)
        yield Next(latest, message.physical_offset, source, number, message, queue_offset)


def write_log(root: Path, config: StoreConfig, messages: Iterator[Next], reports: list[PartitionReport]) -> None:
    """Write ``messages`` as the commit log of the store at ``root``."""
    paths = StorePaths(root)
    durable.make_directories(paths.commit_log)
    with LogWriter(paths.commit_log, resolve_sizes(paths, config).commit_log) as writer:
        for one in messages:
            report = reports[one.source]
            message = one.message
            writer.append(message, one.queue_offset if message.queued else 0, one.time_ms)
            if message.queued:
                report.add(one.queue_offset)
            report.lose(Loss.LATER_TIMES, 0 <= message.store_timestamp_ms < one.time_ms)
            report.lose(Loss.MOVED_IN_LOG, message.physical_offset not in (-1, writer.last_offset))


def note_what_is_left(partitions: list[PartitionView], report: ConversionReport) -> None:
    """Count what the log holds besides records."""
    ids = {one.topic for one in partitions if load_topic_id(one.directory) is not None}
    if ids:
        report.losses[Loss.TOPIC_IDS] = len(ids)


def finish_store(
    root: Path, config: StoreConfig, report: ConversionReport, commits: Mapping[group_offsets.Commit, int]
) -> None:
    """Make topics and committed offsets known, and build the queues and the index as far as they are not there yet."""
    reports = report.partitions
    queues: dict[str, int] = {}
    for one in reports:
        queues[one.target_topic] = max(queues.get(one.target_topic, 0), one.number + 1)
    settings = Settings(StorePaths(root).config)
    settings.load()
    for topic, count in sorted(queues.items()):
        settings.ensure_topic(topic, count, config)
    group_offsets.save(commits, report, settings)
    settings.save()
    put_in_order(root, config)
    for one in reports:
        if not one.records:  # an empty queue is a directory without files
            durable.make_directories(StorePaths(root).queue(one.target_topic, one.number))
