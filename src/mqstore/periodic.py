"""A thread that does its work now and then, until it is stopped."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from mqstore import errors


class PeriodicThread:
    """Does ``work`` every ``interval_s`` seconds. A failure is logged once, and the work is tried again.

    Work that takes long looks at ``_stop``, which is set when the thread is to end.
    """

    def __init__(
        self,
        name: str,
        interval_s: float,
        work: Callable[[], object],
        log: logging.Logger,
        failing: str,
        *,
        retry_s: float | None = None,
    ) -> None:
        """``failing`` is what ``log`` says before the error when work fails, ``retry_s`` the interval from then on."""
        self._pauses_s = (interval_s, interval_s if retry_s is None else retry_s)
        self._work = work
        self._told = (log, failing)
        self._failing = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin; the work is first done when the interval is over. StoreIOError when there is no thread to be had."""
        errors.start_thread(self._thread)

    def stop(self) -> None:
        """End the thread when the work at hand is done. May be called again, and before it was started."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self._pauses_s[self._failing]):
            try:
                self._work()
                self._failing = False
            except Exception as error:
                log, failing = self._told
                if not self._failing:
                    log.error("%s: %s", failing, error)
                self._failing = True
