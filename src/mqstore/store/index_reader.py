"""The index files of a store: which there are, and the entries in them that may be of a key.

The index knows hashes, whole seconds and nothing of what later happened to the log (docs/format/index-file.md), so it
gives *candidates*: the caller reads each record and compares topic, key and time.
"""

from __future__ import annotations

import itertools
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from mqstore import errors, kernels
from mqstore.files.inventory import Problem, ProblemKind
from mqstore.files.pool import FilePool
from mqstore.files.whole import mode_of
from mqstore.kernels.api import IndexSlots
from mqstore.layout import index as layout
from mqstore.layout.constants import DEFAULT_HASH_SLOTS, DEFAULT_INDEX_ENTRIES, LONG_MAX
from mqstore.layout.file_names import is_index_file_name
from mqstore.layout.index import IndexEntry, IndexHeader
from mqstore.store.index_header import Misfit, StoreTime, entries_misfit, log_misfit, misfit_error

_MAX_GEOMETRIES = 1 << 20
_ENTRIES_AT_A_TIME = 64
_ENTRIES_TO_READ = 1 << 16
_LOOK_AGAIN_S = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
"""Waits before a header is called wrong: a writer beside puts entries first and its fields one by one."""


@dataclass(frozen=True)
class Geometry:
    """How an index file is divided: its slots, and its entries counting the unused number 0."""

    hash_slots: int
    max_entries: int

    @property
    def file_size(self) -> int:
        """Length of a file of this shape in bytes."""
        return layout.file_size(self.hash_slots, self.max_entries)


DEFAULT_GEOMETRY = Geometry(DEFAULT_HASH_SLOTS, DEFAULT_INDEX_ENTRIES)


class IndexFileReader:
    """One index file, read by position.

    Raises:
        CorruptFileError: the file is no index file of any shape that its length and content allow.
    """

    def __init__(self, path: Path, pool: FilePool, geometry: Geometry | None = None) -> None:
        self.path = path
        self._pool = pool
        self.length = _length(path)
        self.geometry = geometry if geometry and geometry.file_size == self.length else self._infer_geometry()
        self._shape = (self.geometry.hash_slots, self.geometry.max_entries)
        self._is_settled = False
        self._is_backward = False
        self._refused: IndexHeader | None = None

    @property
    def header(self) -> IndexHeader:
        """The header as it is now.

        Raises:
            CorruptFileError: it claims more entries than the file has, or holds a negative value.
        """
        data = self._read(0, layout.INDEX_HEADER.size)
        header = layout.decode_header(data)
        if header.index_count > self.geometry.max_entries or min(layout.INDEX_HEADER.unpack(data)) < 0:
            raise errors.CorruptFileError(
                "index file has a broken header",
                path=self.path,
                offset=0,
                expected=f"at most {self.geometry.max_entries} entries, no negative value",
                found=tuple(header),
                hint="mqstore rebuild makes the index anew from the log",
            )
        return header

    def settled_header(self, also: Callable[[IndexHeader], Misfit | None] | None = None) -> IndexHeader:
        """The header, once it agrees with the first and last entries: what a writer beside is changing is read again.

        Args:
            also: tells whether something else contradicts the header.

        Raises:
            CorruptFileError: as :attr:`header`, or it contradicts the entries and stays as it is.
        """
        for wait_s in (*_LOOK_AGAIN_S, None):
            header = self.header
            misfit = entries_misfit(header, self.entry(1), self.entry(max(1, header.index_count - 1)))
            if misfit is None and also is not None:
                misfit = also(header)
            if misfit is None:
                break
            if wait_s is None or header == self._refused:
                self._refused = header
                raise misfit_error(self.path, misfit)
            time.sleep(wait_s)
        return header

    def checked_header(self, previous: IndexHeader | None, store_time: StoreTime) -> IndexHeader:
        """The same for a header that also agrees with the log, and with the header of the file before, if any.

        Raises:
            CorruptFileError: as :meth:`settled_header`, or the log contradicts it.
        """
        return self.settled_header(lambda header: log_misfit(header, previous, store_time))

    def entry(self, number: int) -> IndexEntry:
        """Entry ``number``, from 1 to the header's count less one."""
        return self._entry_in(self.geometry, number)

    def slots_from_entries(self, count: int) -> IndexSlots:
        """What the slots must hold by the entries below number ``count``; reads all of the file that is in use."""
        right = None
        for entries in self.entry_bytes(count):
            right = kernels.index_slots(entries, self.geometry.hash_slots, LONG_MAX, right)
            if right.bad:
                break
        return right or kernels.index_slots(b"", self.geometry.hash_slots, LONG_MAX)

    def entry_bytes(self, count: int) -> Iterator[bytes]:
        """The entries from number 1 up to below ``count`` as the file has them, some at a time."""
        for first in range(1, count, _ENTRIES_TO_READ):
            number = min(_ENTRIES_TO_READ, count - first)
            yield self._read(layout.entry_position(first, self.geometry.hash_slots), number * layout.INDEX_ENTRY.size)

    def entries(self) -> Iterator[tuple[int, IndexEntry]]:
        """Every used entry with its number, oldest first."""
        unpacked = map(layout.INDEX_ENTRY.iter_unpack, self.entry_bytes(self.header.index_count))
        yield from enumerate(map(IndexEntry._make, itertools.chain.from_iterable(unpacked)), 1)

    def slots(self) -> bytes:
        """The raw slot area: one big-endian 32-bit entry number a slot."""
        return self._read(layout.INDEX_HEADER.size, self.geometry.hash_slots * layout.INDEX_SLOT.size)

    def candidates(self, key_hash: int, begin_ms: int, end_ms: int) -> Iterable[int]:
        """Physical offsets of records that may bear a key of this hash and be stored in [begin_ms, end_ms].

        Newest first. Entries hold whole seconds since their file began, so each may be up to a second later than it
        says; a record filed twice comes twice.

        Raises:
            CorruptFileError: the header is broken or contradicts the entries, or a chain does not lead to ever smaller
                entry numbers.
        """
        if not self._is_settled:
            self._settle()
        if self._is_backward:
            begin_ms, end_ms = 0, LONG_MAX
        found = self._find(key_hash, 0, begin_ms, end_ms)
        if found is None:
            return self._candidates_checked(key_hash, 0, begin_ms, end_ms)
        offsets, number = found
        return offsets if number == 0 else self._many_candidates(offsets, key_hash, number, begin_ms, end_ms)

    def _settle(self) -> None:
        """Look at the header once, before it decides about queries; in a file without keys each time."""
        header = self.settled_header()
        # The clock was put back, or the header is wrong in a way that no entry contradicts: it is no reason to leave
        # anything out, and whoever asks compares the times of the records.
        self._is_backward = header.end_timestamp_ms < header.begin_timestamp_ms
        self._is_settled = header.index_count > 1

    def _find(self, key_hash: int, number: int, begin_ms: int, end_ms: int) -> tuple[list[int], int] | None:
        """The next candidates and where to go on, 0 for nowhere; None where something is out of the ordinary."""
        slots, entries = self._shape
        return self._pool.call(
            self.path, kernels.index_find, slots, entries, key_hash, number, _ENTRIES_AT_A_TIME, begin_ms, end_ms
        )

    def _many_candidates(
        self, offsets: list[int], key_hash: int, number: int, begin_ms: int, end_ms: int
    ) -> Iterator[int]:
        """Candidates of a chain that is longer than one call goes, from ``offsets`` on."""
        yield from offsets
        while number != 0:
            found = self._find(key_hash, number, begin_ms, end_ms)
            if found is None:
                yield from self._candidates_checked(key_hash, number, begin_ms, end_ms)
                return
            offsets, number = found
            yield from offsets

    def _candidates_checked(self, key_hash: int, number: int, begin_ms: int, end_ms: int) -> Iterator[int]:
        """The same from entry ``number`` on, 0 for the newest, step by step: it tells what is wrong, and where."""
        header = self.header
        if header.index_count <= 1 or header.begin_timestamp_ms > end_ms or header.end_timestamp_ms < begin_ms:
            return
        for entry in self._chain(key_hash, number, header.index_count):
            at_least = header.begin_timestamp_ms + entry.time_diff_s * 1000
            if entry.key_hash == key_hash and at_least <= end_ms and at_least + 999 >= begin_ms:
                yield entry.physical_offset

    def _chain(self, key_hash: int, number: int, count: int) -> Iterator[IndexEntry]:
        """Entries from ``number`` on, 0 for the slot's newest; ``count`` is the header's index_count."""
        if number == 0:
            position = layout.slot_position(key_hash, self.geometry.hash_slots)
            number = layout.INDEX_SLOT.unpack(self._read(position, layout.INDEX_SLOT.size))[0]
        while number >= count:  # a running writer counts an entry last, or a crash kept it from counting
            entry = self._uncounted(number)
            number = self._previous(number, entry)
        while number > 0:
            entry = self.entry(number)
            yield entry
            number = self._previous(number, entry)

    def _uncounted(self, number: int) -> IndexEntry:
        """An entry to which a slot leads and that the header does not count."""
        entry = self.entry(number) if number < self.geometry.max_entries else None
        if entry is None or not any(entry):
            raise errors.CorruptFileError(
                "index slot leads to an entry that was never written",
                path=self.path,
                offset=layout.entry_position(number, self.geometry.hash_slots),
                expected=f"an entry below {self.header.index_count}",
                found=number,
                hint="mqstore rebuild makes the index anew from the log",
            )
        return entry

    def _previous(self, number: int, entry: IndexEntry) -> int:
        """The entry before this one in its slot, 0 for none."""
        if entry.previous >= number:
            raise errors.CorruptFileError(
                "index chain does not lead back",
                path=self.path,
                offset=layout.entry_position(number, self.geometry.hash_slots),
                expected=f"an entry below {number}",
                found=entry.previous,
                hint="mqstore rebuild makes the index anew from the log",
            )
        return entry.previous

    def _read_header(self) -> IndexHeader:
        return layout.decode_header(self._read(0, layout.INDEX_HEADER.size))

    def _read(self, position: int, size_bytes: int) -> bytes:
        data = self._pool.read(self.path, position, size_bytes)
        if len(data) != size_bytes:
            raise errors.CorruptFileError(
                "index file is too short",
                path=self.path,
                offset=position,
                expected=size_bytes,
                found=len(data),
                hint="mqstore rebuild makes the index anew from the log",
            )
        return data

    def _infer_geometry(self) -> Geometry:
        """Find the shape from the length and from where the first and last entries must lie."""
        if self.length == DEFAULT_GEOMETRY.file_size:
            return DEFAULT_GEOMETRY
        header = self._read_header()
        for geometry in _geometries(self.length):
            if self._fits(geometry, header):
                return geometry
        raise errors.CorruptFileError(
            "no index file of any shape has this length and content",
            path=self.path,
            expected="40 + 4 * slots + 20 * entries bytes",
            found=self.length,
            hint="give max_hash_slot_num and max_index_num, or rebuild the index",
        )

    def _fits(self, geometry: Geometry, header: IndexHeader) -> bool:
        if header.index_count <= 1:
            return True
        if header.index_count > geometry.max_entries:
            return False
        first = self._entry_in(geometry, 1)
        # The time in the first entry may count from the end of the file before: its own had no begin yet.
        if (first.physical_offset, first.previous) != (header.begin_physical_offset, 0):
            return False
        last = self._entry_in(geometry, header.index_count - 1)
        if last.physical_offset != header.end_physical_offset or not any(last):  # no key has all of that 0
            return False
        # The last entry is the newest of its slot; a running writer may have put a newer one there than it counts.
        newest = header.index_count - 1
        return self._slot_of(geometry, first) >= 1 and self._slot_of(geometry, last) >= newest

    def _slot_of(self, geometry: Geometry, entry: IndexEntry) -> int:
        position = layout.slot_position(entry.key_hash, geometry.hash_slots)
        number: int = layout.INDEX_SLOT.unpack(self._read(position, layout.INDEX_SLOT.size))[0]
        return number

    def _entry_in(self, geometry: Geometry, number: int) -> IndexEntry:
        position = layout.entry_position(number, geometry.hash_slots)
        return IndexEntry._make(layout.INDEX_ENTRY.unpack(self._read(position, layout.INDEX_ENTRY.size)))


def _geometries(length: int) -> Iterator[Geometry]:
    """Shapes of this length, RocketMQ's own proportion of four entries a slot first."""
    payload = length - layout.INDEX_HEADER.size
    if payload < 24 or payload % 4:
        return
    if payload % 84 == 0:
        yield Geometry(payload // 84, payload // 84 * 4)
    entries = range(2, min(payload // 20, _MAX_GEOMETRIES) + 1)
    for count in entries:
        slots = (payload - count * 20) // 4
        if slots >= 1:
            yield Geometry(slots, count)


def _length(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise errors.from_os_error(error, "look at index file", path) from error


def list_index_files(directory: Path, *, refuse_others: bool = False) -> list[Path]:
    """The index files of ``directory`` in order of their names, which is that of their making.

    Raises:
        StoreIOError: the directory could not be read.
        CorruptFileError: with ``refuse_others``, something else has the name of one.
    """
    try:
        named = sorted(path for path in directory.iterdir() if is_index_file_name(path.name))
        files = [path for path in named if stat.S_ISREG(mode_of(path))]
    except FileNotFoundError:
        return []
    except errors.StoreIOError:
        raise
    except OSError as error:
        raise errors.from_os_error(error, "list directory", directory) from error
    if refuse_others and len(files) < len(named):
        other = next(path for path in named if path not in files)
        raise Problem(ProblemKind.NOT_A_FILE, other, expected="a regular file").to_error()
    return files
