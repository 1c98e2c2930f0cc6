"""What a conversion may be told."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mqstore.errors import UsageError
from mqstore.kafka.arguments import check_flags, check_number
from mqstore.layout.constants import INT_MAX

_MAX_NAMES: Final = 20


class Aborted(str, enum.Enum):
    """What becomes of records of aborted transactions."""

    OMIT = "omit"
    """They are left out and counted."""
    ROLLBACK = "rollback"
    """They become messages of rolled back transactions: in the log, in no queue."""


@dataclass(frozen=True)
class ConvertOptions:
    """Choices for both directions.

    Attributes:
        topics: a regular expression; topics whose whole name it does not match are left alone. None takes all.
        names: names that topics of the source get in the result, where they are not to get them by rule.
        internal: also topics that the brokers themselves keep: offsets, transactions, schedules, traces.
        aborted: what becomes of records of aborted transactions.
        skip_damage: go on behind damaged batches, with a count in the report, instead of refusing.
        store_settings: settings of the RocketMQ store made: file sizes, as :class:`mqstore.StoreConfig` names them.
        kafka_settings: settings of the Kafka log made: ``segment_bytes``, ``index_interval_bytes``,
            ``compression_type``, ``batch_size`` and others, as :class:`mqstore.kafka.KafkaConfig` names them.
        offsets_topic_partitions: how many partitions ``__consumer_offsets`` has in the Kafka cluster
            (``offsets.topic.num.partitions``): by it a group's commits have their place.
    """

    topics: str | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    internal: bool = True
    aborted: Aborted = Aborted.OMIT
    skip_damage: bool = False
    store_settings: Mapping[str, Any] = field(default_factory=dict)
    kafka_settings: Mapping[str, Any] = field(default_factory=dict)
    offsets_topic_partitions: int = 50

    def __post_init__(self) -> None:
        try:
            re.compile("" if self.topics is None else self.topics)
            if isinstance(self.topics, bytes):
                raise TypeError("bytes are no names")
        except (re.error, TypeError) as error:
            raise UsageError(
                "not a regular expression", found=f"{self.topics!r}: {error}"[:200], hint="r'orders\\..*', for example"
            ) from None
        try:
            object.__setattr__(self, "aborted", Aborted(self.aborted))
        except ValueError:
            known = " or ".join(one.value for one in Aborted)
            raise UsageError(
                "no such way with aborted records", expected=known, found=repr(self.aborted)[:80]
            ) from None
        for what in ("names", "store_settings", "kafka_settings"):
            check_mapping(what, getattr(self, what))
        for old, new in self.names.items():
            given: object = new
            if not isinstance(given, str):
                raise UsageError("a topic's name is text", expected="{'old': 'new'}", found=f"{old!r}: {new!r}"[:80])
        check_flags(internal=self.internal, skip_damage=self.skip_damage)
        check_number("offsets_topic_partitions", self.offsets_topic_partitions, 1, INT_MAX)

    @classmethod
    def given(cls, options: object) -> ConvertOptions:
        """The options that were given; those that hold without, for None; UsageError for anything else."""
        if options is not None and not isinstance(options, cls):
            raise UsageError(
                "no options of a conversion", expected="ConvertOptions", found=repr(options)[:80],
                hint="mqstore.convert.ConvertOptions(topics=..., names=...)",
            )  # fmt: skip
        return cls() if options is None else options

    def check_topics(self, known: Iterable[str]) -> None:
        """Raise UsageError when there are topics, of which :attr:`topics` matches none."""
        names = sorted(set(known))
        if self.topics is not None and names and not any(re.fullmatch(self.topics, name) for name in names):
            more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
            raise UsageError(
                "no topic matches", expected=f"one of {', '.join(names[:_MAX_NAMES])}{more}", found=self.topics
            )

    def wants(self, topic: str, internal: bool) -> bool:
        """Whether a topic is to be converted; ``internal`` says that brokers keep it for themselves."""
        return (self.internal or not internal) and (self.topics is None or re.fullmatch(self.topics, topic) is not None)


def check_mapping(what: str, value: object) -> None:
    """Raise UsageError unless ``value`` gives things by name."""
    if not (isinstance(value, Mapping) and all(isinstance(name, str) for name in value)):
        raise UsageError(f"{what} are given by name", expected="{'name': value}", found=repr(value)[:80])
