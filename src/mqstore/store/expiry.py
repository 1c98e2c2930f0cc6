"""Expiry: the oldest files of the log go by age or when the disk fills, and what points into them follows.

Whole files only, oldest first, never the newest. Retention does not ask whether anybody has read the messages
(docs/operations.md). A scan that is inside a removed file goes on with the first one that is left.
"""

from __future__ import annotations

import enum
import itertools
import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from mqstore import errors
from mqstore.files.directories import Directories, used_ratio
from mqstore.files.inventory import FileEntry
from mqstore.files.pool import FilePool
from mqstore.periodic import PeriodicThread
from mqstore.store.commit_log import CommitLog
from mqstore.store.config import StoreConfig
from mqstore.store.dispatch import Dispatcher
from mqstore.store.index_writer import IndexWriter
from mqstore.store.log_reader import LogReader
from mqstore.store.queue_table import QueueTable

_log = logging.getLogger(__name__)
_HOUR_MS = 3_600_000


class DiskBand(enum.Enum):
    """How full the disk is, and what that means. Ratios are those of the configuration."""

    CALM = "below disk_max_used_space_ratio: files go at the hour of delete_when"
    CLEANING = "above disk_max_used_space_ratio: files older than file_reserved_time go now"
    FORCED = "above disk_space_clean_forcibly_ratio: the oldest files go whatever their age"
    FULL = "above disk_space_warning_level_ratio: the same, and no message is taken"


@dataclass(frozen=True)
class ExpiryReport:
    """What one round did, and why.

    Attributes:
        band: how full the disk was.
        reason: why files were removed, or why not.
        removed: the log files removed, oldest first.
        min_physical_offset: where the log begins now.
        lost_ranges: by topic and queue, the offsets [from, to) that went with the files.
    """

    band: DiskBand
    reason: str
    removed: list[Path]
    min_physical_offset: int
    lost_ranges: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)


class Expiry:
    """Removes what is past its time. One round at a time; measuring the disk never waits for removing."""

    def __init__(
        self,
        directories: Directories,
        root: Path,
        config: StoreConfig,
        log: LogReader,
        commit_log: CommitLog,
        pool: FilePool,
        queues: QueueTable,
        index: IndexWriter | None,
        dispatcher: Dispatcher,
        sync_queues: Callable[[], None],
        measure: Callable[[Path], float] = used_ratio,
    ) -> None:
        self._directories = directories
        self._root = root
        self._config = config
        self._log = log
        self._commit_log = commit_log
        self._pool = pool
        self._queues = queues
        self._index = index
        self._dispatcher = dispatcher
        self._sync_queues = sync_queues
        self._measure = measure
        self._guard = threading.Lock()
        self._followed_to = log.min_offset  # recovery has brought everything there

    def band(self) -> DiskBand:
        """How full the disk is now; the log takes messages again as soon as it is no more FULL."""
        band = self._measured()
        self._commit_log.set_disk_full(band is DiskBand.FULL)
        return band

    def _measured(self) -> DiskBand:
        # As RocketMQ: the emptiest of the log's disks counts, since new files can go there, and the queues' disk.
        ratio = max(min(map(self._measure, self._directories.paths)), self._measure(self._root)) * 100
        config = self._config
        if ratio > config.disk_space_warning_level_ratio:
            return DiskBand.FULL
        if ratio > config.disk_space_clean_forcibly_ratio:
            return DiskBand.FORCED
        if ratio > config.disk_max_used_space_ratio:
            return DiskBand.CLEANING
        return DiskBand.CALM

    def run(self, now_ms: int, *, by_hand: bool = False) -> ExpiryReport:
        """One round: remove at most ``delete_file_batch_max`` files if there is a reason to.

        Args:
            now_ms: the time to reckon ages by.
            by_hand: remove files older than ``file_reserved_time`` whatever hour it is, and no others however full the
                disk is; whether messages are taken is not touched.

        Raises:
            StoreIOError: a file could not be removed; those before it are gone, and what points there follows now or in
                a later round.
        """
        with self._guard:
            band = self._measured() if by_hand else self.band()
            forced = (
                not by_hand and band in (DiskBand.FORCED, DiskBand.FULL) and self._config.clean_file_forcibly_enable
            )
            reason = self._reason(band, by_hand, now_ms)
            before = {(one.topic, one.queue_id): one.min_offset for one in self._queues.all()}
            try:
                removed = [] if reason is None else self._remove_log_files(now_ms, forced)
            finally:
                self._follow()  # also when only some of them could be removed, now or before
            lost = {
                key: (low, queue.min_offset)
                for key, low in before.items()
                if (queue := self._queues.find(*key)) is not None and queue.min_offset > low
            }
            report = ExpiryReport(band, reason or "not the hour", removed, self._log.min_offset, lost)
        if removed:
            _log.warning(
                "%s: removed %d log files up to offset %d; messages lost by queue: %s",
                report.reason,
                len(removed),
                report.min_physical_offset,
                {f"{topic}/{queue_id}": f"{low} to {high}" for (topic, queue_id), (low, high) in lost.items()},
            )
        return report

    def _reason(self, band: DiskBand, by_hand: bool, now_ms: int) -> str | None:
        if by_hand:
            return "asked for by hand"
        if band is not DiskBand.CALM:
            return f"disk {band.value}"
        hour = time.strftime("%H", time.localtime(now_ms / 1000))
        return "the hour of delete_when" if hour in self._config.delete_when.split(";") else None

    def _remove_log_files(self, now_ms: int, forced: bool) -> list[Path]:
        """Remove files from the oldest on, up to the first that must stay."""
        self._log.refresh()
        removed: list[Path] = []
        entries = [one for one in self._log.inventory.entries if one.start + one.length <= self._safe_end()]
        old = list(itertools.takewhile(lambda one: forced or self._is_old(one, now_ms), entries))
        if old:
            self._secure_queues()
        try:
            for entry in old[: self._config.delete_file_batch_max]:
                self._log.remove_file(entry.path)
                removed.append(entry.path)
        finally:
            if removed:
                self._log.refresh()
        return removed

    def _secure_queues(self) -> None:
        """Have all units on the device: when the records are gone, they alone tell where a queue ends.

        A queue that ended earlier after a power failure would give its numbers a second time.
        """
        try:
            self._sync_queues()
        except errors.DiskFullError as error:  # and what is to be removed is what makes room
            _log.warning("removing log files although the queues could not be synced: %s", error)

    def _safe_end(self) -> int:
        """Files that reach beyond this stay: the newest, and what is not dispatched or not synced yet."""
        newest = self._log.inventory.entries[-1].start if self._log.inventory.entries else 0
        newest = min(newest, self._commit_log.written_file_start)  # a file that was made ahead is not the newest
        return min(newest, self._dispatcher.offset, self._commit_log.flushed_offset)

    def _is_old(self, entry: FileEntry, now_ms: int) -> bool:
        try:
            modified_ms = os.stat(entry.path).st_mtime_ns // 1_000_000
        except OSError as error:
            raise errors.from_os_error(error, "look at file", entry.path) from error
        return now_ms >= modified_ms + self._config.file_reserved_time * _HOUR_MS

    def _follow(self) -> None:
        """Queues and index give up what pointed into the removed files; the queues' beginnings are right at once.

        One that cannot is tried again in every round, and keeps no other from following.
        """
        log_min = self._log.min_offset
        if log_min == self._followed_to:
            return
        failure: Exception | None = None
        for follow in [*(queue.expire for queue in self._queues.all()), self._expire_index]:
            try:
                follow(log_min)
            except errors.MqstoreError as error:
                failure = failure or error
        if failure is not None:
            raise failure
        self._followed_to = log_min

    def _expire_index(self, log_min: int) -> None:
        for path in [] if self._index is None else self._index.expire(log_min):
            self._pool.forget(path)


def expiry_threads(expiry: Expiry, config: StoreConfig) -> list[PeriodicThread]:
    """Two threads that call :meth:`Expiry.run` every ``clean_resource_interval``, and watch the disk meanwhile."""
    interval_s, failing = config.clean_resource_interval / 1000, "expiry failed, trying again"
    return [
        PeriodicThread("mqstore-disk", interval_s, expiry.band, _log, failing),
        PeriodicThread("mqstore-expiry", interval_s, lambda: expiry.run(time.time_ns() // 1_000_000), _log, failing),
    ]
