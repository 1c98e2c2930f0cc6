"""How long puts took, in RocketMQ's classes of time.

Only what can take long is timed: puts that wait for a sync, and those that leave the compiled path for the plain one,
where files and space are made and everything else out of the ordinary is done. The rest, a microsecond each, is the
first class, and counting it costs nothing.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Callable
from typing import Final

LABELS: Final = (
    "[<=0ms]", "[0~10ms]", "[10~50ms]", "[50~100ms]", "[100~200ms]", "[200~500ms]", "[500ms~1s]", "[1~2s]", "[2~3s]",
    "[3~4s]", "[4~5s]", "[5~10s]", "[10s~]",
)  # fmt: skip
"""The classes as ``brokerStatus`` names them."""
METRIC_NAMES: Final = (
    "0ms", "0to10ms", "10to50ms", "50to100ms", "100to200ms", "200to500ms", "500to1s", "1to2s", "2to3s", "3to4s",
    "4to5s", "5to10s", "10stomore",
)  # fmt: skip
"""The same as RocketMQ's exporter names them, behind ``rocketmq_brokeruntime_pmdt_``."""
_BOUNDS_MS: Final = (0, 10, 50, 100, 200, 500, 1000, 2000, 3000, 4000, 5000, 10_000)
_FINE_BOUNDS_MS: Final = (
    *range(21), *range(22, 51, 2), *range(55, 101, 5), *range(110, 201, 10), *range(250, 501, 50),
    *range(600, 1001, 100), *range(2000, 10_001, 1000),
)  # fmt: skip
"""The finer classes that percentiles are reckoned from: as fine as RocketMQ's."""
_MS: Final = 1_000_000
_MINUTE_S: Final = 60


class PutLatency:
    """Times of puts since the store was opened, and percentiles of the last minute. Safe for several threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock`` gives seconds that never go back."""
        self._clock = clock
        self._guard = threading.Lock()
        self._minute_began = clock()
        self._put_before = 0
        self._fine = [0] * (len(_FINE_BOUNDS_MS) + 1)
        self._last_minute: list[int] | None = None
        self._slow = [0] * len(LABELS)
        self._max_ms = 0
        self._failed = 0

    def note(self, elapsed_ns: int, messages: int) -> None:
        """So many messages were put in one call that took so long."""
        elapsed_ms = elapsed_ns // _MS  # whole milliseconds, as RocketMQ counts
        with self._guard:
            self._slow[bisect_left(_BOUNDS_MS, elapsed_ms)] += messages
            self._fine[bisect_left(_FINE_BOUNDS_MS, elapsed_ms)] += messages
            self._max_ms = max(self._max_ms, elapsed_ms)

    def note_failure(self) -> None:
        """A put was refused or failed."""
        with self._guard:
            self._failed += 1

    @property
    def max_ms(self) -> int:
        """The longest put, in whole milliseconds."""
        return self._max_ms

    @property
    def failed(self) -> int:
        """Puts that were refused or failed."""
        return self._failed

    def distribution(self, put_messages: int) -> list[int]:
        """Messages in each class of :data:`LABELS`, when so many were put in all."""
        with self._guard:
            slow = self._slow[1:]
        return [max(0, put_messages - sum(slow)), *slow]

    def end_minute(self, put_messages: int) -> None:
        """Begin a new minute if one is over; to be called about every second with how many were put in all."""
        now = self._clock()
        with self._guard:
            if now - self._minute_began >= _MINUTE_S:
                self._last_minute = self._all_of_minute(put_messages)
                self._fine = [0] * len(self._fine)
                self._minute_began, self._put_before = now, put_messages

    def percentile(self, fraction: float, put_messages: int) -> float:
        """Milliseconds that ``fraction`` of the messages of the last whole minute took at most, 0.0 if there were none.

        In the first minute it is that of the messages so far; ``put_messages`` is how many were put in all.
        """
        with self._guard:
            counts = self._all_of_minute(put_messages) if self._last_minute is None else self._last_minute
            bounds: list[float] = [*_FINE_BOUNDS_MS, max(self._max_ms, _FINE_BOUNDS_MS[-1])]
        wanted, lower = fraction * sum(counts), 0.0
        for upper, count in zip(bounds, counts, strict=True):
            if count and wanted <= count:
                return lower + (upper - lower) * wanted / count
            wanted, lower = wanted - count, upper
        return 0.0

    def _all_of_minute(self, put_messages: int) -> list[int]:
        """With those that were not timed, as of no millisecond."""
        untimed = max(0, put_messages - self._put_before - sum(self._fine))
        return [self._fine[0] + untimed, *self._fine[1:]]
