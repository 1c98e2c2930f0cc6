"""Figures of a partition, from the headers of its batches."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from mqstore.kafka.partition_view import PartitionView
from mqstore.layout.kafka.constants import MAGIC_V2, Codec


@dataclass
class PartitionStats:
    """Figures of one partition. ``records`` counts those stored, control records among them; a compressed message of
    the old formats, which does not tell what it holds, counts as one.

    Attributes:
        batches_by_codec: batches of each codec, by its name.
        bytes_by_codec: their sizes on disk.
        largest_batch_bytes: size of the largest batch.
        min_timestamp_ms: smallest largest timestamp of a batch; -1 without timestamps.
        max_timestamp_ms: largest timestamp; -1 without timestamps.
        damaged: runs of bytes that are no sound batch.
    """

    topic: str
    partition: int
    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int
    segments: int
    size_bytes: int
    batches: int = 0
    records: int = 0
    control_batches: int = 0
    transactional_batches: int = 0
    batches_by_codec: Counter[str] = field(default_factory=Counter)
    bytes_by_codec: Counter[str] = field(default_factory=Counter)
    batches_by_magic: Counter[int] = field(default_factory=Counter)
    largest_batch_bytes: int = 0
    min_timestamp_ms: int = -1
    max_timestamp_ms: int = -1
    damaged: int = 0

    @property
    def queue_id(self) -> int:
        """The partition, under the other layout's name."""
        return self.partition

    @property
    def min_offset(self) -> int:
        """The log start offset, under the other layout's name."""
        return self.log_start_offset

    @property
    def max_offset(self) -> int:
        """The log end offset, under the other layout's name."""
        return self.log_end_offset


def partition_stats(partition: PartitionView) -> PartitionStats:
    """Figures of ``partition``; reads every batch's header and passes over damage."""
    return partition.again(lambda: _count(partition))


def _count(partition: PartitionView) -> PartitionStats:
    segments = partition.segments()
    stats = PartitionStats(
        partition.topic,
        partition.partition,
        partition.log_start_offset,
        partition.log_end_offset,
        partition.last_stable_offset,
        len(segments),
        sum(segment.size_bytes for segment in segments),
    )

    def count(damage: object) -> bool:
        stats.damaged += 1
        return True

    for segment in segments:
        for _, header, _ in segment.headers(on_damage=count):
            _add(stats, header.codec, header.magic, header.size, header.max_timestamp_ms)
            stats.records += max(1, header.record_count) if header.magic < MAGIC_V2 else header.record_count
            stats.control_batches += header.is_control
            stats.transactional_batches += header.is_transactional
    return stats


def _add(stats: PartitionStats, codec: Codec, magic: int, size_bytes: int, timestamp_ms: int) -> None:
    stats.batches += 1
    stats.batches_by_codec[codec.name.lower()] += 1
    stats.bytes_by_codec[codec.name.lower()] += size_bytes
    stats.batches_by_magic[magic] += 1
    stats.largest_batch_bytes = max(stats.largest_batch_bytes, size_bytes)
    if timestamp_ms >= 0:
        stats.max_timestamp_ms = max(stats.max_timestamp_ms, timestamp_ms)
        known = stats.min_timestamp_ms
        stats.min_timestamp_ms = timestamp_ms if known < 0 else min(known, timestamp_ms)
