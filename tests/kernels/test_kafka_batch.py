"""The kernels' way from a batch to records and back gives what the layout gives, errors included."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from kernels.kafka_support import RECORDS, TIME, damaged_log, random_log
from layout.kafka.golden_batches import DIRECTORIES, log_files
from mqstore.errors import CorruptBatchError, UsageError
from mqstore.kernels import kafka_batch
from mqstore.layout.kafka import batch as layout
from mqstore.layout.kafka.batch import decode_header
from mqstore.layout.kafka.constants import Codec, TimestampType


def outcome(decode: Any, log: Any, header: Any, **options: Any) -> Any:
    """The records, or all that the error says."""
    try:
        return decode(log, header, **options)
    except CorruptBatchError as error:
        return error.message, error.details()


def same(log: Any, **options: Any) -> int:
    """Compare every batch of a log up to the first that has no header; how many gave records."""
    position = read = 0
    while position < len(log):
        try:
            header = decode_header(log, position)
        except CorruptBatchError:
            break
        found = outcome(kafka_batch.decode_records, log, header, **options)
        assert found == outcome(layout.decode_records, log, header, **options)
        read += isinstance(found, list)
        position = header.end_position
    return read


@pytest.mark.parametrize("directory", [*DIRECTORIES, "crash-0"])
def test_golden_batches(golden_kafka: Path, directory: str) -> None:
    for _, log in log_files(golden_kafka, directory):
        assert same(log, check_crc=False) > 0


def test_damaged_batches_and_any_kind_of_buffer() -> None:
    chance = random.Random(9)
    read = 0
    for _ in range(150):
        log = random_log(chance)
        assert same(log) > 0
        kind = chance.choice([bytes, bytearray, memoryview])
        read += same(kind(damaged_log(chance, log)), check_crc=chance.random() < 0.3)
    assert read > 50


def test_every_flipped_bit() -> None:
    batch = bytearray(layout.encode_batch(RECORDS, base_offset=3, producer_id=1, base_sequence=2**31 - 2))
    for bit in range(8 * len(batch)):
        batch[bit >> 3] ^= 1 << (bit & 7)
        same(batch, check_crc=False)
        batch[bit >> 3] ^= 1 << (bit & 7)


def test_limits_are_kept() -> None:
    log = kafka_batch.encode_batch(RECORDS * 100, codec=Codec.GZIP)
    assert same(log) == 1
    assert same(log, max_inflated_bytes=100) == 0


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize("items", [RECORDS, RECORDS[1:]], ids=["headers", "none"])
def test_written_batches(codec: Codec, items: Any) -> None:
    options: dict[str, Any] = {
        "base_offset": 12, "codec": codec, "timestamp_type": TimestampType.LOG_APPEND_TIME,
        "log_append_time_ms": TIME, "offset_deltas": [5 * number for number in range(len(items))],
    }  # fmt: skip
    assert kafka_batch.encode_batch(items, **options) == layout.encode_batch(items, **options)


def test_what_cannot_be_written() -> None:
    for call in (kafka_batch.encode_batch, layout.encode_batch):
        with pytest.raises(UsageError):
            call([])
