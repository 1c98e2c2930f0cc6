"""One partition read from its directory as it is at each call: beside a live broker, after a crash, or a copy."""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from mqstore import errors
from mqstore.files.pool import FilePool
from mqstore.files.whole import read_whole
from mqstore.kafka import lookup
from mqstore.kafka.arguments import check_limits, check_offset, check_offsets, check_time
from mqstore.kafka.damage import BatchDamage, Reporter, next_batch, raise_at_damage, stop_at_damage
from mqstore.kafka.leftovers import OddSegment, visible_segments
from mqstore.kafka.lookup import BatchPlace, OffsetTime
from mqstore.kafka.message import GetResult, Isolation
from mqstore.kafka.order import OUT_OF_ORDER, OffsetOrder
from mqstore.kafka.producer_state import ProducerStates
from mqstore.kafka.reading import LogRange, get_records
from mqstore.kafka.segment import TRIES, Chunk, Segment, SegmentGoneError, again_if_gone, wait_a_little
from mqstore.kafka.stock import PartitionStock, take_partition_stock
from mqstore.kafka.transactions import aborted_between, producers_at, replay
from mqstore.layout.constants import LONG_MAX
from mqstore.layout.kafka import names
from mqstore.layout.kafka.batch import decode_header
from mqstore.layout.kafka.checkpoints import EpochEntry, decode_leader_epochs, decode_topic_id
from mqstore.layout.kafka.producer_snapshot import ProducerEntry
from mqstore.layout.kafka.record import Record
from mqstore.layout.kafka.txn_index import AbortedTransaction

_log = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")
ItemT = TypeVar("ItemT")

_JUDGING_BATCHES = 4
"""How many batches tell which of them has a wrong offset."""

_TRUSTED_AGE_NS = 50_000_000
"""A directory changed more recently is listed again: file systems note times in ticks."""


class PartitionView:
    """A partition's log, read-only. Safe for several threads.

    The end of the log is where the last whole batch ends. There is no broker to ask, so that the log end also stands
    for the high watermark.

    Attributes:
        topic: the topic's name.
        partition: the partition's number.
        directory: where its files lie.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        directory: Path,
        pool: FilePool,
        *,
        start_offset: Callable[[], int] = lambda: 0,
        only: int | None = None,
    ) -> None:
        """Look at ``directory``; ``only`` is the base offset of the one segment to look at."""
        self.topic = topic
        self.partition = partition
        self.directory = directory
        self._pool = pool
        self._checkpointed_start = start_offset
        self._only = only
        self._guard = threading.RLock()
        self._stock = PartitionStock(directory)
        self._stamp = (-1, -1)
        self._segments: dict[int, Segment] = {}
        self._tail = _Tail()
        self._producers: ProducerStates | None = None
        self._warned = False

    # -- what there is

    @property
    def stock(self) -> PartitionStock:
        """The files of the directory."""
        self._refresh()
        return self._stock

    def segments(self) -> list[Segment]:
        """The segments in order, each with the part of its ``.log`` that can be read now."""
        return self.again(self._list_segments)

    def _list_segments(self) -> list[Segment]:
        with self._guard:
            self._refresh()
            segments = [self._segments[base] for base in sorted(self._segments)]
            for segment in segments[:-1]:
                segment.limit_bytes = None
            if segments:
                last = segments[-1]
                self._tail.follow(type(last)(self.directory, last.base_offset, self._pool))
                last.limit_bytes = self._tail.position
            return segments

    def raw_segments(self) -> list[Segment]:
        """The segments that have a ``.log``, in order, with all of it, behind the last whole batch as well."""
        with self._guard:
            self._refresh()
            known = sorted(self._segments.items())
            kinds = [(base, type(segment)) for base, segment in known if not isinstance(segment, OddSegment)]
            return [kind(self.directory, base, self._pool) for base, kind in kinds]

    def _directory_stamp(self) -> tuple[int, int]:
        try:
            status = os.stat(self.directory)
        except OSError as error:
            raise errors.from_os_error(error, "look at directory", self.directory) from error
        return status.st_ino, status.st_mtime_ns

    def _refresh(self) -> None:
        stamp = self._directory_stamp()
        if stamp == self._stamp:
            return
        with self._guard:
            self._stock = self._list_files()
            self._warn()
            visible = visible_segments(self._stock, self._pool)
            self._keep({base: kind for base, kind in visible.items() if self._only is None or base == self._only})
            self._stamp = stamp if _is_settled(stamp) else (-1, -1)

    def _list_files(self) -> PartitionStock:
        """The files of the directory, listed anew until they stay the same.

        A file that is renamed while a long directory is being listed may be missed under both names.
        """
        found = take_partition_stock(self.directory)
        for _ in range(TRIES):
            if _is_settled(self._directory_stamp()):
                break
            before, found = found, take_partition_stock(self.directory)
            if before == found:
                break
        return found

    def _keep(self, wanted: dict[int, type[Segment]]) -> None:
        for base, segment in list(self._segments.items()):
            if type(segment) is not wanted.get(base) or segment.was_replaced():
                segment.forget()
                del self._segments[base]
                self._producers = None
        for base, kind in wanted.items():
            if base not in self._segments:
                self._segments[base] = kind(self.directory, base, self._pool, limit_bytes=0)

    def _warn(self) -> None:
        # Who needs one of these gets an error.
        needed = [*self._stock.odd_logs.values(), *self._stock.odd_swaps.values()]
        unknown = self._stock.foreign + [path for path in self._stock.odd if path not in needed]
        if unknown and not self._warned:
            self._warned = True
            _log.warning("passing over %d files that belong to no segment, as %s", len(unknown), unknown[0])

    @property
    def log_start_offset(self) -> int:
        """First offset that may be read: the first segment's base offset, or later where records were deleted."""
        return self.again(lambda: self._range(Isolation.READ_UNCOMMITTED).start)

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record will get."""
        return self.again(lambda: self._range(Isolation.READ_UNCOMMITTED).end)

    @property
    def last_stable_offset(self) -> int:
        """First offset of the oldest open transaction, the log end without one: where committed records end."""
        return self.again(lambda: self._range(Isolation.READ_COMMITTED).end)

    @property
    def leader_epochs(self) -> list[EpochEntry]:
        """The leader epochs noted; none where the file is missing.

        Raises:
            CorruptFileError: the file is damaged.
        """
        data = read_whole(self.directory / names.LEADER_EPOCHS, "leader epoch checkpoint")
        return [] if data is None else decode_leader_epochs(data)

    @property
    def topic_id(self) -> uuid.UUID | None:
        """The topic's id; None where ``partition.metadata`` is missing."""
        data = read_whole(self.directory / names.PARTITION_METADATA, "partition.metadata")
        return None if data is None else decode_topic_id(data)

    # -- records

    def _range(self, isolation: Isolation) -> LogRange:
        with self._guard:
            # Both of one moment: a segment that comes up in between would be passed over by who goes on from the end.
            segments = self._list_segments()
            noted_start = self._checkpointed_start()
            start = max(noted_start, segments[0].base_offset if segments else 0)
            end = max(self._tail.end_offset, noted_start) if segments else noted_start
            if isolation is Isolation.READ_UNCOMMITTED:
                return LogRange(segments, start, end)
            return LogRange(segments, start, self._stable(segments, start, end), self.aborted_transactions)

    def _stable(self, segments: list[Segment], start: int, end: int) -> int:
        first_open = self._producer_states(segments, end).first_open_offset
        return end if first_open is None else min(max(first_open, start), end)

    def get(
        self,
        offset: int,
        *,
        max_messages: int = 32,
        max_bytes: int = 1 << 20,
        isolation: str | Isolation = Isolation.READ_UNCOMMITTED,
        on_damage: Reporter = raise_at_damage,
    ) -> GetResult:
        """Records from ``offset`` on; see :meth:`mqstore.kafka.KafkaView.get`."""
        check_limits(max_messages, max_bytes)
        check_offset("offset", offset)
        level = Isolation.parse(isolation)
        return self.again(lambda: get_records(self._range(level), offset, max_messages, max_bytes, on_damage))

    def again(self, action: Callable[[], ResultT]) -> ResultT:
        """What ``action`` gives; done again, a few times, when a segment was removed or replaced under it."""
        return again_if_gone(action, self._forget_listing)

    def _forget_listing(self) -> None:
        self._stamp = (-1, -1)

    def forget(self) -> None:
        """Close its files: the directory was removed."""
        with self._guard:
            self._keep({})
            self._forget_listing()

    def _resumed(self, walk: Callable[[int], Iterator[tuple[BatchPlace, ItemT]]], start: int) -> Iterator[ItemT]:
        """The items of ``walk``, begun anew behind the last batch when a segment was removed or replaced meanwhile."""
        offset, tried = start, 0
        while True:
            try:
                for place, item in walk(offset):
                    yield item
                    offset, tried = place.header.last_offset + 1, 0
                return
            except SegmentGoneError:
                if tried == TRIES:
                    raise
                wait_a_little(tried)
                tried += 1
                self._forget_listing()

    def records(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        isolation: str | Isolation = Isolation.READ_UNCOMMITTED,
        on_damage: Reporter = raise_at_damage,
    ) -> Iterator[Record]:
        """The records with offsets from ``start`` to ``end`` (exclusive), in order; control records are none.

        Raises:
            CorruptBatchError: a damaged batch, unless ``on_damage`` decides to go on behind it.
            CorruptFileError: something else than a file lies in place of a ``.log`` that is needed.
        """
        check_offsets(start=start, end=end)
        level = Isolation.parse(isolation)

        def walk(offset: int) -> Iterator[tuple[BatchPlace, list[Record]]]:
            for place, records in self._range(level).record_batches(offset, on_damage):
                is_behind = end is not None and place.header.base_offset >= end
                # A compressed message of an old format tells its last offset alone: its first may lie before the end.
                if not is_behind or place.header.is_wrapper:
                    yield place, records
                if end is not None and place.header.last_offset >= end - 1:
                    return  # what follows is not looked at, sound or not

        for records in self._resumed(walk, start or 0):
            yield from (record for record in records if end is None or record.offset < end)

    def batches(
        self, start: int | None = None, end: int | None = None, *, on_damage: Reporter = raise_at_damage
    ) -> Iterator[BatchPlace]:
        """The batches that hold offsets from ``start`` to ``end`` (exclusive), control batches among them."""
        check_offsets(start=start, end=end)

        def walk(offset: int) -> Iterator[tuple[BatchPlace, BatchPlace]]:
            for place in self._range(Isolation.READ_UNCOMMITTED).batches(offset, on_damage):
                is_behind = end is not None and place.header.base_offset >= end
                if not is_behind or place.header.is_wrapper:
                    yield place, place
                if end is not None and place.header.last_offset >= end - 1:
                    return  # what follows is not looked at, sound or not

        yield from self._resumed(walk, start or 0)

    def chunks(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        check_crc: bool = True,
        on_damage: Reporter = raise_at_damage,
    ) -> Iterator[tuple[Segment, Chunk]]:
        """The batches as columns, a megabyte of log at a time, for the kernels.

        The last chunk may hold batches from ``end`` (exclusive) on. A batch whose offset cannot be right is told as
        damage; who goes on finds it in the columns all the same.
        """
        check_offsets(start=start, end=end)

        def walk(offset: int) -> Iterator[tuple[BatchPlace, tuple[Segment, Chunk]]]:
            log = self._range(Isolation.READ_UNCOMMITTED)
            first = max(offset, log.start)
            order: OffsetOrder[int] = OffsetOrder()
            for number in range(lookup.floor_segment(log.segments, first), len(log.segments)):
                segment = log.segments[number]
                if end is not None and segment.base_offset >= end:
                    return
                position = _position_of(segment, first) if segment.base_offset < first else 0
                for chunk in segment.chunks(position, check_crc=check_crc, on_damage=on_damage):
                    if not all(on_damage(one) for one in _odd_batches(segment, chunk, order)):
                        return
                    last = decode_header(chunk.buffer, chunk.columns.position[chunk.columns.count - 1])
                    yield BatchPlace(segment, chunk.position + last.position, last, chunk.buffer), (segment, chunk)
                    if end is not None and last.last_offset >= end - 1:
                        return

        yield from self._resumed(walk, start or 0)

    # -- look-up

    def find_batch(self, offset: int) -> BatchPlace | None:
        """The first batch whose last offset is not below ``offset``; None behind the last."""
        check_offset("offset", offset)
        return self.again(lambda: lookup.find_batch(self.segments(), offset))

    def offset_at(self, timestamp_ms: int | str) -> OffsetTime | None:
        """See :meth:`mqstore.kafka.KafkaView.offset_at`."""
        check_time(timestamp_ms)
        return self.again(
            lambda: lookup.offset_at(self.segments(), timestamp_ms, self.log_start_offset, self.log_end_offset)
        )

    # -- transactions and producers

    def aborted_transactions(self, start: int | None = None, end: int | None = None) -> list[AbortedTransaction]:
        """The aborted transactions with records from ``start`` to ``end`` (exclusive), by their markers' offsets."""
        check_offsets(start=start, end=end)

        def find() -> list[AbortedTransaction]:
            log = self._range(Isolation.READ_UNCOMMITTED)
            stop = log.end if end is None else end
            return aborted_between(self._stock, log.segments, start or 0, stop, log.end)

        return self.again(find)

    def producers(self) -> list[ProducerEntry]:
        """What the log tells of its producers, up to its end."""

        def look() -> list[ProducerEntry]:
            with self._guard:
                log = self._range(Isolation.READ_UNCOMMITTED)
                return self._producer_states(log.segments, log.end).entries()

        return self.again(look)

    def _producer_states(self, segments: Sequence[Segment], end: int) -> ProducerStates:
        states, self._producers = self._producers, None
        if states is None or states.end_offset > end:
            states = producers_at(self._stock, segments, end)
        elif states.end_offset < end:
            replay(states, segments[lookup.floor_segment(segments, states.end_offset) :], end)
        self._producers = states  # not one that a vanishing segment has left half-way
        return states


def _is_settled(stamp: tuple[int, int]) -> bool:
    return time.time_ns() - stamp[1] > _TRUSTED_AGE_NS


def _odd_batches(segment: Segment, chunk: Chunk, order: OffsetOrder[int]) -> Iterator[BatchDamage]:
    """The batches of a chunk whose offset cannot be right."""
    columns = chunk.columns
    for row in range(columns.count):
        position = chunk.position + columns.position[row]
        odd = order.odd_one(position, columns.base_offset[row], columns.last_offset[row])
        if odd is not None:  # the one before it may be in another segment, which had its turn
            yield BatchDamage(segment.path(), min(odd, position), OUT_OF_ORDER)


def _position_of(segment: Segment, offset: int) -> int:
    """Position of the batch that holds ``offset``, or the first behind it; the segment's end without one."""
    start = lookup.start_position(segment, offset)
    for position, header, _ in segment.headers(start, on_damage=stop_at_damage):
        if header.last_offset >= offset:
            return position
        start = position + header.size
    return start


class _Tail:
    """Where the last segment's whole batches end; walked on as the segment grows."""

    def __init__(self) -> None:
        self._key: tuple[int, int] = (-1, -1)
        self._seen_size = -1
        self.position = 0
        self.end_offset = 0
        self._order: OffsetOrder[int] = OffsetOrder()

    def follow(self, segment: Segment) -> None:
        """Look at what has come since last time; ``segment`` is one without limit."""
        size = segment.size_bytes
        key = (segment.base_offset, segment.identity)
        if key != self._key or size < self.position:
            self._key = key
            self._seen_size = -1
            self._start(segment)
        if size == self._seen_size:
            return
        self._seen_size = size
        start: int | None = self.position
        while start is not None:
            scan = segment.scan(start, check_crc=False)
            for chunk in scan:
                self._note_end(chunk)
            if scan.position > start:
                self.position = scan.position
            # A sound batch behind it makes it damage, which readers must be told of, and no torn end.
            start = None if scan.damage is None else next_batch(segment, scan.position, scan.damage.size_bytes)

    def _note_end(self, chunk: Chunk) -> None:
        """Where the log ends behind ``chunk``: its last batches tell, as one of them may have a wrong offset."""
        columns = chunk.columns
        for row in range(max(0, columns.count - _JUDGING_BATCHES), columns.count):
            self._order.odd_one(row, columns.base_offset[row], columns.last_offset[row])
        self.end_offset = self._order.end_offset

    def _start(self, segment: Segment) -> None:
        """Begin a few index entries before the last, so that there are batches to judge the last ones by."""
        index, offset = segment.offset_index(), LONG_MAX
        for _ in range(_JUDGING_BATCHES):
            offset = max(index.floor(offset).offset - 1, 0)
        self.position = lookup.start_position(segment, offset)
        self.end_offset = segment.base_offset
        self._order = OffsetOrder(segment.base_offset)
