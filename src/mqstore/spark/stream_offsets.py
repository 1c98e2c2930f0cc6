"""Where the batches of a ``rocketmq`` stream begin and end in each queue (docs/spark.md, "Streams")."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

import numpy as np

from mqstore.errors import UsageError
from mqstore.spark.arrays import UNIT
from mqstore.spark.option_values import EARLIEST
from mqstore.spark.options import ReadOptions
from mqstore.spark.queue_ranges import Offsets, Queue, Range
from mqstore.spark.queue_splits import estimated_bytes
from mqstore.spark.stream_ends import Losses, lost, noted_offset, noted_offsets, reachable, share_out
from mqstore.store.settings import Settings

_log = logging.getLogger(__name__)


JsonOffsets = dict[str, dict[str, dict[str, int]]]
"""By topic, broker and number of the queue: ``{"orders": {"broker-a": {"0": 23}}}``."""


def starting_offsets(found: Mapping[Queue, Range], options: ReadOptions) -> Offsets:
    """Where a new query begins.

    Raises:
        UsageError: no message of a queue is as new as the starting timestamp, unless the options say what then.
        CorruptFileError: an offset asked for is not there, under ``failOnDataLoss``.
    """
    offsets = {queue: _start(queue, one, options) for queue, one in found.items()}
    _log.info("a new stream begins at %s", to_json(offsets))
    return offsets


def _start(queue: Queue, one: Range, options: ReadOptions) -> int:
    if options.starting_timestamp_ms is not None:
        offset = one.offset_at(options.starting_timestamp_ms)
        if offset == one.end and not options.latest_if_no_match:
            raise UsageError(
                f"no message of {queue} is as new as the starting timestamp", found=options.starting_timestamp_ms,
                hint="startingOffsetsByTimestampStrategy=latest begins at the end of such queues",
            )  # fmt: skip
        return offset
    named = options.starting.of(queue.broker_name)
    if options.starting_group is not None:
        groups = Settings(one.store.paths.config).consumer_offsets
        offsets = groups.get((queue.topic, options.starting_group), {})
        named = {(queue.topic, queue_id): offset for queue_id, offset in offsets.items()} | named
    wanted = named.get((queue.topic, queue.queue_id), options.starting.default)
    if wanted < 0:
        return one.begin if wanted == EARLIEST else one.end
    if not one.begin <= wanted <= one.end:
        what = f"offset {wanted} of {queue} is not there"
        lost(what, f"{one.begin} to {one.end}", options.fail_on_data_loss)
    return max(one.begin, min(wanted, one.end))


def latest_offsets(found: Mapping[Queue, Range]) -> Offsets:
    """Where the queues end now."""
    return {queue: one.end for queue, one in found.items()}


def batch_start(
    found: Mapping[Queue, Range],
    start: Offsets,
    end: Offsets,
    options: ReadOptions,
    leaves_out: Callable[[Queue], bool] = lambda _: False,
) -> Offsets:
    """Where the queues of ``end`` begin in a batch that begins at ``start``: new ones at their first message.

    Raises:
        CorruptFileError: messages in between are gone, under ``failOnDataLoss``; else, and of queues that the options
            leave out, they are counted in the log.
    """
    begins: Offsets = {}
    total = 0
    for queue in end:
        first = start.get(queue, 0)
        fails = options.fail_on_data_loss and not leaves_out(queue)
        if queue not in found:
            if first < end[queue]:
                what = f"{queue} is gone with messages {first} to {end[queue] - 1}"
                lost(what, str(queue), fails)
                total += end[queue] - first
            continue
        begins[queue] = min(max(first, found[queue].begin), end[queue])
        if first < begins[queue]:
            gone = begins[queue] - first
            lost(
                f"messages {first} to {begins[queue] - 1} of {queue} are gone, {gone} in all",
                f"offset {first}",
                fails,
            )
            total += gone
    if total:
        _log.warning("%d messages of this batch were lost before they were read", total)
    return begins


def next_offsets(
    found: Mapping[Queue, Range],
    start: Offsets,
    options: ReadOptions,
    ceiling: Offsets | None,
    losses: Losses,
    limited: bool = True,
) -> Offsets:
    """Where the batch ends that begins at ``start``.

    Args:
        found: what there is.
        start: where the last batch ended.
        options: the limits.
        ceiling: an end that was fixed before, if the stream ends there.
        losses: what is to be done about lost data.
        limited: False to take all that there is.
    """
    losses.look_again()
    ends = reachable(latest_offsets(found), start, ceiling, losses.report, str)
    here = {queue: end for queue, end in ends.items() if queue in found}
    begins = {queue: min(max(start.get(queue, 0), found[queue].begin), end) for queue, end in here.items()}
    turn = sum(begins.values())
    if limited and options.max_offsets_per_trigger is not None:
        waiting = {queue: end - begins[queue] for queue, end in here.items()}
        shares = share_out(waiting, options.max_offsets_per_trigger, turn)
        here = {queue: begins[queue] + shares[queue] for queue in here}
    if limited and options.max_bytes_per_trigger is not None:
        here = _within_bytes(found, begins, here, options.max_bytes_per_trigger, turn)
    # An end never lies in front of where the last batch ended, whatever has gone since.
    return {queue: max(end, start.get(queue, 0)) for queue, end in (ends | here).items()}


def waiting_offsets(start: Offsets, ends: Offsets) -> int:
    """How many messages lie between the two."""
    return sum(max(0, end - start.get(queue, 0)) for queue, end in ends.items())


def _within_bytes(found: Mapping[Queue, Range], begins: Offsets, ends: Offsets, limit: int, turn: int) -> Offsets:
    """Ends so that the messages up to there have ``limit`` bytes at most, or are one message.

    Half of the limit is for the first message of each queue in turn, so that none waits for ever; what is left is
    shared in proportion to what waits.
    """
    waiting = {queue: estimated_bytes(found[queue].reader, begins[queue], end) for queue, end in ends.items()}
    waiting = {queue: size for queue, size in waiting.items() if size}
    first = turn % len(waiting) if waiting else 0
    places = dict(begins)
    used = 0
    for queue in [*list(waiting)[first:], *list(waiting)[:first]]:
        unit = found[queue].reader.unit(places[queue])
        size = 0 if unit is None else max(0, unit.size_bytes)
        if not used or used + size <= limit // 2:
            used += size
            places[queue] += 1
    room, total = max(0, limit - used), sum(waiting.values())
    for queue, size in waiting.items():
        places[queue] = _fitting(found[queue], places[queue], ends[queue], size * room // total)
    return places | {queue: end for queue, end in ends.items() if queue not in waiting}


def _fitting(one: Range, begin: int, end: int, limit: int) -> int:
    """Up to where the messages from ``begin`` on have ``limit`` bytes at most; those without units have none."""
    used = 0
    for first, _, data in one.reader.stretches(begin, end):
        if not data:
            continue
        sums = np.cumsum(np.frombuffer(data, UNIT)["storeSize"].astype(np.int64)) + used
        count = int(np.searchsorted(sums, limit, side="right"))
        if count < len(sums):
            return first + count
        used = int(sums[-1])
    return end


def to_json(offsets: Offsets) -> JsonOffsets:
    """Offsets as they are noted in a checkpoint."""
    found: JsonOffsets = {}
    for (topic, broker, queue_id), offset in sorted(offsets.items()):
        found.setdefault(topic, {}).setdefault(broker, {})[str(queue_id)] = offset
    return found


def from_json(offsets: Mapping[str, Mapping[str, Mapping[str, int]]]) -> Offsets:
    """The other way round; raises CorruptFileError for what is no such note."""
    with noted_offsets(offsets, '{"orders": {"broker-a": {"0": 23}}}'):
        return {
            Queue(topic, broker, int(queue_id)): noted_offset(offset)
            for topic, brokers in offsets.items()
            for broker, queues in brokers.items()
            for queue_id, offset in queues.items()
        }
