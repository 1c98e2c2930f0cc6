"""The records that lines of JSON stand for, as ``mqstore kafka dump --format json`` prints them."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from mqstore import errors
from mqstore.layout.constants import INT_MAX, LONG_MAX, LONG_MIN
from mqstore.layout.kafka.constants import NO_TIMESTAMP, TimestampType
from mqstore.layout.kafka.control import ControlType
from mqstore.layout.kafka.names import is_topic_name
from mqstore.layout.kafka.record import Header, Record

_TIMESTAMP_TYPES: Final = {
    "NoTimestampType": TimestampType.CREATE_TIME,  # of magic 0; batches of magic 2 say CreateTime, -1
    "CreateTime": TimestampType.CREATE_TIME,
    "LogAppendTime": TimestampType.LOG_APPEND_TIME,
}
_MEMBERS: Final = frozenset(
    {
        "topic", "partition", "offset", "timestamp", "timestampType", "key", "keyText", "value", "valueText", "headers",
        "batchBaseOffset", "sequence", "controlType", "coordinatorEpoch", "decoded",
    }
)  # fmt: skip
"""What a line may hold; of it sequence, batch and what was decoded are not brought along."""
_CONTROL: Final = re.compile(rf"{'|'.join(ControlType.__members__)}|UNREADABLE|UNKNOWN -?\d+")
_HINT: Final = "one JSON object a line, as mqstore kafka dump --format json prints them"


class Line(NamedTuple):
    """The record of one line.

    ``record.offset`` is -1 where the line has none; ``has_time`` tells whether its time is what the line says.
    """

    number: int
    topic: str
    partition: int
    record: Record
    has_time: bool


class JsonLines:
    """The records of lines, one after the other.

    Attributes:
        control_records: how many of the lines so far were control records, of which none is given.
    """

    def __init__(self, lines: Iterable[str | bytes], topic: str | None) -> None:
        """``topic`` is that of all records, whatever the lines say."""
        given: object = lines
        if isinstance(given, str | bytes | bytearray) or not isinstance(given, Iterable):
            raise errors.UsageError(
                "lines are given one by one", expected="a list of lines, or an open file",
                found=type(given).__name__, hint="text.splitlines() makes lines of one text",
            )  # fmt: skip
        self._lines = lines
        self._topic = topic
        self.control_records = 0

    def __iter__(self) -> Iterator[Line]:
        """Each line's record; UsageError, with the line's number, for one that stands for none."""
        for number, line in enumerate(self._lines, 1):
            given: object = line
            if not isinstance(given, str | bytes | bytearray):
                raise errors.UsageError(f"line {number} is no text", expected="str or bytes", found=repr(given)[:80])
            if not line.strip():
                continue
            try:
                row = json.loads(line)
                if not isinstance(row, dict):
                    raise ValueError("not an object")
                if "controlType" in row:
                    _check_control(row["controlType"])
                    self.control_records += 1
                    continue
                found = _line(number, row, self._topic)
            except (ValueError, RecursionError) as error:
                raise errors.UsageError(f"line {number} is no record: {error}", hint=_HINT) from None
            yield found


def _check_control(kind: object) -> None:
    if not isinstance(kind, str) or not _CONTROL.fullmatch(kind):
        raise ValueError(f"no such controlType: {kind!r}")


def _line(number: int, row: dict[str, Any], topic: str | None) -> Line:
    """The record of one line; ValueError where it is none."""
    unknown = sorted(row.keys() - _MEMBERS)
    if unknown:
        raise ValueError(f"unknown member {unknown[0]!r}")
    name = topic if topic is not None else row.get("topic")
    if not isinstance(name, str) or not is_topic_name(name):
        raise ValueError(f"no topic can be called {name!r}" if name is not None else "no topic is named")
    if "value" not in row and "valueText" not in row:
        raise ValueError("no value; null is one")
    kind = row.get("timestampType", "CreateTime")
    if not isinstance(kind, str) or kind not in _TIMESTAMP_TYPES:
        raise ValueError(f"no such timestampType: {kind!r}")
    record = Record(
        _number(row, "offset", -1, 0, LONG_MAX - 1),
        _number(row, "timestamp", NO_TIMESTAMP, LONG_MIN, LONG_MAX),
        _TIMESTAMP_TYPES[kind],
        _data(row, "key"),
        _data(row, "value"),
        tuple(_headers(row.get("headers", []))),
    )
    return Line(number, name, _number(row, "partition", 0, 0, INT_MAX), record, "timestamp" in row)


def _number(row: dict[str, Any], name: str, default: int, least: int, most: int) -> int:
    value = row.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not (value == default or least <= value <= most):
        raise ValueError(f"{name} is {value!r}")
    return value


def _data(row: dict[str, Any], name: str) -> bytes | None:
    """Bytes from base64, or from text under a name that says so."""
    text = row.get(f"{name}Text")
    if text is not None:
        if not isinstance(text, str) or name in row:
            raise ValueError(f"{name}Text is {text!r}" if name not in row else f"{name} and {name}Text are both there")
        return text.encode()
    text = row.get(name)
    if text is None:
        return None
    if not isinstance(text, str):
        raise ValueError(f"{name} is {text!r}")
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"{name} is no base64: {error}") from None


def _headers(rows: Any) -> Iterator[Header]:
    if not isinstance(rows, list):
        raise ValueError("headers are no list")
    for row in rows:
        if not isinstance(row, dict) or not isinstance(row.get("key"), str):
            raise ValueError(f"no header: {row!r}")
        row["key"].encode()  # half a surrogate pair is no text
        if unknown := row.keys() - {"key", "value", "valueText"}:
            raise ValueError(f"unknown member {min(unknown)!r} of a header")
        yield row["key"], _data(row, "value")
