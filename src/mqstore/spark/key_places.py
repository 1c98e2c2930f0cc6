"""Where messages with certain keys lie, by the hash index."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import NamedTuple

from mqstore import errors, kernels
from mqstore.layout.constants import LONG_MAX
from mqstore.layout.index import key_hash
from mqstore.layout.record import Record
from mqstore.spark.queue_guide import GuideRefusedError
from mqstore.spark.selection import Selection
from mqstore.spark.splits import Split, SplitPolicy, read_split
from mqstore.spark.stores import StoreRef
from mqstore.store.index_reader import IndexFileReader
from mqstore.store.log_reader import Chunk, LogReader
from mqstore.store.view import StoreView

_log = logging.getLogger(__name__)

_MOST_PLACES = 100_000


class Places(NamedTuple):
    """Records of one store by the offsets at which they should start."""

    store: StoreRef
    offsets: list[int]


class FoundPlaces(NamedTuple):
    """What the index says: ``offsets`` in ``indexed`` ranges of the log, the last of which ends behind ``last``."""

    offsets: list[int]
    indexed: list[tuple[int, int]]
    last: Record | None


def find_places(store: StoreRef, log: LogReader, selection: Selection) -> FoundPlaces:
    """The records that may bear one of the wanted keys and topics.

    Every index file speaks for the log from its first entry to its last. What lies between two of them, in front of the
    first and behind the last is for others to read: there may be no keys, or a file may be lost.

    Raises:
        GuideRefusedError: there is no index to go by, or it leads to more places than are worth it.
    """
    hashes = [key_hash(topic, key) for topic in selection.topics or () for key in selection.keys or ()]
    places: set[int] = set()
    indexed: list[tuple[int, int]] = []
    with StoreView(store.path) as view:
        for file in _index_files(view):
            try:
                header = file.settled_header()
                begin, end = header.begin_physical_offset, header.end_physical_offset + 1
                found = {offset for one in hashes for offset in file.candidates(one, 0, LONG_MAX)}
            except errors.CorruptFileError as error:
                _log.warning("not going by an index file: %s", error)
                continue
            if header.index_count > 1 and begin < end and (not indexed or begin >= indexed[-1][1] - 1):
                places |= {offset for offset in found if begin <= offset < end}
                # A record's keys may be in two files.
                indexed.append((max(begin, indexed[-1][1] if indexed else 0), end))
    indexed = [one for one in indexed if one[0] < one[1] and one[1] > log.min_offset]
    last = log.record_at(indexed[-1][1] - 1) if indexed else None
    if last is None:
        raise GuideRefusedError("there is no index to go by")
    if len(places) > _MOST_PLACES:
        raise GuideRefusedError(f"the index leads to {len(places)} places")
    return FoundPlaces(sorted(one for one in places if one >= log.min_offset), indexed, last)


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
