"""Where messages with certain keys lie, by the hash index."""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from mqstore import errors, kernels
from mqstore.layout.index import IndexHeader, index_keys, key_hash
from mqstore.layout.record import Record
from mqstore.spark.arrays import ENTRY
from mqstore.spark.queue_guide import GuideRefusedError
from mqstore.spark.selection import Selection
from mqstore.spark.splits import Split, SplitPolicy, read_split
from mqstore.spark.stores import StoreRef
from mqstore.store.index_reader import IndexFileReader
from mqstore.store.log_reader import Chunk, LogReader
from mqstore.store.view import StoreView

_log = logging.getLogger(__name__)

_MOST_PLACES = 100_000
_MOST_RANGES = 1000
MOST_BETWEEN_ENTRIES: Final = 64 << 10
"""From one entry of an index file to the next. More log than this between them is not trusted to be without keys: a
broker may have run there that was told to keep no index.
"""


class Places(NamedTuple):
    """Records of one store by the offsets at which they should start."""

    store: StoreRef
    offsets: list[int]


class FoundPlaces(NamedTuple):
    """What the index says: ``offsets`` in ``indexed`` ranges of the log.

    ``last`` is the record of the newest key, if that is a record. ``read_bytes`` of the index were read to find out.
    """

    offsets: list[int]
    indexed: list[tuple[int, int]]
    last: Record | None
    read_bytes: int


def find_places(
    store: StoreRef, log: LogReader, selection: Selection, window: list[tuple[int, int]], limit_bytes: int
) -> FoundPlaces:
    """The records that may bear one of the wanted keys and topics.

    An index file speaks for the log from its first entry to its last, as far as entries follow each other within
    :data:`MOST_BETWEEN_ENTRIES`. What lies in front of, between and behind such ranges is for others to read: there may
    be no keys, or they were not filed, or a file may be lost. Of a file that speaks for something wanted, all entries
    are looked at, and not the chains that lead to some of them: these tell nothing of what is missing. Of the others
    the header is enough.

    Args:
        store: the store.
        log: its log.
        selection: the rows that are wanted.
        window: ranges of the log outside of which nothing is wanted.
        limit_bytes: how much of the index is worth reading.

    Raises:
        GuideRefusedError: there is no index to go by, or it leads to more places than are worth it.
    """
    with StoreView(store.path) as view:
        headers = _headers(_index_files(view))
        files = [one for one in headers if _meets(one[1], window)]
        read_bytes = sum(header.index_count * ENTRY.itemsize for _, header in files)
        if read_bytes > limit_bytes:
            raise GuideRefusedError(f"{read_bytes} bytes of index would have to be read, more than {limit_bytes}")
        wanted = [key_hash(topic, key) for topic in selection.topics or () for key in selection.keys or ()]
        places, indexed = _look_through_all(log, files, wanted)
    indexed = [one for one in indexed if one[1] > log.min_offset]
    if not indexed:
        raise GuideRefusedError("there is no index to go by")
    if len(places) > _MOST_PLACES:
        raise GuideRefusedError(f"the index leads to {len(places)} places")
    newest = log.record_at(indexed[-1][1] - 1)
    if newest is not None:  # so that nobody goes through its inside
        indexed[-1] = (indexed[-1][0], newest.end_offset)
    ends = [end for _, end in indexed]
    offsets = [one for one in sorted(places) if one >= log.min_offset and _is_within(one, indexed, ends)]
    last = log.record_at(headers[-1][1].end_physical_offset)
    return FoundPlaces(offsets, indexed, last, read_bytes)


def _headers(files: list[IndexFileReader]) -> list[tuple[IndexFileReader, IndexHeader]]:
    """The files that have keys and a header that agrees with them."""
    found = []
    for file in files:
        try:
            header = file.settled_header()
        except errors.CorruptFileError as error:
            _log.warning("not going by an index file: %s", error)
            continue
        if header.index_count > 1:
            found.append((file, header))
    return found


def _meets(header: IndexHeader, window: list[tuple[int, int]]) -> bool:
    first, last = header.begin_physical_offset, header.end_physical_offset
    return any(begin <= last and first < end for begin, end in window)


def _look_through_all(
    log: LogReader, files: list[tuple[IndexFileReader, IndexHeader]], wanted: list[int]
) -> tuple[set[int], list[tuple[int, int]]]:
    """Where the entries of all files lead that have one of the wanted hashes, and the ranges that these speak for."""
    places: set[int] = set()
    indexed: list[tuple[int, int]] = []
    for file, header in files:
        try:
            found, ranges = _look_through(file, header.index_count, wanted)
        except errors.CorruptFileError as error:
            _log.warning("not going by an index file: %s", error)
            continue
        if ranges and (not indexed or ranges[0][0] >= indexed[-1][1] - 1):
            places |= found
            if indexed and (between := _between(log, indexed[-1][1] - 1, ranges[0][0], wanted)) is not None:
                places |= between
                ranges[0] = (indexed.pop()[0], ranges[0][1])
            indexed += ranges
        if len(indexed) > _MOST_RANGES:
            raise GuideRefusedError(f"the index has gaps at more than {_MOST_RANGES} places")
    return places, indexed


def _look_through(file: IndexFileReader, count: int, wanted: list[int]) -> tuple[set[int], list[tuple[int, int]]]:
    """Where a file's entries lead that have one of the wanted hashes, and the ranges of the log that it speaks for.

    Raises:
        CorruptFileError: the file is too short for its entries.
    """
    found: set[int] = set()
    ranges: list[tuple[int, int]] = []
    for data in file.entry_bytes(count):
        entries = np.frombuffer(data, ENTRY)
        places = entries["physicalOffset"].astype(np.int64)
        found.update(places[np.isin(entries["keyHash"], wanted)].tolist())
        # Where they go back, keys were filed twice.
        reached = np.maximum.accumulate(np.concatenate([[ranges[-1][1] - 1 if ranges else places[0]], places]))
        ranges = ranges or [(int(places[0]), int(places[0]) + 1)]
        for number in np.flatnonzero(np.diff(reached) > MOST_BETWEEN_ENTRIES).tolist():
            ranges[-1] = (ranges[-1][0], int(reached[number]) + 1)
            ranges.append((int(reached[number + 1]), int(reached[number + 1]) + 1))
        ranges[-1] = (ranges[-1][0], int(reached[-1]) + 1)
    return found, ranges


def _between(log: LogReader, last: int, first: int, wanted: list[int]) -> set[int] | None:
    """What is wanted of the records between the last of one file and the first of the next, None if that is not told.

    A record's keys may be in both files.
    """
    if first > last + MOST_BETWEEN_ENTRIES:
        return None
    found: set[int] = set()
    end = last
    for chunk in log.scan(last, first, check_crc=False):
        end = chunk.end_offset
        for record in chunk.records():
            if any(key_hash(record.topic, key) in wanted for key in index_keys(record)):
                found.add(record.physical_offset)
    return found if end >= first or log.end_of_closed_file(end) == first else None


def _is_within(offset: int, ranges: list[tuple[int, int]], ends: list[int]) -> bool:
    number = bisect_right(ends, offset)
    return number < len(ranges) and ranges[number][0] <= offset


def _index_files(view: StoreView) -> list[IndexFileReader]:
    try:
        return view.index_files()
    except errors.CorruptFileError as error:
        raise GuideRefusedError(f"the index is damaged: {error}") from None


def read_places(log: LogReader, places: Places, policy: SplitPolicy) -> Iterator[Chunk]:
    """The records at the places, one a chunk.

    An entry may lead to where there was a record once. Then what is there now is read as any reader of the log would:
    another record's inside is passed over, damage is damage.

    Raises:
        CorruptRecordError, CorruptFileError: as :func:`read_split` does.
    """
    for offset in places.offsets:
        head = log.read(offset, 4)
        size_bytes = int.from_bytes(head, "big", signed=True) if head else 0
        data = log.read(offset, size_bytes) if size_bytes > 0 else None
        if data is not None:
            columns = kernels.scan(data, 0, len(data), offset, max_records=1, check_crc=policy.check_crc)
            if columns.count:
                yield Chunk(data, offset, columns)
                continue
        yield from read_split(log, Split(places.store, offset, offset + 1), policy)
