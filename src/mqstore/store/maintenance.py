"""The thread that writes derived files and settings back at their intervals."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from mqstore.store.config import StoreConfig

_log = logging.getLogger(__name__)


class MaintenanceService:
    """Calls ``write_back`` every ``flush_interval_consume_queue``, thoroughly every
    ``flush_consume_queue_thorough_interval``.

    A failure is logged once and tried again: what is written back can be rebuilt from the log.
    """

    def __init__(self, write_back: Callable[[bool], None], config: StoreConfig) -> None:
        self._write_back = write_back
        self._interval_s = config.flush_interval_consume_queue / 1000
        self._thorough_s = config.flush_consume_queue_thorough_interval / 1000
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mqstore-maintenance", daemon=True)
        self._failed = False

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; the caller writes back a last time."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        last_thorough = time.monotonic()
        while not self._stop.wait(self._interval_s):
            thorough = time.monotonic() - last_thorough >= self._thorough_s
            try:
                self._write_back(thorough)
            except Exception as error:
                if not self._failed:
                    _log.error("writing back derived files failed, trying again: %s", error)
                self._failed = True
                continue
            self._failed = False
            if thorough:
                last_thorough = time.monotonic()
