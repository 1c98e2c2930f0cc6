"""Batches and records as the commands show them: JSON members, and lines for people."""

from __future__ import annotations

from typing import Any

from mqstore.cli.output import body_text, time_text
from mqstore.errors import MqstoreError
from mqstore.kafka.lookup import BatchPlace
from mqstore.layout.kafka import internal_topics
from mqstore.layout.kafka.batch import BatchHeader
from mqstore.layout.kafka.constants import TimestampType
from mqstore.layout.kafka.control import ControlType, decode_control_key, decode_end_transaction
from mqstore.layout.kafka.record import Record

TIMESTAMP_TYPES = {
    TimestampType.NONE: "NoTimestampType",
    TimestampType.CREATE_TIME: "CreateTime",
    TimestampType.LOG_APPEND_TIME: "LogAppendTime",
}


def batch_json(topic: str, partition: int, place: BatchPlace) -> dict[str, Any]:
    """All that is known of a batch without looking into it."""
    header = place.header
    return {
        "topic": topic,
        "partition": partition,
        "segment": place.segment.path().name,
        "position": place.position,
        "size": header.size,
        "magic": header.magic,
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset,
        "records": header.record_count,
        "codec": header.codec.name.lower(),
        "timestampType": TIMESTAMP_TYPES[TimestampType(header.timestamp_type)],
        "maxTimestamp": header.max_timestamp_ms,
        "leaderEpoch": header.leader_epoch,
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "baseSequence": header.base_sequence,
        "transactional": header.is_transactional,
        "control": header.is_control,
        "deleteHorizon": header.delete_horizon_ms,
        "crc": header.crc,
    }


def batch_line(topic: str, partition: int, place: BatchPlace) -> str:
    """The same for people, on one line."""
    header = place.header
    marks = "".join(
        mark for mark, is_so in (("T", header.is_transactional), ("C", header.is_control)) if is_so
    )  # fmt: skip
    producer = "-" if header.producer_id < 0 else f"{header.producer_id}/{header.producer_epoch}"
    return (
        f"{topic}-{partition} {place.segment.base_offset:020d}.log @{place.position} offsets {header.base_offset}"
        f"..{header.last_offset} {header.record_count} records {header.size} B v{header.magic} "
        f"{header.codec.name.lower()} {time_text(header.max_timestamp_ms)} producer {producer} "
        f"seq {header.base_sequence} epoch {header.leader_epoch} {marks or '-'}"
    )


def record_json(
    topic: str, partition: int, header: BatchHeader, record: Record, *, as_text: bool = False
) -> dict[str, Any]:
    """A record, but for what its batch says of all its records: see :func:`batch_json`.

    Keys, values and those of headers are bytes. With ``as_text`` those that are UTF-8 are text, under names that end
    in ``Text``.
    """
    row: dict[str, Any] = {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "timestampType": TIMESTAMP_TYPES[TimestampType(record.timestamp_type)],
        **content_json(record, as_text=as_text),
        "batchBaseOffset": header.base_offset,
        "sequence": record.sequence,
    }
    if header.is_control:
        row["controlType"], row["coordinatorEpoch"] = control_of(record)
    elif internal_topics.is_internal(topic):
        row["decoded"] = decoded(topic, record)
    return row


def content_json(record: Record, *, as_text: bool = False) -> dict[str, Any]:
    """What the producer put into a record: key, value and headers."""
    headers = [{"key": name, **_bytes_json("value", value, as_text)} for name, value in record.headers]
    return {
        **_bytes_json("key", record.key, as_text),
        **_bytes_json("value", record.value, as_text),
        "headers": headers,
    }


def _bytes_json(name: str, data: bytes | None, as_text: bool) -> dict[str, bytes | str | None]:
    if as_text and data is not None:
        try:
            return {f"{name}Text": data.decode()}
        except UnicodeDecodeError:
            pass
    return {name: data}


def record_line(topic: str, partition: int, header: BatchHeader, record: Record) -> str:
    """The same for people, on one line."""
    place = f"{topic}-{partition} {record.offset:>10} {time_text(record.timestamp_ms)}"
    if header.is_control:
        kind, epoch = control_of(record)
        return f"{place} {kind} producer {header.producer_id}/{header.producer_epoch} coordinator epoch {epoch}"
    if internal_topics.is_internal(topic):
        found = decoded(topic, record)
        if found is not None:
            return f"{place} {found['kind']} {_pairs(found['key'])} -> {_pairs(found['value'])}"
    return f"{place} {content_line(record)}"


def content_line(record: Record) -> str:
    """Key and value for people."""
    return f"{_text(record.key)} {_text(record.value)}"


def _text(value: bytes | None) -> str:
    return "null" if value is None else body_text(value) or '""'


def _pairs(value: dict[str, Any] | None) -> str:
    return "null" if value is None else " ".join(f"{name}={item}" for name, item in value.items() if name != "version")


def control_of(record: Record) -> tuple[str, int | None]:
    """What a control record is, and the coordinator's epoch if it ends a transaction."""
    try:
        kind = decode_control_key(record.key)
    except MqstoreError:
        return "UNREADABLE", None
    if not isinstance(kind, ControlType):
        return f"UNKNOWN {kind}", None
    epoch = None
    if kind in (ControlType.ABORT, ControlType.COMMIT):
        epoch = decode_end_transaction(record.value)
    return kind.name, epoch


def decoded(topic: str, record: Record) -> dict[str, Any] | None:
    """What a record of one of the broker's own topics says; None if it is none of those that are known."""
    try:
        return internal_topics.decode_internal(topic, record.key, record.value)._asdict()
    except MqstoreError:
        return None
