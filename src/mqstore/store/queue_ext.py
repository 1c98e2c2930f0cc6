"""The extension files of one queue: reading and writing the units that hold filter bits.

They are derived, as the queue is (docs/format/consume-queue-ext.md). A queue's unit holds the address of its ext unit
in place of a tags code; where that leads nowhere, the tags code is unknown, and whoever filters must look at the
message itself.
"""

from __future__ import annotations

import stat
import struct
import threading
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path

from mqstore import errors
from mqstore.files import durable
from mqstore.files.inventory import FileEntry, take_inventory
from mqstore.files.pool import FilePool
from mqstore.files.unsynced import UnsyncedPaths
from mqstore.files.whole import mode_of
from mqstore.layout.constants import QUEUE_UNIT_SIZE
from mqstore.layout.queue_ext import (
    END_MARKER,
    MAX_EXT_UNIT_SIZE,
    ExtUnit,
    address_of,
    decode_ext_unit,
    encode_ext_unit,
    fits,
    is_ext_address,
    offset_of,
)

_CODE = struct.Struct(">q")
_CODE_AT = QUEUE_UNIT_SIZE - _CODE.size


class QueueExt:
    """The ext files of one queue. Read by many threads, written by the dispatcher alone."""

    def __init__(self, directory: Path, pool: FilePool, file_size: int | None = None) -> None:
        """``file_size`` is for files yet to be made; those that are there say theirs."""
        self.directory = directory
        self._pool = pool
        inventory = take_inventory([directory])
        pool.note_listed(inventory.entries)
        self._size = inventory.size_bytes
        self._entries = [
            one for one in inventory.entries if 0 < one.length == self._size and one.start % self._size == 0
        ]
        self.make_with(file_size or 0)
        self._end: int | None = None
        self._list_guard = threading.Lock()  # the dispatcher adds files while expiry removes some
        self._unsynced = UnsyncedPaths(directory, pool)

    def make_with(self, file_size: int) -> None:
        """Give new files this size, if there are none whose size they must have."""
        self._size = self._size or file_size

    # -- reading

    def find(self, address: int) -> ExtUnit | None:
        """The unit at ``address``; None when nothing sound is there."""
        try:
            offset = offset_of(address)
        except errors.UsageError:
            return None
        entry = self._entry_at(offset)
        if entry is None:
            return None
        at = offset - entry.start
        data = self._pool.read(entry.path, at, min(4096, self._size - at))
        try:
            return decode_ext_unit(data)
        except errors.CorruptFileError:
            pass
        try:
            return decode_ext_unit(self._pool.read(entry.path, at, min(MAX_EXT_UNIT_SIZE, self._size - at)))
        except errors.CorruptFileError:
            return None

    def _entry_at(self, offset: int) -> FileEntry | None:
        entries = self._entries
        index = bisect_right(entries, offset, key=lambda one: one.start) - 1
        return entries[index] if index >= 0 and offset < entries[index].start + self._size else None

    def resolve(self, units: bytes) -> bytes:
        """``units`` of the queue with the tags codes that their ext units hold; addresses that lead nowhere stay."""
        resolved = bytearray(units)
        for at in range(_CODE_AT, len(units), QUEUE_UNIT_SIZE):
            (code,) = _CODE.unpack_from(units, at)
            if is_ext_address(code) and (found := self.find(code)) is not None:
                _CODE.pack_into(resolved, at, found.tags_code)
        return bytes(resolved)

    def units_of(self, units: bytes) -> list[ExtUnit | None]:
        """The ext unit behind each of the queue's ``units``; None where there is none."""
        return [None if not is_ext_address(code) else self.find(code) for code in codes_of(units)]

    # -- writing

    def append(self, unit: ExtUnit) -> int:
        """Write ``unit`` behind the last one; its address.

        Raises:
            DiskFullError, StoreIOError: it could not be written; what was there is as it was.
        """
        assert self._end is not None, "end_after comes first"
        data = encode_ext_unit(unit)
        left = self._size - self._end % self._size
        if not fits(len(data), left):
            self._write(self._end, END_MARKER)
            self._end += left
        address = address_of(self._end)
        self._write(self._end, data)
        self._end += len(data)
        return address

    def end_after(self, last_code: int | None) -> None:
        """Go on behind the unit at address ``last_code``, or behind the last sound one if that is none, once."""
        if self._end is not None:
            return
        unit = None if last_code is None or not is_ext_address(last_code) else self.find(last_code)
        if unit is not None and last_code is not None:
            self._end = offset_of(last_code) + unit.size_bytes
        else:
            self._end = self._find_end()
        for entry in reversed(self._entries):
            if entry.start > self._end or (entry.start == self._end and entry is not self._entries[0]):
                self._remove(entry)
            elif entry.start + self._size > self._end:
                with self._pool.descriptor(entry.path) as fd:
                    if durable.zero_from(fd, self._end - entry.start, self._size, entry.path):
                        self._unsynced.add(entry.path)

    def _find_end(self) -> int:
        if not self._entries:
            return 0
        offset = self._entries[-1].start
        while (unit := self.find(address_of(offset))) is not None:
            offset += unit.size_bytes
        return offset

    def _write(self, offset: int, data: bytes) -> None:
        entry = self._entry_at(offset) or self._create(offset - offset % self._size)
        with self._pool.descriptor(entry.path) as fd:
            durable.write_at(fd, data, offset - entry.start, entry.path)
        self._unsynced.add(entry.path)

    def _create(self, start: int) -> FileEntry:
        durable.make_directories(self.directory)
        entry = FileEntry(start, self.directory / f"{start:020d}", self._size)
        with self._pool.created(entry.path, self._size), self._list_guard:
            self._entries = sorted([*self._entries, entry], key=lambda one: one.start)
        self._unsynced.add(self.directory)
        return entry

    def expire(self, first_code: int) -> None:
        """Remove the files that end before the unit at address ``first_code``; nothing if that is no address."""
        if is_ext_address(first_code):
            first = offset_of(first_code)
            for entry in self._entries[:-1]:
                if entry.start + self._size <= first:
                    self._remove(entry)

    def _remove(self, entry: FileEntry) -> None:
        durable.remove_file(entry.path)
        self._pool.forget(entry.path)
        with self._list_guard:
            self._entries = [one for one in self._entries if one is not entry]
        self._unsynced.add(self.directory)

    def give_up(self) -> None:
        """The files are going to be removed: nothing of them is synced any more."""
        self._unsynced.give_up()

    def close(self) -> None:
        """Let go of the files, which were removed."""
        for entry in self._entries:
            self._pool.forget(entry.path)

    def sync(self) -> None:
        """Force what was written so far to the device; raises as :meth:`mqstore.files.unsynced.UnsyncedPaths.sync`."""
        self._unsynced.sync()


def codes_of(units: bytes) -> list[int]:
    """The tags code or address in each of the queue's ``units``."""
    return [_CODE.unpack_from(units, at)[0] for at in range(_CODE_AT, len(units), QUEUE_UNIT_SIZE)]


def with_codes(units: bytes, codes: Sequence[int]) -> bytes:
    """``units`` with other tags codes or addresses."""
    changed = bytearray(units)
    for number, code in enumerate(codes):
        _CODE.pack_into(changed, number * QUEUE_UNIT_SIZE + _CODE_AT, code)
    return bytes(changed)


def has_address(units: bytes) -> bool:
    """Whether one of ``units`` holds an address, so that its tags code is not known."""
    return any(is_ext_address(code) for code in codes_of(units))


def ext_directory(queue_directory: Path) -> Path:
    """Where the ext files of the queue in ``queue_directory`` lie; of its old state, where a rebuild keeps theirs."""
    topic = queue_directory.parent
    suffix = topic.parent.name.removeprefix("consumequeue")
    return topic.parent.with_name(f"consumequeue_ext{suffix}") / topic.name / queue_directory.name


def open_ext(queue_directory: Path, pool: FilePool) -> QueueExt | None:
    """The ext files of a queue, or None when it has none."""
    directory = ext_directory(queue_directory)
    return QueueExt(directory, pool) if stat.S_ISDIR(mode_of(directory)) else None
