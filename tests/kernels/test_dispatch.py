from __future__ import annotations

import json
import struct
from array import array
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.support import BASE, LOGS, log_files, make_log, message
from mqstore.errors import UsageError
from mqstore.kernels import QueueRun
from mqstore.layout.delay import DEFAULT_DELAY_TABLE
from mqstore.layout.java_hash import java_hash
from mqstore.layout.queue_unit import QUEUE_UNIT

DELAYS = [0, *DEFAULT_DELAY_TABLE.values()]


def units_of(kernels: Any, store: Path) -> dict[tuple[str, int], list[tuple[int, ...]]]:
    """(queue offset, physical offset, size, tags code) of every unit, by queue."""
    queues: dict[tuple[str, int], list[tuple[int, ...]]] = defaultdict(list)
    for base, log in log_files(store):
        columns = kernels.scan(log, 0, len(log), base)
        for run in kernels.queue_runs(log, columns, 0, columns.count, DELAYS):
            for number, unit in enumerate(QUEUE_UNIT.iter_unpack(run.units)):
                queues[run.topic.decode(), run.queue_id].append((run.first_queue_offset + number, *unit))
    return queues


@pytest.mark.parametrize("name", ["basic", "v5-basic", "cq-lost-recovered", "v5-cq-lost-recovered", "cleaned"])
def test_units_are_what_the_real_store_dispatched(kernels: Any, golden: Path, name: str) -> None:
    expected: dict[tuple[str, int], list[tuple[int, ...]]] = defaultdict(list)
    first_file = log_files(golden / name)[0][0]
    for line in (golden / name / "EXPECTED-CQ.jsonl").read_text("utf-8").splitlines():
        unit = json.loads(line)
        if unit["phyOffset"] >= first_file:
            numbers = (unit["cqOffset"], unit["phyOffset"], unit["size"], unit["tagsCode"])
            expected[unit["topic"], unit["queueId"]].append(numbers)
    assert units_of(kernels, golden / name) == expected


def runs(kernels: Any, *messages: dict[str, Any], delays: Any = DELAYS) -> list[QueueRun]:
    log = make_log(*messages)
    columns = kernels.scan(log, 0, len(log), BASE)
    assert columns.count == len(messages)
    found: list[QueueRun] = kernels.queue_runs(log, columns, 0, columns.count, delays)
    return found


def test_runs_are_cut_at_jumps_and_come_in_order(kernels: Any) -> None:
    places = [("B", 0, 7), ("A", 0, 1), ("B", 0, 8), ("A", 1, 2), ("A", 0, 2), ("B", 0, 10), ("B", 0, 10), ("A", 0, 3)]
    found = runs(
        kernels,
        *[
            message(topic=topic.encode(), queue_id=queue, queue_offset=offset, store_timestamp_ms=1000 - offset)
            for topic, queue, offset in places
        ],
    )
    told = [(run.topic, run.queue_id, run.first_queue_offset, len(run.units) // 20, *run[4:6]) for run in found]
    assert told == [
        (b"B", 0, 7, 2, 992, 993),
        (b"A", 0, 1, 3, 997, 999),
        (b"A", 1, 2, 1, 998, 998),
        (b"B", 0, 10, 1, 990, 990),
        (b"B", 0, 10, 1, 990, 990),
    ]
    assert all(isinstance(run, QueueRun) for run in found)
    assert [run.size_bytes for run in found] == [
        sum(unit[1] for unit in QUEUE_UNIT.iter_unpack(run.units)) for run in found
    ]


def test_prepared_and_rollback_records_have_no_unit(kernels: Any) -> None:
    found = runs(kernels, *[message(sys_flag=kind, queue_offset=number) for number, kind in enumerate((0, 4, 8, 12))])
    assert [(run.first_queue_offset, len(run.units)) for run in found] == [(0, 20), (2, 20)]


def code_of(kernels: Any, delays: Any = DELAYS, **fields: Any) -> int:
    (run,) = runs(kernels, message(**fields), delays=delays)
    code = QUEUE_UNIT.unpack(run.units)[2]
    assert isinstance(code, int)
    return code


@pytest.mark.parametrize(
    ("tags", "code"),
    [
        (b"TagA", 2598919),
        (b"polygenelubricants", -(2**31)),
        ("标签".encode(), java_hash("标签")),
        ("😀x".encode(), java_hash("😀x")),
        (b"a\xffb", java_hash("a\ufffdb")),
        (b"\xed\xa0\xbd", java_hash("\ufffd")),
        (b"\xe4\xb8", java_hash("\ufffd")),
    ],
)
def test_tags_codes(kernels: Any, tags: bytes, code: int) -> None:
    assert code_of(kernels, properties=b"TAGS\x01" + tags) == code


def test_the_last_tags_that_are_not_empty_count(kernels: Any) -> None:
    assert code_of(kernels, properties=b"TAGS\x01Aa\x02TAGS\x01C\x02TAGS\x01") == java_hash("C")
    assert code_of(kernels, properties=b"TAGS\x01\x02tags\x01x\x02TAGSS\x01x") == 0


@pytest.mark.parametrize(
    ("delay", "milliseconds"),
    [(b"1", 1000), (b"3", 10_000), (b"+3", 10_000), (b"0000000003", 10_000), (b"18", 7_200_000), (b"25", 7_200_000)],
)
def test_delayed_messages_have_the_time_they_are_due(kernels: Any, delay: bytes, milliseconds: int) -> None:
    fields = {"topic": b"SCHEDULE_TOPIC_XXXX", "properties": b"TAGS\x01TagA\x02DELAY\x01" + delay}
    assert code_of(kernels, **fields) == 1_600_000_000_500 + milliseconds


@pytest.mark.parametrize(
    "delay", [b"0", b"-1", b"x", b"3 ", b"2147483648", b"00000000003", b"+", b"-", b"\xef\xbc\x93"]
)
def test_what_is_no_level_is_not_delayed(kernels: Any, delay: bytes) -> None:
    fields = {"topic": b"SCHEDULE_TOPIC_XXXX", "properties": b"TAGS\x01TagA\x02DELAY\x01" + delay}
    assert code_of(kernels, **fields) == 2598919


@pytest.mark.parametrize("delays", [[], [0], array("q"), memoryview(array("q", [5]))])
def test_without_levels_nothing_is_delayed(kernels: Any, delays: Any) -> None:
    fields = {"topic": b"SCHEDULE_TOPIC_XXXX", "properties": b"TAGS\x01TagA\x02DELAY\x013"}
    assert code_of(kernels, delays, **fields) == 2598919


def test_delays_come_in_any_sequence(kernels: Any) -> None:
    fields = {"topic": b"SCHEDULE_TOPIC_XXXX", "properties": b"DELAY\x012"}
    for delays in ([0, 1, 2], (0, 1, 2), memoryview(array("q", [0, 1, 2]))):
        assert code_of(kernels, delays, **fields) == 1_600_000_000_502


def test_delay_of_other_topics_is_left_alone(kernels: Any) -> None:
    assert code_of(kernels, topic=b"SCHEDULE_TOPIC_XXXY", properties=b"DELAY\x013") == 0


def test_queue_offsets_at_the_ends_of_the_range(kernels: Any) -> None:
    offsets = [2**63 - 1, -(2**63), -(2**63) + 1]
    found = runs(kernels, *[message(queue_offset=offset) for offset in offsets])
    assert [(run.first_queue_offset, len(run.units)) for run in found] == [(offsets[0], 20), (offsets[1], 40)]


def test_part_of_the_rows(kernels: Any) -> None:
    log = make_log(*[message(queue_offset=number) for number in range(6)])
    columns = kernels.scan(log, 0, len(log), BASE)
    (run,) = kernels.queue_runs(log, columns, 2, 5, DELAYS)
    assert (run.first_queue_offset, len(run.units)) == (2, 60)
    assert kernels.queue_runs(log, columns, 3, 3, DELAYS) == []
    for start, stop in ((-1, 3), (4, 3), (0, 7)):
        with pytest.raises(UsageError):
            kernels.queue_runs(log, columns, start, stop, DELAYS)


def test_columns_of_another_buffer_are_refused(kernels: Any) -> None:
    log = make_log(message(), message())
    columns = kernels.scan(log, 0, len(log), BASE)
    with pytest.raises(UsageError, match="another buffer"):
        kernels.queue_runs(log[:100], columns, 0, columns.count, DELAYS)


def test_many_queues(native: Any, pure: Any) -> None:
    log = make_log(*[message(topic=b"T%d" % (n % 300), queue_id=n % 7, queue_offset=n // 2100) for n in range(5000)])
    columns = native.scan(log, 0, len(log), BASE)
    found = native.queue_runs(log, columns, 0, columns.count, DELAYS)
    assert len(found) == 2100
    assert found == pure.queue_runs(log, columns, 0, columns.count, DELAYS)


@settings(max_examples=200)
@given(LOGS)
def test_any_log_gives_the_same_runs(native: Any, pure: Any, log: bytes) -> None:
    columns = native.scan(log, 0, len(log), BASE)
    found = native.queue_runs(log, columns, 0, columns.count, DELAYS)
    assert found == pure.queue_runs(log, pure.scan(log, 0, len(log), BASE), 0, columns.count, DELAYS)


def unit(physical_offset: int, size: int, code: int) -> bytes:
    return QUEUE_UNIT.pack(physical_offset, size, code)


def test_select_units(kernels: Any) -> None:
    units = b"".join([
        unit(0, 0x7FFFFFFF, 0),
        unit(0, 0, 0),
        unit(0, 100, 7),
        unit(100, 100, -7),
        unit(-1, 100, 7),
        unit(200, -5, 7),
        unit(300, 100, 7 + (5 << 32)),
        unit(400, 0x7FFFFFFF, 0),
    ])  # fmt: skip
    assert kernels.select_units(units).tolist() == [2, 3, 6, 7]
    assert kernels.select_units(units + b"rest").tolist() == [2, 3, 6, 7]
    assert kernels.select_units(units, {7}).tolist() == [2, 6]
    assert kernels.select_units(units, [7, -7], 100).tolist() == [3, 6]
    assert kernels.select_units(units, []).tolist() == []
    assert kernels.select_units(units, None, 400).tolist() == [7]
    assert kernels.select_units(b"").tolist() == []
    for code in (2**31, -(2**31) - 1):
        with pytest.raises(UsageError):
            kernels.select_units(units, {code})


@given(st.binary(max_size=200), st.sets(st.integers(-3, 3), max_size=3), st.integers(-1, 2**40))
def test_any_units_are_selected_alike(native: Any, pure: Any, raw: bytes, codes: set[int], least: int) -> None:
    packed = b"".join(unit(n * 50, n % 3, n % 5 - 2) for n in range(12)) + raw
    for given_codes in (None, codes):
        chosen = native.select_units(packed, given_codes, least)
        assert chosen.tolist() == pure.select_units(packed, given_codes, least).tolist()
        assert chosen.format == "i"
        assert struct.calcsize("i") == 4
