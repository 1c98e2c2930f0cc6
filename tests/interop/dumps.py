"""What a store holds, as three files that the real store, the golden stores and our own reader can all fill.

``EXPECTED.jsonl`` has one object for each commit log record, ``EXPECTED-CQ.jsonl`` one for each consume queue unit,
``EXPECTED-QUEUES.json`` the offsets, look-ups, blanks and the checkpoint. :func:`differences` compares two of them
whoever made them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote

#: Parts of EXPECTED-QUEUES.json, in the order in which a difference is worth knowing.
PARTS = ("minPhyOffset", "maxPhyOffset", "messages", "blanks", "problems", "queues", "keys", "getMessage", "checkpoint")


@dataclass
class Dump:
    """The content of the three files."""

    records: list[dict[str, Any]] = field(default_factory=list)
    units: list[dict[str, Any]] = field(default_factory=list)
    whole: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def load(cls, directory: Path) -> Dump:
        """Read the three files in ``directory``; files that are not there count as empty."""
        records = list(_json_lines(directory / "EXPECTED.jsonl"))
        units = list(_json_lines(directory / "EXPECTED-CQ.jsonl"))
        whole = directory / "EXPECTED-QUEUES.json"
        return cls(records, units, json.loads(whole.read_text("utf-8")) if whole.exists() else {})

    @property
    def config(self) -> dict[str, Any]:
        """The settings under which the directory was opened, by RocketMQ's names."""
        return dict(self.whole["config"])


class Questions:
    """Look-ups to ask of a store; each method adds some and returns the object."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    @classmethod
    def of(cls, dump: Dump) -> Questions:
        """The very look-ups whose answers ``dump`` holds."""
        questions = cls()
        for queue in dump.whole["queues"]:
            for timestamp_ms, _ in queue["offsetByTime"]:
                questions.time(queue["topic"], queue["queueId"], timestamp_ms)
        for asked in dump.whole["keys"]:
            questions.key(asked["topic"], asked["key"], asked["max"], asked["begin"], asked["end"])
        for asked in dump.whole.get("gets", ()):
            questions.get(asked["topic"], asked["queueId"], asked["offset"], asked["max"], asked["expression"])
        return questions

    def time(self, topic: str, queue_id: int, timestamp_ms: int) -> Questions:
        return self._add("time", topic, queue_id, timestamp_ms)

    def key(self, topic: str, key: str, max_messages: int, begin_ms: int, end_ms: int) -> Questions:
        return self._add("key", topic, key, max_messages, begin_ms, end_ms)

    def get(self, topic: str, queue_id: int, offset: int, max_messages: int, expression: str = "") -> Questions:
        return self._add("get", topic, queue_id, offset, max_messages, expression)

    def _add(self, kind: str, *values: object) -> Questions:
        self.lines.append("\t".join([kind, *(quote(str(value), safe="") for value in values)]))
        return self


def differences(expected: Dump, found: Dump, *, ignore: Iterable[str] = (), limit: int = 20) -> list[str]:
    """Sentences on what differs, the first ``limit`` of each kind; empty when the two say the same.

    Members that only ``found`` has are not compared. ``ignore`` names parts (``records``, ``units`` and those of
    :data:`PARTS`) or members of a queue (``queues.files``) to leave out. Names, versions, settings and file lists
    are never compared: they tell of the opening, not of the content.
    """
    ignored = {"queues.files", *ignore}
    result: list[str] = []
    if "records" not in ignored:
        by_offset = [{row["commitLogOffset"]: _record(row) for row in dump.records} for dump in (expected, found)]
        result += islice(_compare("record", *by_offset), limit)
    if "units" not in ignored:
        by_place = [{_place(row): row for row in dump.units} for dump in (expected, found)]
        result += islice(_compare("unit", *by_place), limit)
    for part in PARTS:
        if part in ignored or part not in expected.whole:
            continue
        values = [_part(part, dump.whole.get(part), ignored) for dump in (expected, found)]
        result += islice(_compare(part, *values), limit)
    return result


def _json_lines(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        with open(path, encoding="utf-8") as lines:
            yield from map(json.loads, lines)


def _place(unit: dict[str, Any]) -> tuple[str, int, int]:
    return unit["topic"], unit["queueId"], unit["cqOffset"]


def _record(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "cq": sorted(row["cq"], key=_place)}


def _part(part: str, value: Any, ignored: set[str]) -> dict[Any, Any]:
    if part == "queues":
        queues = {}
        for queue in value or ():
            kept = {name: member for name, member in queue.items() if f"queues.{name}" not in ignored}
            queues[queue["topic"], queue["queueId"]] = kept
        return queues
    if part == "keys":
        names = ("topic", "key", "max", "begin", "end")
        return {tuple(asked[name] for name in names): sorted(asked["offsets"]) for asked in value or ()}
    return value if isinstance(value, dict) else {part: value}


def _compare(kind: str, expected: dict[Any, Any], found: dict[Any, Any]) -> Iterator[str]:
    for name, wanted in expected.items():
        if name not in found:
            yield f"{kind} {name}: missing, expected {_short(wanted)}"
        elif isinstance(wanted, dict) and isinstance(found[name], dict):
            for member, value in wanted.items():
                other = found[name].get(member, "nothing")
                if other != value:
                    yield f"{kind} {name}: {member} is {_short(other)}, expected {_short(value)}"
        elif found[name] != wanted:
            yield f"{kind} {name}: is {_short(found[name])}, expected {_short(wanted)}"
    if kind in ("record", "unit", "queues"):
        for name in found.keys() - expected.keys():
            yield f"{kind} {name}: unexpected, {_short(found[name])}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 300 else f"{text[:200]} ... {text[-80:]}"
