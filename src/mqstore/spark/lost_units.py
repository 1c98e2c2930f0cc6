"""Messages whose units have gone since a read was planned: the log still says where they are."""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

import numpy as np

from mqstore.errors import shown_path
from mqstore.files.pool import FilePool
from mqstore.layout.constants import QUEUE_UNIT_SIZE, SysFlag
from mqstore.layout.queue_unit import QueueUnit
from mqstore.spark.arrays import PLACE, Wanted
from mqstore.spark.log_end import readable_end
from mqstore.spark.queue_splits import QueueSplit
from mqstore.store.log_reader import Chunk, LogDamage, LogReader
from mqstore.store.queue_reader import QueueReader

_log = logging.getLogger(__name__)

_IN_NO_QUEUE = (SysFlag.TRANSACTION_PREPARED, SysFlag.TRANSACTION_ROLLBACK)


class Gone(NamedTuple):
    """Messages [first, stop) of range ``number`` of a split, which lie in [low, high) of the log; 0 is not known."""

    number: int
    first: int
    stop: int
    low: int
    high: int


def gone(reader: QueueReader, number: int, first: int, stop: int, split: QueueSplit) -> Gone:
    """Units [first, stop) of a queue that are not there, with what the plan and the units beside them tell."""
    before, behind = _unit_before(reader, first), reader.unit(stop)
    low = split.low if before is None else max(split.low, before.end_offset)
    high = split.high
    if behind is not None and behind.is_written:
        high = min(high or behind.physical_offset, behind.physical_offset)
    return Gone(number, first, stop, low, high)


def _unit_before(reader: QueueReader, offset: int) -> QueueUnit | None:
    """The last unit before ``offset`` that is there."""
    unit = reader.unit(offset - 1)
    if unit is None:
        ends = [entry.start + reader.inventory.size_bytes for entry in reader.inventory.entries]
        earlier = [end // QUEUE_UNIT_SIZE for end in ends if end <= offset * QUEUE_UNIT_SIZE]
        unit = reader.unit(earlier[-1] - 1) if earlier else None
    return unit if unit is not None and unit.is_written else None


def find_in_log(split: QueueSplit, lost: list[Gone], pool: FilePool) -> Wanted:
    """Where those of the messages lie that the log has, by going through the stretch in which they can be.

    Raises:
        StoreIOError: the log could not be read.
    """
    log = LogReader(split.store.paths.commit_logs, pool=pool)
    low = min(one.low for one in lost)
    high = max(one.high for one in lost) if all(one.high for one in lost) else readable_end(log)
    _log.warning(
        "%s: units of queues have gone, going through the log from %d to %d for their messages",
        shown_path(split.store.path), max(low, log.min_offset), high,
    )  # fmt: skip
    sought = _Sought(split, lost)
    chunks = log.scan(low, high, on_damage=_pass_over, check_crc=False, pass_expired=True)
    found: Wanted = np.concatenate([np.empty(0, PLACE), *map(sought.places, chunks)])
    # Of two, dispatch believes the first.
    _, firsts = np.unique(found[["range", "queue_offset"]], return_index=True)
    return found[np.sort(firsts)]


def _pass_over(damage: LogDamage) -> bool:
    return True


class _Sought:
    """Picks the records of the messages that are sought."""

    def __init__(self, split: QueueSplit, lost: list[Gone]) -> None:
        self._by_queue: dict[tuple[str, int], list[Gone]] = {}
        for one in lost:
            queue = split.ranges[one.number]
            self._by_queue.setdefault((queue.topic, queue.queue_id), []).append(one)
        self._ids = sorted({queue_id for _, queue_id in self._by_queue})
        self._first = min(one.first for one in lost)
        self._stop = max(one.stop for one in lost)

    def places(self, chunk: Chunk) -> Wanted:
        """Where those among the records of ``chunk`` lie."""
        columns = chunk.columns
        ids, offsets = np.frombuffer(columns.queue_id, np.int32), np.frombuffer(columns.queue_offset, np.int64)
        kinds = np.frombuffer(columns.sys_flag, np.int32) & SysFlag.TRANSACTION_MASK
        likely: Any = np.flatnonzero(
            np.isin(ids, self._ids) & (offsets >= self._first) & (offsets < self._stop) & ~np.isin(kinds, _IN_NO_QUEUE)
        )
        rows, numbers = [], []
        for row in likely.tolist():
            at = columns.topic_position[row]
            raw = bytes(chunk.buffer[at : at + columns.topic_size[row]])
            for one in self._of(raw, int(ids[row])):
                if one.first <= offsets[row] < one.stop:
                    rows.append(row)
                    numbers.append(one.number)
        found = np.zeros(len(rows), PLACE)
        found["begin"] = np.frombuffer(columns.own_offset, np.int64)[rows]
        found["size"] = np.frombuffer(columns.size, np.int32)[rows]
        found["queue_offset"], found["range"] = offsets[rows], numbers
        return found

    def _of(self, topic: bytes, queue_id: int) -> list[Gone]:
        """What is sought of a queue, its topic as a record has it: the name of a directory, or as it is shown."""
        for name in (topic.decode("utf-8", "surrogateescape"), topic.decode("utf-8", "replace")):
            if (name, queue_id) in self._by_queue:
                return self._by_queue[name, queue_id]
        return []
