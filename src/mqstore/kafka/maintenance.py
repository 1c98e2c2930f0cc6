"""The thread that flushes, writes checkpoints and removes deleted files, each when it is due."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from mqstore.files import copying, durable
from mqstore.kafka.config import KafkaConfig
from mqstore.periodic import PeriodicThread

_log = logging.getLogger(__name__)

_LONGEST_WAIT_S = 1.0
_SHORTEST_WAIT_S = 0.005


class Maintenance(PeriodicThread):
    """Calls ``round`` at short intervals. Deleted files that wait for their removal at its end stay: the next start
    removes them.
    """

    def __init__(self, round: Callable[[], None], config: KafkaConfig) -> None:  # noqa: A002
        wait_s = max(_SHORTEST_WAIT_S, min(_LONGEST_WAIT_S, config.flush_ms / 2000))
        failing = "keeping the log in order failed, trying again"
        super().__init__("mqstore-kafka-maintenance", wait_s, self._round_and_removals, _log, failing)
        self._round = round
        self._delete_delay_s = config.file_delete_delay_ms / 1000
        self._checkpoint_ms = config.log_flush_offset_checkpoint_interval_ms
        self._last_checkpoint_ms = time.monotonic_ns() // 1_000_000
        self._guard = threading.Lock()
        self._waiting: list[tuple[float, list[Path]]] = []

    def remove_later(self, paths: Iterable[Path]) -> None:
        """Remove files and directories after ``file_delete_delay_ms``; at once when that is 0."""
        found = list(paths)
        if self._delete_delay_s <= 0:
            _remove(found)
            return
        with self._guard:
            self._waiting.append((time.monotonic() + self._delete_delay_s, found))

    def checkpoint_is_due(self, now_ms: int) -> bool:
        """Whether the checkpoints should be written again; counts as done when it says so."""
        if now_ms - self._last_checkpoint_ms < self._checkpoint_ms:
            return False
        self._last_checkpoint_ms = now_ms
        return True

    def _round_and_removals(self) -> None:
        try:
            self._round()
        finally:
            self._remove_due()

    def _remove_due(self) -> None:
        now = time.monotonic()
        with self._guard:
            due = [one for one in self._waiting if one[0] <= now]
        for one in due:
            _remove(one[1])
            with self._guard:  # not before: what could not be removed is tried again
                self._waiting.remove(one)


def _remove(paths: list[Path]) -> None:
    for path in paths:
        if path.is_dir():
            copying.remove_tree(path)
        else:
            durable.remove_file(path)
