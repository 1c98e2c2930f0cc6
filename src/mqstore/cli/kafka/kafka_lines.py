"""Batches, records and producers in the lines of Kafka's own dump tool, which scripts take apart."""

from __future__ import annotations

from collections.abc import Callable

from mqstore.cli.kafka.rows import TIMESTAMP_TYPES, control_of
from mqstore.layout.constants import INT_MAX
from mqstore.layout.kafka.constants import MAGIC_V2, NO_SEQUENCE
from mqstore.layout.kafka.header import BatchHeader
from mqstore.layout.kafka.producer_snapshot import ProducerEntry
from mqstore.layout.kafka.record import Record

Decoder = Callable[[bytes], str]
"""How the bytes of a key or value are shown."""


def batch_line(header: BatchHeader, position: int, is_valid: bool) -> str:
    """A batch, or a message of an old format."""
    tail = (
        f"{TIMESTAMP_TYPES[header.timestamp_type]}: {header.max_timestamp_ms} size: {header.size} "
        f"magic: {header.magic} compresscodec: {header.codec.name.lower()} crc: {header.crc} "
        f"isvalid: {_bool(is_valid)}"
    )
    if header.magic < MAGIC_V2:
        return f"offset: {header.last_offset} position: {position} {tail}"
    last_sequence = _sequence(header.base_sequence, header.last_offset - header.base_offset)
    return (
        f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} count: {header.record_count} "
        f"baseSequence: {header.base_sequence} lastSequence: {last_sequence} producerId: {header.producer_id} "
        f"producerEpoch: {header.producer_epoch} partitionLeaderEpoch: {header.leader_epoch} "
        f"isTransactional: {_bool(header.is_transactional)} isControl: {_bool(header.is_control)} "
        f"deleteHorizonMs: {_optional(header.delete_horizon_ms)} position: {position} {tail}"
    )


def record_line(
    header: BatchHeader, record: Record, shown: tuple[str | None, str | None] | None, skip_metadata: bool
) -> str:
    """A record; ``shown`` are its key and value, None where there is none, or where they are not wanted."""
    parts = [] if skip_metadata else [_metadata(header, record)]
    if shown is not None and not header.is_control:
        key, value = shown
        parts += [] if key is None else [f"key: {key}"]
        parts += [] if value is None else [f"payload: {value}"]
    return " ".join(["|", *parts])


def _metadata(header: BatchHeader, record: Record) -> str:
    sizes = [-1 if data is None else len(data) for data in (record.key, record.value)]
    text = (
        f"offset: {record.offset} {TIMESTAMP_TYPES[record.timestamp_type]}: {record.timestamp_ms} "
        f"keySize: {sizes[0]} valueSize: {sizes[1]}"
    )
    if header.magic >= MAGIC_V2:
        text += f" sequence: {record.sequence} headerKeys: [{','.join(name for name, _ in record.headers)}]"
    if header.is_control:
        kind, epoch = control_of(record)
        text += f" controlType: {kind}" if epoch is None else f" endTxnMarker: {kind} coordinatorEpoch: {epoch}"
    return text


def snapshot_line(entry: ProducerEntry) -> str:
    """What a snapshot says of one producer."""
    open_since = None if entry.current_txn_first_offset < 0 else entry.current_txn_first_offset
    text = (
        f"producerId: {entry.producer_id} producerEpoch: {entry.producer_epoch} "
        f"coordinatorEpoch: {entry.coordinator_epoch} currentTxnFirstOffset: {_optional(open_since)} "
        f"lastTimestamp: {entry.timestamp_ms} "
    )
    if entry.last_offset < 0:  # only markers were seen
        return text
    first = entry.last_sequence - entry.offset_delta
    return (
        f"{text}firstSequence: {first if first >= 0 else first + INT_MAX + 1} lastSequence: {entry.last_sequence} "
        f"lastOffset: {entry.last_offset} offsetDelta: {entry.offset_delta} timestamp: {entry.timestamp_ms}"
    )


def _sequence(base: int, delta: int) -> int:
    """The number of the record ``delta`` behind the first: behind the largest comes 0."""
    return NO_SEQUENCE if base == NO_SEQUENCE else (base + delta) & INT_MAX


def _optional(value: int | None) -> str:
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"


def _bool(value: bool) -> str:
    return "true" if value else "false"
