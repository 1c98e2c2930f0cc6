"""The thread that moves records from write buffers into the log's files, where there are such buffers."""

from __future__ import annotations

import logging
import threading
import time

from mqstore import errors
from mqstore.store.commit_log import CommitLog
from mqstore.store.config import StoreConfig

_log = logging.getLogger(__name__)
_PAGE_BYTES = 4096


class CommitService:
    """Commits every ``commit_interval_commit_log`` what makes ``commit_commit_log_least_pages`` pages, and everything
    when ``commit_commit_log_thorough_interval`` is over.
    """

    def __init__(self, commit_log: CommitLog, config: StoreConfig) -> None:
        self._commit_log = commit_log
        self._interval_s = config.commit_interval_commit_log / 1000
        self._thorough_s = config.commit_commit_log_thorough_interval / 1000
        self._least_bytes = config.commit_commit_log_least_pages * _PAGE_BYTES
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mqstore-commit", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; the caller commits a last time."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        last_thorough = time.monotonic()
        while not self._stop.wait(self._interval_s):
            log = self._commit_log
            thorough = time.monotonic() - last_thorough >= self._thorough_s
            if log.end_offset - log.readable_offset >= (1 if thorough else max(1, self._least_bytes)):
                try:
                    log.commit()
                except errors.MqstoreError as error:
                    _log.error("committing to the log's file failed, the store stops taking messages: %s", error)
                    return
            if thorough:
                last_thorough = time.monotonic()
