"""The index of a running store: filing keys, rolling to the next file, and putting a half-written file right.

The index is derived from the log alone: the same log gives the same files, byte for byte. What a crash leaves in the
newest file is cut back to the entries that are known to be whole, and its slots are built again from those.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from contextlib import ExitStack
from datetime import datetime, timedelta
from pathlib import Path

from mqstore import errors, kernels
from mqstore.files import durable
from mqstore.files.mapped_file import MappedFile
from mqstore.files.pool import FilePool
from mqstore.kernels.api import IndexSlots, LogColumns
from mqstore.layout import index as layout
from mqstore.layout.file_names import index_file_name
from mqstore.layout.index import IndexHeader
from mqstore.store.index_header import StoreTime, entries_misfit, log_misfit, misfit_error, start_after
from mqstore.store.index_reader import Geometry, IndexFileReader, list_index_files
from mqstore.store.log_reader import Chunk

_NAME_FORMAT = "%Y%m%d%H%M%S"
_ROWS_AT_A_TIME = 8192
_COMPARE_BYTES = 1 << 20


class IndexWriter:
    """Files the keys of records, in log order. Written by one thread at a time; another may sync, a third expire.

    Attributes:
        paths: the index files, oldest first.
        end_timestamp_ms: store time of the last record in the newest file that is full and synced; 0 if none is.
    """

    def __init__(self, directory: Path, geometry: Geometry, readers: FilePool) -> None:
        self._directory = directory
        self._readers = readers
        self._geometry = geometry
        self._file: MappedFile | None = None
        self._list_guard = threading.Lock()  # the dispatcher adds files while expiry removes some and a sync looks
        self.paths: list[Path] = []
        self._unsynced_full: list[MappedFile] = []
        self._filed_to = (0, 0)
        self.end_timestamp_ms = 0

    def open_last(self, filed_to: int) -> None:
        """Go on in the newest file, if there is one; records before physical offset ``filed_to`` are filed."""
        self._filed_to = (filed_to, 0)
        self.paths = list_index_files(self._directory)
        if self.paths:
            file = MappedFile(self.paths[-1], self._geometry.file_size)
            self._use(file)
            file.reserve_if_possible(
                min(file.size_bytes, layout.entry_position(self.index_count, self._geometry.hash_slots))
            )

    def _use(self, file: MappedFile) -> None:
        """Make ``file`` the one that is written to."""
        if self._file is not None:
            self._readers.take_back(self._file)
        self._file = file
        self._readers.lend(file)

    @property
    def last_name(self) -> str | None:
        """Name of the file now written to, None before the first."""
        return None if self._file is None else self._file.path.name

    @property
    def index_count(self) -> int:
        """Number of the next entry in the file now written to, 1 before the first."""
        return 1 if self._file is None else self._header().index_count

    def _header(self) -> IndexHeader:
        assert self._file is not None
        return layout.decode_header(self._file.buffer[: layout.INDEX_HEADER.size])

    def put(self, chunk: Chunk) -> None:
        """File the keys of all records of ``chunk``; those filed before are passed over.

        Raises:
            DiskFullError, StoreIOError: call again with the same records; none will be filed twice.
        """
        columns = chunk.columns
        offset, key = self._filed_to
        row = bisect_left(columns.position, offset - chunk.physical_offset)
        if row < columns.count and columns.position[row] + chunk.physical_offset != offset:
            key = 0
        while row < columns.count:
            file = self._file if self._file is not None else self._roll(columns.store_timestamp_ms[row])
            stop = min(columns.count, row + _ROWS_AT_A_TIME)
            self._reserve(file, columns, row, stop)
            row, key = kernels.index_put(
                file.buffer,
                self._geometry.hash_slots,
                self._geometry.max_entries,
                chunk.buffer,
                columns,
                row,
                key,
                stop,
            )
            if row < stop:
                self._filed_to = (chunk.physical_offset + columns.position[row], key)
                self._roll(columns.store_timestamp_ms[row])
            else:
                self._filed_to = (chunk.physical_offset + columns.position[row - 1] + 1, 0)

    def _reserve(self, file: MappedFile, columns: LogColumns, row: int, stop: int) -> None:
        rows = stop - row
        keys_bytes = sum(columns.keys_size[row:stop]) + rows  # those without keys say -1
        most_keys = rows + keys_bytes // 2 + rows
        number = min(self._geometry.max_entries, self._header().index_count + most_keys)
        file.reserve(layout.entry_position(number, self._geometry.hash_slots))

    def _roll(self, store_timestamp_ms: int) -> MappedFile:
        """Begin the next file; the full one is synced with the next :meth:`sync`."""
        previous = self._file
        durable.make_directories(self._directory)
        name = next_index_name(store_timestamp_ms, None if previous is None else previous.path.name)
        file = MappedFile(self._directory / name, self._geometry.file_size, create=True)
        try:
            file.reserve(layout.entry_position(1, self._geometry.hash_slots))
        except BaseException:
            file.close()
            raise
        if previous is not None:
            # As RocketMQ does, so that a file that never takes a key still tells where it begins.
            start = start_after(self._header())
            file.buffer[: layout.INDEX_HEADER.size] = layout.encode_header(start)
        with self._list_guard:  # all at once: a sync that saw only a part would pass over the full file
            self._use(file)
            if previous is not None:
                self._unsynced_full.append(previous)
            self.paths = [*self.paths, file.path]
        return file

    def sync(self) -> None:
        """Force all entries to the device. Safe beside :meth:`put` of another thread: a later entry may come along."""
        with self._list_guard:
            current, full = self._file, list(self._unsynced_full)
        for file in full:
            file.sync()
            self.end_timestamp_ms = layout.decode_header(file.buffer[: layout.INDEX_HEADER.size]).end_timestamp_ms
            with self._list_guard:
                self._unsynced_full.remove(file)
            file.close()
        if current is not None:
            current.sync()

    def expire(self, log_min: int) -> list[Path]:
        """Remove the files all of whose records lie before physical offset ``log_min``; the newest one stays.

        Raises:
            StoreIOError: one could not be read or removed; those before it are gone.
        """
        with self._list_guard:
            paths, unsynced = self.paths, {file.path for file in self._unsynced_full}
        expired = 0
        for number, path in enumerate(paths[:-1], 1):
            end = self._end_physical_offset(path)
            if path in unsynced or (end is not None and end >= log_min):
                break
            if end is not None:
                expired = number  # and with it a missing one before
        removed: list[Path] = []
        try:
            for path in paths[:expired]:
                durable.remove_file(path)
                removed.append(path)
        finally:
            if removed:
                with self._list_guard:
                    self.paths = [path for path in self.paths if path not in removed]
        if removed:
            durable.sync_directory(self._directory)
        return removed

    def _end_physical_offset(self, path: Path) -> int | None:
        """Up to where a file's entries point; None when it is missing."""
        try:
            data = self._readers.read(path, 0, layout.INDEX_HEADER.size)
        except errors.StoreIOError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return None
            raise
        return layout.decode_header(data).end_physical_offset

    def close(self) -> None:
        """Sync and close; raises as :meth:`sync`, closed all the same."""
        with ExitStack() as rest:  # each of these whatever becomes of the others, the last first
            for file in filter(None, [*self._unsynced_full, self._file]):
                rest.callback(file.close)
            rest.callback(self._let_go)
            self.sync()

    def _let_go(self) -> None:
        if self._file is not None:
            self._readers.take_back(self._file)
        self._file = None


def next_index_name(timestamp_ms: int, previous: str | None) -> str:
    """The name of an index file that begins at ``timestamp_ms``: local time to the millisecond, 17 digits.

    Always greater than ``previous``: files are ordered by name, whatever the clock did.
    """
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000)
    except (OverflowError, OSError, ValueError):
        moment = datetime.fromtimestamp(time.time())
    name = index_file_name(moment)
    if previous is not None and name <= previous:
        last = datetime.strptime(previous[:14], _NAME_FORMAT) + timedelta(milliseconds=int(previous[14:]) + 1)
        name = index_file_name(last)
    return name


def check_full(paths: list[Path], geometry: Geometry, store_time: StoreTime) -> IndexHeader | None:
    """Compare the headers of full files with their ends and the log; the newest one's, None without files.

    Raises:
        CorruptFileError: one of the files is not full, or of another shape, or its header cannot be right.
    """
    pool = FilePool(1)
    header = None
    try:
        for path in paths:
            reader = IndexFileReader(path, pool, geometry)
            header = reader.checked_header(header, store_time)
            if reader.length != geometry.file_size or header.index_count != geometry.max_entries:
                raise errors.CorruptFileError(
                    "an index file is not full, and there is a newer one",
                    path=path,
                    expected=geometry.max_entries,
                    found=header.index_count,
                    hint="mqstore rebuild makes the index anew from the log",
                )
    finally:
        pool.close()
    return header


def cut_back(
    path: Path, geometry: Geometry, log_end: int, previous: IndexHeader | None, store_time: StoreTime
) -> IndexHeader:
    """Cut an index file back to the entries of records before ``log_end`` and build its slots from them.

    Args:
        path: the file.
        geometry: its shape.
        log_end: entries of records at or behind it go.
        previous: the header of the file before, None when there is none.
        store_time: tells the times of the log's records, for the header's end.

    Returns the header that the file has now.

    Raises:
        CorruptFileError: the entries left contradict each other; the index must be built from the log.
    """
    pool = FilePool(1)
    reader = IndexFileReader(path, pool, geometry)
    header, first = reader.header, reader.entry(1)
    pool.close()
    file = MappedFile(path, geometry.file_size)
    try:
        file.reserve(min(geometry.file_size, layout.entry_position(header.index_count, geometry.hash_slots)))
        begin, end = (layout.entry_position(number, geometry.hash_slots) for number in (1, header.index_count))
        with memoryview(file.buffer) as view, view[begin : max(begin, end)] as entries:
            right = kernels.index_slots(entries, geometry.hash_slots, log_end)
        if right.bad:
            raise _entry_error(path, right.bad, layout.decode_entry(file.buffer, right.bad, geometry.hash_slots))
        fixed = _cut_header(header, right, previous, store_time)
        last = layout.decode_entry(file.buffer, right.entries, geometry.hash_slots)
        misfit = entries_misfit(fixed, first if right.entries else last, last)
        misfit = misfit or log_misfit(fixed, previous, store_time)
        if misfit is not None:
            raise misfit_error(path, misfit)
        _write_slots(file, geometry, fixed, right)
        file.sync()
    finally:
        file.close()
    return fixed


def _cut_header(
    header: IndexHeader, right: IndexSlots, previous: IndexHeader | None, store_time: StoreTime
) -> IndexHeader:
    """What the header must be when the entries of ``right`` are left; its begin stays as it is."""
    if not right.entries:
        is_first = previous is None and header.index_count <= 1  # or those before have expired
        return (header if is_first else start_after(previous))._replace(hash_slot_count=0)
    end_ms = store_time(right.end_physical_offset)
    return header._replace(
        end_timestamp_ms=header.end_timestamp_ms if end_ms is None else end_ms,
        end_physical_offset=right.end_physical_offset,
        hash_slot_count=right.used,
        index_count=right.entries + 1,
    )


def _write_slots(file: MappedFile, geometry: Geometry, header: IndexHeader, right: IndexSlots) -> None:
    """Put header and slots in place where they differ, and clear all entries behind the last."""
    entries_end = layout.entry_position(right.entries + 1, geometry.hash_slots)
    file.reserve(entries_end)
    file.zero_from(entries_end)
    slots = memoryview(right.slots)
    for start in range(0, len(slots), _COMPARE_BYTES):
        here = layout.INDEX_HEADER.size + start
        part = bytes(slots[start : start + _COMPARE_BYTES])  # a view would be compared number by number
        if not file.holds(here, part):
            file.buffer[here : here + len(part)] = part
    file.buffer[: layout.INDEX_HEADER.size] = layout.encode_header(header)


def _entry_error(path: Path, number: int, entry: object) -> errors.CorruptFileError:
    return errors.CorruptFileError(
        "index entries contradict each other",
        path=path,
        offset=number,
        found=entry,
        hint="mqstore rebuild makes the index anew from the log",
    )
