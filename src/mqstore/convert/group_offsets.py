"""What consumer groups have committed, from Kafka's ``__consumer_offsets`` into a store's ``consumerOffset.json``.

The records of that topic are converted like all others, and are back after the way back. Besides, the newest commit of
each group is made known to the new store, for the topics that are converted (docs/kafka.md, "Moving data").
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from mqstore import errors
from mqstore.convert.options import ConvertOptions
from mqstore.convert.report import ConversionReport, Loss, PartitionReport
from mqstore.kafka.damage import BatchDamage, raise_at_damage
from mqstore.kafka.message import Isolation
from mqstore.kafka.view import KafkaView
from mqstore.layout.kafka.internal_topics import OFFSETS_TOPIC, decode_internal
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
            report.losses[Loss.GROUP_OFFSETS] = report.losses.get(Loss.GROUP_OFFSETS, 0) + 1
