"""The settings files of a store as typed values (docs/format/config-json.md).

Each class reads one file with ``decode`` and writes it with ``encode``. What it does not know is kept and
written back; members stand in alphabetical order, entries of tables in the order in which they were read or
added. ``decode`` raises CorruptConfigError for text that is no JSON, holds a value of a wrong type, or lacks
the table that the file is there for: taking any of these for an empty table would forget what the file held.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final

from mqstore.errors import CorruptConfigError, UsageError
from mqstore.layout import fastjson
from mqstore.layout.config_beans import (
    MULTI_TAG,
    PERM_INHERIT,
    PERM_PRIORITY,
    PERM_READ,
    PERM_WRITE,
    SINGLE_TAG,
    Bean,
    BloomFilterData,
    ConsumerFilterData,
    DataVersion,
    SubscriptionGroupConfig,
    TopicConfig,
    expect,
)
from mqstore.layout.constants import MAX_QUEUES
from mqstore.layout.fastjson import JsonValue

__all__ = [
    "CONSUMER_FILTER_FILE",
    "CONSUMER_OFFSET_FILE",
    "DELAY_OFFSET_FILE",
    "LMQ_CONSUMER_OFFSET_FILE",
    "MULTI_TAG",
    "PERM_INHERIT",
    "PERM_PRIORITY",
    "PERM_READ",
    "PERM_WRITE",
    "SINGLE_TAG",
    "SUBSCRIPTION_GROUP_FILE",
    "TOPICS_FILE",
    "BloomFilterData",
    "ConsumerFilterData",
    "ConsumerFilters",
    "ConsumerOffsets",
    "DataVersion",
    "DelayOffsets",
    "SubscriptionGroupConfig",
    "SubscriptionGroups",
    "TopicConfig",
    "TopicConfigs",
    "offset_key",
    "split_offset_key",
]

TOPICS_FILE: Final = "topics.json"
SUBSCRIPTION_GROUP_FILE: Final = "subscriptionGroup.json"
CONSUMER_OFFSET_FILE: Final = "consumerOffset.json"
LMQ_CONSUMER_OFFSET_FILE: Final = "lmqConsumerOffset.json"
DELAY_OFFSET_FILE: Final = "delayOffset.json"
CONSUMER_FILTER_FILE: Final = "consumerFilter.json"


Extra = dict[str | int, JsonValue]


def _document(data: bytes | str, table: str) -> tuple[Extra, Extra]:
    """The members of a settings file, and of its main table, which is taken out."""
    document = dict(expect(fastjson.loads(data), dict, "the top"))
    if (entries := document.pop(table, None)) is None:
        raise CorruptConfigError("settings lack their table", expected=table, found=", ".join(map(str, document))[:80])
    return document, expect(entries, dict, table)


def _version(document: Extra) -> DataVersion | None:
    member = document.pop("dataVersion", None)
    return None if member is None else DataVersion.from_json(member, "dataVersion")


def _map(entries: Mapping[str, JsonValue] | Mapping[int, int] | Mapping[str, int]) -> Extra:
    return {**entries}  # type: ignore[dict-item]


def _text(extra: Extra, version: DataVersion | None, **members: JsonValue) -> bytes:
    document = Extra(extra) | Extra(members)
    if version is not None:
        document["dataVersion"] = version.to_json()
    return fastjson.dumps({name: document[name] for name in sorted(document, key=str)}).encode()


def _beans(table: Mapping[str, Bean]) -> JsonValue:
    return {name: bean.to_json() for name, bean in table.items()}


def _offsets(value: JsonValue, where: str) -> dict[int, int]:
    """A map from queue id or delay level to an offset; its keys may stand in quotes.

    An offset below 0 is none and counts as 0: from the first message on none is passed over.
    """
    found: dict[int, int] = {}
    for key, offset in expect(value, dict, where).items():
        number = key if isinstance(key, int) else _quoted_number(key, where)
        if number in found or number < 0:
            raise CorruptConfigError(f"settings hold a wrong number at {where}", found=key)
        found[number] = max(0, expect(offset, int, f"{where}.{key}"))
    return found


def _quoted_number(key: str, where: str) -> int:
    if not (key.isascii() and key.isdigit() and len(key) <= 10):
        raise CorruptConfigError(f"settings hold a wrong number at {where}", found=repr(key)[:80])
    return int(key)


def _topic(entry: JsonValue, where: str) -> TopicConfig:
    topic = TopicConfig.from_json(entry, where)
    # Whoever puts goes through all queues in turn: a number that only damage can have made takes all memory there.
    if max(topic.read_queue_nums, topic.write_queue_nums) > MAX_QUEUES:
        counts = f"{topic.read_queue_nums} to read, {topic.write_queue_nums} to write"
        raise CorruptConfigError(f"too many queues at {where}", expected=f"at most {MAX_QUEUES}", found=counts)
    return topic


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfigs:
    """``topics.json``: the topics by name."""

    TABLE: ClassVar[str] = "topicConfigTable"

    topics: dict[str, TopicConfig] = field(default_factory=dict)
    data_version: DataVersion = field(default_factory=DataVersion)
    extra: Extra = field(default_factory=dict)

    @classmethod
    def decode(cls, data: bytes | str) -> TopicConfigs:
        """Read the file; see the module for what it raises."""
        extra, table = _document(data, cls.TABLE)
        topics = {str(name): _topic(entry, f"{cls.TABLE}.{name}") for name, entry in table.items()}
        return cls(topics=topics, data_version=_version(extra) or DataVersion(), extra=extra)

    def encode(self) -> bytes:
        """The file's bytes."""
        return _text(self.extra, self.data_version, **{self.TABLE: _beans(self.topics)})


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionGroups:
    """``subscriptionGroup.json``: the consumer groups by name."""

    TABLE: ClassVar[str] = "subscriptionGroupTable"

    groups: dict[str, SubscriptionGroupConfig] = field(default_factory=dict)
    data_version: DataVersion = field(default_factory=DataVersion)
    extra: Extra = field(default_factory=dict)

    @classmethod
    def decode(cls, data: bytes | str) -> SubscriptionGroups:
        """Read the file; see the module for what it raises."""
        extra, table = _document(data, cls.TABLE)
        groups = {
            str(name): SubscriptionGroupConfig.from_json(entry, f"{cls.TABLE}.{name}") for name, entry in table.items()
        }
        return cls(groups=groups, data_version=_version(extra) or DataVersion(), extra=extra)

    def encode(self) -> bytes:
        """The file's bytes."""
        return _text(self.extra, self.data_version, **{self.TABLE: _beans(self.groups)})


def offset_key(topic: str, group: str) -> str:
    """The name under which a group's progress on a topic is kept. Raises UsageError for a group with an
    ``@``.
    """
    if "@" in group:
        raise UsageError("a group that holds an @ cannot be told from its topic", found=repr(group))
    return f"{topic}@{group}"


def split_offset_key(key: str) -> tuple[str, str]:
    """(topic, group) of such a name. Raises UsageError when it has no ``@``."""
    topic, separator, group = key.rpartition("@")
    if not separator:
        raise UsageError("no topic@group", found=repr(key)[:80])
    return topic, group


def _checked_key(key: str | int, where: str) -> str:
    if "@" not in str(key):
        raise CorruptConfigError(f"settings hold no topic@group at {where}", found=repr(key)[:80])
    return str(key)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOffsets:
    """``consumerOffset.json``: the next queue offset to consume, by ``topic@group`` and queue id.

    ``lmq_offsets`` is the second table of ``lmqConsumerOffset.json``, by ``topic@group``; None elsewhere. The
    data version is written by 5.x only.
    """

    TABLE: ClassVar[str] = "offsetTable"
    LMQ_TABLE: ClassVar[str] = "lmqOffsetTable"

    offsets: dict[str, dict[int, int]] = field(default_factory=dict)
    lmq_offsets: dict[str, int] | None = None
    data_version: DataVersion | None = None
    extra: Extra = field(default_factory=dict)

    @classmethod
    def decode(cls, data: bytes | str) -> ConsumerOffsets:
        """Read the file; see the module for what it raises."""
        extra, table = _document(data, cls.TABLE)
        offsets = {_checked_key(key, cls.TABLE): _offsets(entry, f"{cls.TABLE}.{key}") for key, entry in table.items()}
        lmq_offsets = None
        if (lmq_table := extra.pop(cls.LMQ_TABLE, None)) is not None:
            entries = expect(lmq_table, dict, cls.LMQ_TABLE)
            lmq_offsets = {
                _checked_key(key, cls.LMQ_TABLE): max(0, expect(value, int, f"{cls.LMQ_TABLE}.{key}"))
                for key, value in entries.items()
            }
        return cls(offsets=offsets, lmq_offsets=lmq_offsets, data_version=_version(extra), extra=extra)

    def encode(self) -> bytes:
        """The file's bytes."""
        tables: dict[str, JsonValue] = {self.TABLE: {key: _map(queues) for key, queues in self.offsets.items()}}
        if self.lmq_offsets is not None:
            tables[self.LMQ_TABLE] = _map(self.lmq_offsets)
        return _text(self.extra, self.data_version, **tables)


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayOffsets:
    """``delayOffset.json``: the next queue offset to deliver by delay level (queue id + 1)."""

    TABLE: ClassVar[str] = "offsetTable"

    offsets: dict[int, int] = field(default_factory=dict)
    data_version: DataVersion | None = None
    extra: Extra = field(default_factory=dict)

    @classmethod
    def decode(cls, data: bytes | str) -> DelayOffsets:
        """Read the file; see the module for what it raises."""
        extra, table = _document(data, cls.TABLE)
        return cls(offsets=_offsets(table, cls.TABLE), data_version=_version(extra), extra=extra)

    def encode(self) -> bytes:
        """The file's bytes."""
        return _text(self.extra, self.data_version, **{self.TABLE: _map(self.offsets)})


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerFilters:
    """``consumerFilter.json``: the filters that are no tag expressions, by topic and consumer group.

    ``topic_extras`` are members that this release of mqstore gives no meaning to, by topic.
    """

    TABLE: ClassVar[str] = "filterDataByTopic"
    GROUPS: ClassVar[str] = "groupFilterData"

    filters: dict[str, dict[str, ConsumerFilterData]] = field(default_factory=dict)
    topic_extras: dict[str, Extra] = field(default_factory=dict)
    extra: Extra = field(default_factory=dict)

    @classmethod
    def decode(cls, data: bytes | str) -> ConsumerFilters:
        """Read the file; see the module for what it raises."""
        extra, table = _document(data, cls.TABLE)
        filters: dict[str, dict[str, ConsumerFilterData]] = {}
        topic_extras: dict[str, Extra] = {}
        for key, entry in table.items():
            topic, where = str(key), f"{cls.TABLE}.{key}"
            members = dict(expect(entry, dict, where))
            groups = expect(members.pop(cls.GROUPS, None), dict, f"{where}.{cls.GROUPS}")
            filters[topic] = {
                str(group): ConsumerFilterData.from_json(data_of_group, f"{where}.{group}")
                for group, data_of_group in groups.items()
            }
            topic_extras[topic] = {name: member for name, member in members.items() if name != "topic"}
        return cls(filters=filters, topic_extras=topic_extras, extra=extra)

    def encode(self) -> bytes:
        """The file's bytes."""
        table: dict[str | int, JsonValue] = {
            topic: {self.GROUPS: _beans(groups), "topic": topic, **self.topic_extras.get(topic, {})}
            for topic, groups in self.filters.items()
        }
        return _text(self.extra, None, **{self.TABLE: table})
