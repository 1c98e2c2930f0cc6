"""Whether the queues of a store say where all of its records are, so that a few of them can be read by their units.

A queue file may be missing, stale or damaged, a record may have no unit, and no file says so. But records lie one
behind the other: if the units of *all* queues that lead into a log file cover it from its start without a gap, then
every record of the file has its unit and every unit is right. One sum tells that, as the ends of things that lie one
behind the other are the beginnings of the next: of all h(end) - h(begin), where h scatters its results over all 64-bit
numbers. What is missing and what is there twice cannot make up for each other then, as they could in sums of sizes.

That a record has a unit does not say that it is a unit of the record's own queue: a directory may bear another's name.
So the first, the last and the middle record of each stretch of units must say that they are of that queue and at that
place in it. Units of which they say otherwise count for nothing. So each log file up to the last unit is either proved
to be described by the queues, or read from end to end.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from mqstore import errors
from mqstore.files.inventory import FileEntry
from mqstore.files.pool import FilePool
from mqstore.layout.constants import LMQ_PREFIX, QUEUE_UNIT_SIZE
from mqstore.layout.record import Record, queue_of
from mqstore.spark.arrays import UNIT, Numbers
from mqstore.spark.queue_splits import estimated_bytes
from mqstore.spark.selection import Selection
from mqstore.spark.stores import StoreRef
from mqstore.store.log_reader import LogReader
from mqstore.store.queue_reader import QueueReader

_MOST_WANTED: Final = 20_000_000
_QUEUES_AT_A_TIME: Final = 2  # most of it is reading and sums, which let go of the interpreter; more was not measured
_ODD: Final = np.uint64(0x9E3779B97F4A7C15)
_HALF: Final = np.uint64(32)
QUEUE_COST_BYTES: Final = 32 << 10
"""What it takes to look at one queue, as bytes that could be read in that time."""


class GuideRefusedError(Exception):
    """The queues cannot be gone by, or it would not pay; the text says why."""


class WantedQueue(NamedTuple):
    """Places of a queue's messages from offset ``first`` on, ascending."""

    topic: str
    queue_id: int
    first: int
    begins: Numbers
    sizes: Numbers


@dataclass
class Guide:
    """What the queues of a store say.

    Attributes:
        described: ranges of the log of which every record has its unit.
        wanted: the queues that rows are wanted of.
        unit_bytes, queues: how much was read to find out, of how many queues.
        last: the last record that has a unit, if it is in one of those ranges.
    """

    described: list[tuple[int, int]] = field(default_factory=list)
    wanted: list[WantedQueue] = field(default_factory=list)
    unit_bytes: int = 0
    queues: int = 0
    last: Record | None = None


def consult(store: StoreRef, log: LogReader, selection: Selection, limit_bytes: int) -> Guide:
    """Read the units of all queues of a store.

    Args:
        store: the store.
        log: its log.
        selection: the rows that are wanted; of their queues the units are kept.
        limit_bytes: how much is worth reading of queues and wanted messages together.

    Raises:
        GuideRefusedError: that limit would be passed, the wanted queues are not in order, or a file could not be read.
    """
    pool = FilePool()
    try:
        keys = [key for key in store.paths.list_queues() if not key[0].startswith(LMQ_PREFIX)]
        _check_worth(len(keys) * QUEUE_COST_BYTES, limit_bytes)
        queues = [_files_of(store, log, pool, selection, *key) for key in keys]
        _check_cost(queues, limit_bytes)
        return _Tally(log).run(queues)
    except errors.StoreIOError as error:  # of a queue that is not wanted, most often; the log has what is
        raise GuideRefusedError(f"the queues cannot be read: {error}") from None
    finally:
        pool.close()


class _QueueFiles(NamedTuple):
    reader: QueueReader
    begin: int
    end: int
    wanted: bool


def _files_of(
    store: StoreRef, log: LogReader, pool: FilePool, selection: Selection, topic: str, queue_id: int
) -> _QueueFiles:
    reader = QueueReader(topic, queue_id, store.paths.queue(topic, queue_id), pool)
    end = reader.find_end(log.inventory.end)
    begin = reader.find_min(log.min_offset, end)
    return _QueueFiles(reader, begin, end, selection.wants_queue(topic, queue_id))


def _check_cost(queues: list[_QueueFiles], limit_bytes: int) -> None:
    cost = len(queues) * QUEUE_COST_BYTES + sum(one.end - one.begin for one in queues) * QUEUE_UNIT_SIZE
    wanted = [one for one in queues if one.wanted]
    cost += sum(estimated_bytes(one.reader, one.begin, one.end) for one in wanted)
    _check_worth(cost, limit_bytes)
    messages = sum(max(0, one.end - one.begin) for one in wanted)
    if messages > _MOST_WANTED:
        raise GuideRefusedError(f"{messages} messages are too many to plan one by one")


def _check_worth(cost_bytes: int, limit_bytes: int) -> None:
    if cost_bytes > limit_bytes:
        raise GuideRefusedError(f"it would take about {cost_bytes} bytes, more than {limit_bytes}")


class _Tally:
    """Adds up what the units of all queues claim of each log file; of several queues at once, as sums have no order."""

    def __init__(self, log: LogReader) -> None:
        self._log = log
        self._entries = log.inventory.entries
        self._starts = np.array([entry.start for entry in self._entries], np.int64)
        self._lengths = np.array([entry.length for entry in self._entries], np.int64)
        count = len(self._entries)
        # Whole numbers that wrap around: equal sums stay equal, and a wrong one is as good as sure to differ.
        self._sums: Numbers = np.zeros(count, np.uint64)
        self._ends: Numbers = np.zeros(count, np.int64)
        self._last: tuple[int, int] = (-1, 0)
        self._guard = threading.Lock()

    def run(self, queues: list[_QueueFiles]) -> Guide:
        """The verdict."""
        guide = Guide(queues=len(queues))
        with ThreadPoolExecutor(_QUEUES_AT_A_TIME) as threads:
            for one, (unit_bytes, kept) in zip(queues, threads.map(self._go_through, queues), strict=True):
                guide.unit_bytes += unit_bytes
                if kept:
                    guide.wanted.append(_wanted(one, kept))
        guide.described = list(self._described())
        if guide.described and self._last[0] < guide.described[-1][1]:
            guide.last = self._log.record_at(*self._last)
        return guide

    def _go_through(self, one: _QueueFiles) -> tuple[int, list[tuple[Numbers, Numbers]]]:
        """Add the units of a queue: how many bytes they take, and places and sizes if they are wanted."""
        unit_bytes = 0
        kept: list[tuple[Numbers, Numbers]] = []
        for first, _, data in one.reader.stretches(one.begin, one.end):
            units = np.frombuffer(data, UNIT)
            begins, sizes = (units[name].astype(np.int64) for name in ("physicalOffset", "storeSize"))
            # What a missing file would claim is missing from the sums, and so is what leads to others' messages.
            if not self._are_of(one.reader, first, begins, sizes):
                if one.wanted:
                    what = "leads to messages of others" if data else "is missing"
                    raise GuideRefusedError(f"a file of queue {one.reader.topic}/{one.reader.queue_id} {what}")
                continue
            self._add(begins, sizes)
            if one.wanted:
                kept.append((begins, sizes))
            unit_bytes += len(data)
        return unit_bytes, kept

    def _are_of(self, queue: QueueReader, first: int, begins: Numbers, sizes: Numbers) -> bool:
        """Whether units from queue offset ``first`` on lead to the queue's messages, as far as three of these tell."""
        judged = False
        for number in sorted({0, len(begins) // 2, len(begins) - 1}) if len(begins) else ():
            found = self._queue_at(int(begins[number]), int(sizes[number]))
            if found is not None and found != (queue.topic, queue.queue_id, first + number):
                return False
            judged |= found is not None
        return judged

    def _queue_at(self, begin: int, size: int) -> tuple[str, int, int] | None:
        """Topic, queue id and queue offset of a record; None where no record is, so that a unit is stale or wrong."""
        found = queue_of(lambda position, count: self._log.read(begin + position, count) or b"", size)
        return None if found is None or found[0] != begin else found[1:]

    def _add(self, begins: Numbers, sizes: Numbers) -> None:
        least = self._starts.min(initial=1 << 62)
        if not len(begins) or begins[0] < least or sizes.min() <= 0 or (begins[1:] < begins[:-1]).any():
            sound = (begins >= least) & (sizes > 0)
            begins, sizes = begins[sound], sizes[sound]
            order = np.argsort(begins, kind="stable")
            begins, sizes = begins[order], sizes[order]
        if not len(begins):
            return
        low, high = (np.searchsorted(self._starts, begins[[0, -1]], side="right") - 1).tolist()
        borders = np.searchsorted(begins, self._starts[low : high + 1])
        led_to = np.flatnonzero(np.diff(borders, append=len(begins)))
        ends = begins + sizes
        claims = _scattered(ends)
        claims -= _scattered(begins)
        files, firsts = low + led_to, borders[led_to]
        sums, last_ends = np.add.reduceat(claims, firsts), np.maximum.reduceat(ends, firsts)
        with self._guard:
            self._sums[files] += sums
            self._ends[files] = np.maximum(self._ends[files], last_ends)
            self._last = max(self._last, (int(begins[-1]), int(sizes[-1])))

    def _described(self) -> Iterator[tuple[int, int]]:
        proved = self._sums == _scattered(self._ends) - _scattered(self._starts)
        proved &= (self._ends > self._starts) & (self._ends <= self._starts + self._lengths)
        for number in np.flatnonzero(proved).tolist():
            entry = self._entries[number]
            yield entry.start, self._end_of(entry, int(self._ends[number]))

    def _end_of(self, entry: FileEntry, last_end: int) -> int:
        """Where what is described of a file ends: with the file if nothing but a blank record follows."""
        return self._log.end_of_closed_file(last_end) or last_end if last_end < entry.start + entry.length else last_end


def _scattered(offsets: Numbers) -> Numbers:
    """Numbers that have nothing to do with each other, the same for the same offset."""
    mixed = offsets.view(np.uint64) * _ODD
    mixed ^= mixed >> _HALF
    mixed *= mixed
    return mixed


def _wanted(one: _QueueFiles, kept: list[tuple[Numbers, Numbers]]) -> WantedQueue:
    begins, sizes = (np.concatenate(parts) for parts in zip(*kept, strict=True))
    if (begins[1:] <= begins[:-1]).any():
        raise GuideRefusedError(f"the units of queue {one.reader.topic}/{one.reader.queue_id} are not in order")
    return WantedQueue(one.reader.topic, one.reader.queue_id, one.begin, begins, sizes)
