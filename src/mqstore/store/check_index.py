"""Comparing the index files with the log, entry by entry.

The entries of all files, oldest first, must be the keys of the log's records in log order. The oldest file may begin
in the middle of the log (older ones expire with the log), and a Java broker that recovered from a crash may have filed
one record twice; RocketMQ from 5.5 on files tags as well.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from mqstore import errors
from mqstore.findings import REOPEN, Severity
from mqstore.kernels.api import IndexSlots
from mqstore.layout import index as layout
from mqstore.layout.constants import LONG_MAX
from mqstore.layout.index import IndexEntry, IndexHeader, index_keys, key_hash, tag_key_hash
from mqstore.layout.record import Record
from mqstore.store.index_header import slots_misfit
from mqstore.store.index_reader import IndexFileReader
from mqstore.store.log_reader import Chunk

if TYPE_CHECKING:
    from mqstore.store.view import StoreView

_LOOK_AGAIN_S = (0.0, 0.01, 0.1, 0.5)


class IndexCheck:
    """Compares entries with records that are given to :meth:`put` in log order.

    Attributes:
        entries: entries looked at so far.
        filed_to: physical offset of the newest record that had an entry when the check began; 0 if none had.
    """

    def __init__(self, view: StoreView, finding: Callable[..., None], *, beside_writer: bool = False) -> None:
        self._view = view
        self._finding = finding
        self._beside_writer = beside_writer
        self.filed_to = 0
        self.entries = 0
        self._missing = 0
        self._first_missing: tuple[int, str] | None = None
        self._surplus = 0  # filed twice, or of a record that is not there
        self._current: IndexEntry | None = None
        self._files = self._open_files()
        self._stream = self._entries()
        self._advance()
        self._begin = self._next_offset()
        while self._next_offset() < view.min_physical_offset:
            self._advance()  # its record expired with the log's head

    def _open_files(self) -> list[IndexFileReader]:
        try:
            files = self._view.index_files()
            for file in files:
                self.filed_to = max(self.filed_to, file.header.end_physical_offset)
        except errors.CorruptFileError as error:
            self._finding(Severity.ERROR, "index", error.path, error.offset, error.message, error.expected, error.found)
            return []
        previous: IndexHeader | None = None
        for file in files:
            self._check_header(file, previous)
            previous = self._check_slots(file)
        return files

    def _check_header(self, file: IndexFileReader, previous: IndexHeader | None) -> None:
        try:
            file.checked_header(previous, self._store_time)
        except errors.CorruptFileError as error:
            self._finding(Severity.ERROR, "index", error.path, error.offset, error.message, error.expected, error.found)

    def _store_time(self, physical_offset: int) -> int | None:
        record = self._view.log.record_at(physical_offset)
        return None if record is None else record.store_timestamp_ms

    def _check_slots(self, file: IndexFileReader) -> IndexHeader:
        """Build the slots from the entries and compare: every chain must be whole. The header that goes with them."""
        header = file.header
        right = file.slots_from_entries(header.index_count)
        for wait_s in _LOOK_AGAIN_S if self._beside_writer else ():
            if right.bad or slots_misfit(header, right.used) is None:
                break
            time.sleep(wait_s)  # the writer was changing the header
            header = file.header
            right = file.slots_from_entries(header.index_count)
        self._compare_slots(file, header, right)
        return header

    def _compare_slots(self, file: IndexFileReader, header: IndexHeader, right: IndexSlots) -> None:
        misfit = None if right.bad else slots_misfit(header, right.used)
        if misfit is not None:
            self._finding(
                Severity.WARNING, "index", file.path, misfit.position, misfit.message, misfit.expected, misfit.found
            )
        if right.bad:
            problem, expected = "entry contradicts those before it", "the chain of its slot, and a later record"
            found: object = tuple(file.entry(right.bad))
        elif self._differ(file.slots(), right):
            problem, expected, found = "slots do not lead to the newest entries", "what the entries say", "others"
        else:
            return
        self._finding(Severity.ERROR, "index", file.path, right.bad or None, problem, expected, found)

    def _differ(self, stored: bytes, right: IndexSlots) -> bool:
        """Whether slots are wrong. A writer beside may have put newer entries into them meanwhile."""
        if not self._beside_writer:
            return stored != right.slots
        return any(
            here != there and here <= right.entries
            for (here,), (there,) in zip(
                layout.INDEX_SLOT.iter_unpack(stored), layout.INDEX_SLOT.iter_unpack(right.slots), strict=True
            )
        )

    def _entries(self) -> Iterator[IndexEntry]:
        for file in self._files:
            for _, entry in file.entries():
                yield entry

    def _advance(self) -> None:
        self._current = next(self._stream, None)
        if self._current is not None:
            self.entries += 1

    def _next_offset(self) -> int:
        """Physical offset of the entry not yet compared, beyond all when there is none."""
        return LONG_MAX if self._current is None else self._current.physical_offset

    def put(self, chunk: Chunk) -> None:
        """Compare the entries of the records of ``chunk``."""
        if not self._files:
            return
        for record in chunk.records():
            if record.physical_offset >= self._begin:
                self._record(record)

    def _record(self, record: Record) -> None:
        while self._next_offset() < record.physical_offset:
            self._surplus += 1
            self._advance()
        filed: Counter[int] = Counter()
        while self._current is not None and self._next_offset() == record.physical_offset:
            filed[self._current.key_hash] += 1
            self._advance()
        for key in index_keys(record):
            number = key_hash(record.topic, key)
            if filed[number]:
                filed[number] -= 1
            elif record.physical_offset != self._begin:  # the oldest file may begin between two keys of a record
                self._missing += 1
                self._first_missing = self._first_missing or (record.physical_offset, key)
        if record.tags:
            filed.pop(tag_key_hash(record.topic, record.tags), None)
        self._surplus += filed.total()

    def finish(self, log_end: int) -> None:
        """Report what was found, the log having ended at ``log_end``."""
        directory = self._view.paths.index
        behind = 0
        while (offset := self._next_offset()) < LONG_MAX:
            behind += offset >= log_end and self._view.message_at(offset) is None  # else written meanwhile
            self._surplus += offset < log_end
            self._advance()
        if self._missing and self._first_missing is not None:
            record_offset, key = self._first_missing
            self._finding(
                Severity.ERROR,
                "index",
                directory,
                record_offset,
                f"{self._missing} keys of messages are not in the index; the first is shown",
                repr(key),
                "no entry",
            )
        if self._surplus:
            message = f"{self._surplus} entries more than messages have keys"
            self._finding(Severity.WARNING, "index", directory, None, message, repair=REOPEN)
        if behind:
            message = f"{behind} entries of records behind the log's end"
            self._finding(Severity.WARNING, "index", directory, None, message, repair=REOPEN)
