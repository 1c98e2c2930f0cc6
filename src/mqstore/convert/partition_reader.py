"""Reading one partition as messages, a bounded amount at a time, with a note of all that is left out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from mqstore.convert.mapping import Mapped, message_of
from mqstore.convert.options import Aborted, ConvertOptions
from mqstore.convert.report import Loss, PartitionReport
from mqstore.errors import CorruptBatchError
from mqstore.kafka.damage import BatchDamage, raise_at_damage
from mqstore.kafka.lookup import BatchPlace
from mqstore.kafka.partition_view import PartitionView
from mqstore.kafka.records import records_of
from mqstore.kafka.transactions import CommittedFilter
from mqstore.layout.constants import LONG_MAX
from mqstore.layout.kafka.record import Record
from mqstore.store.dispatch import MAX_QUEUE_OFFSET

_OVERHEAD_BYTES: Final = 1024
"""What a message takes in memory besides its bytes."""


class Reach(NamedTuple):
    """A part of a partition: offsets [start, end), and the queue offset of its first message, None for its own."""

    start: int
    end: int
    queue_offset: int | None = None

    @classmethod
    def whole(cls, partition: PartitionView) -> Reach:
        """All that is in the partition now; its queue begins at 0 where none can have such offsets."""
        end = partition.log_end_offset
        return cls(partition.log_start_offset, end, 0 if end > MAX_QUEUE_OFFSET else None)


class PartitionReader:
    """The messages of one partition, in order, a budget of bytes at a time; what is left out is noted."""

    def __init__(
        self,
        partition: PartitionView,
        report: PartitionReport,
        options: ConvertOptions,
        budget_bytes: int,
        reach: Reach | None = None,
    ) -> None:
        self._partition = partition
        self._report = report
        self._options = options
        self._budget = budget_bytes
        self._start, self._end, self._queue_offset = reach or Reach.whole(partition)
        self._hidden = CommittedFilter(partition.aborted_transactions(self._start, self._end))
        self._undecided = {
            entry.producer_id: entry.current_txn_first_offset
            for entry in partition.producers()
            if entry.current_txn_first_offset >= 0
        }
        self._begins_at_0 = self._queue_offset == 0 < self._start
        self._last_offset = self._batch_end = self._start - 1
        self._committed = sorted(report.queue_offsets, reverse=True)
        self._original = None if report.target_topic == partition.topic else partition.topic

    def __iter__(self) -> Iterator[tuple[Mapped, int]]:
        for _, messages in self.groups():
            messages.reverse()
            while messages:  # those that were taken must not lie in memory beside the next group
                yield messages.pop()

    def groups(self) -> Iterator[tuple[Reach, list[tuple[Mapped, int]]]]:
        """The messages in groups as large as the budget, each with the part of the partition that it comes from."""
        offset = self._start
        while offset < self._end:
            begin, queue_offset = offset, self._queue_offset
            messages, offset = self._take(begin)
            yield Reach(begin, offset, queue_offset), messages
        self._note_committed(LONG_MAX, self._queue_offset or 0)
        self._report.lose(Loss.OFFSET_HOLES, self._end - 1 - self._last_offset)
        self._report.lose(Loss.LOG_STARTS, self._start > 0 and (self._queue_offset is None or self._begins_at_0))

    def _take(self, offset: int) -> tuple[list[tuple[Mapped, int]], int]:
        """Messages from ``offset`` on, at least one if there is any, and the offset to go on from.

        What counts is what they take in memory: a batch that is larger than the budget is inflated again for each part.
        """
        taken: list[tuple[Mapped, int]] = []
        size_bytes = 0
        on_damage = self._pass_over if self._options.skip_damage else raise_at_damage
        for place in self._partition.batches(offset, self._end, on_damage=on_damage):
            size_bytes += _OVERHEAD_BYTES
            for record, aborted in self._records(place, offset):
                taken.append(self._message(record, aborted))
                size_bytes += taken[-1][0].size_bytes + _OVERHEAD_BYTES
                if size_bytes >= self._budget:
                    return taken, record.offset + 1
            if size_bytes >= self._budget:
                return taken, place.header.last_offset + 1
        return taken, self._end

    def _pass_over(self, damage: BatchDamage) -> bool:
        self._report.lose(Loss.DAMAGE)
        return True

    def _records(self, place: BatchPlace, start: int) -> Iterator[tuple[Record, bool]]:
        """The records of a batch from offset ``start`` on, and whether they were aborted."""
        header = place.header
        self._report.lose(Loss.BATCHES, header.last_offset > self._batch_end)  # it may come in several parts
        self._batch_end = header.last_offset
        if header.is_control:
            self._report.lose(Loss.CONTROL_RECORDS, header.record_count)
            return
        aborted = self._hidden.hides(header)
        if aborted and self._options.aborted is Aborted.OMIT:
            self._report.lose(Loss.ABORTED_RECORDS, header.record_count)
            return
        first_open = self._undecided.get(header.producer_id)
        if header.is_transactional and first_open is not None and header.base_offset >= first_open:
            self._report.lose(Loss.UNDECIDED_RECORDS, header.record_count)
            return
        try:
            records = records_of(place.segment, place.position, header, place.buffer)
        except CorruptBatchError:
            if not self._options.skip_damage:
                raise
            self._report.lose(Loss.DAMAGE)
            return
        for record in records:
            if start <= record.offset < self._end:
                self._report.lose(Loss.PRODUCER_STATE, header.producer_id >= 0)
                yield record, aborted

    def _message(self, record: Record, rolled_back: bool) -> tuple[Mapped, int]:
        queue_offset = record.offset if self._queue_offset is None else self._queue_offset
        message = message_of(
            record,
            self._report.target_topic,
            self._partition.partition,
            queue_offset,
            original_topic=self._original,
            rolled_back=rolled_back,
        )
        self._report.lose(Loss.ENVELOPES, message.enveloped)
        self._report.lose(Loss.MISFITS, message.misfit)
        self._report.lose(Loss.FORMER_TOPICS, message.former_topic not in (None, self._report.target_topic))
        self._report.lose(Loss.OFFSET_HOLES, record.offset - self._last_offset - 1)
        self._last_offset = record.offset
        if message.queued:
            self._note_committed(record.offset, queue_offset)
            self._queue_offset = queue_offset + 1
        return message, queue_offset

    def _note_committed(self, offset: int, queue_offset: int) -> None:
        """A group that is to go on at or before ``offset``, behind the message before, goes on at ``queue_offset``."""
        while self._committed and self._committed[-1] <= offset:
            self._report.queue_offsets[self._committed.pop()] = queue_offset
