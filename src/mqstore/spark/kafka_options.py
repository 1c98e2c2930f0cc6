"""The options of ``spark.read.format("kafkalog")`` and of ``readStream``: those of Spark's own Kafka source, where they
make sense without a broker (docs/kafka.md).
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mqstore.errors import UsageError

DEFAULT_SPLIT_BYTES: Final = 256 << 20
EARLIEST: Final = -2
"""In offset JSON: the partition's first record."""
LATEST: Final = -1
"""In offset JSON: the partition's end."""

Partition = tuple[str, int]
"""Topic and number."""

_SUBSCRIPTIONS: Final = ("assign", "subscribe", "subscribePattern")
NAMES: Final = (
    "path",
    "paths",
    *_SUBSCRIPTIONS,
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "failOnDataLoss",
    "maxOffsetsPerTrigger",
    "minPartitions",
    "includeHeaders",
    "kafka.isolation.level",
    "splitBytes",
    "onCorruptBatch",
)
"""Every option, as it is written in the documentation; Spark compares names without regard to case."""

WITHOUT_EFFECT: Final = (
    "kafka.bootstrap.servers",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "groupIdPrefix",
    "kafka.group.id",
)
"""Options of Spark's Kafka source about talking to brokers: passed over, so that a query changes its format alone."""

_REFUSED: Final = ("minOffsetsPerTrigger", "maxTriggerDelay", "maxRecordsPerPartition")
"""Options of Spark's Kafka source that would change what a batch holds, and that this source does not have."""


@dataclass(frozen=True)
class Bound:
    """Where partitions begin or end. Of the three the first that is set counts.

    Attributes:
        timestamp_ms: at this time in every partition.
        by_timestamp: at a time of its own in each partition.
        by_offset: at an offset of its own in each partition; :data:`EARLIEST` and :data:`LATEST` are offsets, too.
        default: :data:`EARLIEST` or :data:`LATEST`, where none of them is set.
    """

    default: int
    timestamp_ms: int | None = None
    by_timestamp: Mapping[Partition, int] | None = None
    by_offset: Mapping[Partition, int] | None = None

    def named(self) -> Mapping[Partition, int] | None:
        """What is said of single partitions, if that is what counts."""
        if self.timestamp_ms is not None:
            return None
        return self.by_timestamp if self.by_timestamp is not None else self.by_offset


@dataclass(frozen=True)
class KafkaReadOptions:
    """The options of one read, checked."""

    paths: tuple[str, ...]
    streaming: bool = False
    topics: frozenset[str] | None = None
    topic_pattern: str | None = None
    partitions: frozenset[Partition] | None = None
    starting: Bound = field(default_factory=lambda: Bound(EARLIEST))
    ending: Bound = field(default_factory=lambda: Bound(LATEST))
    latest_if_no_match: bool = False
    fail_on_data_loss: bool = True
    max_offsets_per_trigger: int | None = None
    min_partitions: int = 1
    include_headers: bool = False
    read_committed: bool = False
    split_bytes: int = DEFAULT_SPLIT_BYTES
    skip_corrupt: bool = False

    def wants(self, topic: str, partition: int) -> bool:
        """Whether the read is for this partition."""
        return (
            (self.topics is None or topic in self.topics)
            and (self.topic_pattern is None or re.fullmatch(self.topic_pattern, topic) is not None)
            and (self.partitions is None or (topic, partition) in self.partitions)
        )

    @classmethod
    def parse(cls, given: Mapping[str, str], streaming: bool = False) -> KafkaReadOptions:
        """Check the options of a read.

        Raises:
            UsageError: a value that cannot be meant, options that exclude each other or make no sense in a batch or a
                stream, or a name that is nearly one of ours.
        """
        options = _by_name(given)
        chosen = [name for name in _SUBSCRIPTIONS if name in options]
        if len(chosen) > 1:
            raise UsageError(
                "options that exclude each other", found=", ".join(chosen), hint=f"give one of {', '.join(chosen)}"
            )
        if streaming:
            _refuse(options, ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"), "a stream")
        else:
            _refuse(options, ("maxOffsetsPerTrigger",), "a batch")
        pattern = options.get("subscribePattern")
        return cls(
            paths=_paths(options),
            streaming=streaming,
            topics=frozenset(_list(options["subscribe"], "subscribe")) if "subscribe" in options else None,
            topic_pattern=None if pattern is None else _pattern(pattern),
            partitions=_assign(options["assign"]) if "assign" in options else None,
            starting=_starting(options, streaming),
            ending=_bound(options, "ending", LATEST, barred=EARLIEST),
            latest_if_no_match=_word(options, "startingOffsetsByTimestampStrategy", ("error", "latest")) == "latest",
            fail_on_data_loss=_truth(options, "failOnDataLoss", True),
            max_offsets_per_trigger=_whole(options, "maxOffsetsPerTrigger"),
            min_partitions=_whole(options, "minPartitions") or 1,
            include_headers=_truth(options, "includeHeaders", False),
            read_committed=_word(options, "kafka.isolation.level", ("read_uncommitted", "read_committed"))
            == "read_committed",
            split_bytes=_whole(options, "splitBytes") or DEFAULT_SPLIT_BYTES,
            skip_corrupt=_word(options, "onCorruptBatch", ("fail", "skip")) == "skip",
        )


def _by_name(given: Mapping[str, str]) -> dict[str, str]:
    known = {name.lower(): name for name in NAMES}
    passed_over = {name.lower() for name in WITHOUT_EFFECT}
    refused = {name.lower() for name in _REFUSED}
    options = {}
    for name, value in given.items():
        lower = name.lower()
        if lower in known:
            options[known[lower]] = value
        elif lower in refused:
            raise UsageError(f"option {name} is one that this source does not have", hint="see docs/kafka.md")
        elif lower not in passed_over:
            near = difflib.get_close_matches(lower, known, n=1, cutoff=0.8)
            if near:
                raise UsageError(f"unknown option {name}", hint=f"did you mean {known[near[0]]}?")
    return options


def _refuse(options: Mapping[str, str], names: tuple[str, ...], where: str) -> None:
    for name in names:
        if name in options:
            raise UsageError(f"option {name} makes no sense in {where}")


def _paths(options: Mapping[str, str]) -> tuple[str, ...]:
    # load() with a list gives its paths as JSON.
    paths = json.loads(options["paths"]) if "paths" in options else _list(options.get("path", ""), "path")
    if not paths:
        raise UsageError("no data directory to read", hint='load("DIRECTORY"), or option path')
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


def _assign(text: str) -> frozenset[Partition]:
    example = '{"orders": [0, 1]}'
    found: set[Partition] = set()
    for topic, numbers in _json_object("assign", text, example).items():
        if not isinstance(numbers, list) or not all(_is_whole(one) and one >= 0 for one in numbers):
            raise _bad("assign", f"JSON such as {example}", text)
        found.update((topic, one) for one in numbers)
    return frozenset(found)


def _starting(options: Mapping[str, str], streaming: bool) -> Bound:
    return _bound(options, "starting", LATEST if streaming else EARLIEST, barred=None if streaming else LATEST)


def _bound(options: Mapping[str, str], side: str, default: int, barred: int | None) -> Bound:
    name = f"{side}Offsets"
    text = options.get(name, "").strip()
    by_offset = None
    words = {"earliest": EARLIEST, "latest": LATEST}
    if text.lower() in words:
        default = words[text.lower()]
        if default == barred:
            raise _bad(name, "another word: this one would read nothing in a batch", text)
    elif text:
        by_offset = _by_partition(name, text, '{"orders": {"0": 23, "1": -2}}', EARLIEST)
        if barred in by_offset.values():
            raise _bad(name, f"offsets other than {barred}, which would read nothing in a batch", text)
    times = f"{side}OffsetsByTimestamp"
    by_timestamp = None
    if times in options:
        by_timestamp = _by_partition(times, options[times], '{"orders": {"0": 1700000000000}}', 0)
    return Bound(default, _whole(options, f"{side}Timestamp", 0), by_timestamp, by_offset)


def _by_partition(name: str, text: str, example: str, least: int) -> dict[Partition, int]:
    found = {}
    for topic, inner in _json_object(name, text, example).items():
        for number, value in inner.items() if isinstance(inner, dict) else [("", inner)]:
            if not number.isdecimal() or not _is_whole(value) or value < least:
                raise _bad(name, f"JSON such as {example}", text)
            found[topic, int(number)] = value
    return found


def _json_object(name: str, text: str, example: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise _bad(name, f"JSON such as {example}", text)
    return value


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _whole(options: Mapping[str, str], name: str, least: int = 1) -> int | None:
    if name not in options:
        return None
    text = options[name].strip()
    if not text.isdecimal() or int(text) < least:
        raise _bad(name, f"a whole number, {least} or more", text)
    return int(text)


def _truth(options: Mapping[str, str], name: str, default: bool) -> bool:
    return _word(options, name, ("true", "false"), str(default).lower()) == "true"


def _word(options: Mapping[str, str], name: str, words: tuple[str, ...], default: str | None = None) -> str:
    text = options.get(name, default or words[0]).strip().lower()
    if text not in words:
        raise _bad(name, " or ".join(words), text)
    return text


def _bad(name: str, expected: str, found: str) -> UsageError:
    return UsageError(f"option {name} has a value that cannot be meant", expected=expected, found=found)
