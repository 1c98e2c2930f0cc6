"""When appended bytes are safe: one sync of the log for all that wait at once.

SYNC_FLUSH is a group commit: while one sync runs, further puts gather, and the next sync serves them all. As long as
the device is quick, whoever waits and finds nobody syncing does it himself: to hand the work to another thread and be
woken by it takes longer than many a sync. He first waits a moment for the others who put a message last time, or each
would sync for himself alone. When the device is slow a thread of the service does it, so that those who wait can give
up in time. ASYNC_FLUSH has that thread sync at an interval.
"""

from __future__ import annotations

import logging
import threading
import time

from mqstore import errors
from mqstore.store.commit_log import CommitLog
from mqstore.store.config import StoreConfig

_log = logging.getLogger(__name__)

_QUICK_S = 0.1
"""A sync that took longer was slow: the next ones are not for those who wait."""
_WORTH_GATHERING_S = 50e-6
"""A sync that took less is not worth waiting for others."""


class FlushService:
    """Syncs the commit log, until a sync fails."""

    def __init__(self, commit_log: CommitLog, config: StoreConfig) -> None:
        self._commit_log = commit_log
        self._interval_s = config.flush_interval_commit_log / 1000
        self._timeout_s = config.sync_flush_timeout / 1000
        self._lock = threading.Lock()
        self._synced = threading.Condition(self._lock)
        self._wanted = threading.Condition(self._lock)
        self._is_syncing = False
        self._gathered = threading.Condition(self._lock)
        self._sync_s = 0.0
        self._awaited: list[int] = []
        self._company = 0
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="mqstore-flush", daemon=True)

    def start(self) -> None:
        """Begin. StoreIOError when there is no thread to be had."""
        errors.start_thread(self._thread)

    def wait_for(self, physical_offset: int) -> bool:
        """Wait until everything before ``physical_offset`` is on the device; False when that took too long.

        Raises:
            StoreIOError: the sync failed; the bytes may or may not be there after a restart.
        """
        if self._commit_log.flushed_offset >= physical_offset:
            return True
        deadline = time.monotonic() + self._timeout_s
        with self._lock:
            self._awaited.append(physical_offset)
            if len(self._awaited) == self._company:
                self._gathered.notify()
            while self._commit_log.flushed_offset < physical_offset:
                remaining = deadline - time.monotonic()
                if self._commit_log.failure is not None or remaining <= 0:
                    self._awaited.remove(physical_offset)
                    break
                if self._is_syncing:
                    self._synced.wait(remaining)
                elif self._sync_s > _QUICK_S:
                    self._wanted.notify()
                    self._synced.wait(remaining)
                else:
                    self._sync(self._sync_s)
            else:
                return True
        if self._commit_log.failure is not None:
            raise self._commit_log.failure
        return False

    def stop(self) -> None:
        """Sync once more and end the thread."""
        with self._lock:
            self._stopping = True
            self._wanted.notify()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while self._commit_log.failure is None:
            with self._lock:
                if not self._stopping and not self._awaited:
                    self._wanted.wait(self._interval_s)
                stopping = self._stopping
                while self._is_syncing:
                    self._synced.wait()
                self._sync(0)
            if stopping:
                return

    def _sync(self, patience_s: float) -> None:
        """Sync, alone, with the lock given up meanwhile; it is held before and after."""
        self._is_syncing = True
        try:
            if patience_s > _WORTH_GATHERING_S and len(self._awaited) < self._company:
                self._gathered.wait(patience_s)
            self._sync_log()
        finally:
            self._is_syncing = False
            self._company = len(self._awaited)
            self._awaited = [offset for offset in self._awaited if offset > self._commit_log.flushed_offset]
            self._synced.notify_all()

    def _sync_log(self) -> None:
        self._lock.release()
        try:
            if not self._commit_log.is_durable():  # else it says nothing of the device
                started = time.monotonic()
                try:
                    self._commit_log.sync()
                finally:
                    self._sync_s = time.monotonic() - started
        except errors.MqstoreError as error:
            _log.error("syncing the commit log failed, the store stops taking messages: %s", error)
        finally:
            self._lock.acquire()
