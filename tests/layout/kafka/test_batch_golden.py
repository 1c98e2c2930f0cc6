"""Every batch and record of the golden segments, beside what Kafka's classes read; and written again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from layout.kafka.golden_batches import (
    CODECS,
    DIRECTORIES,
    TIMESTAMP_TYPES,
    Rows,
    expected_batches,
    expected_records,
    log_files,
    sound_batches,
    unbase64,
)
from mqstore.errors import CorruptBatchError
from mqstore.layout.kafka.batch import (
    BatchHeader,
    check_batch,
    decode_header,
    decode_records,
    encode_batch,
    encode_empty_batch,
    rebase,
)
from mqstore.layout.kafka.constants import Codec, TimestampType
from mqstore.layout.kafka.control import (
    ControlType,
    decode_control_key,
    decode_end_transaction,
    encode_end_transaction_marker,
)
from mqstore.layout.kafka.damage import Damage
from mqstore.layout.kafka.message_set import encode_message
from mqstore.layout.kafka.record import Record


def seen(header: BatchHeader) -> dict[str, Any]:
    """A header under the names of the expectations."""
    return {
        "position": header.position, "sizeInBytes": header.size, "magic": header.magic,
        "lastOffset": header.last_offset, "codec": header.codec, "timestampType": header.timestamp_type,
        "maxTimestamp": header.max_timestamp_ms, "baseOffset": header.base_offset, "crc": header.crc,
        "leaderEpoch": header.leader_epoch, "producerId": header.producer_id, "producerEpoch": header.producer_epoch,
        "baseSequence": header.base_sequence, "transactional": header.is_transactional, "control": header.is_control,
        "count": header.record_count, "deleteHorizonMs": header.delete_horizon_ms,
    }  # fmt: skip


@pytest.mark.parametrize("directory", DIRECTORIES)
def test_every_header_is_what_kafka_reads(golden_kafka: Path, expected_kafka: Rows, directory: str) -> None:
    for base, log in log_files(golden_kafka, directory):
        position, rows = 0, expected_batches(expected_kafka, directory, base)
        assert rows or not log
        for row in rows:
            header = decode_header(log, position)
            wanted = row | {
                "codec": CODECS[row["codec"]],
                "timestampType": TIMESTAMP_TYPES[row["timestampType"]],
            }
            names = seen(header).keys() & row.keys()
            assert len(names) >= 7
            assert {name: seen(header)[name] for name in names} == {name: wanted[name] for name in names}
            assert row["valid"]
            check_batch(log, header)
            position = header.end_position
        assert position == len(log)


@pytest.mark.parametrize("directory", DIRECTORIES)
def test_every_record_is_what_kafka_reads(golden_kafka: Path, expected_kafka: Rows, directory: str) -> None:
    total = 0
    for base, log in log_files(golden_kafka, directory):
        records = expected_records(expected_kafka, directory, base)
        for row in expected_batches(expected_kafka, directory, base):
            if not row["valid"]:
                continue
            found = decode_records(log, decode_header(log, row["position"]), check_crc=row["magic"] < 2)
            total += len(found)
            assert [
                {
                    "offset": record.offset, "timestamp": record.timestamp_ms, "key": record.key,
                    "value": record.value, "sequence": record.sequence, "headers": list(record.headers),
                }
                for record in found
            ] == [
                {
                    "offset": wanted["offset"], "timestamp": wanted["timestamp"], "key": unbase64(wanted["key"]),
                    "value": unbase64(wanted["value"]), "sequence": wanted.get("sequence", -1),
                    "headers": [(name, unbase64(value)) for name, value in wanted.get("headers", [])],
                }
                for wanted in records[row["position"]]
            ]  # fmt: skip
            assert {record.timestamp_type for record in found} <= {TIMESTAMP_TYPES[row["timestampType"]]}
    assert total == sum(row["dir"] == directory for row in expected_kafka["record"])


def test_the_expectations_are_complete(expected_kafka: Rows) -> None:
    assert (len(expected_kafka["batch"]), len(expected_kafka["record"])) == (1131, 3656)


def test_the_crash_image_is_sound_up_to_its_damage(golden_kafka: Path) -> None:
    damage = []
    for base, log in log_files(golden_kafka, "crash-0"):
        sound = dict(log_files(golden_kafka, "recovered-0"))[base]
        position = 0
        while position < len(log):
            try:
                header = decode_header(log, position)
                check_batch(log, header)
            except CorruptBatchError as error:
                damage.append((error.found, error.offset == len(sound), error.offset))
                break
            position = header.end_position
        assert log[:position] == sound
    assert [entry[:2] for entry in damage] == [(Damage.CRC, True)]
    # Behind the damaged batch a sound one follows, and 45 bytes of nothing.
    first = decode_header(log, damage[0][2])
    second = decode_header(log, first.end_position)
    check_batch(log, second)
    assert [first.last_offset, second.last_offset, len(log) - second.end_position] == [596, 599, 45]
    with pytest.raises(CorruptBatchError):
        decode_header(log, second.end_position)


def fields(header: BatchHeader) -> dict[str, Any]:
    """Arguments of encode_batch that are not the records'."""
    return {
        "base_offset": header.base_offset, "codec": header.codec, "leader_epoch": header.leader_epoch,
        "timestamp_type": header.timestamp_type, "log_append_time_ms": header.max_timestamp_ms,
        "producer_id": header.producer_id, "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence, "transactional": header.is_transactional,
        "control": header.is_control, "delete_horizon_ms": header.delete_horizon_ms,
        "last_offset_delta": header.last_offset - header.base_offset,
    }  # fmt: skip


@pytest.mark.parametrize("directory", [name for name in DIRECTORIES if not name.startswith("legacy")])
def test_batches_written_again(golden_kafka: Path, expected_kafka: Rows, directory: str) -> None:
    """Uncompressed ones are the same bytes; of compressed ones the records are the same."""
    written = 0
    for log, row in sound_batches(golden_kafka, expected_kafka, directory):
        if row["magic"] != 2:
            continue
        header = decode_header(log, row["position"])
        raw = log[header.position : header.end_position]
        records = decode_records(log, header, check_crc=False)
        if not records:
            assert encode_empty_batch(header) == raw
            continue
        deltas = [record.offset - header.base_offset for record in records]
        again = encode_batch(records, offset_deltas=deltas, **fields(header))
        written += 1
        told = decode_header(again)
        assert decode_records(again, told) == records
        if header.codec is Codec.NONE and header.timestamp_type is TimestampType.CREATE_TIME:
            assert again == raw
        # Of records stamped by the broker the producer's times are not kept by a reader.
        free = {"position": 0, "size": 0, "crc": 0}
        if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
            free["base_timestamp_ms"] = 0
        assert told._replace(**free) == header._replace(**free)
    assert written


@pytest.mark.parametrize("directory", ["legacyv0-0", "legacyv1-0", "mixed-0"])
def test_messages_written_again(golden_kafka: Path, expected_kafka: Rows, directory: str) -> None:
    for log, row in sound_batches(golden_kafka, expected_kafka, directory):
        header = decode_header(log, row["position"])
        if header.magic == 2 or header.is_wrapper:
            continue
        (record,) = decode_records(log, header)
        again = encode_message(record, offset=record.offset, magic=header.magic, timestamp_type=header.timestamp_type)
        assert again == log[header.position : header.end_position]


def test_markers_written_again(golden_kafka: Path, expected_kafka: Rows) -> None:
    found = set()
    for log, row in sound_batches(golden_kafka, expected_kafka, "txn-0"):
        header = decode_header(log, row["position"])
        if not header.is_control:
            continue
        (record,) = decode_records(log, header)
        kind = decode_control_key(record.key)
        again = encode_end_transaction_marker(
            commit=kind is ControlType.COMMIT, offset=record.offset, timestamp_ms=record.timestamp_ms,
            producer_id=header.producer_id, producer_epoch=header.producer_epoch,
            coordinator_epoch=decode_end_transaction(record.value), leader_epoch=header.leader_epoch,
        )  # fmt: skip
        assert again == log[header.position : header.end_position]
        assert len(again) == 78
        found.add(kind)
    assert found == {ControlType.ABORT, ControlType.COMMIT}


def test_rebased_batches_need_no_new_checksum(golden_kafka: Path, expected_kafka: Rows) -> None:
    for log, row in list(sound_batches(golden_kafka, expected_kafka, "codecs-0"))[:20]:
        header = decode_header(log, row["position"])
        raw = log[header.position : header.end_position]
        moved = rebase(raw, 1 << 40, 9)
        assert rebase(moved, header.base_offset, header.leader_epoch) == raw
        told = decode_header(moved)
        shift = (1 << 40) - header.base_offset
        assert (told.base_offset, told.last_offset, told.leader_epoch) == (1 << 40, header.last_offset + shift, 9)
        assert decode_records(moved, told) == [
            Record._replace(record, offset=record.offset + shift) for record in decode_records(raw, decode_header(raw))
        ]
