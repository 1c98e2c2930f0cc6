"""Compressed messages of the old formats: offsets and times inside, and those that are not sound."""

from __future__ import annotations

import struct

import pytest

from layout.kafka.batches import APPEND, BATCH, CREATE, RECORDS, TIME, read, reason, record, resealed
from mqstore.layout.kafka.batch import (
    decode_header,
)
from mqstore.layout.kafka.codec import compress
from mqstore.layout.kafka.constants import Codec, TimestampType
from mqstore.layout.kafka.damage import Damage
from mqstore.layout.kafka.message_set import encode_message, encode_wrapper
from mqstore.layout.kafka.record import Record


def wrapper(
    messages: bytes | None, offset: int, magic: int = 1, kind: TimestampType = CREATE, time: int = TIME
) -> bytes:
    value = None if messages is None else compress(Codec.GZIP, messages, magic=magic)
    outer = Record(offset, time, kind, None, value)
    return encode_message(outer, offset=offset, magic=magic, codec=Codec.GZIP, timestamp_type=kind)


def inside(*offsets: int, magic: int = 1) -> bytes:
    return b"".join(encode_message(record(offset), offset=offset, magic=magic) for offset in offsets)


@pytest.mark.parametrize(
    ("data", "offsets"),
    [
        (wrapper(inside(0, 1, 2), 102), [100, 101, 102]),
        (wrapper(inside(0, 4, 7), 107), [100, 104, 107]),
        (wrapper(inside(5, 6), 6), [5, 6]),
        (wrapper(inside(0), 0), [0]),
        # Early clients left 0 in the wrapper, and true offsets inside.
        (wrapper(inside(100, 101), 0), [100, 101]),
        (wrapper(inside(100, 101, magic=0), 101, magic=0), [100, 101]),
        (wrapper(inside(100, 101, magic=0), 0, magic=0), [100, 101]),
        # Whatever is inside was read as what it is.
        (wrapper(inside(0, 1, magic=0), 101), [100, 101]),
    ],
)
def test_offsets_in_wrappers(data: bytes, offsets: list[int]) -> None:
    assert [one.offset for one in read(data)] == offsets
    header = decode_header(data)
    assert (header.is_wrapper, header.base_offset, header.record_count) == (True, header.last_offset, -1)


def test_times_in_wrappers() -> None:
    assert [one.timestamp_ms for one in read(wrapper(inside(0, 1), 5, time=TIME + 50))] == [TIME, TIME + 1]
    found = read(wrapper(inside(0, 1), 5, kind=APPEND, time=TIME + 50))
    assert [(one.timestamp_ms, one.timestamp_type) for one in found] == [(TIME + 50, APPEND)] * 2
    assert [one.timestamp_ms for one in read(wrapper(inside(0, magic=0), 5, magic=0))] == [-1]


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        (wrapper(inside(0, 9), 8), Damage.RECORD_OFFSET),
        (wrapper(b"", 8), Damage.WRAPPER),
        (wrapper(None, 8), Damage.WRAPPER),
        (wrapper(wrapper(inside(0), 0), 8), Damage.WRAPPER),
        (wrapper(BATCH, 8), Damage.WRAPPER),
        (wrapper(inside(0) + b"\0" * 20, 8), Damage.RECORD),
        (wrapper(inside(0)[:-1], 8), Damage.RECORD),
        (wrapper(inside(0)[:-1] + b"x", 8), Damage.RECORD),
    ],
)
def test_wrappers_that_are_not_sound(data: bytes, wanted: Damage) -> None:
    assert reason(data) is wanted


def test_checksums_inside_are_compared_on_demand() -> None:
    data = wrapper(inside(0)[:-1] + b"x", 8)
    assert read(data, check_crc=False)[0].value == b"x"


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("size", [-2, 2, 2**31 - 1, -(2**31)])
def test_lengths_in_messages(magic: int, size: int) -> None:
    data = bytearray(encode_message(record(), offset=0, magic=magic))
    for place in ((18, 23), (26, 31))[magic]:
        changed = bytearray(data)
        struct.pack_into(">i", changed, place, size)
        assert reason(resealed(bytes(changed))) is Damage.RECORD


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_wrappers_round_trip(magic: int, codec: Codec) -> None:
    kind = TimestampType.NONE if magic == 0 else CREATE
    found = read(encode_wrapper(RECORDS[1:], base_offset=70, magic=magic, codec=codec))
    assert found == [
        one._replace(offset=70 + number, timestamp_type=kind, timestamp_ms=one.timestamp_ms if magic else -1)
        for number, one in enumerate(RECORDS[1:])
    ]
