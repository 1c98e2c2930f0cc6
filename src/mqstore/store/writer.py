"""From a :class:`~mqstore.store.message.Message` to a record that only lacks its place in the log.

All checks happen here, before the log is locked: a refused message uses up nothing. Delayed messages are sent to the
schedule topic and messages of a transaction are marked, as RocketMQ's store does it (docs/format/commit-log.md).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from functools import lru_cache

from mqstore import errors
from mqstore.layout import constants as c
from mqstore.layout import properties as props
from mqstore.layout.constants import LONG_MAX, SysFlag
from mqstore.layout.hosts import encode_host
from mqstore.layout.record import record_size
from mqstore.store.commit_log import Pending
from mqstore.store.config import StoreConfig
from mqstore.store.message import Message
from mqstore.store.paths import is_legal_topic

_INT_MIN, _INT_MAX = -(1 << 31), (1 << 31) - 1
MAX_QUEUE_ID = c.MAX_QUEUES - 1
"""Settings count the queues of a topic; an id beyond this is a mistake that a broker would stumble over."""
_WITHOUT_OFFSET = (SysFlag.TRANSACTION_PREPARED, SysFlag.TRANSACTION_ROLLBACK)
_HOST_BITS = SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6


def prepare(
    message: Message, queue_id: int, config: StoreConfig, max_delay_level: int, max_body: int | None = None
) -> Pending:
    """Check ``message`` and encode what does not depend on its place.

    Args:
        message: what the producer gave; its topic has passed :func:`check_topic`.
        queue_id: the queue chosen for it.
        config: limits and hosts.
        max_body: largest body in bytes; None is the limit of ``config``.
        max_delay_level: the highest level there is; higher ones count as this one.

    Raises:
        MessageIllegalError: a limit is broken; the message says which and by how much.
    """
    _check_numbers(message, queue_id)
    body = _body(message, config.max_message_size if max_body is None else max_body)
    topic, target_queue_id, properties = message.topic, queue_id, _properties(message)
    transaction = message.sys_flag & SysFlag.TRANSACTION_MASK
    level = min(message.delay_level, max_delay_level)
    if level > 0:
        properties[c.PROPERTY_DELAY] = str(int(level))
        if transaction not in _WITHOUT_OFFSET:
            properties[c.PROPERTY_REAL_TOPIC] = topic
            properties[c.PROPERTY_REAL_QID] = str(int(queue_id))
            topic, queue_id = c.SCHEDULE_TOPIC, level - 1
    raw = encode_properties(properties)
    topic_raw = topic.encode()
    store_host = config.store_host
    born_host = encode_host(message.born_host) if message.born_host is not None else store_host
    fields = (
        topic_raw,
        body,
        raw,
        queue_id,
        message.flag,
        message.sys_flag & ~_HOST_BITS | _host_bits(born_host, store_host),
        message.born_timestamp_ms if message.born_timestamp_ms is not None else time.time_ns() // 1_000_000,
        born_host,
        store_host,
        message.reconsume_times,
        message.prepared_transaction_offset,
        c.MAGIC_V1,
    )
    size = record_size(
        len(body), len(topic_raw), len(raw), born_host_size=len(born_host), store_host_size=len(store_host)
    )
    return Pending(fields, size, target_queue_id, None if transaction in _WITHOUT_OFFSET else (topic, queue_id))


def check_topic(topic: str) -> None:
    """Raise MessageIllegalError unless producers may use ``topic``."""
    if not isinstance(topic, str):
        raise errors.MessageIllegalError("topic is not text", expected="str", found=repr(topic))
    size = len(topic.encode("utf-8", "surrogatepass"))
    if not 0 < size <= c.MAX_TOPIC_SIZE_V1:
        raise errors.MessageIllegalError(
            "topic has an illegal length", expected=f"1 to {c.MAX_TOPIC_SIZE_V1} bytes", found=size
        )
    if not is_legal_topic(topic):
        raise errors.MessageIllegalError(
            "topic holds an illegal character", expected="A-Z a-z 0-9 _ - % |", found=repr(topic)
        )


def _check_numbers(message: Message, queue_id: int) -> None:
    limits: tuple[tuple[str, object, int, int], ...] = (
        ("queue_id", queue_id, 0, MAX_QUEUE_ID),
        ("flag", message.flag, _INT_MIN, _INT_MAX),
        ("sys_flag", message.sys_flag, 0, _INT_MAX),
        ("delay_level", message.delay_level, 0, _INT_MAX),
        ("reconsume_times", message.reconsume_times, 0, _INT_MAX),
        ("prepared_transaction_offset", message.prepared_transaction_offset, 0, LONG_MAX),
        ("born_timestamp_ms", 0 if message.born_timestamp_ms is None else message.born_timestamp_ms, 0, LONG_MAX),
    )
    for name, value, low, high in limits:
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise errors.MessageIllegalError(f"{name} is out of range", expected=f"{low} to {high}", found=repr(value))


def _body(message: Message, max_body: int) -> bytes:
    try:
        body = bytes(memoryview(message.body))
    except TypeError:
        raise errors.MessageIllegalError(
            "body is not bytes",
            expected="bytes",
            found=type(message.body).__name__,
            hint="encode text: text.encode()",
        ) from None
    if len(body) > max_body:
        raise errors.MessageIllegalError(
            "body is larger than max_message_size",
            expected=f"at most {max_body} bytes",
            found=len(body),
        )
    return body


def _properties(message: Message) -> dict[str, str]:
    given: object = message.properties
    if not isinstance(given, Mapping):
        raise errors.MessageIllegalError("properties are no mapping", expected="dict", found=repr(given))
    properties = dict(message.properties)
    if message.tags is not None:
        properties[c.PROPERTY_TAGS] = message.tags
    if message.keys:
        properties[c.PROPERTY_KEYS] = " ".join(_checked_keys(message))
    return properties


def _checked_keys(message: Message) -> list[str]:
    if isinstance(message.keys, str):
        raise errors.MessageIllegalError(
            "keys is one string", expected="a list of keys", found=repr(message.keys), hint='keys=["o-1"]'
        )
    keys: object = message.keys
    if not isinstance(keys, Iterable):
        raise errors.MessageIllegalError("keys are no list", expected="a list of keys", found=repr(keys))
    found = list(keys)
    for key in found:
        if not isinstance(key, str) or not key or " " in key:
            raise errors.MessageIllegalError("a key is empty or holds a space, which separates keys", found=repr(key))
    return found


def encode_properties(properties: dict[str, str]) -> bytes:
    """The properties string as a 4.9 broker writes it, names in the order of its map."""
    if not properties:
        return b""
    pairs: Iterable[tuple[object, object]] = properties.items()
    for name, value in pairs:
        if not isinstance(name, str) or not isinstance(value, str):
            raise errors.MessageIllegalError("a property is not text", found=f"{name!r}={value!r}")
    return props.encode([(name, properties[name]) for name in _map_order(tuple(properties))])


@lru_cache(maxsize=1024)
def _map_order(names: tuple[str, ...]) -> list[str]:
    """The order of a Java map; producers use few sets of names, again and again."""
    return props.java_map_order(names)


def _host_bits(born_host: bytes, store_host: bytes) -> int:
    born = SysFlag.BORN_HOST_V6 if len(born_host) == c.HOST_V6_SIZE else 0
    return born | (SysFlag.STORE_HOST_V6 if len(store_host) == c.HOST_V6_SIZE else 0)
