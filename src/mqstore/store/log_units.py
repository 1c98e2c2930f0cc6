"""The units that a queue should hold, as the log has them: for services that must neither lose a message nor stop.

A unit is derived and no evidence against the log. Where one does not lead to its record, the log is looked through
between the nearest units before and behind it that lead to theirs, and what was found there is remembered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mqstore.layout.multi_dispatch import offset_in
from mqstore.layout.queue_unit import QueueUnit, iter_units
from mqstore.layout.record import Record
from mqstore.store.consume_queue import ConsumeQueue
from mqstore.store.dispatch import delay_array
from mqstore.store.log_reader import LogDamage, LogReader
from mqstore.store.multi_dispatch import OFF, queue_runs


class LogUnits:
    """Finds the record of a message by its unit, or without it."""

    def __init__(self, log: LogReader, delay_table: Mapping[int, int], dispatched_offset: Callable[[], int]) -> None:
        """``dispatched_offset``: the records before it have units."""
        self._log = log
        self._delay_ms = delay_array(delay_table)
        self._dispatched_offset = dispatched_offset
        self._searched: dict[tuple[str, int], tuple[range, dict[int, QueueUnit]]] = {}

    def record_of(self, queue: ConsumeQueue, offset: int) -> Record | None:
        """The record of message ``offset``, sound and of this queue; None when the log has none such.

        Raises:
            StoreIOError: the log could not be read.
        """
        record = self.led_to(queue, offset, queue.unit(offset))
        if record is not None:
            return record
        return self.led_to(queue, offset, self.searched(queue, offset))

    def is_filler(self, queue: ConsumeQueue, offset: int) -> bool:
        """Whether the unit at ``offset`` says that this log never had such a message (docs/format/consume-queue.md)."""
        unit = queue.unit(offset)
        if unit is None or unit.is_pre_blank:
            return unit is not None
        return unit.is_written and offset > queue.min_offset and unit == queue.unit(offset - 1)

    def led_to(self, queue: ConsumeQueue, offset: int, unit: QueueUnit | None) -> Record | None:
        """The record where ``unit`` points, if it is message ``offset`` of the queue.

        Its own size counts: that of the unit can be damaged, too.
        """
        if unit is None or unit.is_pre_blank:
            return None
        record = self._log.record_at(unit.physical_offset)
        return record if record is not None and offset_in(record, queue.topic, queue.queue_id) == offset else None

    def searched(self, queue: ConsumeQueue, offset: int) -> QueueUnit | None:
        """The unit that message ``offset`` should have, by the log alone; None when its record is not there."""
        name = (queue.topic, queue.queue_id)
        known = self._searched.get(name)
        if known is None or offset not in known[0]:
            known = self._searched[name] = self._search(queue, offset)
        return known[1].get(offset)

    def _search(self, queue: ConsumeQueue, offset: int) -> tuple[range, dict[int, QueueUnit]]:
        first, before = self._neighbour(queue, offset, -1)
        end, behind = self._neighbour(queue, offset, 1)
        start = self._log.min_offset if before is None else before.physical_offset + before.total_size
        stop = self._dispatched_offset() if behind is None else behind.physical_offset
        offsets = range(first + 1, end)
        found: dict[int, QueueUnit] = {}
        topic = queue.topic.encode("utf-8", "surrogateescape")
        for chunk in self._log.scan(start, stop, on_damage=_pass):
            for run, _ in queue_runs(chunk, self._delay_ms, OFF):
                if (run.topic, run.queue_id) == (topic, queue.queue_id):
                    for number, unit in enumerate(iter_units(run.units), run.first_queue_offset):
                        if number in offsets:
                            found.setdefault(number, unit)  # of two, dispatch believes the first
        return offsets, found

    def _neighbour(self, queue: ConsumeQueue, offset: int, step: int) -> tuple[int, Record | None]:
        """The nearest message in one direction whose unit leads to it, with its record; None beyond the queue."""
        tried: QueueUnit | None = None
        offset += step
        while queue.min_offset <= offset < queue.max_offset:
            unit = queue.unit(offset)
            if unit != tried:  # the units that fill a gap are all alike
                record = self.led_to(queue, offset, unit)
                if record is not None:
                    return offset, record
                tried = unit
            offset += step
        return offset, None


def _pass(damage: LogDamage) -> bool:
    return True
