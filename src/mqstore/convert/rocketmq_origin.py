"""A message of RocketMQ's inside a record of Kafka's (docs/kafka.md, "Moving data").

The properties become headers, in their order. What has no field of its own over there goes into headers whose names
begin with ``rmq.``. A record with such headers counts as a message only if that message would become this very record:
what an application has changed, or has made up, is an ordinary record.
"""

from __future__ import annotations

import zlib
from typing import Final, NamedTuple

from mqstore.errors import MqstoreError
from mqstore.layout import properties as props
from mqstore.layout.constants import (
    HOST_V4_SIZE,
    HOST_V6_SIZE,
    LONG_MAX,
    LONG_MIN,
    MAX_PROPERTIES_SIZE,
    PROPERTY_KEYS,
    SysFlag,
)
from mqstore.layout.hosts import decode_host, encode_host
from mqstore.layout.kafka.codec import InflateError, InflateLimitError, decompress
from mqstore.layout.kafka.constants import Codec, TimestampType
from mqstore.layout.kafka.record import Record as KafkaRecord
from mqstore.layout.record import Record as Message

PREFIX: Final = "rmq."
STORE_TIMESTAMP: Final = "rmq.storeTimestamp"
"""When the broker stored the message, in ms; every record from RocketMQ has it."""
PHYSICAL_OFFSET: Final = "rmq.physicalOffset"
BORN_HOST: Final = "rmq.bornHost"
STORE_HOST: Final = "rmq.storeHost"
FLAG: Final = "rmq.flag"
SYS_FLAG: Final = "rmq.sysFlag"
RECONSUME_TIMES: Final = "rmq.reconsumeTimes"
PREPARED_OFFSET: Final = "rmq.preparedTransactionOffset"
SEPARATOR: Final = "rmq.trailingSeparator"
"""Present if the property string ends with a separator, as 5.x writes it."""
PROPERTIES: Final = "rmq.properties"
"""The property string as it was, where headers alone would not give it back."""
TOPIC: Final = "rmq.topic"
"""The message's topic, where the record's topic has another name."""

COMMIT: Final = "rmq.consumerOffset"
"""On a group's commit in ``__consumer_offsets``: its offset in the queue. It was no message, and becomes none."""

WITHOUT_QUEUE: Final = (SysFlag.TRANSACTION_PREPARED, SysFlag.TRANSACTION_ROLLBACK)
"""Transaction types of messages that are in no queue, so that no record can have been made from them."""

_HEX: Final = "hex:"
_MAX_BODY_BYTES: Final = 256 << 20
_HOST_BITS: Final = SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6
_INT: Final = (-(1 << 31), (1 << 31) - 1)
_LONG: Final = (0, LONG_MAX)
_NUMBERS: Final = {
    STORE_TIMESTAMP: _LONG,
    PHYSICAL_OFFSET: _LONG,
    FLAG: _INT,
    SYS_FLAG: (0, _INT[1]),
    RECONSUME_TIMES: _INT,
    PREPARED_OFFSET: (LONG_MIN, LONG_MAX),
}


def headers_of(
    message: Message | FormerMessage, sys_flag: int, original_topic: str | None
) -> tuple[tuple[str, bytes | None], ...]:
    """The headers that hold all of ``message`` but its key, value, times of birth and queue offset."""
    headers = [
        (STORE_TIMESTAMP, str(message.store_timestamp_ms)),
        (PHYSICAL_OFFSET, str(message.physical_offset)),
        (BORN_HOST, _host_text(message.born_host_raw)),
        (STORE_HOST, _host_text(message.store_host_raw)),
    ]
    for name, number in (
        (FLAG, message.flag),
        (SYS_FLAG, sys_flag & ~_HOST_BITS),
        (RECONSUME_TIMES, message.reconsume_times),
        (PREPARED_OFFSET, message.prepared_transaction_offset),
    ):
        if number:
            headers.append((name, str(number)))
    if original_topic is not None:
        headers.append((TOPIC, original_topic))
    own = [(name, value.encode()) for name, value in headers]
    return (*own, *_properties(message.properties_raw))


def _host_text(raw: bytes) -> str:
    text = decode_host(raw)
    try:
        return text if encode_host(text) == raw else _HEX + raw.hex()
    except MqstoreError:  # a port that no host has
        return _HEX + raw.hex()


def _host_raw(text: str) -> bytes:
    return bytes.fromhex(text.removeprefix(_HEX)) if text.startswith(_HEX) else encode_host(text)


def _properties(raw: bytes) -> list[tuple[str, bytes]]:
    """A property string as headers, from which :func:`_property_string` makes the same bytes again."""
    headers = []
    for segment in raw.split(b"\x02"):
        name, separator, value = segment.partition(b"\x01")
        if separator and name:
            headers.append((name.decode("utf-8", "replace"), value))
    plain = [header for header in headers if not header[0].startswith(PREFIX)]
    joined = _joined(plain)
    if joined == raw:
        return plain
    return [(SEPARATOR, b"1") if joined + b"\x02" == raw else (PROPERTIES, raw), *plain]


def _joined(headers: list[tuple[str, bytes]]) -> bytes:
    return b"\x02".join(name.encode() + b"\x01" + value for name, value in headers)


class FormerMessage(NamedTuple):
    """What a record says of the message that it was made from."""

    store_timestamp_ms: int
    physical_offset: int
    born_timestamp_ms: int
    born_host_raw: bytes
    store_host_raw: bytes
    flag: int
    sys_flag: int
    reconsume_times: int
    prepared_transaction_offset: int
    properties_raw: bytes
    body: bytes


def inflated(message: Message | FormerMessage) -> bytes | None:
    """The body of a message that has it compressed; None where it has not, or not as it says."""
    if not message.sys_flag & SysFlag.COMPRESSED:
        return None
    kind = message.sys_flag & SysFlag.COMPRESSION_MASK
    try:
        if kind == SysFlag.COMPRESSION_LZ4:
            return decompress(Codec.LZ4, message.body, magic=2, limit_bytes=_MAX_BODY_BYTES)
        if kind == SysFlag.COMPRESSION_ZSTD:
            return decompress(Codec.ZSTD, message.body, magic=2, limit_bytes=_MAX_BODY_BYTES)
        inflater = zlib.decompressobj()
        body = inflater.decompress(message.body, _MAX_BODY_BYTES)
        return body if inflater.eof and not inflater.unused_data else None
    except (zlib.error, InflateError, InflateLimitError):
        return None


def has_marks(record: KafkaRecord) -> bool:
    """Whether any header of the record has a name that only this module gives."""
    return any(name.startswith(PREFIX) for name, _ in record.headers)


def key_of(properties_raw: bytes) -> bytes | None:
    """The key of a message's record: its ``KEYS``."""
    keys = props.parse(properties_raw).get(PROPERTY_KEYS)
    return None if keys is None else keys.encode("utf-8", "replace")


def former_topic(record: KafkaRecord) -> str | None:
    """The topic that a record from RocketMQ names as its former one."""
    raw = dict(record.headers).get(TOPIC)
    return None if raw is None else raw.decode("utf-8", "replace")


def former_message(record: KafkaRecord) -> FormerMessage | None:
    """The message that a record was made from; None if it was not made from one, or was changed since.

    A record of that form may still be none: :func:`mqstore.convert.mapping.former_message` tells.
    """
    if not has_marks(record) or record.timestamp_type != TimestampType.CREATE_TIME:
        return None
    former = _message_by_headers(record)
    if former is None or key_of(former.properties_raw) != record.key:
        return None
    if headers_of(former, former.sys_flag, former_topic(record)) != record.headers:
        return None
    # A message in no queue has no record, and a compressed body is inflated on the way to one.
    is_queued = former.sys_flag & SysFlag.TRANSACTION_MASK not in WITHOUT_QUEUE
    return former if is_queued and inflated(former) is None else None


def _message_by_headers(record: KafkaRecord) -> FormerMessage | None:
    own = {name: value or b"" for name, value in record.headers if name.startswith(PREFIX)}
    if STORE_TIMESTAMP not in own or record.value is None:
        return None
    try:
        numbers = {name: int(value) for name, value in own.items() if name in _NUMBERS}
        born_host, store_host = (_host_raw(own[name].decode()) for name in (BORN_HOST, STORE_HOST))
        if not all(low <= numbers.get(name, 0) <= high for name, (low, high) in _NUMBERS.items()):
            return None
        plain = [(name, value or b"") for name, value in record.headers if not name.startswith(PREFIX)]
        raw = own.get(PROPERTIES, _joined(plain) + (b"\x02" if SEPARATOR in own else b""))
    except (ValueError, KeyError, UnicodeError, MqstoreError):
        return None
    if {len(born_host), len(store_host)} - {HOST_V4_SIZE, HOST_V6_SIZE}:
        return None
    if len(raw) > MAX_PROPERTIES_SIZE or record.timestamp_ms < 0:
        return None
    host_bits = (SysFlag.BORN_HOST_V6 if len(born_host) > HOST_V4_SIZE else 0) | (
        SysFlag.STORE_HOST_V6 if len(store_host) > HOST_V4_SIZE else 0
    )
    return FormerMessage(
        numbers[STORE_TIMESTAMP],
        numbers.get(PHYSICAL_OFFSET, -1),
        record.timestamp_ms,
        born_host,
        store_host,
        numbers.get(FLAG, 0),
        numbers.get(SYS_FLAG, 0) & ~_HOST_BITS | host_bits,
        numbers.get(RECONSUME_TIMES, 0),
        numbers.get(PREPARED_OFFSET, 0),
        raw,
        record.value,
    )
