"""Records into bytes and batches into index entries: alike in both twins, and as the golden ones."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.kafka_support import RECORDS, record
from layout.kafka.golden_batches import DIRECTORIES, Rows, log_files
from mqstore.errors import MessageIllegalError, UsageError
from mqstore.kernels import IndexState
from mqstore.layout.kafka.batch import assemble_batch, decode_header, decode_records, encode_batch
from mqstore.layout.kafka.constants import Codec, TimestampType
from mqstore.layout.kafka.record import RecordFields, encode_record_fields

INTERVALS = {"plain-0": 4096, "codecs-0": 4096, "txn-0": 512, "compacted-0": 512, "recovered-0": 512}
"""``index.interval.bytes`` under which the golden segments were written."""

BYTES = st.one_of(st.none(), st.binary(max_size=80))
DELTAS = st.one_of(
    st.integers(-(2**63), 2**63 - 1), st.sampled_from([0, -1, 63, 64, -64, -65, 8191, 8192, 2**63 - 1, -(2**63)])
)
OFFSETS = st.one_of(st.integers(0, 2**31 - 1), st.sampled_from([0, 63, 64, 2**31 - 1, -1, -(2**31)]))
ITEMS = st.lists(
    st.tuples(BYTES, BYTES, st.lists(st.tuples(st.text(max_size=20), BYTES), max_size=3), DELTAS, OFFSETS), max_size=6
)


@given(ITEMS)
def test_any_records_are_written_alike(native: Any, pure: Any, items: list[Any]) -> None:
    columns = [list(column) for column in zip(*items, strict=True)] or [[], [], [], [], []]
    body = native.kafka_encode(*columns)
    assert isinstance(body, bytearray)
    assert body == pure.kafka_encode(*columns)
    assert body == b"".join(
        encode_record_fields(RecordFields(delta, offset, key, value, tuple(headers)))
        for key, value, headers, delta, offset in items
    )
    keys, values, _, deltas, _ = columns
    plain = native.kafka_encode(keys, values, None, deltas)
    assert plain == pure.kafka_encode(keys, values, [()] * len(items), deltas, range(len(items)))


@pytest.mark.parametrize("directory", [name for name in DIRECTORIES if not name.startswith("legacy")])
def test_golden_records_written_again(kernels: Any, golden_kafka: Path, directory: str) -> None:
    for _, log in log_files(golden_kafka, directory):
        position = 0
        while position < len(log):
            header = decode_header(log, position)
            position = header.end_position
            if header.magic < 2 or header.codec is not Codec.NONE or header.timestamp_type != TimestampType.CREATE_TIME:
                continue
            records = decode_records(log, header, check_crc=False)
            body = kernels.kafka_encode(
                [one.key for one in records],
                [one.value for one in records],
                [one.headers for one in records],
                [one.timestamp_ms - header.base_timestamp_ms for one in records],
                [one.offset - header.base_offset for one in records],
            )
            assert body == log[header.position + 61 : header.end_position]


def test_a_batch_of_the_parts_is_the_batch(kernels: Any) -> None:
    times = [one.timestamp_ms - RECORDS[0].timestamp_ms for one in RECORDS]
    body = kernels.kafka_encode(
        [one.key for one in RECORDS], [one.value for one in RECORDS], [one.headers for one in RECORDS], times
    )
    assembled = assemble_batch(
        body, record_count=4, last_offset_delta=3, base_timestamp_ms=RECORDS[0].timestamp_ms,
        max_timestamp_ms=max(one.timestamp_ms for one in RECORDS), attributes=0, base_offset=7,
        checksum=kernels.crc32c,
    )  # fmt: skip
    assert assembled == encode_batch(RECORDS, base_offset=7)


def test_names_that_are_no_utf8(kernels: Any) -> None:
    body = kernels.kafka_encode([None], [None], [[("a\ud800b", b"")]], [0])
    assert b"a?b" in body


@pytest.mark.parametrize(
    ("error", "arguments"),
    [
        (UsageError, ([None], [], None, [0])),
        (UsageError, ([None], [None], None, [])),
        (UsageError, ([None], [None], [], [0])),
        (UsageError, ([None], [None], None, [0], [0, 1])),
        (UsageError, ([None], [None], None, [2**63])),
        (UsageError, ([None], [None], None, [0], [2**31])),
        (UsageError, ([None], [None], None, [0], [-(2**31) - 1])),
        (MessageIllegalError, ([None], [None], [[(None, b"")]], [0])),
        (TypeError, (["text"], [None], None, [0])),
        (TypeError, ([None], [bytearray(1)], None, [0])),
        (TypeError, ([None], [None], [[("name", "text")]], [0])),
        (TypeError, ([None], [None], None, ["0"])),
    ],
)
def test_what_cannot_be_written(kernels: Any, error: type[Exception], arguments: tuple[Any, ...]) -> None:
    with pytest.raises(error):
        kernels.kafka_encode(*arguments)


# ---- index entries ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("directory", INTERVALS)
def test_entries_are_the_brokers(kernels: Any, golden_kafka: Path, expected_kafka: Rows, directory: str) -> None:
    segments = {row["baseOffset"]: row for row in expected_kafka["segment"] if row["dir"] == directory}
    for base, log in log_files(golden_kafka, directory):
        columns = kernels.kafka_batches(log, 0, len(log), check_crc=False)
        run = kernels.kafka_index(columns, 0, columns.count, INTERVALS[directory], IndexState())
        offsets = [[columns.last_offset[row], columns.position[row]] for row in run.rows]
        assert offsets == segments[base]["offsetIndex"]
        times = [list(pair) for pair in zip(run.times_ms, run.time_offsets, strict=True)]
        if run.state.largest_ms > run.state.indexed_ms:
            times.append([run.state.largest_ms, run.state.largest_offset])
        assert times == segments[base]["timeIndex"]


def test_any_run_in_any_parts(native: Any, pure: Any) -> None:
    chance = random.Random(3)
    for _ in range(50):
        log = b"".join(
            encode_batch(
                [record(value=bytes(chance.choice([0, 50, 300])), time=chance.randint(-1, 9))],
                base_offset=number, timestamp_type=TimestampType.CREATE_TIME,
            )
            for number in range(40)
        )  # fmt: skip
        columns = native.kafka_batches(log, 0, len(log))
        interval = chance.choice([0, 100, 500, 5000])
        whole = native.kafka_index(columns, 0, 40, interval, IndexState())
        cuts = sorted({0, 40, *(chance.randrange(41) for _ in range(3))})
        for kernels in (native, pure):
            state, rows, times, offsets = IndexState(), [], [], []
            for start, stop in pairwise(cuts):
                run = kernels.kafka_index(columns, start, stop, interval, state)
                state = run.state
                rows += run.rows.tolist()
                times += run.times_ms.tolist()
                offsets += run.time_offsets.tolist()
            assert (rows, times, offsets) == (
                whole.rows.tolist(), whole.times_ms.tolist(), whole.time_offsets.tolist(),
            )  # fmt: skip
            assert state == whole.state


def test_rows_that_are_not_there(kernels: Any) -> None:
    columns = kernels.kafka_batches(b"", 0, 0)
    with pytest.raises(UsageError):
        kernels.kafka_index(columns, 0, 1, 0, IndexState())
