"""Batches: damage of every bit, codecs, times, control records, what is refused."""

from __future__ import annotations

import itertools
import struct
from typing import Any

import pytest

from layout.kafka.batches import APPEND, BATCH, ITEMS, RECORDS, TIME, read, reason, record, resealed
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
from mqstore.layout.kafka.damage import Damage
from mqstore.layout.kafka.message_set import encode_message, encode_wrapper
from mqstore.layout.kafka.record import RecordFields, encode_record_fields

# ---- every bit -------------------------------------------------------------------------------------------------------


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


# ---- codecs in batches -----------------------------------------------------------------------------------------------


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


# ---- times, horizons, sequences --------------------------------------------------------------------------------------


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


# ---- control records -------------------------------------------------------------------------------------------------


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


# ---- refused ---------------------------------------------------------------------------------------------------------


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
