"""Queues and key look-ups straight from the log, for a store whose queues or index are lost or not to be trusted.

Nothing is written: the units of every queue are built in memory by one walk over the log, 20 bytes a message, and a
key is found by looking at every record's keys. Damage on the way is passed over, with a warning: what it holds cannot
be looked at, and everything behind it can.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping

from mqstore.layout import delay
from mqstore.layout.constants import QUEUE_UNIT_SIZE
from mqstore.layout.index import index_keys
from mqstore.layout.queue_unit import QueueUnit, decode_unit
from mqstore.layout.record import Record
from mqstore.store.dispatch import delay_array
from mqstore.store.log_reader import Chunk, LogDamage, LogReader
from mqstore.store.multi_dispatch import OFF, MultiDispatch, queue_runs
from mqstore.store.queue_ext import QueueExt

_log = logging.getLogger(__name__)


class MemoryQueue:
    """A queue whose units lie in memory: a :class:`~mqstore.store.reading.UnitSource`."""

    def __init__(self, topic: str, queue_id: int, first_offset: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.min_offset = first_offset
        self._units = bytearray()
        self.ext: QueueExt | None = None

    @property
    def max_offset(self) -> int:
        """One past the last unit."""
        return self.min_offset + len(self._units) // QUEUE_UNIT_SIZE

    @property
    def units_per_file(self) -> int:
        """All units: there are no files."""
        return max(1, len(self._units) // QUEUE_UNIT_SIZE)

    def put(self, first_offset: int, units: bytes) -> None:
        """Append ``units``; what is missing before them is filled with the unit before, as in a queue's files."""
        gap = first_offset - self.max_offset
        if gap > 0:
            self._units += self._units[-QUEUE_UNIT_SIZE:] * gap
        start = (first_offset - self.min_offset) * QUEUE_UNIT_SIZE
        self._units[start : start + len(units)] = units

    def units(self, offset: int, count: int) -> bytes:
        """Up to ``count`` raw units from ``offset`` on."""
        start = (offset - self.min_offset) * QUEUE_UNIT_SIZE
        return bytes(self._units[start : start + count * QUEUE_UNIT_SIZE]) if start >= 0 else b""

    def stored_units(self, offset: int, count: int) -> bytes:
        """The same as :meth:`units`."""
        return self.units(offset, count)

    def unit(self, offset: int) -> QueueUnit | None:
        """The unit at ``offset``, or None."""
        data = self.units(offset, 1)
        return decode_unit(data) if data else None


def build_queues(
    log: LogReader,
    *,
    delay_levels: Mapping[int, int] = delay.DEFAULT_DELAY_TABLE,
    multi: MultiDispatch = OFF,
) -> dict[tuple[str, int], MemoryQueue]:
    """All queues that the log's records belong to, by topic and queue id."""
    queues: dict[tuple[str, int], MemoryQueue] = {}
    delay_ms = delay_array(delay_levels)
    for chunk in _sound_parts(log):
        for run, _ in queue_runs(chunk, delay_ms, multi):
            key = (run.topic.decode("utf-8", "replace"), run.queue_id)
            queue = queues.get(key)
            if queue is None or not queue.min_offset <= run.first_queue_offset <= queue.max_offset + _MAX_GAP:
                # A queue begins with its first record; one that jumps out of all bounds begins anew.
                queue = queues[key] = MemoryQueue(*key, run.first_queue_offset)
            queue.put(run.first_queue_offset, run.units)
    return dict(sorted(queues.items()))


_MAX_GAP = 1 << 20


def _sound_parts(log: LogReader) -> Iterator[Chunk]:
    """The log up to its end, without what is damaged."""
    end = log.end_offset()
    yield from log.scan(end=end, on_damage=_pass_over, pass_expired=True)
    if log.is_damaged_at(end):
        _log.warning("the log ends at %d with damage: what may lie behind is not looked at", end)


def _pass_over(damage: LogDamage) -> bool:
    _log.warning("passing over damage at %d of %s: %s", damage.physical_offset, damage.path, damage.damage.name)
    return True


def find_by_key(log: LogReader, topic: str, key: str) -> Iterator[Record]:
    """Every record of ``topic`` that bears ``key``, in log order."""
    wanted_topic, wanted_key = topic.encode(), key.encode()
    for chunk in _sound_parts(log):
        columns, buffer = chunk.columns, chunk.buffer
        places = zip(
            columns.topic_position,
            columns.topic_size,
            columns.properties_position,
            columns.properties_size,
            strict=True,
        )
        rows = [
            row
            for row, (topic_at, topic_size, at, size) in enumerate(places)
            if buffer[topic_at : topic_at + topic_size] == wanted_topic and buffer.find(wanted_key, at, at + size) >= 0
        ]
        for row in rows:
            record = log.record_at(chunk.physical_offset + columns.position[row], columns.size[row])
            if record is not None and key in index_keys(record):
                yield record
