"""The options of ``spark.read.format("rocketmq")``: names, meanings and refusals (docs/spark.md)."""

from __future__ import annotations

import difflib
import enum
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mqstore.errors import UsageError
from mqstore.layout.tags import TagExpression

DEFAULT_SPLIT_BYTES: Final = 256 << 20

EARLIEST: Final = -2
"""In offset JSON, as in Spark's Kafka source: from the queue's first message."""
LATEST: Final = -1
"""In offset JSON: up to the queue's end."""

_SUBSCRIPTIONS: Final = ("subscribe", "subscribePattern", "assign")
NAMES: Final = (
    "path",
    "paths",
    "view",
    *_SUBSCRIPTIONS,
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "failOnDataLoss",
    "minPartitions",
    "maxPartitions",
    "splitBytes",
    "where",
    "onCorruptRecord",
    "verifyChecksum",
    "columns",
    "brokerName",
    "pushFilters",
)
"""Every option, as it is written in the documentation; Spark compares names without regard to case."""


class OnCorruptRecord(str, enum.Enum):
    """What a read does about damage in the log."""

    FAIL = "fail"
    """End the query with an error that says where."""
    SKIP = "skip"
    """Go on with the next sound record."""
    KEEP = "keep"
    """As ``skip``, but give records of which only the body's checksum is wrong."""


@dataclass(frozen=True)
class OffsetBounds:
    """Queue offsets: (topic, broker name or None for all, queue id, offset)."""

    offsets: tuple[tuple[str, str | None, int, int], ...] = ()

    def of(self, broker_name: str) -> dict[tuple[str, int], int]:
        """The offsets that hold for one broker, by topic and queue id; those naming it win."""
        general = {(topic, queue): at for topic, broker, queue, at in self.offsets if broker is None}
        own = {(topic, queue): at for topic, broker, queue, at in self.offsets if broker == broker_name}
        return {**general, **own}


@dataclass(frozen=True)
class ReadOptions:
    """The options of one read, checked."""

    paths: tuple[str, ...]
    view: str = "messages"
    topics: frozenset[str] | None = None
    topic_pattern: str | None = None
    queues: frozenset[tuple[str, int]] | None = None
    starting: OffsetBounds = field(default_factory=OffsetBounds)
    ending: OffsetBounds = field(default_factory=OffsetBounds)
    starting_timestamp_ms: int | None = None
    ending_timestamp_ms: int | None = None
    fail_on_data_loss: bool = True
    min_partitions: int = 1
    max_partitions: int | None = None
    split_bytes: int = DEFAULT_SPLIT_BYTES
    where: str | None = None
    on_corrupt_record: OnCorruptRecord = OnCorruptRecord.FAIL
    verify_checksum: bool = True
    columns: tuple[str, ...] | None = None
    broker_names: tuple[str, ...] = ()
    push_filters: bool = False

    @property
    def check_crc(self) -> bool:
        """Whether a wrong body checksum is damage."""
        return self.verify_checksum and self.on_corrupt_record is not OnCorruptRecord.KEEP

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> ReadOptions:
        """Check the options of a read.

        Raises:
            UsageError: a value that cannot be meant, options that exclude each other, or a name that is nearly one of
                ours. Names that are nothing like ours are passed over, as Spark's own sources do.
        """
        options = _by_name(given)
        chosen = [name for name in _SUBSCRIPTIONS if name in options]
        if len(chosen) > 1:
            raise UsageError(
                "options that exclude each other", found=", ".join(chosen), hint=f"give one of {', '.join(chosen)}"
            )
        TagExpression.parse(options.get("where"))
        pattern = options.get("subscribePattern")
        return cls(
            paths=_paths(options),
            view=options.get("view", "messages").strip().lower(),
            topics=frozenset(_list(options["subscribe"], "subscribe")) if "subscribe" in options else None,
            topic_pattern=None if pattern is None else _pattern(pattern),
            queues=_assign(options["assign"]) if "assign" in options else None,
            starting=_offsets(options, "startingOffsets", all_of_it="earliest", barred=LATEST),
            ending=_offsets(options, "endingOffsets", all_of_it="latest", barred=EARLIEST),
            starting_timestamp_ms=_whole(options, "startingTimestamp", 0),
            ending_timestamp_ms=_whole(options, "endingTimestamp", 0),
            fail_on_data_loss=_truth(options, "failOnDataLoss", True),
            min_partitions=_whole(options, "minPartitions", 1) or 1,
            max_partitions=_whole(options, "maxPartitions", 1),
            split_bytes=_whole(options, "splitBytes", 1) or DEFAULT_SPLIT_BYTES,
            where=options.get("where"),
            on_corrupt_record=_on_corrupt_record(options.get("onCorruptRecord", "fail")),
            verify_checksum=_truth(options, "verifyChecksum", True),
            columns=tuple(_list(options["columns"], "columns")) if "columns" in options else None,
            broker_names=tuple(_list(options["brokerName"], "brokerName")) if "brokerName" in options else (),
            push_filters=_truth(options, "pushFilters", False),
        )


def _by_name(given: Mapping[str, str]) -> dict[str, str]:
    """The options under their documented names; a misspelt one is an error rather than without effect."""
    known = {name.lower(): name for name in NAMES}
    options = {}
    for name, value in given.items():
        if name.lower() in known:
            options[known[name.lower()]] = value
            continue
        near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.8)
        if near:
            raise UsageError(f"unknown option {name}", hint=f"did you mean {known[near[0]]}?")
    return options


def _paths(options: Mapping[str, str]) -> tuple[str, ...]:
    # load() with a list gives its paths as JSON.
    paths = json.loads(options["paths"]) if "paths" in options else _list(options.get("path", ""), "path")
    if not paths:
        raise UsageError("no store to read", hint='load("DIRECTORY"), or option path')
    return tuple(str(path) for path in paths)


def _list(text: str, name: str) -> list[str]:
    values = [value for part in text.split(",") if (value := part.strip())]
    if not values and name != "path":
        raise _bad(name, "names separated by commas", text)
    return values


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise _bad("subscribePattern", "a regular expression", f"{text!r}: {error}") from None
    return text


def _json_object(name: str, text: str, example: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise _bad(name, f"JSON such as {example}", text)
    return value


def _assign(text: str) -> frozenset[tuple[str, int]]:
    example = '{"orders": [0, 1]}'
    queues: set[tuple[str, int]] = set()
    for topic, ids in _json_object("assign", text, example).items():
        if not isinstance(ids, list) or not all(_is_whole(one) and one >= 0 for one in ids):
            raise _bad("assign", f"JSON such as {example}", text)
        queues.update((topic, one) for one in ids)
    return frozenset(queues)


def _offsets(options: Mapping[str, str], name: str, all_of_it: str, barred: int) -> OffsetBounds:
    """Offsets by queue; ``all_of_it`` is the word for no bound, ``barred`` the number that makes no sense here."""
    text = options.get(name, all_of_it).strip()
    if text.lower() == all_of_it:
        return OffsetBounds()
    example = '{"orders": {"0": 23}}'
    found: list[tuple[str, str | None, int, int]] = []
    for topic, broker, queue, offset in _flat(_json_object(name, text, f"{example}, or {all_of_it}")):
        if not queue.isdecimal() or not isinstance(offset, int) or isinstance(offset, bool) or offset < EARLIEST:
            raise _bad(name, f"JSON such as {example}, or {all_of_it}", text)
        if offset == barred:
            raise _bad(name, f"offsets other than {barred}, which would read nothing in a batch", text)
        if offset >= 0:
            found.append((topic, broker, int(queue), offset))
    return OffsetBounds(tuple(found))


def _flat(by_topic: dict[str, Any]) -> Iterator[tuple[str, str | None, str, object]]:
    """(topic, broker or None, queue id, offset) of JSON with or without a level for brokers; no checks."""
    for topic, inner in by_topic.items():
        for key, value in inner.items() if isinstance(inner, dict) else [("", inner)]:
            if isinstance(value, dict):
                for queue, offset in value.items():
                    yield topic, key, queue, offset
            else:
                yield topic, None, key, value


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _whole(options: Mapping[str, str], name: str, least: int) -> int | None:
    if name not in options:
        return None
    text = options[name].strip()
    if not text.isdecimal() or int(text) < least:
        raise _bad(name, f"a whole number, {least} or more", text)
    return int(text)


def _truth(options: Mapping[str, str], name: str, default: bool) -> bool:
    text = options.get(name, str(default)).strip().lower()
    if text not in ("true", "false"):
        raise _bad(name, "true or false", text)
    return text == "true"


def _on_corrupt_record(text: str) -> OnCorruptRecord:
    try:
        return OnCorruptRecord(text.strip().lower())
    except ValueError:
        raise _bad("onCorruptRecord", "fail, skip or keep", text) from None


def _bad(name: str, expected: str, found: str) -> UsageError:
    return UsageError(f"option {name} has a value that cannot be meant", expected=expected, found=found)
