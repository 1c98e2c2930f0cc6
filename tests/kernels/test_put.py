from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.support import BASE, MESSAGES, V4, V6, contents, log_files, make_log, message, prepared
from mqstore.errors import MessageIllegalError, UsageError
from mqstore.layout import constants as c
from mqstore.layout.record import Blank, decode_record


def put(kernels: Any, buffer: Any, position: int, limit: int, fields: dict[str, Any]) -> int:
    place = (fields["queue_offset"], fields["store_timestamp_ms"])
    size = kernels.put_message(buffer, position, limit, BASE, *place, *prepared(fields))
    assert isinstance(size, int)
    return size


@settings(max_examples=200)
@given(MESSAGES)
def test_the_bytes_are_those_of_the_layout(native: Any, pure: Any, fields: dict[str, Any]) -> None:
    expected = bytes(100) + make_log(fields, base=BASE + 100) + bytes(8)
    for kernels in (native, pure):
        buffer = bytearray(len(expected))
        assert put(kernels, buffer, 100, len(buffer), fields) == len(expected) - 108
        assert buffer == expected


@pytest.mark.parametrize("name", ["basic", "v5-basic"])
def test_golden_records_are_written_byte_for_byte(kernels: Any, golden: Path, name: str) -> None:
    for base, log in log_files(golden / name):
        written = bytearray(len(log))
        position = 0
        while position < len(log) and log[position + 4 : position + 8] != bytes(4):
            record = decode_record(log, position, physical_offset=base + position)
            if isinstance(record, Blank):
                break
            position += kernels.put_message(
                written, position, len(log), base, record.queue_offset, record.store_timestamp_ms,
                record.topic_raw, record.body, record.properties_raw, record.queue_id, record.flag, record.sys_flag,
                record.born_timestamp_ms, record.born_host_raw, record.store_host_raw, record.reconsume_times,
                record.prepared_transaction_offset, record.magic,
            )  # fmt: skip
        assert position > 0
        assert written[:position] == log[:position]


def test_eight_bytes_stay_free_behind_a_record(kernels: Any) -> None:
    size = len(make_log(message()))
    buffer = bytearray(b"." * (size + 20))
    for limit in range(size + 8):
        assert put(kernels, buffer, 0, limit, message()) == 0
    assert buffer == b"." * (size + 20)
    assert put(kernels, buffer, 0, size + 8, message()) == size
    assert buffer == make_log(message()) + b"." * 20


def test_a_mapped_file_is_written_in_place(kernels: Any, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(bytes(4096))
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 4096) as mapped:
        size = put(kernels, mapped, 0, 4096, message())
        assert put(kernels, mapped, size, 4096, message(body=b"second")) == size + 1
        log = bytes(mapped[: 2 * size + 1])
    assert log == make_log(message(), message(body=b"second"))
    assert path.read_bytes()[: len(log)] == log


@pytest.mark.parametrize("body", [bytearray(b"body"), memoryview(b"body"), b"body" * 100_000])
def test_any_buffer_is_a_body(kernels: Any, body: Any) -> None:
    buffer = bytearray(500_000)
    size = put(kernels, buffer, 0, len(buffer), message(body=body))
    assert buffer[:size] == make_log(message(body=bytes(body)))


def test_host_sizes_decide_the_ipv6_bits(kernels: Any) -> None:
    for born, store, bits in ((V4, V4, 0), (V6, V4, 0x10), (V4, V6, 0x20), (V6, V6, 0x30)):
        for sys_flag in (0, 0x3F, -1):
            buffer = bytearray(300)
            size = put(kernels, buffer, 0, 300, message(born_host=born, store_host=store, sys_flag=sys_flag))
            record = decode_record(buffer, 0, end=size)
            assert not isinstance(record, Blank)
            assert (record.born_host_raw, record.store_host_raw) == (born, store)
            assert record.sys_flag == sys_flag & ~0x30 | bits


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"topic": b"t" * 128}, MessageIllegalError),
        ({"topic": b"t" * 32768, "magic": c.MAGIC_V2}, MessageIllegalError),
        ({"properties": b"a\x01" + b"b" * 32766}, MessageIllegalError),
        ({"properties": b"a\x01b\x00"}, MessageIllegalError),
        ({"properties": b"a\x01b\x02c"}, MessageIllegalError),
        ({"born_host": b"1234567"}, UsageError),
        ({"store_host": b""}, UsageError),
        ({"magic": c.MAGIC_BLANK}, UsageError),
        ({"queue_id": 2**31}, UsageError),
        ({"flag": -(2**31) - 1}, UsageError),
        ({"sys_flag": 2**31}, UsageError),
        ({"queue_offset": 2**63}, UsageError),
        ({"born_timestamp_ms": 2**63}, UsageError),
        ({"store_timestamp_ms": -(2**63) - 1}, UsageError),
        ({"reconsume_times": 2**31}, UsageError),
        ({"prepared_transaction_offset": 2**63}, UsageError),
        ({"body": "text"}, TypeError),
    ],
)
def test_what_does_not_fit_the_format_is_refused(kernels: Any, changes: dict[str, Any], error: type[Exception]) -> None:
    buffer = bytearray(40_000)
    with pytest.raises(error):
        put(kernels, buffer, 0, len(buffer), message(**changes))
    assert buffer == bytes(40_000)
    fields = message(**changes)
    with pytest.raises(error):
        kernels.put_batch(
            buffer, 0, 40_000, BASE, fields["store_timestamp_ms"], [fields["queue_offset"]], [prepared(fields)]
        )
    assert buffer == bytes(40_000)


def test_the_longest_that_fits_the_format(kernels: Any) -> None:
    buffer = bytearray(100_000)
    for changes in (
        {"topic": b"t" * 127},
        {"topic": b"t" * 32767, "magic": c.MAGIC_V2},
        {"properties": b"a\x01" + b"b" * 32765},
        {"body": b"", "topic": b"", "properties": b""},
    ):
        size = put(kernels, buffer, 0, len(buffer), message(**changes))
        assert buffer[:size] == make_log(message(**changes))


@pytest.mark.parametrize(
    ("position", "limit", "base"), [(-1, 5, 0), (0, 11, 0), (6, 5, 0), (0, 10, -1), (0, 10, 2**63 - 1)]
)
def test_ranges_outside_the_buffer_are_refused(kernels: Any, position: int, limit: int, base: int) -> None:
    with pytest.raises(UsageError):
        kernels.put_message(bytearray(10), position, limit, base, 0, 0, *prepared(message()))
    with pytest.raises(UsageError):
        kernels.put_batch(bytearray(10), position, limit, base, 0, [], [])


def test_read_only_buffers_are_refused(kernels: Any) -> None:
    with pytest.raises((BufferError, TypeError)):
        put(kernels, bytes(1000), 0, 1000, message())
    with pytest.raises((BufferError, TypeError)):
        kernels.put_batch(bytes(1000), 0, 1000, 0, 0, [1], [prepared(message())])


BATCH = [message(body=b"x" * number, queue_offset=number, topic=b"T%d" % number) for number in range(5)]
OFFSETS = [fields["queue_offset"] for fields in BATCH]
TIME = BATCH[0]["store_timestamp_ms"]


def test_a_batch_is_written_until_one_does_not_fit(kernels: Any) -> None:
    log = make_log(*BATCH)
    sizes = [len(make_log(fields)) for fields in BATCH]
    for limit in range(len(log) + 9):
        buffer = bytearray(len(log) + 10)
        written = kernels.put_batch(buffer, 0, limit, BASE, TIME, OFFSETS, [prepared(fields) for fields in BATCH])
        assert written == sizes[: len(written)]
        end = sum(written)
        assert end + 8 <= limit or end == 0
        assert len(written) == 5 or end + sizes[len(written)] + 8 > limit
        assert buffer == log[:end] + bytes(len(buffer) - end)


def test_a_batch_goes_on_where_it_stopped(kernels: Any) -> None:
    messages = [prepared(fields) for fields in BATCH]
    buffer = bytearray(2000)
    first = kernels.put_batch(buffer, 0, 300, BASE, TIME, OFFSETS, messages)
    rest = kernels.put_batch(buffer, sum(first), 2000, BASE, TIME, tuple(OFFSETS), tuple(messages), len(first))
    assert 0 < len(first) < 5 == len(first) + len(rest)
    log = make_log(*BATCH)
    assert buffer[: len(log)] == log
    assert kernels.put_batch(buffer, 0, 2000, BASE, TIME, OFFSETS, messages, 5) == []


def test_wrong_batches_are_refused(kernels: Any) -> None:
    messages = [prepared(fields) for fields in BATCH]
    buffer = bytearray(2000)
    for offsets, start in ((OFFSETS[1:], 0), (OFFSETS, 6), (OFFSETS, -1)):
        with pytest.raises(UsageError):
            kernels.put_batch(buffer, 0, 2000, BASE, TIME, offsets, messages, start)
    with pytest.raises(TypeError):
        kernels.put_batch(buffer, 0, 2000, BASE, TIME, [1], [messages[0][:-1]])


@given(st.lists(MESSAGES, max_size=5), st.integers(0, 900))
def test_batches_are_written_alike_and_read_back(
    native: Any, pure: Any, messages: list[dict[str, Any]], limit: int
) -> None:
    buffers = []
    for kernels in (native, pure):
        buffer = bytearray(900)
        offsets = [fields["queue_offset"] for fields in messages]
        sizes = kernels.put_batch(buffer, 0, limit, BASE, TIME, offsets, [prepared(fields) for fields in messages])
        buffers.append((bytes(buffer), sizes))
        columns = kernels.scan(buffer, 0, sum(sizes), BASE)
        assert columns.size.tolist() == sizes
        assert columns.queue_offset.tolist() == offsets[: len(sizes)]
        assert contents(columns)["store_timestamp_ms"] == [TIME] * len(sizes)
    assert buffers[0] == buffers[1]
