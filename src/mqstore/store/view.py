"""A store directory looked at from outside: read-only, without the lock, beside a running writer or on a copy."""

from __future__ import annotations

import functools
import glob
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Concatenate, ParamSpec, TypeVar

from mqstore import errors
from mqstore.files.inventory import Identity, Inventory, identity_of, take_inventory
from mqstore.files.pool import FilePool
from mqstore.files.whole import mode_of
from mqstore.findings import Finding
from mqstore.layout.checkpoint import Checkpoint
from mqstore.layout.delay import parse_delay_levels
from mqstore.layout.queue_unit import QueueUnit, iter_units
from mqstore.layout.record import Blank
from mqstore.store import reading
from mqstore.store.arguments import check_path
from mqstore.store.checkpoint import load_checkpoint, load_dispatch_checkpoint
from mqstore.store.delay_levels import delay_levels_of
from mqstore.store.derived import MemoryQueue, build_queues, find_by_key
from mqstore.store.index_reader import Geometry, IndexFileReader, list_index_files
from mqstore.store.key_lookup import KeyQuery, query_by_key
from mqstore.store.log_places import given_places
from mqstore.store.log_reader import Chunk, LogReader, Reporter, stop_at_damage
from mqstore.store.message import QueryResult, QueueInfo
from mqstore.store.multi_dispatch import MultiDispatch, find_multi_dispatch
from mqstore.store.overlooked import log_overlooked, queues_overlooked
from mqstore.store.paths import StorePaths
from mqstore.store.queue_reader import QueueReader
from mqstore.store.queue_states import (
    Look,
    find_index,
    find_queue,
    in_one_state,
    is_rebuilt,
    list_states,
    state_for_index,
    state_for_queues,
    while_queues_stay,
)
from mqstore.store.settings import Settings
from mqstore.store.store_reader import StoreReader

_UNITS_AT_A_TIME = 4096

_P = ParamSpec("_P")
_ResultT = TypeVar("_ResultT")


def _steady(
    method: Callable[Concatenate[StoreView, _P], _ResultT], look: Look = state_for_queues
) -> Callable[Concatenate[StoreView, _P], _ResultT]:
    """``method``, done anew when a rebuild in place has moved what it reads, as ``look`` tells: queues or index."""

    @functools.wraps(method)
    def steadily(self: StoreView, /, *arguments: _P.args, **named: _P.kwargs) -> _ResultT:
        if self._from_log:
            return method(self, *arguments, **named)
        return while_queues_stay(self.paths, functools.partial(method, self, *arguments, **named), look)

    return steadily


class StoreView(StoreReader):
    """A store read from its files as they are at each call.

    Nothing is written, locked or mapped. Beside a running writer the view follows it: what the writer dispatched is
    seen, what it has not finished is not. Use it as a context manager, or call :meth:`close`.

    Beside a rebuild in place the old queues and the old index are read until the new ones are complete. What they
    cannot tell, as they had been lost, is an error then: a StoreLockedError, or a CorruptFileError if no process has
    the store.

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
        self.path = check_path(path)
        check_is_store(StorePaths(self.path))
        given = given_places(self.path, store_path_commit_log, read_only_commit_log_store_paths)
        self.paths = StorePaths(self.path, given)
        self._pool = FilePool()
        self._check_open = lambda: None  # the pool tells as soon as a file is to be read
        self._given_geometry = index_geometry
        self.log = LogReader(self.paths.commit_logs, pool=self._pool)
        self._index_files: dict[Path, tuple[Identity | None, IndexFileReader]] = {}
        self._from_log = from_log
        self._built: dict[tuple[str, int], MemoryQueue] | None = None

    @cached_property
    def multi_dispatch(self) -> MultiDispatch:
        """Whether records go to further queues; raises CorruptConfigError for a note that cannot be read."""
        return find_multi_dispatch(self.paths)

    @cached_property
    def delay_table(self) -> dict[int, int]:
        """The time in ms of each delay level; raises CorruptConfigError for a note that cannot be read."""
        return parse_delay_levels(delay_levels_of(self.paths))

    # -- the log

    @property
    def min_physical_offset(self) -> int:
        """Physical offset at which the log begins."""
        return self.log.min_offset

    @property
    def log_end(self) -> int:
        """Physical offset just past the last sound record."""
        return self.log.end_offset()

    def scan_columns(
        self, start: int | None = None, end: int | None = None, *, on_damage: Reporter = stop_at_damage
    ) -> Iterator[Chunk]:
        """As :meth:`scan`, in columns, a few thousand records at a time: for code that is in a hurry."""
        return self.log.scan(start, end, on_damage=on_damage, pass_expired=True)

    def blanks(self) -> Iterator[Blank]:
        """The blank records that close the log's files."""
        return self.log.blanks()

    # -- queues

    get = _steady(StoreReader.get)
    get_table = _steady(StoreReader.get_table)
    query = _steady(StoreReader.query, state_for_index)
    offset_at = _steady(StoreReader.offset_at)
    min_offset = _steady(StoreReader.min_offset)
    max_offset = _steady(StoreReader.max_offset)

    @_steady
    def queues(self, topic: str | None = None) -> list[QueueInfo]:
        """Every queue (of ``topic``) with its range, ordered by topic and id."""
        log_end = self.log_end
        found = []
        for name, queue_id in self._list_queues():
            if topic is None or name == topic:
                place = self._range(name, queue_id, log_end)
                if place is not None:
                    found.append(QueueInfo(name, queue_id, place.min_offset, place.max_offset))
        return found

    def _list_queues(self) -> Iterable[tuple[str, int]]:
        return self._memory_queues() if self._from_log else list_states(self.paths)

    def _memory_queues(self) -> dict[tuple[str, int], MemoryQueue]:
        if self._built is None:
            self._built = build_queues(self.log, delay_levels=self.delay_table, multi=self.multi_dispatch)
        return self._built

    @_steady
    def topics(self) -> list[str]:
        """Names of all topics that have a queue."""
        return sorted({topic for topic, _ in self._list_queues()})

    def units(self, topic: str, queue_id: int, begin: int | None = None, end: int | None = None) -> Iterator[QueueUnit]:
        """The queue's units from offset ``begin`` to ``end``, both clamped to its range; none of a missing queue.

        Raises:
            CorruptFileError: a file of the queue is missing, and expiry has not removed it.
        """
        find = functools.partial(self._find, topic, queue_id)
        found, state = in_one_state(self.paths, find, state_for_queues)
        if found is None:
            return
        offset = max(found.min_offset, begin if begin is not None else 0)
        last = min(found.max_offset, end if end is not None else found.max_offset)
        while offset < last:
            data = found.queue.units(offset, min(_UNITS_AT_A_TIME, last - offset))
            if state_for_queues(self.paths) != state:  # a rebuild has moved it: what was read may be half made
                now, state = in_one_state(self.paths, find, state_for_queues)
                if now is None:
                    return
                found = now
                continue
            if not data:
                now = self._find(topic, queue_id)  # its writer may have removed what has expired, or the whole queue
                if now is not None and now.min_offset <= offset:
                    raise reading.missing_file(now.queue, offset)
                found, offset = (now, now.min_offset) if now is not None else (found, last)
                continue
            for unit in iter_units(data):
                yield unit
                offset += 1

    @_steady
    def queue_inventory(self, topic: str, queue_id: int) -> Inventory | None:
        """The files of a queue and what is wrong with them; None of one that is not there, or is taken from the log."""
        if self._from_log:
            return None
        if not is_rebuilt(self.paths):
            is_there = self.paths.has_queue(topic, queue_id)
            return take_inventory([self.paths.queue(topic, queue_id)]) if is_there else None
        found = self._find(topic, queue_id)
        return found.queue.inventory if found is not None and isinstance(found.queue, QueueReader) else None

    @_steady
    def overlooked(self, queues: Iterable[tuple[str, int]] | None = None) -> list[Finding]:
        """What cannot be seen of this store, so that figures of it are too small: as a check finds it, but quickly.

        Looked at are the files of the log, how each begins and how it ends, and the files of ``queues``, or of all; not
        what is in them.
        """
        return log_overlooked(self) + ([] if self._from_log else queues_overlooked(self, queues))

    def _note_get(self, count: int, start_ns: int) -> None:
        """Nobody asks a view for counts."""

    def _find(self, topic: str, queue_id: int) -> reading.QueueRange | None:
        return self._range(topic, queue_id, 0 if self._from_log else self.log_end)

    def _range(self, topic: str, queue_id: int, log_end: int) -> reading.QueueRange | None:
        if self._from_log:
            built = self._memory_queues().get((topic, queue_id))
            return None if built is None else reading.QueueRange(built, built.min_offset, built.max_offset)
        found = find_queue(self.paths, topic, queue_id, log_end, self._pool)
        if found is None:
            return None
        queue, end = found
        return reading.QueueRange(queue, queue.find_min(self.log.min_offset, end), end)

    # -- index, checkpoint, files

    def _index_files_there(self) -> list[IndexFileReader]:
        """The index files, oldest first.

        Raises:
            CorruptFileError: one of them is no index file: a query could then not tell "none" from "not looked at".
        """
        return find_index(self.paths, self._index_files_of)

    index_files = _steady(_index_files_there, state_for_index)

    def _index_files_of(self, paths: StorePaths) -> list[IndexFileReader]:
        found = [(path, identity_of(path)) for path in list_index_files(paths.index, refuse_others=True)]
        new = [one for one in found if one[0] not in self._index_files or self._index_files[one[0]][0] != one[1]]
        geometry = self._geometry(paths) if new else None
        for path, identity in new:
            self._pool.forget(path)
            self._index_files[path] = identity, IndexFileReader(path, self._pool, geometry)
        return [self._index_files[path][1] for path, _ in found]

    def _geometry(self, paths: StorePaths) -> Geometry | None:
        if self._given_geometry is not None:
            return self._given_geometry
        note = load_dispatch_checkpoint(paths.dispatch_checkpoint)
        return None if note is None else note.sizes.index

    def _by_key(self, wanted: KeyQuery, max_messages: int) -> QueryResult:
        if self._from_log:
            found = find_by_key(self.log, wanted.topic, wanted.key)
            return reading.newest(found, max_messages, wanted.begin_ms, wanted.end_ms)
        return query_by_key(self.log, self._index_files_there(), wanted, max_messages)

    @property
    def settings(self) -> Settings:
        """Topics, groups, consumer offsets and delay offsets, read anew from ``config/``."""
        return Settings(self.paths.config)

    def _progress(self) -> Settings:
        return self.settings

    @property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint file's content; zeros when there is none."""
        return load_checkpoint(self.paths.checkpoint)

    @property
    def was_aborted(self) -> bool:
        """Whether the store is running now or ended without a clean close."""
        return mode_of(self.paths.abort) != 0

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
    """Raise NotAStoreError unless ``paths.root`` is a directory with something of a store in it, UsageError for a
    pattern."""
    mode = mode_of(paths.root)
    if not mode and glob.has_magic(str(paths.root)):
        raise errors.UsageError(
            "this takes one store at a time, and no pattern", path=paths.root,
            hint="name one store's directory; patterns are for spark.read, and for export, stats and lag of "
            "mqstore.spark.jobs",
        )  # fmt: skip
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
