"""Messages by their keys: what the index leads to is what a scan finds, whatever the index lacks."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="needs the extra 'spark'")

import mqstore
from mqstore import Message
from mqstore.layout import index
from mqstore.layout.index import index_keys
from mqstore.spark import key_places, planning
from mqstore.spark.key_places import Places
from mqstore.spark.messages import MessagesView
from mqstore.spark.options import ReadOptions
from mqstore.spark.pushed import Pushed
from mqstore.spark.splits import Split
from mqstore.spark.stores import find_stores
from mqstore.store.index_reader import IndexFileReader
from spark.planned import SIZES, plan_of, rows_of
from spark.support import read_here, read_part


@pytest.mark.parametrize(("topic", "key"), [("orders", "k-333"), ("rare", "k-60"), ("orders", "g-3"), ("rare", "no")])
def test_keys_by_the_index(made: Path, read_bytes: Callable[[], int], topic: str, key: str) -> None:
    with mqstore.inspect(made) as view:
        expected = [one.physical_offset for one in view.scan() if one.topic == topic and key in index_keys(one)]
    read_bytes()
    scanned = rows_of(made, plan="scan", subscribe=topic, keys=key)
    through = read_bytes()
    assert [row["physicalOffset"] for row in scanned] == expected
    assert rows_of(made, plan="queues", subscribe=topic, keys=key) == scanned
    assert read_bytes() * (5 if key != "g-3" else 1) < through
    assert any(isinstance(piece, Places) for piece in plan_of(made, plan="queues", subscribe="orders", keys="g-3"))


def test_unique_keys(golden: Path) -> None:
    store = golden / "cleaned" / "store"
    with mqstore.inspect(store) as view:
        records = [one for one in view.scan() if index_keys(one) and one.uniq_key]
    for record in records[:: len(records) // 4]:
        found = rows_of(store, plan="queues", subscribe=record.topic, keys=record.uniq_key)
        assert record.physical_offset in [row["physicalOffset"] for row in found]
        assert found == rows_of(store, plan="scan", subscribe=record.topic, keys=record.uniq_key)


@pytest.mark.parametrize("gone", ["first", "middle", "last", "all", "broken", "chain"])
def test_keys_when_the_index_lacks_something(copy: Path, gone: str) -> None:
    files = sorted((copy / "index").iterdir())
    assert len(files) > 4
    if gone == "chain":
        raw = bytearray(files[2].read_bytes())
        raw[40 + 400 :] = b"\x00\x00\x00\x07" * ((len(raw) - 440) // 4)
        files[2].write_bytes(raw)
    elif gone == "broken":
        files[1].write_bytes(b"\xff" * 100)
    else:
        for file in {"first": files[:1], "middle": files[2:3], "last": files[-1:], "all": files}[gone]:
            file.unlink()
    for topic in ("orders", "rare"):
        for key in ("g-0", "k-0", "k-999", "k-1500", "k-2997", "k-2940"):
            found = rows_of(copy, plan="queues", subscribe=topic, keys=key)
            assert found == rows_of(copy, plan="scan", subscribe=topic, keys=key), (topic, key)


def forget_entries(file: Path, low: int, high: int) -> None:
    """Make an index file what it would be if a broker had kept no index while it stored the log from low to high."""
    raw = bytearray(file.read_bytes())
    header = index.decode_header(bytes(raw[:40]))
    slots = SIZES["max_hash_slot_num"]
    start = index.entry_position(1, slots)
    entries = list(index.INDEX_ENTRY.iter_unpack(raw[start : index.entry_position(header.index_count, slots)]))
    raw[40:start] = bytes(start - 40)
    kept = [entry for entry in entries if not low <= entry[1] < high]
    for number, (key_hash, *rest, _) in enumerate(kept, 1):
        at = index.slot_position(key_hash, slots)
        previous = index.INDEX_SLOT.unpack_from(raw, at)[0]
        index.INDEX_SLOT.pack_into(raw, at, number)
        index.INDEX_ENTRY.pack_into(raw, index.entry_position(number, slots), key_hash, *rest, previous)
    used = sum(any(raw[at : at + 4]) for at in range(40, start, 4))
    index.INDEX_HEADER.pack_into(raw, 0, *header[:4], used, len(kept) + 1)
    file.write_bytes(raw)


def test_keys_of_messages_that_were_stored_without_an_index(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "broker-a"
    with mqstore.open(path, **{**SIZES, "max_index_num": 5000}) as store:
        places = [
            store.put(Message("orders", bytes(2000), keys=[f"k-{number}"], queue_id=0)).physical_offset
            for number in range(700)
        ]
    (file,) = (path / "index").iterdir()
    forget_entries(file, places[200], places[350])
    forget_entries(file, places[500], places[502])
    caplog.set_level(logging.INFO, "mqstore")
    options: dict[str, object] = {"subscribe": "orders", "keys": "k-7,k-199,k-200,k-349,k-350,k-699"}
    for plan in ("queues", "auto"):
        assert [row["physicalOffset"] for row in rows_of(path, plan=plan, **options)] == [
            places[number] for number in (7, 199, 200, 349, 350, 699)
        ]
    assert {type(piece) for piece in plan_of(path, plan="queues", **options)} == {Places, Split}
    assert "by the index, trusted for" in caplog.text
    monkeypatch.setattr(key_places, "_MOST_RANGES", 1)
    assert {type(piece) for piece in plan_of(path, plan="queues", **options)} == {Split}


def test_entries_to_which_nothing_leads(copy: Path) -> None:
    """A slot that has lost its chain: a query by key finds nothing then, and the log is still the evidence."""
    for file in (copy / "index").iterdir():
        raw = bytearray(file.read_bytes())
        raw[40 : 40 + 400] = bytes(400)
        file.write_bytes(raw)
    found = rows_of(copy, plan="queues", subscribe="orders", keys="g-3")
    assert len(found) > 50
    assert found == rows_of(copy, plan="scan", subscribe="orders", keys="g-3")
    assert any(isinstance(piece, Places) for piece in plan_of(copy, plan="queues", subscribe="orders", keys="g-3"))


def test_a_damaged_message_is_told_by_its_key_too(copy: Path) -> None:
    with mqstore.inspect(copy) as view:
        record = next(one for one in view.scan() if one.topic == "rare" and "k-120" in one.keys)
    file = copy / "commitlog" / f"{record.physical_offset // 65536 * 65536:020d}"
    raw = bytearray(file.read_bytes())
    raw[record.physical_offset % 65536 + 4] ^= 1
    file.write_bytes(raw)
    with pytest.raises(mqstore.CorruptRecordError, match="damaged record"):
        rows_of(copy, plan="queues", subscribe="rare", keys="k-120")
    assert rows_of(copy, plan="queues", subscribe="rare", keys="k-120", onCorruptRecord="skip") == []


@pytest.fixture
def looked_through(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the index files of which all entries were looked at."""
    names: list[str] = []
    real = key_places._look_through

    def look_through(file: IndexFileReader, count: int, wanted: list[int]) -> Any:
        names.append(file.path.name)
        return real(file, count, wanted)

    monkeypatch.setattr(key_places, "_look_through", look_through)
    return names


def rows_between(path: Path, low: int, high: int, **options: str) -> list[Any]:
    """Physical offsets of the rows that are left of those in [low, high)."""
    parsed = ReadOptions.parse({"path": str(path), **options})
    view = MessagesView(find_stores(parsed), parsed, ["physicalOffset"])
    view.pushed = Pushed(physical_offsets=(low, high))
    return [row["physicalOffset"] for part in view.plan() for row in read_part(view, part)]


@pytest.mark.parametrize(("low", "high"), [(0, 100_000), (700_000, 800_000), (1_500_000, 1 << 40)])
def test_index_files_of_other_messages_are_not_gone_through(
    made: Path, looked_through: list[str], low: int, high: int
) -> None:
    wanted = {"subscribe": "orders", "keys": "g-3,k-1500"}
    expected = sorted(rows_between(made, low, high, plan="scan", **wanted))
    assert expected
    assert sorted(rows_between(made, low, high, plan="queues", **wanted)) == expected
    assert 1 <= len(looked_through) < len(list((made / "index").iterdir()))


def test_index_files_of_other_times_are_not_gone_through(
    made: Path, looked_through: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "CLOCK_SLACK_MS", 0)
    moment = read_here(made, ["storeTimestamp"], plan="scan")[2900]["storeTimestamp"]
    options: dict[str, object] = {
        "subscribe": "orders",
        "keys": "g-3",
        "startingTimestamp": int(moment.timestamp() * 1000),
    }
    assert rows_of(made, plan="queues", **options) == rows_of(made, plan="scan", **options) != []
    assert 1 <= len(looked_through) < len(list((made / "index").iterdir()))


def test_an_index_that_is_as_large_as_the_log_is_not_read_in_vain(tmp_path: Path, looked_through: list[str]) -> None:
    with mqstore.open(tmp_path / "broker-a", **SIZES) as store:
        for number in range(500):
            store.put(Message("orders", b"", keys=[f"{number}-{one}" for one in range(30)], queue_id=0))
    found = rows_of(tmp_path / "broker-a", subscribe="orders", keys="7-3")
    assert [row["queueOffset"] for row in found] == [7]
    assert looked_through == []


def test_index_files_that_follow_each_other_leave_nothing_between(made: Path) -> None:
    """What lies between the last key of a file and the first of the next is no task's work."""
    pieces = plan_of(made, plan="queues", subscribe="orders", keys="g-3,k-1500")
    assert [type(piece) for piece in pieces].count(Places) == 1
    assert len(pieces) <= 3  # what is in front of the first key and behind the last


def test_a_key_that_was_not_filed_between_two_index_files(tmp_path: Path) -> None:
    path = tmp_path / "broker-a"
    with mqstore.open(path, **SIZES) as store:
        for number in range(399):
            store.put(Message("orders", b"", keys=[f"k-{number}"], queue_id=0))
        store.put(Message("orders", b"", queue_id=0))
        lost = store.put(Message("orders", b"", properties={"KEYS": "lost"}, queue_id=0))
        for number in range(399, 600):
            store.put(Message("orders", b"", keys=[f"k-{number}"], queue_id=0))
    _, second = sorted((path / "index").iterdir())
    raw = bytearray(second.read_bytes())
    header = index.decode_header(bytes(raw[:40]))
    slots = SIZES["max_hash_slot_num"]
    begin, end = (index.entry_position(number, slots) for number in (1, header.index_count))
    entries = list(index.INDEX_ENTRY.iter_unpack(raw[begin:end]))
    assert entries[0][1] == lost.physical_offset
    raw[begin:end] = b"".join(index.INDEX_ENTRY.pack(*one) for one in entries[1:]) + bytes(20)
    index.INDEX_HEADER.pack_into(raw, 0, *header[:2], entries[1][1], *header[3:5], header.index_count - 1)
    second.write_bytes(raw)
    found = rows_of(path, plan="queues", subscribe="orders", keys="lost,k-7")
    assert [row["physicalOffset"] for row in found][1:] == [lost.physical_offset]
    assert found == rows_of(path, plan="scan", subscribe="orders", keys="lost,k-7")
    assert {type(piece) for piece in plan_of(path, plan="queues", subscribe="orders", keys="lost")} == {Places}
