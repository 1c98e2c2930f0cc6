"""What the tasks of an audit look at: a split of the log, some queues, an index file.

They tell whether anything is odd, not what: a check names it. So nothing that a check finds may pass here unseen.
The keys of the log and the entries of the index are compared as sums of hashes, which need no order and take no room.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from mqstore import errors, kernels
from mqstore.files.pool import FilePool
from mqstore.kernels.api import QueueRun
from mqstore.layout.constants import LONG_MAX, QUEUE_UNIT_SIZE
from mqstore.layout.queue_unit import QueueKey
from mqstore.spark.arrays import ENTRY
from mqstore.spark.jobs.key_files import KEY
from mqstore.spark.jobs.queue_files import Kinds, SplitUnits, runs_of
from mqstore.spark.options import OnCorruptRecord
from mqstore.spark.splits import Split, SplitPolicy
from mqstore.store.index_header import slots_misfit
from mqstore.store.index_reader import Geometry, IndexFileReader
from mqstore.store.log_reader import Chunk
from mqstore.store.paths import StorePaths, is_directory_name
from mqstore.store.queue_reader import QueueReader

_FAILING: Final = SplitPolicy(fail_on_data_loss=False)
_SKIPPING: Final = SplitPolicy(OnCorruptRecord.SKIP, fail_on_data_loss=False)
_ODD: Final = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)


@dataclass
class SplitAudit:
    """What a split holds.

    Attributes:
        found: its records, units and keys.
        wrong_units: units that the queues do not hold as the log says.
        key_sum: of the keys of records behind the index's first entry.
        odd: whether a check would find something here.
    """

    found: SplitUnits = field(default_factory=SplitUnits)
    wrong_units: int = 0
    key_sum: int = 0
    odd: bool = False


class SplitWork(NamedTuple):
    """How splits are audited: what decides about their units, and the record that the index begins with."""

    kinds: Kinds
    index_begin: int


def audit_split(work: SplitWork, split: Split) -> SplitAudit:
    """Runs in a task: hold the records of a split against their units, and add up their keys."""
    try:
        return _audit_split(work, split, _FAILING)
    except errors.CorruptRecordError:
        try:
            result = _audit_split(work, split, _SKIPPING)
        except errors.CorruptRecordError:  # behind the split's end, which nobody passes over
            result = SplitAudit()
        result.odd = True
        return result


def _audit_split(work: SplitWork, split: Split, policy: SplitPolicy) -> SplitAudit:
    result = SplitAudit()

    def look(chunk: Chunk) -> None:
        keys = np.frombuffer(kernels.index_keys(chunk.buffer, chunk.columns, 0, chunk.columns.count), KEY)
        result.found.keys += len(keys)
        result.key_sum = (result.key_sum + _sum(keys[keys["physicalOffset"] > work.index_begin])) % (1 << 64)

    pool = FilePool()
    readers: dict[QueueKey, QueueReader] = {}
    try:
        for key, run in runs_of(split, work.kinds, result.found, policy, look):
            if not is_directory_name(key[0]) or key[1] < 0:
                result.odd = True
                continue
            result.found.note_run(key, run)
            if key not in readers:
                readers[key] = QueueReader(*key, split.store.paths.queue(*key), pool)
            result.wrong_units += _wrong_units(readers[key], run)
    finally:
        pool.close()
    result.odd |= bool(result.wrong_units) or result.found.irregular or bool(result.found.left_out)
    return result


def _wrong_units(queue: QueueReader, run: QueueRun) -> int:
    """How many units of a run are not in the queue's files as they should be."""
    count = len(run.units) // QUEUE_UNIT_SIZE
    wrong = done = 0
    while done < count:
        held = queue.units(run.first_queue_offset + done, count - done)
        if not held:
            gone = min(count - done, queue.room_without_file(run.first_queue_offset + done))
            wrong, done = wrong + gone, done + gone
            continue
        right = run.units[done * QUEUE_UNIT_SIZE :][: len(held)]
        if held != right:
            kind = np.dtype((np.void, QUEUE_UNIT_SIZE))
            wrong += int((np.frombuffer(held, kind) != np.frombuffer(right, kind)).sum())
        done += len(held) // QUEUE_UNIT_SIZE
    return wrong


def _sum(keys: Any) -> int:
    """A sum that other keys, or entries, hardly have, whatever their order."""
    mixed = keys["physicalOffset"].astype(np.uint64) * np.uint64(_ODD[0]) + keys["keyHash"].astype(np.uint64)
    for shift, odd in ((30, _ODD[1]), (27, _ODD[2])):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(odd)
    return int((mixed ^ (mixed >> np.uint64(31))).sum(dtype=np.uint64))


# -- queues


class QueuesPart(NamedTuple):
    """Queues, each with where the log says that it ends, None where the log has no message of it."""

    root: str
    log_begin: int
    queues: Sequence[tuple[str, int, int | None]]


def queues_are_odd(part: QueuesPart) -> bool:
    """Runs in a task: whether a queue's files are not as they should be, or hold units behind the queue's end."""
    paths = StorePaths(Path(part.root))
    pool = FilePool()
    try:
        for topic, queue_id, end in part.queues:
            reader = QueueReader(topic, queue_id, paths.queue(topic, queue_id), pool)
            behind = reader.unit(reader.find_end(part.log_begin) if end is None else end)
            if reader.inventory.problems or (behind is not None and behind.is_written):
                return True
    finally:
        pool.close()
    return False


# -- index


class IndexPart(NamedTuple):
    """An index file, and the physical offsets of the index's first entry and of the log's begin."""

    path: Path
    geometry: Geometry
    index_begin: int
    log_begin: int


class IndexAudit(NamedTuple):
    """What an index file holds.

    Attributes:
        key_sum: of its entries behind the index's first, without those of records that have expired.
        first_hashes: of the entries of the index's first record.
        first_offset, last_offset: of its first and last entries; None without entries.
        odd: whether a check would find something here.
    """

    key_sum: int
    first_hashes: list[int]
    first_offset: int | None
    last_offset: int | None
    odd: bool


def audit_index_file(part: IndexPart) -> IndexAudit:
    """Runs in a task: whether the file's chains are whole; and the sum of its entries."""
    total, hashes, offsets = 0, list[int](), list[int]()
    right = None
    pool = FilePool()
    try:
        file = IndexFileReader(part.path, pool, part.geometry)
        header = file.header
        for data in file.entry_bytes(header.index_count):
            entries = np.frombuffer(data, ENTRY)
            places = entries["physicalOffset"]
            total += _sum(entries[(places != part.index_begin) & (places >= part.log_begin)])
            hashes += entries["keyHash"][places == part.index_begin].tolist()
            offsets = [*offsets[:1], *places[[0, -1]].tolist()]
            if right is None or not right.bad:
                right = kernels.index_slots(data, part.geometry.hash_slots, LONG_MAX, right)
        right = right or kernels.index_slots(b"", part.geometry.hash_slots, LONG_MAX)
        odd = bool(right.bad) or slots_misfit(header, right.used) is not None or file.slots() != right.slots
    finally:
        pool.close()
    first, last = (offsets[0], offsets[-1]) if offsets else (None, None)
    return IndexAudit(total % (1 << 64), hashes, first, last, odd)


# -- all of them

Part = IndexPart | Split


def audit_part(work: SplitWork, part: Part) -> IndexAudit | SplitAudit:
    """Runs in a task: what there is to tell of a part of the store."""
    if isinstance(part, Split):
        return audit_split(work, part)
    return audit_index_file(part)
