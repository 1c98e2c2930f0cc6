"""Splits: together they give every record once, wherever they begin and whatever lies in the log."""

from __future__ import annotations

import itertools
import shutil
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="needs the extra 'spark'")

import mqstore
from mqstore import Message
from mqstore.layout.record import encode_record
from mqstore.spark import log_end, splits
from mqstore.spark.jobs.log_shares import plan_splits
from mqstore.spark.log_end import readable_end
from mqstore.spark.splits import Split, SplitPolicy, open_log, read_split
from mqstore.spark.stores import StoreRef
from mqstore.store.log_reader import LogReader
from spark.support import expected_messages, read_here


@pytest.mark.parametrize(
    ("name", "split_bytes"),
    [("basic", 1000), ("cleaned", 777), ("crashed-recovered", 50_000), ("v5-basic", 1 << 28)],
)
def test_every_field_of_every_record(golden: Path, name: str, split_bytes: int) -> None:
    found = read_here(golden / name / "store", splitBytes=split_bytes)
    assert found == expected_messages(golden, name)


@pytest.mark.parametrize("name", ["crashed", "torn-flip-abort", "torn-flip-clean", "torn-short-clean", "v5-crashed"])
def test_what_a_crash_left_is_read_up_to_the_last_sound_record(golden: Path, name: str) -> None:
    with mqstore.inspect(golden / name / "store") as view:
        offsets = [record.physical_offset for record in view.scan()]
    found = read_here(golden / name / "store", ["physicalOffset"], splitBytes=3000)
    assert [row["physicalOffset"] for row in found] == offsets


def test_an_empty_store_has_no_splits(golden: Path) -> None:
    assert read_here(golden / "empty" / "store") == []


@pytest.mark.parametrize("look_back_bytes", [0, 1, 5000, 1 << 20])
def test_any_place_to_begin_and_any_look_back(
    golden: Path, look_back_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(splits, "LOOK_BACK_BYTES", look_back_bytes)
    store = StoreRef(str(golden / "v5-basic" / "store"), "")
    log = open_log(store)
    starts = [
        chunk.physical_offset + position for chunk in log.scan(check_crc=False) for position in chunk.columns.position
    ]
    policy = SplitPolicy()
    for entry in log.inventory.entries[1:3]:
        inside = [start for start in starts if entry.start <= start < entry.start + entry.length]
        for begin in range(entry.start, entry.start + entry.length, 10_007):
            expected = min((start for start in inside if start >= begin), default=entry.start + entry.length)
            assert splits.first_record(log, entry, begin, policy) == expected
    log.close()


def offsets_of(store: StoreRef, split_bytes: int) -> list[int]:
    log = open_log(store)
    found = [
        chunk.physical_offset + position
        for split in plan_splits(store, split_bytes)
        for chunk in read_split(log, split, SplitPolicy())
        for position in chunk.columns.position
    ]
    log.close()
    return found


def store_with(path: Path, bodies: list[bytes], **settings: Any) -> tuple[StoreRef, list[int]]:
    settings = {"mapped_file_size_commit_log": 1 << 20, "max_hash_slot_num": 100, "max_index_num": 400, **settings}
    with mqstore.open(path, **settings) as store:
        places = [store.put(Message("T", body, queue_id=0)).physical_offset for body in bodies]
    return StoreRef(str(path), "b"), places


def copy_of_a_record(physical_offset: int) -> bytes:
    return encode_record(
        topic=b"FORGED", body=b"x" * 50, properties=b"", queue_id=0, flag=0, queue_offset=0,
        physical_offset=physical_offset, sys_flag=0, born_timestamp_ms=1, born_host=b"\x7f\0\0\1\0\0\0\1",
        store_timestamp_ms=1, store_host=b"\x7f\0\0\1\0\0\0\1",
    )  # fmt: skip


def test_headers_and_records_in_bodies_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with mqstore.open(tmp_path / "first") as store:
        first = store.put(Message("T", b"real", queue_id=0))
    raw = (tmp_path / "first" / "commitlog" / ("0" * 20)).read_bytes()[: first.size_bytes]
    heads = [raw, raw[:36] * 20, copy_of_a_record(77), b"\xaa\xbb\xcc\xdd" * 100]
    store, places = store_with(tmp_path / "s", [b"a" * 100, *heads * 5])
    for look_back_bytes in (splits.LOOK_BACK_BYTES, 0):
        monkeypatch.setattr(splits, "LOOK_BACK_BYTES", look_back_bytes)
        for split_bytes in (50, 97, 1000):
            assert offsets_of(store, split_bytes) == places


def forged_store(tmp_path: Path) -> tuple[StoreRef, list[int], int]:
    """A store with a body that holds two whole records made for the very places they lie at, one behind the other."""
    guess, places = store_with(tmp_path / "guess", [b"a" * 1000, b"b" * 1000, b"c" * 1000])
    raw = (Path(guess.path) / "commitlog" / ("0" * 20)).read_bytes()
    forged = raw.index(b"b" * 1000) + 500
    records = copy_of_a_record(forged)
    records += copy_of_a_record(forged + len(records))
    body = b"b" * 500 + records + b"b" * (500 - len(records))
    store, _ = store_with(tmp_path / "real", [b"a" * 1000, body, b"c" * 1000])
    return store, places, forged


def test_a_record_forged_for_its_place_does_not_count(tmp_path: Path) -> None:
    store, places, forged = forged_store(tmp_path)
    for split_bytes in (100, 333, forged - 10, forged + 10, 1 << 20):
        assert offsets_of(store, split_bytes) == places
    log = open_log(store)
    assert log.record_at(forged) is not None
    log.close()


def test_what_could_mislead_the_next_split_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, places, forged = forged_store(tmp_path)
    monkeypatch.setattr(splits, "LOOK_BACK_BYTES", 20)
    # The second split begins just behind the start of a forged record and looks back no further than to that.
    with pytest.raises(mqstore.CorruptRecordError, match="body holds a whole record") as caught:
        offsets_of(store, forged + 10)
    assert forged < (caught.value.offset or 0) < forged + 1000
    for split_bytes in (forged - 10, 1 << 20):
        assert offsets_of(store, split_bytes) == places


def test_remains_behind_the_end_of_a_file_do_not_count(tmp_path: Path) -> None:
    store, places = store_with(tmp_path / "s", [b"x" * 30_000] * 4, mapped_file_size_commit_log=65_536)
    assert places[2] == 65_536
    first = Path(store.path) / "commitlog" / ("0" * 20)
    raw = bytearray(first.read_bytes())
    remains = copy_of_a_record(64_000)
    raw[64_000 : 64_000 + len(remains)] = remains
    first.write_bytes(raw)
    for split_bytes in (700, 4096, 65_536):
        assert offsets_of(store, split_bytes) == places


def walked_end(log: LogReader) -> int:
    """The end by a walk through the last three files with a look at everything."""
    end, newest_ms, damaged = log.inventory.entries[-3:][0].start, 0, False
    for entry in log.inventory.entries[-3:]:
        position = entry.start
        while position < entry.start + entry.length:
            record = log.record_at(position)
            if record is None:
                if log.end_of_closed_file(position) is not None:
                    break
                damaged = True
                found = log.resync(entry, position + 1)
                if found is None:
                    break
                position = found
                continue
            if damaged and record.store_timestamp_ms < newest_ms:
                return end
            damaged, position, end = False, record.end_offset, record.end_offset
            newest_ms = max(newest_ms, record.store_timestamp_ms)
    return end


def test_the_end_of_the_log_is_found_without_reading_all_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_end, "LOOK_BACK_BYTES", 8192)
    store, places = store_with(
        tmp_path / "s", [b"%d " % number * 60 for number in range(900)], mapped_file_size_commit_log=1 << 16
    )
    read: Counter[int] = Counter()
    real = LogReader.read_file

    def counting(self: LogReader, entry: Any, physical_offset: int, size_bytes: int) -> bytes:
        data = real(self, entry, physical_offset, size_bytes)
        read[entry.start] += len(data)
        return data

    log = open_log(store)
    last = int(max((tmp_path / "s" / "commitlog").iterdir()).name)
    with monkeypatch.context() as patch:
        patch.setattr(LogReader, "read_file", counting)
        assert readable_end(log) == walked_end(log)
    log.close()
    assert sorted(read) == [last - (1 << 16), last]
    assert read[last - (1 << 16)] <= 2 * 8192
    # Damage anywhere in the last three files, and near their borders.
    chosen = [place for place in places if place >= last - 2 * (1 << 16)]
    near_borders = [place for place in chosen if place % (1 << 16) < 700 or place % (1 << 16) > (1 << 16) - 900]
    for offset in {*chosen[::9], *near_borders, *chosen[-3:]}:
        path = tmp_path / "s" / "commitlog" / f"{offset - offset % (1 << 16):020d}"
        sound = path.read_bytes()
        for place in (4, 30, 120):  # magic, own offset, body
            content = bytearray(sound)
            content[offset % (1 << 16) + place] ^= 1
            path.write_bytes(content)
            log = open_log(store)
            assert readable_end(log) == walked_end(log), (offset, place)
            log.close()
        path.write_bytes(sound)


def test_older_records_behind_the_end_of_the_log_do_not_count(tmp_path: Path) -> None:
    store, places = store_with(tmp_path / "s", [b"x" * 100] * 3)
    file = Path(store.path) / "commitlog" / ("0" * 20)
    raw = bytearray(file.read_bytes())
    end = raw.rindex(b"x" * 100) + 200
    remains = b"\xff" * 50 + copy_of_a_record(end + 50)
    raw[end : end + len(remains)] = remains
    file.write_bytes(raw)
    assert offsets_of(store, 100) == places


@pytest.fixture
def damaged(golden: Path, tmp_path: Path) -> tuple[Path, list[dict[str, Any]]]:
    """The basic store with a flipped body byte in one record and a destroyed size in another, far apart."""
    shutil.copytree(golden / "basic" / "store", tmp_path / "store")
    rows = expected_messages(golden, "basic")
    flipped = next(number for number, row in enumerate(rows) if number > 300 and len(row["body"]) > 10)
    for number, mark in ((flipped, rows[flipped]["body"]), (1500, b"")):
        offset = rows[number]["physicalOffset"]
        file = tmp_path / "store" / "commitlog" / f"{offset - offset % (1 << 20):020d}"
        raw = bytearray(file.read_bytes())
        raw[raw.index(mark, offset % (1 << 20))] ^= 0x55
        file.write_bytes(raw)
    rows[flipped]["flipped"] = True
    rows[1500]["lost"] = True
    return tmp_path / "store", rows


@pytest.mark.parametrize("split_bytes", [7000, 1 << 28])
def test_damage_fails_is_skipped_or_kept(damaged: tuple[Path, list[dict[str, Any]]], split_bytes: int) -> None:
    path, rows = damaged
    with pytest.raises(mqstore.CorruptRecordError) as caught:
        read_here(path, splitBytes=split_bytes)
    assert caught.value.offset == next(row["physicalOffset"] for row in rows if "flipped" in row)
    skipped = read_here(path, ["physicalOffset"], splitBytes=split_bytes, onCorruptRecord="skip")
    sound = [row["physicalOffset"] for row in rows if not {"flipped", "lost"} & row.keys()]
    assert [row["physicalOffset"] for row in skipped] == sound
    kept = read_here(path, ["physicalOffset"], splitBytes=split_bytes, onCorruptRecord="keep")
    assert [row["physicalOffset"] for row in kept] == [row["physicalOffset"] for row in rows if "lost" not in row]
    marked = read_here(path, ["body", "corruptReason"], splitBytes=split_bytes, onCorruptRecord="keep")
    bad = next(row for row in rows if "flipped" in row)
    assert [(row["body"] != one["body"]) for row, one in zip(rows[:1500], marked, strict=False)].count(True) == 1
    crc = zlib.crc32(marked[rows.index(bad)]["body"]) & 0x7FFFFFFF
    what = f"the body has another checksum at {bad['physicalOffset']}: the record says {bad['bodyCRC']}, it is {crc}"
    assert [row["corruptReason"] for row in marked if row["corruptReason"]] == [what]
    with pytest.raises(mqstore.CorruptRecordError) as caught:
        read_here(path, splitBytes=split_bytes, verifyChecksum="false")
    assert caught.value.offset == rows[1500]["physicalOffset"]


def test_a_missing_file_is_data_loss(golden: Path, tmp_path: Path) -> None:
    shutil.copytree(golden / "basic" / "store", tmp_path / "store")
    (tmp_path / "store" / "commitlog" / f"{1 << 20:020d}").unlink()
    with pytest.raises(mqstore.CorruptFileError, match="hole"):
        read_here(tmp_path / "store")
    found = read_here(tmp_path / "store", ["physicalOffset"], failOnDataLoss="false", splitBytes=5000)
    expected = [row["physicalOffset"] for row in expected_messages(golden, "basic")]
    assert [row["physicalOffset"] for row in found] == [at for at in expected if not 1 << 20 <= at < 2 << 20]


def test_a_file_removed_after_planning_is_data_loss(golden: Path, tmp_path: Path) -> None:
    shutil.copytree(golden / "basic" / "store", tmp_path / "store")
    store = StoreRef(str(tmp_path / "store"), "")
    planned = plan_splits(store, 1 << 20)
    (tmp_path / "store" / "commitlog" / ("0" * 20)).unlink()
    log = open_log(store)
    with pytest.raises(mqstore.CorruptFileError, match="removed before it was read"):
        list(read_split(log, planned[0], SplitPolicy()))
    assert list(read_split(log, planned[0], SplitPolicy(fail_on_data_loss=False))) == []
    log.close()


def test_splits_cover_the_log_once(golden: Path) -> None:
    store = StoreRef(str(golden / "basic" / "store"), "")
    for split_bytes in (999, 1 << 20, 1 << 40):
        planned = plan_splits(store, split_bytes)
        assert planned[0].begin == 0
        assert all(one.end == two.begin for one, two in itertools.pairwise(planned))
        assert all(one.begin >> 20 == (one.end - 1) >> 20 for one in planned)
    with pytest.raises(mqstore.UsageError, match="splits"):
        plan_splits(store, 1)


@pytest.mark.parametrize("tail", ["zeros", "copy"])
def test_a_file_that_is_too_long_brings_no_row_twice(tmp_path: Path, tail: str) -> None:
    store = tmp_path / "store"
    with mqstore.open(store, mapped_file_size_commit_log=1 << 14) as opened:
        for number in range(400):
            opened.put(Message("orders", b"%d" % number, queue_id=0))
    first, second = sorted((store / "commitlog").iterdir())[:2]
    for length in (1, 20, 1000, 5000):
        whole = first.read_bytes()
        first.write_bytes(whole + (bytes(length) if tail == "zeros" else second.read_bytes()[:length]))
        for split_bytes in (700, 5000, 1 << 28):
            rows = read_here(store, ["queueOffset"], splitBytes=split_bytes, plan="scan")
            assert [row["queueOffset"] for row in rows] == list(range(400)), (length, split_bytes)
        first.write_bytes(whole)


def test_more_partitions_make_smaller_splits(golden: Path) -> None:
    assert splits.split_bytes_for(100_000, 25_600, 1) == 25_600
    assert splits.split_bytes_for(100_000, 25_600, 10) == 10_000
    assert splits.split_bytes_for(100_000, 25_600, 1_000_000) == 1024  # not worth a task otherwise
    assert splits.split_bytes_for(100_000, 10, 1_000_000) == 10  # as it was asked for
    assert isinstance(plan_splits(StoreRef(str(golden / "basic" / "store"), ""), 1 << 20)[0], Split)
