"""From the log to the derived files: queue units and index entries, in log order.

Dispatch is at-least-once by design and exact in effect: a unit has one place, and the index knows up to which record
it has filed. It can therefore begin again anywhere at or before where it stopped.
"""

from __future__ import annotations

import logging
import threading
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from mqstore import errors
from mqstore.kernels.api import QueueRun
from mqstore.layout.constants import QUEUE_UNIT_SIZE
from mqstore.layout.queue_ext import ExtUnit
from mqstore.store.consume_queue import ConsumeQueue
from mqstore.store.filter_bits import FilterBits
from mqstore.store.index_writer import IndexWriter
from mqstore.store.log_reader import Chunk, LogDamage, LogReader
from mqstore.store.multi_dispatch import OFF, queue_runs
from mqstore.store.queue_table import QueueTable
from mqstore.store.statistics import TopicCounts

_log = logging.getLogger(__name__)
_RETRY_S = 1.0
_GATHER_S = 0.001

MAX_QUEUE_OFFSET = (1 << 63) // QUEUE_UNIT_SIZE - 1
"""The last queue offset whose unit has a place that a 64-bit position can name."""


@dataclass(frozen=True)
class Dispatched:
    """A moment at which the derived files hold exactly the records before ``log_offset``."""

    log_offset: int
    last_record_offset: int
    last_timestamp_ms: int
    queue_ranges: dict[tuple[str, int], tuple[int, int]]
    index_name: str | None
    index_count: int


class Dispatcher:
    """Builds queue units and index entries from stretches of the log.

    Attributes:
        offset: records before this physical offset have been dispatched.
    """

    def __init__(
        self,
        log: LogReader,
        queues: QueueTable,
        index: IndexWriter | None,
        delay_table: Mapping[int, int],
        filter_bits: FilterBits | None = None,
    ) -> None:
        """``filter_bits`` makes the ext units of queues that keep such; None is when none does."""
        self._log = log
        self._queues = queues
        self._index = index
        self._delay_ms = delay_array(delay_table)
        self._filter_bits = filter_bits
        self._guard = threading.Lock()
        self.multi = OFF
        """Whether records go to further queues."""
        self.offset = 0
        self.last_record_offset = -1
        self.last_timestamp_ms = 0
        self.total = (0, 0)
        """Messages and bytes dispatched so far; what recovery did counts, too."""
        self._refused = 0
        self.topic_counts: TopicCounts | None = None
        """The same by topic, from when it was set."""

    def run_to(self, end: int) -> None:
        """Dispatch every record that starts before physical offset ``end``, which is at most the end of the log.

        Raises:
            CorruptRecordError: the log holds something else than records before its end.
        """
        while self.offset < end:
            before = self.offset
            for chunk in self._log.scan(self.offset, end, check_crc=False, on_damage=_refuse):
                self.apply(chunk)
            if self.offset == before:
                self.offset = self._next_file()

    def _next_file(self) -> int:
        """Where to go on when no record starts here: behind a closed file, or where the log begins.

        Nothing else is ever passed over: what cannot be read now is tried again later.
        """
        following = self._log.end_of_closed_file(self.offset)
        if following is None and self.offset < self._log.min_offset:
            following = self._log.min_offset  # expired before it was dispatched
        if following is None:
            self._log.refresh()
            raise errors.StoreIOError(
                "the log cannot be read where it should go on",
                offset=self.offset,
                expected="a record",
                hint="this is tried again; if it stays, run mqstore check",
            )
        return following

    def apply(self, chunk: Chunk) -> None:
        """Dispatch the records of one chunk."""
        columns = chunk.columns
        with self._guard:
            runs = []
            refused = 0  # counted when all is done: a chunk that fails is applied again
            for run, is_own in queue_runs(chunk, self._delay_ms, self.multi):
                bits = self._filter_bits if is_own else None
                if not self._put(run, None if bits is None else bits.ext_units(chunk, run)):
                    refused += len(run.units) // QUEUE_UNIT_SIZE
                if is_own:
                    runs.append(run)
            if self._index is not None:
                self._index.put(chunk)
            if self.topic_counts is not None:
                self.topic_counts.note(runs, chunk.buffer, columns)
            self._refused += refused
            messages, size_bytes = self.total
            self.total = (messages + columns.count, size_bytes + chunk.end_offset - chunk.physical_offset)
            self.offset = chunk.end_offset
            self.last_record_offset = chunk.last_record_offset
            self.last_timestamp_ms = max(self.last_timestamp_ms, columns.store_timestamp_ms[columns.count - 1])

    def _put(self, run: QueueRun, ext_units: list[ExtUnit] | None) -> bool:
        """Put ``run`` into its queue; False when its records claim a queue, or places in it, that cannot be."""
        queue = self._queues.get_or_create(run.topic.decode("utf-8", "replace"), run.queue_id)
        if queue is None:
            return False  # told by the table
        offset = run.first_queue_offset
        if 0 <= offset <= MAX_QUEUE_OFFSET and queue.put(offset, run.units, ext_units):
            return True
        _log.warning(
            "records claim to be messages from %d on of queue %s/%d, which cannot be: they are in no queue",
            offset,
            queue.topic,
            queue.queue_id,
        )
        return False

    @property
    def left_out(self) -> int:
        """How many messages that were dispatched are in no queue, as the queues or places they claim cannot be."""
        return self._refused + sum(queue.left_out for queue in self._queues.all())

    def remove(self, queue: ConsumeQueue, is_needless: Callable[[ConsumeQueue], bool]) -> bool:
        """Remove ``queue`` with its files, if it ``is_needless`` between two chunks; its next message makes it anew.

        Raises:
            StoreIOError: a file could not be removed; nothing is put into the queue any more all the same.
        """
        with self._guard:
            if not is_needless(queue):
                return False
            self._queues.remove(queue)
            queue.destroy()  # in here, or it could take the first file of the queue that is made anew
            return True

    def snapshot(self) -> Dispatched:
        """What has been dispatched at one moment between two chunks."""
        with self._guard:
            return Dispatched(
                self.offset,
                self.last_record_offset,
                self.last_timestamp_ms,
                {(one.topic, one.queue_id): (one.min_offset, one.max_offset) for one in self._queues.all()},
                None if self._index is None else self._index.last_name,
                1 if self._index is None else self._index.index_count,
            )


def _refuse(damage: LogDamage) -> bool:
    raise damage.to_error()


def delay_array(table: Mapping[int, int]) -> memoryview:
    """The delay table as the kernels take it: milliseconds by level, level 0 unused."""
    return memoryview(array("q", [table.get(level, 0) for level in range(max(table) + 1)]))


class DispatchService:
    """The thread that keeps dispatch at the heels of the log.

    Unless somebody waits for it, it lets a moment pass when it is woken: a round costs as much Python for one message
    as for many, and takes the interpreter from those who put.
    """

    def __init__(self, dispatcher: Dispatcher, end_offset: Callable[[], int]) -> None:
        self._dispatcher = dispatcher
        self._end_offset = end_offset
        self._wake = threading.Event()
        self._hurry = threading.Event()
        self._progress = threading.Condition()
        self._waiting = 0
        self._stopping = False
        self._ended = False
        self._attempts = 0
        self.failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="mqstore-dispatch", daemon=True)

    def start(self) -> None:
        """Begin. StoreIOError when there is no thread to be had."""
        errors.start_thread(self._thread)

    def notify(self) -> None:
        """Something was appended."""
        if not self._wake.is_set():
            self._wake.set()

    def wait_for(self, physical_offset: int, timeout_s: float | None = None) -> bool:
        """Wait until everything before ``physical_offset`` is dispatched.

        False when that took longer than ``timeout_s``; without one, as soon as an attempt failed: see ``failure``.

        Raises:
            StoreClosedError: the thread has ended before that.
        """
        attempts = self._attempts + 1  # the one going on now may have begun before what is asked for
        self.notify()

        def is_over() -> bool:
            gives_up = timeout_s is None and self.failure is not None and self._attempts > attempts
            return self._dispatcher.offset >= physical_offset or gives_up

        return self._wait(is_over, physical_offset, timeout_s)

    def wait_past(self, physical_offset: int, timeout_s: float) -> bool:
        """Wait until something behind ``physical_offset`` is dispatched; False when that took longer.

        Raises as :meth:`wait_for`.
        """
        return self._wait(lambda: self._dispatcher.offset > physical_offset, physical_offset + 1, timeout_s)

    def _wait(self, is_over: Callable[[], bool], end: int, timeout_s: float | None) -> bool:
        with self._progress:
            self._waiting += 1
            self._hurry.set()
            try:
                self._progress.wait_for(lambda: is_over() or self._ended, timeout_s)
            finally:
                self._waiting -= 1
                if not (self._waiting or self._stopping):
                    self._hurry.clear()
            if self._ended and self._dispatcher.offset < end:
                raise errors.StoreClosedError(
                    "the store was closed before all was dispatched",
                    offset=self._dispatcher.offset,
                    hint="open it again: what is in the log and not in its queues comes into them then",
                ) from self.failure
        return self._dispatcher.offset >= end

    def stop(self) -> bool:
        """Dispatch what is left and end the thread; False when something could not be dispatched."""
        with self._progress:
            self._stopping = True
            self._hurry.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()
        return self._dispatcher.offset >= self._end_offset()

    def _run(self) -> None:
        try:
            self._dispatch()
        finally:
            with self._progress:
                self._ended = True
                self._progress.notify_all()

    def _dispatch(self) -> None:
        while True:
            self._wake.clear()
            stopping = self._stopping  # read after clearing: a stop that comes later sets the event again
            done = self._catch_up()
            with self._progress:
                self._attempts += 1
                self._progress.notify_all()
            if stopping:
                return
            if not done:
                self._wake.clear()
                self._wake.wait(_RETRY_S)
            elif self._dispatcher.offset >= self._end_offset():
                self._wake.wait()
                self._hurry.wait(_GATHER_S)

    def _catch_up(self) -> bool:
        try:
            self._dispatcher.run_to(self._end_offset())
        except Exception as error:
            # The log is safe; the derived files follow when space returns, or after the next start.
            if self.failure is None:
                _log.error("dispatch stands still at offset %d: %s", self._dispatcher.offset, error)
            self.failure = error
            return False
        self.failure = None
        return True
