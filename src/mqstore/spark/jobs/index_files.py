"""Index files, each filled by one task from the keys that were taken from the log.

A file is full with a certain number of keys, so which keys are in which file follows from how many there are. The next
file begins with the next record, which is that of the next key only if no record without keys lies between.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from mqstore import errors, kernels
from mqstore.files import durable
from mqstore.layout import index as layout
from mqstore.layout.index import IndexHeader
from mqstore.spark.jobs.key_files import KEY, Key, KeyRange, read_keys
from mqstore.spark.jobs.queue_files import SplitUnits
from mqstore.store.index_header import start_after
from mqstore.store.index_reader import Geometry
from mqstore.store.index_writer import next_index_name
from mqstore.store.log_reader import LogReader

_LOOK_BYTES: Final = 1 << 16


class IndexWork(NamedTuple):
    """Where the index goes, where attempts write, which may come too late, and the shape of the files."""

    directory: Path
    scratch: Path
    geometry: Geometry


class FilePlan(NamedTuple):
    """One index file.

    Attributes:
        number: its place among the files.
        keys: where its keys are.
        begin_timestamp_ms: store time of the record that it begins with.
        start: what its header says before its first key.
    """

    number: int
    keys: list[KeyRange]
    begin_timestamp_ms: int
    start: IndexHeader


class BuiltFile(NamedTuple):
    """A file that was built under a name of its own, and the store time of the record it begins with."""

    path: Path
    begin_timestamp_ms: int


def plan_files(log: LogReader, found: Sequence[SplitUnits], keys_per_file: int) -> list[FilePlan]:
    """The index files of a log whose splits hold ``found``; the last one may be without keys.

    Raises:
        CorruptRecordError, StoreIOError: log or keys are not as they were found.
    """
    filled = [one for one in found if one.records]
    if not filled:
        return []
    ranges = [KeyRange(one.keys_path, 0, one.keys) for one in filled if one.keys_path is not None]
    plans = [FilePlan(0, _cut(ranges, 0, keys_per_file), filled[0].first_timestamp_ms, IndexHeader())]
    total = sum(one.end for one in ranges)
    for first in range(keys_per_file, total + 1, keys_per_file):
        last = _key_at(ranges, first - 1)
        following = _key_at(ranges, first) if first < total else None
        begin_ms = _next_begin_ms(log, last, following, filled[-1].end_offset)
        if begin_ms is None:
            break
        full = IndexHeader(end_timestamp_ms=last.store_timestamp_ms, end_physical_offset=last.physical_offset)
        plans.append(FilePlan(len(plans), _cut(ranges, first, keys_per_file), begin_ms, start_after(full)))
    return plans


def _cut(ranges: Sequence[KeyRange], first: int, number: int) -> list[KeyRange]:
    """Where the keys from ``first`` of all on are, ``number`` of them or as many as there are."""
    found = []
    for path, begin, end in ranges:
        start, stop = max(begin, begin + first), min(end, begin + first + number)
        if start < stop:
            found.append(KeyRange(path, start, stop))
        first -= end - begin
    return found


def _key_at(ranges: Sequence[KeyRange], number: int) -> Key:
    (key,) = read_keys(_cut(ranges, number, 1))
    return Key(*kernels.INDEX_KEY.unpack(key))


def _next_begin_ms(log: LogReader, last: Key, following: Key | None, log_end: int) -> int | None:
    """Store time of the record that found a file full: that of its last key if it has more, or else the next one.

    None when no record follows. The next one may have no keys, which only the log tells.
    """
    if following is not None and following.physical_offset == last.physical_offset:
        return following.store_timestamp_ms
    record = log.record_at(last.physical_offset)
    if record is None:
        raise errors.CorruptRecordError("a record of the log has changed", offset=last.physical_offset)
    behind = last.physical_offset + record.total_size
    for chunk in log.scan(behind, log_end, check_crc=False, chunk_bytes=_LOOK_BYTES):
        return int(chunk.columns.store_timestamp_ms[0])
    return None


def build_file(work: IndexWork, plan: FilePlan) -> BuiltFile:
    """Runs in a task: build one index file.

    It is written, not mapped: the system would clear each page of a map first. Only header and slots stay in memory.
    """
    slots = work.geometry.hash_slots
    end, offset = layout.entry_position(plan.start.index_count, slots), 0
    head = bytearray(layout.entry_position(0, slots))
    head[: layout.INDEX_HEADER.size] = layout.encode_header(plan.start)
    path = work.scratch / f"index-{plan.number:06d}-{uuid.uuid4().hex}"
    fd = durable.create_file(path, work.geometry.file_size)
    try:
        with ThreadPoolExecutor(1) as beside:
            writing: Future[None] | None = None
            for keys in read_keys(plan.keys):
                offset = _check(plan, keys, offset)
                entries = kernels.index_entries(head, slots, keys)
                if writing is not None:
                    writing.result()
                writing = beside.submit(_write, fd, entries, end, path)  # while the next ones are made
                end += len(entries)
            if writing is not None:
                writing.result()
        durable.write_at(fd, head, 0, path)
        durable.sync_file(fd, path)
    finally:
        os.close(fd)
    return BuiltFile(path, plan.begin_timestamp_ms)


def _write(fd: int, entries: bytes, position: int, path: Path) -> None:
    durable.write_at(fd, entries, position, path)
    durable.begin_sync(fd, position, len(entries))


def _check(plan: FilePlan, keys: bytes, offset: int) -> int:
    """The physical offset of the last of ``keys``, which come behind ``offset``; none of a log goes back.

    Nothing keeps keys from a machine that dies, and a shared file system may give zeros in their place.
    """
    offsets = np.frombuffer(keys, KEY)["physicalOffset"]
    if offsets[0] < offset or bool((offsets[1:] < offsets[:-1]).any()):
        raise errors.StoreIOError("keys of the log were lost on their way", path=plan.keys[0].path)
    return int(offsets[-1])


def name_files(work: IndexWork, built: Sequence[BuiltFile]) -> list[str]:
    """Give the files their names, which follow from the times they begin with and from each other."""
    names: list[str] = []
    for one in built:
        name = next_index_name(one.begin_timestamp_ms, names[-1] if names else None)
        durable.rename(one.path, work.directory / name)
        names.append(name)
    durable.sync_directory(work.directory)
    return names
