"""Messages by key: candidates of an index file, and the record behind a candidate."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.support import BASE, LOGS, log_files, make_log, message
from kernels.test_index import keyed, put_all, refile, scanned
from mqstore.errors import UsageError
from mqstore.layout import index as layout
from mqstore.layout.constants import LONG_MAX, SysFlag
from mqstore.layout.record import Record

ALL = (0, LONG_MAX)


@contextlib.contextmanager
def both_ways(data: Any) -> Iterator[list[tuple[Any, int]]]:
    """Bytes as a file, by its descriptor, and in memory."""
    with tempfile.TemporaryFile(buffering=0) as on_disk:
        on_disk.write(data)
        yield [(on_disk.fileno(), LONG_MAX), (bytes(data) + bytes(5000), len(data))]


def looked_up(
    kernels: Any, file: Any, shape: tuple[int, int], key: int, window: tuple[int, int] = ALL, most: int = 64
) -> list[int] | None:
    """All candidates under a hash, however many calls that takes; None for what is left to others."""
    with both_ways(file) as places:
        by_descriptor, in_memory = (walked(kernels, place, shape, key, window, most) for place in places)
    assert by_descriptor == in_memory
    return by_descriptor


def walked(
    kernels: Any, place: tuple[Any, int], shape: tuple[int, int], key: int, window: tuple[int, int], most: int
) -> list[int] | None:
    found: list[int] = []
    number = 0
    while True:
        step = kernels.index_find(*place, *shape, key, number, most, *window)
        if step is None:
            return None
        found += step[0]
        number = step[1]
        if number == 0:
            return found


def filed(kernels: Any, shape: tuple[int, int], *messages: dict[str, Any]) -> tuple[bytearray, list[int]]:
    """An index file of messages, and their physical offsets."""
    file = bytearray(layout.file_size(*shape))
    put_all(kernels, file, *shape, *messages)
    return file, [BASE + position for position in scanned(kernels, *messages)[1].position]


def hash_of(key: str, topic: str = "TopicTest") -> int:
    return layout.key_hash(topic, key)


def test_hashes(kernels: Any) -> None:
    for topic, key in (("AaTopic", "BB"), ("T", "jllgvmc"), ("Тема", "ключ😀"), ("", ""), ("a", "\x7f" * 300)):
        assert kernels.key_hash(topic.encode(), key.encode()) == layout.key_hash(topic, key)
    assert kernels.key_hash(b"AaTopic", b"BB") == kernels.key_hash(b"BBTopic", b"Aa") == 10606476
    assert kernels.key_hash(b"T", b"jllgvmc") == 0


def test_newest_first_in_steps_of_any_size(kernels: Any) -> None:
    messages = [keyed("abc"[number % 3], store_timestamp_ms=10**12 + 500 * number) for number in range(90)]
    file, offsets = filed(kernels, (5, 200), *messages)
    for most in (1, 7, 64):
        assert looked_up(kernels, file, (5, 200), hash_of("b"), most=most) == offsets[88::-3]
    assert looked_up(kernels, file, (5, 200), hash_of("zzz")) == []
    file, offsets = filed(kernels, (5, 200), keyed("jllgvmc", topic=b"T"))
    assert looked_up(kernels, file, (5, 200), 0) == offsets


def test_windows_miss_nothing(kernels: Any) -> None:
    begin = 1_600_000_000_000
    times = [begin + 700 * number for number in range(20)]
    file, offsets = filed(kernels, (5, 50), *[keyed("k", store_timestamp_ms=time) for time in times])
    for first in range(-1, 20):
        for last in range(first, 20):
            low, high = begin + 700 * first, begin + 700 * last
            wanted = {offset for offset, time in zip(offsets, times, strict=True) if low <= time <= high}
            near = {offset for offset, time in zip(offsets, times, strict=True) if low - 999 <= time <= high + 999}
            found = looked_up(kernels, file, (5, 50), hash_of("k"), (low, high))
            assert found is not None
            assert wanted <= set(found) <= near


def test_a_clock_that_stepped_back_hides_nothing(kernels: Any) -> None:
    times = [10**12, 10**12 + 60_000, 10**12 + 10_000]
    file, offsets = filed(kernels, (5, 50), *[keyed("k", store_timestamp_ms=time) for time in times])
    # The file's own end is that of the last record: a window behind it is passed over, as the original does.
    assert looked_up(kernels, file, (5, 50), hash_of("k"), (10**12 + 10_000, LONG_MAX)) == offsets[:0:-1]


def test_what_is_not_in_order_is_left_to_others(kernels: Any) -> None:
    shape, key = (1, 10), hash_of("k")
    file, offsets = filed(kernels, shape, *[keyed("k")] * 6)
    assert looked_up(kernels, file, shape, key) == offsets[::-1]
    for number in range(1, 7):
        for previous in (number, number + 1, 2**31 - 1):
            damaged = bytearray(file)
            place = layout.entry_position(number, 1) + 16
            damaged[place : place + 4] = previous.to_bytes(4, "big")
            assert looked_up(kernels, damaged, shape, key) is None
    for slot, found in ((0, []), (-1, []), (7, None), (2**31 - 1, None)):
        damaged = bytearray(file)
        damaged[40:44] = slot.to_bytes(4, "big", signed=True)
        assert looked_up(kernels, damaged, shape, key) == found
    for place in (0, 8, 16, 24, 32):  # a negative time, offset or count
        damaged = bytearray(file)
        damaged[place] = 0x80
        assert looked_up(kernels, damaged, shape, key) is None
    for count, found in ((2**31 - 1, None), (11, None), (10, offsets[::-1]), (0, []), (-(2**31), [])):
        damaged = bytearray(file)
        damaged[36:40] = count.to_bytes(4, "big", signed=True)
        assert looked_up(kernels, damaged, shape, key) == found
    for length in (0, 39, 43, 100):
        assert looked_up(kernels, file[:length], shape, key) is None
    assert kernels.index_find(10**6, LONG_MAX, *shape, key, 0, 64, *ALL) is None


def test_arguments_that_cannot_be_meant(kernels: Any) -> None:
    for slots, entries, key, number in ((0, 5, 1, 0), (-1, 5, 1, 0), (5, -1, 1, 0), (5, 5, -1, 0), (5, 5, 2**31, 0),
                                        (5, 5, 1, -1), (5, 5, 1, 2**31)):  # fmt: skip
        with pytest.raises(UsageError):
            kernels.index_find(0, 0, slots, entries, key, number, 64, *ALL)


@settings(max_examples=150)
@given(LOGS, st.integers(1, 7), st.integers(2, 12), st.data())
def test_both_find_the_same(native: Any, pure: Any, log: bytes, slots: int, entries: int, data: st.DataObject) -> None:
    for file in refile(native, [(BASE, log)], slots, entries):
        changed = bytearray(file)
        for _ in range(data.draw(st.integers(0, 3))):
            changed[data.draw(st.integers(0, len(file) - 1))] = data.draw(st.integers(0, 255))
        key = max(layout.decode_entry(changed, data.draw(st.integers(0, entries - 1)), slots).key_hash, 0)
        low, high = sorted(data.draw(st.tuples(*[st.integers(-(2**63), 2**63 - 1)] * 2)))
        for window in ((low, high), ALL):
            found = looked_up(native, changed, (slots, entries), key, window)
            assert found == looked_up(pure, changed, (slots, entries), key, window)


def fetch(
    kernels: Any, data: bytes, topic: str, key: str, at: int = 0, window: tuple[int, int] = ALL, base: int = BASE
) -> Any:
    with both_ways(data) as places:
        wanted = (at, len(data) - at, base + at, topic.encode(), key.encode(), *window, Record)
        by_descriptor, in_memory = (kernels.record_with_key(*place, *wanted) for place in places)
    assert by_descriptor == in_memory
    assert type(by_descriptor) is type(in_memory)
    return by_descriptor


def test_records_by_any_of_their_keys(kernels: Any) -> None:
    log = make_log(message(), message(body=b"x" * 5000), message(body=bytes(9 << 20)))
    second = scanned(kernels, message(), message())[1].position[1]
    for key in ("k1", "k2", "7F00"):
        for at, body in ((0, b"Hello"), (second, b"x" * 5000)):
            record = fetch(kernels, log, "TopicTest", key, at)
            assert type(record) is Record
            assert (record.physical_offset, record.body, record.topic_raw) == (BASE + at, body, b"TopicTest")
            assert record.encode() == log[at : at + record.total_size]
    third = second + fetch(kernels, log, "TopicTest", "k1", second).total_size
    assert fetch(kernels, log, "TopicTest", "k1", third) is None  # large: left to others
    for topic, key in (("TopicTest", "k"), ("TopicTest", "k1 k2"), ("TopicTest", ""), ("TopicTes", "k1"), ("", "k1")):
        assert fetch(kernels, log, topic, key) is False
    stored = 1_600_000_000_500
    assert fetch(kernels, log, "TopicTest", "k1", window=(stored, stored))
    assert fetch(kernels, log, "TopicTest", "k1", window=(stored + 1, LONG_MAX)) is False
    assert fetch(kernels, log, "TopicTest", "k1", window=(0, stored - 1)) is False
    rolled_back = make_log(message(sys_flag=SysFlag.TRANSACTION_ROLLBACK))
    assert fetch(kernels, rolled_back, "TopicTest", "k1") is False


def test_every_flipped_bit_gives_the_same_answer(native: Any, pure: Any) -> None:
    """Only a record that is sound to the checksum is given; for all others the plain path is asked."""
    log = make_log(message())
    body = log.index(b"Hello")
    guarded = {*range(12), *range(28, 36), *range(body, body + 5 + 1 + 9)}  # size, magic, checksum, place, body, topic
    for bit in range(8 * len(log)):
        damaged = bytearray(log)
        damaged[bit >> 3] ^= 1 << (bit & 7)
        found = fetch(native, damaged, "TopicTest", "k1")
        assert found == fetch(pure, damaged, "TopicTest", "k1")
        assert not (found and bit >> 3 in guarded)
    for length in range(len(log)):
        assert fetch(native, log[:length], "TopicTest", "k1") is fetch(pure, log[:length], "TopicTest", "k1") is None
    for source, at, room in ((10**6, 0, 500), (log, -1, 500), (log, 0, 3), (log, 0, -1), (log, len(log), 50)):
        wanted = (source, LONG_MAX, at, room, BASE, b"TopicTest", b"k1", *ALL, Record)
        assert native.record_with_key(*wanted) is pure.record_with_key(*wanted) is None


def test_every_key_of_a_real_log_is_found(kernels: Any, golden: Path) -> None:
    found = 0
    for base, data in log_files(golden / "basic"):
        columns = kernels.scan(data, 0, len(data), base)
        for position in columns.position[:200]:
            record = fetch_plain(data, position, base)
            for key in layout.index_keys(record):
                if record.topic.isascii() and key.isascii():
                    assert fetch(kernels, data, record.topic, key, position, base=base) == record
                    found += 1
    assert found > 100


def fetch_plain(data: bytes, position: int, base: int) -> Record:
    from mqstore.layout.record import decode_record

    record = decode_record(data, position, physical_offset=base + position)
    assert isinstance(record, Record)
    return record
