"""A store directory looked at from outside: read-only, without the lock, beside a running writer or on a copy."""

from __future__ import annotations

import functools
import os
import stat
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from types import TracebackType

from mqstore import errors
from mqstore.files.pool import FilePool
from mqstore.files.remote import as_path
from mqstore.files.whole import mode_of
from mqstore.layout.checkpoint import Checkpoint
from mqstore.layout.message_id import decode_message_id
from mqstore.layout.queue_unit import QueueUnit, iter_units
from mqstore.layout.record import Blank, Record
from mqstore.layout.sql92 import SqlExpression
from mqstore.status import BoundaryType
from mqstore.store import reading
from mqstore.store.arguments import check_count, check_get, check_long, check_queue, check_texts, check_window
from mqstore.store.checkpoint import load_checkpoint, load_dispatch_checkpoint
from mqstore.store.derived import MemoryQueue, build_queues, find_by_key
from mqstore.store.index_reader import Geometry, IndexFileReader, list_index_files
from mqstore.store.key_lookup import KeyQuery, query_by_key
from mqstore.store.log_places import given_places
from mqstore.store.log_reader import Chunk, LogReader, Reporter, stop_at_damage
from mqstore.store.message import GetResult, QueryResult, QueueInfo
from mqstore.store.multi_dispatch import MultiDispatch, find_multi_dispatch
from mqstore.store.paths import StorePaths
from mqstore.store.queue_reader import QueueReader
from mqstore.store.queue_table import DEFAULT_ROWS, GetTableResult, Names, check_columns, get_table
from mqstore.store.settings import GroupProgress, Settings, group_progress
from mqstore.store.time_search import offset_at_by_file_times

_UNITS_AT_A_TIME = 4096
TIME_MAX_MS = (1 << 63) - 1


class StoreView:
    """A store read from its files as they are at each call.

    Nothing is written, locked or mapped. Beside a running writer the view follows it: what the writer dispatched is
    seen, what it has not finished is not. Use it as a context manager, or call :meth:`close`.

    Attributes:
        path: the store's directory.
        paths: where its parts lie.
        log: the commit log.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        from_log: bool = False,
        index_geometry: Geometry | None = None,
        store_path_commit_log: str | None = None,
        read_only_commit_log_store_paths: str | None = None,
    ) -> None:
        """Look at the store in directory ``path``.

        Args:
            path: the store's root, which holds ``commitlog/``.
            from_log: take queues and keys from the log alone, for a store that has lost them. The queues are built
                in memory once, when first asked for; key look-ups read the whole log.
            index_geometry: slots and entries of its index files; None is what mqstore noted when it wrote them, or
                what their content tells.
            store_path_commit_log: directories of its log, as in its broker's configuration, divided by commas. None is
                what mqstore noted when it wrote there, or ``commitlog/``.
            read_only_commit_log_store_paths: further ones, which get no new files.

        Raises:
            NotAStoreError: there is no such directory, or nothing of a store in it.
            StoreIOError: it could not be read, or a directory of its log is missing.
            UsageError: the directories given leave out one that has files of the log.
        """
        self.path = as_path(path)
        check_is_store(StorePaths(self.path))
        given = given_places(self.path, store_path_commit_log, read_only_commit_log_store_paths)
        self.paths = StorePaths(self.path, given)
        self._pool = FilePool()
        self._given_geometry = index_geometry
        self.log = LogReader(self.paths.commit_logs, pool=self._pool)
        self._index_files: dict[Path, IndexFileReader] = {}
        self._from_log = from_log
        self._built: dict[tuple[str, int], MemoryQueue] | None = None

    @cached_property
    def multi_dispatch(self) -> MultiDispatch:
        """Whether records go to further queues; raises CorruptConfigError for a note that cannot be read."""
        return find_multi_dispatch(self.paths)

    # -- the log

    @property
    def min_physical_offset(self) -> int:
        """Physical offset at which the log begins."""
        return self.log.min_offset

    @property
    def log_end(self) -> int:
        """Physical offset just past the last sound record."""
        return self.log.end_offset()

    def scan(
        self, start: int | None = None, end: int | None = None, *, on_damage: Reporter = stop_at_damage
    ) -> Iterator[Record]:
        """Every record of the log in order, decoded one by one.

        Args:
            start: physical offset to begin at, a record start; None is the log's first.
            end: records that start at or after it are left out.
            on_damage: decides at each damage whether to go on behind it (docs/operations.md).
        """
        for chunk in self.scan_columns(start, end, on_damage=on_damage):
            yield from chunk.records()

    def scan_columns(
        self, start: int | None = None, end: int | None = None, *, on_damage: Reporter = stop_at_damage
    ) -> Iterator[Chunk]:
        """The same as columns, a few thousand records at a time: for code that is in a hurry."""
        return self.log.scan(start, end, on_damage=on_damage)

    def blanks(self) -> Iterator[Blank]:
        """The blank records that close the log's files."""
        return self.log.blanks()

    def message_at(self, physical_offset: int) -> Record | None:
        """The message whose record starts at ``physical_offset``, or None when none does."""
        return self.log.record_at(physical_offset)

    def message_by_id(self, message_id: str) -> Record | None:
        """The message with this offset message id (32 or 56 hexadecimal digits), or None.

        Raises:
            UsageError: the text is no offset message id.
        """
        check_texts(message_id=message_id)
        return self.log.record_at(decode_message_id(message_id)[1])

    # -- queues

    def queues(self, topic: str | None = None) -> list[QueueInfo]:
        """Every queue (of ``topic``) with its range, ordered by topic and id."""
        log_end = self.log_end
        found = []
        for name, queue_id in self._list_queues():
            if topic is None or name == topic:
                where = self._range(name, queue_id, log_end)
                found.append(QueueInfo(name, queue_id, where.min_offset, where.max_offset))
        return found

    def _list_queues(self) -> Iterable[tuple[str, int]]:
        return self._memory_queues() if self._from_log else self.paths.list_queues()

    def _memory_queues(self) -> dict[tuple[str, int], MemoryQueue]:
        if self._built is None:
            self._built = build_queues(self.log, multi=self.multi_dispatch)
        return self._built

    def topics(self) -> list[str]:
        """Names of all topics that have a queue."""
        return sorted({topic for topic, _ in self._list_queues()})

    def units(self, topic: str, queue_id: int, begin: int | None = None, end: int | None = None) -> Iterator[QueueUnit]:
        """The queue's units from offset ``begin`` to ``end``, both clamped to its range; none of a missing queue.

        Raises:
            CorruptFileError: a file of the queue is missing, and expiry has not removed it.
        """
        where = self._find(topic, queue_id)
        if where is None:
            return
        offset = max(where.min_offset, begin if begin is not None else 0)
        last = min(where.max_offset, end if end is not None else where.max_offset)
        while offset < last:
            data = where.queue.units(offset, min(_UNITS_AT_A_TIME, last - offset))
            if not data:
                now = self._find(topic, queue_id)  # its writer may have removed what has expired, or the whole queue
                if now is not None and now.min_offset <= offset:
                    raise reading.missing_file(now.queue, offset)
                where, offset = (now, now.min_offset) if now is not None else (where, last)
                continue
            for unit in iter_units(data):
                yield unit
                offset += 1

    def get(
        self,
        topic: str,
        queue_id: int = 0,
        offset: int = 0,
        max_messages: int = 32,
        where: str | SqlExpression | None = None,
    ) -> GetResult:
        """Messages of one queue from ``offset`` on; see :meth:`mqstore.Store.get`."""
        expression = reading.parse_filter(where)
        check_get(topic, queue_id, offset, max_messages)
        find = functools.partial(self._find, topic, queue_id)
        return reading.get_messages(self.log, find, offset, max_messages, expression, reading.GetLimits())

    def get_table(
        self, topic: str, queue_id: int = 0, offset: int = 0, max_messages: int = DEFAULT_ROWS, columns: Names = None
    ) -> GetTableResult:
        """The same as rows of an Arrow table; see :meth:`mqstore.Store.get_table`."""
        names = check_columns(columns)
        check_get(topic, queue_id, offset, max_messages)
        find = functools.partial(self._find, topic, queue_id)
        return get_table(self.log, find, offset, max_messages, names)

    def offset_at(
        self, topic: str, queue_id: int, timestamp_ms: int, boundary: str | BoundaryType = BoundaryType.LOWER
    ) -> int | None:
        """Queue offset at a store time; see :meth:`mqstore.Store.offset_at`."""
        check_queue(topic, queue_id)
        check_long("timestamp_ms", timestamp_ms)
        found = self._find(topic, queue_id)
        if found is None:
            return None
        return reading.offset_at_time(
            lambda offset: self._time_of(found.queue, offset),
            found.min_offset,
            found.max_offset,
            timestamp_ms,
            parse_boundary(boundary),
        )

    def offset_at_as_v4(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """The offset that a RocketMQ 4.9 broker answers for a time: to tell what a consumer reset there will do.

        It picks the queue's file by modification time and gives the nearest message, which may be on either side.
        Use :meth:`offset_at` for an answer that can be relied on.
        """
        found = self._find(topic, queue_id)
        if found is None or not isinstance(found.queue, QueueReader):
            return 0
        return offset_at_by_file_times(self.log, found, found.queue.inventory.entries, timestamp_ms)

    def _time_of(self, queue: reading.UnitSource, offset: int) -> int | None:
        return store_time_of(self.log, queue, offset)

    def _find(self, topic: str, queue_id: int) -> reading.QueueRange | None:
        if self._from_log:
            return self._range(topic, queue_id, 0) if (topic, queue_id) in self._memory_queues() else None
        if not stat.S_ISDIR(mode_of(self.paths.queue(topic, queue_id))):
            return None
        return self._range(topic, queue_id, self.log_end)

    def _range(self, topic: str, queue_id: int, log_end: int) -> reading.QueueRange:
        if self._from_log:
            built = self._memory_queues()[topic, queue_id]
            return reading.QueueRange(built, built.min_offset, built.max_offset)
        queue = QueueReader(topic, queue_id, self.paths.queue(topic, queue_id), self._pool)
        end = queue.find_end(log_end)
        return reading.QueueRange(queue, queue.find_min(self.log.min_offset, end), end)

    # -- index, checkpoint, files

    def index_files(self) -> list[IndexFileReader]:
        """The index files, oldest first.

        Raises:
            CorruptFileError: one of them is no index file: a query could then not tell "none" from "not looked at".
        """
        paths = list_index_files(self.paths.index)
        new = [path for path in paths if path not in self._index_files]
        geometry = self._geometry() if new else None
        for path in new:
            self._index_files[path] = IndexFileReader(path, self._pool, geometry)
        return [self._index_files[path] for path in paths]

    def _geometry(self) -> Geometry | None:
        if self._given_geometry is not None:
            return self._given_geometry
        note = load_dispatch_checkpoint(self.paths.dispatch_checkpoint)
        return None if note is None else note.sizes.index

    def query(
        self, topic: str, key: str, begin: int = 0, end: int = TIME_MAX_MS, max_messages: int = 64
    ) -> QueryResult:
        """Messages of ``topic`` by key; see :meth:`mqstore.Store.query`."""
        check_texts(topic=topic, key=key)
        check_window(begin, end)
        check_count(max_messages)
        if self._from_log:
            return reading.newest(find_by_key(self.log, topic, key), max_messages, begin, end)
        return query_by_key(self.log, self.index_files(), KeyQuery(topic, key, begin, end), max_messages)

    @property
    def settings(self) -> Settings:
        """Topics, groups, consumer offsets and delay offsets, read anew from ``config/``."""
        return Settings(self.paths.config)

    @property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint file's content; zeros when there is none."""
        return load_checkpoint(self.paths.checkpoint)

    @property
    def was_aborted(self) -> bool:
        """Whether the store is running now or ended without a clean close."""
        return mode_of(self.paths.abort) != 0

    def progress(self) -> list[GroupProgress]:
        """How far each consumer group has come in each queue, ordered by group, topic and queue."""
        offsets = self.settings.consumer_offsets  # before the queues: a running consumer must not seem ahead of them
        return group_progress(offsets, self.queues())

    def close(self) -> None:
        """Close the files."""
        self._pool.close()

    def __enter__(self) -> StoreView:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def check_is_store(paths: StorePaths) -> None:
    """Raise NotAStoreError unless ``paths.root`` is a directory with something of a store in it."""
    mode = mode_of(paths.root)
    if not stat.S_ISDIR(mode):
        problem = "not a directory" if mode else "no such directory"
        raise errors.NotAStoreError(problem, path=paths.root, hint="give the directory that holds commitlog/")
    if not paths.looks_like_store():
        raise errors.NotAStoreError(
            "no store in this directory",
            path=paths.root,
            expected="commitlog/, consumequeue/ or checkpoint",
            hint="give the directory that holds commitlog/, or make a store with mqstore.open",
        )


def store_time_of(log: LogReader, queue: reading.UnitSource, offset: int) -> int | None:
    """Store time in ms of the message at a queue offset; None when its record is gone."""
    unit = queue.unit(offset)
    if unit is None or not unit.is_written:
        return None
    record = log.record_at(unit.physical_offset, unit.size_bytes)
    return None if record is None else record.store_timestamp_ms


def parse_boundary(boundary: str | BoundaryType) -> BoundaryType:
    """``"lower"`` or ``"upper"``; UsageError for anything else."""
    try:
        return BoundaryType(boundary)
    except ValueError:
        raise errors.UsageError("no such boundary", expected="lower or upper", found=repr(boundary)) from None
