"""When appended bytes are safe: one thread that syncs the log, for all that wait at once.

SYNC_FLUSH is a group commit: while one sync runs, further puts gather, and the next sync serves them all.
ASYNC_FLUSH syncs at an interval.
"""

from __future__ import annotations

import logging
import threading
import time

from mqstore import errors
from mqstore.store.commit_log import CommitLog
from mqstore.store.config import StoreConfig

_log = logging.getLogger(__name__)


class FlushService:
    """The thread that syncs the commit log, until a sync fails."""

    def __init__(self, commit_log: CommitLog, config: StoreConfig) -> None:
        self._commit_log = commit_log
        self._interval_s = config.flush_interval_commit_log / 1000
        self._timeout_s = config.sync_flush_timeout / 1000
        self._changed = threading.Condition()
        self._waiting = 0
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="mqstore-flush", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def wait_for(self, physical_offset: int) -> bool:
        """Wait until everything before ``physical_offset`` is on the device; False when that took too long.

        Raises:
            StoreIOError: the sync failed; the bytes may or may not be there after a restart.
        """
        deadline = time.monotonic() + self._timeout_s
        with self._changed:
            self._waiting += 1
            try:
                self._changed.notify_all()
                while self._commit_log.flushed_offset < physical_offset:
                    if self._commit_log.failure is not None:
                        raise self._commit_log.failure
                    remaining = deadline - time.monotonic()
                    if remaining <= 0:
                        return False
                    self._changed.wait(remaining)
                return True
            finally:
                self._waiting -= 1

    def stop(self) -> None:
        """Sync once more and end the thread."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while self._commit_log.failure is None:
            with self._changed:
                if not self._stopping and not self._has_waiters():
                    self._changed.wait(self._interval_s)
                stopping = self._stopping
            self._sync()
            if stopping:
                return

    def _has_waiters(self) -> bool:
        return self._waiting > 0 and not self._commit_log.is_durable()

    def _sync(self) -> None:
        try:
            if not self._commit_log.is_durable():
                self._commit_log.sync()
        except errors.MqstoreError as error:
            _log.error("syncing the commit log failed, the store stops taking messages: %s", error)
        with self._changed:
            self._changed.notify_all()
