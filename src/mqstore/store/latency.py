"""How long puts took, in RocketMQ's classes of time.

Only what can take long is timed: puts that wait for a sync, and those that leave the compiled path for the plain one,
where files and space are made and everything else out of the ordinary is done. The rest, a microsecond each, is the
first class, and counting it costs nothing.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
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
_MS: Final = 1_000_000


class PutLatency:
    """Times of puts since the store was opened. Safe for several threads."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._slow = [0] * len(LABELS)
        self._max_ms = 0
        self._failed = 0

    def note(self, elapsed_ns: int, messages: int) -> None:
        """So many messages were put in one call that took so long."""
        elapsed_ms = elapsed_ns // _MS  # whole milliseconds, as RocketMQ counts
        with self._guard:
            self._slow[bisect_left(_BOUNDS_MS, elapsed_ms)] += messages
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
