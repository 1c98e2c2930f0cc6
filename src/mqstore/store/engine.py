"""The parts of a running store, put together: opened in this order, started, and closed in the reverse one."""

from __future__ import annotations

import contextlib
import dataclasses
import mmap
import os
import stat
import threading
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

from mqstore import errors, kernels
from mqstore.files import durable
from mqstore.files.directories import Directories
from mqstore.files.directory_lock import DirectoryLocks
from mqstore.files.held import Held
from mqstore.files.layout_of import refuse_for_rocketmq
from mqstore.files.lock import StoreLock
from mqstore.files.pool import FilePool
from mqstore.files.whole import mode_of
from mqstore.files.write_buffer import BufferPool
from mqstore.layout import delay
from mqstore.layout.constants import LMQ_PREFIX, SCHEDULE_TOPIC
from mqstore.status import PutMessageStatus
from mqstore.store.aside import dropping_aside
from mqstore.store.checkpoint import ProgressNote
from mqstore.store.commit_log import CommitLog, WaysToWrite, set_next_offset
from mqstore.store.committing import CommitService
from mqstore.store.config import FlushDiskType, StoreConfig
from mqstore.store.consume_queue import ConsumeQueue
from mqstore.store.delay_levels import delay_levels_of, save_delay_levels
from mqstore.store.dispatch import Dispatcher, DispatchService
from mqstore.store.expiry import Expiry, expiry_threads
from mqstore.store.filter_bits import FilterBits
from mqstore.store.flush import FlushService
from mqstore.store.index_reader import IndexFileReader, list_index_files
from mqstore.store.index_writer import IndexWriter
from mqstore.store.latency import PutLatency
from mqstore.store.log_places import configured_places, save_places
from mqstore.store.log_reader import LogReader
from mqstore.store.log_units import LogUnits
from mqstore.store.maintenance import MaintenanceService
from mqstore.store.message import Message, PutResult
from mqstore.store.multi_dispatch import resolve_multi_dispatch, save_multi_dispatch
from mqstore.store.paths import StorePaths, is_legal_topic
from mqstore.store.progress import take_back_progress
from mqstore.store.putting import Putting
from mqstore.store.queue_table import QueueTable
from mqstore.store.recovery import LogEnd, Progress, Recovery
from mqstore.store.schedule import ScheduleService
from mqstore.store.settings import Settings
from mqstore.store.sizes import resolve_sizes
from mqstore.store.statistics import StoreStatistics, TopicCounts
from mqstore.store.write_back import WriteBack
from mqstore.store.writer import MAX_QUEUE_ID

_open_engines: weakref.WeakSet[Engine] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    """A child has the files of its parent's stores, but neither their threads nor the right to write."""
    for engine in _open_engines:
        engine.leave_to_parent()


os.register_at_fork(after_in_child=_after_fork_in_child)


class Service(Protocol):
    """A part with threads of its own."""

    def start(self) -> None:
        """Begin."""

    def stop(self) -> object:
        """End the threads, if they were started; done again, it ends those that an interrupt has left."""


def _run(service: Service, held: ExitStack, stop: Callable[[], object] | None = None) -> None:
    """Start ``service``, and have ``held`` call ``stop``, or the service's own."""
    # Twice, and before it starts: neither an interrupt while the first waits for a thread nor a failure at the start
    # may leave a thread that goes on when the lock is given up.
    held.callback(stop or service.stop)
    held.callback(stop or service.stop)
    service.start()


class Engine:
    """Everything behind :class:`mqstore.Store`, which is its face. The parts are attributes; see their classes."""

    def __init__(self, path: Path, config: StoreConfig, on_progress: Progress | None) -> None:
        """Open or create the store at ``path`` and start its threads; see :func:`mqstore.open`."""
        self.path = path
        self.config = config
        self.paths = StorePaths(path)  # until the directory is seen to be one
        self._is_child = False
        self._is_closing = self._closed = False
        self._close_guard = threading.RLock()  # a signal handler may close what its own thread is just closing
        self._config_guard = threading.Lock()
        self._is_dispatched = False
        self._prepare_directory()
        with Held() as held:
            self._lock = StoreLock(self.paths.lock)
            held.callback(self._lock.release)
            held.callback(self._lock.release)  # twice, as what _run calls
            self._log_locks = DirectoryLocks()
            held.callback(self._log_locks.release)
            held.callback(self._log_locks.release)
            held.push(self._note_clean_end)
            self._find_log()
            self._find_multi_dispatch()
            self._find_delay_levels()
            self.sizes = resolve_sizes(self.paths, config)
            with dropping_aside(self.paths):  # from here on nobody looks at it
                self._open_files(on_progress, held)
                self._make_services()
                self._correct_progress()
                self._write_back.save_notes()
            durable.replace_file(self.paths.abort, b"")
            self._start(held)
            self._held = held.pop_all()  # open: from here on closing lets go of it, and no longer this block
        _open_engines.add(self)

    def _prepare_directory(self) -> None:
        mode = mode_of(self.path)
        if mode and not stat.S_ISDIR(mode):
            raise errors.NotAStoreError("not a directory", path=self.path, hint="give the store's root directory")
        refuse_for_rocketmq(self.path)
        durable.make_directories(self.paths.consume_queue)
        if not os.access(self.path, os.W_OK):
            raise errors.StoreIOError(
                "no write permission on the store directory",
                path=self.path,
                found=f"user {os.getuid()}",
                hint="give this user permission, or read the store with mqstore.inspect",
            )

    def _find_log(self) -> None:
        config = self.config
        places = configured_places(self.path, config.store_path_commit_log, config.read_only_commit_log_store_paths)
        self.paths = StorePaths(self.path, places)
        self.directories = Directories(
            places.paths, places.read_only, full_ratio=config.disk_space_clean_forcibly_ratio / 100
        )
        self.directories.make()
        places.lock(self._log_locks)

    def _find_multi_dispatch(self) -> None:
        config = self.config
        self.multi_dispatch = resolve_multi_dispatch(self.paths, config.enable_multi_dispatch, config.enable_lmq)
        save_multi_dispatch(self.path, self.multi_dispatch)

    def _find_delay_levels(self) -> None:
        levels = delay_levels_of(self.paths, self.config.message_delay_level)
        self.delay_table = delay.parse_delay_levels(levels)
        save_delay_levels(self.path, levels)

    def _open_files(self, on_progress: Progress | None, held: ExitStack) -> None:
        config = self.config
        self.settings = Settings(self.paths.config)
        self.settings.load()
        self._progress_note = ProgressNote(self.paths.progress_note)
        self.pool = FilePool()
        held.callback(self.pool.close)
        self._queue_pool = FilePool(writable=True)
        held.callback(self._queue_pool.close)
        self.log = LogReader(self.paths.commit_logs, file_size=self.sizes.commit_log, pool=self.pool)
        ext_size = config.mapped_file_size_consume_queue_ext if config.enable_consume_queue_ext else None
        self.queues = QueueTable(self.paths, self._queue_pool, self.sizes.consume_queue, ext_size)
        self.filter_bits = None
        if config.enable_consume_queue_ext:
            self.filter_bits = FilterBits(self.settings, config, lambda: self.commit_log.tail.last_timestamp_ms)
        self.index = IndexWriter(self.paths.index, self.sizes.index, self.pool) if config.message_index_enable else None
        if self.index is not None:
            held.callback(self.index.close)
        self._index_files: tuple[list[Path], list[IndexFileReader]] = ([], [])
        self.dispatcher = Dispatcher(self.log, self.queues, self.index, self.delay_table, self.filter_bits)
        self.dispatcher.multi = self.multi_dispatch
        recovery = Recovery(self.paths, self.log, self.queues, self.index, self.sizes, self.dispatcher, on_progress)
        end = recovery.run()
        self._make_topics_known(recovery.queues_behind_note)
        save_places(self.path, self.paths.log_places)
        self.buffers = self._make_buffers(held)
        self.commit_log = self._open_log(end)
        held.callback(self.commit_log.close)

    def _make_topics_known(self, queues: list[ConsumeQueue]) -> None:
        """A crash may have come before the settings with the topics of the newest messages were saved."""
        for queue in queues:
            is_put_into = is_legal_topic(queue.topic) and not queue.topic.startswith((SCHEDULE_TOPIC, LMQ_PREFIX))
            if is_put_into and queue.queue_id <= MAX_QUEUE_ID:
                self.settings.ensure_topic(queue.topic, queue.queue_id + 1, self.config)

    def _make_buffers(self, held: ExitStack) -> BufferPool | None:
        config = self.config
        if not config.transient_store_pool_enable or config.flush_disk_type is FlushDiskType.SYNC_FLUSH:
            return None
        buffers = BufferPool(config.transient_store_pool_size, self.sizes.commit_log)
        held.callback(buffers.close)
        return buffers

    def _open_log(self, end: LogEnd) -> CommitLog:
        config = self.config
        tail = kernels.log_tail(Message, PutResult, PutMessageStatus.PUT_OK, config.store_host, config.max_message_size)
        for queue in self.queues.all():
            if queue.queue_id <= MAX_QUEUE_ID:
                set_next_offset(tail.next_offsets, queue.topic, queue.queue_id, queue.max_offset)
        ways = self._ways_to_write()
        commit_log = CommitLog(self.directories, self.sizes.commit_log, tail, self.pool, self.log.refresh, ways)
        commit_log.open_at(end.offset, end.last_timestamp_ms, end.last_record_offset)
        return commit_log

    def _ways_to_write(self) -> WaysToWrite:
        config = self.config
        is_sync = config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        return WaysToWrite(
            self.buffers,
            config.fast_fail_if_no_buffer_in_store_pool,
            config.warm_maped_file_enable,
            config.flush_least_pages_when_warm_maped_file * mmap.PAGESIZE if is_sync else 0,
        )

    def _make_services(self) -> None:
        config = self.config
        self.latency = PutLatency()
        self.statistics = StoreStatistics(lambda: self.dispatcher.total)
        self.topic_counts = self.dispatcher.topic_counts = TopicCounts()
        self._flush = FlushService(self.commit_log, config)
        self._commit = CommitService(self.commit_log, config)
        self.dispatch = DispatchService(self.dispatcher, lambda: self.commit_log.readable_offset)
        self.commit_log.on_commit = self.dispatch.notify
        self._write_back = WriteBack(
            self.paths,
            self.sizes,
            self.log,
            self.commit_log,
            self.queues,
            self.index,
            self.dispatcher,
            self.save_settings,
        )
        self._maintenance = MaintenanceService(self._write_back_round, config)
        # With buffers there is nothing to dispatch before the next commit.
        on_appended = self.dispatch.notify if self.buffers is None else lambda: None
        self.putting = Putting(
            self.commit_log,
            self._flush,
            self.settings,
            config,
            self.delay_table,
            on_appended,
            self.latency,
            self.multi_dispatch,
        )
        self.log_units = LogUnits(self.log, self.delay_table, lambda: self.dispatcher.offset)
        self.schedule = ScheduleService(
            self.log_units, self.queues, self.settings, self.putting, config.store_host, self.delay_table
        )
        self.expiry = Expiry(
            self.directories,
            self.path,
            config,
            self.log,
            self.commit_log,
            self.pool,
            self.queues,
            self.index,
            self.dispatcher,
            self._write_back.sync_queues,
        )

    def _correct_progress(self) -> None:
        """Progress must not claim what the log does not hold, which a crash may have left shorter than it was."""
        self.settings.clamp(self._queue_end)
        if mode_of(self.paths.progress_in_doubt):
            take_back_progress(self.settings, self.queues, self.log, self.log_units)
            self.save_settings()
            # Else every start doubted anew, until the log has grown to where it had been.
            self._progress_note.settle(self.commit_log.end_offset)
            durable.remove_file(self.paths.progress_in_doubt)
            self.paths.sync()

    def _queue_end(self, topic: str, queue_id: int) -> int:
        queue = self.queues.find(topic, queue_id)
        return 0 if queue is None else queue.max_offset

    def _start(self, held: ExitStack) -> None:
        """Start the threads, and have ``held`` end them in the reverse order and save what they leave."""
        held.callback(self._save_rest)
        _run(self._flush, held)
        _run(self.dispatch, held, self._stop_dispatch)
        held.callback(self._commit_rest)
        if self.buffers is not None:
            _run(self._commit, held)
        _run(self._maintenance, held)
        held.callback(self.commit_log.stop_appends)
        if self.config.schedule_message_enable:
            _run(self.schedule, held)
        if self.config.expire_automatically:
            for thread in expiry_threads(self.expiry, self.config):
                _run(thread, held)
        held.callback(self._refuse)

    def run(self, service: Service) -> None:
        """Start a service that works on top of this engine: closing ends it first. Closed if it cannot be started."""
        try:
            _run(service, self._held)
        except BaseException:
            self.close()
            raise

    def find_queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue, or None; raises StoreClosedError as :meth:`check_open` does."""
        self.check_open()
        return self.queues.find(topic, queue_id)

    def index_files(self) -> list[IndexFileReader]:
        """Readers of all index files, oldest first."""
        paths = list_index_files(self.paths.index) if self.index is None else self.index.paths
        listed, readers = self._index_files
        if listed is not paths:  # the list of a running index is replaced, never changed
            known = {reader.path: reader for reader in readers}
            readers = [known.get(path) or IndexFileReader(path, self.pool, self.sizes.index) for path in paths]
            self._index_files = (paths, readers)
        return readers

    def flush(self) -> None:
        """See :meth:`mqstore.Store.flush`."""
        self.commit_log.sync()
        self.save_settings()
        if not self.dispatch.wait_for(self.commit_log.end_offset) and self.dispatch.failure is not None:
            raise self.dispatch.failure
        self._write_back.save_notes()

    def note_removed_queues(self) -> None:
        """Write the notes anew: those there are speak of queues that are gone."""
        self._write_back.save_notes(anew=True)

    def set_max_message_size(self, size_bytes: int) -> None:
        """See :attr:`mqstore.Store.max_message_size`."""
        with self._config_guard:
            self.config = dataclasses.replace(self.config, max_message_size=size_bytes)
            self.putting.config = self.config
            self.commit_log.tail.max_body = size_bytes

    def save_settings(self) -> None:
        """Write changed settings, after the log whose messages the progress in them speaks of."""
        # The note in front of the progress: a log that has lost its end since must not be believed to have it all.
        self.settings.save(before=lambda: self._progress_note.reach(self.commit_log.sync()))

    def _write_back_round(self, thorough: bool) -> None:
        """What is due now and then: settings, queues, and with ``thorough`` the notes."""
        self.statistics.sample()
        self.latency.end_minute(self.statistics.counts().put_messages)
        self.save_settings()
        if thorough:
            self._write_back.save_notes()
        else:
            self._write_back.sync_queues()

    def close(self) -> None:
        """See :meth:`mqstore.Store.close`."""
        if self._is_child:  # where nobody would ever free what a thread of the parent held
            return
        with self._close_guard:  # to the end, so that whoever comes second may open the store when this returns
            if not self._is_closing:
                self._is_closing = True
                self._held.close()

    def _refuse(self) -> None:
        """What works on top has ended, and nothing is done any more but to end."""
        self._closed = True

    def _save_rest(self) -> None:
        try:
            self.save_settings()
        finally:
            self._write_back.save_notes()

    def _stop_dispatch(self) -> None:
        self._is_dispatched = self.dispatch.stop()

    def _note_clean_end(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Last of all but for the lock: all is saved and closed, and nothing failed on the way."""
        if error is None and self._is_dispatched:
            durable.remove_file(self.paths.abort)
            self.paths.sync()

    def _commit_rest(self) -> None:
        """What is still in buffers must be in the log before dispatch ends; a failure is told by the last sync."""
        with contextlib.suppress(errors.MqstoreError):
            self.commit_log.commit()

    def leave_to_parent(self) -> None:
        """Refuse all work: this process is a fork of the one that opened the store."""
        self._is_child = True
        self.commit_log.leave_to_parent()

    def check_open(self) -> None:
        """Raise StoreClosedError when the store is closed or belongs to another process."""
        if self._closed:
            raise errors.StoreClosedError("the store is closed", path=self.path, hint="open it again")
        if self._is_child:
            raise errors.StoreClosedError(
                "the store was opened before a fork",
                path=self.path,
                found=f"process {os.getpid()}",
                hint="only the process that opened it may use it; read it here with mqstore.inspect",
            )


def put_in_order(path: Path, config: StoreConfig, on_progress: Progress | None = None) -> int:
    """Open the store at ``path``, which puts its derived files right, and close it; no message comes or goes.

    Returns how many messages are in no queue, as their records claim queues or places that cannot be. Raises as
    :func:`mqstore.open`.
    """
    quiet = dataclasses.replace(config, schedule_message_enable=False, expire_automatically=False)
    engine = Engine(path, quiet, on_progress)
    left_out = engine.dispatcher.left_out
    engine.close()
    return left_out
