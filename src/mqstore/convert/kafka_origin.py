"""A record of Kafka's inside a message of RocketMQ's (docs/kafka.md, "Moving data").

What has no field of its own over there goes into properties whose names begin with ``KAFKA_``. A message with such
properties counts as a record only if that record would become this very message: what an application has changed, or
has made up, is an ordinary message.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from typing import Final

from mqstore.errors import MessageIllegalError, MqstoreError
from mqstore.layout import constants as c
from mqstore.layout import properties as props
from mqstore.layout.hosts import encode_host
from mqstore.layout.kafka.constants import TimestampType
from mqstore.layout.kafka.record import Record
from mqstore.layout.record import Record as Message

HOST: Final = encode_host("127.0.0.1:0")
"""Born and store host of messages from Kafka, which keeps neither."""
PREFIX: Final = "KAFKA_"
TIMESTAMP_TYPE: Final = "KAFKA_TIMESTAMP_TYPE"
"""``CreateTime``, ``LogAppendTime`` or ``NoTimestampType``; every message from Kafka has it."""
TIMESTAMP: Final = "KAFKA_TIMESTAMP"
"""The record's timestamp, where it is negative, as no time of birth can be."""
OFFSET: Final = "KAFKA_OFFSET"
"""The record's offset, where the queue offset is another."""
KEY: Final = "KAFKA_KEY"
"""``=`` and the key in base64; a null key has none."""
NULL_VALUE: Final = "KAFKA_NULL_VALUE"
"""``1``: the value is null, which an empty body alone would not say."""
HEADERS: Final = "KAFKA_HEADERS"
"""All headers as JSON: an array of name and base64 or null."""
TOPIC: Final = "KAFKA_TOPIC"
"""The record's topic, where the message's topic has another name."""
ENVELOPE: Final = "KAFKA_ENVELOPE"
"""``1``: the body is a JSON object of ``key``, ``value`` and ``headers``, in base64."""

TIMESTAMP_TYPES: Final = {
    TimestampType.NONE: "NoTimestampType",
    TimestampType.CREATE_TIME: "CreateTime",
    TimestampType.LOG_APPEND_TIME: "LogAppendTime",
}

_KINDS: Final = {name: kind for kind, name in TIMESTAMP_TYPES.items()}
_MAX_KEY_BYTES: Final = 128


def packed(record: Record, queue_offset: int, original_topic: str | None) -> tuple[bytes, bytes, bool]:
    """Property string and body of the message that holds ``record``, and whether the body is an envelope."""
    pairs = [(TIMESTAMP_TYPE, TIMESTAMP_TYPES[TimestampType(record.timestamp_type)])]
    if record.timestamp_ms < 0 and record.timestamp_type != TimestampType.NONE:
        pairs.append((TIMESTAMP, str(record.timestamp_ms)))
    if original_topic is not None:
        pairs.append((TOPIC, original_topic))
    if record.offset != queue_offset:
        pairs.append((OFFSET, str(record.offset)))
    own = [*_exposed(record), *pairs]
    if record.key is not None:
        own.append((KEY, "=" + base64.b64encode(record.key).decode()))
    if record.value is None:
        own.append((NULL_VALUE, "1"))
    if record.headers:
        own.append((HEADERS, json.dumps(_headers(record.headers), separators=(",", ":"))))
    try:
        return props.encode(own), record.value or b"", False
    except MessageIllegalError:  # more than a property string holds
        return props.encode([*pairs, (ENVELOPE, "1")]), _envelope(record), True


def _exposed(record: Record) -> list[tuple[str, str]]:
    """Headers and the key as plain properties, as far as these can hold them and mean nothing to a broker.

    The names by which brokers and clients steer a message have no lower-case letter, or begin with two underscores.
    """
    names: set[str] = set()
    pairs = []
    for name, value in record.headers:
        text = _plain(value)
        if text and name not in names and any(char.islower() for char in name) and not name.startswith("__"):
            if _plain(name.encode("utf-8", "surrogatepass")) == name:
                pairs.append((name, text))
            names.add(name)
    key = _plain(record.key)
    if key and " " not in key and len(record.key or b"") <= _MAX_KEY_BYTES:
        pairs.append((c.PROPERTY_KEYS, key))
    return pairs


def _plain(value: bytes | None) -> str | None:
    """Bytes as text, if they are text without control characters."""
    if not value:
        return None
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    return text if text.isprintable() else None


def _headers(headers: Iterable[tuple[str, bytes | None]]) -> list[list[str | None]]:
    return [[name, None if value is None else base64.b64encode(value).decode()] for name, value in headers]


def _envelope(record: Record) -> bytes:
    members = {"key": record.key, "value": record.value}
    document: dict[str, object] = {
        name: None if value is None else base64.b64encode(value).decode() for name, value in members.items()
    }
    return json.dumps({**document, "headers": _headers(record.headers)}, separators=(",", ":")).encode()


def born_timestamp_ms(record: Record) -> int:
    """The time of birth of a record's message."""
    return max(0, record.timestamp_ms)


def has_marks(message: Message) -> bool:
    """Whether any property of the message has a name that only this module gives."""
    return PREFIX.encode() in message.properties_raw and any(name.startswith(PREFIX) for name in message.properties)


def former_record(message: Message) -> Record | None:
    """The record that a message was made from; None if it was not made from one, or was changed since.

    A message of that form may still be none: :func:`mqstore.convert.mapping.former_record` tells.
    """
    if TIMESTAMP_TYPE.encode() not in message.properties_raw:
        return None
    plain = (message.flag, message.sys_flag, message.reconsume_times, message.prepared_transaction_offset)
    if any(plain) or not message.born_host_raw == message.store_host_raw == HOST:
        return None
    try:
        record = _record_by_properties(message)
        if record is None or born_timestamp_ms(record) != message.born_timestamp_ms:
            return None
        raw, body, _ = packed(record, message.queue_offset, message.properties.get(TOPIC))
    except (ValueError, KeyError, TypeError, RecursionError, MqstoreError):
        return None
    return record if raw == message.properties_raw and body == message.body else None


def _record_by_properties(message: Message) -> Record | None:
    properties, body = message.properties, message.body
    kind = _KINDS.get(properties.get(TIMESTAMP_TYPE, ""))
    if kind is None:
        return None
    offset = int(properties.get(OFFSET, message.queue_offset))
    timestamp_ms = -1 if kind is TimestampType.NONE else int(properties.get(TIMESTAMP, message.born_timestamp_ms))
    if not 0 <= offset <= c.LONG_MAX or not -c.LONG_MAX - 1 <= timestamp_ms <= c.LONG_MAX:
        return None
    if properties.get(ENVELOPE) == "1":
        held = json.loads(body)
        key, value = _unpacked(held["key"]), _unpacked(held["value"])
        headers = held["headers"]
    else:
        key = _unpacked(properties[KEY][1:]) if KEY in properties else None
        value = None if properties.get(NULL_VALUE) == "1" else body
        headers = json.loads(properties.get(HEADERS, "[]"))
    found = tuple((str(name), _unpacked(one)) for name, one in headers)
    for name, _ in found:
        name.encode()  # JSON has characters that no header can have
    return Record(offset, timestamp_ms, kind, key, value, found)


def _unpacked(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text, validate=True)
