"""What callers may ask with: numbers and texts are looked at before they lead anywhere.

A wrong type would otherwise surface deep inside, or worse, not at all: ``0.5`` compares with offsets as if it were one.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Final, TypeVar

from mqstore import errors
from mqstore.files.remote import RemotePath, as_path
from mqstore.layout.constants import INT_MAX, LONG_MAX

_T = TypeVar("_T")

INT_MIN: Final = -INT_MAX - 1
LONG_MIN: Final = -LONG_MAX - 1


def check_whole(name: str, value: object, low: int, high: int) -> None:
    """Raise UsageError unless ``value`` is a whole number from ``low`` to ``high``; True is none."""
    if type(value) is not int or not low <= value <= high:
        raise errors.UsageError(
            f"no such {name}", expected=f"{low} to {high}", found=repr(value)[:80], hint="give a whole number (int)"
        )


def check_path(path: object) -> Path:
    """A path or URL that was given; UsageError for what is none, or names nothing."""
    if not isinstance(path, str | os.PathLike) or not isinstance(text := os.fspath(path), str) or not text:
        raise errors.UsageError("the path names no directory", found=repr(path)[:80], hint="give the store's directory")
    if "\0" in text:
        raise errors.UsageError("a path holds a NUL character", found=repr(text)[:80])
    if text in ("file:", "file://"):
        raise errors.UsageError("the path names no directory", found=text, hint="give the store's directory")
    return as_path(path)


def check_store_path(path: object) -> Path:
    """The directory to run a store in; UsageError for what names none."""
    found = check_path(path)
    if isinstance(found, RemotePath):
        raise errors.UsageError("a store runs in a local directory", found=found, hint="mqstore.inspect reads it")
    return found


def check_count(max_messages: object) -> None:
    """Raise UsageError for a number of messages that cannot be meant."""
    check_whole("number of messages", max_messages, 1, INT_MAX)


def check_long(name: str, value: object) -> None:
    """Raise UsageError unless ``value`` fits the 64 bits that offsets and times have in the files."""
    check_whole(name, value, LONG_MIN, LONG_MAX)


def check_seconds(name: str, value: object) -> None:
    """Raise UsageError unless ``value`` is None, for ever, or a number of seconds that a thread can wait."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= threading.TIMEOUT_MAX:
        raise errors.UsageError(
            f"no such {name}", expected="0 or more", found=repr(value)[:80], hint="give seconds, or None for no limit"
        )


def as_list(name: str, values: Iterable[_T]) -> list[_T]:
    """The values as a list; UsageError for what gives none."""
    try:
        return list(values)
    except TypeError:
        raise errors.UsageError(
            f"{name} are none", expected="a sequence", found=repr(values)[:80], hint="give a list"
        ) from None


def check_texts(**values: object) -> None:
    """Raise UsageError unless every value is text; the names are for the message."""
    for name, value in values.items():
        if not isinstance(value, str):
            raise errors.UsageError(f"{name} is not text", expected="str", found=repr(value)[:80], hint="give a str")


def check_queue(topic: object, queue_id: object) -> None:
    """Raise UsageError unless the two can name a queue, whether there is one or not."""
    if not isinstance(topic, str):
        raise errors.UsageError("a topic is text", found=repr(topic)[:80], hint="give the topic's name as a str")
    check_whole("queue", queue_id, 0, INT_MAX)


def check_get(topic: object, queue_id: object, offset: object, max_messages: object) -> None:
    """Raise UsageError for what no messages can be got with."""
    check_queue(topic, queue_id)
    check_long("offset", offset)
    check_count(max_messages)


def check_window(begin_ms: int, end_ms: int) -> None:
    """Raise UsageError for a window of times that ends before it begins."""
    if type(begin_ms) is type(end_ms) is int and 0 <= begin_ms <= end_ms <= LONG_MAX:
        return  # as nearly always, and at once
    check_long("begin", begin_ms)
    check_long("end", end_ms)
    if begin_ms > end_ms:
        raise errors.UsageError(
            "the window ends before it begins",
            expected=f"end >= {begin_ms}",
            found=end_ms,
            hint="give the earlier time first",
        )
