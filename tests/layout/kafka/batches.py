"""Records and batches of every format, for the tests of this folder."""

from __future__ import annotations

import struct
from typing import Any
from zlib import crc32

import pytest

from mqstore.errors import CorruptBatchError
from mqstore.layout.kafka import constants as c
from mqstore.layout.kafka.batch import (
    decode_header,
    decode_records,
    encode_batch,
)
from mqstore.layout.kafka.constants import Codec, TimestampType
from mqstore.layout.kafka.crc32c import crc32c
from mqstore.layout.kafka.damage import Damage
from mqstore.layout.kafka.message_set import encode_message, encode_wrapper
from mqstore.layout.kafka.record import Record

TIME = 1_700_000_000_000
CREATE, APPEND = TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME


def record(offset: int = 0, key: bytes | None = b"k", value: bytes | None = b"v", headers: Any = ()) -> Record:
    return Record(offset, TIME + offset, CREATE, key, value, tuple(headers))


RECORDS = [record(0, headers=[("h", b"1"), ("h", None)]), record(1, None, None), record(2, b"", b"")]
BATCH = encode_batch(RECORDS)
ITEMS = {
    "batch": BATCH,
    "gzip": encode_batch(RECORDS, codec=Codec.GZIP),
    "message 0": encode_message(record(5), offset=5, magic=0),
    "message 1": encode_message(record(5), offset=5, magic=1),
    "wrapper 0": encode_wrapper(RECORDS[1:], base_offset=5, magic=0, codec=Codec.SNAPPY),
    "wrapper 1": encode_wrapper(RECORDS[1:], base_offset=5, magic=1, codec=Codec.LZ4),
}


def read(data: bytes, **options: Any) -> list[Record]:
    return decode_records(data, decode_header(data), **options)


def reason(data: bytes, **options: Any) -> Damage:
    with pytest.raises(CorruptBatchError) as caught:
        pytest.fail(f"{read(data, **options)}")
    assert caught.value.offset == 0
    assert isinstance(caught.value.found, Damage)
    return caught.value.found


def resealed(data: bytes) -> bytes:
    """The same batch or message with a right checksum."""
    if data[c.MAGIC_POSITION] == 2:
        return data[:17] + struct.pack(">I", crc32c(data[21:])) + data[21:]
    return data[:12] + struct.pack(">I", crc32(data[16:])) + data[16:]
