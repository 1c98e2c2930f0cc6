"""Messages by key: candidates from the index, newest file first, each compared with its record.

The index knows hashes, whole seconds and nothing of what later happened to the log (docs/format/index-file.md), so a
candidate counts only when topic, key and time of its record are those asked for. What is ordinary is done by two
kernels, one call for an index file and one for a record; whatever is not takes the plain path, which tells what it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

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
    number, look = _looker(log, query)
    for file in reversed(index_files):
        for physical_offset in file.candidates(number, query.begin_ms, query.end_ms):
            record = look(physical_offset)
            if not record:
                continue
            found[physical_offset] = record  # one that was filed twice comes twice
            if len(found) > max_messages:
                return _result(found, max_messages)
    return _result(found, max_messages)


def _result(found: dict[int, Record], max_messages: int) -> QueryResult:
    newest = list(found.values())[:max_messages]
    newest.sort()  # their first field is the physical offset, and no two have the same
    return QueryResult(newest, len(found) > max_messages)


def _looker(log: LogReader, query: KeyQuery) -> tuple[int, Callable[[int], Record | Literal[False] | None]]:
    """The key's hash, and what gives the record at an offset if it is one of those asked for."""

    def look_plainly(physical_offset: int) -> Record | None:
        record = log.record_at(physical_offset)
        return record if record is not None and query.fits(record) else None

    topic, key, begin_ms, end_ms = query
    if not (topic.isascii() and key.isascii()):
        return key_hash(topic, key), look_plainly
    topic_bytes, key_bytes = topic.encode(), key.encode()

    def look(physical_offset: int) -> Record | Literal[False] | None:
        record = log.record_with_key(physical_offset, topic_bytes, key_bytes, begin_ms, end_ms)
        return look_plainly(physical_offset) if record is None else record

    return kernels.key_hash(topic_bytes, key_bytes), look
