"""From messages to batches: what is refused, which messages share a batch, compression."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from mqstore import errors
from mqstore.kafka.config import KafkaConfig
from mqstore.kafka.message import KafkaMessage
from mqstore.kafka.producer_state import add_sequence
from mqstore.kernels.kafka_batch import encode_batch
from mqstore.layout.constants import LONG_MAX
from mqstore.layout.kafka import names
from mqstore.layout.kafka.constants import Codec, TimestampType
from mqstore.layout.kafka.record import Record

_OVERHEAD_BYTES = 36
"""More than what a record takes besides its contents."""
_HEADER_BYTES = 61
_CODECS = {"producer": Codec.NONE, "uncompressed": Codec.NONE} | {codec.name.lower(): codec for codec in Codec}


class OtherMessage(Protocol):
    """A message of the other layout, :class:`mqstore.Message`, as far as it can be put here."""

    topic: str
    body: bytes
    keys: Sequence[str]
    properties: dict[str, str]
    queue_id: int | None
    born_timestamp_ms: int | None


@dataclass(frozen=True)
class Sender:
    """On whose behalf a batch is appended; the default is a plain producer.

    ``base_sequence`` is the sequence number of the first record.
    """

    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    is_transactional: bool = False


PLAIN = Sender()


def as_kafka_message(message: object) -> KafkaMessage:
    """The message to put: itself, or a message of the other layout translated.

    Of that, the body becomes the value, the keys, joined by spaces, the key, the properties headers, and the queue the
    partition. UsageError for anything else.
    """
    if isinstance(message, KafkaMessage):
        return message
    if not all(hasattr(message, name) for name in ("topic", "body", "keys", "queue_id", "properties")):
        raise errors.UsageError(
            "not a message", expected="KafkaMessage or mqstore.Message", found=type(message).__name__
        )
    other: OtherMessage = message  # type: ignore[assignment]
    try:
        return KafkaMessage(
            other.topic,
            other.body,
            " ".join(other.keys).encode() if other.keys else None,
            [(name, text.encode()) for name, text in other.properties.items()],
            other.born_timestamp_ms,
            other.queue_id or 0,
        )
    except (TypeError, AttributeError, UnicodeEncodeError) as error:
        raise errors.MessageIllegalError(
            "keys or properties are no text", expected="text that UTF-8 can hold", found=str(error)
        ) from error


def check_message(message: KafkaMessage, config: KafkaConfig) -> KafkaMessage:
    """The message with contents that can be looked at twice: an iterator of headers is used up by the first look.

    Raises:
        MessageIllegalError: it holds what no batch can hold.
        UsageError: a topic or partition that cannot be.
    """
    names.partition_directory_name(message.topic, message.partition)
    key, value = _content("key", message.key), _content("value", message.value)
    if config.is_compacted and key is None:
        raise errors.MessageIllegalError(
            "a message without a key cannot be put into a compacted topic", found=message.topic,
            hint="give it a key, or use cleanup_policy=delete",
        )  # fmt: skip
    stamp: object = message.timestamp_ms
    if stamp is not None and (not isinstance(stamp, int) or isinstance(stamp, bool) or not 0 <= stamp <= LONG_MAX):
        raise errors.MessageIllegalError("no such timestamp", expected="0 or later, in ms", found=repr(stamp))
    headers = _checked_headers(message.headers) if message.headers != () else ()
    if headers is message.headers and key is message.key and value is message.value:
        return message
    return KafkaMessage(message.topic, value, key, headers, message.timestamp_ms, message.partition)


def _content(what: str, data: object) -> bytes | None:
    if data is None or type(data) is bytes:
        return data
    if not isinstance(data, bytes | bytearray | memoryview):
        raise errors.MessageIllegalError(f"the {what} is not bytes", expected="bytes or None", found=type(data))
    return bytes(data)


def _checked_headers(headers: object) -> tuple[tuple[str, bytes | None], ...]:
    if isinstance(headers, str | bytes | Mapping) or not isinstance(headers, Iterable):
        raise errors.MessageIllegalError(
            "headers are no pairs", expected="names with bytes, in order", found=type(headers).__name__
        )
    return tuple(_checked_header(header) for header in headers)


def _checked_header(header: Any) -> tuple[str, bytes | None]:
    try:
        name, data = header
        if isinstance(header, str | bytes) or not isinstance(name, str):
            raise ValueError
        name.encode()  # a lone surrogate is no text: written, it would be another name
    except (TypeError, ValueError):
        raise errors.MessageIllegalError("a header is no name with bytes", found=repr(header)[:80]) from None
    return name, _content("header's value", data)


def gather(messages: Sequence[KafkaMessage], config: KafkaConfig) -> Iterator[list[int]]:
    """Numbers of the messages that share a batch: neighbours of one partition, up to ``batch_size`` bytes."""
    largest = min(config.max_message_bytes, config.segment_bytes) - _HEADER_BYTES
    batch_size = min(config.batch_size, largest)
    run: list[int] = []
    size = 0
    for number, message in enumerate(messages):
        own = _OVERHEAD_BYTES + len(message.key or b"") + len(message.value or b"")
        own += sum(_OVERHEAD_BYTES + len(name) * 4 + len(data or b"") for name, data in message.headers)
        if run and (size + own > batch_size or not _same_place(messages[run[0]], message)):
            yield run
            run, size = [], 0
        run.append(number)
        size += own
    if run:
        yield run


def _same_place(one: KafkaMessage, other: KafkaMessage) -> bool:
    return one.partition == other.partition and one.topic == other.topic


def build_batch(
    messages: Sequence[KafkaMessage], config: KafkaConfig, sender: Sender = PLAIN
) -> tuple[bytes, list[int]]:
    """One batch of ``messages`` (checked ones) at offset 0, and the timestamp that each gets."""
    now_ms = time.time_ns() // 1_000_000
    appends_time = config.message_timestamp_type == "LogAppendTime"
    kind = TimestampType.LOG_APPEND_TIME if appends_time else TimestampType.CREATE_TIME
    times = [now_ms if appends_time or one.timestamp_ms is None else one.timestamp_ms for one in messages]
    records = [
        Record(number, times[number], kind, one.key, one.value, tuple(one.headers))
        for number, one in enumerate(messages)
    ]
    batch = encode_batch(
        records,
        base_offset=0,
        codec=_CODECS[config.compression_type],
        timestamp_type=kind,
        log_append_time_ms=now_ms,
        producer_id=sender.producer_id,
        producer_epoch=sender.producer_epoch,
        base_sequence=sender.base_sequence,
        transactional=sender.is_transactional,
    )
    return batch, times


def following(sender: Sender, count: int) -> Sender:
    """The sender of the batch behind one of ``count`` records."""
    return Sender(
        sender.producer_id, sender.producer_epoch, add_sequence(sender.base_sequence, count), sender.is_transactional
    )
