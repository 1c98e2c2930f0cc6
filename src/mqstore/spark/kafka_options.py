"""The options of ``spark.read.format("kafkalog")`` and of ``readStream``: those of Spark's own Kafka source, where they
make sense without a broker (docs/kafka.md).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from mqstore.spark import option_values as values
from mqstore.spark.option_values import DEFAULT_SPLIT_BYTES, EARLIEST, LATEST

Partition = tuple[str, int]
"""Topic and number."""

NAMES: Final = (
    "path",
    "paths",
    *values.SUBSCRIPTIONS,
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
    "kafka.",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "groupIdPrefix",
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
    def parse(cls, given: Mapping[str, object], streaming: bool = False) -> KafkaReadOptions:
        """Check the options of a read.

        Raises:
            UsageError: a value that cannot be meant, options that exclude each other or make no sense in a batch or a
                stream, or a name that there is not.
        """
        options = values.by_name(given, NAMES, others=WITHOUT_EFFECT, refused=_REFUSED, page="docs/kafka.md")
        values.check_one_subscription(options)
        if streaming:
            values.refuse(options, ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"), "a stream")
        else:
            values.refuse(options, ("maxOffsetsPerTrigger",), "a batch")
        pattern = options.get("subscribePattern")
        return cls(
            paths=values.paths(options, "data directory"),
            streaming=streaming,
            topics=frozenset(values.names(options["subscribe"], "subscribe")) if "subscribe" in options else None,
            topic_pattern=None if pattern is None else values.pattern(pattern, "subscribePattern"),
            partitions=values.assigned(options["assign"]) if "assign" in options else None,
            starting=_starting(options, streaming),
            ending=_bound(options, "ending", LATEST, barred=EARLIEST),
            latest_if_no_match=values.word(options, values.STRATEGY, values.STRATEGIES) == "latest",
            fail_on_data_loss=values.truth(options, "failOnDataLoss", True),
            max_offsets_per_trigger=values.whole(options, "maxOffsetsPerTrigger"),
            min_partitions=values.min_partitions(options),
            include_headers=values.truth(options, "includeHeaders", False),
            read_committed=values.word(options, "kafka.isolation.level", ("read_uncommitted", "read_committed"))
            == "read_committed",
            split_bytes=values.whole(options, "splitBytes") or DEFAULT_SPLIT_BYTES,
            skip_corrupt=values.word(options, "onCorruptBatch", ("fail", "skip")) == "skip",
        )


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
            raise values.bad(name, "another word: this one would read nothing in a batch", text)
    elif text:
        by_offset = _by_partition(name, text, '{"orders": {"0": 23, "1": -2}}', EARLIEST)
        if barred in by_offset.values():
            raise values.bad(name, f"offsets other than {barred}, which would read nothing in a batch", text)
    times = f"{side}OffsetsByTimestamp"
    by_timestamp = None
    if times in options:
        by_timestamp = _by_partition(times, options[times], '{"orders": {"0": 1700000000000}}', 0)
    return Bound(default, values.whole(options, f"{side}Timestamp", 0), by_timestamp, by_offset)


def _by_partition(name: str, text: str, example: str, least: int) -> dict[Partition, int]:
    found = {}
    for topic, inner in values.json_object(name, text, example).items():
        for number, value in inner.items() if isinstance(inner, dict) else [("", inner)]:
            if not values.is_queue_number(number) or not values.is_long(value, least):
                raise values.bad(name, f"JSON such as {example}", text)
            found[topic, int(number)] = value
    return found
