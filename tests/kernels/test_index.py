from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.support import BASE, LOGS, log_files, make_log, message
from mqstore.errors import UsageError
from mqstore.kernels import INDEX_KEY
from mqstore.layout import index as layout
from mqstore.layout.constants import LONG_MAX
from mqstore.layout.index import INDEX_ENTRY, INDEX_HEADER, INDEX_SLOT, IndexHeader

SLOTS, ENTRIES = 1000, 4000
"""Dimensions of the golden index files."""


def refile(kernels: Any, logs: list[tuple[int, bytes]], slots: int, entries: int) -> list[bytes]:
    """Index files for all records of these logs, a new one whenever the last is full."""
    files = [bytearray(layout.file_size(slots, entries))]
    for base, log in logs:
        columns = kernels.scan(log, 0, len(log), base)
        row = key = 0
        while row < columns.count:
            row, key = kernels.index_put(files[-1], slots, entries, log, columns, row, key, columns.count)
            if row < columns.count:
                full = layout.decode_header(files[-1])
                files.append(bytearray(layout.file_size(slots, entries)))
                begin = IndexHeader(*[full.end_timestamp_ms] * 2, *[full.end_physical_offset] * 2)
                INDEX_HEADER.pack_into(files[-1], 0, *begin)
    return [bytes(file) for file in files]


@pytest.mark.parametrize("name", ["basic", "cq-lost-recovered", "v5-cq-lost-recovered"])
def test_files_are_those_of_the_real_store(kernels: Any, golden: Path, name: str) -> None:
    expected = [path.read_bytes() for path in sorted((golden / name / "store" / "index").iterdir())]
    assert len(expected) > 1
    assert refile(kernels, log_files(golden / name), SLOTS, ENTRIES) == expected


def scanned(kernels: Any, *messages: dict[str, Any]) -> tuple[bytes, Any]:
    log = make_log(*messages)
    columns = kernels.scan(log, 0, len(log), BASE)
    assert columns.count == len(messages)
    return log, columns


def put_all(kernels: Any, file: Any, slots: int, entries: int, *messages: dict[str, Any]) -> tuple[int, int]:
    log, columns = scanned(kernels, *messages)
    place: tuple[int, int] = kernels.index_put(file, slots, entries, log, columns, 0, 0, columns.count)
    return place


def keyed(*keys: str, uniq: str = "", **fields: Any) -> dict[str, Any]:
    pairs = ([f"KEYS\x01{' '.join(keys)}"] if keys else []) + ([f"UNIQ_KEY\x01{uniq}"] if uniq else [])
    return message(properties="\x02".join(pairs).encode(), **fields)


def test_full_files_tell_where_to_go_on(kernels: Any) -> None:
    messages = [keyed("a", "b", uniq="u"), keyed("c", "", "d"), keyed(), keyed("e")]
    log, columns = scanned(kernels, *messages)
    taken = [layout.key_hash("TopicTest", key) for key in "uabcde"]
    for entries in range(2, 9):
        files, row, key = [], 0, 0
        while row < 4:
            file = bytearray(layout.file_size(5, entries))
            row, key = kernels.index_put(file, 5, entries, log, columns, row, key, 4)
            files.append(file)
        filed = [
            layout.decode_entry(file, number, 5).key_hash
            for file in files
            for number in range(1, layout.decode_header(file).index_count)
        ]
        assert filed == taken


def test_a_row_without_keys_finds_the_file_full_too(kernels: Any) -> None:
    file = bytearray(layout.file_size(5, 3))
    log, columns = scanned(kernels, keyed("a", "b"), keyed(), keyed("c", sys_flag=0xC), keyed("c"))
    assert kernels.index_put(file, 5, 3, log, columns, 0, 0, 1) == (1, 0)
    for row in (1, 2, 3):
        assert kernels.index_put(file, 5, 3, log, columns, row, 0, 4) == (row, 0)
    assert kernels.index_put(file, 5, 3, log, columns, 0, 1, 4) == (0, 1)
    assert kernels.index_put(file, 5, 3, log, columns, 0, 2, 1) == (1, 0)


def test_rollback_records_have_no_keys_and_prepared_ones_have(kernels: Any) -> None:
    file = bytearray(layout.file_size(5, 20))
    assert put_all(kernels, file, 5, 20, *[keyed("k", sys_flag=kind) for kind in (0, 4, 8, 12)]) == (4, 0)
    assert layout.decode_header(file).index_count == 4


def test_times_are_seconds_since_the_begin(kernels: Any) -> None:
    begin = 1_600_000_000_000
    times = [begin, begin + 999, begin + 1000, begin - 5000, begin + 2**31 * 1000, -(2**63), 2**63 - 1]
    file = bytearray(layout.file_size(5, 20))
    put_all(kernels, file, 5, 20, *[keyed("k", store_timestamp_ms=time) for time in times])
    told = [layout.decode_entry(file, number, 5).time_diff_s for number in range(1, 8)]
    assert told == [0, 0, 1, 0, 2**31 - 1, 0, 2**31 - 1]
    header = layout.decode_header(file)
    assert (header.begin_timestamp_ms, header.end_timestamp_ms) == (begin, 2**63 - 1)
    assert (header.hash_slot_count, header.index_count) == (1, 8)


def test_the_hash_whose_absolute_value_is_negative(kernels: Any) -> None:
    file = bytearray(layout.file_size(5, 20))
    put_all(kernels, file, 5, 20, keyed("jllgvmc", topic=b"T"))
    assert layout.decode_entry(file, 1, 5).key_hash == 0


def test_impossible_counts_stay_inside_the_file(kernels: Any) -> None:
    for count in (2**31 - 1, 11, 10, -(2**31), 0):
        file = bytearray(layout.file_size(1, 10))
        file[36:40] = count.to_bytes(4, "big", signed=True)
        file[40:44] = (2**31 - 2).to_bytes(4, "big")
        assert put_all(kernels, file, 1, 10, keyed("k")) == ((1, 0) if count <= 0 else (0, 0))


def test_wrong_dimensions_are_refused(kernels: Any) -> None:
    log, columns = scanned(kernels, keyed("k"))
    file = bytearray(layout.file_size(5, 10))
    for slots, entries in ((5, 11), (0, 10), (-1, 5), (2**31, 2), (6, 10), (5, 1), (5, -1)):
        with pytest.raises(UsageError):
            kernels.index_put(file, slots, entries, log, columns, 0, 0, 1)
    with pytest.raises(UsageError):
        kernels.index_put(file, 5, 10, log, columns, 0, -1, 1)
    with pytest.raises(UsageError):
        kernels.index_put(file, 5, 10, log, columns, 0, 0, 2)


def test_read_only_files_are_refused(kernels: Any) -> None:
    log, columns = scanned(kernels, keyed("k"))
    with pytest.raises((BufferError, TypeError)):
        kernels.index_put(bytes(layout.file_size(5, 10)), 5, 10, log, columns, 0, 0, 1)


@settings(max_examples=150)
@given(LOGS, st.integers(1, 7), st.integers(2, 12))
def test_any_log_gives_the_same_files(native: Any, pure: Any, log: bytes, slots: int, entries: int) -> None:
    files = refile(native, [(BASE, log)], slots, entries)
    assert files == refile(pure, [(BASE, log)], slots, entries)


def file_taken(kernels: Any, keys: bytes, slots: int, entries: int) -> list[bytes]:
    """Index files of these keys, a new one whenever the last is full."""
    files, begin, size = [], IndexHeader(), INDEX_KEY.size
    while keys or not files:
        file = bytearray(layout.file_size(slots, entries))
        head = bytearray(layout.entry_position(0, slots))
        INDEX_HEADER.pack_into(head, 0, *begin)
        fitting, keys = keys[: (entries - 1) * size], keys[(entries - 1) * size :]
        half = len(fitting) // size // 2 * size
        filed = [kernels.index_entries(head, slots, part) for part in (fitting[:half], fitting[half:])]
        file[: len(head)] = head
        position = layout.entry_position(1, slots)
        file[position : position + len(fitting)] = b"".join(filed)
        files.append(bytes(file))
        full = layout.decode_header(file)
        begin = IndexHeader(*[full.end_timestamp_ms] * 2, *[full.end_physical_offset] * 2)
    return files


@settings(max_examples=150)
@given(LOGS.filter(bool), st.integers(1, 7), st.integers(2, 12))
def test_keys_filed_later_give_the_same_files(native: Any, pure: Any, log: bytes, slots: int, entries: int) -> None:
    columns = native.scan(log, 0, len(log), BASE)
    keys = native.index_keys(log, columns, 0, columns.count)
    assert keys == pure.index_keys(log, columns, 0, columns.count)
    assert keys == b"".join(native.index_keys(log, columns, row, row + 1) for row in range(columns.count))
    files = file_taken(native, keys, slots, entries)
    assert files == file_taken(pure, keys, slots, entries)
    # What finds a file full with no key of its own begins the next: the same file, which nothing is put into.
    at_once = refile(native, [(BASE, log)], slots, entries)
    assert files == at_once[: len(files)]
    assert all(layout.decode_header(file).index_count == 1 for file in at_once[len(files) :])


def test_keys_are_in_the_order_in_which_they_are_filed(kernels: Any) -> None:
    messages = [keyed("a", "b", uniq="u"), keyed(), keyed("c", sys_flag=0xC), keyed("", "d", store_timestamp_ms=-5)]
    log, columns = scanned(kernels, *messages)
    places = [(BASE + columns.position[row], columns.store_timestamp_ms[row]) for row in range(4)]
    taken = list(INDEX_KEY.iter_unpack(kernels.index_keys(log, columns, 0, 4)))
    assert taken == [
        (layout.key_hash("TopicTest", key), *places[row]) for key, row in (("u", 0), ("a", 0), ("b", 0), ("d", 3))
    ]
    assert kernels.index_keys(log, columns, 1, 3) == b""
    many = [keyed(*[f"{row}-{key}" for key in range(row % 4)], uniq="u" * (row % 2)) for row in range(200)]
    log, columns = scanned(kernels, *many)  # so many that others may run meanwhile
    assert len(kernels.index_keys(log, columns, 0, 200)) == 400 * INDEX_KEY.size


def test_entries_lead_on_to_those_before(kernels: Any) -> None:
    keys = b"".join(INDEX_KEY.pack(number % 3, number, 1000 * number) for number in range(5))
    head = bytearray(layout.entry_position(0, 2))
    entries = kernels.index_entries(head, 2, keys[:40]) + kernels.index_entries(head, 2, keys[40:])
    assert kernels.index_entries(head, 2, b"") == b""
    assert [entry[3] for entry in INDEX_ENTRY.iter_unpack(entries)] == [0, 0, 1, 3, 2]
    assert [layout.decode_slot(head, slot, 2) for slot in range(2)] == [4, 5]
    assert layout.decode_header(head) == IndexHeader(0, 4000, 0, 4, 2, 6)


def test_what_are_no_keys_is_refused(kernels: Any) -> None:
    head = bytearray(layout.entry_position(0, 5))
    keys = INDEX_KEY.pack(7, 1, 1) * 2
    for wrong in (keys[1:], keys + b"x"):
        with pytest.raises(UsageError, match="no such keys"):
            kernels.index_entries(head, 5, wrong)
    with pytest.raises(UsageError, match="negative"):
        kernels.index_entries(head, 5, keys + INDEX_KEY.pack(-1, 1, 1))
    for slots in (6, 0, -1, 2**31):
        with pytest.raises(UsageError, match="smaller than its dimensions"):
            kernels.index_entries(head, slots, keys)
    assert head == bytes(len(head))
    with pytest.raises((BufferError, TypeError)):
        kernels.index_entries(bytes(len(head)), 5, keys)


@pytest.mark.parametrize("count", [2**31 - 1, 2**31 - 2, 2**31 - 3, -(2**31), 0])
def test_no_file_is_filled_beyond_what_its_header_can_count(kernels: Any, count: int) -> None:
    keys = INDEX_KEY.pack(7, 1, 1) * 2
    head = bytearray(layout.entry_position(0, 1))
    head[36:44] = count.to_bytes(4, "big", signed=True) + (2**31 - 2).to_bytes(4, "big")
    before = bytes(head)
    if count > 2**31 - 3:
        with pytest.raises(UsageError, match="no index file takes so many keys"):
            kernels.index_entries(head, 1, keys)
        assert head == before
        return
    entries = list(INDEX_ENTRY.iter_unpack(kernels.index_entries(head, 1, keys)))
    assert [entry[3] for entry in entries] == [0, max(count, 1)]
    assert layout.decode_header(head).index_count == max(count, 1) + 2


def test_rows_of_another_buffer_have_no_keys_to_take(kernels: Any) -> None:
    log, columns = scanned(kernels, keyed("k", uniq="u"))
    for start, stop in ((0, 2), (-1, 1), (1, 0)):
        with pytest.raises(UsageError):
            kernels.index_keys(log, columns, start, stop)
    with pytest.raises(UsageError, match="another buffer"):
        kernels.index_keys(log[:60], columns, 0, 1)
    for name in ("topic", "keys", "uniq_key"):
        for wrong in (-1, 2**62):
            broken = kernels.scan(log, 0, len(log), BASE)
            getattr(broken, f"{name}_position")[0] = wrong
            with pytest.raises(UsageError, match="another buffer"):
                kernels.index_keys(log, broken, 0, 1)


def test_slots_follow_from_the_entries(kernels: Any, golden: Path) -> None:
    """The slots of every whole golden index file are those that its entries call for; a contradiction is named."""
    seen = 0
    for path in sorted(golden.glob("*/store/index/*")):
        data = path.read_bytes()
        if len(data) != layout.file_size(SLOTS, ENTRIES) or "-recovered" in str(path):
            continue
        seen += 1
        header = layout.decode_header(data)
        begin, end = (layout.entry_position(number, SLOTS) for number in (1, header.index_count))
        entries = data[begin:end]
        right = kernels.index_slots(entries, SLOTS, LONG_MAX)
        assert right.slots == data[INDEX_HEADER.size : layout.entry_position(0, SLOTS)], path
        assert (right.entries, right.used, right.bad) == (header.index_count - 1, header.hash_slot_count, 0)
        assert right.end_physical_offset == header.end_physical_offset
        assert kernels.index_slots(entries, SLOTS, header.end_physical_offset).entries < right.entries
        broken = bytearray(entries)
        broken[6 * INDEX_ENTRY.size + 16] ^= 0x40
        found = kernels.index_slots(broken, SLOTS, LONG_MAX)
        assert found.bad == 7
        parts = None
        for first in range(0, len(entries), 3 * INDEX_ENTRY.size):
            parts = kernels.index_slots(entries[first : first + 3 * INDEX_ENTRY.size], SLOTS, LONG_MAX, parts)
        assert parts == right
        assert kernels.index_slots(b"", SLOTS, LONG_MAX) == (bytearray(SLOTS * INDEX_SLOT.size), 0, 0, 0, 0)
        for arguments in (
            (entries[:-1], SLOTS, LONG_MAX),
            (entries, 0, LONG_MAX),
            (entries, 1 << 31, LONG_MAX),
            (entries, SLOTS, LONG_MAX, found),
            (entries, SLOTS, LONG_MAX, right._replace(slots=bytearray(4))),
            (entries, SLOTS, LONG_MAX, right._replace(entries=(1 << 31) - 1)),
        ):
            with pytest.raises(UsageError):
                kernels.index_slots(*arguments)
    assert seen > 3
