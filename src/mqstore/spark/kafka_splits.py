"""Byte ranges of segments: from the start of one batch to the start of another, each read by one task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final, NamedTuple

from mqstore.kafka import lookup
from mqstore.kafka.damage import stop_at_damage
from mqstore.kafka.partition_view import PartitionView
from mqstore.kafka.segment import Segment
from mqstore.layout.constants import LONG_MAX
from mqstore.layout.kafka.header import BatchHeader
from mqstore.spark.kafka_offsets import Offsets
from mqstore.spark.kafka_options import KafkaReadOptions, Partition
from mqstore.spark.option_values import LEAST_SPLIT_BYTES

_INDEXED_SPLIT_BYTES: Final = 1 << 20
"""Splits of this size and more are cut where an index points; smaller ones may be finer than the index."""


class KafkaSplit(NamedTuple):
    """Records with offsets in [first_offset, end_offset) of the batches in [begin, end) of one ``.log``.

    ``aborted`` are the aborted transactions that concern them, as (producer id, first offset, last offset). By
    ``identity`` the ``.log`` is told from one that compaction puts in its place. Batches from ``context`` on are looked
    at to judge the offsets of those from ``begin`` on; none can reach ``ceiling``, at which what follows begins.
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
    context: int = 0
    ceiling: int = LONG_MAX


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
    split_bytes = min(options.split_bytes, max(LEAST_SPLIT_BYTES, -(-size // options.min_partitions)))
    return [
        split._replace(context=context, begin=begin, end=stop)
        for segment, split in wholes
        for context, begin, stop in _cut(segment, split.begin, split.end, split_bytes)
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
        following = segments[number + 1].base_offset if number + 1 < len(segments) else LONG_MAX
        stop, ceiling = segment.size_bytes, following
        if following >= end and (following < LONG_MAX or end < partition.log_end_offset):
            stop, ceiling = _end_position(segment, end, following)
        if begin < stop:
            yield segment, KafkaSplit(
                partition.topic, partition.partition, str(partition.directory), segment.base_offset, begin, stop,
                start, end, tuple(aborted), segment.identity, begin, ceiling,
            )  # fmt: skip


def _position(segment: Segment, offset: int) -> int:
    """Where the first batch begins that ends at or behind ``offset``.

    In front of damage the walk ends: what lies there is for the task to judge.
    """
    start = lookup.start_position(segment, offset)
    position = start
    for position, header, _ in segment.headers(start, on_damage=stop_at_damage):
        if header.last_offset >= offset:
            return position
        position += header.size
    return position


def _end_position(segment: Segment, offset: int, following: int) -> tuple[int, int]:
    """Behind the first batch that holds ``offset``, or before one that begins there; and what offset comes next.

    A batch that reaches the offset may do so by a flipped bit, which the one behind it shows.
    """
    reaching: BatchHeader | None = None
    stop, is_behind = 0, False
    for position, header, _ in segment.headers(lookup.start_position(segment, offset), on_damage=stop_at_damage):
        if reaching is not None and header.base_offset > reaching.last_offset:
            return (stop, reaching.base_offset) if stop < position else (stop, header.base_offset)
        reaching = header if header.last_offset >= offset else None
        is_behind = header.base_offset >= offset and not header.is_wrapper
        stop = position if is_behind else position + header.size
    if reaching is None:
        return segment.size_bytes, following
    return stop, (reaching.base_offset if is_behind else following)


def _cut(segment: Segment, begin: int, end: int, split_bytes: int) -> Iterator[tuple[int, int, int]]:
    """[begin, end) in pieces of about ``split_bytes``, cut where batches begin, each with its context."""
    context = begin
    if end - begin > split_bytes:
        last = begin
        for before, position in _batch_starts(segment, begin, end, split_bytes):
            if position - last >= split_bytes:
                yield context, last, position
                context, last = before, position
        begin = last
    yield context, begin, end


def _batch_starts(segment: Segment, begin: int, end: int, split_bytes: int) -> Iterable[tuple[int, int]]:
    """Positions at which batches begin, ascending, from the index or from the batches themselves.

    Each comes with that of a batch a little before it.
    """
    if split_bytes >= _INDEXED_SPLIT_BYTES:
        entries = [one for one in segment.offset_index() if begin < one.position < end]
        if entries:
            wanted = begin
            for earlier, entry in pairwise(entries):
                if entry.position - wanted >= split_bytes and all(
                    _is_batch_start(segment, one.position, one.offset) for one in (entry, earlier)
                ):
                    yield earlier.position, entry.position
                    wanted = entry.position
            return
    two: list[int] = [begin, begin]
    for position, _, _ in segment.headers(begin, on_damage=stop_at_damage):
        if position >= end:
            return
        yield two[0], position
        two = [two[1], position]


def _is_batch_start(segment: Segment, position: int, offset: int) -> bool:
    """Whether the index is right: a batch begins here that does not begin behind the entry's offset."""
    found = next(iter(segment.headers(position, on_damage=stop_at_damage, check_crc=True)), None)
    return found is not None and found[0] == position and segment.base_offset <= found[1].base_offset <= offset
