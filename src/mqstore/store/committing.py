"""The thread that moves records from write buffers into the log's files, where there are such buffers."""

from __future__ import annotations

import logging
import time

from mqstore.periodic import PeriodicThread
from mqstore.store.commit_log import CommitLog
from mqstore.store.config import StoreConfig

_log = logging.getLogger(__name__)
_PAGE_BYTES = 4096


class CommitService(PeriodicThread):
    """Commits every ``commit_interval_commit_log`` what makes ``commit_commit_log_least_pages`` pages, and everything
    when ``commit_commit_log_thorough_interval`` is over.

    The caller commits a last time behind its end. A commit that fails is final, see :class:`CommitLog`.
    """

    def __init__(self, commit_log: CommitLog, config: StoreConfig) -> None:
        failing = "committing to the log's file failed, the store stops taking messages"
        super().__init__("mqstore-commit", config.commit_interval_commit_log / 1000, self._commit, _log, failing)
        self._commit_log = commit_log
        self._thorough_s = config.commit_commit_log_thorough_interval / 1000
        self._least_bytes = config.commit_commit_log_least_pages * _PAGE_BYTES
        self._last_thorough = time.monotonic()

    def _commit(self) -> None:
        log = self._commit_log
        thorough = time.monotonic() - self._last_thorough >= self._thorough_s
        if log.end_offset - log.readable_offset >= (1 if thorough else max(1, self._least_bytes)):
            log.commit()
        if thorough:
            self._last_thorough = time.monotonic()
