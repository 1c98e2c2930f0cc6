"""A running store: one process puts, any number of threads get."""

from __future__ import annotations

import logging
import os
import stat
import threading
import weakref
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from mqstore import errors, kernels
from mqstore.files import durable
from mqstore.files.lock import StoreLock
from mqstore.files.pool import FilePool
from mqstore.files.whole import mode_of
from mqstore.layout import delay
from mqstore.layout.message_id import encode_message_id
from mqstore.layout.record import Record
from mqstore.layout.tags import TagExpression
from mqstore.status import BoundaryType, GetMessageStatus, PutMessageStatus
from mqstore.store import reading, view
from mqstore.store.checkpoint import FileSizes
from mqstore.store.commit_log import Appended, CommitLog, Pending, set_next_offset
from mqstore.store.config import FlushDiskType, StoreConfig
from mqstore.store.dispatch import Dispatcher, DispatchService, QueueTable
from mqstore.store.flush import FlushService
from mqstore.store.index_reader import IndexFileReader, list_index_files
from mqstore.store.index_writer import IndexWriter
from mqstore.store.log_reader import LogReader
from mqstore.store.maintenance import MaintenanceService
from mqstore.store.message import GetResult, Message, PutResult, QueryResult, QueueInfo
from mqstore.store.paths import StorePaths
from mqstore.store.recovery import LogEnd, Progress, Recovery
from mqstore.store.settings import GroupProgress, Settings, group_progress
from mqstore.store.sizes import resolve_sizes
from mqstore.store.view import TIME_MAX_MS
from mqstore.store.write_back import WriteBack
from mqstore.store.writer import MAX_QUEUE_ID, check_topic, prepare

_log = logging.getLogger(__name__)


_open_stores: weakref.WeakSet[Store] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    """A child has the files of its parent's stores, but neither their threads nor the right to write."""
    for store in _open_stores:
        store.leave_to_parent()


os.register_at_fork(after_in_child=_after_fork_in_child)


class Store:
    """A store open for writing. Make one with :func:`mqstore.open`.

    All methods may be called from any thread of the process that opened it. What ``put`` returned can be got once
    the dispatcher has passed it, some milliseconds later; :meth:`wait_dispatched` waits for that.
    """

    def __init__(self, path: str | os.PathLike[str], config: StoreConfig, on_progress: Progress | None = None) -> None:
        """Open or create the store at ``path``; see :func:`mqstore.open`."""
        given: object = path
        if not isinstance(given, str | os.PathLike) or not os.fspath(given):
            raise errors.UsageError("the path names no directory", found=repr(path), hint="give the store's directory")
        self.path = Path(path)
        self.config = config
        self.paths = StorePaths(self.path)
        self._is_child = False
        self._is_sync = config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self._closed = False
        self._close_guard = threading.Lock()
        self._prepare_directory()
        self._lock = StoreLock(self.paths.lock)
        try:
            self._start(on_progress)
        except BaseException:
            self._lock.release()
            raise
        _open_stores.add(self)

    def _prepare_directory(self) -> None:
        mode = mode_of(self.path)
        if mode and not stat.S_ISDIR(mode):
            raise errors.NotAStoreError("not a directory", path=self.path, hint="give the store's root directory")
        durable.make_directories(self.paths.commit_log)
        durable.make_directories(self.paths.consume_queue)
        if not os.access(self.path, os.W_OK):
            raise errors.StoreIOError(
                "no write permission on the store directory",
                path=self.path,
                found=f"user {os.getuid()}",
                hint="give this user permission, or read the store with mqstore.inspect",
            )

    def _start(self, on_progress: Progress | None) -> None:
        config = self.config
        self.sizes: FileSizes = resolve_sizes(self.paths, config)
        self._delay_table = delay.parse_delay_levels(config.message_delay_level)
        self.settings = Settings(self.paths.config)
        self.settings.load()
        self._pool = FilePool()
        self._queue_pool = FilePool(writable=True)
        self.log = LogReader([self.paths.commit_log], file_size=self.sizes.commit_log, pool=self._pool)
        self._queues = QueueTable(self.paths, self._queue_pool, self.sizes.consume_queue)
        self._index = IndexWriter(self.paths.index, self.sizes.index) if config.message_index_enable else None
        self._index_readers: dict[Path, IndexFileReader] = {}
        self._dispatcher = Dispatcher(self.log, self._queues, self._index, self._delay_table)
        end = Recovery(
            self.paths, self.log, self._queues, self._index, self.sizes.index, self._dispatcher, on_progress
        ).run()
        self._open_log(end)
        self._flush = FlushService(self._commit_log, config)
        self._dispatch = DispatchService(self._dispatcher, lambda: self._commit_log.end_offset)
        self._write_back = WriteBack(
            self.paths, self.sizes, self.log, self._commit_log, self._queues, self._index, self._dispatcher
        )
        self._maintenance = MaintenanceService(self._write_back_round, config)
        self._write_back.save_notes()
        self._mark_running()
        self._flush.start()
        self._dispatch.start()
        self._maintenance.start()

    def _open_log(self, end: LogEnd) -> None:
        config = self.config
        self._tail = kernels.log_tail(
            Message, PutResult, PutMessageStatus.PUT_OK, config.store_host, config.max_message_size
        )
        for queue in self._queues.all():
            if queue.queue_id <= MAX_QUEUE_ID:
                set_next_offset(self._tail.next_offsets, queue.topic, queue.queue_id, queue.max_offset)
        self._commit_log = CommitLog(self.paths.commit_log, self.sizes.commit_log, self._tail, self.log.refresh)
        self._commit_log.open_at(end.offset, end.last_timestamp_ms, end.last_record_offset)

    def _mark_running(self) -> None:
        durable.replace_file(self.paths.abort, b"")

    # -- writing

    def put(self, message: Message) -> PutResult:
        """Store one message.

        Under SYNC_FLUSH the call returns when the message is on the device, under ASYNC_FLUSH when it is in the page
        cache (docs/operations.md).

        Returns where it was stored; the status is FLUSH_DISK_TIMEOUT when the sync took longer than
        ``sync_flush_timeout``, PUT_OK otherwise.

        Raises:
            MessageIllegalError: the message breaks a limit. Nothing was stored.
            DiskFullError: no space left. Nothing was stored.
            NotWritableError: the store no longer takes messages, because a sync failed.
            StoreClosedError: the store is closed, or was opened by the parent of this process.
        """
        self._check_open()
        result: PutResult | None = self._tail.put(message)
        if result is None:
            return self._put_plainly([message])[0]
        self._dispatch.notify()
        if self._is_sync and message.wait_store_msg_ok:
            return self._when_flushed([result])[0]
        return result

    def put_batch(self, messages: Sequence[Message]) -> list[PutResult]:
        """Store ``messages`` in order, with one append and one sync: all of them or none.

        They may be of different topics and queues. Together they must fit into one commit log file. Raises as
        :meth:`put`; an error names the place of the message concerned.
        """
        self._check_open()
        messages = list(messages)
        if not messages:
            return []
        results = self._tail.put_batch(messages)
        if results is None:
            return self._put_plainly(messages)
        self._dispatch.notify()
        if self._is_sync and any(message.wait_store_msg_ok for message in messages):
            return self._when_flushed(results)
        return results

    def _put_plainly(self, messages: list[Message]) -> list[PutResult]:
        """Put what the log's tail does not take by itself, or find out what is wrong with it."""
        for message in messages:
            if not isinstance(message, Message):
                raise errors.UsageError("not a message", expected="mqstore.Message", found=type(message).__name__)
        pending = [self._prepare(message, number) for number, message in enumerate(messages)]
        appended = self._commit_log.append(pending)
        self._dispatch.notify()
        for message, one in zip(messages, pending, strict=True):
            self.settings.ensure_topic(message.topic, one.target_queue_id + 1, self.config)
            self._tail.queue_counts[message.topic] = self.settings.queue_count(message.topic, self.config)
        results = [_result(one, place) for one, place in zip(pending, appended, strict=True)]
        if self._is_sync and any(message.wait_store_msg_ok for message in messages):
            return self._when_flushed(results)
        return results

    def _when_flushed(self, results: list[PutResult]) -> list[PutResult]:
        """Wait for the sync that covers the last of ``results``; another status for all when it takes too long."""
        if self._flush.wait_for(results[-1].physical_offset + results[-1].size_bytes):
            return results
        return [result._replace(status=PutMessageStatus.FLUSH_DISK_TIMEOUT) for result in results]

    def _prepare(self, message: Message, number: int) -> Pending:
        try:
            check_topic(message.topic)
            return prepare(message, self._choose_queue(message), self.config, max(self._delay_table))
        except errors.MessageIllegalError as error:
            if number:
                error.offset = number
            raise

    def _choose_queue(self, message: Message) -> int:
        """The queue asked for, or the topic's next in turn. The topic's settings change only once it is stored."""
        queues = self.settings.queue_count(message.topic, self.config)
        if message.queue_id is not None:
            return message.queue_id
        turn = self._tail.turns.get(message.topic, 0)
        self._tail.turns[message.topic] = turn + 1
        return turn % queues

    # -- reading

    def get(
        self, topic: str, queue_id: int = 0, offset: int = 0, max_messages: int = 32, where: str | None = None
    ) -> GetResult:
        """Messages of one queue from ``offset`` on, in queue order.

        Args:
            topic: the topic.
            queue_id: the queue.
            offset: queue offset of the first message wanted.
            max_messages: how many at most; a byte limit and a limit on the units looked at apply as well.
            where: tags to pick, as ``"paid || refunded"``; None and ``"*"`` pick all. Tags are compared as text.

        Returns the messages with a status that says why there are no more, and the offset to go on from: it counts
        the units looked at, so that a call which finds nothing still moves on.

        Raises:
            UsageError: ``max_messages`` or ``where`` cannot be meant.
            StoreIOError: the files could not be read.
        """
        self._check_open()
        expression = TagExpression.parse(where)
        view.check_count(max_messages)
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return GetResult(GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0)
        limits = reading.GetLimits(
            self.config.max_transfer_bytes_on_message_in_memory, self.config.max_filter_message_size
        )
        here = reading.QueueRange(queue, queue.min_offset, queue.max_offset)
        return reading.get_messages(self.log, here, offset, max_messages, expression, limits)

    def query(
        self, topic: str, key: str, begin: int = 0, end: int = TIME_MAX_MS, max_messages: int | None = None
    ) -> QueryResult:
        """Messages of ``topic`` that bear ``key`` among their keys or as unique key, oldest first.

        Args:
            topic: the topic.
            key: the key, compared as text.
            begin: earliest store time in ms, inclusive.
            end: latest store time in ms, inclusive.
            max_messages: how many at most, the newest; None is ``max_msgs_num_batch``.

        Raises:
            UsageError: the window ends before it begins.
            CorruptFileError, StoreIOError: the index could not be looked at, which is not the same as "none".
        """
        self._check_open()
        view.check_window(begin, end)
        limit = self.config.max_msgs_num_batch if max_messages is None else max_messages
        view.check_count(limit)
        return reading.query_by_key(self.log, self._index_files(), topic, key, limit, begin, end)

    def _index_files(self) -> list[IndexFileReader]:
        paths = list_index_files(self.paths.index) if self._index is None else self._index.paths
        for path in paths:
            if path not in self._index_readers:
                self._index_readers[path] = IndexFileReader(path, self._pool, self.sizes.index)
        return [self._index_readers[path] for path in paths]

    def offset_at(
        self, topic: str, queue_id: int, timestamp_ms: int, boundary: str | BoundaryType = BoundaryType.LOWER
    ) -> int | None:
        """Queue offset at a store time, by the times in the records.

        ``"lower"`` gives the first message stored at or after ``timestamp_ms``, the queue's end if none was;
        ``"upper"`` the last one stored at or before it, one less than the queue's minimum if none was. Between the
        two answers for a window lie exactly its messages. None means that there is no such queue.
        """
        self._check_open()
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return None
        return reading.offset_at_time(
            lambda offset: view.store_time_of(self.log, queue, offset),
            queue.min_offset,
            queue.max_offset,
            timestamp_ms,
            view.parse_boundary(boundary),
        )

    def message_at(self, physical_offset: int) -> Record | None:
        """The message whose record starts at ``physical_offset`` of the log, or None."""
        self._check_open()
        return self.log.record_at(physical_offset) if physical_offset < self._commit_log.end_offset else None

    def message_by_id(self, message_id: str) -> Record | None:
        """The message with this offset message id, or None; UsageError for text that is no such id."""
        self._check_open()
        return view.message_by_id(self.log, message_id)

    def queues(self, topic: str | None = None) -> list[QueueInfo]:
        """Every queue (of ``topic``) with its range, ordered by topic and id."""
        self._check_open()
        found = self._queues.all() if topic is None else self._queues.of_topic(topic)
        return [QueueInfo(one.topic, one.queue_id, one.min_offset, one.max_offset) for one in found]

    # -- progress of groups

    def commit_offset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Note that ``group`` has consumed the queue up to, not including, ``offset``; saved within seconds.

        Raises:
            UsageError: the offset lies outside the queue, or a name cannot be used.
        """
        self._check_open()
        queue = self._queues.find(topic, queue_id)
        high = 0 if queue is None else queue.max_offset
        if not 0 <= offset <= high:
            raise errors.UsageError(
                f"offset outside queue {topic}/{queue_id}",
                expected=f"0 to {high}",
                found=offset,
                hint="wait_dispatched() makes everything put so far part of its queue",
            )
        self.settings.commit_offset(group, topic, queue_id, offset)

    def committed_offset(self, group: str, topic: str, queue_id: int) -> int | None:
        """The offset that ``group`` goes on from, or None when it never committed one."""
        self._check_open()
        return self.settings.committed_offset(group, topic, queue_id)

    def progress(self) -> list[GroupProgress]:
        """How far each consumer group has come in each queue, ordered by group, topic and queue."""
        offsets = self.settings.consumer_offsets  # before the queues: a running consumer must not seem ahead of them
        return group_progress(offsets, self.queues())

    # -- state

    @property
    def min_physical_offset(self) -> int:
        """Physical offset at which the log begins."""
        return self.log.min_offset

    @property
    def log_end(self) -> int:
        """Physical offset at which the next record goes."""
        return self._commit_log.end_offset

    @property
    def flushed_offset(self) -> int:
        """Everything before this physical offset is on the device."""
        return self._commit_log.flushed_offset

    @property
    def dispatch_behind_bytes(self) -> int:
        """Bytes of log that are not yet in queues and index."""
        return max(0, self._commit_log.end_offset - self._dispatcher.offset)

    def wait_dispatched(self, timeout_s: float | None = None) -> bool:
        """Wait until everything put so far can be got and queried; False when that took longer than ``timeout_s``."""
        self._check_open()
        target = self._commit_log.end_offset
        return self._dispatch.wait_for(target, timeout_s)

    def flush(self) -> None:
        """Force everything to the device now: log, queues, index, checkpoint and settings.

        Raises:
            StoreIOError, DiskFullError: something could not be written; the log has been synced if that was possible.
        """
        self._check_open()
        self.settings.save()
        self._commit_log.sync()
        if not self.wait_dispatched() and self._dispatch.failure is not None:
            raise self._dispatch.failure
        self._write_back.save_notes()

    def close(self) -> None:
        """Dispatch and sync everything, note a clean end and give up the lock. A second call does nothing.

        Raises:
            StoreIOError, DiskFullError: something could not be synced. The store is closed all the same, and the next
                open recovers as after a crash.
        """
        with self._close_guard:
            if self._closed or self._is_child:
                return
            self._closed = True
        try:
            self._commit_log.stop_appends()
            self._maintenance.stop()
            complete = self._dispatch.stop()
            self._flush.stop()
            self.settings.save()
            self._write_back.save_notes()
            self._commit_log.close()
            if self._index is not None:
                self._index.close()
            if complete:
                durable.remove_file(self.paths.abort)
                self.paths.sync()
        finally:
            self._queue_pool.close()
            self._pool.close()
            self._lock.release()

    def _write_back_round(self, thorough: bool) -> None:
        """What is due now and then: settings, queues, and with ``thorough`` the notes."""
        self.settings.save()
        if thorough:
            self._write_back.save_notes()
        else:
            self._write_back.sync_queues()

    def leave_to_parent(self) -> None:
        """Refuse all work: this process is a fork of the one that opened the store."""
        self._is_child = True
        self._tail.is_open = False

    def _check_open(self) -> None:
        if self._closed:
            raise errors.StoreClosedError("the store is closed", path=self.path, hint="open it again")
        if self._is_child:
            raise errors.StoreClosedError(
                "the store was opened before a fork",
                path=self.path,
                found=f"process {os.getpid()}",
                hint="only the process that opened it may use it; read it here with mqstore.inspect",
            )

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _result(pending: Pending, place: Appended) -> PutResult:
    fields = pending.fields
    return PutResult(
        PutMessageStatus.PUT_OK,
        encode_message_id(fields[8], place.physical_offset),
        fields[0].decode(),
        fields[3],
        place.queue_offset,
        place.physical_offset,
        place.size_bytes,
        place.store_timestamp_ms,
    )


def open_store(
    path: str | os.PathLike[str],
    *,
    on_progress: Progress | None = None,
    config: StoreConfig | None = None,
    **settings: Any,
) -> Store:
    """Open the store in directory ``path`` for writing, creating it if need be; bring it in order after a crash.

    Args:
        path: the store's root directory.
        on_progress: called during recovery with the bytes of log walked and the bytes there are.
        config: all settings at once, or
        **settings: single settings of :class:`StoreConfig`, as ``flush_disk_type="SYNC_FLUSH"``.

    Raises:
        StoreLockedError: another process has it open for writing.
        NotAStoreError: the path is a file.
        UsageError: an unknown setting, or a value that cannot be meant.
        CorruptFileError, CorruptRecordError: damage that no crash explains; nothing was changed.
        StoreIOError: no permission, or the device failed.
    """
    if config is None:
        config = StoreConfig.from_mapping(settings)
    elif settings:
        raise errors.UsageError("give either config or single settings", found=sorted(settings))
    return Store(path, config, on_progress)
