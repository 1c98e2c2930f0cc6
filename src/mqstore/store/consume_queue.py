"""One consume queue of a running store: where dispatch puts its units.

Queue files are derived and never on the way of an acknowledgement: they are written with ``pwrite`` (a full disk is
an error, not a SIGBUS) and synced in the background. Every unit has one place, so writing it again changes nothing;
that is what makes dispatch repeatable after any crash.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path

from mqstore.files import copying, durable
from mqstore.files.inventory import FileEntry, Inventory, take_inventory
from mqstore.files.pool import FilePool
from mqstore.files.unsynced import UnsyncedPaths
from mqstore.layout.constants import MIN_RECORD_SIZE, QUEUE_UNIT_SIZE
from mqstore.layout.queue_ext import ExtUnit, is_ext_address
from mqstore.layout.queue_unit import PRE_BLANK, decode_unit, encode_unit
from mqstore.store.queue_ext import QueueExt, codes_of, ext_directory, with_codes
from mqstore.store.queue_reader import QueueReader

_log = logging.getLogger(__name__)

_PRE_BLANK = encode_unit(PRE_BLANK)
_FILL_BYTES = 1 << 20
_MAX_GAP_BYTES = 1 << 30
_MAX_GAP_FILES = 1024
"""A longer gap is a record's false claim rather than a loss; filling it would take the disk."""


class ConsumeQueue(QueueReader):
    """A queue that is appended to by one thread, the dispatcher, and read by many.

    Attributes:
        min_offset: first unit whose record is still in the log.
        max_offset: one past the last unit.
        left_out: messages that were put here and are in no place, as others contradict theirs.
        compare_before_write: leave units alone that are already as they should be; for rebuilding in place.
    """

    def __init__(self, topic: str, queue_id: int, directory: Path, pool: FilePool, file_size: int):
        super().__init__(topic, queue_id, directory, pool, file_size)
        self._size = file_size
        self._list_guard = threading.Lock()  # the dispatcher adds files while expiry removes some
        self._unsynced = UnsyncedPaths(directory, pool)
        self.min_offset = 0
        self.max_offset = 0
        self.left_out = 0
        self.compare_before_write = False
        self._gap = (0, 0)  # places that were filled, as their messages seemed to be missing from the log
        self._end_of_last: int | None = None  # where the last message's record ends, as far as this process put it
        self.list_anew()

    def refresh(self) -> None:
        """Nothing: what this process writes itself need not be looked for.

        A reader that listed the directory could put that list in place of one that the dispatcher has added to since.
        """

    def list_anew(self) -> None:
        """Look which files there are; for when they were changed by other means than this object's."""
        with self._list_guard:
            self._listed = take_inventory([self.directory], self._size)

    def enable_ext(self, file_size: int) -> None:
        """Keep an extension file from now on; ``file_size`` is for the first one."""
        if self.ext is None:
            self.ext = QueueExt(ext_directory(self.directory), self._pool)
        self.ext.make_with(file_size)

    def put(self, first_offset: int, units: bytes, ext_units: list[ExtUnit] | None = None) -> bool:
        """Write ``units`` at ``first_offset`` and what follows; the queue then ends no earlier than behind them.

        No checksum covers a record's queue offset, so it is only believed when it can be: the place must be free, and
        the messages that would lie before it must have had room in the log. Otherwise nothing is written: False.

        Where messages before ``first_offset`` are missing from the log, their units are filled in: with fillers at
        the queue's beginning, and further on with the last unit before the gap once more, which every reader can
        follow and :meth:`mqstore.Store.get` passes over.

        With ``ext_units``, one for each unit, the units hold the addresses of these.

        Raises:
            DiskFullError, StoreIOError: nothing of what the queue showed before has changed, unless it had to be taken
                back: then it is empty. Call again with the same units.
        """
        if self._gap[0] <= first_offset < self._gap[1]:
            return self._put_into_gap(first_offset, units)
        left_out = 0
        if not self._can_be(first_offset, units):
            taken = self.max_offset - first_offset
            if self._outweighs(first_offset, units):
                self._start_over()
            elif 0 < taken < len(units) // QUEUE_UNIT_SIZE:  # what lies behind is not in doubt
                left_out = taken
                first_offset, units = self.max_offset, units[taken * QUEUE_UNIT_SIZE :]
                ext_units = ext_units and ext_units[taken:]
            else:
                return False
        if self.ext is not None:
            units = self._with_addresses(first_offset, units, ext_units)
        begin: int | None = None  # where the queue then begins, if not where it does: expiry may move that meanwhile
        gap = (self.max_offset, first_offset)
        if first_offset > self.max_offset:
            begin = self._fill(first_offset)
        elif self.max_offset == self.min_offset and not self.inventory.entries:
            begin = first_offset
        self._write(first_offset * QUEUE_UNIT_SIZE, units)
        if left_out:
            self._leave_out(first_offset - left_out, left_out)
        if begin is not None:  # not before: a queue whose units a full disk did not take begins where it did
            self.min_offset = begin
        elif gap[0] < gap[1] and self.ext is None:
            self._gap = gap
        end = first_offset + len(units) // QUEUE_UNIT_SIZE
        if end > self.max_offset:
            self.max_offset = end
            self._end_of_last = decode_unit(units, len(units) - QUEUE_UNIT_SIZE).end_offset
        return True

    def _put_into_gap(self, first_offset: int, units: bytes) -> bool:
        """Put messages that were not missing: the record behind the gap claims a place that is not its own."""
        fitting = units[: (self._gap[1] - first_offset) * QUEUE_UNIT_SIZE]
        self._write(first_offset * QUEUE_UNIT_SIZE, fitting)
        following = first_offset + len(fitting) // QUEUE_UNIT_SIZE
        self._gap = (following, self._gap[1])
        rest = units[len(fitting) :]
        return not rest or self.put(following, rest)

    def _can_be(self, first_offset: int, units: bytes) -> bool:
        """Whether the records behind ``units`` can be the messages from ``first_offset`` on."""
        if self.max_offset == self.min_offset:
            return True
        taken = self.max_offset - first_offset
        if taken > 0:
            count = min(taken, len(units) // QUEUE_UNIT_SIZE)
            stored = self._stored(first_offset, count)
            if self.ext is not None:  # of a unit whose ext unit is lost the rest must be right
                codes = zip(codes_of(stored), codes_of(units), strict=False)
                stored = with_codes(stored, [new if is_ext_address(old) else old for old, new in codes])
            return stored == units[: count * QUEUE_UNIT_SIZE]
        if self._end_of_last is None:
            last = self.unit(self.max_offset - 1)
            self._end_of_last = 0 if last is None else last.end_offset
        return -taken * MIN_RECORD_SIZE <= decode_unit(units).physical_offset - self._end_of_last

    def _outweighs(self, first_offset: int, units: bytes) -> bool:
        """Whether ``units`` begin before the queue does, and are more messages than it holds, or it holds but one.

        A queue's first record is believed whatever place it claims, as nothing can contradict it yet. When others
        follow in the log and begin at a place before it, it is the one that is wrong.
        """
        held = self.max_offset - self.min_offset
        return first_offset < self.min_offset and (held == 1 or held < len(units) // QUEUE_UNIT_SIZE)

    def _start_over(self) -> None:
        """Take back all units, as if nothing had been put."""
        self._leave_out(self.min_offset, self.max_offset - self.min_offset)
        with self._list_guard:
            for entry in self.inventory.entries:
                self.remove_file(entry)
        self.min_offset = self.max_offset = 0
        self._gap = (0, 0)
        self._end_of_last = None

    def _leave_out(self, first_offset: int, count: int) -> None:
        self.left_out += count
        _log.warning(
            "%d messages claim places from %d on of queue %s/%d, which others contradict: they are in no queue",
            count, first_offset, self.topic, self.queue_id,
        )  # fmt: skip

    def _stored(self, first_offset: int, count: int) -> bytes:
        """``count`` units from ``first_offset`` on, in however many files they lie; fewer where one is missing."""
        found = b""
        while (missing := count - len(found) // QUEUE_UNIT_SIZE) > 0:
            part = self.units(first_offset + count - missing, missing)
            if not part:
                break
            found += part
        return found

    def _with_addresses(self, first_offset: int, units: bytes, ext_units: list[ExtUnit] | None) -> bytes:
        """``units`` with the addresses of their ext units: those that are there already, and those that are new."""
        assert self.ext is not None
        codes = codes_of(units)
        taken = min(max(0, self.max_offset - first_offset), len(codes)) if self.max_offset > self.min_offset else 0
        if taken:
            stored = b"".join(self.stored_units(first_offset + number, 1) for number in range(taken))
            for number, (code, found) in enumerate(zip(codes_of(stored), self.ext.units_of(stored), strict=True)):
                if found is not None and found.tags_code == codes[number]:
                    codes[number] = code
        if ext_units is not None:
            last = codes_of(self.stored_units(self.max_offset - 1, 1)) if self.max_offset > self.min_offset else []
            self.ext.end_after(last[0] if last else None)
            codes[taken:] = [self.ext.append(unit) for unit in ext_units[taken:]]
        return with_codes(units, codes)

    def _fill(self, first_offset: int) -> int | None:
        """Fill the units from the queue's end up to ``first_offset``, or from the start of a new queue's file.

        Returns where the queue begins as soon as there is a unit at ``first_offset``, None where it did before.
        """
        min_offset = None
        start = first_offset * QUEUE_UNIT_SIZE
        begin = start - start % self._size
        filler = _PRE_BLANK
        longest = min(_MAX_GAP_BYTES, _MAX_GAP_FILES * self._size)
        if self.max_offset > self.min_offset and start - self.max_offset * QUEUE_UNIT_SIZE <= longest:
            begin = self.max_offset * QUEUE_UNIT_SIZE
            filler = self.stored_units(self.max_offset - 1, 1)
        else:
            if self.inventory.entries:
                begin = max(begin, self.max_offset * QUEUE_UNIT_SIZE)
            min_offset = first_offset
        while begin < start:
            part = min(start - begin, _FILL_BYTES)
            self._write(begin, filler * (part // QUEUE_UNIT_SIZE))
            begin += part
        return min_offset

    def _write(self, position: int, data: bytes) -> None:
        view = memoryview(data)
        while view:
            entry = self.entry_at(position) or self._create(position - position % self._size)
            part = view[: entry.start + self._size - position]
            if not (
                self.compare_before_write and self._pool.read(entry.path, position - entry.start, len(part)) == part
            ):
                with self._pool.descriptor(entry.path) as fd:
                    durable.write_at(fd, part, position - entry.start, entry.path)
            self._unsynced.add(entry.path)  # also what is already right may be in the page cache only
            position += len(part)
            view = view[len(part) :]

    def _create(self, start: int) -> FileEntry:
        durable.make_directories(self.directory)
        entry = FileEntry(start, self.directory / f"{start:020d}", self._size)
        with self._pool.created(entry.path, self._size), self._list_guard:
            self._list([*self.inventory.entries, entry])
        return entry

    def _list(self, entries: list[FileEntry]) -> None:
        """Put a new list of files in place in one step: readers hold on to the one they have."""
        self._listed = Inventory(sorted(entries, key=lambda one: one.start), self._size)
        self._unsynced.add(self.directory)

    def sync(self) -> None:
        """Force what was written so far to the device; raises as :meth:`mqstore.files.unsynced.UnsyncedPaths.sync`."""
        if self.ext is not None:
            self.ext.sync()  # before the units that point there
        self._unsynced.sync()

    def cut(self, max_offset: int) -> bool:
        """End the queue at ``max_offset``: erase later units, remove later files. True if there was anything.

        Without this, units that a crash left behind would point into log space that other messages take.
        """
        end = max_offset * QUEUE_UNIT_SIZE
        changed = False
        for entry in list(self.inventory.entries):
            if entry.start > end or (entry.start == end and entry.start != self.inventory.start):
                self.remove_file(entry)
                changed = True
            elif end < entry.start + self._size:
                with self._pool.descriptor(entry.path) as fd:
                    if durable.zero_from(fd, end - entry.start, self._size, entry.path):
                        self._unsynced.add(entry.path)
                        changed = True
        self.max_offset, self._end_of_last = max_offset, None
        self.min_offset = min(self.min_offset, max_offset)
        return changed

    def expire(self, log_min: int) -> None:
        """Begin at the first unit whose record is at or behind ``log_min``, and remove the files before it.

        The newest file stays, so that the queue goes on where it was even when nothing is left in it.
        """
        end = self.max_offset
        self.min_offset = max(self.min_offset, min(end, self.find_min(log_min, end)))
        if self.ext is not None and (first := self.stored_units(self.min_offset, 1)):
            self.ext.expire(codes_of(first)[0])
        for entry in self.inventory.entries[:-1]:
            if entry.start + self._size > self.min_offset * QUEUE_UNIT_SIZE:
                return
            with self._list_guard:
                self.remove_file(entry)

    def remove_file(self, entry: FileEntry) -> None:
        """Remove one of the queue's files, and let go of it: a later file of that name is another."""
        durable.remove_file(entry.path)
        self._pool.forget(entry.path)
        self._list([one for one in self.inventory.entries if one is not entry])

    def destroy(self) -> None:
        """Remove all files of the queue and its directory; it must not be put into any more."""
        self._unsynced.give_up()
        if self.ext is not None:
            self.ext.give_up()
        try:
            for directory in (self.directory, ext_directory(self.directory)):
                if directory.is_dir():
                    copying.remove_tree(directory)
                    durable.sync_directory(directory.parent)
        finally:  # not before: a sync beside may have opened one yet
            for entry in self.inventory.entries:
                self._pool.forget(entry.path)
            if self.ext is not None:
                self.ext.close()
