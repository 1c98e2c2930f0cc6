"""The maps with fixed members that settings files are made of: topics, groups, filters, versions.

Members that a later release added are kept in ``extra`` and written back (docs/format/config-json.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, TypeVar

from mqstore.errors import CorruptConfigError
from mqstore.layout.constants import LONG_MAX
from mqstore.layout.fastjson import JsonValue

PERM_PRIORITY: Final = 8
PERM_READ: Final = 4
PERM_WRITE: Final = 2
PERM_INHERIT: Final = 1

SINGLE_TAG: Final = "SINGLE_TAG"
MULTI_TAG: Final = "MULTI_TAG"

Extra = dict[str | int, JsonValue]
_BeanT = TypeVar("_BeanT", bound="Bean")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bean:
    """Values of one JSON map with fixed members."""

    MEMBERS: ClassVar[Mapping[str, tuple[str, type]]] = {}
    """Member of the JSON map -> (attribute, type)."""

    extra: Extra = field(default_factory=dict)
    """Members that this release of mqstore gives no meaning to."""

    @classmethod
    def from_json(cls: type[_BeanT], value: JsonValue, where: str) -> _BeanT:
        """Read one map; a missing or null member keeps its default.

        Raises CorruptConfigError when ``value`` is no map or a member has another type; ``where`` names the
        place.
        """
        members = dict(expect(value, dict, where))
        known = {
            attribute: member_type.from_json(member, f"{where}.{name}")
            if issubclass(member_type, Bean)
            else expect(member, member_type, f"{where}.{name}")
            for name, (attribute, member_type) in cls.MEMBERS.items()
            if (member := members.pop(name, None)) is not None
        }
        return cls(**known, extra=members)

    def to_json(self) -> dict[str | int, JsonValue]:
        """The map to write; members that are None are left out."""
        known = {name: getattr(self, attribute) for name, (attribute, _) in self.MEMBERS.items()}
        members = self.extra | {
            name: value.to_json() if isinstance(value, Bean) else value for name, value in known.items()
        }
        return {name: members[name] for name in sorted(members, key=str) if members[name] is not None}


def expect(value: JsonValue, kind: type, where: str) -> Any:
    """Return ``value``; raises CorruptConfigError unless it is of this type.

    A bool is no int, and a list is one of ints.
    """
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise CorruptConfigError(
            f"settings hold a wrong value at {where}", expected=kind.__name__, found=repr(value)[:80]
        )
    if isinstance(value, list):
        for member in value:
            expect(member, int, where)
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class DataVersion(Bean):
    """Which of two copies of a settings file is newer; ``state_version`` is written by 5.x only."""

    MEMBERS: ClassVar[Mapping[str, tuple[str, type]]] = {
        "counter": ("counter", int),
        "stateVersion": ("state_version", int),
        "timestamp": ("timestamp_ms", int),
    }
    counter: int = 0
    timestamp_ms: int = 0
    state_version: int | None = None

    def next(self, now_ms: int) -> DataVersion:
        """The version of a change made at ``now_ms``. Behind the last number that a file can hold comes 0."""
        counter = 0 if self.counter >= LONG_MAX else self.counter + 1
        return replace(self, counter=counter, timestamp_ms=now_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig(Bean):
    """One topic. ``perm`` adds up PERM_* bits; ``attributes`` is written by 5.x only."""

    MEMBERS: ClassVar[Mapping[str, tuple[str, type]]] = {
        "attributes": ("attributes", dict),
        "order": ("order", bool),
        "perm": ("perm", int),
        "readQueueNums": ("read_queue_nums", int),
        "topicFilterType": ("topic_filter_type", str),
        "topicName": ("topic_name", str),
        "topicSysFlag": ("topic_sys_flag", int),
        "writeQueueNums": ("write_queue_nums", int),
    }
    topic_name: str = ""
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = PERM_READ | PERM_WRITE
    topic_filter_type: str = SINGLE_TAG
    topic_sys_flag: int = 0
    order: bool = False
    attributes: dict[str | int, JsonValue] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionGroupConfig(Bean):
    """One consumer group."""

    MEMBERS: ClassVar[Mapping[str, tuple[str, type]]] = {
        "brokerId": ("broker_id", int),
        "consumeBroadcastEnable": ("consume_broadcast_enable", bool),
        "consumeEnable": ("consume_enable", bool),
        "consumeFromMinEnable": ("consume_from_min_enable", bool),
        "groupName": ("group_name", str),
        "notifyConsumerIdsChangedEnable": ("notify_consumer_ids_changed_enable", bool),
        "retryMaxTimes": ("retry_max_times", int),
        "retryQueueNums": ("retry_queue_nums", int),
        "whichBrokerWhenConsumeSlowly": ("which_broker_when_consume_slowly", int),
    }
    group_name: str = ""
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class BloomFilterData(Bean):
    """The bits of one subscription in a filter of ``bit_num`` bits."""

    MEMBERS: ClassVar[Mapping[str, tuple[str, type]]] = {
        "bitNum": ("bit_num", int),
        "bitPos": ("bit_pos", list),
    }
    bit_num: int = 0
    bit_pos: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerFilterData(Bean):
    """The filter expression of one group on one topic, and when the group was last seen."""

    MEMBERS: ClassVar[Mapping[str, tuple[str, type]]] = {
        "bloomFilterData": ("bloom_filter_data", BloomFilterData),
        "bornTime": ("born_time_ms", int),
        "clientVersion": ("client_version", int),
        "consumerGroup": ("consumer_group", str),
        "deadTime": ("dead_time_ms", int),
        "expression": ("expression", str),
        "expressionType": ("expression_type", str),
        "topic": ("topic", str),
    }
    consumer_group: str = ""
    topic: str = ""
    expression: str | None = None
    expression_type: str | None = None
    born_time_ms: int = 0
    dead_time_ms: int = 0
    client_version: int = 0
    bloom_filter_data: BloomFilterData | None = None

    @property
    def is_dead(self) -> bool:
        """Whether the group has gone since it registered this filter."""
        return self.dead_time_ms >= self.born_time_ms

    def to_json(self) -> dict[str | int, JsonValue]:
        """The map to write; its member ``dead`` follows from the two times."""
        return dict(sorted(({**Bean.to_json(self), "dead": self.is_dead}).items(), key=str))
