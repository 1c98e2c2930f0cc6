"""The options of ``spark.read.format("rocketmq")``: names, meanings and refusals (docs/spark.md)."""

from __future__ import annotations

import enum
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from mqstore.errors import UsageError
from mqstore.spark import option_values as values
from mqstore.spark.condition import Condition
from mqstore.spark.option_values import DEFAULT_SPLIT_BYTES, EARLIEST, LATEST

Source = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
"""What jobs read: a store, a glob or a URL, or several."""

_IN_ARGUMENTS: Final = {
    "path": "name the stores in source",
    "paths": "name the stores in source",
    "pushfilters": "Spark hands on no filters here; choose rows by the other options",
}
"""Options that make no sense where a program calls us and not Spark, and what to do instead."""

_STREAM_ONLY: Final = (
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "discoveryInterval",
    "startingGroup",
)
_BATCH_ONLY: Final = ("endingOffsets", "endingTimestamp", "pushFilters", "maxPartitions", "keys", "plan")
_CHOICES: Final = (
    *values.SUBSCRIPTIONS,
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "where",
    "keys",
)
"""What picks rows of the messages."""
_CHOICES_OF_VIEWS: Final[Mapping[str, tuple[str, ...]]] = {
    "queues": (*values.SUBSCRIPTIONS, "startingOffsets", "endingOffsets"),
    "progress": values.SUBSCRIPTIONS,
    "index": (),
    "files": (),
}
"""Which of them pick rows of the other views, too."""
NAMES: Final = (
    "path",
    "paths",
    "view",
    *values.SUBSCRIPTIONS,
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    values.STRATEGY,
    *_STREAM_ONLY,
    "failOnDataLoss",
    "minPartitions",
    "maxPartitions",
    "splitBytes",
    "where",
    "keys",
    "plan",
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
    """As ``skip``, but give records of which only the body's checksum is wrong, and say so in ``corruptReason``."""


class Plan(str, enum.Enum):
    """How a batch gets at the messages it wants."""

    AUTO = "auto"
    """By queues or the index where that means fewer bytes, else through the log."""
    SCAN = "scan"
    """Through the log."""
    QUEUES = "queues"
    """By queues or the index wherever they can be trusted."""


@dataclass(frozen=True)
class OffsetBounds:
    """Queue offsets: (topic, broker name or None for all, queue id, offset).

    In a stream offsets may be ``EARLIEST`` and ``LATEST``; ``default`` is the one that holds for queues not named.
    """

    offsets: tuple[tuple[str, str | None, int, int], ...] = ()
    default: int = EARLIEST

    def of(self, broker_name: str) -> dict[tuple[str, int], int]:
        """The offsets that hold for one broker, by topic and queue id; those naming it win."""
        general = {(topic, queue): at for topic, broker, queue, at in self.offsets if broker is None}
        own = {(topic, queue): at for topic, broker, queue, at in self.offsets if broker == broker_name}
        return {**general, **own}


@dataclass(frozen=True)
class ReadOptions:
    """The options of one read, checked."""

    paths: tuple[str, ...] = field(repr=False)  # of URLs, secrets may stand in them
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
    keys: frozenset[str] | None = None
    plan: Plan = Plan.AUTO
    on_corrupt_record: OnCorruptRecord = OnCorruptRecord.FAIL
    verify_checksum: bool = True
    columns: tuple[str, ...] | None = None
    broker_names: tuple[str, ...] = ()
    push_filters: bool = False
    latest_if_no_match: bool = False
    max_offsets_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = 0
    discovery_interval_ms: int | None = None
    starting_group: str | None = None

    @property
    def check_crc(self) -> bool:
        """Whether a wrong body checksum is damage."""
        return self.verify_checksum and self.on_corrupt_record is not OnCorruptRecord.KEEP

    @property
    def keeps_corrupt(self) -> bool:
        """Whether records with a wrong body checksum are rows, and told from the others."""
        return self.verify_checksum and self.on_corrupt_record is OnCorruptRecord.KEEP

    @classmethod
    def of(
        cls, source: Source, options: Mapping[str, object] | None = None, columns: str | Iterable[str] | None = None
    ) -> ReadOptions:
        """What a program asks for in arguments; as :func:`from_arguments` and :meth:`parse` take it."""
        return cls.parse(from_arguments(source, options, columns))

    @classmethod
    def parse(cls, given: Mapping[str, object], streaming: bool = False) -> ReadOptions:
        """Check the options of a read.

        Raises:
            UsageError: a value that cannot be meant, options that exclude each other or make no sense in a batch or a
                stream, or a name that there is not.
        """
        options = values.by_name(given, NAMES)
        values.check_one_subscription(options)
        values.refuse(options, _BATCH_ONLY if streaming else _STREAM_ONLY, "a stream" if streaming else "a batch")
        view = options.get("view", "messages").strip().lower()
        obeyed = _CHOICES_OF_VIEWS.get(view, _CHOICES)
        values.refuse(options, [name for name in _CHOICES if name not in obeyed], f"view {view}")
        Condition.parse(options.get("where"))
        pattern = options.get("subscribePattern")
        starting = _stream_start(options) if streaming else _offsets(options, "startingOffsets", "earliest", LATEST)
        return cls(
            paths=values.paths(options, "store"),
            view=view,
            topics=frozenset(values.names(options["subscribe"], "subscribe")) if "subscribe" in options else None,
            topic_pattern=None if pattern is None else values.pattern(pattern, "subscribePattern"),
            queues=values.assigned(options["assign"]) if "assign" in options else None,
            starting=starting,
            ending=_offsets(options, "endingOffsets", "latest", EARLIEST),
            starting_timestamp_ms=values.whole(options, "startingTimestamp", 0),
            ending_timestamp_ms=values.whole(options, "endingTimestamp", 0),
            fail_on_data_loss=values.truth(options, "failOnDataLoss", True),
            min_partitions=values.min_partitions(options),
            max_partitions=values.whole(options, "maxPartitions"),
            split_bytes=values.whole(options, "splitBytes") or DEFAULT_SPLIT_BYTES,
            where=options.get("where"),
            keys=frozenset(values.names(options["keys"], "keys")) if "keys" in options else None,
            plan=Plan(values.word(options, "plan", tuple(Plan))),
            on_corrupt_record=_on_corrupt_record(options.get("onCorruptRecord", "fail")),
            verify_checksum=values.truth(options, "verifyChecksum", True),
            columns=tuple(values.names(options["columns"], "columns")) if "columns" in options else None,
            broker_names=tuple(values.names(options["brokerName"], "brokerName")) if "brokerName" in options else (),
            push_filters=values.truth(options, "pushFilters", False),
            latest_if_no_match=values.word(options, values.STRATEGY, values.STRATEGIES) == "latest",
            max_offsets_per_trigger=values.whole(options, "maxOffsetsPerTrigger"),
            max_bytes_per_trigger=values.whole(options, "maxBytesPerTrigger"),
            min_offsets_per_trigger=values.whole(options, "minOffsetsPerTrigger"),
            max_trigger_delay_ms=values.delay_ms(options, "maxTriggerDelay", "15m"),
            discovery_interval_ms=values.interval_ms(options, "discoveryInterval"),
            starting_group=_group(options),
        )


def from_arguments(
    source: Source, options: Mapping[str, object] | None = None, columns: str | Iterable[str] | None = None
) -> dict[str, object]:
    """What a program asks for in arguments, all of it as options of the source.

    Args:
        source: a store, a glob or a URL, or several.
        options: options but for those that :data:`_IN_ARGUMENTS` has.
        columns: the columns, as "topic,body" or one by one; None leaves them to the options.

    Raises:
        UsageError: something is no path, no column or no option of a program.
    """
    if not isinstance(options, Mapping | None):
        raise UsageError("options are none", expected="a dict", found=repr(options)[:80])
    found = dict(options or {})
    for name in found:
        reason = _IN_ARGUMENTS.get(str(name).lower())
        if reason is None and str(name).lower() == "columns" and columns is not None:
            reason = "the argument columns names them, too: give one of the two"
        if reason is not None:
            raise UsageError(f"option {name} is not taken here", hint=reason)
    found["paths"] = values.listed_paths(source)
    if columns is not None:
        found["columns"] = ",".join(values.listed("columns", columns))
    return found


def parse_either(given: Mapping[str, object]) -> ReadOptions:
    """The options while it is not known yet whether they are those of a batch or of a stream.

    Raises:
        UsageError: they make no sense in either.
    """
    try:
        return ReadOptions.parse(given)
    except UsageError as error:
        try:
            return ReadOptions.parse(given, streaming=True)
        except UsageError as in_a_stream:
            raise _what_is_wrong(given, error, in_a_stream) from None


def _what_is_wrong(given: Mapping[str, object], in_a_batch: UsageError, in_a_stream: UsageError) -> UsageError:
    """The error to tell: that of the kind of read that the options are for, if some are for one kind alone."""
    if str(in_a_batch) == str(in_a_stream):
        return in_a_batch
    options = values.by_name(given, NAMES)
    of_streams, of_batches = ([name for name in names if name in options] for names in (_STREAM_ONLY, _BATCH_ONLY))
    if of_streams and of_batches:
        return UsageError(
            "options that exclude each other",
            found=f"{', '.join(of_streams)} of a stream, {', '.join(of_batches)} of a batch",
        )
    begins_late = options.get("startingOffsets", "").strip().lower() == "latest"
    return in_a_stream if of_streams or begins_late else in_a_batch


def _stream_start(options: Mapping[str, str]) -> OffsetBounds:
    """Where a new stream begins: at the end unless told otherwise, as Spark's Kafka source does."""
    text = options.get("startingOffsets", "latest").strip().lower()
    if text in ("earliest", "latest"):
        return OffsetBounds(default=EARLIEST if text == "earliest" else LATEST)
    return _offsets(options, "startingOffsets", "earliest, or latest", None)


def _group(options: Mapping[str, str]) -> str | None:
    """The consumer group whose place a new stream takes; only one thing can say where it begins."""
    name = options.get("startingGroup")
    if name is not None and (not name.strip() or "startingTimestamp" in options):
        raise values.bad("startingGroup", "the name of a group, and no startingTimestamp beside it", name)
    return None if name is None else name.strip()


def _offsets(options: Mapping[str, str], name: str, all_of_it: str, barred: int | None) -> OffsetBounds:
    """Offsets by queue; ``all_of_it`` is the word for no bound, ``barred`` the number that makes no sense here, None in
    a stream.
    """
    text = options.get(name, all_of_it).strip()
    if text.lower() == all_of_it:
        return OffsetBounds()
    example = '{"orders": {"0": 23}}'
    found: list[tuple[str, str | None, int, int]] = []
    for topic, broker, queue, offset in _flat(values.json_object(name, text, f"{example}, or {all_of_it}")):
        if not values.is_queue_number(queue) or not values.is_long(offset, EARLIEST):
            raise values.bad(name, f"JSON such as {example}, or {all_of_it}", text)
        if offset == barred:
            raise values.bad(name, f"offsets other than {barred}, which would read nothing in a batch", text)
        if offset >= 0 or barred is None:
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


def _on_corrupt_record(text: str) -> OnCorruptRecord:
    try:
        return OnCorruptRecord(text.strip().lower())
    except ValueError:
        raise values.bad("onCorruptRecord", "fail, skip or keep", text) from None
