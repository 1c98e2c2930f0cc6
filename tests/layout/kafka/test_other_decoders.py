"""Two other decoders read what is written here, and what they write is read here."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from layout.kafka.batches import CREATE, TIME, read, record
from mqstore.layout.kafka.batch import (
    decode_header,
    encode_batch,
)
from mqstore.layout.kafka.constants import Codec
from mqstore.layout.kafka.message_set import encode_message, encode_wrapper
from mqstore.layout.kafka.record import Record

# kafka-python, when it is imported.
pytestmark = pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning")


def memory_records(package: str) -> Any:
    return pytest.importorskip(f"{package}.record.memory_records").MemoryRecords


# What the others cannot inflate: lz4 of the oldest format, and kafka-python snappy without a package of its own.
KINDS = [
    (package, magic, codec)
    for package, magic, codec in itertools.product(("aiokafka", "kafka"), (0, 1, 2), Codec)
    if codec <= (Codec.ZSTD if magic == 2 else Codec.LZ4)
    and (magic, codec) != (0, Codec.LZ4)
    and (package, codec) != ("kafka", Codec.SNAPPY)
]


@pytest.mark.parametrize(("package", "magic", "codec"), KINDS)
def test_other_decoders_read_what_is_written_here(package: str, magic: int, codec: Codec) -> None:
    chance = random.Random(11)
    items = [
        record(
            700 + index, chance.choice([None, b"", b"key"]), chance.choice([None, chance.randbytes(90)]),
            [("ü", b"1"), ("", None)] if magic == 2 else [],
        )
        for index in range(9)
    ]  # fmt: skip
    if magic == 2:
        log = encode_batch(items, base_offset=700, codec=codec, producer_id=7, base_sequence=3)
    elif codec is Codec.NONE:
        log = b"".join(encode_message(one, offset=one.offset, magic=magic) for one in items)
    else:
        log = encode_wrapper(items, base_offset=700, magic=magic, codec=codec)
    found, batches = [], memory_records(package)(log)
    while (batch := batches.next_batch()) is not None:
        assert batch.validate_crc()
        found += [(one.offset, one.timestamp, one.key, one.value, list(one.headers)) for one in batch]
    assert found == [
        (one.offset, one.timestamp_ms if magic else None, one.key, one.value, list(one.headers)) for one in items
    ]


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec <= Codec.ZSTD])
def test_what_another_library_writes_is_read_here(codec: Codec) -> None:
    builders = pytest.importorskip("aiokafka.record.default_records")
    builder = builders.DefaultRecordBatchBuilder(
        magic=2, compression_type=int(codec), is_transactional=0, producer_id=4, producer_epoch=1, base_sequence=6,
        batch_size=10**6,
    )  # fmt: skip
    for index in range(50):
        builder.append(index, TIME + index, b"k%d" % index, b"v" * index, [("h", b"x" * index)])
    data = bytes(builder.build())
    header = decode_header(data)
    assert (header.codec, header.producer_id, header.record_count) == (codec, 4, 50)
    assert read(data) == [
        Record(index, TIME + index, CREATE, b"k%d" % index, b"v" * index, (("h", b"x" * index),), 6 + index)
        for index in range(50)
    ]
    if codec is Codec.NONE:
        assert encode_batch(read(data), producer_id=4, producer_epoch=1, base_sequence=6) == data
