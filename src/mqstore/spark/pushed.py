"""What filters that Spark hands over leave of a table."""

from __future__ import annotations

import datetime
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

LONG_MAX: Final = (1 << 63) - 1
_EVERYTHING: Final = (-LONG_MAX - 1, LONG_MAX)
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)

_SETS: Final = {"topic": "topics", "queueId": "queue_ids", "tags": "tags"}
_RANGES: Final = {
    "queueOffset": "queue_offsets", "physicalOffset": "physical_offsets", "storeTimestamp": "store_times_us",
}  # fmt: skip
COLUMNS: Final = (*_SETS, *_RANGES)
"""The columns of which a filter can be taken over."""


@dataclass(frozen=True)
class Pushed:
    """The rows that are left; None is all. Ranges are [low, high), times in microseconds."""

    topics: frozenset[str] | None = None
    queue_ids: frozenset[int] | None = None
    tags: frozenset[str] | None = None
    queue_offsets: tuple[int, int] = _EVERYTHING
    physical_offsets: tuple[int, int] = _EVERYTHING
    store_times_us: tuple[int, int] = _EVERYTHING

    def taking(self, one: Filter, columns: Collection[str]) -> Pushed | None:
        """The rows that ``one`` leaves of these, or None when it is no filter on ``columns`` that can be taken."""
        path: tuple[str, ...] = getattr(one, "attribute", ())
        if len(path) != 1 or path[0] not in columns:
            return None
        if path[0] in _SETS:
            return self._chosen(_SETS[path[0]], one)
        return self._within(_RANGES[path[0]], one)

    def _chosen(self, name: str, one: Any) -> Pushed | None:
        kind = type(one).__name__
        if kind not in ("EqualTo", "In"):
            return None
        values = frozenset([one.value] if kind == "EqualTo" else one.value) - {None}  # which equals nothing
        known = getattr(self, name)
        changed: dict[str, Any] = {name: values if known is None else known & values}
        return replace(self, **changed)

    def _within(self, name: str, one: Any) -> Pushed | None:
        value = _number(getattr(one, "value", None))
        bounds = None if value is None else _bounds(type(one).__name__, value)
        if bounds is None:
            return None
        low, high = getattr(self, name)
        # No row is at the largest number of all, so that a range that begins there is empty.
        changed: dict[str, Any] = {name: (min(max(low, bounds[0]), LONG_MAX), min(high, bounds[1]))}
        return replace(self, **changed)


def _bounds(kind: str, value: int) -> tuple[int, int] | None:
    """The range that a comparison with ``value`` leaves; None when it is no comparison that leaves one."""
    low, high = _EVERYTHING
    ranges = {
        "EqualTo": (value, value + 1),
        "GreaterThan": (value + 1, high),
        "GreaterThanOrEqual": (value, high),
        "LessThan": (low, value),
        "LessThanOrEqual": (low, value + 1),
    }
    return ranges.get(kind)


def is_bounded(limits: tuple[int, int]) -> bool:
    """Whether a range leaves anything out."""
    return limits != _EVERYTHING


def _number(value: object) -> int | None:
    """A whole number, or a moment in microseconds since 1970; None for all else."""
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return (value - _EPOCH) // datetime.timedelta(microseconds=1)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
