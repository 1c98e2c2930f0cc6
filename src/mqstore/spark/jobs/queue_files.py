"""Queue units of splits, each written to its final place by whichever task finds it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from mqstore import errors
from mqstore.files import durable
from mqstore.files.pool import FilePool
from mqstore.kernels.api import QueueRun
from mqstore.layout.constants import QUEUE_UNIT_SIZE
from mqstore.layout.delay import parse_delay_levels
from mqstore.layout.queue_unit import PRE_BLANK, QueueKey, encode_unit
from mqstore.layout.text import decode_text
from mqstore.spark.jobs.key_files import KeyWriter
from mqstore.spark.splits import Split, SplitPolicy, open_log, read_split
from mqstore.store.consume_queue import ConsumeQueue
from mqstore.store.dispatch import MAX_QUEUE_OFFSET, delay_array
from mqstore.store.log_reader import Chunk
from mqstore.store.multi_dispatch import MultiDispatch, queue_runs
from mqstore.store.paths import StorePaths
from mqstore.store.queue_table import QueueTable

_STRICT: Final = SplitPolicy(hint_gone="another program removes files of the log, or cuts them: try again")
# What is read is gone through at once and dropped: this much stays near its core, and memory is what cores share.
_CHUNK_BYTES: Final = 2 << 20
QueueRanges = dict[QueueKey, tuple[int, int]]


class Kinds(NamedTuple):
    """What decides about the units of records that are not plain: the delay levels, and whether some go further."""

    delay_levels: str
    multi: MultiDispatch


class QueueWork(NamedTuple):
    """What tasks are told of the store whose queues they make.

    Attributes:
        root: where the queues go. The job removes it when it ends or fails; a task that finds it gone gives up, as
            nobody would remove what it writes from then on.
        file_size: bytes of a queue file.
        kinds: what decides about units.
        keys: where keys go on their way to the index; None when there is to be none.
    """

    root: Path
    file_size: int
    kinds: Kinds
    keys: Path | None


@dataclass
class SplitUnits:
    """What one split holds. Queue ranges are half-open; keys are those of the index.

    Attributes:
        records, units, keys: how many there are.
        keys_path: where the keys were written, None when they were only counted or there are none.
        first_timestamp_ms: of the first record.
        end_offset: just past the last record.
        last_record_offset, last_timestamp_ms: of the last record.
        ranges: the queue offsets of each queue.
        irregular: whether a queue's offsets do not follow each other.
        left_out: messages that are in no queue, as the queues or places that their records claim cannot be.
    """

    records: int = 0
    units: int = 0
    keys: int = 0
    keys_path: Path | None = None
    first_timestamp_ms: int = 0
    end_offset: int = 0
    last_record_offset: int = -1
    last_timestamp_ms: int = 0
    ranges: QueueRanges = field(default_factory=dict)
    irregular: bool = False
    left_out: int = 0

    def note_chunk(self, chunk: Chunk) -> None:
        """Count the records of a chunk."""
        times_ms = np.asarray(chunk.columns.store_timestamp_ms)
        if not self.records:
            self.first_timestamp_ms = int(times_ms[0])
        self.records += chunk.columns.count
        self.end_offset = chunk.end_offset
        self.last_record_offset = chunk.last_record_offset
        self.last_timestamp_ms = max(self.last_timestamp_ms, int(times_ms.max()))

    def note_run(self, key: QueueKey, run: QueueRun) -> None:
        """Count the units of a run and extend the range of its queue."""
        count = len(run.units) // QUEUE_UNIT_SIZE
        self.units += count
        begin, end = self.ranges.get(key, (run.first_queue_offset, run.first_queue_offset))
        self.irregular |= run.first_queue_offset != end
        self.ranges[key] = (begin, run.first_queue_offset + count)


def runs_of(
    split: Split,
    kinds: Kinds,
    found: SplitUnits,
    policy: SplitPolicy = _STRICT,
    on_chunk: Callable[[Chunk], None] | None = None,
) -> Iterator[tuple[QueueKey, QueueRun]]:
    """The queue runs of a split in log order, counted in ``found``; those that can be in no queue are left out.

    ``on_chunk`` gets each chunk of the log in front of its runs; its keys are counted there or nowhere.
    """
    delay_ms = delay_array(parse_delay_levels(kinds.delay_levels))
    log = open_log(split.store)
    try:
        for chunk in read_split(log, split, policy, _CHUNK_BYTES):
            found.note_chunk(chunk)
            if on_chunk is not None:
                on_chunk(chunk)
            for run, _ in queue_runs(chunk, delay_ms, kinds.multi):
                if 0 <= run.first_queue_offset <= MAX_QUEUE_OFFSET:
                    yield (decode_text(run.topic), run.queue_id), run
                else:
                    found.left_out += len(run.units) // QUEUE_UNIT_SIZE
    finally:
        log.close()


def build_units(work: QueueWork, split: Split) -> SplitUnits:
    """Runs in a task: write the units of a split to the queue files, and put its keys aside; what it holds."""
    found = SplitUnits()
    pool = FilePool(writable=True)
    table = QueueTable(StorePaths(work.root), pool, work.file_size)
    keys = None if work.keys is None else KeyWriter(work.keys)

    def on_chunk(chunk: Chunk) -> None:
        if not work.root.is_dir():  # the job has failed, and nobody would remove what is written from now on
            raise errors.StoreIOError("the job that wanted this is over", path=work.root)
        if keys is not None:
            keys.put(chunk)

    try:
        for key, run in runs_of(split, work.kinds, found, on_chunk=on_chunk):
            queue = table.get_or_create(*key)
            if queue is None:
                found.left_out += len(run.units) // QUEUE_UNIT_SIZE
                continue
            found.note_run(key, run)
            # The units in front of these are other tasks' business, no gap.
            queue.min_offset = queue.max_offset = run.first_queue_offset
            queue.put(run.first_queue_offset, run.units)
        for queue in table.all():
            queue.sync()
        if keys is not None:
            found.keys, found.keys_path = keys.count, keys.path
    finally:
        pool.close()
        if keys is not None:
            keys.close()
    return found


class JoinedRanges:
    """The range of every queue over all splits, which are taken in log order.

    Attributes:
        ranges: by queue; as far as there is no gap.
        irregular: whether a queue has a gap, or an offset twice.
    """

    def __init__(self) -> None:
        self.ranges: QueueRanges = {}
        self.irregular = False

    def take(self, found: SplitUnits) -> None:
        """Add the ranges of the next split, and empty them there.

        The driver keeps what was found of each split until the end: with its ranges that would be an entry for every
        queue of every split.
        """
        self.irregular |= found.irregular
        for key, (begin, end) in found.ranges.items():
            first, last = self.ranges.get(key, (begin, begin))
            self.irregular |= begin != last
            self.ranges[key] = (first, end)
        found.ranges = {}


def sync_names(paths: StorePaths, ranges: QueueRanges) -> None:
    """Make the names of all queue files durable: of an attempt that died, nobody else knows that it made some."""
    directories = {paths.queue(*key) for key in ranges}
    directories |= {one.parent for one in directories}
    for directory in (*sorted(directories, reverse=True), paths.consume_queue, paths.root):
        durable.sync_directory(directory)


def fill_fronts(paths: StorePaths, file_size: int, ranges: QueueRanges) -> None:
    """Put fillers in front of queues that do not begin at the start of a file, as dispatch does."""
    pool = FilePool(writable=True)
    filler = encode_unit(PRE_BLANK)
    try:
        for (topic, queue_id), (begin, _) in ranges.items():
            front = begin % (file_size // QUEUE_UNIT_SIZE)
            if front:
                queue = ConsumeQueue(topic, queue_id, paths.queue(topic, queue_id), pool, file_size)
                queue.min_offset = queue.max_offset = begin - front
                queue.put(begin - front, filler * front)
                queue.sync()
    finally:
        pool.close()
