"""Judging what a caller hands over, in one place: numbers that are none, or that cannot be meant, are refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from mqstore import errors
from mqstore.files.remote import RemotePath, as_path
from mqstore.layout.constants import INT_MAX, LONG_MAX
from mqstore.layout.kafka import names

LONG_MIN: Final = -LONG_MAX - 1
SHORT_MAX: Final = (1 << 15) - 1


def check_number(name: str, value: object, low: int = 0, high: int = LONG_MAX) -> None:
    """Raise UsageError when ``value`` is no whole number from ``low`` to ``high``; True and False are none."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise errors.UsageError(f"{name} cannot be meant", expected=f"{low} to {high}", found=repr(value)[:80])


def check_numbers(low: int, high: int, **values: object) -> None:
    """:func:`check_number` of each; None passes, as what was not given."""
    for name, value in values.items():
        if value is not None:
            check_number(name, value, low, high)


def check_flags(**values: object) -> None:
    """Raise UsageError for each that is neither True nor False: "no" would count as yes."""
    for name, value in values.items():
        if not isinstance(value, bool):
            raise errors.UsageError(f"{name} is yes or no", expected="True or False", found=repr(value)[:80])


def check_offset(name: str, value: object) -> None:
    """:func:`check_number` of an offset to look at: one below 0 is only outside of the log."""
    check_number(name, value, LONG_MIN)


def check_offsets(**offsets: object) -> None:
    """:func:`check_offset` of each; None passes, as what was not given."""
    check_numbers(LONG_MIN, LONG_MAX, **offsets)


def check_time(timestamp_ms: object) -> None:
    """Raise UsageError for what is neither a time in ms nor one of the words that stand for one."""
    if isinstance(timestamp_ms, int) and not isinstance(timestamp_ms, bool):
        return  # any number of milliseconds is before or behind something
    if not isinstance(timestamp_ms, str) or timestamp_ms not in ("earliest", "latest", "max_timestamp"):
        expected = "milliseconds, earliest, latest or max_timestamp"
        raise errors.UsageError("no such time", expected=expected, found=repr(timestamp_ms)[:80])


def check_place(topic: object, partition: object) -> None:
    """Raise UsageError when these are no topic's name and no partition's number, whether there is one or not."""
    if not isinstance(topic, str):
        raise errors.UsageError("a topic's name is text", expected="text", found=repr(topic)[:80])
    check_number("partition", partition, LONG_MIN)


def check_named(topic: object, partition: object) -> None:
    """:func:`check_place` of a topic and a partition that may be named, or left out as None."""
    check_place("" if topic is None else topic, 0 if partition is None else partition)


def check_new_partitions(topic: str, partitions: object) -> None:
    """Raise UsageError when no topic can have this name or this number of partitions."""
    names.check_topic_name(topic)
    check_number("partitions", partitions, 1, INT_MAX)


def check_limits(max_messages: object, max_bytes: object) -> None:
    """Raise UsageError for limits of a get that cannot be meant."""
    check_number("max_messages", max_messages, 1)
    check_number("max_bytes", max_bytes, 1)


def check_path(path: object) -> Path:
    """The path that was given; UsageError when it is none, or names nothing."""
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        hint = "give a data directory, a partition's directory (topic-0), or a segment's .log"
        raise errors.UsageError("the path names nothing", found=repr(path)[:80], hint=hint)
    found = as_path(path)
    if isinstance(found, RemotePath):
        raise errors.UsageError("Kafka's logs are in directories of this machine", found=found)
    return found
