"""Reading messages by their queue units: as stretches of the log, each record of which has a unit that names it.

A unit says where a record starts, so nothing has to be searched for. Records close to each other are read in one go
and walked as a whole; what lies between them is passed over. So a batch that holds all that has come reads the end of
the log once, whatever the number of queues, and a queue that is a small part of the log costs little more than itself.
"""

from __future__ import annotations

import itertools
import logging
import mmap
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mqstore import errors, kernels
from mqstore.files.pool import FilePool
from mqstore.kernels.api import LogColumns, Stop
from mqstore.spark.options import OnCorruptRecord
from mqstore.spark.queue_splits import QueueSplit
from mqstore.spark.splits import SplitPolicy
from mqstore.spark.stream_ends import HINT
from mqstore.spark.tables import UNIT, UnitRange
from mqstore.store.columns import message_batches
from mqstore.store.log_reader import Chunk, LogDamage, LogReader
from mqstore.store.queue_reader import QueueReader

_log = logging.getLogger(__name__)

GAP_BYTES: Final = 4 << 10
"""What lies between two wanted records is read with them up to this size."""
WINDOW_BYTES: Final = 8 << 20
"""Wanted bytes handed on together."""
_EXTENT_BYTES: Final = 32 << 20
"""How far apart in the log their first and last may lie."""
_LEAST_RECORD: Final = 91
_WIDE: Final = LogColumns.WIDE_COLUMNS
_NARROW: Final = LogColumns.NARROW_COLUMNS

Numbers = Any
"""A NumPy array of whole numbers."""


class Wanted(NamedTuple):
    """The records of a split by their units, in the order of the log; a record each."""

    begins: Numbers
    sizes: Numbers
    queue_offsets: Numbers
    range_numbers: Numbers

    def part(self, first: int, stop: int) -> Wanted:
        """Records number ``first`` to ``stop``."""
        return Wanted(*(column[first:stop] for column in self))

    def where(self, mask: Numbers) -> Wanted:
        """The records that ``mask`` is true for."""
        return Wanted(*(column[mask] for column in self))

    @property
    def ends(self) -> Numbers:
        """Where the records end."""
        return self.begins + self.sizes


def read_queue_split(split: QueueSplit, policy: SplitPolicy) -> Iterator[Chunk]:
    """The records of ``split`` as columns, in log order.

    Raises:
        CorruptRecordError: a unit names no sound record of its queue, unless the policy says otherwise.
        CorruptFileError: a log or queue file is gone, under ``fail_on_data_loss``.
    """
    pool = FilePool()
    try:
        log = LogReader(split.store.paths.commit_logs, pool=pool)
        yield from _SplitReader(log, split, policy).chunks(_load_units(split, pool, policy))
    finally:
        pool.close()


def _load_units(split: QueueSplit, pool: FilePool, policy: SplitPolicy) -> Wanted:
    parts: list[Wanted] = []
    for number, one in enumerate(split.ranges):
        reader = QueueReader(one.topic, one.queue_id, split.store.paths.queue(one.topic, one.queue_id), pool)
        for first, stop, data in reader.stretches(one.begin, one.end):
            if not data:
                _lost(split, one, first, stop, policy)
                continue
            units = np.frombuffer(data, UNIT)
            begins, sizes = (units[name].astype(np.int64) for name in ("physicalOffset", "storeSize"))
            parts.append(Wanted(begins, sizes, np.arange(first, stop), np.full(len(units), number)))
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)] or [np.empty(0, np.int64)] * 4
    order = np.argsort(columns[0], kind="stable")
    return Wanted(*(column[order] for column in columns))


def _lost(split: QueueSplit, one: UnitRange, first: int, stop: int, policy: SplitPolicy) -> None:
    """Messages [first, stop) of a queue have gone since the batch was planned."""
    what = f"messages {first} to {stop - 1} of queue {one.topic}/{one.queue_id} of {split.store.broker_name}"
    if policy.fail_on_data_loss:
        raise errors.CorruptFileError(
            f"data may have been lost: {what} were removed before they were read", path=split.store.path, hint=HINT
        )
    _log.warning("passing over %s, %d in all: they were removed before they were read", what, stop - first)


class _SplitReader:
    """Goes through the wanted records of one split."""

    def __init__(self, log: LogReader, split: QueueSplit, policy: SplitPolicy) -> None:
        self._log = log
        self._split = split
        self._policy = policy

    def chunks(self, wanted: Wanted) -> Iterator[Chunk]:
        """The records of each file in turn; those of files that are gone are lost."""
        first = 0
        while first < len(wanted.begins):
            begin = int(wanted.begins[first])
            entry = self._log.entry_at(begin)
            if entry is not None:
                file_end = entry.start + entry.length
                stop = int(np.searchsorted(wanted.begins, file_end))
                for part in _windows(self._inside(wanted.part(first, stop), file_end)):
                    yield from self._window(part)
            else:
                starts = [one.start for one in self._log.inventory.entries if one.start > begin]
                stop = int(np.searchsorted(wanted.begins, min(starts))) if starts else len(wanted.begins)
                self._note_lost(wanted.part(first, stop))
            first = stop

    def _note_lost(self, gone: Wanted) -> None:
        for number in np.unique(gone.range_numbers):
            offsets = gone.queue_offsets[gone.range_numbers == number]
            _lost(self._split, self._split.ranges[number], int(offsets.min()), int(offsets.max()) + 1, self._policy)

    def _window(self, wanted: Wanted) -> Iterator[Chunk]:
        """Read one window's records, and find them among what was read."""
        base = int(wanted.begins[0])
        runs = _runs(wanted)
        buffer: Any = mmap.mmap(-1, int(wanted.ends.max()) - base) if len(runs) > 1 else b""
        tables = []
        kept: Numbers = np.ones(len(wanted.begins), bool)
        for run in runs:
            data = self._log.read(run.begin, run.end - run.begin)
            if data is None:  # removed a moment ago
                self._note_lost(wanted.part(run.first, run.stop))
                kept[run.first : run.stop] = False
                continue
            if len(runs) == 1:
                buffer = data
            else:
                # Pages between the runs are never touched, so they take no memory.
                buffer[run.begin - base : run.end - base] = data
            tables += _scan(buffer, base, run, wanted.begins, self._policy.check_crc)
        if kept.any():
            yield from self._choose(buffer, base, tables, wanted.where(kept))

    def _inside(self, wanted: Wanted, file_end: int) -> Wanted:
        """The records that can lie in the file; units that claim anything else are damaged."""
        sound: Numbers = (wanted.sizes > 0) & (wanted.ends <= file_end)
        for row in np.flatnonzero(~sound):
            self._on_damage(wanted, int(row))
        return wanted.where(sound)

    def _choose(self, buffer: Any, base: int, tables: list[LogColumns], wanted: Wanted) -> Iterator[Chunk]:
        """The rows of the wanted records; what a unit names must be there, and be of its queue."""
        columns = _joined(tables, base)
        places: Numbers = np.frombuffer(columns.position, np.int64) + base
        rows: Numbers = np.searchsorted(places, wanted.begins)
        rows[rows == len(places)] = 0
        sound: Numbers = np.full(len(rows), bool(len(places)))
        if len(places):
            ids: Numbers = np.array([one.queue_id for one in self._split.ranges])[wanted.range_numbers]
            sound &= places[rows] == wanted.begins
            for name, values in (("queue_offset", wanted.queue_offsets), ("size", wanted.sizes), ("queue_id", ids)):
                column = getattr(columns, name)
                sound &= np.frombuffer(column, column.format)[rows] == values
            chunk = Chunk(buffer, base, _taken(columns, rows[sound]))
            sound[sound] = self._is_of_topic(chunk, wanted.where(sound))
        for row in np.flatnonzero(~sound):
            self._on_damage(wanted, int(row))
        if sound.any():
            yield Chunk(buffer, base, _taken(columns, rows[sound]))

    def _is_of_topic(self, chunk: Chunk, wanted: Wanted) -> Numbers:
        """Which records are of the topic that their units are for."""
        if not chunk.columns.count:
            return np.empty(0, bool)
        topics = pa.concat_arrays([batch["topic"] for batch in message_batches(chunk, ["topic"], "")])
        expected = pa.array([one.topic for one in self._split.ranges]).take(pa.array(wanted.range_numbers))
        return pc.equal(topics, expected).to_numpy(zero_copy_only=False)

    def _on_damage(self, wanted: Wanted, row: int) -> None:
        """Where a unit leads there is no sound record of its queue: an error, or a warning."""
        begin, size = int(wanted.begins[row]), int(wanted.sizes[row])
        one = self._split.ranges[int(wanted.range_numbers[row])]
        where = f"message {wanted.queue_offsets[row]} of queue {one.topic}/{one.queue_id}"
        entry = self._log.entry_at(begin)
        data = self._log.read(begin, size) or b""
        damage = kernels.scan(data, 0, len(data), begin, check_crc=self._policy.check_crc).damage
        error: errors.MqstoreError
        if damage is not None and entry is not None:
            error = LogDamage(entry.path, begin, damage).to_error()
        else:
            error = errors.CorruptFileError(
                "a queue's unit leads to no record of the queue", path=self._split.store.path, offset=begin
            )
        if self._policy.on_corrupt_record is OnCorruptRecord.FAIL:
            error.hint = "onCorruptRecord=skip passes over damage"
            raise error
        _log.warning("passing over %s: %s", where, error)


def _windows(wanted: Wanted) -> Iterator[Wanted]:
    """The records of one file in groups that are handed on together."""
    sums = np.cumsum(wanted.sizes)
    first = 0
    while first < len(wanted.begins):
        by_size = np.searchsorted(sums, sums[first] - wanted.sizes[first] + WINDOW_BYTES, side="right")
        by_place = np.searchsorted(wanted.begins, wanted.begins[first] + _EXTENT_BYTES)
        stop = max(first + 1, int(min(by_size, by_place)))
        yield wanted.part(first, stop)
        first = stop


class _Run(NamedTuple):
    """Wanted records number ``first`` to ``stop``, which lie in [begin, end) and are read in one go."""

    first: int
    stop: int
    begin: int
    end: int


def _runs(wanted: Wanted) -> list[_Run]:
    """The records in groups that lie close together."""
    gaps = wanted.begins[1:] - wanted.ends[:-1]
    firsts: Numbers = np.concatenate([[0], np.flatnonzero(gaps > GAP_BYTES) + 1])
    columns = (
        firsts,
        np.append(firsts[1:], len(wanted.begins)),
        wanted.begins[firsts],
        np.maximum.reduceat(wanted.ends, firsts),
    )
    return [_Run(*numbers) for numbers in zip(*(column.tolist() for column in columns), strict=True)]


def _scan(buffer: Any, base: int, run: _Run, wanted_begins: Numbers, check_crc: bool) -> list[LogColumns]:
    """The records of one run; behind what is no record it goes on at the next that is wanted."""
    tables = []
    position, end = run.begin - base, run.end - base
    while position < end:
        # A table is made for the most rows, and most runs are of one record.
        most = 1 if run.stop - run.first == 1 else max(1, min(1 << 16, (end - position) // _LEAST_RECORD))
        columns = kernels.scan(buffer, position, end, base, max_records=most, check_crc=check_crc)
        if columns.count:
            tables.append(columns)
        position = columns.next_position
        if columns.stop is not Stop.FULL and position < end:
            begins = wanted_begins[run.first : run.stop]
            following = int(np.searchsorted(begins, base + position, side="right"))
            if following == len(begins):
                break
            position = int(begins[following]) - base
    return tables


def _joined(tables: list[LogColumns], base: int) -> LogColumns:
    """The rows of all tables, which lie in one buffer, in one table."""
    if len(tables) == 1:
        return tables[0]
    wide, narrow = [np.empty((_WIDE, 0), np.int64)], [np.empty((_NARROW, 0), np.int32)]
    for capacity, group in itertools.groupby(tables, lambda table: table.capacity if table.count == 1 else 0):
        if not capacity:
            for table in group:
                wide.append(_wide(table))
                narrow.append(_narrow(table))
            continue
        # Tables of one row may be many, so these are taken together.
        shape = [("wide", np.int64, (_WIDE, capacity)), ("narrow", np.int32, (_NARROW, capacity))]
        rows: Numbers = np.frombuffer(b"".join(table.arena for table in group), shape)
        wide.append(rows["wide"][:, :, 0].T)
        narrow.append(rows["narrow"][:, :, 0].T)
    return _table(np.concatenate(wide, axis=1), np.concatenate(narrow, axis=1), base)


def _taken(columns: LogColumns, rows: Numbers) -> LogColumns:
    """The table of some of the rows, in their order."""
    if len(rows) == columns.count and (rows == np.arange(len(rows))).all():
        return columns
    return _table(_wide(columns)[:, rows], _narrow(columns)[:, rows], columns.physical_offset)


def _wide(table: LogColumns) -> Numbers:
    return np.frombuffer(table.arena, np.int64, _WIDE * table.capacity).reshape(_WIDE, -1)[:, : table.count]


def _narrow(table: LogColumns) -> Numbers:
    numbers = np.frombuffer(table.arena, np.int32, _NARROW * table.capacity, offset=8 * _WIDE * table.capacity)
    return numbers.reshape(_NARROW, -1)[:, : table.count]


def _table(wide: Numbers, narrow: Numbers, base: int) -> LogColumns:
    rows = wide.shape[1]
    end = int(wide[0, -1] + narrow[0, -1]) if rows else 0
    return LogColumns(bytearray(wide.tobytes() + narrow.tobytes()), rows, rows, base, end, Stop.END)
