"""Messages by key: candidates from the index, newest file first, each compared with its record.

The index knows hashes, whole seconds and nothing of what later happened to the log (docs/format/index-file.md), so a
candidate counts only when topic, key and time of its record are those asked for. What is ordinary is done by two
kernels, one call for an index file and one for a record; whatever is not takes the plain path, which tells what it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from mqstore import kernels
from mqstore.layout.index import index_keys, key_hash
from mqstore.layout.record import Record
from mqstore.store.index_reader import IndexFileReader
from mqstore.store.log_reader import LogReader
from mqstore.store.message import QueryResult


class KeyQuery(NamedTuple):
    """What is asked for: messages of ``topic`` that bear ``key`` and were stored in [begin_ms, end_ms]."""

    topic: str
    key: str
    begin_ms: int
    end_ms: int

    def fits(self, record: Record) -> bool:
        """Whether a record is wanted."""
        if record.topic != self.topic or self.key not in index_keys(record):
            return False
        return self.begin_ms <= record.store_timestamp_ms <= self.end_ms


def query_by_key(
    log: LogReader, index_files: Sequence[IndexFileReader], query: KeyQuery, max_messages: int
) -> QueryResult:
    """The newest ``max_messages`` of those asked for, oldest first."""
    found: dict[int, Record] = {}
    for record in _matches(log, index_files, query):
        found[record.physical_offset] = record
        if len(found) > max_messages:
            break
    newest = list(islice(found.values(), max_messages))
    newest.sort()  # their first field is the physical offset, and no two have the same
    return QueryResult(newest, len(found) > max_messages)


def _matches(log: LogReader, index_files: Sequence[IndexFileReader], query: KeyQuery) -> Iterator[Record]:
    """Every record asked for, newest first; one that was filed twice comes twice."""
    if query.topic.isascii() and query.key.isascii():
        topic, key = query.topic.encode(), query.key.encode()
        number = kernels.key_hash(topic, key)
    else:
        topic, key = b"", b""
        number = key_hash(query.topic, query.key)
    for file in reversed(index_files):
        for physical_offset in file.candidates(number, query.begin_ms, query.end_ms):
            record = log.record_with_key(physical_offset, topic, key, query.begin_ms, query.end_ms) if topic else None
            if record is None:
                record = log.record_at(physical_offset)
                if record is not None and not query.fits(record):
                    continue
            if record:
                yield record
