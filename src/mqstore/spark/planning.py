"""How the messages that a batch wants are got at: through the log, by queues, or by the index of keys."""

from __future__ import annotations

import functools
import itertools
import logging
from typing import Final, NamedTuple

import numpy as np

from mqstore.errors import shown_path
from mqstore.spark.arrays import Numbers, UnitRange
from mqstore.spark.key_places import Places, find_places
from mqstore.spark.log_end import readable_end
from mqstore.spark.options import Plan, ReadOptions
from mqstore.spark.pieces import Piece
from mqstore.spark.queue_guide import (
    QUEUE_COST_BYTES,
    Guide,
    GuideRefusedError,
    WantedQueue,
    consult,
)
from mqstore.spark.queue_reading import GAP_BYTES
from mqstore.spark.queue_splits import MESSAGES_PER_SPLIT, QueueSplit, of_few_queues
from mqstore.spark.selection import Selection
from mqstore.spark.splits import check_files, open_log, split_bytes_for, split_ranges
from mqstore.spark.stores import StoreRef
from mqstore.store.log_reader import LogReader
from mqstore.store.queue_states import is_rebuilt, while_queues_stay

_log = logging.getLogger(__name__)

READ_COST_BYTES: Final = 8 << 10
"""What it takes to go to another place of the log, as bytes that could be read in that time."""
WORTH: Final = 2
"""How many times fewer bytes it must be to go by queues or index: they take more work a message."""
CLOCK_SLACK_MS: Final = 3_600_000
"""By how much a broker's clock may have been put back while it stored messages."""

Ranges = list[tuple[int, int]]


class _Request(NamedTuple):
    """What is wanted of a store: rows in ``window``, ranges of its log, by ``least`` pieces or more."""

    store: StoreRef
    log: LogReader
    options: ReadOptions
    selection: Selection
    window: Ranges
    least: int

    @property
    def limit_bytes(self) -> int:
        """How much is worth reading of queues, or of the index, and of what they lead to."""
        return _bytes(self.window) // WORTH if self.options.plan is Plan.AUTO else 1 << 62


class _Proposal(NamedTuple):
    """A way to get at the messages: its pieces, about how many bytes they take, and what to say of them."""

    pieces: list[Piece]
    cost_bytes: int
    how: str


def plan_store(store: StoreRef, options: ReadOptions, selection: Selection, store_count: int = 1) -> list[Piece]:
    """The pieces that together hold every wanted message of a store once, and few others if that is cheap to tell.

    Raises:
        CorruptFileError: log files overlap; or, under ``failOnDataLoss``, one is missing.
        UsageError: the splits would be too many.
    """
    log = open_log(store)
    try:
        check_files(log, options.fail_on_data_loss)
        least = -(-options.min_partitions // store_count)
        request = _Request(store, log, options, selection, _window(log, selection), least)
        scan_bytes = _bytes(request.window)
        shown = shown_path(store.path)
        if options.plan is not Plan.SCAN:
            try:
                planned = while_queues_stay(store.paths, functools.partial(_guided, request))
                if options.plan is Plan.QUEUES or planned.cost_bytes * WORTH <= scan_bytes:
                    _log.info("%s: %s, about %d bytes of %d", shown, planned.how, planned.cost_bytes, scan_bytes)
                    return planned.pieces
                reason = f"{planned.how} would take about {planned.cost_bytes} bytes"
            except GuideRefusedError as refused:
                reason = str(refused)
            _log.info("%s: going through the log, %d bytes: %s", shown, scan_bytes, reason)
        window = _clipped(request.window, log.min_offset, readable_end(log))
        size = split_bytes_for(_bytes(window), options.split_bytes, least)
        return list(split_ranges(store, log, window, size))
    finally:
        log.close()


def _guided(request: _Request) -> _Proposal:
    store, selection = request.store, request.selection
    if is_rebuilt(store.paths):
        raise GuideRefusedError("a rebuild in place is going on, or was broken off")
    if selection.keys is not None and selection.topics is not None:
        return _by_index(request)
    if selection.chooses_queues:
        return _by_queues(request, consult(store, request.log, selection, request.limit_bytes))
    raise GuideRefusedError("messages of all queues are wanted" if selection.keys is None else "keys of any topic")


# -- which part of the log


def _window(log: LogReader, selection: Selection) -> Ranges:
    """Ranges of the log outside of which nothing wanted can be, by place and by store time."""
    low, high = selection.pushed.physical_offsets
    entries = log.inventory.entries
    keep = [True] * len(entries)
    first_ms, last_ms = selection.store_times_ms
    if first_ms > 0 or last_ms < (1 << 50):
        heads = [_first_time_ms(log, entry.start) for entry in entries]
        keep = _within_times(heads, first_ms - CLOCK_SLACK_MS, last_ms + CLOCK_SLACK_MS)
    return _joined(
        [
            (max(low, entry.start), min(high, entry.start + entry.length))
            for entry, wanted in zip(entries, keep, strict=True)
            if wanted and entry.start < high and entry.start + entry.length > low
        ]
    )


def _first_time_ms(log: LogReader, start: int) -> int | None:
    record = log.record_at(start)
    return None if record is None else record.store_timestamp_ms


def _within_times(heads: list[int | None], first_ms: int, last_ms: int) -> list[bool]:
    """Which files may hold messages stored in [first_ms, last_ms], by the store times of their first records."""
    keep = []
    for number, begin_ms in enumerate(heads):
        behind = [one for one in heads[number + 1 :] if one is not None][:1]
        too_old = bool(behind) and behind[0] < first_ms
        keep.append(not too_old and (begin_ms is None or begin_ms <= last_ms))
    known = [one for one in heads if one is not None]
    in_order = all(later >= earlier - CLOCK_SLACK_MS for earlier, later in itertools.pairwise(known))
    return keep if in_order else [True] * len(heads)


def _joined(ranges: Ranges) -> Ranges:
    """Ranges in order, those that touch as one."""
    found: Ranges = []
    for begin, end in ranges:
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        elif begin < end:
            found.append((begin, end))
    return found


def _clipped(ranges: Ranges, low: int, high: int) -> Ranges:
    return [(max(low, begin), min(high, end)) for begin, end in ranges if begin < high and end > low]


def _without(ranges: Ranges, gone: Ranges) -> Ranges:
    """What is left of ``ranges`` outside of ``gone``, both in order."""
    left: Ranges = []
    for begin, end in ranges:
        for low, high in _clipped(gone, begin, end):
            if begin < low:
                left.append((begin, low))
            begin = high
        if begin < end:
            left.append((begin, end))
    return left


def _bytes(ranges: Ranges) -> int:
    return sum(end - begin for begin, end in ranges)


# -- by queues


def _by_queues(request: _Request, guide: Guide) -> _Proposal:
    """By units where the queues describe the log, through the log where they do not."""
    if not guide.described:
        raise GuideRefusedError("the queues do not describe the log")
    store, log, options, selection, window, least = request
    end = readable_end(log, guide.last)
    described = _meeting(_joined(_clipped(guide.described, 0, end)), window)
    rest = _without(_clipped(window, log.min_offset, end), described)
    wanted = [part for one in guide.wanted for part in _parts(one, described, selection)]
    splits, read_bytes = _queue_splits(store, wanted, options.split_bytes, least)
    pieces: list[Piece] = [*splits, *split_ranges(store, log, rest, options.split_bytes)]
    cost = guide.unit_bytes + guide.queues * QUEUE_COST_BYTES + read_bytes + _bytes(rest)
    count = sum(len(part.begins) for part in wanted)
    return _Proposal(
        pieces, cost, f"by the queues, {count} messages in {len(splits)} parts, and {_bytes(rest)} bytes of log"
    )


def _meeting(ranges: Ranges, window: Ranges) -> Ranges:
    return [part for begin, end in window for part in _clipped(ranges, begin, end)]


def _parts(one: WantedQueue, ranges: Ranges, selection: Selection) -> list[WantedQueue]:
    """What is wanted of a queue, cut where the ranges of the log are cut."""
    low, high = selection.offset_range(one.topic, one.queue_id)
    low, high = max(0, low - one.first), max(0, min(len(one.begins), high - one.first))
    found = []
    for begin, end in ranges:
        first, stop = np.searchsorted(one.begins, [begin, end]).tolist()
        first, stop = max(first, low), min(stop, high)
        if first < stop:
            found.append(_part(one, first, stop))
    return found


def _part(one: WantedQueue, first: int, stop: int) -> WantedQueue:
    return WantedQueue(one.topic, one.queue_id, one.first + first, one.begins[first:stop], one.sizes[first:stop])


def _queue_splits(
    store: StoreRef, wanted: list[WantedQueue], split_bytes: int, least: int
) -> tuple[list[QueueSplit], int]:
    """Splits of about ``split_bytes``, cut at the same places of the log in every queue; and what they cost to read."""
    if not wanted:
        return [], 0
    begins: Numbers = np.concatenate([one.begins for one in wanted])
    sizes: Numbers = np.concatenate([one.sizes for one in wanted])
    order = np.argsort(begins, kind="stable")
    begins, sizes = begins[order], sizes[order]
    gaps: Numbers = begins[1:] - begins[:-1] - sizes[:-1]
    steps = np.where(gaps <= GAP_BYTES, gaps, READ_COST_BYTES)
    costs: Numbers = np.cumsum(sizes + np.concatenate([[READ_COST_BYTES], steps]))
    number = min(len(begins), max(least, 1, -(-int(costs[-1]) // split_bytes)))
    places = [0, *np.searchsorted(costs, [costs[-1] * one // number for one in range(1, number)]).tolist(), len(begins)]
    firsts = [one for first, stop in itertools.pairwise(places) for one in _limited(first, stop)]
    borders = [int(begins[first]) for first in firsts] + [int(begins[-1]) + 1]
    splits = []
    for low, high in itertools.pairwise(borders):
        splits += of_few_queues(store, [part for one in wanted for part in _cut(one, low, high)], low, high)
    return splits, int(costs[-1])


def _limited(first: int, stop: int) -> list[int]:
    """Where parts of [first, stop) begin that are of equal size and have no more messages than a task can hold."""
    number = -(-(stop - first) // MESSAGES_PER_SPLIT)
    return [first + (stop - first) * one // number for one in range(number)]


def _cut(one: WantedQueue, low: int, high: int) -> list[UnitRange]:
    first, stop = np.searchsorted(one.begins, [low, high]).tolist()
    return [UnitRange(one.topic, one.queue_id, one.first + first, one.first + stop)] if first < stop else []


# -- by the index of keys


def _by_index(request: _Request) -> _Proposal:
    """By the index where it has entries, through the log in front of, between and behind its files."""
    store, log, options, selection, window, _ = request
    found = find_places(store, log, selection, window, request.limit_bytes)
    end = readable_end(log, found.last)
    window = _clipped(window, log.min_offset, end)
    rest = _without(window, found.indexed)
    offsets = [one for one in found.offsets if any(begin <= one < high for begin, high in window)]
    pieces: list[Piece] = [Places(store, part) for part in _chunked(offsets)]
    pieces += split_ranges(store, log, rest, options.split_bytes)
    cost = found.read_bytes + len(offsets) * READ_COST_BYTES + _bytes(rest)
    trusted = _bytes(window) - _bytes(rest)
    how = f"by the index, trusted for {trusted} bytes of log, {len(offsets)} places, and {_bytes(rest)} bytes of log"
    return _Proposal(pieces, cost, how)


def _chunked(offsets: list[int]) -> list[list[int]]:
    return [offsets[first : first + 1000] for first in range(0, len(offsets), 1000)]
