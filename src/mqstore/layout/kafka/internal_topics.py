"""Keys and values of the two topics that a broker keeps for itself: ``__consumer_offsets`` and ``__transaction_state``.

Keys and values begin with a version of two bytes. Fields are given as Kafka names them; later versions append some, and
from a certain one on lengths are varints plus one and tagged fields may follow (docs/format/kafka-internal-topics.md).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from mqstore.errors import UsageError
from mqstore.layout.constants import INT_MAX
from mqstore.layout.java_hash import java_hash

OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"

TRANSACTION_STATES: Final = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)

_SHORT: Final = struct.Struct(">h")
_ALWAYS: Final = 0
_NEVER: Final = 1 << 15
_MAX_ITEMS: Final = 1 << 20


class _Field(NamedTuple):
    """One field: from version ``since`` up to and including ``until``."""

    name: str
    read: Callable[[_Reader], Any]
    since: int = _ALWAYS
    until: int = _NEVER


class _Kind(NamedTuple):
    """What a record is about, and its fields."""

    name: str
    fields: tuple[_Field, ...]
    highest_version: int
    flexible_since: int = _NEVER


class _Reader:
    """Takes values off the front of a buffer; anything that reaches past its end is an error."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0
        self.version = 0
        self.flexible = False

    def take(self, size: int) -> bytes:
        if size < 0 or self._position + size > len(self._data):
            raise ValueError("a length reaches past the end")
        self._position += size
        return self._data[self._position - size : self._position]

    def _number(self, form: str) -> int:
        value: int = struct.unpack(form, self.take(struct.calcsize(form)))[0]
        return value

    def int8(self) -> int:
        return self._number(">b")

    def int16(self) -> int:
        return self._number(">h")

    def int32(self) -> int:
        return self._number(">i")

    def int64(self) -> int:
        return self._number(">q")

    def _varint(self) -> int:
        value = shift = 0
        while shift < 35:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise ValueError("a varint is longer than 5 bytes")

    def string(self) -> str | None:
        size = self._varint() - 1 if self.flexible else self.int16()
        return None if size == -1 else self.take(size).decode()

    def data(self) -> bytes | None:
        size = self._varint() - 1 if self.flexible else self.int32()
        return None if size == -1 else self.take(size)

    def array(self, item: Callable[[_Reader], Any]) -> list[Any] | None:
        count = self._varint() - 1 if self.flexible else self.int32()
        if count == -1:
            return None
        if not 0 <= count <= min(_MAX_ITEMS, len(self._data) - self._position):
            raise ValueError("an array has more items than bytes are left")
        return [item(self) for _ in range(count)]

    def struct(self, fields: tuple[_Field, ...]) -> dict[str, Any]:
        found = {one.name: one.read(self) for one in fields if one.since <= self.version <= one.until}
        if self.flexible:
            for _ in range(self._varint()):
                tag = self._varint()
                self.take(self._varint())
                found.setdefault("taggedFields", []).append(tag)
        return found

    @property
    def rest(self) -> int:
        return len(self._data) - self._position


_STRING: Final = _Reader.string
_MEMBER: Final = (
    _Field("memberId", _STRING),
    _Field("groupInstanceId", _STRING, 3),
    _Field("clientId", _STRING),
    _Field("clientHost", _STRING),
    _Field("rebalanceTimeout", _Reader.int32, 1),
    _Field("sessionTimeout", _Reader.int32),
    _Field("subscription", _Reader.data),
    _Field("assignment", _Reader.data),
)
_OFFSET_VALUE: Final = _Kind(
    "offset",
    (
        _Field("offset", _Reader.int64),
        _Field("leaderEpoch", _Reader.int32, 3),
        _Field("metadata", _STRING),
        _Field("commitTimestamp", _Reader.int64),
        _Field("expireTimestamp", _Reader.int64, 1, 1),
    ),
    4,
    4,
)
_GROUP_VALUE: Final = _Kind(
    "group",
    (
        _Field("protocolType", _STRING),
        _Field("generation", _Reader.int32),
        _Field("protocol", _STRING),
        _Field("leader", _STRING),
        _Field("currentStateTimestamp", _Reader.int64, 2),
        _Field("members", lambda reader: reader.array(lambda inner: inner.struct(_MEMBER))),
    ),
    4,
    4,
)
_PARTITIONS: Final = (
    _Field("topic", _STRING),
    _Field("partitionIds", lambda reader: reader.array(_Reader.int32)),
)
_TRANSACTION_VALUE: Final = _Kind(
    "transaction",
    (
        _Field("producerId", _Reader.int64),
        _Field("producerEpoch", _Reader.int16),
        _Field("transactionTimeoutMs", _Reader.int32),
        _Field("transactionStatus", _Reader.int8),
        _Field("transactionPartitions", lambda reader: reader.array(lambda inner: inner.struct(_PARTITIONS))),
        _Field("transactionLastUpdateTimestampMs", _Reader.int64),
        _Field("transactionStartTimestampMs", _Reader.int64),
    ),
    1,
    1,
)
_OFFSET_KEY: Final = (_Field("group", _STRING), _Field("topic", _STRING), _Field("partition", _Reader.int32))
_GROUP_KEY: Final = (_Field("group", _STRING),)
_TRANSACTION_KEY: Final = (_Field("transactionalId", _STRING),)

_KEYS: Final[dict[str, dict[int, tuple[tuple[_Field, ...], _Kind]]]] = {
    OFFSETS_TOPIC: {
        0: (_OFFSET_KEY, _OFFSET_VALUE),
        1: (_OFFSET_KEY, _OFFSET_VALUE),
        2: (_GROUP_KEY, _GROUP_VALUE),
    },
    TRANSACTIONS_TOPIC: {0: (_TRANSACTION_KEY, _TRANSACTION_VALUE)},
}
"""By topic and version of the key: the key's fields, and what the value is."""


class InternalRecord(NamedTuple):
    """A record of an internal topic, decoded.

    Attributes:
        kind: ``offset``, ``group`` or ``transaction``; ``unknown`` for versions of the key that are not decoded here,
            such as those of the newer consumer groups.
        key: the key's fields; with kind unknown its version alone.
        value: the value's fields; None for a tombstone, and where key or value are not decoded.
    """

    kind: str
    key: dict[str, Any]
    value: dict[str, Any] | None


def is_internal(topic: str) -> bool:
    """Whether a topic is one that the broker keeps for itself."""
    return topic in _KEYS


def decode_internal(topic: str, key: bytes | None, value: bytes | None) -> InternalRecord:
    """What a record of ``topic`` says.

    Raises:
        UsageError: the topic is none of the two, or the bytes are no key or value of its.
    """
    if topic not in _KEYS:
        raise UsageError("not an internal topic", expected=", ".join(_KEYS), found=topic)
    try:
        reader = _Reader(key or b"")
        reader.version = reader.int16()
        known = _KEYS[topic].get(reader.version)
        if known is None:
            return InternalRecord("unknown", {"version": reader.version}, None)
        fields, kind = known
        names = {"version": reader.version, **reader.struct(fields)}
        return InternalRecord(kind.name, names, None if value is None else _decode_value(kind, value))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"no record of {topic}: {error}", found=(key or b"")[:64].hex()) from None


def encode_offset_commit(
    group: str, topic: str, partition: int, offset: int, commit_timestamp_ms: int
) -> tuple[bytes, bytes]:
    """Key (version 1) and value (version 3) of the record by which a group commits ``offset``, without metadata.

    Raises:
        UsageError: a name is longer than 32,767 bytes in UTF-8, or a number does not fit.
    """
    try:
        key = _SHORT.pack(1) + _packed_string(group) + _packed_string(topic) + struct.pack(">i", partition)
        value = struct.pack(">hqi", 3, offset, -1) + _packed_string("") + struct.pack(">q", commit_timestamp_ms)
    except (struct.error, UnicodeEncodeError) as error:
        raise UsageError(f"no commit of a group: {error}", found=(group, topic, partition, offset)) from None
    return key, value


def _packed_string(text: str) -> bytes:
    data = text.encode()
    return _SHORT.pack(len(data)) + data


def group_partition(group: str, partitions: int) -> int:
    """The partition of ``__consumer_offsets`` that holds what ``group`` commits, of so many that the topic has."""
    value = abs(java_hash(group))
    return (0 if value > INT_MAX else value) % partitions  # the smallest number has no counterpart, and counts as 0


def _decode_value(kind: _Kind, value: bytes) -> dict[str, Any] | None:
    reader = _Reader(value)
    reader.version = reader.int16()
    if not 0 <= reader.version <= kind.highest_version:
        return {"version": reader.version}
    reader.flexible = reader.version >= kind.flexible_since
    found = {"version": reader.version, **reader.struct(kind.fields)}
    if reader.rest:
        raise ValueError(f"{reader.rest} bytes follow behind the value")
    status = found.get("transactionStatus")
    if isinstance(status, int) and 0 <= status < len(TRANSACTION_STATES):
        found["transactionStatus"] = TRANSACTION_STATES[status]
    return found
