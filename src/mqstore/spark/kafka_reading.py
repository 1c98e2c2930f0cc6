"""Reading one split of a Kafka log in a task: from batches to Arrow, and past what the reader is not shown."""

from __future__ import annotations

import itertools
import logging
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from mqstore import errors, kernels
from mqstore.files.pool import FilePool
from mqstore.kafka.damage import BatchDamage
from mqstore.kafka.order import OUT_OF_ORDER, OffsetOrder
from mqstore.kafka.records import records_of
from mqstore.kafka.segment import Chunk, Segment
from mqstore.kafka.transactions import CommittedFilter
from mqstore.kernels.kafka_api import RecordStop
from mqstore.layout.constants import LONG_MAX
from mqstore.layout.kafka.codec import inflate
from mqstore.layout.kafka.constants import BATCH_HEADER_SIZE, CODEC_MASK, CONTROL_BIT, MAGIC_V2, Codec
from mqstore.layout.kafka.header import BatchHeader, decode_header
from mqstore.layout.kafka.txn_index import AbortedTransaction
from mqstore.spark.kafka_columns import RowMaker
from mqstore.spark.kafka_options import KafkaReadOptions
from mqstore.spark.kafka_splits import KafkaSplit
from mqstore.spark.option_values import HINT_LOST

_log = logging.getLogger(__name__)

_INFLATED_BYTES: Final = 8 << 20
"""How much is inflated before it is made rows."""


def read_split(split: KafkaSplit, options: KafkaReadOptions, columns: Sequence[str]) -> Iterator[Any]:
    """The records of one split as record batches of the columns asked for.

    Raises:
        CorruptBatchError: damage, unless the options say to pass over it.
        CorruptFileError: the segment is gone, under ``failOnDataLoss``.
        UsageError: a codec's library is missing.
    """
    pool = FilePool()
    try:
        segment = Segment(Path(split.directory), split.base_offset, pool, limit_bytes=split.end)
        if _is_there(segment, split, options):
            yield from _SplitReader(segment, split, options, columns).batches()
    finally:
        pool.close()


def _is_there(segment: Segment, split: KafkaSplit, options: KafkaReadOptions) -> bool:
    """Whether the split's bytes are; retention or compaction may have come between plan and task."""
    if segment.identity == split.identity:
        return True
    if segment.identity >= 0:
        raise errors.CorruptFileError(
            "a segment was compacted before it was read: its batches are no longer where the plan says",
            path=segment.path(),
            hint="run the query again; a stream goes on from its checkpoint",
        )
    if options.fail_on_data_loss:
        raise errors.CorruptFileError(
            "data may have been lost: a segment was removed before it was read", path=segment.path(), hint=HINT_LOST
        )
    _log.warning("passing over a segment that was removed before it was read: %s", segment.path())
    return False


class _SplitReader:
    """Goes through the batches of a split."""

    def __init__(self, segment: Segment, split: KafkaSplit, options: KafkaReadOptions, columns: Sequence[str]) -> None:
        self._segment = segment
        self._split = split
        self._skips_damage = options.skip_corrupt
        self._rows = RowMaker(split.topic, split.partition, split.first_offset, split.end_offset, columns)
        self._hidden = CommittedFilter(AbortedTransaction(*one, last_stable_offset=LONG_MAX) for one in split.aborted)

    def batches(self) -> Iterator[Any]:
        """The record batches, in the order of the offsets."""
        order: OffsetOrder[int] = OffsetOrder(self._split.base_offset)
        for chunk in self._segment.chunks(self._split.context, on_damage=self._on_damage):
            odd, borders = self._judge(chunk, order)
            columns = chunk.columns
            row = bisect_left(columns.position, self._split.begin - chunk.position, 0, columns.count)
            while row < columns.count:
                if row in odd or not self._wants(chunk, row):
                    row += 1
                    continue
                stop = row + 1
                while stop < columns.count and stop not in borders and self._wants(chunk, stop):
                    stop += 1
                yield from self._run(chunk, row, stop)
                row = stop

    def _judge(self, chunk: Chunk, order: OffsetOrder[int]) -> tuple[set[int], set[int]]:
        """Tell of batches whose offset is wrong.

        Returns the rows of those that are left out, and all at which offsets do not go on ascending.
        """
        columns = chunk.columns
        odd, borders = set(), set()
        for row in range(columns.count):
            position = chunk.position + columns.position[row]
            last = columns.last_offset[row]
            wrong = position
            if last < self._split.ceiling:
                found = order.odd_one(position, columns.base_offset[row], last)
                if found is None:
                    continue
                wrong = found
            borders.add(row)
            if wrong == position:
                odd.add(row)
            self._on_damage(BatchDamage(self._segment.path(), wrong, OUT_OF_ORDER))
        return odd, borders

    def _wants(self, chunk: Chunk, row: int) -> bool:
        """Whether the reader is shown the batch; asked once for each, in order."""
        columns = chunk.columns
        if columns.magic[row] < MAGIC_V2:
            return True
        if columns.attributes[row] & CONTROL_BIT:
            return False
        return not (self._split.aborted and self._hidden.hides(_header(chunk, row)))

    def _run(self, chunk: Chunk, row: int, stop: int) -> Iterator[Any]:
        """The records of consecutive batches; compressed ones are inflated first."""
        while row < stop:
            records = kernels.kafka_batch_records(chunk.buffer, chunk.columns, row, stop)
            yield from self._rows.from_columns(chunk.buffer, chunk.columns, records)
            row = records.next_row
            if records.stop is RecordStop.DAMAGED:
                self._note_damage(chunk, row, str(records.damage))
                row += 1
            elif records.stop is RecordStop.PACKED and chunk.columns.magic[row] < MAGIC_V2:
                yield from self._messages(chunk, row)
                row += 1
            elif records.stop is RecordStop.PACKED:
                bodies = self._bodies(chunk, row, stop)
                yield from self._inflated(chunk, row, bodies)
                row += max(1, len(bodies))

    def _messages(self, chunk: Chunk, row: int) -> Iterator[Any]:
        """The messages inside a compressed one of an old format."""
        header = _header(chunk, row)
        try:
            found = records_of(self._segment, chunk.position + header.position, header, chunk.buffer)
        except errors.CorruptBatchError as error:
            self._note_damage(chunk, row, str(error.found or error.message))
            return
        yield from self._rows.from_records(found)

    def _bodies(self, chunk: Chunk, row: int, stop: int) -> list[bytes]:
        """The records of compressed batches from ``row`` on, inflated; none if the first is damaged."""
        bodies: list[bytes] = []
        size_bytes = 0
        columns = chunk.columns
        while row < stop and columns.magic[row] == MAGIC_V2 and columns.attributes[row] & CODEC_MASK:
            begin = columns.position[row] + BATCH_HEADER_SIZE
            data = memoryview(chunk.buffer)[begin : columns.position[row] + columns.size[row]]
            try:
                codec = Codec(columns.attributes[row] & CODEC_MASK)
                body = inflate(codec, data, position=columns.position[row], magic=MAGIC_V2)
            except (errors.CorruptBatchError, ValueError) as error:
                if not bodies:
                    self._note_damage(chunk, row, str(getattr(error, "found", error)))
                break
            bodies.append(body)
            size_bytes += len(body)
            row += 1
            if size_bytes >= _INFLATED_BYTES:
                break
        return bodies

    def _inflated(self, chunk: Chunk, row: int, bodies: list[bytes]) -> Iterator[Any]:
        buffer = b"".join(bodies)
        places = [0, *itertools.accumulate(map(len, bodies))]
        stop = row + len(bodies)
        while row < stop:
            rest = places[len(places) - 1 - (stop - row) :]
            records = kernels.kafka_batch_records(buffer, chunk.columns, row, stop, bodies=rest)
            yield from self._rows.from_columns(buffer, chunk.columns, records)
            row = records.next_row
            if records.stop is RecordStop.DAMAGED:
                self._note_damage(chunk, row, str(records.damage))
                row += 1

    def _note_damage(self, chunk: Chunk, row: int, reason: str) -> None:
        position = chunk.position + chunk.columns.position[row]
        self._on_damage(BatchDamage(self._segment.path(), position, reason))

    def _on_damage(self, damage: BatchDamage) -> bool:
        """Damage ends the query, or is passed over with a warning."""
        if not self._skips_damage:
            error = damage.to_error()
            error.hint = "onCorruptBatch=skip passes over damage"
            raise error
        _log.warning("passing over damage at %d of %s: %s", damage.position, damage.path, damage.reason)
        return True


def _header(chunk: Chunk, row: int) -> BatchHeader:
    return decode_header(chunk.buffer, chunk.columns.position[row])
