"""What mqstore says of a Kafka log, in the lines that the real classes speak in, and logs that mqstore writes."""

from __future__ import annotations

import base64
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mqstore import kafka
from mqstore.kafka import KafkaMessage, KafkaView, PartitionView
from mqstore.kafka.records import records_of
from mqstore.layout.kafka.constants import TimestampType
from mqstore.layout.kafka.control import ControlType, decode_control_key, decode_end_transaction
from mqstore.layout.kafka.names import FileKind
from mqstore.layout.kafka.producer_snapshot import decode_producer_snapshot

Line = dict[str, Any]

SIZES: dict[str, Any] = {"segment_bytes": 20_000, "index_interval_bytes": 512}
TYPES = {
    TimestampType.NONE: "NoTimestampType",
    TimestampType.CREATE_TIME: "CreateTime",
    TimestampType.LOG_APPEND_TIME: "LogAppendTime",
}


def lines_of(view: KafkaView, asked: list[Line]) -> Iterator[Line]:
    """Everything ``view`` says, asked the look-ups that ``asked`` holds the answers to."""
    for partition in view.partitions():
        name = f"{partition.topic}-{partition.partition}"
        yield _log(partition, name)
        yield from _segments(partition, name)
        yield from _batches(partition, name)
        yield from _snapshots(partition, name)
        for line in asked:
            if line["dir"] == name and "Lookup" in line["kind"]:
                yield _look_up(partition, line)


def _log(partition: PartitionView, name: str) -> Line:
    return {
        "kind": "log",
        "dir": name,
        "logStartOffset": partition.log_start_offset,
        "logEndOffset": partition.log_end_offset,
        "lastStableOffset": partition.last_stable_offset,
        "segments": [one.base_offset for one in partition.segments()],
        "leaderEpochs": [{"epoch": one.epoch, "startOffset": one.start_offset} for one in partition.leader_epochs],
    }


def _segments(partition: PartitionView, name: str) -> Iterator[Line]:
    for segment in partition.segments():
        yield {
            "kind": "segment",
            "dir": name,
            "baseOffset": segment.base_offset,
            "sizeBytes": segment.size_bytes,
            "offsetIndex": [[one.offset, one.position] for one in segment.offset_index()],
            "timeIndex": [[one.timestamp_ms, one.offset] for one in segment.time_index()],
            "abortedTxns": [
                {
                    "version": 0,
                    "producerId": one.producer_id,
                    "firstOffset": one.first_offset,
                    "lastOffset": one.last_offset,
                    "lastStableOffset": one.last_stable_offset,
                }
                for one in segment.aborted() or ()
            ],
        }


def _batches(partition: PartitionView, name: str) -> Iterator[Line]:
    for place in partition.batches():
        header = place.header
        line: Line = {
            "kind": "batch",
            "dir": name,
            "segment": place.segment.base_offset,
            "position": place.position,
            "sizeInBytes": header.size,
            "magic": header.magic,
            "lastOffset": header.last_offset,
            "codec": header.codec.name.lower(),
            "timestampType": TYPES[header.timestamp_type],
            "maxTimestamp": header.max_timestamp_ms,
        }
        if header.magic == 2:
            line |= {
                "baseOffset": header.base_offset,
                "crc": header.crc,
                "leaderEpoch": header.leader_epoch,
                "producerId": header.producer_id,
                "producerEpoch": header.producer_epoch,
                "baseSequence": header.base_sequence,
                "transactional": header.is_transactional,
                "control": header.is_control,
                "count": header.record_count,
                "deleteHorizonMs": header.delete_horizon_ms,
            }
        yield line
        for record in records_of(place.segment, place.position, header, place.buffer):
            row: Line = {
                "kind": "record",
                "dir": name,
                "segment": place.segment.base_offset,
                "batchPosition": place.position,
                "offset": record.offset,
                "timestamp": record.timestamp_ms,
                "key": text(record.key),
                "value": text(record.value),
            }
            if header.magic == 2:
                row |= {"sequence": record.sequence, "headers": [[key, text(value)] for key, value in record.headers]}
            if header.is_control:
                kind = decode_control_key(record.key)
                assert isinstance(kind, ControlType)
                row |= {"controlType": kind.name, "coordinatorEpoch": decode_end_transaction(record.value)}
            yield row


def _snapshots(partition: PartitionView, name: str) -> Iterator[Line]:
    for offset in partition.stock.files[FileKind.SNAPSHOT]:
        path = partition.stock.path(offset, FileKind.SNAPSHOT)
        producers = [
            {
                "producerId": one.producer_id,
                "producerEpoch": one.producer_epoch,
                "coordinatorEpoch": one.coordinator_epoch,
                "lastTimestamp": one.timestamp_ms,
                "lastSeq": one.last_sequence,
                "lastDataOffset": one.last_offset,
                "currentTxnFirstOffset": None if one.current_txn_first_offset < 0 else one.current_txn_first_offset,
            }
            for one in decode_producer_snapshot(path.read_bytes())
        ]
        yield {"kind": "producerSnapshot", "dir": name, "file": path.name, "producers": producers}


def _look_up(partition: PartitionView, asked: Line) -> Line:
    line: Line = {name: asked[name] for name in ("kind", "dir", "target") if name in asked}
    if asked["kind"] == "offsetLookup":
        place = partition.find_batch(asked["target"])
        assert place is not None
        return {
            **line,
            "segment": place.segment.base_offset,
            "position": place.position,
            "foundBatchLastOffset": place.header.last_offset,
        }
    found = partition.offset_at("max_timestamp" if asked["kind"] == "maxTimestampLookup" else asked["target"])
    return (
        {**line, "offset": None} if found is None else {**line, "offset": found.offset, "timestamp": found.timestamp_ms}
    )


def text(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def comparable(lines: list[Line]) -> list[Line]:
    """Lines in an order of their own, without what only one side says, and producers by their ids."""
    kept = []
    for line in lines:
        silent = {"valid", "maxTimestamp"} if line["kind"] == "segment" else {"valid"}
        line = {name: value for name, value in line.items() if name not in silent}
        if line["kind"] == "producerSnapshot":
            line["producers"] = sorted(line["producers"], key=lambda one: one["producerId"])
        kept.append(line)
    return sorted(kept, key=lambda line: (line["dir"], line["kind"], repr(sorted(line.items()))))


def write(data: Path, seed: int, count: int, codec: str = "none", **settings: Any) -> None:
    """A log with messages of every kind: nulls, headers, transactions, idempotent producers, several partitions."""
    chance = random.Random(seed)
    clock = 1_700_000_000_000 + seed * 10_000_000
    with kafka.open(data, compression_type=codec, **SIZES, **settings) as log:
        log.create_topic("plain.with-dots_and-dashes", 3)
        producers = [log.producer(1000 * seed + number) for number in range(2)]
        idempotent = log.producer(1000 * seed + 77)
        for _ in range(count // 10):
            made = []
            for _ in range(10):
                clock += chance.randrange(500)
                made.append(_message(chance, clock - chance.randrange(2000)))
            log.put_batch(made)
            if chance.random() < 0.3:
                idempotent.put_batch([KafkaMessage("transactions", b"idempotent", timestamp_ms=clock)])
            if chance.random() < 0.4:
                producer = chance.choice(producers)
                producer.begin()
                producer.put_batch(
                    [KafkaMessage("transactions", b"%d" % number, timestamp_ms=clock) for number in range(3)]
                )
                producer.commit() if chance.random() < 0.5 else producer.abort()
        producers[0].begin()
        producers[0].put_batch([KafkaMessage("transactions", b"left open", timestamp_ms=clock)])


def _message(chance: random.Random, timestamp_ms: int) -> KafkaMessage:
    headers = [
        (chance.choice(["", "a", "名前", "🚀"]), chance.choice([None, b"", chance.randbytes(9)]))
        for _ in range(chance.choice([0, 0, 1, 3]))
    ]
    return KafkaMessage(
        "plain.with-dots_and-dashes",
        chance.choice([None, b"", b"text " * chance.randrange(60), chance.randbytes(chance.randrange(300))]),
        chance.choice([None, b"", b"key-%d" % chance.randrange(50)]),
        headers,
        timestamp_ms,
        partition=chance.randrange(3),
    )
