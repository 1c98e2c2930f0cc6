"""Rows of Arrow columns into a mapped log file."""

from __future__ import annotations

from typing import Any, Literal

from mqstore.errors import UsageError
from mqstore.kernels.pure.checks import check_range
from mqstore.kernels.pure.put import put_message
from mqstore.kernels.store_api import RowColumns, TextColumn
from mqstore.layout.constants import INT_MAX, MAGIC_V1, MAX_PROPERTIES_SIZE, MAX_TOPIC_SIZE_V1
from mqstore.layout.record import record_size

_MARKS = (0, 1, 2)


class _Rows:
    """The columns of a table as Python values."""

    def __init__(self, columns: RowColumns) -> None:
        self.count = columns.size
        topics = len(memoryview(columns.topics[0]).cast("B")) // 8 - 1
        if self.count < 0 or topics < 0:
            raise UsageError("a table has no fewer than 0 rows", found=(self.count, topics))
        self.topics = _texts(columns.topics, topics)
        self.body = _texts(columns.body, self.count)
        self.tags = _texts(columns.tags, self.count)
        self.keys = _texts(columns.keys, self.count)
        self.topic_of = _numbers(columns.topic_of, "i", self.count)
        self.queue_of = _numbers(columns.queue_of, "i", self.count)
        self.keys_first = columns.keys_first

    def is_ordinary(self, row: int, max_body: int, max_queue: int) -> bool:
        """Whether the row can be put as it is."""
        body, tags, keys = self.body[row], self.tags[row], self.keys[row]
        if body is None or len(body) > max_body or not -1 <= self.queue_of[row] <= max_queue:
            return False
        if not 0 <= self.topic_of[row] < len(self.topics):
            return False
        if not 0 < len(self.topics[self.topic_of[row]] or b"") <= MAX_TOPIC_SIZE_V1:
            return False
        if not _is_value(tags) or not _is_value(keys) or (keys is not None and keys.strip(b" ") != keys):
            return False
        return len(self.properties(row)) <= MAX_PROPERTIES_SIZE

    def topic(self, row: int) -> bytes:
        """The row's topic."""
        return self.topics[self.topic_of[row]] or b""

    def properties(self, row: int) -> bytes:
        """The row's properties string."""
        pairs = [(b"KEYS", self.keys[row]), (b"TAGS", self.tags[row])]
        if not self.keys_first:
            pairs.reverse()
        return b"\x02".join(name + b"\x01" + value for name, value in pairs if value is not None)

    def size(self, row: int, hosts_size: int) -> int:
        """Bytes of the row's record."""
        parts = (len(self.body[row] or b""), len(self.topic(row)), len(self.properties(row)))
        return record_size(*parts, born_host_size=hosts_size // 2, store_host_size=hosts_size // 2)


def _is_value(text: bytes | None) -> bool:
    if text is None:
        return True
    return 0 < len(text) <= MAX_PROPERTIES_SIZE and not any(mark in text for mark in _MARKS)


def _numbers(given: Any, kind: Literal["i", "q"], count: int) -> Any:
    view = memoryview(given).cast("B")
    size = 4 if kind == "i" else 8
    if len(view) < size * count:
        raise UsageError("a column is shorter than the table", expected=size * count, found=len(view))
    return view[: size * count].cast(kind)


def _texts(given: TextColumn | None, count: int) -> list[bytes | None]:
    if given is None:
        return [None] * count
    offsets, data, validity = _numbers(given[0], "q", count + 1), memoryview(given[1]).cast("B"), given[2]
    bits = None if validity is None else memoryview(validity).cast("B")
    if bits is not None and len(bits) < (count + 7) // 8:
        raise UsageError("a column is shorter than the table", expected=(count + 7) // 8, found=len(bits))
    for row in range(count):
        if not 0 <= offsets[row] <= offsets[row + 1] <= len(data):
            raise UsageError("an offset leads outside of its column", offset=row, found=offsets[row + 1])
    return [
        None
        if bits is not None and not bits[row >> 3] >> (row & 7) & 1
        else bytes(data[offsets[row] : offsets[row + 1]])
        for row in range(count)
    ]


def measure_rows(columns: RowColumns, max_body: int, max_queue: int, hosts_size: int, /) -> tuple[int, int, int]:
    """See :meth:`mqstore.kernels.api.Kernels.measure_rows`."""
    rows = _Rows(columns)
    total = largest = 0
    for row in range(rows.count):
        if not rows.is_ordinary(row, max_body, max_queue):
            return row, total, largest
        size = rows.size(row, hosts_size)
        total, largest = total + size, max(largest, size)
    return -1, total, largest


def put_rows(
    buffer: Any,
    position: int,
    limit: int,
    physical_offset: int,
    store_timestamp_ms: int,
    host: bytes,
    columns: RowColumns,
    start: int,
    stop: int,
    queue_base: Any,
    queue_counts: Any,
    turns: Any,
    next_offsets: Any,
    /,
) -> tuple[int, int, int]:
    """See :meth:`mqstore.kernels.api.Kernels.put_rows`."""
    check_range(buffer, position, limit, physical_offset)
    rows = _Rows(columns)
    topics = len(rows.topics)
    base = _numbers(queue_base, "q", topics)
    counts, turn, following = (memoryview(one).cast("B").cast("q") for one in (queue_counts, turns, next_offsets))
    if not 0 <= start <= stop <= rows.count or min(len(turn), len(counts)) < topics:
        raise UsageError("no such rows", expected=f"0 to {rows.count}", found=(start, stop))
    last = -1
    for row in range(start, stop):
        if not rows.is_ordinary(row, INT_MAX // 2, INT_MAX - 1):
            raise _unmeasured(row)
        topic, queue = rows.topic_of[row], rows.queue_of[row]
        taken = queue < 0
        if taken:
            if counts[topic] <= 0:
                raise _unmeasured(row)
            queue = turn[topic] % counts[topic] if turn[topic] >= 0 else 0
        place = base[topic] + queue
        if base[topic] < 0 or place >= len(following):
            raise _unmeasured(row)
        size = put_message(
            buffer, position, limit, physical_offset, following[place], store_timestamp_ms, rows.topic(row),
            rows.body[row] or b"", rows.properties(row), queue, 0, 0, store_timestamp_ms, host, host, 0, 0, MAGIC_V1,
        )  # fmt: skip
        if size == 0:
            return row, position, last
        turn[topic] += taken
        counts[topic] = max(counts[topic], queue + 1)
        following[place] += 1
        last, position = position, position + size
    return stop, position, last


def _unmeasured(row: int) -> UsageError:
    return UsageError("a row that was not measured", offset=row, hint="measure_rows tells which rows can be put")
