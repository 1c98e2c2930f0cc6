"""The stream of ``rocketmq``: every message of the queues, in batches between two sets of queue offsets."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from mqstore.spark import stream_offsets
from mqstore.spark.messages import select_batches
from mqstore.spark.named import check_names
from mqstore.spark.options import OnCorruptRecord, ReadOptions
from mqstore.spark.queue_ranges import KnownQueues, Offsets, Queue, Range
from mqstore.spark.queue_reading import read_queue_split
from mqstore.spark.queue_splits import QueueSplit, plan_queue_splits
from mqstore.spark.selection import Selection
from mqstore.spark.splits import SplitPolicy
from mqstore.spark.stream_ends import Losses
from mqstore.spark.stream_offsets import JsonOffsets, from_json, to_json
from mqstore.spark.telling import telling
from mqstore.spark.worker import rows_of


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans on the driver by the queues' units, and reads in the tasks; offsets are kept in the query's checkpoint."""

    def __init__(self, options: ReadOptions, columns: Sequence[str]) -> None:
        self.options = options
        self.columns = list(columns)
        self._known: KnownQueues | None = None
        self._ceiling: Offsets | None = None
        self._last_batch_s = float("-inf")
        self._losses = Losses(options.fail_on_data_loss)
        self._joined: set[Queue] = set()
        self._discovered_s = float("-inf")

    @property
    def _queues(self) -> KnownQueues:
        # Made where it is used: the reader itself may be sent elsewhere.
        if self._known is None:
            self._known = KnownQueues(self.options)
        return self._known

    def initialOffset(self) -> JsonOffsets:  # noqa: N802
        """Where a new query begins."""
        with telling():
            check_names(self._queues.stores, self.options, streaming=True)
            return to_json(stream_offsets.starting_offsets(self._queues.ranges(), self.options))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """One of the limits, so that Spark asks for limited batches; :meth:`latestOffset` keeps them all."""
        options = self.options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end: what comes later is for another run."""
        with telling():
            self._ceiling = stream_offsets.latest_offsets(self._queues.ranges())

    def latestOffset(self, start: JsonOffsets, limit: ReadLimit) -> JsonOffsets:  # noqa: N802
        """Where the batch ends that begins at ``start``; ``start`` while it is worth waiting for more."""
        with telling():
            begins = from_json(start)
            limited = not isinstance(limit, ReadAllAvailable)
            found = self._discovered(begins)
            # Not asked for any more, and not lost: should they be asked for again, the stream goes on where it was.
            left_out = {queue: offset for queue, offset in begins.items() if self._queues.leaves_out(queue)}
            asked = {queue: offset for queue, offset in begins.items() if queue not in left_out}
            ends = left_out | stream_offsets.next_offsets(
                found, asked, self.options, self._ceiling, self._losses, limited
            )
            if limited and self._waits(stream_offsets.waiting_offsets(begins, ends)):
                return start
            return to_json(ends)

    def _discovered(self, begins: Offsets) -> dict[Queue, Range]:
        """The queues that there are, new ones only as often as ``discoveryInterval`` says; those of ``begins`` are not
        new."""
        found = self._queues.ranges()
        interval_ms = self.options.discovery_interval_ms
        if interval_ms is None:
            return found
        self._joined.update(begins)
        now_s = time.monotonic()
        if interval_ms and now_s - self._discovered_s >= interval_ms / 1000:
            self._discovered_s = now_s
            self._joined.update(found)
        return {queue: one for queue, one in found.items() if queue in self._joined}

    def _waits(self, count: int) -> bool:
        """Whether ``minOffsetsPerTrigger`` holds a batch of so many messages back; what ends now is not held back."""
        least = self.options.min_offsets_per_trigger
        now_s = time.monotonic()
        if (
            least is not None
            and self._ceiling is None
            and count < least
            and now_s - self._last_batch_s < self.options.max_trigger_delay_ms / 1000
        ):
            return True
        self._last_batch_s = now_s
        return False

    def reportLatestOffset(self) -> JsonOffsets:  # noqa: N802
        """Where the queues end now, for the query's progress."""
        with telling():
            return to_json(stream_offsets.latest_offsets(self._discovered({})))

    def partitions(self, start: JsonOffsets, end: JsonOffsets) -> Sequence[InputPartition]:
        """The splits of one batch."""
        with telling():
            begins, ends = from_json(start), from_json(end)
            # A batch that is done again has the same rows, also of queues that are asked for no more.
            noted = {queue for queue, offset in ends.items() if begins.get(queue, 0) < offset}
            found = self._queues.ranges(noted)
            begins = stream_offsets.batch_start(found, begins, ends, self.options, self._queues.leaves_out)
            others = {queue: offset for queue, offset in ends.items() if self._queues.leaves_out(queue)}
            asked = {queue: offset for queue, offset in ends.items() if queue not in others}
            size, least = self.options.split_bytes, self.options.min_partitions
            splits = [
                split for part in (asked, others) for split in plan_queue_splits(found, begins, part, size, least)
            ]
            return [InputPartition(split) for split in splits]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The messages of one split as Arrow record batches."""
        return rows_of(partition, self._rows)

    def _rows(self, split: QueueSplit) -> Iterator[Any]:
        selection = Selection(where=self.options.where)
        for chunk in read_queue_split(split, self._policy(split)):
            yield from select_batches(chunk, self.columns, selection, split.store.broker_name)

    def _policy(self, split: QueueSplit) -> SplitPolicy:
        """What is wrong with queues that are asked for no more is no error; a split has only such or none."""
        policy, one = SplitPolicy.of(self.options), split.ranges[0]
        if Selection.of(self.options, split.store.broker_name).wants_queue(one.topic, one.queue_id):
            return policy
        skipping = policy.on_corrupt_record is OnCorruptRecord.FAIL
        on_corrupt_record = OnCorruptRecord.SKIP if skipping else policy.on_corrupt_record
        return policy._replace(fail_on_data_loss=False, on_corrupt_record=on_corrupt_record)

    def stop(self) -> None:
        """Close the files."""
        if self._known is not None:
            self._known.close()
            self._known = None
