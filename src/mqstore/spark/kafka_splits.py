"""Byte ranges of segments: from the start of one batch to the start of another, each read by one task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from mqstore.kafka import lookup
from mqstore.kafka.damage import stop_at_damage
from mqstore.kafka.partition_view import PartitionView
from mqstore.kafka.segment import Segment
from mqstore.spark.kafka_offsets import Offsets
from mqstore.spark.kafka_options import KafkaReadOptions, Partition

_INDEXED_SPLIT_BYTES: Final = 1 << 20
"""Splits of this size and more are cut where an index points; smaller ones may be finer than the index."""


class KafkaSplit(NamedTuple):
    """Records with offsets in [first_offset, end_offset) of the batches in [begin, end) of one ``.log``.

    ``aborted`` are the aborted transactions that concern them, as (producer id, first offset, last offset). By
    ``identity`` the ``.log`` is told from one that compaction puts in its place.
    """

    topic: str
    partition: int
    directory: str
    base_offset: int
    begin: int
    end: int
    first_offset: int
    end_offset: int
    aborted: tuple[tuple[int, int, int], ...] = ()
    identity: int = -1


def plan(
    partitions: dict[Partition, PartitionView], start: Offsets, end: Offsets, options: KafkaReadOptions
) -> list[KafkaSplit]:
    """The splits of a read, in the order of topics, partitions and offsets: together they hold every record once."""
    wholes = [
        whole
        for key, partition in partitions.items()
        if key in start and key in end and start[key] < end[key]
        for whole in _whole_segments(partition, start[key], end[key], options)
    ]
    size = sum(segment_split.end - segment_split.begin for _, segment_split in wholes)
    split_bytes = min(options.split_bytes, max(1, -(-size // options.min_partitions)))
    return [
        split._replace(begin=begin, end=stop)
        for segment, split in wholes
        for begin, stop in _cut(segment, split.begin, split.end, split_bytes)
    ]


def _whole_segments(
    partition: PartitionView, start: int, end: int, options: KafkaReadOptions
) -> Iterator[tuple[Segment, KafkaSplit]]:
    """One split for each segment that holds any of the offsets."""
    aborted = []
    if options.read_committed:
        found = partition.aborted_transactions(start, end)
        aborted = [(one.producer_id, one.first_offset, one.last_offset) for one in found]
    segments = partition.segments()
    first = lookup.floor_segment(segments, start)
    for number in range(first, len(segments)):
        segment = segments[number]
        if segment.base_offset >= end:
            return
        begin = _position(segment, start) if number == first else 0
        is_last = number + 1 == len(segments) or segments[number + 1].base_offset >= end
        stop = _position(segment, end, behind=True) if is_last else segment.size_bytes
        if begin < stop:
            yield segment, KafkaSplit(
                partition.topic, partition.partition, str(partition.directory), segment.base_offset, begin, stop,
                start, end, tuple(aborted), segment.identity,
            )  # fmt: skip


def _position(segment: Segment, offset: int, behind: bool = False) -> int:
    """Where the first batch begins that ends at or behind ``offset``; ``behind`` one that holds it, too.

    In front of damage the walk ends: what lies there is for the task to judge.
    """
    start = lookup.start_position(segment, offset)
    position = start
    for position, header, _ in segment.headers(start, on_damage=stop_at_damage):
        if header.base_offset >= offset and not header.is_wrapper:
            return position
        if header.last_offset >= offset:
            return position + header.size if behind else position
        position += header.size
    return segment.size_bytes if behind else position


def _cut(segment: Segment, begin: int, end: int, split_bytes: int) -> Iterator[tuple[int, int]]:
    """[begin, end) in pieces of about ``split_bytes``, cut where batches begin."""
    if end - begin > split_bytes:
        last = begin
        for position in _batch_starts(segment, begin, end, split_bytes):
            if position - last >= split_bytes:
                yield last, position
                last = position
        begin = last
    yield begin, end


def _batch_starts(segment: Segment, begin: int, end: int, split_bytes: int) -> Iterable[int]:
    """Positions at which batches begin, ascending, from the index or from the batches themselves."""
    if split_bytes >= _INDEXED_SPLIT_BYTES:
        entries = [one for one in segment.offset_index() if begin < one.position < end]
        if entries:
            wanted = begin
            for entry in entries:
                if entry.position - wanted >= split_bytes and _is_batch_start(segment, entry.position, entry.offset):
                    yield entry.position
                    wanted = entry.position
            return
    for position, _, _ in segment.headers(begin, on_damage=stop_at_damage):
        if position >= end:
            return
        yield position


def _is_batch_start(segment: Segment, position: int, offset: int) -> bool:
    """Whether the index is right: a batch begins here that does not begin behind the entry's offset."""
    found = next(iter(segment.headers(position, on_damage=stop_at_damage, check_crc=True)), None)
    return found is not None and found[0] == position and segment.base_offset <= found[1].base_offset <= offset
