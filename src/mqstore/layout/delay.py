"""Delay levels: how long a message waits in the schedule topic (docs/format/consume-queue.md)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from mqstore.errors import UsageError
from mqstore.layout.constants import DEFAULT_DELAY_LEVELS, INT_MAX, UNKNOWN_LEVEL_DELAY_MS

__all__ = [
    "DEFAULT_DELAY_LEVELS",
    "DEFAULT_DELAY_TABLE",
    "delay_level",
    "deliver_timestamp",
    "parse_delay_levels",
]

_UNITS_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LEVEL: Final = re.compile(r"([0-9]{1,10})([smhd])", re.ASCII)
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,10}", re.ASCII)


def parse_delay_levels(text: str) -> dict[int, int]:
    """Parse a table such as ``"1s 5s 10s"`` into ``{level: delay in ms}``; levels count from 1.

    Units are s, m, h and d. Raises UsageError for an empty table or an entry that is no number with a unit.
    """
    table: dict[int, int] = {}
    for level, part in enumerate(text.split(), start=1):
        match = _LEVEL.fullmatch(part)
        if match is None:
            raise UsageError("delay level is no number with unit s, m, h or d", found=part, hint="for example 1s 5s 1m")
        table[level] = int(match[1]) * _UNITS_MS[match[2]]
    if not table:
        raise UsageError("the table of delay levels is empty", hint="for example 1s 5s 1m")
    return table


DEFAULT_DELAY_TABLE: Final[Mapping[int, int]] = parse_delay_levels(DEFAULT_DELAY_LEVELS)
"""The 18 levels that brokers have unless configured otherwise, in ms by level."""


def delay_level(text: str | None, table: Mapping[int, int] = DEFAULT_DELAY_TABLE) -> int:
    """Read the property DELAY as a level, at most the highest of ``table``; 0 means "not delayed".

    Text that is no decimal 32-bit integer counts as not delayed, as do 0 and negative numbers.
    """
    if text is None or _INTEGER.fullmatch(text) is None:
        return 0
    level = int(text)
    if not 0 < level <= INT_MAX:
        return 0
    return min(level, max(table, default=0))


def deliver_timestamp(level: int, store_timestamp_ms: int, table: Mapping[int, int] = DEFAULT_DELAY_TABLE) -> int:
    """Time in ms at which a message stored at ``store_timestamp_ms`` is due; unknown levels wait 1 s."""
    return store_timestamp_ms + table.get(level, UNKNOWN_LEVEL_DELAY_MS)
