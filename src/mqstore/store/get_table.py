"""Messages of a queue as an Arrow table: the bytes of the log become columns, without a Python object for any message.

The units say where the records are. Neighbours are read in one go, and one kernel takes those that the units name;
whatever lies between them belongs to other queues. A message about which anything is special is judged by the plain
path, one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from mqstore import errors, kernels
from mqstore.layout.constants import QUEUE_UNIT_SIZE
from mqstore.status import GetMessageStatus
from mqstore.store import reading
from mqstore.store.log_reader import Chunk, LogReader

if TYPE_CHECKING:
    import pyarrow as pa

Names = Sequence[str] | None
"""Columns asked for, in their order; None is all."""
DEFAULT_ROWS = 8192
_GAP_BYTES = 16 << 10
_SPAN_BYTES = 4 << 20
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
    done = 0
    while done < len(units) // QUEUE_UNIT_SIZE:
        found = _stretch(log, queue_range.queue, offset, units, done, names)
        if found is None:
            break
        batches.append(found)
        done += found.num_rows
    if not done:  # there is something special about the first one
        return _one(log, find, offset, names)
    return GetTableResult(GetMessageStatus.FOUND, offset + done, low, high, _table(batches, names))


def _stretch(
    log: LogReader, queue: reading.UnitSource, offset: int, units: bytes, first: int, names: Sequence[str]
) -> Any | None:
    """The messages from unit ``first`` on that lie close together; None when there is something special about it."""
    count = len(units) // QUEUE_UNIT_SIZE - first
    span = kernels.unit_span(units, first, count, None, _GAP_BYTES, _SPAN_BYTES)
    data = None if span is None else log.read(span[0], span[1] - span[0])
    if span is None or data is None:
        return None
    topic = queue.topic.encode("utf-8", "surrogateescape")
    columns = kernels.scan_units(units, first, offset + first, data, span[0], topic, queue.queue_id)
    return _table_of(Chunk(data, span[0], columns), names) if columns.count else None


def _table_of(chunk: Chunk, names: Sequence[str]) -> pa.Table:
    import pyarrow as pa

    from mqstore.store.columns import message_batches

    return pa.Table.from_batches(message_batches(chunk, names, ""))


def _one(log: LogReader, find: reading.Finder, offset: int, names: Sequence[str]) -> GetTableResult:
    """The message at ``offset`` by the plain path, which says what is special about it."""
    result = reading.get_messages(log, find, offset, 1, reading.parse_filter(None), reading.GetLimits())
    batches = []
    for record in result.messages:
        data = log.read(record.physical_offset, record.total_size)
        if data is not None:
            columns = kernels.scan(data, 0, len(data), record.physical_offset, check_crc=False)
            batches.append(_table_of(Chunk(data, record.physical_offset, columns), names))
    return GetTableResult(
        result.status, result.next_offset, result.min_offset, result.max_offset, _table(batches, names)
    )


def _table(parts: list[Any], names: Sequence[str]) -> pa.Table:
    import pyarrow as pa

    from mqstore.store.columns import SCHEMA

    if not parts:
        return pa.schema([SCHEMA.field(name) for name in names]).empty_table()
    return pa.concat_tables(parts)
