"""Messages of a queue as an Arrow table: the bytes of the log become columns, without a Python object for any message.

The units say where the records are. Neighbours are read in one go and looked through by one kernel; whatever lies
between them belongs to other queues. A message about which anything is special is judged by the plain path, one by one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from mqstore import errors, kernels
from mqstore.layout.queue_unit import QUEUE_UNIT
from mqstore.status import GetMessageStatus
from mqstore.store import reading
from mqstore.store.log_reader import Chunk, LogReader

if TYPE_CHECKING:
    import pyarrow as pa

Names = Sequence[str] | None
"""Columns asked for, in their order; None is all."""
DEFAULT_ROWS = 8192
_GAP_BYTES = 16 << 10
_SPAN_BYTES = 8 << 20
_MOST_ROWS = 1 << 20


class GetTableResult(NamedTuple):
    """Messages of one queue from one offset on, as :class:`mqstore.GetResult`, with a ``table`` in place of objects."""

    status: GetMessageStatus
    next_offset: int
    min_offset: int
    max_offset: int
    table: pa.Table


def check_columns(names: Names) -> list[str]:
    """The columns asked for, None for all. Raises UsageError for a name that is none."""
    from mqstore.store.columns import SCHEMA

    known = [name for name in SCHEMA.names if name != "brokerName"]
    wanted = known if names is None else list(names)
    if isinstance(names, str) or not wanted or not set(wanted) <= set(known) or len(set(wanted)) < len(wanted):
        raise errors.UsageError("no such columns", expected=f"some of {', '.join(known)}", found=repr(names)[:80])
    return wanted


def get_table(
    log: LogReader, find: reading.Finder, offset: int, max_messages: int, names: Sequence[str]
) -> GetTableResult:
    """Messages of one queue from ``offset`` on, at most ``max_messages``, as columns ``names``.

    Raises as :func:`mqstore.store.reading.get_messages`.
    """
    batches: list[Any] = []
    queue_range = find()
    if queue_range is None:
        return GetTableResult(GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0, _table(batches, names))
    low, high = queue_range.min_offset, queue_range.max_offset
    outside = reading.outside(offset, low, high)
    if outside is not None:
        return GetTableResult(outside[0], outside[1], low, high, _table(batches, names))
    units = queue_range.queue.units(offset, min(high - offset, max_messages, _MOST_ROWS))
    places = [place for place, _, _ in QUEUE_UNIT.iter_unpack(units)]
    done = 0
    while done < len(places):
        found = _stretch(log, queue_range, offset, units, places, done, names)
        if found is None:
            break
        batches.append(found)
        done += found.num_rows
    if not done:  # there is something special about the first one
        return _one(log, find, offset, names)
    return GetTableResult(GetMessageStatus.FOUND, offset + done, low, high, _table(batches, names))


def _stretch(
    log: LogReader,
    queue_range: reading.QueueRange,
    offset: int,
    units: bytes,
    places: list[int],
    first: int,
    names: Sequence[str],
) -> Any | None:
    """The messages from unit ``first`` on that lie close together; None when there is something special about it."""
    span = kernels.unit_span(units, first, len(places) - first, None, _GAP_BYTES, _SPAN_BYTES)
    if span is None or span[0] != places[first]:
        return None
    data = log.read(span[0], span[1] - span[0])
    if data is None:
        return None
    columns = kernels.scan(data, 0, len(data), span[0], check_crc=False, max_records=len(data))
    chunk = Chunk(data, span[0], columns)
    stop = bisect_left(places, span[1], first)
    rows = _rows(chunk, queue_range.queue, offset + first, [place - span[0] for place in places[first:stop]])
    return _batch(chunk, rows, names) if rows else None


def _rows(chunk: Chunk, queue: reading.UnitSource, offset: int, positions: list[int]) -> list[int]:
    """The rows at ``positions``, as far as each is the message of the queue that its unit should name."""
    columns = chunk.columns
    topic = queue.topic.encode("utf-8", "surrogateescape")
    if _is_only(chunk, topic, queue.queue_id, offset, positions):
        return list(range(len(positions)))
    row_at = {position: row for row, position in enumerate(columns.position)}
    rows: list[int] = []
    for position in positions:
        row = row_at.get(position)
        if row is None or columns.queue_id[row] != queue.queue_id or columns.queue_offset[row] != offset + len(rows):
            break
        begin = columns.topic_position[row]
        if chunk.buffer[begin : begin + columns.topic_size[row]] != topic:
            break
        rows.append(row)
    return rows


def _is_only(chunk: Chunk, topic: bytes, queue_id: int, offset: int, positions: list[int]) -> bool:
    """Whether the records are those of the units and no others: looked at column by column."""
    columns, count = chunk.columns, len(positions)
    if columns.count != count or columns.position.tolist() != positions:
        return False
    if columns.queue_offset.tolist() != list(range(offset, offset + count)):
        return False
    if columns.topic_size.tolist() != [len(topic)] * count:
        return False
    topics = kernels.gather(chunk.buffer, columns.topic_position, columns.topic_size, 0, count)
    return columns.queue_id.tolist() == [queue_id] * count and bytes(topics.data) == topic * count


def _batch(chunk: Chunk, rows: list[int], names: Sequence[str]) -> Any:
    import pyarrow as pa

    from mqstore.store.columns import message_batches

    found = pa.Table.from_batches(message_batches(chunk, names, ""))
    if rows == list(range(len(rows))):
        return found.slice(0, len(rows))
    return found.take(rows)


def _one(log: LogReader, find: reading.Finder, offset: int, names: Sequence[str]) -> GetTableResult:
    """The message at ``offset`` by the plain path, which says what is special about it."""
    result = reading.get_messages(log, find, offset, 1, reading.parse_filter(None), reading.GetLimits())
    batches = []
    for record in result.messages:
        data = log.read(record.physical_offset, record.total_size)
        if data is not None:
            columns = kernels.scan(data, 0, len(data), record.physical_offset, check_crc=False)
            batches.append(_batch(Chunk(data, record.physical_offset, columns), [0], names))
    return GetTableResult(
        result.status, result.next_offset, result.min_offset, result.max_offset, _table(batches, names)
    )


def _table(parts: list[Any], names: Sequence[str]) -> pa.Table:
    import pyarrow as pa

    from mqstore.store.columns import SCHEMA

    if not parts:
        return pa.schema([SCHEMA.field(name) for name in names]).empty_table()
    return pa.concat_tables(parts)
