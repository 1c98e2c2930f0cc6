"""Batches and messages: limits, damage of every bit, what is refused, and two other decoders beside."""

from __future__ import annotations

import itertools
import random
import struct
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.errors import CorruptBatchError, MessageIllegalError, UsageError
from mqstore.layout.kafka import constants as c
from mqstore.layout.kafka.batch import (
    assemble_batch,
    check_batch,
    decode_header,
    decode_records,
    encode_batch,
    encode_empty_batch,
    rebase,
)
from mqstore.layout.kafka.codec import compress
from mqstore.layout.kafka.constants import Codec, TimestampType
from mqstore.layout.kafka.control import (
    ControlType,
    decode_control_key,
    decode_end_transaction,
    encode_control_key,
    encode_end_transaction_marker,
)
from mqstore.layout.kafka.crc32c import crc32c
from mqstore.layout.kafka.damage import Damage
from mqstore.layout.kafka.message_set import encode_message, encode_wrapper
from mqstore.layout.kafka.record import Record, RecordFields, cut, decode_headers, encode_record_fields, find_record
from mqstore.layout.kafka.varint import VARLONG_BITS, decode_varint, encode_varint

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


# ---- varints ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (0, "00"), (-1, "01"), (1, "02"), (63, "7e"), (-64, "7f"), (64, "8001"), (-65, "8101"), (8191, "fe7f"),
        (8192, "808001"), (2**31 - 1, "feffffff0f"), (-(2**31), "ffffffff0f"),
    ],
)  # fmt: skip
def test_varints(value: int, data: str) -> None:
    assert encode_varint(value).hex() == encode_varint(value, VARLONG_BITS).hex() == data
    assert decode_varint(bytes.fromhex(data) + b"\xff", 0, len(data) // 2) == (value, len(data) // 2)


@given(st.integers(-(2**63), 2**63 - 1))
def test_varlongs_round_trip(value: int) -> None:
    data = encode_varint(value, VARLONG_BITS)
    assert len(data) <= 10
    assert decode_varint(b"\0" + data, 1, len(data) + 1, VARLONG_BITS) == (value, len(data) + 1)


@pytest.mark.parametrize(
    ("data", "bits"),
    [
        ("", 32), ("80", 32), ("ffffffff", 32), ("ffffffff10", 32), ("ffffffffff01", 32), ("808080808000", 32),
        ("ffffffffffffffffff", 64), ("ffffffffffffffffff02", 64), ("ffffffffffffffffffff01", 64),
    ],
)  # fmt: skip
def test_varints_that_are_none(data: str, bits: int) -> None:
    with pytest.raises(ValueError, match=r"bits|end inside"):
        decode_varint(bytes.fromhex(data), 0, len(data) // 2, bits)


def test_a_varint_may_be_longer_than_it_must() -> None:
    assert decode_varint(b"\x80\x80\x80\x80\x00", 0, 5) == (0, 5)


@pytest.mark.parametrize(("value", "bits"), [(2**31, 32), (-(2**31) - 1, 32), (2**63, 64), (-(2**63) - 1, 64)])
def test_numbers_that_do_not_fit(value: int, bits: int) -> None:
    with pytest.raises(UsageError):
        encode_varint(value, bits)


# ---- records ---------------------------------------------------------------------------------------------------

BYTES = st.one_of(st.none(), st.binary(max_size=100))
FIELDS = st.builds(
    RecordFields,
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-(2**31), 2**31 - 1),
    BYTES,
    BYTES,
    st.lists(st.tuples(st.text(max_size=10), BYTES), max_size=4).map(tuple),
)


@given(FIELDS)
def test_records_round_trip(fields: RecordFields) -> None:
    data = encode_record_fields(fields)
    framed = b"x" + data + b"x"
    places, end = find_record(framed, 1, len(data) + 1)
    assert end == len(data) + 1
    key, value = (
        cut(framed, places.key_position, places.key_size),
        cut(framed, places.value_position, places.value_size),
    )
    deltas = places.timestamp_delta_ms, places.offset_delta
    assert RecordFields(*deltas, key, value, decode_headers(framed, places)) == fields
    for end in range(len(data)):
        with pytest.raises(ValueError, match=r".+"):
            find_record(data, 0, end)


def test_null_and_empty_are_two_things() -> None:
    found = read(BATCH)
    assert found == RECORDS
    assert [(one.key, one.value) for one in found] == [(b"k", b"v"), (None, None), (b"", b"")]
    assert found[0].headers == (("h", b"1"), ("h", None))


# ---- every bit -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ITEMS)
def test_every_flipped_bit_is_found_or_harmless(name: str) -> None:
    """Offset, and in format 2 the leader epoch, are under no checksum; everything else is damage."""
    data = ITEMS[name]
    header, records = decode_header(data), read(data)
    for bit in range(8 * len(data)):
        changed = bytearray(data)
        changed[bit >> 3] ^= 1 << (bit & 7)
        try:
            told = decode_header(changed)
            found = decode_records(changed, told)
        except CorruptBatchError:
            continue
        if header.magic == 2 and 12 <= bit >> 3 < 16:
            assert told.leader_epoch != header.leader_epoch
            assert found == records
        else:
            assert bit >> 3 < 8, bit
            assert told.last_offset != header.last_offset
            assert [one._replace(offset=0) for one in found] == [one._replace(offset=0) for one in records]


@pytest.mark.parametrize("name", ITEMS)
def test_every_flipped_bit_without_checksums(name: str) -> None:
    """Nothing worse than a wrong value comes out, and no more than there is room for."""
    data = ITEMS[name]
    reasons: set[object] = set()
    for bit in range(8 * len(data)):
        changed = bytearray(data)
        changed[bit >> 3] ^= 1 << (bit & 7)
        try:
            found = read(bytes(changed), check_crc=False)
        except CorruptBatchError as error:
            reasons.add(error.found)
            continue
        assert len(found) <= 5
    assert {Damage.MAGIC, Damage.SHORT, Damage.LENGTH, Damage.OFFSETS} <= reasons <= set(Damage) - {Damage.CRC}


@pytest.mark.parametrize("name", ITEMS)
def test_every_truncation_is_short(name: str) -> None:
    for end in range(len(ITEMS[name])):
        assert reason(ITEMS[name][:end]) is Damage.SHORT
        with pytest.raises(CorruptBatchError):
            decode_header(ITEMS[name], 0, end)


@pytest.mark.parametrize("name", ["batch", "gzip"])
def test_wrong_counts_are_found(name: str) -> None:
    for count, wanted in ((0, Damage.RECORD), (1, Damage.RECORD), (2, Damage.RECORD), (-1, Damage.COUNT)):
        data = bytearray(ITEMS[name])
        struct.pack_into(">i", data, 57, count)
        assert reason(resealed(bytes(data))) is wanted
    for count in (100, 2**31 - 1):
        data = bytearray(ITEMS[name])
        struct.pack_into(">i", data, 57, count)
        assert reason(resealed(bytes(data))) is Damage.COUNT


def test_a_last_offset_before_a_record_is_found() -> None:
    data = bytearray(BATCH)
    struct.pack_into(">i", data, 23, 1)
    assert reason(resealed(bytes(data))) is Damage.RECORD_OFFSET


# ---- codecs in batches -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codecs(codec: int) -> None:
    data = bytearray(BATCH)
    data[22] |= codec
    sealed = resealed(bytes(data))
    header = decode_header(sealed)
    assert (header.codec, header.codec.name) == (codec, f"UNKNOWN_{codec}")
    check_batch(sealed, header)
    assert reason(sealed) is Damage.CODEC


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [4, 5, 7])
def test_codecs_that_messages_cannot_have(magic: int, codec: int) -> None:
    data = bytearray(encode_message(record(), offset=0, magic=magic))
    data[17] |= codec
    assert reason(resealed(bytes(data))) is Damage.CODEC


def packed(body: bytes, count: int = 1, codec: Codec = Codec.GZIP) -> bytes:
    return assemble_batch(
        body, record_count=count, last_offset_delta=count, base_timestamp_ms=0, max_timestamp_ms=0, attributes=codec
    )


def test_bombs_and_rubbish_in_batches() -> None:
    assert reason(packed(compress(Codec.GZIP, bytes(17 << 20)))) is Damage.TOO_LARGE
    assert reason(packed(compress(Codec.GZIP, bytes(100))), max_inflated_bytes=99) is Damage.TOO_LARGE
    assert reason(packed(b"rubbish")) is Damage.INFLATE
    assert reason(packed(compress(Codec.GZIP, b""), 1)) is Damage.COUNT
    assert read(packed(compress(Codec.GZIP, b""), 0)) == []
    assert reason(packed(compress(Codec.GZIP, b"\0"), 0)) is Damage.RECORD


def test_a_count_is_checked_against_what_was_inflated() -> None:
    one = encode_record_fields(RecordFields(0, 0, None, None, ()))
    assert len(one) == c.MIN_RECORD_SIZE
    assert reason(packed(compress(Codec.ZSTD, one * 5), 2**31 - 1, Codec.ZSTD)) is Damage.COUNT


# ---- times, horizons, sequences --------------------------------------------------------------------------------


def test_times_of_the_broker_override_all() -> None:
    found = read(encode_batch(RECORDS, timestamp_type=APPEND, log_append_time_ms=TIME + 77))
    assert [one.timestamp_ms for one in found] == [TIME + 77] * 3
    assert {one.timestamp_type for one in found} == {APPEND}


def test_a_delete_horizon_does_not_move_times() -> None:
    data = encode_batch(RECORDS, delete_horizon_ms=TIME + 10**9)
    header = decode_header(data)
    assert (header.delete_horizon_ms, header.base_timestamp_ms) == (TIME + 10**9, TIME + 10**9)
    assert decode_header(BATCH).delete_horizon_ms is None
    assert read(data) == RECORDS


def test_sequences_start_again_at_zero() -> None:
    found = read(encode_batch(RECORDS, producer_id=1, producer_epoch=0, base_sequence=2**31 - 2))
    assert [one.sequence for one in found] == [2**31 - 2, 2**31 - 1, 0]
    assert [one.sequence for one in read(BATCH)] == [-1] * 3


def test_holes_and_ends_of_compacted_batches() -> None:
    data = encode_batch(RECORDS, base_offset=100, offset_deltas=[3, 4, 9], last_offset_delta=20)
    header = decode_header(data)
    assert (header.base_offset, header.last_offset, header.record_count) == (100, 120, 3)
    assert [one.offset for one in read(data)] == [103, 104, 109]
    empty = encode_empty_batch(header)
    assert len(empty) == 61
    assert read(empty) == []
    assert decode_header(empty) == header._replace(
        size=61, record_count=0, base_timestamp_ms=-1, crc=decode_header(empty).crc
    )


def test_names_of_the_other_store() -> None:
    assert (RECORDS[0].body, RECORDS[2].queue_offset) == (b"v", 2)


# ---- wrappers --------------------------------------------------------------------------------------------------


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


# ---- control records -------------------------------------------------------------------------------------------


def test_control_records() -> None:
    assert decode_control_key(b"\0\0\0\1") is ControlType.COMMIT
    assert decode_control_key(b"\0\1\0\0more") is ControlType.ABORT
    assert decode_control_key(b"\0\0\1\0") == 256
    assert [decode_control_key(encode_control_key(kind)) for kind in ControlType] == list(ControlType)
    assert decode_end_transaction(b"\0\0\0\0\0\7more") == 7
    for call, wrong in itertools.product(
        (decode_control_key, decode_end_transaction), (None, b"", b"\0\0\0", b"\xff\xff\0\0\0\0")
    ):
        with pytest.raises(CorruptBatchError):
            call(wrong)


def test_markers() -> None:
    data = encode_end_transaction_marker(
        commit=False, offset=12, timestamp_ms=TIME, producer_id=5, producer_epoch=2, coordinator_epoch=9
    )
    header = decode_header(data)
    assert (len(data), header.is_control, header.is_transactional, header.base_sequence) == (78, True, True, -1)
    (found,) = read(data)
    assert (decode_control_key(found.key), decode_end_transaction(found.value)) == (ControlType.ABORT, 9)
    with pytest.raises(UsageError):
        encode_end_transaction_marker(
            commit=True, offset=0, timestamp_ms=0, producer_id=0, producer_epoch=0, coordinator_epoch=2**31
        )


# ---- refused ---------------------------------------------------------------------------------------------------


def too_many_headers(magic: int) -> Any:
    return lambda: encode_message(RECORDS[0], offset=0, magic=magic)


@pytest.mark.parametrize(
    ("error", "call"),
    [
        (UsageError, lambda: encode_batch([])),
        (UsageError, lambda: encode_batch(RECORDS, offset_deltas=[0])),
        (UsageError, lambda: encode_batch(RECORDS, offset_deltas=[0, 1, 2**31])),
        (UsageError, lambda: encode_batch(RECORDS, base_offset=-1)),
        (UsageError, lambda: encode_batch(RECORDS, base_offset=2**63 - 2)),
        (UsageError, lambda: encode_batch(RECORDS, last_offset_delta=-1)),
        (UsageError, lambda: encode_batch(RECORDS, leader_epoch=2**31)),
        (UsageError, lambda: encode_batch(RECORDS, producer_epoch=2**15)),
        (UsageError, lambda: encode_batch(RECORDS, timestamp_type=TimestampType.NONE)),
        (UsageError, lambda: encode_batch(RECORDS, codec=Codec.UNKNOWN_5)),
        (UsageError, lambda: encode_message(record(), offset=0, magic=2)),
        (UsageError, lambda: encode_message(record(), offset=2**63, magic=1)),
        (UsageError, lambda: encode_message(record(), offset=0, magic=1, codec=Codec.ZSTD)),
        (UsageError, lambda: encode_wrapper([], base_offset=0, magic=1, codec=Codec.GZIP)),
        (UsageError, lambda: encode_wrapper([record()], base_offset=0, magic=1, codec=Codec.NONE)),
        (MessageIllegalError, too_many_headers(0)),
        (MessageIllegalError, too_many_headers(1)),
        (UsageError, lambda: rebase(ITEMS["message 1"], 0, 0)),
        (UsageError, lambda: rebase(BATCH, -1, 0)),
        (UsageError, lambda: rebase(BATCH, 2**63 - 2, 0)),
        (UsageError, lambda: rebase(BATCH, 0, 2**31)),
        (CorruptBatchError, lambda: rebase(b"x", 0, 0)),
        (UsageError, lambda: decode_header(BATCH, -1)),
        (UsageError, lambda: decode_header(BATCH, len(BATCH) + 1)),
        (UsageError, lambda: decode_header(BATCH, 0, len(BATCH) + 1)),
    ],
)
def test_what_cannot_be_meant(error: type[Exception], call: Any) -> None:
    with pytest.raises(error):
        pytest.fail(f"{call()}")


# ---- two other decoders ----------------------------------------------------------------------------------------

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
