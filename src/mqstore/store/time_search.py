"""What a look-up by time asks of a queue: when a message was stored, and which end of those with one time is meant."""

from __future__ import annotations

from mqstore import errors
from mqstore.status import BoundaryType
from mqstore.store.log_reader import LogReader
from mqstore.store.reading import UnitSource


def store_time_of(log: LogReader, queue: UnitSource, offset: int) -> int | None:
    """Store time in ms of the message at a queue offset; None when its record is gone."""
    unit = queue.unit(offset)
    if unit is None or not unit.is_written:
        return None
    record = log.record_at(unit.physical_offset, unit.size_bytes)
    return None if record is None else record.store_timestamp_ms


def parse_boundary(boundary: str | BoundaryType) -> BoundaryType:
    """``"lower"`` or ``"upper"``; UsageError for anything else."""
    try:
        return BoundaryType(boundary)
    except ValueError:
        raise errors.UsageError("no such boundary", expected="lower or upper", found=repr(boundary)) from None
