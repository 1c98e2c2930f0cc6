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
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from mqstore.convert import rocketmq_origin
from mqstore.convert.log_writer import LogWriter
from mqstore.convert.mapping import Mapped, message_of
from mqstore.convert.options import Aborted, ConvertOptions
from mqstore.convert.report import ConversionReport, Loss, PartitionReport
from mqstore.convert.stage import Stage
from mqstore.convert.topics import target_names
from mqstore.errors import CorruptBatchError
from mqstore.files import durable
from mqstore.kafka.damage import BatchDamage, raise_at_damage
from mqstore.kafka.lookup import BatchPlace
from mqstore.kafka.partition_view import PartitionView
from mqstore.kafka.records import records_of
from mqstore.kafka.transactions import CommittedFilter
from mqstore.kafka.view import KafkaView
from mqstore.layout.kafka.internal_topics import is_internal
from mqstore.layout.kafka.names import METADATA_TOPIC
from mqstore.layout.kafka.record import Record
from mqstore.store.config import StoreConfig
from mqstore.store.engine import put_in_order
from mqstore.store.paths import StorePaths
from mqstore.store.settings import Settings
from mqstore.store.sizes import resolve_sizes

MEMORY_BYTES: Final = 256 << 20
"""For the batches held of all partitions; each has room for one batch at least."""
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
    options = options or ConvertOptions()
    started = time.monotonic()
    with KafkaView(source) as view, Stage(Path(output)) as stage:
        report = ConversionReport(Path(source), Path(output))
        partitions = wanted_partitions(view, options)
        names = topic_names(partitions, options)
        report.partitions = [PartitionReport(one.topic, one.partition, names[one.topic]) for one in partitions]
        config = store_config(options, StorePaths(stage.root))
        budget = MEMORY_BYTES // max(1, len(partitions))
        sources = [
            ordered(PartitionReader(partition, one, options, budget), number)
            for number, (partition, one) in enumerate(zip(partitions, report.partitions, strict=True))
        ]
        write_log(stage.root, config, heapq.merge(*sources), report.partitions)
        finish_store(stage.root, config, report.partitions)
        stage.put_in_place()
    report.seconds = time.monotonic() - started
    return report


def wanted_partitions(view: KafkaView, options: ConvertOptions) -> list[PartitionView]:
    """The partitions that the options take, by topic and number."""
    return [
        one
        for one in view.partitions()
        if options.wants(one.topic, is_internal(one.topic) or one.topic == METADATA_TOPIC)
    ]


def topic_names(partitions: list[PartitionView], options: ConvertOptions) -> dict[str, str]:
    """The names that the topics get; those that once were RocketMQ's get their old ones."""
    known = {}
    for partition in partitions:
        if "." in partition.topic and partition.topic not in known:
            first = partition.get(partition.log_start_offset, max_messages=1).messages
            former = dict(first[0].headers).get(rocketmq_origin.TOPIC) if first else None
            if former is not None:
                known[partition.topic] = former.decode("utf-8", "replace")
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


class Reach(NamedTuple):
    """A part of a partition: offsets [start, end), and the queue offset of its first message, None for its own."""

    start: int
    end: int
    queue_offset: int | None = None

    @classmethod
    def whole(cls, partition: PartitionView) -> Reach:
        """All that is in the partition now."""
        return cls(partition.log_start_offset, partition.log_end_offset)


class PartitionReader:
    """The messages of one partition, in order, a budget of bytes at a time; what is left out is noted."""

    def __init__(
        self,
        partition: PartitionView,
        report: PartitionReport,
        options: ConvertOptions,
        budget_bytes: int,
        reach: Reach | None = None,
    ) -> None:
        self._partition = partition
        self._report = report
        self._options = options
        self._budget = budget_bytes
        self._start, self._end, self._queue_offset = reach or Reach.whole(partition)
        self._hidden = CommittedFilter(partition.aborted_transactions(self._start, self._end))
        self._undecided = {
            entry.producer_id: entry.current_txn_first_offset
            for entry in partition.producers()
            if entry.current_txn_first_offset >= 0
        }
        self._last_offset = self._start - 1
        self._original = None if report.target_topic == partition.topic else partition.topic

    def __iter__(self) -> Iterator[tuple[Mapped, int]]:
        for _, messages in self.groups():
            yield from messages

    def groups(self) -> Iterator[tuple[Reach, list[tuple[Mapped, int]]]]:
        """The messages in groups of whole batches, each with the part of the partition that it comes from."""
        offset = self._start
        while offset < self._end:
            begin, queue_offset = offset, self._queue_offset
            messages, offset = self._take(begin)
            yield Reach(begin, offset, queue_offset), messages
        self._report.lose(Loss.OFFSET_HOLES, self._end - 1 - self._last_offset)

    def _take(self, offset: int) -> tuple[list[tuple[Mapped, int]], int]:
        """Messages from ``offset`` on, of at least one batch, and the offset to go on from."""
        taken: list[tuple[Mapped, int]] = []
        size_bytes = 0
        on_damage = self._pass_over if self._options.skip_damage else raise_at_damage
        for place in self._partition.batches(offset, self._end, on_damage=on_damage):
            taken += self._messages(place)
            size_bytes += place.header.size
            if size_bytes >= self._budget:
                return taken, place.header.last_offset + 1
        return taken, self._end

    def _pass_over(self, damage: BatchDamage) -> bool:
        self._report.lose(Loss.DAMAGE)
        return True

    def _messages(self, place: BatchPlace) -> Iterator[tuple[Mapped, int]]:
        header = place.header
        self._report.lose(Loss.BATCHES)
        if header.is_control:
            self._report.lose(Loss.CONTROL_RECORDS, header.record_count)
            return
        aborted = self._hidden.hides(header)
        if aborted and self._options.aborted is Aborted.OMIT:
            self._report.lose(Loss.ABORTED_RECORDS, header.record_count)
            return
        first_open = self._undecided.get(header.producer_id)
        if header.is_transactional and first_open is not None and header.base_offset >= first_open:
            self._report.lose(Loss.UNDECIDED_RECORDS, header.record_count)
            return
        try:
            records = records_of(place.segment, place.position, header, place.buffer)
        except CorruptBatchError:
            if not self._options.skip_damage:
                raise
            self._report.lose(Loss.DAMAGE)
            return
        for record in records:
            if not self._start <= record.offset < self._end:
                continue
            if header.producer_id >= 0:
                self._report.lose(Loss.PRODUCER_STATE)
            yield self._message(record, aborted)

    def _message(self, record: Record, rolled_back: bool) -> tuple[Mapped, int]:
        queue_offset = record.offset if self._queue_offset is None else self._queue_offset
        message = message_of(
            record,
            self._report.target_topic,
            self._partition.partition,
            queue_offset,
            original_topic=self._original,
            rolled_back=rolled_back,
        )
        if message.enveloped:
            self._report.lose(Loss.ENVELOPES)
        self._report.lose(Loss.OFFSET_HOLES, record.offset - self._last_offset - 1)
        self._last_offset = record.offset
        if message.queued:
            self._queue_offset = queue_offset + 1
        return message, queue_offset


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
            if 0 <= message.store_timestamp_ms < one.time_ms:
                report.lose(Loss.LATER_TIMES)


def finish_store(root: Path, config: StoreConfig, reports: list[PartitionReport]) -> None:
    """Make the topics known, and build the queues and the index as far as they are not there yet."""
    queues: dict[str, int] = {}
    for report in reports:
        queues[report.target_topic] = max(queues.get(report.target_topic, 0), report.number + 1)
    settings = Settings(StorePaths(root).config)
    settings.load()
    for topic, count in sorted(queues.items()):
        settings.ensure_topic(topic, count, config)
    settings.save()
    put_in_order(root, config)
