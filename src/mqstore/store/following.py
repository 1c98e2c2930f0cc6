"""Going on with a log as it grows, also when its newest records are cut off and others take their place."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

from mqstore.layout.record import Record
from mqstore.store.log_reader import Chunk
from mqstore.store.view import StoreView

_MARKS: Final = 10_000
"""How many of the newest records are remembered: as many may a recovery cut off that others take the place of."""


class _Mark(NamedTuple):
    """What tells a record from another that is written to its place later."""

    physical_offset: int
    end_offset: int
    store_timestamp_ms: int
    born_timestamp_ms: int
    queue_offset: int
    body_crc: int


def _marks_of(chunk: Chunk) -> Iterator[_Mark]:
    columns = chunk.columns
    for row in range(max(0, columns.count - _MARKS), columns.count):
        yield _Mark(
            columns.own_offset[row],
            columns.own_offset[row] + columns.size[row],
            columns.store_timestamp_ms[row],
            columns.born_timestamp_ms[row],
            columns.queue_offset[row],
            columns.body_crc[row],
        )


class Follower:
    """Goes on with the log of ``view`` from ``end`` on, a physical offset up to which all records are known."""

    def __init__(self, view: StoreView, end: int) -> None:
        self._view = view
        self._end = self._shown_to = end
        self._first = _first(view)
        self._marks: deque[_Mark] = deque(maxlen=_MARKS)
        for entry in reversed(view.log.inventory.entries):
            stop = min(end, entry.start + entry.length)
            found = deque((mark for chunk in view.scan_columns(entry.start, stop) for mark in _marks_of(chunk)), _MARKS)
            room = _MARKS - len(self._marks)
            self._marks.extendleft([*reversed(found)][:room])
            if len(self._marks) == _MARKS:
                break

    def new(self) -> Iterator[Record]:
        """The records that have come since it was last asked."""
        self._view.log.refresh()
        first = _first(self._view)
        if _is_another(self._first, first):
            self._marks.clear()
            self._go_to(self._view.min_physical_offset)
        self._first = first or self._first
        self._step_back()
        end = self._view.log_end
        for chunk in self._view.scan_columns(self._end, end):
            if not self._is_there():
                return  # what was just read may have taken the place of what was cut off: the next look tells
            yield from (record for record in chunk.records() if record.physical_offset >= self._shown_to)
            self._marks.extend(_marks_of(chunk))
            self._end = chunk.end_offset
        self._end = max(self._end, end)

    def _step_back(self) -> None:
        """Go back to where the log was cut, if it was."""
        oldest = self._marks[0].physical_offset if self._marks else 0
        while not self._is_there():
            self._marks.pop()
            if self._marks:
                self._go_to(self._marks[-1].end_offset)
            else:  # further than anything is known of, but that records in front of these were shown
                starts = [entry.start for entry in self._view.log.inventory.entries if entry.start <= oldest]
                self._go_to(starts[-1] if starts else self._view.min_physical_offset)
                self._shown_to = oldest

    def _is_there(self) -> bool:
        """Whether the newest record that is known is there, or has expired."""
        if not self._marks:
            return True
        mark = self._marks[-1]
        record = self._view.log.record_at(mark.physical_offset)
        if record is None:
            return mark.physical_offset < self._view.min_physical_offset
        return all(getattr(record, name) == value for name, value in mark._asdict().items())

    def _go_to(self, physical_offset: int) -> None:
        self._end = self._shown_to = physical_offset
        self._view.log.trust_to(physical_offset)  # it knows of an end behind


def _first(view: StoreView) -> Record | None:
    return view.message_at(view.min_physical_offset)


def _is_another(known: Record | None, first: Record | None) -> bool:
    """Whether the log that began with ``known`` is no longer there, but one that was made anew in its place.

    A log loses messages at its front, and never gets others there.
    """
    if known is None or first is None or first.physical_offset > known.physical_offset:
        return False
    return first != known
