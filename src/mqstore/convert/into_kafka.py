"""A RocketMQ store into a new Kafka data directory (docs/kafka.md, "Moving data").

Queue by queue: a partition's log holds nothing of the others, so that only one queue is open at a time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from mqstore import errors
from mqstore.convert import group_offsets, kafka_origin, rocketmq_origin
from mqstore.convert.mapping import former_record, record_of
from mqstore.convert.options import ConvertOptions
from mqstore.convert.partition_writer import PartitionWriter, finish_data_directory
from mqstore.convert.report import ConversionReport, Loss, PartitionReport
from mqstore.convert.topics import rocketmq_topic, target_names
from mqstore.files.pool import FilePool
from mqstore.files.stage import Stage
from mqstore.kafka.arguments import check_path
from mqstore.kafka.config import KafkaConfig
from mqstore.layout import constants as c
from mqstore.layout.config_beans import TopicConfig
from mqstore.layout.constants import LMQ_PREFIX, LONG_MAX, SysFlag
from mqstore.layout.kafka.constants import TimestampType
from mqstore.layout.kafka.names import partition_directory_name
from mqstore.layout.kafka.record import Record as KafkaRecord
from mqstore.layout.record import Record
from mqstore.store.message import QueueInfo
from mqstore.store.overlooked import queues_overlooked
from mqstore.store.view import StoreView

_MESSAGES_A_TIME: Final = 1000
_INTERNAL_TOPICS: Final = frozenset(
    {
        c.SCHEDULE_TOPIC,
        c.HALF_TOPIC,
        c.OP_HALF_TOPIC,
        c.TRANS_CHECK_MAX_TIME_TOPIC,
        c.TIMER_TOPIC,
        "RMQ_SYS_TRACE_TOPIC",
        "OFFSET_MOVED_EVENT",
    }
)


def to_kafka(
    source: str | os.PathLike[str], output: str | os.PathLike[str], options: ConvertOptions | None = None
) -> ConversionReport:
    """Make a Kafka data directory of the RocketMQ store at ``source``.

    Args:
        source: the store's root; a broker may be running on it.
        output: the new data directory, which must not exist or be empty.
        options: what to take, and how.

    Returns what was converted and everything that was not carried over.

    Raises:
        UsageError: ``output`` is in use, or a topic has no fitting name.
        NotAStoreError: no store is at ``source``.
        DamageError: damage in the store, unless the options say to pass over it.
        StoreIOError, DiskFullError.
    """
    options = ConvertOptions.given(options)
    target = check_path(output)
    config = kafka_config(options)
    started = time.monotonic()
    with StoreView(source) as view, Stage(target, view.paths.root) as stage:
        check_log(view)
        report = ConversionReport(Path(source), target)
        queues = wanted_queues(view, options)
        names = topic_names(view, queues, options)
        report.partitions = [PartitionReport(one.topic, one.queue_id, names[one.topic]) for one in queues]
        commits = group_offsets.saved_offsets(view.settings)
        group_offsets.ask_for(commits, report.partitions)
        for queue, part in zip(queues, report.partitions, strict=True):
            convert_queue(view, queue, part, stage.root, config, options)
        ends = group_offsets.write(commits, report, stage.root, config, options)
        finish_data_directory(stage.root, {**partition_ends(report.partitions), **ends}, config)
        note_what_is_left(view, report)
        stage.put_in_place()
    report.seconds = time.monotonic() - started
    return report


def check_log(view: StoreView) -> None:
    """Raise CorruptRecordError when records lie behind damage at the log's end: the queues would seem to end there.

    A torn end with nothing sound behind is what a crash leaves; a broker or a writer cuts it off at its start.
    """
    if view.log.is_damaged_at(view.log_end) and _has_records_behind(view, view.log_end):
        raise errors.CorruptRecordError(
            "the log is damaged: what lies behind would be left out",
            path=view.paths.commit_log,
            offset=view.log_end,
            hint=errors.HINT_SALVAGE,
        )


def _has_records_behind(view: StoreView, physical_offset: int) -> bool:
    for entry in view.log.inventory.entries:
        start = max(entry.start, physical_offset)
        if entry.start + entry.length > start and view.log.resync(entry, start) is not None:
            return True
    return False


def kafka_config(options: ConvertOptions) -> KafkaConfig:
    """The configuration under which the new log is made."""
    return KafkaConfig.from_mapping(dict(options.kafka_settings))


def wanted_queues(view: StoreView, options: ConvertOptions) -> list[QueueInfo]:
    """The queues that the options take, by topic and id.

    Raises:
        UsageError: there are topics, but none that the options take.
        CorruptFileError: a file of one of them is not what it should be, so that messages are hidden, unless the
            options say to pass over damage.
    """
    known = view.queues()
    options.check_topics([one.topic for one in known])
    # The messages of light queues are those of other queues.
    known = [one for one in known if not one.topic.startswith(LMQ_PREFIX)]
    wanted = [one for one in known if options.wants(one.topic, one.topic in _INTERNAL_TOPICS)]
    overlooked = [] if options.skip_damage else queues_overlooked(view, {(one.topic, one.queue_id) for one in wanted})
    for finding in overlooked[:1]:
        raise errors.CorruptFileError(
            f"a queue cannot be looked at as a whole: {finding.message}",
            path=finding.path,
            expected=finding.expected,
            found=finding.found,
            hint="mqstore check tells all; mqstore rebuild mends it; --skip-damage converts the rest",
        )
    return wanted


def topic_names(view: StoreView, queues: list[QueueInfo], options: ConvertOptions) -> dict[str, str]:
    """The names that the topics get; those that once were Kafka's get their old ones."""
    known = {}
    for queue in queues:
        if "%" in queue.topic and queue.topic not in known:
            first = view.get(queue.topic, queue.queue_id, queue.min_offset, 1).messages
            is_former = bool(first) and former_record(first[0]) is not None
            former = first[0].properties.get(kafka_origin.TOPIC) if is_former else None
            if former is not None and rocketmq_topic(former) == queue.topic:
                known[queue.topic] = former
    return target_names(list(dict.fromkeys(one.topic for one in queues)), options.names, to_rocketmq=False, known=known)


def convert_queue(
    view: StoreView,
    queue: QueueInfo,
    report: PartitionReport,
    root: Path,
    config: KafkaConfig,
    options: ConvertOptions,
) -> None:
    """Write one queue as a partition's directory below ``root``."""
    directory = root / partition_directory_name(report.target_topic, queue.queue_id)
    original = None if report.target_topic == queue.topic else queue.topic
    reading, writing = FilePool(), FilePool(writable=True)
    try:
        writer = PartitionWriter(directory, config, reading, writing)
        committed = sorted(report.queue_offsets, reverse=True)
        for message in _messages(view, queue, report, options):
            former = former_record(message)
            wanted = message.queue_offset if former is None else former.offset
            # Room for all that come behind: no offset is beyond the largest one.
            most = LONG_MAX - (queue.max_offset - message.queue_offset)
            offset = _offset(wanted, writer.end_offset, most, report)
            while committed and committed[-1] <= message.queue_offset:
                report.queue_offsets[committed.pop()] = offset
            body = rocketmq_origin.inflated(message)
            report.lose(Loss.INFLATED_BODIES, body is not None)
            _note_origin(message, former, report)
            writer.append(record_of(message, former, offset, body=body, original_topic=original))
            report.add(offset)
        if not report.records:
            writer.start_at(queue.min_offset)
            report.end_offset = queue.min_offset
        report.queue_offsets.update(dict.fromkeys(committed, writer.end_offset))
        writer.close()
    finally:
        reading.close()
        writing.close()


def _messages(view: StoreView, queue: QueueInfo, report: PartitionReport, options: ConvertOptions) -> Iterator[Record]:
    """The queue's messages in order; units without a readable message are counted."""
    offset = queue.min_offset
    while offset < queue.max_offset:
        try:
            result = view.get(queue.topic, queue.queue_id, offset, _MESSAGES_A_TIME)
        except errors.DamageError as error:
            if not options.skip_damage:
                error.hint = "mqstore check tells why; --skip-damage converts the rest"
                raise
            report.lose(Loss.UNREADABLE_MESSAGES)
            offset += 1
            continue
        following = min(queue.max_offset, max(result.next_offset, offset + 1))
        missing = following - offset - len(result.messages)
        if missing and not options.skip_damage:
            raise errors.CorruptFileError(
                f"{missing} messages of queue {queue.topic}/{queue.queue_id} cannot be read",
                path=view.paths.queue(queue.topic, queue.queue_id),
                offset=offset,
                hint="mqstore check tells why; --skip-damage converts the rest",
            )
        report.lose(Loss.UNREADABLE_MESSAGES, missing)
        yield from result.messages
        offset = following


def _note_origin(message: Record, former: KafkaRecord | None, report: PartitionReport) -> None:
    """Count what of the marks of an earlier conversion is not kept."""
    if former is None:
        report.lose(Loss.MISFITS, kafka_origin.has_marks(message))
        return
    report.lose(Loss.TIMESTAMP_TYPE_NONE, former.timestamp_type == TimestampType.NONE)
    topic = message.properties.get(kafka_origin.TOPIC, report.target_topic)
    report.lose(Loss.FORMER_TOPICS, topic != report.target_topic)


def _offset(wanted: int, least: int, most: int, report: PartitionReport) -> int:
    """The offset of the record: that of the record it once was, or the queue offset, if these ascend."""
    if least <= wanted <= most:
        return wanted
    report.lose(Loss.MOVED_OFFSETS)
    return least


def partition_ends(partitions: list[PartitionReport]) -> dict[tuple[str, int], int]:
    """Log end offset of every partition made."""
    return {(one.target_topic, one.number): one.end_offset for one in partitions if one.end_offset is not None}


def _settings(view: StoreView) -> int:
    """How many settings there are, but for topics of which nothing is set but the queues that they have."""
    counts: dict[str, int] = {}
    for queue in view.queues():
        counts[queue.topic] = max(counts.get(queue.topic, 0), queue.queue_id + 1)
    found = view.settings
    plain = [TopicConfig(topic_name=name, read_queue_nums=n, write_queue_nums=n) for name, n in counts.items()]
    topics = sum(bool(one.attributes) or replace(one, attributes=None) not in plain for one in found.topics.values())
    return topics + len(found.subscription_groups) + len(found.delay_offsets)


def note_what_is_left(view: StoreView, report: ConversionReport) -> None:
    """Count what the store holds besides its queues."""
    unqueued = 0
    for chunk in view.scan_columns(on_damage=lambda _: True):  # of damaged ones the queues have told
        unqueued += sum(
            1 for flag in chunk.columns.sys_flag if flag & SysFlag.TRANSACTION_MASK in rocketmq_origin.WITHOUT_QUEUE
        )
    if unqueued:
        report.losses[Loss.UNQUEUED_MESSAGES] = unqueued
    settings = _settings(view)
    if settings:
        report.losses[Loss.SETTINGS] = settings
