"""Ranges of queues, each read by one task, whose messages lie close together in the log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from mqstore.spark.queue_ranges import Offsets, Queue, Range
from mqstore.spark.stores import StoreRef
from mqstore.spark.tables import UnitRange

QUEUES_PER_SPLIT = 500


class QueueSplit(NamedTuple):
    """Messages of one store by the ranges of their queues."""

    store: StoreRef
    ranges: list[UnitRange]


def plan_queue_splits(
    found: Mapping[Queue, Range], begins: Offsets, ends: Offsets, split_bytes: int, min_partitions: int
) -> list[QueueSplit]:
    """The splits that together hold the messages from ``begins`` to ``ends``, each once.

    Every store's part of the log is cut at equal distances, and every queue where these cuts meet it: so each task
    reads one stretch of the log, be it for a thousand queues. Only units at the cuts are looked at.
    """
    by_store: dict[StoreRef, list[tuple[Range, int, int]]] = {}
    for queue, end in ends.items():
        if queue in found and begins.get(queue, end) < end:
            one = found[queue]
            by_store.setdefault(one.store, []).append((one, begins[queue], end))
    least = -(-min_partitions // max(1, len(by_store)))
    return [
        QueueSplit(store, group)
        for store, wanted in by_store.items()
        for ranges in _cut(wanted, _number_of_splits(wanted, split_bytes, least))
        for group in _grouped(ranges)
    ]


def estimated_bytes(one: Range, begin: int, end: int) -> int:
    """Size of the messages [begin, end) of a queue, if the others are as large as the first and the last."""
    units = [unit for unit in (one.reader.unit(begin), one.reader.unit(end - 1)) if unit is not None and begin < end]
    return sum(unit.size_bytes for unit in units) * (end - begin) // len(units) if units else 0


def _number_of_splits(wanted: list[tuple[Range, int, int]], split_bytes: int, least: int) -> int:
    size = sum(estimated_bytes(*one) for one in wanted)
    return min(max(least, -(-size // split_bytes), 1), sum(end - begin for _, begin, end in wanted))


def _cut(wanted: list[tuple[Range, int, int]], number: int) -> list[list[UnitRange]]:
    low = min(one.physical_offset(begin) for one, begin, _ in wanted)
    high = max(one.physical_offset(end - 1) for one, _, end in wanted) + 1
    pieces: list[list[UnitRange]] = []
    places = [begin for _, begin, _ in wanted]
    for piece in range(1, number + 1):
        border = low + (high - low) * piece // number
        ranges = []
        for index, (one, _, end) in enumerate(wanted):
            begin = places[index]
            stop = end if piece == number else one.first_behind(border, begin, end)
            if begin < stop:
                ranges.append(UnitRange(one.reader.topic, one.reader.queue_id, begin, stop))
            places[index] = stop
        pieces.append(ranges)
    return pieces


def _grouped(ranges: list[UnitRange]) -> list[list[UnitRange]]:
    return [ranges[first : first + QUEUES_PER_SPLIT] for first in range(0, len(ranges), QUEUES_PER_SPLIT)]
