"""The other views of a store: consume queue units, index entries, files, consumer progress."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from mqstore.errors import CorruptFileError
from mqstore.files.pool import FilePool
from mqstore.layout import index as layout
from mqstore.spark.arrays import ENTRY, UNIT, UnitRange
from mqstore.spark.stores import StoreRef
from mqstore.spark.table_view import TableView
from mqstore.store.columns import BATCH_ROWS, TIMESTAMP
from mqstore.store.queue_states import reader_up_to, while_queues_stay
from mqstore.store.view import StoreView

_UNITS_PER_PART: Final = 1 << 20
_QUEUES_PER_PART: Final = 1000


class QueuesPart(NamedTuple):
    """What one task reads of one store's queues."""

    store: StoreRef
    ranges: list[UnitRange]


class QueuesView(TableView):
    """Every unit in use of every consume queue, as it stands in the queue files."""

    pushable = ("topic", "queueId")
    schema = pa.schema(
        [
            ("topic", pa.string()),
            ("queueId", pa.int32()),
            ("queueOffset", pa.int64()),
            ("physicalOffset", pa.int64()),
            ("storeSize", pa.int32()),
            ("tagsCode", pa.int64()),
            ("brokerName", pa.string()),
        ]
    )

    def plan(self) -> list[QueuesPart]:
        """Ranges of queues, small ones together, long ones divided."""
        parts = []
        for store in self.stores:
            with StoreView(store.path) as view:
                ranges = [one for queue in view.queues() for one in self._ranges(store, UnitRange(*_astuple(queue)))]
            parts += [QueuesPart(store, group) for group in _grouped(ranges)]
        return parts

    def _ranges(self, store: StoreRef, whole: UnitRange) -> Iterator[UnitRange]:
        selection = self.selection(store)
        if not selection.wants_queue(whole.topic, whole.queue_id):
            return
        low, high = selection.offset_range(whole.topic, whole.queue_id)
        low, high = max(low, whole.begin), min(high, whole.end)
        for begin in range(low, high, _UNITS_PER_PART):
            yield UnitRange(whole.topic, whole.queue_id, begin, min(high, begin + _UNITS_PER_PART))

    def read(self, part: QueuesPart) -> Iterator[Any]:
        """The units of one part."""
        pool = FilePool()
        try:
            for one in part.ranges:
                read = functools.partial(self._stretches, part.store, one, pool)
                # All of a range first, as it may turn out that a rebuild has moved the queue meanwhile.
                for offset, data in while_queues_stay(part.store.paths, read):
                    yield from self._units(one, offset, data, part.store.broker_name)
        finally:
            pool.close()

    def _stretches(self, store: StoreRef, wanted: UnitRange, pool: FilePool) -> list[tuple[int, bytes]]:
        """The units of a range, piece by piece with the offset of the first."""
        queue = reader_up_to(store.paths, wanted.topic, wanted.queue_id, wanted.end, pool)
        found = []
        for offset, _, data in queue.stretches(wanted.begin, wanted.end):
            if data:
                found.append((offset, data))
            elif self.options.fail_on_data_loss:
                raise CorruptFileError(
                    "a consume queue file is missing", path=queue.directory, offset=offset,
                    hint="mqstore rebuild builds the queues anew; failOnDataLoss=false passes over it",
                )  # fmt: skip
        return found

    def _units(self, wanted: UnitRange, first: int, data: bytes, broker_name: str) -> Iterator[Any]:
        for begin in range(0, len(data), BATCH_ROWS * UNIT.itemsize):
            units = np.frombuffer(data[begin : begin + BATCH_ROWS * UNIT.itemsize], UNIT)
            rows, offset = len(units), first + begin // UNIT.itemsize
            arrays = [
                pa.repeat(pa.scalar(wanted.topic, pa.string()), rows),
                pa.repeat(pa.scalar(wanted.queue_id, pa.int32()), rows),
                pa.array(np.arange(offset, offset + rows, dtype=np.int64)),
                *(pa.array(units[name].astype(UNIT[name].newbyteorder("="))) for name in UNIT.fields or ()),
                pa.repeat(pa.scalar(broker_name, pa.string()), rows),
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=self.schema).select(self.columns)


def _astuple(queue: Any) -> tuple[str, int, int, int]:
    return queue.topic, queue.queue_id, queue.min_offset, queue.max_offset


def _grouped(ranges: Sequence[UnitRange]) -> Iterator[list[UnitRange]]:
    group: list[UnitRange] = []
    units = 0
    for one in ranges:
        if group and (units + one.end - one.begin > _UNITS_PER_PART or len(group) >= _QUEUES_PER_PART):
            yield group
            group, units = [], 0
        group.append(one)
        units += one.end - one.begin
    if group:
        yield group


class IndexPart(NamedTuple):
    """One index file."""

    store: StoreRef
    name: str


class IndexView(TableView):
    """Every entry of every index file, in the order in which they were filed."""

    schema = pa.schema(
        [
            ("file", pa.string()),
            ("entryNumber", pa.int32()),
            ("keyHash", pa.int32()),
            ("physicalOffset", pa.int64()),
            ("storeTimestamp", TIMESTAMP),
            ("previous", pa.int32()),
            ("brokerName", pa.string()),
        ]
    )

    def plan(self) -> list[IndexPart]:
        """One part a file."""
        parts = []
        for store in self.stores:
            with StoreView(store.path) as view:
                parts += [IndexPart(store, file.path.name) for file in view.index_files()]
        return parts

    def read(self, part: IndexPart) -> Iterator[Any]:
        """The entries of one file; their times are whole seconds behind the file's first."""
        with StoreView(part.store.path) as view:
            file = next((one for one in view.index_files() if one.path.name == part.name), None)
            if file is None:
                raise CorruptFileError(
                    "an index file has gone since it was planned", path=part.store.paths.index, found=part.name,
                    hint="read the view anew",
                )  # fmt: skip
            header, first = file.header, 1
            for data in file.entry_bytes(header.index_count):
                for begin in range(0, len(data), BATCH_ROWS * ENTRY.itemsize):
                    entries = np.frombuffer(data[begin : begin + BATCH_ROWS * ENTRY.itemsize], ENTRY)
                    yield self._batch(part, header.begin_timestamp_ms, first, entries)
                    first += len(entries)

    def _batch(self, part: IndexPart, begin_ms: int, first: int, entries: Any) -> Any:
        rows = len(entries)
        times_us = (begin_ms + entries["seconds"].astype(np.int64) * 1000) * 1000
        arrays = [
            pa.repeat(pa.scalar(part.name, pa.string()), rows),
            pa.array(np.arange(first, first + rows, dtype=np.int32)),
            pa.array(entries["keyHash"].astype(np.int32)),
            pa.array(entries["physicalOffset"].astype(np.int64)),
            pa.array(times_us).cast(TIMESTAMP),
            pa.array(entries["previous"].astype(np.int32)),
            pa.repeat(pa.scalar(part.store.broker_name, pa.string()), rows),
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema).select(self.columns)


class FilesView(TableView):
    """Every file of log, queues and index: the range it is for, and how much of it is in use."""

    schema = pa.schema(
        [
            ("kind", pa.string()),
            ("topic", pa.string()),
            ("queueId", pa.int32()),
            ("path", pa.string()),
            ("startOffset", pa.int64()),
            ("usedBytes", pa.int64()),
            ("sizeBytes", pa.int64()),
            ("brokerName", pa.string()),
        ]
    )

    def read(self, part: StoreRef) -> Iterator[Any]:
        """The files of one store; the start of an index file is the physical offset of its first entry."""
        rows: list[tuple[Any, ...]] = []
        with StoreView(part.path) as view:
            log_end = view.log_end
            for entry in view.log.inventory.entries:
                used = max(0, min(entry.length, log_end - entry.start))
                rows.append(("commitlog", None, None, str(entry.path), entry.start, used, entry.length))
            for queue in view.queues():
                end = queue.max_offset * UNIT.itemsize
                inventory = view.queue_inventory(queue.topic, queue.queue_id)
                for entry in inventory.entries if inventory is not None else ():
                    used = max(0, min(entry.length, end - entry.start))
                    key = (queue.topic, queue.queue_id)
                    rows.append(("consumequeue", *key, str(entry.path), entry.start, used, entry.length))
            for file in view.index_files():
                header = file.header
                used = layout.entry_position(max(1, header.index_count), file.geometry.hash_slots)
                rows.append(
                    ("index", None, None, str(file.path), header.begin_physical_offset, used, file.length)
                )  # fmt: skip
        yield from self.batches([(*row, part.broker_name) for row in rows])


class ProgressView(TableView):
    """How far each consumer group has come in each queue."""

    pushable = ("topic", "queueId")
    schema = pa.schema(
        [
            ("group", pa.string()),
            ("topic", pa.string()),
            ("queueId", pa.int32()),
            ("consumerOffset", pa.int64()),
            ("maxOffset", pa.int64()),
            ("lag", pa.int64()),
            ("brokerName", pa.string()),
        ]
    )

    def read(self, part: StoreRef) -> Iterator[Any]:
        """The groups of one store."""
        wants = self.selection(part).wants_queue
        with StoreView(part.path) as view:
            yield from self.batches(
                [
                    (one.group, one.topic, one.queue_id, one.consumer_offset, one.max_offset, one.lag, part.broker_name)
                    for one in view.progress()
                    if wants(one.topic, one.queue_id)
                ]
            )
