"""Index files, each built by one task from its stretch of the log."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from mqstore import kernels
from mqstore.files import durable
from mqstore.files.mapped_file import MappedFile
from mqstore.layout import index as layout
from mqstore.layout.index import IndexHeader
from mqstore.spark.jobs.queue_files import SplitUnits, key_counts
from mqstore.spark.splits import Split, SplitPolicy, open_log, read_split
from mqstore.store.index_reader import Geometry
from mqstore.store.index_writer import most_keys, next_index_name
from mqstore.store.log_reader import Chunk

_CHECKED: Final = SplitPolicy(check_crc=False)
"""Those who built the queues have looked at every checksum."""


class Work(NamedTuple):
    """Where the index goes, where attempts write, which may come too late, and the shape of the files."""

    directory: Path
    scratch: Path
    geometry: Geometry


class FilePlan(NamedTuple):
    """One index file.

    Attributes:
        number: its place among the files.
        splits: the stretch of log that it covers, beginning in the first and ending in or before the last.
        passed_over: keys of the first split that belong to earlier files.
    """

    number: int
    splits: list[Split]
    passed_over: int


class BuiltFile(NamedTuple):
    """A file that was built under a name of its own, and the store time of the record it begins with."""

    path: Path
    begin_timestamp_ms: int


def plan_files(splits: Sequence[Split], found: Sequence[SplitUnits], keys_per_file: int) -> list[FilePlan]:
    """The index files of a log whose splits hold so many keys.

    The file behind the last full one is planned too: it exists if a record follows.
    """
    counts = np.array([one.keys for one in found], np.int64)
    before = np.concatenate([[0], np.cumsum(counts)])
    if not any(one.records for one in found):
        return []
    plans = []
    for number in range(int(before[-1]) // keys_per_file + 1):
        first_key = number * keys_per_file
        # The first split that reaches the file's first key, or the end of the file before.
        first = max(0, int(np.searchsorted(before, first_key)) - 1)
        last = min(int(np.searchsorted(before, first_key + keys_per_file)), len(splits))
        plans.append(FilePlan(number, list(splits[first : max(last, first + 1)]), first_key - int(before[first])))
    # The file that ends the index also covers what follows its last key.
    final = plans[-1]
    plans[-1] = final._replace(splits=list(splits[splits.index(final.splits[0]) :]))
    return plans


def build_file(work: Work, plan: FilePlan) -> BuiltFile | None:
    """Runs in a task: build one index file; None when no record is left for it."""
    rows = _rows_from(plan)
    chunk, row, key = next(rows, (None, 0, 0))
    if chunk is None:
        return None
    shape = (work.geometry.hash_slots, work.geometry.max_entries)
    begin_timestamp_ms = chunk.columns.store_timestamp_ms[row]
    path = work.scratch / f"index-{plan.number:06d}-{uuid.uuid4().hex}"
    file = MappedFile(path, work.geometry.file_size, create=True)
    try:
        while chunk is not None:
            stop = chunk.columns.count
            _reserve(file, work.geometry, most_keys(chunk.columns, row, stop))
            row, _ = kernels.index_put(file.buffer, *shape, chunk.buffer, chunk.columns, row, key, stop)
            if row < stop:
                break
            chunk, row, key = next(rows, (None, 0, 0))
        file.sync()
    finally:
        file.close()
    return BuiltFile(path, begin_timestamp_ms)


def _reserve(file: MappedFile, geometry: Geometry, keys: int) -> None:
    """Make room for so many more keys: a mapped page that the device cannot store would end the process."""
    count = layout.decode_header(file.buffer[: layout.INDEX_HEADER.size]).index_count
    file.reserve(layout.entry_position(min(geometry.max_entries, count + keys), geometry.hash_slots))


def _rows_from(plan: FilePlan) -> Iterator[tuple[Chunk, int, int]]:
    """The chunks of the plan from its first key on, each with the row and key to begin with.

    A file begins with the key behind the last of the file before, or, if that was a record's last key, with the next
    record, keys or not.
    """
    left = plan.passed_over
    begun = plan.number == 0
    for split in plan.splits:
        log = open_log(split.store)
        try:
            for chunk in read_split(log, split, _CHECKED):
                if begun:
                    yield chunk, 0, 0
                    continue
                ends = np.cumsum(key_counts(chunk))
                row = int(np.searchsorted(ends, left))
                if row == chunk.columns.count:
                    left -= int(ends[-1])
                    continue
                begun = True
                key = left - (int(ends[row - 1]) if row else 0)
                if ends[row] == left:
                    row, key = row + 1, 0
                if row < chunk.columns.count:
                    yield chunk, row, key
        finally:
            log.close()


def name_files(work: Work, built: Sequence[BuiltFile]) -> list[str]:
    """Give the files their names, which follow from the times they begin with and from each other."""
    names: list[str] = []
    for one in built:
        name = next_index_name(one.begin_timestamp_ms, names[-1] if names else None)
        os.replace(one.path, work.directory / name)
        names.append(name)
    if len(names) > 1:
        _carry_header(work.directory / names[-2], work.directory / names[-1])
    durable.sync_directory(work.directory)
    return names


def _carry_header(previous: Path, path: Path) -> None:
    """A file that took no key yet says that it begins where the one before ended."""
    with path.open("r+b") as file:
        header = layout.decode_header(file.read(layout.INDEX_HEADER.size))
        if header.index_count > 1:
            return
        with previous.open("rb") as other:
            end = layout.decode_header(other.read(layout.INDEX_HEADER.size))
        place = (end.end_timestamp_ms, end.end_physical_offset)
        start = IndexHeader(place[0], place[0], place[1], place[1], 0, 1)
        durable.write_at(file.fileno(), layout.encode_header(start), 0, path)
        durable.sync_file(file.fileno(), path)
