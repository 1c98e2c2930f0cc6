"""Readers of the examples on the pages about Kafka's small files: bytes to the values beside them, and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mqstore.layout.kafka import checkpoints, names
from mqstore.layout.kafka.offset_index import OffsetIndex
from mqstore.layout.kafka.producer_snapshot import decode_producer_snapshot, encode_producer_snapshot
from mqstore.layout.kafka.time_index import TimeIndex
from mqstore.layout.kafka.txn_index import decode_txn_index, encode_txn_index


def directory(data: bytes) -> Any:
    words = data.decode().split(" ")
    partitions = [names.parse_partition_directory(word) for word in words[:2]]
    files = [names.parse_segment_file(word) for word in words[2:]]
    assert names.partition_directory_name(*partitions[0][:2]) == words[0]
    assert [file.name for file in files] == words[2:]
    return {
        "partitions": [[one.topic, one.partition, one.state.value] for one in partitions],
        "files": [[file.offset, file.kind.value, file.stage.value] for file in files],
    }


def index(data: bytes) -> Any:
    offsets, times = OffsetIndex.decode(data[:24], 531), TimeIndex.decode(data[24:], 531)
    assert offsets.encode() + times.encode() == data
    return {"offsets": [list(entry) for entry in offsets], "times": [list(entry) for entry in times]}


def txn_index(data: bytes) -> Any:
    entries = decode_txn_index(data)
    assert encode_txn_index(entries) == data
    return [
        {
            "producerId": entry.producer_id, "firstOffset": entry.first_offset, "lastOffset": entry.last_offset,
            "lastStableOffset": entry.last_stable_offset,
        }
        for entry in entries
    ]  # fmt: skip


def producer_snapshot(data: bytes) -> Any:
    entries = decode_producer_snapshot(data)
    assert encode_producer_snapshot(entries) == data
    return [
        {
            "producerId": entry.producer_id, "producerEpoch": entry.producer_epoch,
            "lastSequence": entry.last_sequence, "lastOffset": entry.last_offset, "offsetDelta": entry.offset_delta,
            "timestamp": entry.timestamp_ms, "coordinatorEpoch": entry.coordinator_epoch,
            "currentTxnFirstOffset": entry.current_txn_first_offset,
        }
        for entry in entries
    ]  # fmt: skip


def checkpoint_files(data: bytes) -> Any:
    epochs_raw, offsets_raw, metadata_raw, rest = data.split(b"\0")
    assert rest == b""
    epochs, offsets = checkpoints.decode_leader_epochs(epochs_raw), checkpoints.decode_offsets(offsets_raw)
    topic_id = checkpoints.decode_topic_id(metadata_raw)
    assert checkpoints.encode_leader_epochs(epochs) == epochs_raw
    assert checkpoints.encode_offsets(offsets) == offsets_raw
    assert checkpoints.encode_topic_id(topic_id) == metadata_raw
    return {
        "epochs": [list(entry) for entry in epochs],
        "offsets": [[*where, offset] for where, offset in offsets.items()],
        "topicId": str(topic_id),
    }


EXAMPLES: dict[str, Callable[[bytes], Any]] = {
    "kafka-directory": directory,
    "kafka-index": index,
    "kafka-txn-index": txn_index,
    "kafka-producer-snapshot": producer_snapshot,
    "kafka-checkpoints": checkpoint_files,
}
