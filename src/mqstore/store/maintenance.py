"""The thread that writes derived files and settings back at their intervals."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from mqstore.periodic import PeriodicThread
from mqstore.store.config import StoreConfig

_log = logging.getLogger(__name__)


class MaintenanceService(PeriodicThread):
    """Calls ``write_back`` every ``flush_interval_consume_queue``, thoroughly every
    ``flush_consume_queue_thorough_interval``.

    What fails is tried again: it can be rebuilt from the log. The caller writes back a last time behind its end.
    """

    def __init__(self, write_back: Callable[[bool], None], config: StoreConfig) -> None:
        failing = "writing back derived files failed, trying again"
        super().__init__("mqstore-maintenance", config.flush_interval_consume_queue / 1000, self._round, _log, failing)
        self._write_back = write_back
        self._thorough_s = config.flush_consume_queue_thorough_interval / 1000
        self._last_thorough = time.monotonic()

    def _round(self) -> None:
        thorough = time.monotonic() - self._last_thorough >= self._thorough_s
        self._write_back(thorough)
        if thorough:
            self._last_thorough = time.monotonic()
