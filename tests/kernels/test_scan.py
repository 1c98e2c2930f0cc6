from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.support import (
    BASE,
    LOGS,
    V6,
    contents,
    damaged_logs,
    expected_records,
    log_files,
    make_log,
    message,
)
from mqstore.errors import UsageError
from mqstore.kernels import Stop
from mqstore.layout import constants as c
from mqstore.layout.record import Damage

STORES = ("basic", "v5-basic", "crashed", "cleaned", "v5-cleaned", "broker", "torn-flip-abort")


@pytest.mark.parametrize("name", STORES)
def test_golden_logs_equal_in_both(native: Any, pure: Any, golden: Path, name: str) -> None:
    for base, log in log_files(golden / name):
        assert contents(native.scan(log, 0, len(log), base)) == contents(pure.scan(log, 0, len(log), base))


@pytest.mark.parametrize("name", ["basic", "v5-basic", "cleaned"])
def test_columns_are_what_the_real_decoder_read(kernels: Any, golden: Path, name: str) -> None:
    numbers = {
        "size": "storeSize",
        "magic": "magic",
        "queue_id": "queueId",
        "queue_offset": "queueOffset",
        "flag": "flag",
        "sys_flag": "sysFlag",
        "born_timestamp_ms": "bornTimestamp",
        "store_timestamp_ms": "storeTimestamp",
        "body_crc": "bodyCRC",
        "reconsume_times": "reconsumeTimes",
        "prepared_transaction_offset": "preparedTransactionOffset",
    }
    records = iter(expected_records(golden / name))
    for base, log in log_files(golden / name):
        columns = kernels.scan(log, 0, len(log), base)
        for row in range(columns.count):
            record = next(records)
            assert base + columns.position[row] == record["commitLogOffset"]
            assert {key: getattr(columns, column)[row] for column, key in numbers.items()} == {
                key: record[key] for key in numbers.values()
            }
            assert _text(log, columns, row, "topic") == record["topic"]
            properties = record["properties"]
            assert _text(log, columns, row, "tags") == properties.get("TAGS")
            assert _text(log, columns, row, "keys") == properties.get("KEYS")
            assert _text(log, columns, row, "uniq_key") == properties.get("UNIQ_KEY")
    assert next(records, None) is None


def _text(log: bytes, columns: Any, row: int, name: str) -> str | None:
    position, size = getattr(columns, name + "_position")[row], getattr(columns, name + "_size")[row]
    return None if size < 0 else log[position : position + size].decode()


@pytest.mark.parametrize("name", ["basic", "v5-basic"])
def test_blank_records_end_files(kernels: Any, golden: Path, name: str) -> None:
    expected = json.loads((golden / name / "EXPECTED-QUEUES.json").read_text())["blanks"]
    found = []
    for base, log in log_files(golden / name):
        columns = kernels.scan(log, 0, len(log), base)
        if columns.stop is Stop.BLANK:
            found.append({"offset": base + columns.next_position, "size": columns.blank_size})
    assert found == expected


@pytest.mark.parametrize("name", ["torn-flip-clean", "torn-short-abort"])
def test_torn_ends_are_found(kernels: Any, golden: Path, name: str) -> None:
    torn = json.loads((golden / name / "TORN.json").read_text())
    base, log = log_files(golden / name)[-1]
    columns = kernels.scan(log, 0, len(log), base)
    assert base + columns.next_position == torn["commitLogOffset"]
    if name.startswith("torn-flip"):
        assert (columns.stop, columns.damage) == (Stop.DAMAGED, Damage.BODY_CRC)
        assert kernels.scan(log, 0, len(log), base, check_crc=False).damage == Damage.UNWRITTEN
    else:
        assert columns.stop is Stop.SHORT
        assert columns.short_size > len(log) - columns.next_position


RECORDS = [
    message(),
    message(born_host=V6, store_host=V6, body=b"", properties=b""),
    message(magic=c.MAGIC_V2, topic=b"t" * 200, born_host=V6),
]


@pytest.mark.parametrize("fields", RECORDS)
def test_every_truncation_is_short(kernels: Any, fields: dict[str, Any]) -> None:
    log = make_log(message(), fields)
    first = len(make_log(message()))
    for end in range(first, len(log)):
        columns = kernels.scan(log, 0, end, BASE)
        assert columns.count == 1
        assert columns.next_position == first
        if end == first:
            assert columns.stop is Stop.END
        else:
            assert columns.stop is Stop.SHORT
            assert columns.short_size == (len(log) - first if end - first >= 8 else 0)
    assert kernels.scan(log, 0, len(log), BASE).stop is Stop.END


@pytest.mark.parametrize("fields", RECORDS)
@pytest.mark.parametrize("check_crc", [True, False])
def test_every_bit_flip_is_judged_alike(native: Any, pure: Any, fields: dict[str, Any], check_crc: bool) -> None:
    log = bytearray(make_log(fields, message()))
    for bit in range(8 * len(make_log(fields))):
        log[bit >> 3] ^= 1 << (bit & 7)
        told = contents(native.scan(log, 0, len(log), BASE, check_crc=check_crc))
        assert told == contents(pure.scan(log, 0, len(log), BASE, check_crc=check_crc))
        log[bit >> 3] ^= 1 << (bit & 7)


def test_bit_flips_in_length_fields_offset_magic_and_body_are_damage(kernels: Any) -> None:
    log = bytearray(make_log(message()))
    places = [*range(4, 12), *range(28, 36), *range(84, 94), 103, 104]
    for place in places:
        log[place] ^= 0x40
        assert kernels.scan(log, 0, len(log), BASE).count == 0, place
        log[place] ^= 0x40
    assert kernels.scan(log, 0, len(log), BASE).count == 1


@pytest.mark.parametrize("value", [0, 1, -1, 7, 8, 90, 91, 92, 127, 128, 1000, 65535, 2**31 - 1, -(2**31)])
def test_extreme_numbers_anywhere(native: Any, pure: Any, value: int) -> None:
    log = make_log(message(), message(born_host=V6, magic=c.MAGIC_V2), message())
    for at in range(len(log) - 3):
        changed = bytearray(log)
        struct.pack_into(">i", changed, at, value)
        assert contents(native.scan(changed, 0, len(log), BASE)) == contents(pure.scan(changed, 0, len(log), BASE))


@pytest.mark.parametrize(
    ("damage", "place", "patch"),
    [
        (Damage.UNWRITTEN, 0, bytes(8)),
        (Damage.MAGIC, 4, b"\xda\xa3\x20\xa8"),
        (Damage.SIZE, 0, struct.pack(">i", 90)),
        (Damage.SIZE, 0, struct.pack(">i", -5)),
        (Damage.PHYSICAL_OFFSET, 28, bytes(8)),
        (Damage.LENGTHS, 84, struct.pack(">i", -1)),
        (Damage.LENGTHS, 84, struct.pack(">i", 2**31 - 1)),
        (Damage.LENGTHS, 93, b"\xff"),
        (Damage.LENGTHS, 103, b"\xff\xff"),
        (Damage.BODY_CRC, 88, b"J"),
        (Damage.PROPERTIES, 105, b"\x00"),
        (Damage.PROPERTIES, 109, b"x"),
    ],
)
def test_reasons(kernels: Any, damage: Damage, place: int, patch: bytes) -> None:
    log = bytearray(make_log(message(properties=b"KEYS\x01k"), message()))
    log[place : place + len(patch)] = patch
    columns = kernels.scan(log, 0, len(log), BASE)
    assert (columns.stop, columns.damage, columns.next_position) == (Stop.DAMAGED, damage, 0)


def test_a_short_record_of_another_place_is_damage(kernels: Any) -> None:
    log = make_log(message())
    assert kernels.scan(log, 0, 36, BASE + 8).damage == Damage.PHYSICAL_OFFSET
    assert kernels.scan(log, 0, 35, BASE + 8).stop is Stop.SHORT


def test_a_huge_size_is_reported(kernels: Any) -> None:
    log = bytearray(make_log(message(), message()))
    struct.pack_into(">i", log, 0, 2**31 - 1)
    columns = kernels.scan(log, 0, len(log), BASE)
    assert (columns.stop, columns.short_size, columns.next_position) == (Stop.SHORT, 2**31 - 1, 0)


def test_full_and_on(kernels: Any) -> None:
    log = make_log(*[message(queue_offset=number) for number in range(10)])
    position, offsets = 0, []
    while True:
        columns = kernels.scan(log, position, len(log), BASE, max_records=3)
        offsets += columns.queue_offset.tolist()
        position = columns.next_position
        if columns.stop is not Stop.FULL:
            break
    assert offsets == list(range(10))
    assert columns.stop is Stop.END


def test_many_small_records_behind_a_large_one(native: Any, pure: Any) -> None:
    small = message(body=b"", topic=b"", properties=b"")
    log = make_log(message(body=bytes(20_000)), *[small] * 3000)
    columns = native.scan(log, 0, len(log), BASE)
    assert columns.count == 3001
    assert contents(columns) == contents(pure.scan(log, 0, len(log), BASE))
    assert contents(native.scan(log, 0, len(log), BASE, max_records=1)) == contents(
        pure.scan(log, 0, len(log), BASE, max_records=1)
    )


def test_nothing_outside_the_range_is_looked_at(kernels: Any) -> None:
    log = make_log(message(), message(), message())
    size = len(log) // 3
    columns = kernels.scan(b"\xff" * size + log[size : 2 * size] + b"\xff" * size, size, 2 * size, BASE)
    assert (columns.count, columns.stop, columns.next_position) == (1, Stop.END, 2 * size)


def test_the_empty_range(kernels: Any) -> None:
    columns = kernels.scan(b"", 0, 0, 0)
    assert (len(columns), columns.stop, columns.position.tolist()) == (0, Stop.END, [])


@pytest.mark.parametrize(
    ("position", "end", "base"),
    [(-1, 5, 0), (0, 11, 0), (6, 5, 0), (11, 11, 0), (0, 5, -1), (0, 5, 2**62 + 1)],
)
def test_ranges_outside_the_buffer_are_refused(kernels: Any, position: int, end: int, base: int) -> None:
    for call in (kernels.scan, kernels.resync):
        with pytest.raises(UsageError):
            call(bytes(10), position, end, base)


def test_max_records_must_be_positive(kernels: Any) -> None:
    with pytest.raises(UsageError, match="max_records"):
        kernels.scan(b"", 0, 0, 0, max_records=0)


def test_what_is_no_buffer_is_refused(kernels: Any) -> None:
    with pytest.raises(TypeError):
        kernels.scan("text", 0, 0, 0)


@settings(max_examples=300)
@given(st.one_of(LOGS, damaged_logs(), st.binary(max_size=200)), st.booleans(), st.data())
def test_any_bytes_are_judged_alike(native: Any, pure: Any, log: bytes, check_crc: bool, data: st.DataObject) -> None:
    end = data.draw(st.integers(0, len(log)))
    position = data.draw(st.integers(0, end))
    for start, stop in ((0, len(log)), (0, end), (position, end)):
        told = contents(native.scan(log, start, stop, BASE, check_crc=check_crc))
        assert told == contents(pure.scan(log, start, stop, BASE, check_crc=check_crc))
        assert native.resync(log, start, stop, BASE) == pure.resync(log, start, stop, BASE)
