"""Reading one consume queue by queue offset, and finding where it begins and ends.

Units lie at fixed places: number n at byte n * 20 of the queue's files (docs/format/consume-queue.md). The files are
longer than what is in use, and may hold units that a recovery has cut off without erasing them, so both ends follow
from what the units say and from the range of the log, never from file lengths.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from mqstore import errors
from mqstore.files.inventory import FileEntry, Inventory, take_inventory
from mqstore.files.pool import FilePool
from mqstore.layout.constants import QUEUE_UNIT_SIZE
from mqstore.layout.queue_unit import QueueUnit, decode_unit, iter_units
from mqstore.store.queue_ext import open_ext

MAX_UNITS = (1 << 63) // QUEUE_UNIT_SIZE
"""More than any queue has."""
_UNITS_AT_A_TIME = 1 << 16


class QueueReader:
    """The files of one queue, read by position. Offsets count units, not bytes.

    Attributes:
        ext: the queue's extension files, from which the tags codes then come; None when it has none.
    """

    def __init__(self, topic: str, queue_id: int, directory: Path, pool: FilePool, file_size: int | None = None):
        self.topic = topic
        self.queue_id = queue_id
        self.directory = directory
        self._pool = pool
        self._file_size = file_size
        self._listed: Inventory | None = None
        self.ext = open_ext(directory, pool)

    @property
    def inventory(self) -> Inventory:
        """The queue's files, listed at first use."""
        if self._listed is None:
            self._listed = take_inventory([self.directory], self._file_size)
            self._pool.note_listed(self._listed.entries)
        return self._listed

    def refresh(self) -> None:
        """List the files anew at the next use."""
        self._listed = None
        self._refresh_ext()

    def _refresh_ext(self) -> None:
        self.ext = open_ext(self.directory, self._pool)

    @property
    def first_offset(self) -> int:
        """Queue offset of the first unit that has a place in the files, in use or not."""
        return self.inventory.start // QUEUE_UNIT_SIZE

    @property
    def end_of_space(self) -> int:
        """One past the last unit that has a place in the files, in use or not."""
        return self.inventory.end // QUEUE_UNIT_SIZE

    @property
    def units_per_file(self) -> int:
        """Units that one file holds, at least 1."""
        return max(1, self.inventory.size_bytes // QUEUE_UNIT_SIZE)

    def room_without_file(self, offset: int) -> int:
        """Units from ``offset`` on that a file would hold which is not there."""
        if not self.inventory.entries:
            return MAX_UNITS
        return self.units_per_file - offset % self.units_per_file

    def entry_at(self, position: int) -> FileEntry | None:
        """The file that holds byte ``position`` of the queue, or None."""
        return self.inventory.find(position)

    def units(self, offset: int, count: int) -> bytes:
        """The units from ``offset`` on: up to ``count``, fewer at the end of a file, empty where no file is.

        They are as they lie in the file, but with the tags codes of their ext units, as far as these can be read.

        Raises:
            StoreIOError: the file is there and could not be read.
        """
        data = self.stored_units(offset, count)
        return data if self.ext is None else self.ext.resolve(data)

    def stored_units(self, offset: int, count: int) -> bytes:
        """As :meth:`units`, with the addresses of ext units where there are such."""
        position = offset * QUEUE_UNIT_SIZE
        entry = self.entry_at(position) if offset >= 0 else None
        if entry is None:
            return b""
        room = entry.start + self.inventory.size_bytes - position
        wanted = min(count * QUEUE_UNIT_SIZE, room)
        try:
            data = self._pool.read(entry.path, position - entry.start, wanted)
        except errors.StoreIOError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
            self.refresh()  # removed since it was listed: by expiry, or by what must not
            return b""
        return data[: len(data) - len(data) % QUEUE_UNIT_SIZE]

    def stretches(self, begin: int, end: int) -> Iterator[tuple[int, int, bytes]]:
        """The units [begin, end) piece by piece: where one begins, where it ends, its units; none of a missing file.

        Raises as :meth:`units`.
        """
        while begin < end:
            data = self.units(begin, min(_UNITS_AT_A_TIME, end - begin))
            stop = begin + len(data) // QUEUE_UNIT_SIZE if data else min(end, begin + self.room_without_file(begin))
            yield begin, stop, data
            begin = stop

    def unit(self, offset: int) -> QueueUnit | None:
        """The unit at ``offset``, written or not; None where no file is."""
        data = self.units(offset, 1)
        return decode_unit(data) if data else None

    def find_end(self, log_end: int) -> int:
        """One past the last unit whose record starts before physical offset ``log_end``."""
        return self._first_where(self.end_of_space, lambda unit: not _is_used(unit, log_end))

    def find_min(self, log_min: int, end: int) -> int:
        """Offset of the first unit before ``end`` whose record is at or behind ``log_min``; ``end`` if none is.

        Fillers in front of a queue that does not begin at 0 never count, even while the log still begins at 0.
        """
        return self._first_where(end, lambda unit: unit.is_written and unit.physical_offset >= log_min)

    def _first_where(self, end: int, holds: Callable[[QueueUnit], bool]) -> int:
        """First offset before ``end`` whose unit ``holds``, else ``end``; the condition is false, then true.

        A missing file in the middle does not hide what lies before it: where the answer lies in it, its first offset.
        """
        while True:
            inventory = self.inventory
            found = self._search(inventory, end, holds)
            if self.inventory.entries == inventory.entries:  # else expiry has removed some meanwhile
                return found

    def _search(self, inventory: Inventory, end: int, holds: Callable[[QueueUnit], bool]) -> int:
        first = inventory.start // QUEUE_UNIT_SIZE
        files = [one for one in inventory.entries if one.start < end * QUEUE_UNIT_SIZE]
        if not files:
            return max(first, end)
        low, high = 0, len(files)
        while low < high:  # which file is the first that begins with such a unit
            middle = (low + high) // 2
            unit = self._first_unit(files[middle])
            if unit is None:
                del files[middle]  # it is missing, and says nothing about the others
                high -= 1
            elif holds(unit):
                high = middle
            else:
                low = middle + 1
        unit = self.unit(first)
        if low == 0 and (unit is None or holds(unit)):
            return first
        file = files[max(0, low - 1)]
        length = min(file.length, inventory.size_bytes, end * QUEUE_UNIT_SIZE - file.start)
        return self._search_file(file.start // QUEUE_UNIT_SIZE, (file.start + length) // QUEUE_UNIT_SIZE, holds)

    def _first_unit(self, file: FileEntry) -> QueueUnit | None:
        """The first unit of a file that tells anything: one that is not written, with others behind it, is damaged."""
        first = file.start // QUEUE_UNIT_SIZE
        unit = self.unit(first)
        if unit is None or unit.is_written or unit.is_pre_blank:
            return unit
        units = self.units(first, file.length // QUEUE_UNIT_SIZE)
        if not units.strip(b"\0"):
            return unit
        return next((one for one in iter_units(units) if one.is_written or one.is_pre_blank), unit)

    def _search_file(self, low: int, high: int, holds: Callable[[QueueUnit], bool]) -> int:
        while low < high:
            middle = (low + high) // 2
            unit = self.unit(middle)
            if unit is not None and holds(unit):
                high = middle
            else:
                low = middle + 1
        return low


def _is_used(unit: QueueUnit, log_end: int) -> bool:
    return unit.physical_offset >= 0 and unit.size_bytes > 0 and unit.physical_offset < log_end
