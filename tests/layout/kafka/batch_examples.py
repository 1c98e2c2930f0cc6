"""Readers of the examples on the pages about batches and messages: bytes to the values beside them, and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mqstore.layout.kafka.batch import decode_header, decode_records, encode_batch
from mqstore.layout.kafka.message_set import encode_message, encode_wrapper


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


def batch(data: bytes) -> Any:
    header = decode_header(data)
    records = decode_records(data, header)
    assert data == encode_batch(
        records, base_offset=header.base_offset, leader_epoch=header.leader_epoch, producer_id=header.producer_id,
        producer_epoch=header.producer_epoch, base_sequence=header.base_sequence, offset_deltas=[0, 2],
    )  # fmt: skip
    return {
        "baseOffset": header.base_offset, "lastOffset": header.last_offset, "leaderEpoch": header.leader_epoch,
        "codec": header.codec.name, "producerId": header.producer_id, "producerEpoch": header.producer_epoch,
        "records": [
            {
                "offset": record.offset, "timestamp": record.timestamp_ms, "key": _text(record.key),
                "value": _text(record.value), "sequence": record.sequence,
                "headers": [[name, _text(value)] for name, value in record.headers],
            }
            for record in records
        ],
    }  # fmt: skip


def messages(data: bytes) -> Any:
    found, position = [], 0
    while position < len(data):
        header = decode_header(data, position)
        records = decode_records(data, header)
        if header.is_wrapper:
            first = records[0].offset
            again = encode_wrapper(records, base_offset=first, magic=header.magic, codec=header.codec)
            # The compressed bytes may differ between versions of the compressor.
            assert decode_records(again, decode_header(again)) == records
        else:
            assert (
                encode_message(records[0], offset=records[0].offset, magic=header.magic)
                == data[position : header.end_position]
            )
        found.append([
            {
                "offset": record.offset, "timestamp": record.timestamp_ms, "key": _text(record.key),
                "value": _text(record.value),
            }
            for record in records
        ])  # fmt: skip
        position = header.end_position
    return found


EXAMPLES: dict[str, Callable[[bytes], Any]] = {"kafka-batch": batch, "kafka-message-set": messages}
