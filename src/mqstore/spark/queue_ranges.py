"""Which queues there are now in the stores of a read, and where each begins and ends."""

from __future__ import annotations

import functools
import logging
from bisect import bisect_left
from collections.abc import Collection
from typing import NamedTuple

from mqstore.files.pool import FilePool
from mqstore.layout.constants import LMQ_PREFIX
from mqstore.spark.log_end import readable_end
from mqstore.spark.options import ReadOptions
from mqstore.spark.selection import Selection
from mqstore.spark.stores import StoreRef, find_stores
from mqstore.status import BoundaryType
from mqstore.store.log_reader import LogReader
from mqstore.store.queue_reader import QueueReader
from mqstore.store.queue_states import old_queues, old_reader, while_queues_stay
from mqstore.store.reading import offset_at_time
from mqstore.store.time_search import store_time_of

_log = logging.getLogger(__name__)


class Queue(NamedTuple):
    """A queue of a broker."""

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        return f"queue {self.topic}/{self.queue_id} of {self.broker_name}"


Offsets = dict[Queue, int]


class Range(NamedTuple):
    """Offsets [begin, end) are in the queue. ``log`` is that of its store."""

    store: StoreRef
    log: LogReader
    reader: QueueReader
    begin: int
    end: int

    def physical_offset(self, offset: int) -> int:
        """Where in the log the message at ``offset`` lies; -1 where no unit is."""
        unit = self.reader.unit(offset)
        return -1 if unit is None else unit.physical_offset

    def first_behind(self, physical_offset: int, low: int, high: int) -> int:
        """First offset in [low, high) whose message lies at or behind ``physical_offset``, else ``high``."""
        return low + bisect_left(range(low, high), physical_offset, key=self.physical_offset)

    def offset_at(self, timestamp_ms: int) -> int:
        """Offset of the first message stored at or after a time; ``end`` when none is."""
        return offset_at_time(
            lambda offset: store_time_of(self.log, self.reader, offset),
            self.begin, self.end, timestamp_ms, BoundaryType.LOWER,
        )  # fmt: skip


class KnownQueues:
    """The queues that a read is for. Files stay open between two looks; close it in the end."""

    def __init__(self, options: ReadOptions) -> None:
        self.stores = find_stores(options)
        self._selections = [Selection.of(options, store.broker_name) for store in self.stores]
        self._pool = FilePool()
        self._logs = [LogReader(store.paths.commit_logs, pool=self._pool) for store in self.stores]
        self._readers: dict[Queue, QueueReader] = {}

    def ranges(self, also: Collection[Queue] = ()) -> dict[Queue, Range]:
        """Every wanted queue that is there now, in order, and those of ``also``.

        Light queues (``%LMQ%``) are left out: their messages are those of other queues.
        """
        found: dict[Queue, Range] = {}
        for store, log, selection in zip(self.stores, self._logs, self._selections, strict=True):
            read = functools.partial(self._ranges_of, store, log, selection, also)
            found |= while_queues_stay(store.paths, read)
        return dict(sorted(found.items()))

    def leaves_out(self, queue: Queue) -> bool:
        """Whether the queue is one of these stores' that the options do not ask for."""
        wants = [
            selection.wants_queue(queue.topic, queue.queue_id)
            for store, selection in zip(self.stores, self._selections, strict=True)
            if store.broker_name == queue.broker_name
        ]
        return bool(wants) and not any(wants)

    def _ranges_of(
        self, store: StoreRef, log: LogReader, selection: Selection, also: Collection[Queue]
    ) -> dict[Queue, Range]:
        found: dict[Queue, Range] = {}
        log_end = _log_end(log)
        old = old_queues(store.paths)
        listed = set(store.paths.list_queues()).union(() if old is None else old.list_queues())
        for topic, queue_id in listed:
            queue = Queue(topic, store.broker_name, queue_id)
            if topic.startswith(LMQ_PREFIX) or not (selection.wants_queue(topic, queue_id) or queue in also):
                continue
            reader = self._reader(store, queue)
            end = reader.find_end(log_end)
            before = old_reader(old, topic, queue_id, self._pool)
            if before is not None and (old_end := before.find_end(log_end)) > end:
                reader, end = before, old_end
            found[queue] = Range(store, log, reader, reader.find_min(log.min_offset, end), end)
        return found

    def _reader(self, store: StoreRef, queue: Queue) -> QueueReader:
        if queue not in self._readers:
            directory = store.paths.queue(queue.topic, queue.queue_id)
            self._readers[queue] = QueueReader(queue.topic, queue.queue_id, directory, self._pool)
        self._readers[queue].refresh()
        return self._readers[queue]

    def close(self) -> None:
        """Close the files."""
        self._pool.close()


def _log_end(log: LogReader) -> int:
    """Offset behind the last record; sound ones behind damage count, for the tasks to judge what lies between."""
    end = log.end_offset()
    return max(end, readable_end(log)) if log.is_damaged_at(end) else end
