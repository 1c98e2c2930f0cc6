"""Index files: small parts, and every golden index built anew from its records, byte for byte."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.errors import CorruptFileError, CorruptRecordError, UsageError
from mqstore.layout import index
from mqstore.layout.constants import SysFlag
from mqstore.layout.hosts import encode_host
from mqstore.layout.index import IndexEntry, IndexHeader
from mqstore.layout.record import Blank, Record, decode_record, encode_record

I64 = st.integers(-(2**63), 2**63 - 1)
I32 = st.integers(-(2**31), 2**31 - 1)


class Builder:
    """An index file as a live store fills it; the readable version of what the kernels do."""

    def __init__(self, hash_slots: int, max_entries: int, before: IndexHeader | None) -> None:
        self.hash_slots, self.max_entries = hash_slots, max_entries
        self.data = bytearray(index.file_size(hash_slots, max_entries))
        self.header = IndexHeader()
        if before is not None:
            self.header = IndexHeader(
                before.end_timestamp_ms, before.end_timestamp_ms,
                before.end_physical_offset, before.end_physical_offset,
            )  # fmt: skip

    @property
    def is_full(self) -> bool:
        return self.header.index_count > index.capacity(self.max_entries)

    def put(self, key_hash: int, physical_offset: int, store_timestamp_ms: int) -> None:
        number, slots = self.header.index_count, self.hash_slots
        slot = index.slot_position(key_hash, slots)
        previous = index.decode_slot(self.data, key_hash % slots, slots)
        seconds = index.time_diff_s(self.header.begin_timestamp_ms, store_timestamp_ms)
        if number == 1:
            self.header = self.header._replace(
                begin_timestamp_ms=store_timestamp_ms, begin_physical_offset=physical_offset
            )
        entry = index.encode_entry(IndexEntry(key_hash, physical_offset, seconds, previous))
        at = index.entry_position(number, slots)
        self.data[at : at + len(entry)] = entry
        self.data[slot : slot + 4] = index.INDEX_SLOT.pack(number)
        self.header = self.header._replace(
            end_timestamp_ms=store_timestamp_ms, end_physical_offset=physical_offset,
            hash_slot_count=self.header.hash_slot_count + (previous == 0), index_count=number + 1,
        )  # fmt: skip

    def content(self) -> bytes:
        return index.encode_header(self.header) + bytes(self.data[index.INDEX_HEADER.size :])


def records_of(store: Path) -> list[Record]:
    found = []
    for path in sorted((store / "commitlog").iterdir()):
        data, start, position = path.read_bytes(), int(path.name), 0
        while position < len(data):
            try:
                record = decode_record(data, position, physical_offset=start + position)
            except CorruptRecordError:
                break
            if isinstance(record, Blank):
                break
            found.append(record)
            position += record.total_size
    return found


@pytest.mark.parametrize(
    ("name", "slots", "entries"),
    [
        ("basic", 1000, 4000),
        ("v5-basic", 1000, 4000),
        ("cq-lost-recovered", 1000, 4000),
        ("v5-cq-lost-recovered", 1000, 4000),
        ("broker", 1000, 4000),
    ],
)
def test_golden_files_are_built_anew(golden, name, slots, entries):
    store = golden / name / "store"
    built: list[Builder] = []
    for record in records_of(store):
        if not built or built[-1].is_full:
            built.append(Builder(slots, entries, built[-1].header if built else None))
        for key in index.index_keys(record):
            if built[-1].is_full:
                built.append(Builder(slots, entries, built[-1].header))
            built[-1].put(index.key_hash(record.topic, key), record.physical_offset, record.store_timestamp_ms)
    files = [path.read_bytes() for path in sorted((store / "index").iterdir())]
    assert len(files) == len(built)
    for file, builder in zip(files, built, strict=True):
        assert index.decode_header(file) == builder.header
        assert file == builder.content()


@pytest.mark.parametrize("name", ["basic", "cleaned", "crashed-recovered", "v5-basic", "v5-cleaned"])
def test_golden_answers_are_in_the_chains(golden, name):
    """Every record that the real store found for a key stands in the chain of its slot."""
    expected = json.loads((golden / name / "EXPECTED-QUEUES.json").read_text(encoding="utf-8"))
    files = [path.read_bytes() for path in (golden / name / "store" / "index").iterdir()]
    checked = 0
    for query in expected["keys"]:
        wanted = index.key_hash(query["topic"], query["key"])
        found = {offset for file in files for offset in chain(file, 1000, wanted)}
        assert set(query["offsets"]) <= found
        checked += len(query["offsets"])
    assert checked


def chain(file: bytes, slots: int, key_hash: int) -> list[int]:
    header = index.decode_header(file)
    number = index.decode_slot(file, key_hash % slots, slots)
    found = []
    while 0 < number < header.index_count:
        entry = index.decode_entry(file, number, slots)
        if entry.key_hash == key_hash:
            found.append(entry.physical_offset)
        assert entry.previous < number
        number = entry.previous
    return found


class TestKeys:
    def record(self, sys_flag: int = 0) -> Record:
        host = encode_host("10.0.0.9:10911")
        data = encode_record(
            topic=b"T", body=b"", properties=b"KEYS\x01a  b a \x02UNIQ_KEY\x01u", queue_id=0, flag=0, queue_offset=0,
            physical_offset=0, sys_flag=sys_flag, born_timestamp_ms=0, born_host=host, store_timestamp_ms=0,
            store_host=host,
        )  # fmt: skip
        record = decode_record(data)
        assert isinstance(record, Record)
        return record

    def test_unique_key_comes_first(self):
        assert index.index_keys(self.record()) == ["u", "a", "b", "a"]

    def test_rollback_has_none(self):
        assert index.index_keys(self.record(SysFlag.TRANSACTION_ROLLBACK)) == []
        for kind in (SysFlag.TRANSACTION_PREPARED, SysFlag.TRANSACTION_COMMIT):
            assert index.index_keys(self.record(kind)) == ["u", "a", "b", "a"]


class TestParts:
    def test_vector(self):
        """Slots of a 4.9.8 file with 100 slots."""
        for key, slot in (("7F00000100000", 82), ("k0", 23), ("kk", 82)):
            assert index.slot_position(index.key_hash("TopicTest", key), 100) == 40 + 4 * slot
        assert index.entry_position(1, 100) == 40 + 400 + 20

    def test_capacity(self):
        assert index.capacity(400) == 399
        assert index.capacity(0) == 0

    @pytest.mark.parametrize(
        ("begin", "stored", "seconds"),
        [(0, 5000, 0), (-1, 5000, 0), (1000, 2999, 1), (1000, 500, 0), (1, 2**62, 2**31 - 1)],
    )
    def test_seconds(self, begin, stored, seconds):
        assert index.time_diff_s(begin, stored) == seconds

    def test_a_file_that_took_no_key(self):
        assert index.decode_header(bytes(40)) == IndexHeader()

    @given(st.builds(IndexHeader, I64, I64, I64, I64, I32, st.integers(1, 2**31 - 1)))
    def test_header(self, header):
        assert index.decode_header(index.encode_header(header)) == header

    @given(st.builds(IndexEntry, I32, I64, I32, I32), st.integers(0, 5), st.integers(0, 5))
    def test_entry(self, entry, number, slots):
        data = bytes(index.entry_position(number, slots)) + index.encode_entry(entry)
        assert index.decode_entry(data, number, slots) == entry

    def test_misuse(self):
        for attempt in (
            lambda: index.slot_position(5, 0),
            lambda: index.decode_slot(bytes(80), 10, 10),
            lambda: index.decode_slot(bytes(80), -1, 10),
            lambda: index.decode_entry(bytes(80), -1, 0),
            lambda: index.encode_entry(IndexEntry(2**31, 0, 0, 0)),
            lambda: index.encode_header(IndexHeader(2**63)),
        ):
            with pytest.raises(UsageError):
                attempt()

    def test_short_files(self):
        for attempt in (
            lambda: index.decode_header(bytes(39)),
            lambda: index.decode_slot(bytes(79), 9, 10),
            lambda: index.decode_entry(bytes(99), 1, 10),
        ):
            with pytest.raises(CorruptFileError):
                attempt()
