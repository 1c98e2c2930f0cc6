"""Ranges of queues, each read by one task, whose messages lie close together in the log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from mqstore.spark.arrays import UnitRange
from mqstore.spark.queue_ranges import Offsets, Queue, Range
from mqstore.spark.stores import StoreRef
from mqstore.store.queue_reader import QueueReader

QUEUES_PER_SPLIT = 500
MESSAGES_PER_SPLIT: Final = 500_000
"""A task holds the places of all its messages, some 100 bytes each, so that small ones must not be too many."""

_QueueParts = list[tuple[Range, int, int]]
"""Parts of queues, each from one offset to another."""


class QueueSplit(NamedTuple):
    """Messages of one store by the ranges of their queues.

    All lie in [low, high) of the log; both are 0 where that was not looked for.
    """

    store: StoreRef
    ranges: list[UnitRange]
    low: int = 0
    high: int = 0


def plan_queue_splits(
    found: Mapping[Queue, Range], begins: Offsets, ends: Offsets, split_bytes: int, min_partitions: int
) -> list[QueueSplit]:
    """The splits that together hold the messages from ``begins`` to ``ends``, each once.

    Every store's part of the log is cut at equal distances, and every queue where these cuts meet it: so each task
    reads one stretch of the log, be it for a thousand queues. Only units at the cuts are looked at.
    """
    by_store: dict[StoreRef, _QueueParts] = {}
    for queue, end in ends.items():
        if queue in found and begins.get(queue, end) < end:
            one = found[queue]
            by_store.setdefault(one.store, []).append((one, begins[queue], end))
    least = -(-min_partitions // max(1, len(by_store)))
    return [
        split
        for store, wanted in by_store.items()
        for share in _shares(wanted, _number_of_splits(wanted, split_bytes, least))
        for parts in _small_enough(share)
        for split in of_few_queues(
            store, [UnitRange(one.reader.topic, one.reader.queue_id, begin, end) for one, begin, end in parts]
        )
    ]


def of_few_queues(store: StoreRef, ranges: list[UnitRange], low: int = 0, high: int = 0) -> list[QueueSplit]:
    """Splits that together have the ranges, each no more of them than a task can be told of."""
    return [
        QueueSplit(store, ranges[first : first + QUEUES_PER_SPLIT], low, high)
        for first in range(0, len(ranges), QUEUES_PER_SPLIT)
    ]


def estimated_bytes(queue: QueueReader, begin: int, end: int) -> int:
    """Size of the messages [begin, end) of a queue, if the others are as large as the first and the last."""
    if begin >= end:
        return 0
    units = [unit for unit in (queue.unit(begin), queue.unit(end - 1)) if unit is not None]
    return sum(unit.size_bytes for unit in units) * (end - begin) // len(units) if units else 0


def _number_of_splits(wanted: _QueueParts, split_bytes: int, least: int) -> int:
    size = sum(estimated_bytes(one.reader, begin, end) for one, begin, end in wanted)
    messages = _messages(wanted)
    return min(max(least, -(-size // split_bytes), -(-messages // MESSAGES_PER_SPLIT), 1), messages)


def _messages(parts: _QueueParts) -> int:
    return sum(end - begin for _, begin, end in parts)


def _shares(wanted: _QueueParts, number: int) -> list[_QueueParts]:
    """So many of them, cut at equal distances of the log."""
    low = min(one.physical_offset(begin) for one, begin, _ in wanted)
    high = max(one.physical_offset(end - 1) for one, _, end in wanted) + 1
    shares: list[_QueueParts] = []
    places = [begin for _, begin, _ in wanted]
    for share in range(1, number + 1):
        border = low + (high - low) * share // number
        parts = []
        for index, (one, _, end) in enumerate(wanted):
            begin = places[index]
            stop = end if share == number else one.first_behind(border, begin, end)
            if begin < stop:
                parts.append((one, begin, stop))
            places[index] = stop
        shares.append(parts)
    return shares


def _small_enough(share: _QueueParts) -> Iterator[_QueueParts]:
    """The share, divided further where messages lie close together."""
    count = _messages(share)
    halves = _shares(share, 2) if count > MESSAGES_PER_SPLIT else []
    if any(_messages(half) == count for half in halves) or not halves:  # units that all lead to one place
        yield share
        return
    for half in halves:
        yield from _small_enough(half)
