"""Kafka's batches and records into columns: the golden ones, any bytes alike in both twins, every border."""

from __future__ import annotations

import random
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.kafka_support import (
    EXTREMES,
    RECORDS,
    TIME,
    contents,
    damaged_log,
    headers_of,
    inflated,
    random_log,
    record,
)
from layout.kafka.golden_batches import (
    CODECS,
    DIRECTORIES,
    Rows,
    expected_batches,
    expected_records,
    log_files,
    unbase64,
)
from mqstore.errors import UsageError
from mqstore.kernels import BatchColumns, BatchStop, RecordColumns, RecordStop
from mqstore.layout.kafka import constants as c
from mqstore.layout.kafka.batch import encode_batch
from mqstore.layout.kafka.constants import Codec, TimestampType
from mqstore.layout.kafka.damage import Damage
from mqstore.layout.kafka.message_set import encode_message, encode_wrapper
from mqstore.layout.kafka.varint import encode_varint

BATCH = encode_batch(RECORDS, base_offset=40, leader_epoch=3, producer_id=9, producer_epoch=1, base_sequence=5)
MESSAGE_0 = encode_message(record(time=-1), offset=7, magic=0)
MESSAGE_1 = encode_message(record(None, b""), offset=8, magic=1)
WRAPPER = encode_wrapper([record(), record(None, None)], base_offset=9, magic=1, codec=Codec.GZIP)


def read_all(kernels: Any, log: bytes, position: int, end: int, check_crc: bool = True) -> list[Any]:
    """Everything that the kernels tell of a range."""
    batches = kernels.kafka_batches(log, position, end, check_crc=check_crc)
    told: list[Any] = [contents(batches)]
    row = 0
    while row < batches.count:
        records = kernels.kafka_batch_records(log, batches, row, batches.count)
        told.append(contents(records))
        told.append(headers_of(kernels.kafka_headers(log, records, 0, records.count)))
        row = records.next_row + 1
    return told


# ---- golden ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("directory", [*DIRECTORIES, "crash-0"])
def test_golden_logs_equal_in_both(native: Any, pure: Any, golden_kafka: Path, directory: str) -> None:
    for _, log in log_files(golden_kafka, directory):
        assert read_all(native, log, 0, len(log)) == read_all(pure, log, 0, len(log))


@pytest.mark.parametrize("directory", DIRECTORIES)
def test_batches_are_what_kafka_reads(native: Any, golden_kafka: Path, expected_kafka: Rows, directory: str) -> None:
    names = {
        "position": "position", "size": "sizeInBytes", "magic": "magic", "base_offset": "baseOffset", "crc": "crc",
        "last_offset": "lastOffset", "max_timestamp_ms": "maxTimestamp", "leader_epoch": "leaderEpoch",
        "producer_id": "producerId", "producer_epoch": "producerEpoch", "base_sequence": "baseSequence",
        "record_count": "count",
    }  # fmt: skip
    for base, log in log_files(golden_kafka, directory):
        rows = expected_batches(expected_kafka, directory, base)
        columns = native.kafka_batches(log, 0, len(log))
        assert (columns.count, columns.stop, columns.next_position) == (len(rows), BatchStop.END, len(log))
        for column, key in names.items():
            found = getattr(columns, column).tolist()
            assert [value for value, row in zip(found, rows, strict=True) if key in row] == [
                row[key] for row in rows if key in row
            ]
        assert [CODECS[row["codec"]] for row in rows] == [value & c.CODEC_MASK for value in columns.attributes]


def test_the_crash_image_ends_at_its_damage(kernels: Any, golden_kafka: Path) -> None:
    sound = dict(log_files(golden_kafka, "recovered-0"))
    for base, log in log_files(golden_kafka, "crash-0"):
        columns = kernels.kafka_batches(log, 0, len(log))
        assert columns.next_position == len(sound[base])
        if log != sound[base]:
            assert (columns.stop, columns.damage) == (BatchStop.DAMAGED, Damage.CRC)


@pytest.mark.parametrize("directory", [name for name in DIRECTORIES if not name.startswith("legacy")])
def test_records_are_what_kafka_reads(native: Any, golden_kafka: Path, expected_kafka: Rows, directory: str) -> None:
    """In one go over all batches of format 2, inflated before."""
    for base, log in log_files(golden_kafka, directory):
        batches = native.kafka_batches(log, 0, len(log))
        wanted = expected_records(expected_kafka, directory, base)
        first = next((row for row in range(batches.count) if batches.magic[row] == 2), batches.count)
        body, places = inflated(log, batches, first, batches.count)
        records = native.kafka_batch_records(body, batches, first, batches.count, bodies=places)
        assert (records.stop, records.next_row) == (RecordStop.END, batches.count)
        assert found(native, body, batches, records) == {
            batches.position[row]: expected(wanted[batches.position[row]]) for row in range(first, batches.count)
        }


def found(kernels: Any, body: bytes, batches: BatchColumns, records: RecordColumns) -> dict[int, list[Any]]:
    """The records of a walk by their batches' positions."""
    headers = headers_of(kernels.kafka_headers(body, records, 0, records.count))
    told: dict[int, list[Any]] = {batches.position[row]: [] for row in range(batches.count) if batches.magic[row] == 2}
    for row in range(records.count):
        key, value = ((records.key_position[row], records.key_size[row]),
                      (records.value_position[row], records.value_size[row]))  # fmt: skip
        told[batches.position[records.batch_row[row]]].append(
            (
                records.offset[row],
                records.timestamp_ms[row],
                *(None if size < 0 else body[place : place + size] for place, size in (key, value)),
                headers[row],
            )
        )
    return told


def expected(rows: list[dict[str, Any]]) -> list[Any]:
    return [
        (
            row["offset"],
            row["timestamp"],
            unbase64(row["key"]),
            unbase64(row["value"]),
            [(name, unbase64(value)) for name, value in row["headers"]],
        )
        for row in rows
    ]


@pytest.mark.parametrize("directory", ["legacyv0-0", "legacyv1-0", "mixed-0"])
def test_plain_messages_are_what_kafka_reads(
    kernels: Any, golden_kafka: Path, expected_kafka: Rows, directory: str
) -> None:
    for base, log in log_files(golden_kafka, directory):
        batches = kernels.kafka_batches(log, 0, len(log))
        wanted = expected_records(expected_kafka, directory, base)
        for row in range(batches.count):
            if batches.magic[row] == 2:
                continue
            records = kernels.kafka_batch_records(log, batches, row, row + 1)
            if batches.attributes[row] & c.CODEC_MASK:
                assert (records.count, records.stop, records.next_row) == (0, RecordStop.PACKED, row)
                continue
            (record,) = wanted[batches.position[row]]
            assert records.batch_row.tolist() == [row]
            assert (records.offset[0], records.timestamp_ms[0]) == (record["offset"], record["timestamp"])
            for name in ("key", "value"):
                place, size = getattr(records, f"{name}_position")[0], getattr(records, f"{name}_size")[0]
                assert unbase64(record[name]) == (None if size < 0 else log[place : place + size])


def test_one_batch_by_itself(kernels: Any, golden_kafka: Path) -> None:
    for _, log in log_files(golden_kafka, "codecs-0"):
        batches = kernels.kafka_batches(log, 0, len(log))
        for row in range(batches.count):
            body, places = inflated(log, batches, row, row + 1)
            together = kernels.kafka_batch_records(body, batches, row, row + 1, bodies=places)
            alone = kernels.kafka_records(
                body, 0, len(body), base_offset=batches.base_offset[row], last_offset=batches.last_offset[row],
                base_timestamp_ms=batches.base_timestamp_ms[row], count=batches.record_count[row], batch_row=row,
            )  # fmt: skip
            assert contents(together) == contents(alone)


# ---- borders and damage ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("item", [BATCH, MESSAGE_0, MESSAGE_1, WRAPPER], ids=["2", "0", "1", "wrapper"])
def test_every_truncation_is_short(kernels: Any, item: bytes) -> None:
    log = MESSAGE_1 + item
    for end in range(len(MESSAGE_1), len(log)):
        for check_crc in (True, False):
            columns = kernels.kafka_batches(log, 0, end, check_crc=check_crc)
            assert (columns.count, columns.next_position, columns.damage) == (1, len(MESSAGE_1), None)
            assert columns.stop is (BatchStop.END if end == len(MESSAGE_1) else BatchStop.SHORT)


@pytest.mark.parametrize("item", [BATCH, MESSAGE_0, MESSAGE_1, WRAPPER], ids=["2", "0", "1", "wrapper"])
def test_every_bit_flip_is_judged_alike(native: Any, pure: Any, item: bytes) -> None:
    """Without checksums, so that everything behind them is reached."""
    log = bytearray(item + MESSAGE_0)
    for bit in range(8 * len(item)):
        log[bit >> 3] ^= 1 << (bit & 7)
        told = read_all(native, bytes(log), 0, len(log), check_crc=False)
        assert told == read_all(pure, bytes(log), 0, len(log), check_crc=False)
        log[bit >> 3] ^= 1 << (bit & 7)


@pytest.mark.parametrize("item", [BATCH, MESSAGE_0, MESSAGE_1, WRAPPER], ids=["2", "0", "1", "wrapper"])
def test_every_bit_under_the_checksum_is_found(kernels: Any, item: bytes) -> None:
    log = bytearray(item)
    is_batch = item[c.MAGIC_POSITION] == 2
    for bit in range(8 * len(item)):
        log[bit >> 3] ^= 1 << (bit & 7)
        columns = kernels.kafka_batches(log, 0, len(log))
        # Offset and, in format 2, leader epoch are not covered; a negative offset is damage all the same.
        free = range(64) if not is_batch else [*range(64), *range(96, 128)]
        if bit in free and not (bit >> 3 == 0 and bit & 7 == 7):
            assert columns.count == 1, bit
        else:
            assert columns.count == 0, bit
            assert columns.stop in (BatchStop.DAMAGED, BatchStop.SHORT)
        log[bit >> 3] ^= 1 << (bit & 7)


@pytest.mark.parametrize("value", EXTREMES)
def test_extreme_numbers_anywhere(native: Any, pure: Any, value: int) -> None:
    log = BATCH + MESSAGE_0 + MESSAGE_1
    for at in range(len(log) - 3):
        changed = bytearray(log)
        struct.pack_into(">i", changed, at, value)
        told = read_all(native, bytes(changed), 0, len(log), check_crc=False)
        assert told == read_all(pure, bytes(changed), 0, len(log), check_crc=False)


@pytest.mark.parametrize(
    ("damage", "place", "patch"),
    [
        (Damage.UNWRITTEN, 0, bytes(17)),
        (Damage.MAGIC, 16, b"\3"),
        (Damage.MAGIC, 16, b"\xff"),
        (Damage.LENGTH, 8, struct.pack(">i", 48)),
        (Damage.LENGTH, 8, struct.pack(">i", -1)),
        (Damage.LENGTH, 8, struct.pack(">i", 2**31 - 12)),
        (Damage.OFFSETS, 0, struct.pack(">q", -1)),
        (Damage.OFFSETS, 0, struct.pack(">q", 2**63 - 3)),
        (Damage.OFFSETS, 23, struct.pack(">i", -1)),
        (Damage.COUNT, 57, struct.pack(">i", -1)),
        (Damage.COUNT, 57, struct.pack(">i", (len(BATCH) - 61) // 7 + 1)),
        (Damage.CRC, 57, struct.pack(">i", (len(BATCH) - 61) // 7)),
        (Damage.CRC, 60, b"\5"),
        (Damage.CRC, 17, b"\0"),
    ],
)
def test_reasons(kernels: Any, damage: Damage, place: int, patch: bytes) -> None:
    log = bytearray(BATCH + BATCH)
    log[place : place + len(patch)] = patch
    columns = kernels.kafka_batches(log, 0, len(log))
    stop = BatchStop.PADDING if damage is Damage.UNWRITTEN else BatchStop.DAMAGED
    assert (columns.count, columns.stop, columns.damage, columns.next_position) == (0, stop, damage, 0)


def test_the_largest_offset_there_is(kernels: Any) -> None:
    log = bytearray(BATCH)
    struct.pack_into(">q", log, 0, 2**63 - 1 - 3)
    columns = kernels.kafka_batches(log, 0, len(log))
    assert columns.last_offset.tolist() == [2**63 - 1]
    records = kernels.kafka_batch_records(log, columns, 0, 1)
    assert records.offset.tolist() == [2**63 - 4 + number for number in range(4)]


@pytest.mark.parametrize("magic", [0, 1])
def test_shortest_messages(kernels: Any, magic: int) -> None:
    log = encode_message(record(None, None), offset=0, magic=magic)
    assert len(log) == (26, 34)[magic]
    assert kernels.kafka_batches(log, 0, len(log)).count == 1
    columns = kernels.kafka_batches(log[:11] + bytes([log[11] - 1]) + log[12:], 0, len(log), check_crc=False)
    assert columns.damage is Damage.LENGTH


def test_zeros_are_padding(kernels: Any) -> None:
    log = BATCH + bytes(100)
    columns = kernels.kafka_batches(log, 0, len(log))
    assert (columns.count, columns.stop, columns.next_position) == (1, BatchStop.PADDING, len(BATCH))
    # Too few to tell from a batch whose offset begins with zeros.
    assert kernels.kafka_batches(log, 0, len(BATCH) + 16).stop is BatchStop.SHORT


def test_an_unknown_codec_is_no_damage_to_a_scan(kernels: Any) -> None:
    log = bytearray(BATCH)
    log[22] |= 5
    columns = kernels.kafka_batches(log, 0, len(log), check_crc=False)
    assert columns.count == 1
    assert kernels.kafka_batch_records(log, columns, 0, 1).stop is RecordStop.PACKED


def records_by(kernels: Any, body: bytes, count: int = 1, last_offset: int = 0) -> RecordColumns:
    columns: RecordColumns = kernels.kafka_records(
        body, 0, len(body), base_offset=0, last_offset=last_offset, base_timestamp_ms=TIME, count=count
    )
    return columns


def raw_record(*parts: bytes) -> bytes:
    body = b"".join(parts)
    return encode_varint(len(body)) + body


ZERO = b"\0"
NONE = b"\1"


@pytest.mark.parametrize(
    ("damage", "body", "count"),
    [
        (Damage.COUNT, b"", 1),
        (Damage.COUNT, raw_record(ZERO, ZERO, ZERO, NONE, NONE, ZERO), 2),
        (Damage.RECORD, raw_record(ZERO, ZERO, ZERO, NONE, NONE, ZERO) + ZERO, 1),
        (Damage.RECORD, raw_record(ZERO, ZERO, ZERO, NONE, NONE, ZERO, ZERO), 1),
        (Damage.RECORD, raw_record(ZERO, ZERO, ZERO, NONE, NONE, ZERO), 0),
        (Damage.RECORD, ZERO * 20, 1),
        (Damage.RECORD, NONE * 20, 1),
        (Damage.RECORD, encode_varint(2**31 - 1) + ZERO * 20, 1),
        (Damage.RECORD, encode_varint(-(2**31)) + ZERO * 20, 1),
        (Damage.RECORD, b"\xff" * 20, 1),
        (Damage.RECORD, b"\x80" * 20, 1),
        (Damage.RECORD, raw_record(ZERO, ZERO, ZERO, encode_varint(-2), NONE, ZERO), 1),
        (Damage.RECORD, raw_record(ZERO, ZERO, ZERO, NONE, encode_varint(-2), ZERO), 1),
        (Damage.RECORD, raw_record(ZERO, ZERO, ZERO, encode_varint(9), NONE, ZERO), 1),
        (Damage.RECORD, raw_record(ZERO, ZERO, ZERO, NONE, NONE, encode_varint(-1)), 1),
        (Damage.RECORD, raw_record(ZERO, ZERO, ZERO, NONE, NONE, encode_varint(1)), 1),
        (Damage.RECORD, raw_record(ZERO, ZERO, ZERO, NONE, NONE, encode_varint(1), NONE, ZERO), 1),
        (Damage.RECORD, raw_record(ZERO, ZERO, ZERO, NONE, NONE, encode_varint(2**31 - 1), ZERO, ZERO), 1),
        (Damage.RECORD, raw_record(ZERO, b"\xff" * 10, ZERO, NONE, NONE, ZERO), 1),
        (Damage.RECORD, raw_record(ZERO, b"\xff" * 9 + b"\2", ZERO, NONE, NONE, ZERO), 1),
        (Damage.RECORD, raw_record(ZERO, ZERO, b"\xff" * 4 + b"\x10", NONE, NONE, ZERO), 1),
        (Damage.RECORD_OFFSET, raw_record(ZERO, ZERO, b"\2", NONE, NONE, ZERO), 1),
        (Damage.RECORD_OFFSET, raw_record(ZERO, ZERO, b"\1", NONE, NONE, ZERO), 1),
        (Damage.RECORD_OFFSET, raw_record(ZERO, ZERO, b"\xff" * 4 + b"\x0f", NONE, NONE, ZERO), 1),
    ],
)
def test_records_that_are_not_sound(kernels: Any, damage: Damage, body: bytes, count: int) -> None:
    columns = records_by(kernels, body, count)
    assert (columns.count, columns.stop, columns.damage, columns.next_row) == (0, RecordStop.DAMAGED, damage, 0)


def test_numbers_at_their_limits(kernels: Any) -> None:
    longest = b"\xfe" + b"\xff" * 8 + b"\1"
    body = raw_record(b"\x55", longest, encode_varint(2**31 - 1), b"\x82\0", b"v", b"\x81\0", ZERO)
    columns = records_by(kernels, body, 1, 2**31 - 1)
    assert columns.stop is RecordStop.END
    # One past the largest time is the smallest, as in Java.
    assert columns.timestamp_ms.tolist() == [TIME + 2**63 - 1 - 2**64]
    assert columns.offset.tolist() == [2**31 - 1]
    assert (columns.key_size.tolist(), columns.value_size.tolist()) == ([1], [-1])


def test_no_records_at_all(kernels: Any) -> None:
    columns = records_by(kernels, b"", 0)
    assert (columns.count, columns.stop, columns.next_row) == (0, RecordStop.END, 1)


def test_times_of_the_broker(kernels: Any) -> None:
    log = encode_batch(
        RECORDS, codec=Codec.NONE, timestamp_type=TimestampType.LOG_APPEND_TIME, log_append_time_ms=TIME + 7
    )
    batches = kernels.kafka_batches(log, 0, len(log))
    assert kernels.kafka_batch_records(log, batches, 0, 1).timestamp_ms.tolist() == [TIME + 7] * 4
    alone = kernels.kafka_records(
        log, 61, len(log), base_offset=0, last_offset=3, base_timestamp_ms=TIME, count=4, log_append_time_ms=-1
    )
    assert alone.timestamp_ms.tolist() == [-1] * 4


def test_a_damaged_batch_gives_none_of_its_records(kernels: Any) -> None:
    broken = bytearray(BATCH)
    broken[-1] = 1
    log = BATCH + bytes(broken) + BATCH
    batches = kernels.kafka_batches(log, 0, len(log), check_crc=False)
    records = kernels.kafka_batch_records(log, batches, 0, 3)
    assert (records.count, records.stop, records.next_row) == (4, RecordStop.DAMAGED, 1)
    assert records.damage is Damage.RECORD
    behind = kernels.kafka_batch_records(log, batches, 2, 3)
    assert (behind.count, behind.batch_row.tolist()) == (4, [2] * 4)


def test_full_and_on(kernels: Any) -> None:
    log = b"".join(encode_message(record(), offset=number, magic=1) for number in range(10))
    position, offsets = 0, []
    while True:
        columns = kernels.kafka_batches(log, position, len(log), max_batches=3)
        offsets += columns.last_offset.tolist()
        position = columns.next_position
        if columns.stop is not BatchStop.FULL:
            break
    assert (offsets, columns.stop) == (list(range(10)), BatchStop.END)


def test_many_small_batches_behind_a_large_one(native: Any, pure: Any) -> None:
    log = encode_batch([record(value=bytes(20_000))]) + MESSAGE_0 * 3000
    assert native.kafka_batches(log, 0, len(log), check_crc=False).count == 3001
    assert contents(native.kafka_batches(log, 0, len(log), check_crc=False)) == contents(
        pure.kafka_batches(log, 0, len(log), check_crc=False)
    )


def test_nothing_outside_the_range_is_looked_at(kernels: Any) -> None:
    log = b"\xff" * 50 + BATCH + b"\xff" * 50
    columns = kernels.kafka_batches(log, 50, 50 + len(BATCH))
    assert (columns.count, columns.stop, columns.next_position) == (1, BatchStop.END, 50 + len(BATCH))


def test_the_empty_range(kernels: Any) -> None:
    columns = kernels.kafka_batches(b"", 0, 0)
    assert (len(columns), columns.stop, columns.position.tolist()) == (0, BatchStop.END, [])
    records = kernels.kafka_batch_records(b"", columns, 0, 0)
    assert (len(records), records.stop, records.offset.tolist()) == (0, RecordStop.END, [])
    assert headers_of(kernels.kafka_headers(b"", records, 0, 0)) == []


@pytest.mark.parametrize(("position", "end"), [(-1, 5), (0, 11), (6, 5), (11, 11)])
def test_ranges_outside_the_buffer_are_refused(kernels: Any, position: int, end: int) -> None:
    with pytest.raises(UsageError):
        kernels.kafka_batches(bytes(10), position, end)
    with pytest.raises(UsageError):
        kernels.kafka_records(bytes(10), position, end, base_offset=0, last_offset=0, base_timestamp_ms=0, count=1)


def test_what_cannot_be_meant_is_refused(kernels: Any) -> None:
    batches = kernels.kafka_batches(BATCH + MESSAGE_1, 0, len(BATCH + MESSAGE_1))
    calls = [
        lambda: kernels.kafka_batches(b"", 0, 0, max_batches=0),
        lambda: kernels.kafka_batch_records(BATCH, batches, 0, 3),
        lambda: kernels.kafka_batch_records(BATCH, batches, -1, 1),
        lambda: kernels.kafka_batch_records(BATCH[:-1], batches, 0, 1),
        lambda: kernels.kafka_batch_records(b"", batches, 1, 2),
        lambda: kernels.kafka_batch_records(BATCH, batches, 0, 1, bodies=[0]),
        lambda: kernels.kafka_batch_records(BATCH, batches, 0, 1, bodies=[0, len(BATCH) + 1]),
        lambda: kernels.kafka_batch_records(BATCH, batches, 0, 1, bodies=[5, 4]),
        lambda: kernels.kafka_batch_records(BATCH, batches, 0, 1, bodies=[-1, 4]),
        lambda: kernels.kafka_batch_records(BATCH, batches, 0, 2, bodies=[0, 0, len(BATCH)]),
        lambda: kernels.kafka_records(BATCH, 0, 1, base_offset=-1, last_offset=0, base_timestamp_ms=0, count=0),
        lambda: kernels.kafka_records(BATCH, 0, 1, base_offset=1, last_offset=0, base_timestamp_ms=0, count=0),
        lambda: kernels.kafka_records(BATCH, 0, 1, base_offset=0, last_offset=0, base_timestamp_ms=0, count=-1),
    ]
    for number, call in enumerate(calls):
        with pytest.raises(UsageError):
            pytest.fail(f"call {number} gave {call()}")


def test_headers_of_another_buffer_are_refused(kernels: Any) -> None:
    batches = kernels.kafka_batches(BATCH, 0, len(BATCH))
    records = kernels.kafka_batch_records(BATCH, batches, 0, 1)
    for other in (b"", BATCH[:80], bytes(len(BATCH)), b"\xff" * len(BATCH), b"\1" * len(BATCH)):
        with pytest.raises(UsageError):
            pytest.fail(f"{headers_of(kernels.kafka_headers(other, records, 0, 4))}")


def test_malformed_names_of_headers(native: Any, pure: Any) -> None:
    names = [b"\xff", b"a\xc3", b"\xed\xa0\x80", b"\xf0\x9f\x98\x80", b""]
    pairs = b"".join(encode_varint(len(name)) + name + NONE for name in names)
    body = raw_record(ZERO, ZERO, ZERO, NONE, NONE, encode_varint(len(names)), pairs)
    for kernels in (native, pure):
        records = records_by(kernels, body)
        assert headers_of(kernels.kafka_headers(body, records, 0, 1)) == [
            [("\ufffd", None), ("a\ufffd", None), ("\ufffd", None), ("😀", None), ("", None)]
        ]


def test_buffers_of_an_allocator(kernels: Any) -> None:
    sizes = []

    def allocate(size: int) -> bytearray:
        sizes.append(size)
        return bytearray(b"\xff" * size)

    batches = kernels.kafka_batches(BATCH, 0, len(BATCH))
    records = kernels.kafka_batch_records(BATCH, batches, 0, 1)
    lists = kernels.kafka_headers(BATCH, records, 0, 4, allocate=allocate)
    assert headers_of(lists) == [[("trace", b"7f"), ("trace", None), ("", b"")], [], [], []]
    assert sorted(sizes) == sorted(len(bytes(part)) for part in lists)


# ---- any bytes -------------------------------------------------------------------------------------------------


@settings(max_examples=150)
@given(st.integers(0, 2**32), st.booleans(), st.data())
def test_any_log_is_judged_alike(native: Any, pure: Any, seed: int, check_crc: bool, data: st.DataObject) -> None:
    chance = random.Random(seed)
    log = random_log(chance)
    if data.draw(st.booleans()):
        log = damaged_log(chance, log)
    end = data.draw(st.integers(0, len(log)))
    for stop in (len(log), end):
        assert read_all(native, log, 0, stop, check_crc) == read_all(pure, log, 0, stop, check_crc)


@settings(max_examples=300)
@given(st.binary(max_size=120), st.integers(0, 12), st.integers(0, 3))
def test_any_body_is_judged_alike(native: Any, pure: Any, body: bytes, count: int, last_offset: int) -> None:
    assert contents(records_by(native, body, count, last_offset)) == contents(
        records_by(pure, body, count, last_offset)
    )
