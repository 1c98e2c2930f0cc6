"""What a running store has done: counts since it was opened, and rates over the last ten seconds, minute, ten minutes.

Messages put are counted as they are dispatched, so that counting costs a put nothing.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from mqstore.kernels.api import LogColumns, QueueRun
from mqstore.layout.buffers import Buffer
from mqstore.layout.constants import QUEUE_UNIT_SIZE, SysFlag

WINDOWS_S: Final = (10, 60, 600)
"""The windows that rates are given for, in seconds: RocketMQ's own."""


class Counts(NamedTuple):
    """Totals at one moment.

    ``put_messages`` and ``put_bytes`` count records of the log, ``get_found`` and ``get_miss`` calls that gave messages
    or none, ``transferred_messages`` the messages given.
    """

    put_messages: int
    put_bytes: int
    get_found: int
    get_miss: int
    transferred_messages: int


@dataclass(frozen=True, slots=True)
class Rates:
    """Messages or calls a second, over each of :data:`WINDOWS_S`, or since the store was opened if that is shorter."""

    put: tuple[float, ...]
    get_found: tuple[float, ...]
    get_miss: tuple[float, ...]
    transferred: tuple[float, ...]


class TopicCounts:
    """Messages and bytes of records put, by topic, counted as they are dispatched. Safe for several threads."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._totals: dict[bytes, tuple[int, int]] = {}

    def note(self, runs: Iterable[QueueRun], buffer: Buffer, columns: LogColumns) -> None:
        """Count the records of ``columns``, whose queue units are ``runs``; some records are in no queue."""
        with self._guard:
            left = columns.count
            for run in runs:
                messages = len(run.units) // QUEUE_UNIT_SIZE
                self._add(run.topic, messages, run.size_bytes)
                left -= messages
            for row in _rows_in_no_queue(columns) if left else ():
                at = columns.topic_position[row]
                self._add(bytes(buffer[at : at + columns.topic_size[row]]), 1, columns.size[row])

    def _add(self, topic: bytes, messages: int, size_bytes: int) -> None:
        before = self._totals.get(topic, (0, 0))
        self._totals[topic] = (before[0] + messages, before[1] + size_bytes)

    def forget(self, topic: str) -> None:
        """The topic was deleted: if it comes back it counts from 0."""
        with self._guard:
            self._totals.pop(topic.encode(), None)

    def totals(self) -> dict[str, tuple[int, int]]:
        """Messages and bytes of each topic, ordered by topic."""
        with self._guard:
            found = sorted(self._totals.items())
        return {topic.decode("utf-8", "replace"): total for topic, total in found}


def _rows_in_no_queue(columns: LogColumns) -> Iterable[int]:
    kinds = (SysFlag.TRANSACTION_PREPARED, SysFlag.TRANSACTION_ROLLBACK)
    return (row for row, flags in enumerate(columns.sys_flag) if flags & SysFlag.TRANSACTION_MASK in kinds)


class StoreStatistics:
    """Counts of one store. Safe for several threads.

    Attributes:
        opened_ms: when counting began, in ms.
        longest_get_ms: what the longest get took, in whole milliseconds.
    """

    def __init__(self, dispatched: Callable[[], tuple[int, int]], clock: Callable[[], float] = time.monotonic) -> None:
        """``dispatched`` gives the messages and bytes dispatched so far; ``clock`` seconds that never go back."""
        self.opened_ms = time.time_ns() // 1_000_000
        self._dispatched = dispatched
        self._clock = clock
        self._guard = threading.Lock()
        self.longest_get_ms = 0
        self._found = self._miss = self._transferred = 0
        self._first = dispatched()
        self._samples: deque[tuple[float, Counts]] = deque([(clock(), self.counts())])

    def note_get(self, messages: int, elapsed_ns: int = 0) -> None:
        """Count one get that gave so many messages and took so long."""
        with self._guard:
            self.longest_get_ms = max(self.longest_get_ms, elapsed_ns // 1_000_000)
            if messages:
                self._found += 1
                self._transferred += messages
            else:
                self._miss += 1

    def counts(self) -> Counts:
        """The totals now."""
        messages, size_bytes = self._dispatched()
        with self._guard:
            return Counts(
                messages - self._first[0], size_bytes - self._first[1], self._found, self._miss, self._transferred
            )

    def sample(self) -> None:
        """Remember this moment, for :meth:`rates`; to be called about every second."""
        now = self._clock()
        counts = self.counts()
        with self._guard:
            self._samples.append((now, counts))
            # The oldest one kept lies just outside of the longest window.
            while len(self._samples) > 2 and self._samples[1][0] <= now - WINDOWS_S[-1]:
                self._samples.popleft()

    def rates(self) -> Rates:
        """Rates up to now."""
        now, counts = self._clock(), self.counts()
        with self._guard:
            samples = list(self._samples)
        columns: list[list[float]] = [[], [], [], []]
        for window_s in WINDOWS_S:
            then, before = max((one for one in samples if one[0] <= now - window_s), default=samples[0])
            seconds = max(now - then, 1e-9)
            rates = [(after - earlier) / seconds for after, earlier in zip(counts, before, strict=True)]
            for column, rate in zip(columns, (rates[0], *rates[2:]), strict=True):
                column.append(rate)
        return Rates(*(tuple(column) for column in columns))
