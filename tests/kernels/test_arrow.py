from __future__ import annotations

import itertools
import random
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.support import (
    BASE,
    LOGS,
    ODD_TEXT,
    V6,
    expected_records,
    lists,
    log_files,
    make_log,
    maps,
    message,
    texts,
)
from mqstore.errors import UsageError
from mqstore.kernels import LogColumns


def strings(kernels: Any, log: bytes, columns: LogColumns, name: str, **options: Any) -> Any:
    places = getattr(columns, f"{name}_position"), getattr(columns, f"{name}_size")
    return kernels.gather(log, *places, 0, columns.count, **options)


def told(kernels: Any, log: bytes, columns: LogColumns) -> dict[str, list[Any]]:
    """Every column that the gathers make, as Python values."""
    rows = (0, columns.count)
    return {
        "topic": texts(strings(kernels, log, columns, "topic", utf8=True)),
        "tags": texts(strings(kernels, log, columns, "tags", utf8=True)),
        "body": texts(strings(kernels, log, columns, "body")),
        "raw": texts(strings(kernels, log, columns, "properties")),
        "string": texts(strings(kernels, log, columns, "properties", utf8=True)),
        "keys": lists(kernels.split_keys(log, columns, *rows)),
        "properties": maps(kernels.properties_map(log, columns, *rows)),
        "born_host": texts(kernels.host_text(log, columns, *rows)),
        "store_host": texts(kernels.host_text(log, columns, *rows, store=True)),
        "msg_id": texts(kernels.msg_id_text(log, columns, *rows)),
        "offset": columns.own_offset.tolist(),
        "time": list(memoryview(kernels.ms_to_us(columns.store_timestamp_ms, *rows)).cast("q")),
        "places": [list(column) for column in kernels.find_property(log, columns, b"DELAY", *rows)],
    }


@pytest.mark.parametrize("name", ["basic", "v5-basic"])
def test_columns_are_what_the_real_decoder_read(kernels: Any, golden: Path, name: str) -> None:
    records = iter(expected_records(golden / name))
    for base, log in log_files(golden / name):
        columns = kernels.scan(log, 0, len(log), base)
        found = told(kernels, log, columns)
        for row in range(columns.count):
            record = next(records)
            properties = record["properties"]
            tags, keys = properties.get("TAGS"), properties.get("KEYS")
            assert found["topic"][row] == record["topic"].encode()
            assert found["tags"][row] == (None if tags is None else tags.encode())
            assert found["keys"][row] == (None if keys is None else [key.encode() for key in keys.split(" ") if key])
            assert {key.decode(): value.decode() for key, value in found["properties"][row]} == properties
            assert found["born_host"][row] == record["bornHost"].encode()
            assert found["store_host"][row] == record["storeHost"].encode()
            assert found["msg_id"][row] == record["msgId"].encode()
            assert found["offset"][row] == record["commitLogOffset"]
            assert found["time"][row] == 1000 * record["storeTimestamp"]
            position, size = found["places"][0][row], found["places"][1][row]
            delay = properties.get("DELAY")
            assert (None if size < 0 else log[position : position + size].decode()) == delay


@settings(max_examples=200)
@given(LOGS)
def test_any_log_gives_the_same_columns(native: Any, pure: Any, log: bytes) -> None:
    columns = native.scan(log, 0, len(log), BASE)
    assert told(native, log, columns) == told(pure, log, pure.scan(log, 0, len(log), BASE))


def gathered(kernels: Any, values: Sequence[bytes | None], **options: Any) -> list[bytes | None]:
    data = b"#".join(value or b"" for value in values)
    sizes = [-1 if value is None else len(value) for value in values]
    starts = itertools.accumulate((max(size, 0) + 1 for size in sizes), initial=0)
    positions = array("q", [start for start, _ in zip(starts, sizes, strict=False)])
    return texts(kernels.gather(data, positions, array("i", sizes), 0, len(values), **options))


def test_nulls_are_not_empty_strings(kernels: Any) -> None:
    values: list[bytes | None] = [b"a", None, b"", b"bc", None, *[b"x"] * 9, None]
    assert gathered(kernels, values) == values
    assert gathered(kernels, [None] * 3) == [None] * 3
    assert gathered(kernels, []) == []


JAVA_TEXT = [
    (b"plain", "plain"),
    ("é中😀".encode(), "é中😀"),
    (b"\xef\xbf\xbd", "\ufffd"),
    (b"a\xffb", "a\ufffdb"),
    (b"\xc0\xaf", "\ufffd\ufffd"),
    (b"\xc3", "\ufffd"),
    (b"\xe4\xb8", "\ufffd"),
    (b"\xe4\xb8x", "\ufffdx"),
    (b"\xe0\x80\x80", "\ufffd\ufffd\ufffd"),
    (b"\xed\xa0\xbd\xed\xb8\x80", "\ufffd\ufffd"),
    (b"\xed\xa0", "\ufffd"),
    (b"\xed\xbf\xff", "\ufffd\ufffd"),
    (b"\xf0\x9f\x98", "\ufffd"),
    (b"\xf0\x9f\x98x", "\ufffdx"),
    (b"\xf0\x80\x80\x80", "\ufffd" * 4),
    (b"\xf4\x90\x80\x80", "\ufffd" * 4),
    (b"\xf5\x80", "\ufffd\ufffd"),
    (b"\xf8\x88\x80\x80\x80", "\ufffd" * 5),
]
"""Bytes and what java.lang.String made of them."""


def test_malformed_utf8_is_replaced_as_java_does(kernels: Any) -> None:
    raw = [data for data, _ in JAVA_TEXT]
    assert gathered(kernels, raw, utf8=True) == [text.encode() for _, text in JAVA_TEXT]
    assert gathered(kernels, raw) == raw


def test_random_bytes_become_valid_text_alike(native: Any, pure: Any) -> None:
    chance = random.Random(5)
    lead = [0x41, 0x80, 0xBF, 0xC1, 0xC3, 0xE0, 0xA0, 0x9F, 0xE4, 0xED, 0xEF, 0xF0, 0x90, 0x8F, 0xF4, 0xF5, 0xFF]
    values: list[bytes | None] = [bytes(chance.choices(lead, k=chance.randint(0, 9))) for _ in range(4000)]
    assert gathered(native, values, utf8=True) == gathered(pure, values, utf8=True)


def test_properties_follow_the_parser(kernels: Any) -> None:
    many = b"\x02".join(b"n%d\x01v%d" % (number % 40, number) for number in range(100))
    raw = [
        b"",
        b"a\x01b",
        b"a\x01b\x02",
        b"\x02\x02a\x01b\x02\x02",
        b"a\x011\x02b\x012\x02a\x013",
        b"a\x01\x02\x01x\x02a\x01b\x01c",
        b"\xff\x011\x02\xfe\x012",
        "标签\x01值\x02😀\x01é".encode(),
        many,
        b"\xff\x010\x02" + many,
    ]
    log = make_log(*[message(properties=properties) for properties in raw])
    columns = kernels.scan(log, 0, len(log), BASE)
    found = maps(kernels.properties_map(log, columns, 0, columns.count))
    last = {b"n%d" % (number % 40): b"v%d" % number for number in range(100)}
    assert found == [
        [],
        [(b"a", b"b")],
        [(b"a", b"b")],
        [(b"a", b"b")],
        [(b"a", b"3"), (b"b", b"2")],
        [(b"a", b"b\x01c")],
        [("\ufffd".encode(), b"2")],
        [("标签".encode(), "值".encode()), ("😀".encode(), "é".encode())],
        list(last.items()),
        [("\ufffd".encode(), b"0"), *last.items()],
    ]


def test_thousands_of_properties_in_a_record(native: Any, pure: Any) -> None:
    raw = b"\x02".join(b"%x\x01%d" % (number % 3000, number) for number in range(4000))[:32700]
    raw = raw[: raw.rindex(b"\x02")]
    log = make_log(message(properties=raw), message(), message(properties=raw))
    columns = native.scan(log, 0, len(log), BASE)
    found = maps(native.properties_map(log, columns, 0, 3))
    assert len(found[0]) > 2000
    assert found == maps(pure.properties_map(log, columns, 0, 3))


def test_hosts(kernels: Any) -> None:
    hosts = [
        (bytes([10, 0, 0, 9, 0, 0, 0x2A, 0x9F]), b"10.0.0.9:10911"),
        (b"\xff" * 8, b"255.255.255.255:-1"),
        (b"\x00" * 4 + b"\x80\x00\x00\x00", b"0.0.0.0:-2147483648"),
        (V6, b"0:0:0:0:0:0:0:1:10911"),
        (
            bytes.fromhex("fe800000000000000abc0def00010fff") + b"\x7f\xff\xff\xff",
            b"fe80:0:0:0:abc:def:1:fff:2147483647",
        ),
    ]
    log = make_log(*[message(born_host=host, store_host=hosts[-1 - k][0]) for k, (host, _) in enumerate(hosts)])
    columns = kernels.scan(log, 0, len(log), BASE)
    expected = [text for _, text in hosts]
    assert texts(kernels.host_text(log, columns, 0, 5)) == expected
    assert texts(kernels.host_text(log, columns, 0, 5, store=True)) == expected[::-1]
    assert texts(kernels.host_text(log, columns, 2, 4)) == expected[2:4]


def test_times_that_do_not_fit(kernels: Any) -> None:
    most = (2**63 - 1) // 1000
    times = array("q", [0, 1, -1, most, most + 1, -most, -most - 1, 2**63 - 1, -(2**63)])
    found = memoryview(kernels.ms_to_us(memoryview(times), 0, 9)).cast("q").tolist()
    largest, least = 2**63 - 1, -(2**63)
    assert found == [0, 1000, -1000, 1000 * most, largest, -1000 * most, least, largest, least]
    assert memoryview(kernels.ms_to_us(times, 1, 3)).cast("q").tolist() == [1000, -1000]


def test_part_of_the_rows(kernels: Any) -> None:
    log = make_log(*[message(body=b"%d" % number, properties=b"KEYS\x01k%d" % number) for number in range(5)])
    columns = kernels.scan(log, 0, len(log), BASE)
    found = kernels.gather(log, columns.body_position, columns.body_size, 1, 4)
    assert texts(found) == [b"1", b"2", b"3"]
    assert lists(kernels.split_keys(log, columns, 3, 5)) == [[b"k3"], [b"k4"]]
    assert maps(kernels.properties_map(log, columns, 4, 5)) == [[(b"KEYS", b"k4")]]
    assert texts(kernels.msg_id_text(log, columns, 2, 3)) == [b"0A00000900002A9F%016X" % (BASE + columns.position[2])]
    assert lists(kernels.split_keys(log, columns, 2, 2)) == []


def test_keys_of_blanks_only_are_an_empty_list(kernels: Any) -> None:
    log = make_log(
        *[message(properties=b"KEYS\x01" + keys) for keys in (b" ", b"  a ", b"a  b")], message(properties=b"")
    )
    columns = kernels.scan(log, 0, len(log), BASE)
    assert lists(kernels.split_keys(log, columns, 0, 4)) == [[], [b"a"], [b"a", b"b"], None]


def test_two_gibibytes_are_too_much(kernels: Any) -> None:
    data = bytes(1 << 20)
    positions, sizes = array("q", [0] * 2048), array("i", [1 << 20] * 2048)
    with pytest.raises(OverflowError, match="fewer rows"):
        kernels.gather(data, positions, sizes, 0, 2048)


def test_places_outside_the_buffer_are_refused(kernels: Any) -> None:
    for position, size in ((-1, 2), (9, 2), (11, 0), (0, 11), (2**63 - 1, 5), (-(2**63), 5)):
        with pytest.raises(UsageError, match="another buffer"):
            kernels.gather(bytes(10), array("q", [position]), array("i", [size]), 0, 1)
    log = make_log(message(), message())
    columns = kernels.scan(log, 0, len(log), BASE)
    for call in (kernels.split_keys, kernels.properties_map, kernels.host_text, kernels.msg_id_text):
        with pytest.raises(UsageError, match="another buffer"):
            call(log[:100], columns, 0, 2)
        for start, stop in ((-1, 1), (2, 1), (0, 3)):
            with pytest.raises(UsageError, match="no such rows"):
                call(log, columns, start, stop)
    for name, start, stop in ((b"x", 0, 3), (b"", 0, 1)):
        with pytest.raises(UsageError):
            kernels.find_property(log, columns, name, start, stop)
    with pytest.raises(UsageError):
        kernels.gather(log, columns.body_position, columns.body_size, 0, 3)
    with pytest.raises(UsageError):
        kernels.ms_to_us(columns.store_timestamp_ms, 0, 3)


def test_allocators_give_the_memory(kernels: Any) -> None:
    asked: list[int] = []

    def allocate(size: int) -> bytearray:
        asked.append(size)
        return bytearray(size)

    log = make_log(message(), message(properties=b""))
    columns = kernels.scan(log, 0, len(log), BASE)
    found = kernels.gather(log, columns.tags_position, columns.tags_size, 0, 2, allocate=allocate)
    assert asked == [12, 4, 1]
    assert [len(part) for part in found] == asked
    asked.clear()
    kernels.split_keys(log, columns, 0, 2, allocate=allocate)
    kernels.properties_map(log, columns, 0, 2, allocate=allocate)
    kernels.host_text(log, columns, 0, 2, allocate=allocate)
    kernels.msg_id_text(log, columns, 0, 2, allocate=allocate)
    kernels.ms_to_us(columns.store_timestamp_ms, 0, 2, allocate=allocate)
    assert sum(asked) == sum((12, 12, 4, 1, 12, 16, 16, 16, 13, 12, 28, 12, 64, 16))


def test_too_small_allocations_are_refused(native: Any) -> None:
    log = make_log(message())
    columns = native.scan(log, 0, len(log), BASE)
    with pytest.raises(UsageError, match="too small"):
        native.gather(log, columns.body_position, columns.body_size, 0, 1, allocate=lambda size: bytearray(size - 1))


def test_arrow_takes_the_buffers(kernels: Any, golden: Path) -> None:
    pa = pytest.importorskip("pyarrow")

    def buffers(*parts: Any) -> list[Any]:
        return [None if part is None else pa.py_buffer(part) for part in parts]

    base, log = log_files(golden / "basic")[0]
    columns = kernels.scan(log, 0, len(log), base)
    rows = (0, columns.count)
    for allocate in (None, pa.allocate_buffer):
        tags = strings(kernels, log, columns, "tags", utf8=True, allocate=allocate)
        parts = buffers(tags.validity, tags.offsets, tags.data)
        column = pa.Array.from_buffers(pa.string(), columns.count, parts)
        column.validate(full=True)
        assert column.to_pylist() == [tag and tag.decode() for tag in texts(tags)]
        keys = kernels.split_keys(log, columns, *rows, allocate=allocate)
        count = memoryview(keys.list_offsets).cast("B").cast("i")[-1]
        child = pa.Array.from_buffers(pa.string(), count, buffers(None, keys.offsets, keys.data))
        parts = buffers(keys.validity, keys.list_offsets)
        column = pa.Array.from_buffers(pa.list_(pa.string()), columns.count, parts, children=[child])
        column.validate(full=True)
        assert column.null_count == sum(size < 0 for size in columns.keys_size)
        empty = kernels.split_keys(log, columns, 0, 0, allocate=allocate)
        assert len(memoryview(empty.offsets).cast("B")) == 4


@given(st.lists(st.one_of(st.none(), ODD_TEXT), max_size=12), st.booleans())
def test_any_text_is_gathered_alike(native: Any, pure: Any, values: list[bytes | None], utf8: bool) -> None:
    assert gathered(native, values, utf8=utf8) == gathered(pure, values, utf8=utf8)
