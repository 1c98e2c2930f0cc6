"""What consumer groups have committed: Kafka's ``__consumer_offsets`` and a store's ``consumerOffset.json``.

Into a store, the records of that topic are converted like all others, and are back after the way back. Besides, the
newest commit of each group is made known to the new store, for the topics that are converted. Into a Kafka log, each
saved offset becomes a commit, marked so that it becomes no message on the way back (docs/kafka.md, "Moving data").
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from mqstore import errors
from mqstore.convert import rocketmq_origin
from mqstore.convert.options import ConvertOptions
from mqstore.convert.partition_writer import PartitionWriter
from mqstore.convert.report import ConversionReport, Loss, PartitionReport
from mqstore.files.pool import FilePool
from mqstore.kafka.config import KafkaConfig
from mqstore.kafka.damage import BatchDamage, raise_at_damage
from mqstore.kafka.message import Isolation
from mqstore.kafka.partition_view import PartitionView
from mqstore.kafka.view import KafkaView
from mqstore.layout.kafka.constants import TimestampType
from mqstore.layout.kafka.internal_topics import OFFSETS_TOPIC, decode_internal, encode_offset_commit, group_partition
from mqstore.layout.kafka.names import partition_directory_name
from mqstore.layout.kafka.record import Record
from mqstore.store.settings import Settings


class Commit(NamedTuple):
    """Which group reads which partition."""

    group: str
    topic: str
    partition: int


def committed_offsets(view: KafkaView, options: ConvertOptions) -> dict[Commit, int]:
    """The offset of the newest commit of each group to each partition; commits that were deleted are gone.

    Raises:
        CorruptBatchError: damage, unless the options say to pass over it.
    """
    found: dict[Commit, int] = {}
    for partition in view.partitions():
        if partition.topic != OFFSETS_TOPIC:
            continue
        on_damage = _pass_over if options.skip_damage else raise_at_damage
        for record in partition.records(isolation=Isolation.READ_COMMITTED, on_damage=on_damage):
            try:
                entry = decode_internal(OFFSETS_TOPIC, record.key, record.value)
            except errors.UsageError:
                continue  # no record of a broker's
            if entry.kind != "offset":
                continue
            key = Commit(entry.key["group"], entry.key["topic"], entry.key["partition"])
            offset = None if entry.value is None else entry.value.get("offset")
            if record.value is None or (offset is not None and offset < 0):  # -1 stands for none
                found.pop(key, None)
            elif offset is not None:
                found[key] = offset
    return found


def _pass_over(damage: BatchDamage) -> bool:
    return True


def ask_for(commits: Mapping[Commit, int], reports: list[PartitionReport]) -> None:
    """Have the readers of the partitions note where the committed offsets are in the queues."""
    by_place = {(report.topic, report.number): report for report in reports}
    for commit, offset in commits.items():
        report = by_place.get((commit.topic, commit.partition))
        if report is not None:
            report.queue_offsets[offset] = 0


def save(commits: Mapping[Commit, int], report: ConversionReport, settings: Settings) -> None:
    """Note the commits in the new store's settings; those that cannot be are counted."""
    by_place = {(one.topic, one.number): one for one in report.partitions}
    for commit, offset in commits.items():
        part = by_place.get((commit.topic, commit.partition))
        try:
            if part is None:
                raise errors.UsageError("the topic is not converted", found=commit.topic)
            settings.commit_offset(commit.group, part.target_topic, part.number, part.queue_offsets[offset])
            report.group_offsets += 1
        except errors.UsageError:  # no name for a group, there
            _lose(report)


def _lose(report: ConversionReport, count: int = 1) -> None:
    if count:
        report.losses[Loss.GROUP_OFFSETS] = report.losses.get(Loss.GROUP_OFFSETS, 0) + count


# -- into a Kafka log


def saved_offsets(settings: Settings) -> dict[Commit, int]:
    """The offsets that a store has saved, by group, topic and queue."""
    return {
        Commit(group, topic, queue_id): offset
        for (topic, group), queues in settings.consumer_offsets.items()
        for queue_id, offset in queues.items()
    }


def write(
    commits: Mapping[Commit, int], report: ConversionReport, root: Path, config: KafkaConfig, options: ConvertOptions
) -> dict[tuple[str, int], int]:
    """Write the commits as a coordinator does; those that cannot be are counted.

    None are written where the store holds a ``__consumer_offsets`` that once was Kafka's: it is back as it was.

    Returns the end offset of each partition written.
    """
    if not options.internal or any(one.target_topic == OFFSETS_TOPIC for one in report.partitions):
        _lose(report, len(commits))
        return {}
    now_ms = int(time.time() * 1000)  # a broker drops commits that are old
    by_place = {(one.topic, one.number): one for one in report.partitions}
    records: dict[int, list[Record]] = {}
    for commit, offset in sorted(commits.items()):
        part = by_place.get((commit.topic, commit.partition))
        if part is None:
            _lose(report)
            continue
        try:
            target = part.queue_offsets[offset]
            key, value = encode_offset_commit(commit.group, part.target_topic, part.number, target, now_ms)
        except errors.UsageError:  # no name for a group, there
            _lose(report)
            continue
        of_group = records.setdefault(group_partition(commit.group, options.offsets_topic_partitions), [])
        mark = (rocketmq_origin.COMMIT, str(offset).encode())
        of_group.append(Record(len(of_group), now_ms, TimestampType.CREATE_TIME, key, value, (mark,)))
        report.group_offsets += 1
    return {
        (OFFSETS_TOPIC, number): _write_partition(root / partition_directory_name(OFFSETS_TOPIC, number), found, config)
        for number, found in records.items()
    }


def _write_partition(directory: Path, records: list[Record], config: KafkaConfig) -> int:
    reading, writing = FilePool(), FilePool(writable=True)
    try:
        writer = PartitionWriter(directory, config, reading, writing)
        for record in records:
            writer.append(record)
        writer.close()
        return writer.end_offset
    finally:
        reading.close()
        writing.close()


def holds_saved_offsets_alone(partition: PartitionView) -> bool:
    """Whether all of a partition was written by :func:`write`: no message was there, and none is to be made."""
    if partition.topic != OFFSETS_TOPIC:
        return False
    damages: list[BatchDamage] = []

    def note(damage: BatchDamage) -> bool:
        damages.append(damage)
        return False

    count = 0
    for record in partition.records(on_damage=note):
        count += 1
        if [name for name, _ in record.headers] != [rocketmq_origin.COMMIT]:
            return False
    return count > 0 and not damages
