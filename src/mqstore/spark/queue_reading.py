"""Reading messages by their queue units: each record at the place that a unit names.

A unit says where a record starts, so nothing has to be searched for. Records close to each other are read in one go;
what lies between others is not read. So a batch that holds all that has come reads the end of the log once, whatever
the number of queues, and a queue that is a small part of the log costs little more than itself. Where units have gone
since the plan was made, the log is gone through for their messages (``lost_units``).
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from mqstore import errors, kernels
from mqstore.files.inventory import FileEntry
from mqstore.files.pool import FilePool
from mqstore.layout.constants import PROPERTY_INNER_MULTI_DISPATCH
from mqstore.layout.multi_dispatch import offset_in
from mqstore.layout.record import Record, decode_record
from mqstore.spark.arrays import PLACE, UNIT, Numbers, UnitRange, Wanted
from mqstore.spark.lost_units import Gone, find_in_log, gone
from mqstore.spark.option_values import HINT_LOST
from mqstore.spark.options import OnCorruptRecord
from mqstore.spark.queue_splits import QueueSplit
from mqstore.spark.splits import SplitPolicy
from mqstore.store.columns import allocate
from mqstore.store.log_reader import Chunk, LogDamage, LogReader
from mqstore.store.queue_reader import QueueReader
from mqstore.store.queue_states import reader_up_to, while_queues_stay

_log = logging.getLogger(__name__)

GAP_BYTES: Final = 4 << 10
"""What lies between two wanted records is read with them up to this size."""
WINDOW_BYTES: Final = 8 << 20
"""Bytes read and handed on together."""

_FURTHER: Final = PROPERTY_INNER_MULTI_DISPATCH.encode()
_MENDED: Final = "\ufffd"
"""What stands in a topic for bytes that are no UTF-8."""


def read_queue_split(split: QueueSplit, policy: SplitPolicy) -> Iterator[Chunk]:
    """The records of ``split`` as columns, in log order.

    Raises:
        CorruptRecordError: a unit names no sound record of its queue, unless the policy says otherwise.
        CorruptFileError: a log or queue file is gone, under ``fail_on_data_loss``.
    """
    pool = FilePool()
    try:
        wanted = while_queues_stay(split.store.paths, functools.partial(_load_units, split, pool, policy))
        yield from _SplitReader(split, policy, pool).chunks(wanted)
    finally:
        pool.close()


def _load_units(split: QueueSplit, pool: FilePool, policy: SplitPolicy) -> Wanted:
    parts, lost = [np.empty(0, PLACE)], list[Gone]()
    for number, one in enumerate(split.ranges):
        reader = _reader(split, one, pool)
        found, missing = _units_of(one, reader)
        for part in found:
            part["range"] = number
            parts.append(part)
        lost += [gone(reader, number, first, stop, split) for first, stop in missing]
    if lost:
        parts.append(_found_in_log(split, lost, pool, policy))
    wanted: Wanted = np.concatenate(parts)
    parts.clear()  # so many bytes less beside the copy in order
    return wanted[np.argsort(wanted["begin"], kind="stable")]


def _units_of(one: UnitRange, reader: QueueReader) -> tuple[list[Wanted], list[tuple[int, int]]]:
    """What the units of a range say, and what of it has none.

    Where it ends with units that nobody wrote, the queue is not what it was.
    """
    parts: list[Wanted] = []
    missing: list[tuple[int, int]] = []
    for first, stop, data in reader.stretches(one.begin, one.end):
        if not data:
            missing.append((first, stop))
            continue
        units = np.frombuffer(data, UNIT)
        part = np.empty(len(units), PLACE)
        part["begin"], part["size"] = units["physicalOffset"], units["storeSize"]
        part["queue_offset"] = np.arange(first, stop)
        parts.append(part)
    first_lost = one.end
    while parts:
        part = parts.pop()
        written = np.flatnonzero((part["begin"] != 0) | (part["size"] != 0))
        count = int(written[-1]) + 1 if len(written) else 0
        if count < len(part):
            first_lost = int(part["queue_offset"][count])
        if count:
            parts.append(part[:count])
            break
    if first_lost < one.end:
        missing = [gap for gap in missing if gap[1] <= first_lost] + [(first_lost, one.end)]
    return parts, missing


def _found_in_log(split: QueueSplit, lost: list[Gone], pool: FilePool, policy: SplitPolicy) -> Wanted:
    """The places of lost units' messages by the log alone; what it has no more is lost."""
    found = find_in_log(split, lost, pool)
    for piece in lost:
        offsets = np.arange(piece.first, piece.stop)
        missing = offsets[~np.isin(offsets, found["queue_offset"][found["range"] == piece.number])]
        for run in np.split(missing, np.flatnonzero(np.diff(missing) > 1) + 1):
            if len(run):
                _lost(split, split.ranges[piece.number], int(run[0]), int(run[-1]) + 1, policy)
    return found


def _reader(split: QueueSplit, one: UnitRange, pool: FilePool) -> QueueReader:
    return reader_up_to(split.store.paths, one.topic, one.queue_id, one.end, pool)


def _lost(split: QueueSplit, one: UnitRange, first: int, stop: int, policy: SplitPolicy) -> None:
    """Messages [first, stop) of a queue have gone since the batch was planned."""
    what = f"messages {first} to {stop - 1} of queue {one.topic}/{one.queue_id} of {split.store.broker_name}"
    if policy.fail_on_data_loss:
        raise errors.CorruptFileError(
            f"data may have been lost: {what} were removed before they were read", path=split.store.path, hint=HINT_LOST
        )
    _log.warning("passing over %s, %d in all: they were removed before they were read", what, stop - first)


class _SplitReader:
    """Goes through the wanted records of one split."""

    def __init__(self, split: QueueSplit, policy: SplitPolicy, pool: FilePool) -> None:
        self._split = split
        self._policy = policy
        self._pool = pool
        self._again: dict[int, QueueReader] = {}
        self._log = LogReader(split.store.paths.commit_logs, pool=pool)
        self._queues = [(one.topic.encode("utf-8", "surrogateescape"), one.queue_id) for one in split.ranges]

    def chunks(self, wanted: Wanted) -> Iterator[Chunk]:
        """The records of each file in turn; those of files that are gone are lost."""
        while len(wanted):
            begin = int(wanted["begin"][0])
            entry = self._log.entry_at(begin)
            if entry is not None:
                # Not where the file ends, which may be too short: what lies behind that is in no other file.
                stop = int(np.searchsorted(wanted["begin"], entry.start + self._log.inventory.size_bytes))
                for part in _windows(self._inside(wanted[:stop], entry)):
                    yield from self._window(entry, part)
            else:
                starts = [one.start for one in self._log.inventory.entries if one.start > begin]
                stop = int(np.searchsorted(wanted["begin"], min(starts))) if starts else len(wanted)
                self._note_lost(wanted[:stop])
            wanted = wanted[stop:]

    def _note_lost(self, missing: Wanted) -> None:
        for number in np.unique(missing["range"]):
            offsets = missing["queue_offset"][missing["range"] == number]
            _lost(self._split, self._split.ranges[number], int(offsets.min()), int(offsets.max()) + 1, self._policy)

    def _inside(self, wanted: Wanted, entry: FileEntry) -> Wanted:
        """The records that can lie in the file; units that claim anything else are damaged."""
        sound = (wanted["size"] > 0) & (wanted["begin"] + wanted["size"] <= entry.start + entry.length)
        self._on_damage(wanted[~sound])
        return wanted[sound]

    def _window(self, entry: FileEntry, wanted: Wanted) -> Iterator[Chunk]:
        """Read one window's records one behind the other; what a unit names must be there, and be of its queue."""
        runs, begins, sizes = _runs(wanted)
        places = np.cumsum(sizes) - sizes
        wanted["position"] = wanted["begin"] - begins[runs] + places[runs]
        buffer: Any = allocate(int(sizes.sum()))
        there = self._read(entry, list(zip((begins - entry.start).tolist(), sizes.tolist(), strict=True)), buffer)
        if there != sizes.tolist():
            read = wanted["begin"] + wanted["size"] - begins[runs] <= np.array(there, np.int64)[runs]
            self._note_lost(wanted[~read])
            wanted = wanted[read]
        columns, found = kernels.scan_at(buffer, wanted, self._queues, check_crc=self._policy.check_crc)
        if columns.count < len(wanted):
            named = self._by_stored_names(buffer, wanted, ~np.frombuffer(found, bool))
            if named is not None:
                columns, found = kernels.scan_at(buffer, named, self._queues, check_crc=self._policy.check_crc)
            self._on_damage(self._without_further(buffer, wanted[~np.frombuffer(found, bool)]))
        if columns.count:
            yield Chunk(buffer, -1, columns)

    def _by_stored_names(self, buffer: memoryview, wanted: Wanted, missed: Any) -> Wanted | None:
        """``wanted`` with other queues for those missed records whose topics are stored otherwise; None without such.

        What is no UTF-8 in a topic is mended wherever the topic is shown, so a queue's name does not tell it.
        """
        named = None
        for row in np.flatnonzero(missed).tolist():
            _, size, _, number, position = wanted[row].tolist()
            one = self._split.ranges[number]
            if _MENDED not in one.topic:
                continue
            record = _decoded(buffer, position, size)
            if record is not None and record.topic == one.topic:
                name = (record.topic_raw, one.queue_id)
                if name not in self._queues:
                    self._queues.append(name)
                named = wanted.copy() if named is None else named
                named["range"][row] = self._queues.index(name)
        return named

    def _without_further(self, buffer: memoryview, missed: Wanted) -> Wanted:
        """The missed records that are not messages of other queues which go to this one as well: of these, each comes
        once, with the queue that it names as its own.
        """
        is_further = np.zeros(len(missed), bool)
        for row, (begin, size, queue_offset, number, position) in enumerate(missed.tolist()):
            one = self._split.ranges[number]
            if _FURTHER not in bytes(buffer[position : position + size]):
                continue
            record = _decoded(buffer, position, size)
            if record is not None and record.physical_offset == begin:
                is_own = (record.topic, record.queue_id) == (one.topic, one.queue_id)
                is_further[row] = not is_own and offset_in(record, one.topic, one.queue_id) == queue_offset
        return missed[~is_further]

    def _read(self, entry: FileEntry, parts: list[tuple[int, int]], target: memoryview) -> list[int]:
        """Read parts of a file one behind the other; how many bytes of each are there."""
        try:
            return self._pool.read_parts(entry.path, parts, target)
        except errors.StoreIOError:
            if entry.path.exists():
                raise
            self._log.refresh()  # removed a moment ago
            return [0] * len(parts)

    def _on_damage(self, damaged: Wanted) -> None:
        """Where these units lead there is no sound record of their queues: an error, or warnings."""
        for begin, size, queue_offset, number, _ in damaged.tolist():
            one = self._split.ranges[number]
            unit = self._looked_at_again(number).unit(queue_offset)
            if unit is None or (unit.physical_offset, unit.size_bytes) != (begin, size):
                _lost(self._split, one, queue_offset, queue_offset + 1, self._policy)
                continue
            error = self._error_at(begin, size)
            if self._policy.on_corrupt_record is OnCorruptRecord.FAIL:
                error.hint = "onCorruptRecord=skip passes over damage"
                raise error
            _log.warning("passing over message %d of queue %s/%d: %s", queue_offset, one.topic, one.queue_id, error)

    def _looked_at_again(self, number: int) -> QueueReader:
        """The queue of a range, listed anew: another store may have taken the place of the one that was planned for."""
        if number not in self._again:
            self._again[number] = _reader(self._split, self._split.ranges[number], self._pool)
        return self._again[number]

    def _error_at(self, begin: int, size: int) -> errors.MqstoreError:
        entry = self._log.entry_at(begin)
        data = self._log.read(begin, size) or b""
        damage = kernels.scan(data, 0, len(data), begin, check_crc=self._policy.check_crc).damage
        if damage is not None and entry is not None:
            return LogDamage(entry.path, begin, damage).to_error()
        return errors.CorruptFileError(
            "a queue's unit leads to no record of the queue", path=self._split.store.path, offset=begin
        )


def _decoded(buffer: memoryview, position: int, size: int) -> Record | None:
    """The record of that size there, whatever its body's checksum; None where none is."""
    try:
        record = decode_record(buffer, position, end=position + size, check_crc=False)
    except errors.CorruptRecordError:
        return None
    return record if isinstance(record, Record) else None


def _gaps(wanted: Wanted) -> Numbers:
    """What lies between each record and the next; negative where they overlap."""
    return wanted["begin"][1:] - wanted["begin"][:-1] - wanted["size"][:-1]


def _windows(wanted: Wanted) -> Iterator[Wanted]:
    """The records of one file in groups that are handed on together."""
    gaps = _gaps(wanted)
    sums = np.cumsum(wanted["size"])
    sums[1:] += np.cumsum(np.where((gaps > 0) & (gaps <= GAP_BYTES), gaps, 0))
    first = 0
    while first < len(wanted):
        most = sums[first] - wanted["size"][first] + WINDOW_BYTES
        stop = max(first + 1, int(np.searchsorted(sums, most, side="right")))
        yield wanted[first:stop]
        first = stop


def _runs(wanted: Wanted) -> tuple[Numbers, Numbers, Numbers]:
    """The records in groups that lie close together and are read in one go: of each record its group's number; of each
    group where it begins, and its size.
    """
    is_first = np.concatenate([[True], _gaps(wanted) > GAP_BYTES])
    firsts = np.flatnonzero(is_first)
    begins = wanted["begin"][firsts]
    return np.cumsum(is_first) - 1, begins, np.maximum.reduceat(wanted["begin"] + wanted["size"], firsts) - begins
