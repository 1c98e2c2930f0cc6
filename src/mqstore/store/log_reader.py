"""Reading a commit log by position, beside a writer or not.

Nothing here changes a file. The log's files are found by name, read with ``pread`` and judged by the kernels; what
is wrong is told to the caller, who decides whether to stop, skip or salvage.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from mqstore import errors, kernels
from mqstore.files import durable
from mqstore.files.inventory import FileEntry, Inventory, take_inventory
from mqstore.files.pool import FilePool
from mqstore.files.remote import RemotePath
from mqstore.files.whole import mode_of
from mqstore.kernels.api import Stop
from mqstore.layout.buffers import Buffer
from mqstore.layout.constants import BLANK_SIZE, MAGIC_BLANK
from mqstore.layout.record import Blank, Damage, Record, decode_record
from mqstore.store.log_chunks import Chunk, LogDamage, Reporter, starting_before, stop_at_damage

__all__ = ["CHUNK_BYTES", "Chunk", "LogDamage", "LogReader", "Reporter", "stop_at_damage"]

_T = TypeVar("_T")

CHUNK_BYTES = 4 << 20
"""Bytes read and scanned at a time; more only where one record is larger."""
_HEAD_GUESS_BYTES = 4096

_MAPPED_BYTES = 256 << 10
"""More than this is worth reading by system calls, during which other threads run."""

_LOOK_AGAIN_S = (0.0, 0.001, 0.01, 0.1)
"""How long a writer beside may take from a batch's second record to its first."""

_HEAD_BYTES = 64
"""More than what is needed to recognise a record's head."""

_LAST_FILES = 3
"""How many files at the end of a log are looked through for its end, as the Java store does."""


@dataclass(frozen=True)
class _ScanOptions:
    """How a scan goes: as the arguments of :meth:`LogReader.scan`."""

    end: int | None = None
    on_damage: Reporter = stop_at_damage
    check_crc: bool = True
    chunk_bytes: int = CHUNK_BYTES


class LogReader:
    """The commit log below one or several directories.

    Safe for several threads. The list of files is refreshed when an offset is asked for that no known file holds.
    """

    def __init__(self, directories: Sequence[Path], *, file_size: int | None = None, pool: FilePool | None = None):
        self._directories = list(directories)
        self._file_size = file_size
        self._pool = pool if pool is not None else FilePool()
        self._refreshing = threading.Lock()
        self._inventory = Inventory([], 0)
        self._known_end: int | None = None
        self._blank_behind: tuple[FileEntry, int] | None = None  # looked through once, and not each time
        self.refresh()

    @property
    def inventory(self) -> Inventory:
        """The files as last listed."""
        return self._inventory

    def refresh(self) -> None:
        """List the files anew."""
        with self._refreshing:  # or an older list could take the place of a newer one
            known, self._inventory = self._inventory, take_inventory(self._directories, self._file_size)
            self._pool.note_listed(self._inventory.entries)
            if self._inventory.has_others_than(known):
                self._known_end = self._blank_behind = None

    @property
    def min_offset(self) -> int:
        """Start of the first file, 0 for an empty log."""
        return self._inventory.start

    def entry_at(self, physical_offset: int) -> FileEntry | None:
        """The file that holds ``physical_offset``, or None."""
        entry = self._inventory.find(physical_offset)
        if entry is None:
            self.refresh()
            entry = self._inventory.find(physical_offset)
        return entry

    def read(self, physical_offset: int, size_bytes: int) -> bytes | None:
        """Bytes [physical_offset, + size_bytes) if one file holds them all, else None.

        Raises:
            StoreIOError: the file is there and could not be read.
        """
        if size_bytes <= 0 or physical_offset < 0:
            return None
        entry = self.entry_at(physical_offset)
        if entry is None or physical_offset + size_bytes > entry.start + self._inventory.size_bytes:
            return None
        try:
            data = self._pool.read(entry.path, physical_offset - entry.start, size_bytes)
        except errors.StoreIOError:
            if mode_of(entry.path):
                raise
            self.refresh()  # removed by expiry between listing and opening
            return None
        return data if len(data) == size_bytes else None

    def take(self, start: int, end: int, function: Callable[[Buffer, int], _T]) -> _T | None:
        """``function(data, offset)`` for bytes that hold [start, end), the first of them at physical ``offset``.

        They are the map of the file that this process writes, or else what is read of any other. Whoever makes objects
        of a stretch of the log saves a copy so, and the memory for it, which the allocator would take from the system
        and give back each time. None if not one file holds them all.

        Raises:
            StoreIOError: the file is there and could not be read.
        """
        entry = self.entry_at(start) if end - start <= _MAPPED_BYTES else None
        if entry is not None and start >= entry.start:
            result = self._pool.in_map(entry.path, end - entry.start, lambda data: function(data, entry.start))
            if result is not None:
                return result
        data = self.read(start, end - start)
        return None if data is None else function(data, start)

    def record_at(self, physical_offset: int, size_bytes: int | None = None) -> Record | None:
        """The record that starts at ``physical_offset``, or None when none does.

        Args:
            physical_offset: where it starts.
            size_bytes: its size, when a queue unit told it.

        Raises:
            StoreIOError: the log could not be read.
        """
        data = self._record_bytes(physical_offset) if size_bytes is None else self.read(physical_offset, size_bytes)
        if data is None:
            return None
        try:
            record = decode_record(data, physical_offset=physical_offset)
        except errors.CorruptRecordError:
            return None
        return record if isinstance(record, Record) and record.total_size == len(data) else None

    def record_with_key(
        self, physical_offset: int, topic: bytes, key: bytes, begin_ms: int, end_ms: int
    ) -> Record | Literal[False] | None:
        """The record at ``physical_offset`` if it is of ``topic``, bears ``key`` and is of the time window.

        Returns False for another record, and None when :meth:`record_at` must say whether there is one; topic and key
        are ASCII.
        """
        entry = self.entry_at(physical_offset) if physical_offset >= 0 else None
        if entry is None:
            return None
        position = physical_offset - entry.start
        room = self._inventory.size_bytes - position
        wanted = (physical_offset, topic, key, begin_ms, end_ms)
        try:
            return self._pool.call(entry.path, kernels.record_with_key, position, room, *wanted, Record)
        except errors.StoreIOError:
            return None

    def _record_bytes(self, physical_offset: int) -> bytes | None:
        """As many bytes as the record there claims to have; most need one read only."""
        if physical_offset < 0:
            return None
        room = self._inventory.size_bytes - physical_offset % (self._inventory.size_bytes or 1)
        head = self.read(physical_offset, min(_HEAD_GUESS_BYTES, room)) or self.read(physical_offset, 4)
        if head is None or len(head) < 4:  # the second for a file that was cut short behind a whole record
            return None
        size_bytes = int.from_bytes(head[:4], "big", signed=True)
        return head[:size_bytes] if 0 < size_bytes <= len(head) else self.read(physical_offset, size_bytes)

    def scan(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        on_damage: Reporter = stop_at_damage,
        check_crc: bool = True,
        chunk_bytes: int = CHUNK_BYTES,
        pass_expired: bool = False,
    ) -> Iterator[Chunk]:
        """Give all records that start in [start, end) as columns, in log order.

        Args:
            start: physical offset to begin at: a record start; None is the first file's.
            end: records that start at or after it are left out; None is the end of the log.
            on_damage: decides what happens at damage; unwritten space at the end of the last file is no damage, and a
                file that is missing or too short is.
            check_crc: whether bodies are checked against their CRC.
            chunk_bytes: how much is read at a time.
            pass_expired: go on where the log begins when what comes next has expired, before or meanwhile; otherwise
                the scan ends in front of it, and a file that goes while it is read is an error.

        Raises:
            StoreIOError: a file could not be read.
        """
        position = self.min_offset if start is None else start
        options = _ScanOptions(end, on_damage, check_crc, chunk_bytes)
        while end is None or position < end:
            entry = self.entry_at(position)
            if entry is None:
                behind = self._behind_hole(position)
                if behind is not None:
                    if not on_damage(_hole(behind, position, self._inventory.size_bytes)):
                        return
                    position = behind.start
                    continue
                if not pass_expired or position >= self.min_offset:
                    return
                position = self.min_offset
                continue
            scan = _FileScan(self, entry, options)
            try:
                yield from scan.run(position)
            except errors.StoreIOError:
                if not pass_expired or not self._has_expired(entry):
                    raise
            if scan.stopped:
                return
            position = entry.start + self._inventory.size_bytes

    def _behind_hole(self, position: int) -> FileEntry | None:
        """The file behind a hole in which ``position`` lies; None where no file is missing."""
        if position < self.min_offset or self._inventory.find(position) is not None:
            return None
        return next((entry for entry in self._inventory.entries if entry.start > position), None)

    def _has_expired(self, entry: FileEntry) -> bool:
        """Whether the log begins behind file ``entry`` now: expiry removes no file from its middle."""
        self.refresh()
        return self.min_offset > entry.start

    def end_of_closed_file(self, physical_offset: int) -> int | None:
        """Where to go on when the file is closed at ``physical_offset``, so that no record follows in it; else None."""
        entry = self.entry_at(physical_offset)
        if entry is None:
            return None
        end = entry.start + self._inventory.size_bytes
        if end - physical_offset < BLANK_SIZE:
            return end
        head = self.read(physical_offset, BLANK_SIZE)
        is_blank = head is not None and head[4:] == MAGIC_BLANK.to_bytes(4, "big", signed=True)
        return end if is_blank else None

    def blanks(self) -> Iterator[Blank]:
        """Every blank record: where files were closed, with the bytes left there."""
        for entry in list(self._inventory.entries):
            scan = _FileScan(self, entry, _ScanOptions(check_crc=False))
            for _ in scan.run(entry.start):
                pass
            if scan.blank is not None:
                yield scan.blank

    def end_offset(self) -> int:
        """Offset just past the last sound record of the log.

        The last three files are looked through as the Java store does at a clean start; asked again, only what
        came since. A blank record at the end of the last file counts as the end.
        """
        self.refresh()
        entries = self._inventory.entries
        if not entries:
            return 0
        position = self._known_end
        if position is None or (self._inventory.find(position) is None and position != self._inventory.end):
            position = entries[-min(_LAST_FILES, len(entries))].start
        position = self._end_from(position)
        self._known_end = position
        return position

    def trust_to(self, physical_offset: int) -> None:
        """Take the log for sound up to the end of a record: :meth:`end_offset` looks from there on."""
        self._known_end = physical_offset

    def _end_from(self, position: int) -> int:
        """Walk forward from ``position``, the end of some sound record or the start of a file."""
        while (entry := self._inventory.find(position)) is not None:
            if self.read_file(entry, position, BLANK_SIZE) == bytes(BLANK_SIZE):
                return position  # as a scan would tell that reads a whole chunk of zeros for it
            scan = _FileScan(self, entry, _ScanOptions())
            for _ in scan.run(position):
                pass
            if scan.stopped or self._inventory.find(entry.start + self._inventory.size_bytes) is None:
                return scan.position
            position = entry.start + self._inventory.size_bytes
        return position

    def is_damaged_at(self, physical_offset: int) -> bool:
        """Whether the log, known to be sound up to here, goes on with something that is no record.

        Unwritten space with nothing behind it, a record and a blank record are no damage; a missing file is.
        """
        entry = self.entry_at(physical_offset)
        if entry is None:
            return self._behind_hole(physical_offset) is not None
        if physical_offset >= entry.start + entry.length and self.ends_short(entry):
            return True
        head = self.read(physical_offset, BLANK_SIZE)
        if head is not None and not head.strip(b"\0"):
            return not self.is_unwritten_behind(entry, physical_offset)
        following = self.end_of_closed_file(physical_offset)
        if following is not None:
            return self._behind_hole(following) is not None
        return self.record_at(physical_offset) is None

    def ends_short(self, entry: FileEntry) -> bool:
        """Whether a file is shorter than it should be although another follows it: its last records are gone.

        Where it was cut off between two records, nothing in it tells.
        """
        if entry.length >= self._inventory.size_bytes:
            return False
        self.refresh()
        now = self._inventory.find(entry.start)
        if now is None or now.start != entry.start:
            return False
        return now.length < self._inventory.size_bytes and now.start < self._inventory.entries[-1].start

    def read_file(self, entry: FileEntry, physical_offset: int, size_bytes: int) -> bytes:
        """Up to ``size_bytes`` bytes of file ``entry`` from ``physical_offset`` on, never past the file's end."""
        try:
            return self._pool.read(entry.path, physical_offset - entry.start, size_bytes)
        except errors.StoreIOError:
            if physical_offset != entry.start or not self.is_unmade(entry):
                raise
            return b""

    def is_unmade(self, entry: FileEntry) -> bool:
        """Whether the last file is gone: a writer that was closed had made it ahead and not used it."""
        if mode_of(entry.path):
            return False
        self.refresh()
        return self._inventory.end <= entry.start

    def is_unwritten_behind(self, entry: FileEntry, physical_offset: int) -> bool:
        """Whether no record lies behind ``physical_offset``, where zeros are, in file ``entry`` and those behind it.

        These are blank then: allocated ahead, or left so by a crash. What a power cut or a bad disk has left of a
        record may be zeros, too; then sound ones follow.
        """
        later = (other for other in self._inventory.entries if other.start > entry.start)
        if any(self.read_file(other, other.start, BLANK_SIZE).strip(b"\0") for other in later):
            return False
        known = self._blank_behind
        if known is not None and known[0] == entry and known[1] <= physical_offset:
            return True
        found = self.record_behind(physical_offset)
        for wait_s in _LOOK_AGAIN_S if found is not None else ():
            # A writer beside makes a batch known by its first record, and that last.
            if self.read_file(entry, physical_offset, BLANK_SIZE).strip(b"\0"):
                return True
            time.sleep(wait_s)
        if found is None:
            self._blank_behind = entry, physical_offset
        return found is None

    def record_behind(self, physical_offset: int) -> int | None:
        """Offset of the first sound record at or behind ``physical_offset``, in whichever file; holes are not read.

        An object store cannot tell where holes are: there what lies behind zeros is not looked for.
        """
        for entry in self._inventory.entries:
            start, end = max(physical_offset, entry.start), entry.start + entry.length
            if start >= end or isinstance(entry.path, RemotePath) or not mode_of(entry.path):
                continue
            with self._pool.descriptor(entry.path) as fd:
                parts = durable.data_parts(fd, start - entry.start, entry.length, entry.path)
            for begin, stop in parts:
                found = self.resync(entry, entry.start + begin, entry.start + stop)
                if found is not None:
                    return found
        return None

    def resync(self, entry: FileEntry, physical_offset: int, end: int | None = None) -> int | None:
        """Offset of the first sound record of file ``entry`` that starts in [physical_offset, end)."""
        end = entry.start + entry.length if end is None else end
        position = physical_offset
        while position < end:
            buffer = self.read_file(entry, position, min(CHUNK_BYTES, end + _HEAD_BYTES - position))
            if not buffer:
                return None  # the file has become shorter
            found = kernels.resync(buffer, 0, len(buffer), position)
            if found < 0:
                # A record's head may lie across the border of two reads.
                position += max(1, len(buffer) - _HEAD_BYTES) if position + len(buffer) < end else len(buffer) or end
            elif self.record_at(position + found) is not None:
                return position + found
            else:
                position += found + 1
        return None

    def remove_file(self, path: Path) -> None:
        """Remove a file of the log, and let go of it: a later file of that name is another. The caller refreshes.

        Raises:
            StoreIOError: it could not be removed, or its removal not be made durable.
        """
        durable.remove_file(path)
        self._pool.forget(path)
        durable.sync_directory(path.parent)

    def close(self) -> None:
        """Close the files."""
        self._pool.close()


class _FileScan:
    """One pass over one file. After :meth:`run`, ``position`` is where it ended and ``stopped`` whether for good."""

    def __init__(self, reader: LogReader, entry: FileEntry, options: _ScanOptions) -> None:
        self._reader = reader
        self._entry = entry
        self._options = options
        end = options.end
        self._limit = entry.start + entry.length if end is None else min(entry.start + entry.length, end)
        self.position = entry.start
        self.stopped = False
        self.blank: Blank | None = None

    def run(self, position: int) -> Iterator[Chunk]:
        """Give the chunks from physical offset ``position`` to the end of the file or of the range."""
        self.position = position
        want = 0
        while self.position < self._limit:
            base = self.position
            # Behind the limit lies at most the rest of one record: more is read only when one asks for it.
            size_bytes = want or min(self._options.chunk_bytes, self._limit - base)
            with errors.naming_the_limit("read the log", self._entry.path):
                buffer = self._reader.read_file(self._entry, base, size_bytes)
                columns = kernels.scan(buffer, 0, len(buffer), base, check_crc=self._options.check_crc)
            if not buffer and self._reader.is_unmade(self._entry):
                self.stopped = True
                return
            columns = starting_before(columns, self._limit - base)
            if columns.count:
                self.position = base + columns.next_position
                yield Chunk(buffer, base, columns)
            want = 0
            if columns.stop is Stop.BLANK:
                self.blank = Blank(self.position, columns.blank_size)
                return
            if columns.damage is not None:
                if not self._pass_damage(columns.damage):
                    return
            elif columns.stop is Stop.SHORT or not buffer:
                room = self._entry.start + self._entry.length - self.position
                is_cut = len(buffer) < size_bytes  # it is shorter now than when it was listed
                if is_cut or base + len(buffer) >= self._entry.start + self._entry.length or columns.short_size > room:
                    if not self._pass_damage(Damage.SHORT):
                        return
                elif not columns.count:
                    want = max(2 * len(buffer), columns.short_size)
        self._look_at_end()

    def _look_at_end(self) -> None:
        """Report a file that ends behind a record and should go on."""
        file_end = self._entry.start + self._entry.length
        is_wanted = self._options.end is None or self._options.end > file_end
        if is_wanted and self.position == file_end and self._reader.ends_short(self._entry):
            self.stopped = not self._options.on_damage(LogDamage(self._entry.path, file_end, Damage.SHORT))

    def _pass_damage(self, damage: Damage) -> bool:
        """Report what is wrong at the present position; True when the scan goes on at the next sound record."""
        if damage is Damage.UNWRITTEN and self._reader.is_unwritten_behind(self._entry, self.position):
            self.stopped = True
            return False
        if not self._options.on_damage(LogDamage(self._entry.path, self.position, damage)):
            self.stopped = True
            return False
        found = self._reader.resync(self._entry, self.position + 1)
        if found is None:
            self.position = self._entry.start + self._entry.length
            return False
        self.position = found
        return True


def _hole(behind: FileEntry, position: int, size_bytes: int) -> LogDamage:
    """The damage that a missing file is, of which no more than the file behind the hole is known."""
    return LogDamage(behind.path.parent / f"{position - position % (size_bytes or 1):020d}", position, Damage.SHORT)
