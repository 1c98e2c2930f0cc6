"""Getting derived files and notes onto the device, never a claim before what it claims."""

from __future__ import annotations

import threading
from collections.abc import Callable

from mqstore import errors
from mqstore.files import durable
from mqstore.layout.checkpoint import Checkpoint
from mqstore.store import checkpoint as notes
from mqstore.store.checkpoint import DispatchCheckpoint, FileSizes
from mqstore.store.commit_log import CommitLog
from mqstore.store.dispatch import Dispatched, Dispatcher
from mqstore.store.index_writer import IndexWriter
from mqstore.store.log_reader import LogReader
from mqstore.store.paths import StorePaths
from mqstore.store.queue_table import QueueTable


class WriteBack:
    """Syncs queues and index, and notes up to where they are complete.

    When one of them could not be synced, no note is written any more: a later sync may answer success although the
    pages are gone. The next open then goes on from the last note and builds the rest from the log.
    """

    def __init__(
        self,
        paths: StorePaths,
        sizes: FileSizes,
        log: LogReader,
        commit_log: CommitLog,
        queues: QueueTable,
        index: IndexWriter | None,
        dispatcher: Dispatcher,
        save_settings: Callable[[], None],
    ) -> None:
        self._paths = paths
        self._sizes = sizes
        self._log = log
        self._commit_log = commit_log
        self._queues = queues
        self._index = index
        self._dispatcher = dispatcher
        self._save_settings = save_settings
        self._guard = threading.Lock()
        self._noted_offset = -1
        self._failure: errors.MqstoreError | None = None

    def sync_queues(self) -> None:
        """Force what the queues hold to the device.

        Raises:
            StoreIOError, DiskFullError: one could not be synced.
        """
        with self._guard:  # no note beside it: what this round has taken up and not synced yet must not be noted
            self._sync_queues()

    def _sync_queues(self) -> None:
        try:
            for queue in self._queues.all():
                queue.sync()
        except errors.MqstoreError as error:
            self._failure = error
            raise

    def save_notes(self, *, anew: bool = False) -> None:
        """Sync log, queues and index up to one moment, save settings, then note that moment in both checkpoints.

        With ``anew`` also if nothing was dispatched since the last time.

        Raises:
            StoreIOError, DiskFullError: something could not be synced, now or before.
        """
        with self._guard:
            if self._failure is not None:
                raise self._failure
            moment = self._dispatcher.snapshot()
            if anew or moment.log_offset != self._noted_offset:
                self._commit_log.sync()
                self._sync_derived()
                # Behind the moment: a start looks only behind the note for topics that a kill kept from being saved.
                self._save_settings()
                self._write(moment)
                self._noted_offset = moment.log_offset

    def _sync_derived(self) -> None:
        self._sync_queues()
        try:
            if self._index is not None:
                self._index.sync()
        except errors.MqstoreError as error:
            self._failure = error
            raise

    def _write(self, moment: Dispatched) -> None:
        record = self._log.record_at(moment.last_record_offset)
        note = DispatchCheckpoint.of(moment, record, self._sizes)
        durable.replace_file(self._paths.dispatch_checkpoint, note.to_json())
        previous = notes.checkpoint_or_zeros(self._paths.checkpoint)
        index_ms = 0 if self._index is None else self._index.end_timestamp_ms
        notes.save_checkpoint(
            self._paths.checkpoint,
            Checkpoint(
                moment.last_timestamp_ms,
                moment.last_timestamp_ms,
                index_ms or previous.index_msg_timestamp_ms,
                moment.log_offset,
                max(0, moment.last_record_offset),
            ),
        )
