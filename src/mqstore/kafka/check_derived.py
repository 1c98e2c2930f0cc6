"""Checking the indexes and snapshots of a partition against its log.

An index entry is sound when the batch at its position begins at or before its offset: a look-up then lands right.
Brokers write entries that are no batch's last offset, and those are sound.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Container

from mqstore import errors
from mqstore.findings import Finding, Severity
from mqstore.kafka.check_log import SegmentFacts
from mqstore.kafka.producer_state import ProducerStates
from mqstore.layout.kafka.names import FileKind
from mqstore.layout.kafka.offset_index import ENTRY_SIZE as OFFSET_ENTRY_SIZE
from mqstore.layout.kafka.producer_snapshot import decode_producer_snapshot
from mqstore.layout.kafka.time_index import ENTRY_SIZE as TIME_ENTRY_SIZE
from mqstore.layout.kafka.txn_index import AbortedTransaction

REINDEX = "mqstore kafka reindex DIR --in-place makes it anew from the log"
SNAPSHOT = "remove the file: the next start of a writer makes it anew"
_EMPTY_IS_ODD_FROM_BYTES = 64 << 10


class DerivedCheck:
    """Reports what is wrong with the derived files of one segment."""

    def __init__(
        self, report: Callable[[Finding], None], facts: SegmentFacts, is_last: bool, pending: Container[FileKind] = ()
    ) -> None:
        """``pending`` are the kinds that a cleaning has not given their names yet."""
        self._pending = pending
        self._report = report
        self._facts = facts
        self._segment = facts.segment
        self._is_last = is_last

    def _finding(
        self,
        severity: Severity,
        kind: FileKind,
        number: int | None,
        message: str,
        expected: object = None,
        found: object = None,
        repair: str = REINDEX,
    ) -> None:
        area = "transactions" if kind is FileKind.TXN_INDEX else "index"
        self._report(Finding(severity, area, str(self._segment.path(kind)), number, message, expected, found, repair))

    def check(self) -> None:
        """Check the three indexes."""
        for kind, look in (
            (FileKind.OFFSET_INDEX, self._offsets),
            (FileKind.TIME_INDEX, self._times),
            (FileKind.TXN_INDEX, self._aborted),
        ):
            if kind in self._pending:
                continue
            try:
                data = self._segment.read_file(kind)
                if data is None and kind is not FileKind.TXN_INDEX:
                    self._finding(Severity.WARNING, kind, None, "the index is missing")
                else:
                    look(data or b"", data is None)
            except errors.MqstoreError as error:
                self._finding(
                    Severity.WARNING, kind, error.offset, f"the index cannot be read: {error.message}",
                    error.expected, error.found,
                )  # fmt: skip

    def _behind_the_walk(self) -> bool:
        """Whether a writer has added to the log since: entries behind what was walked are then none of the check's.

        Asked when the entries have been read: a writer puts the batch into the log first.
        """
        return self._is_last and self._facts.has_grown()

    def _tail(self, kind: FileKind, data: bytes, count: int, entry_size: int) -> None:
        """What lies behind the entries: zeros, or nothing where the segment has ended."""
        tail = data[count * entry_size :]
        if tail.strip(b"\0"):
            self._finding(
                Severity.WARNING, kind, count, "something else than entries in order", None, tail[:entry_size].hex()
            )
        elif tail and not self._is_last:
            self._finding(
                Severity.NOTE, kind, count, "an ended segment's index was not cut to its entries", count * entry_size,
                len(data),
            )  # fmt: skip

    def _offsets(self, data: bytes, is_missing: bool) -> None:
        kind, facts = FileKind.OFFSET_INDEX, self._facts
        index = self._segment.offset_index()
        self._tail(kind, data, len(index), OFFSET_ENTRY_SIZE)
        if not len(index) and facts.positions and facts.positions[-1] >= _EMPTY_IS_ODD_FROM_BYTES:
            self._finding(Severity.WARNING, kind, None, "no entries for a long log", "entries", len(data))
        is_behind = self._behind_the_walk()
        for number, entry in enumerate(index):
            if is_behind and entry.position >= facts.end_position:
                break
            row = bisect_left(facts.positions, entry.position)
            if row == len(facts.positions) or facts.positions[row] != entry.position:
                if facts.is_whole:
                    self._finding(
                        Severity.ERROR, kind, number, "an entry points at no batch", "a batch's start", tuple(entry)
                    )
            elif entry.offset < facts.base_offsets[row]:
                self._finding(
                    Severity.ERROR, kind, number, "an entry lies before the batch it points at",
                    f">= {facts.base_offsets[row]}", entry.offset,
                )  # fmt: skip

    def _times(self, data: bytes, is_missing: bool) -> None:
        kind, facts = FileKind.TIME_INDEX, self._facts
        index = self._segment.time_index()
        self._tail(kind, data, len(index), TIME_ENTRY_SIZE)
        if not facts.is_whole:
            return
        is_behind = self._behind_the_walk()
        for number, entry in enumerate(index):
            if is_behind and entry.offset > facts.last_offset:
                break
            row = bisect_right(facts.last_offsets, entry.offset) - 1
            largest = facts.largest_ms[row] if row >= 0 else -1
            if largest != entry.timestamp_ms:
                self._finding(
                    Severity.WARNING, kind, number, "an entry is not the largest timestamp up to its offset", largest,
                    entry.timestamp_ms,
                )  # fmt: skip
        largest = facts.largest_ms[-1] if facts.largest_ms else -1
        if not self._is_last and index.last.timestamp_ms != largest:
            self._finding(
                Severity.WARNING, kind, len(index), "the last entry is not the segment's largest timestamp", largest,
                index.last.timestamp_ms,
            )  # fmt: skip

    def _aborted(self, data: bytes, is_missing: bool) -> None:
        kind, facts = FileKind.TXN_INDEX, self._facts
        listed = [] if is_missing else self._segment.aborted() or []
        if not facts.is_whole:
            return
        is_behind = self._behind_the_walk()
        for entry in facts.aborted:
            # Compaction takes records, never adds any: the log may show less of the transaction than is listed.
            same = [one for one in listed if _ends_as(one, entry) and one.first_offset <= entry.first_offset]
            if not same:
                self._finding(
                    Severity.ERROR, kind, None, "an aborted transaction is not listed: readers take it for committed",
                    tuple(entry), "no entry",
                )  # fmt: skip
            elif same[0] != entry and facts.tells_all:
                self._finding(
                    Severity.WARNING, kind, None, "an entry has another first or last stable offset than the log",
                    tuple(entry), tuple(same[0]),
                )  # fmt: skip
        for number, entry in enumerate(listed):
            # Compaction may have taken the records, and keeps the marker and the entry for slow readers.
            if is_behind and entry.last_offset > facts.last_offset:
                break
            if (entry.producer_id, entry.last_offset) not in facts.abort_markers:
                self._finding(
                    Severity.ERROR, kind, number, "an entry for a transaction that the log does not abort", None,
                    tuple(entry),
                )  # fmt: skip


def _ends_as(one: AbortedTransaction, other: AbortedTransaction) -> bool:
    return (one.producer_id, one.last_offset) == (other.producer_id, other.last_offset)


def check_snapshot(
    report: Callable[[Finding], None], path: str, data: bytes | None, states: ProducerStates, is_complete: bool
) -> None:
    """Hold a producer snapshot against the log. Producers that only one of the two knows may have expired."""
    try:
        entries = decode_producer_snapshot(data or b"")
    except errors.CorruptFileError as error:
        message = f"the snapshot cannot be read: {error.message}"
        report(Finding(Severity.WARNING, "producers", path, None, message, error.expected, error.found, SNAPSHOT))
        return
    if not is_complete:
        return
    for entry in entries:
        known = states.producers.get(entry.producer_id)
        if known is not None and known.entry() != entry:
            message = f"the snapshot's producer {entry.producer_id} is not as the log tells"
            expected, found = tuple(known.entry()), tuple(entry)
            report(Finding(Severity.WARNING, "producers", path, None, message, expected, found, SNAPSHOT))
