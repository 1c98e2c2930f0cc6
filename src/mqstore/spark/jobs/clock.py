"""How long a job and its stages take."""

from __future__ import annotations

import time


class Clock:
    """Runs from when it is made.

    Attributes:
        stages: seconds by stage, in the order of the stages.
    """

    def __init__(self) -> None:
        self.stages: dict[str, float] = {}
        self._started = self._last = time.monotonic()

    def note(self, stage: str) -> None:
        """A stage has ended."""
        now = time.monotonic()
        self.stages[stage] = now - self._last
        self._last = now

    @property
    def seconds(self) -> float:
        """Seconds since the job began."""
        return time.monotonic() - self._started
