"""Where a crash, a kill or a lost file lets the log end, and what opening it cuts off or refuses."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

import mqstore
from mqstore import CorruptFileError, CorruptRecordError, Message
from mqstore.layout.constants import MAGIC_V1
from mqstore.layout.index import index_keys
from store.support import (
    bodies,
    body_of,
    fill,
    findings,
    flip,
    forget_note,
    log_file,
    mark_crashed,
    open_small,
    overwrite,
    record_starts,
    reopen,
    tree,
)

ALL = [body_of(number) for number in range(10)]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    fill(tmp_path / "store", 10)
    return tmp_path / "store"


@pytest.mark.parametrize("foreign", [False, True], ids=["ours", "javas"])
@pytest.mark.parametrize("crashed", [False, True], ids=["closed", "crashed"])
@pytest.mark.parametrize("place", [0, 4, 30, 100, 190], ids=["size", "magic", "own-offset", "body", "properties"])
def test_a_torn_last_record_is_cut_off_for_good(store: Path, place: int, crashed: bool, foreign: bool) -> None:
    last = record_starts(store)[-1]
    if place == 190:
        overwrite(log_file(store), last + 192, bytes(5))  # the end of the properties never reached the disk
    else:
        flip(store, last + place)
    (store / "mqstore-dispatch.json").unlink()
    if crashed:
        mark_crashed(store)
    reopen(store)
    assert bodies(store) == ALL[:9]
    # Whatever comes next takes its place and nothing of the old record shines through.
    with open_small(store) as again:
        assert again.put(Message("T", b"short", queue_id=0)).queue_offset == 9
    assert bodies(store) == [*ALL[:9], b"short"]
    assert findings(store) == []


def test_units_behind_a_cut_log_are_erased(tmp_path: Path) -> None:
    store = tmp_path / "store"
    fill(store, 20)
    starts = record_starts(store)
    path = log_file(store, starts[12] - starts[12] % 4096)
    overwrite(path, starts[12] % 4096, bytes(4096 - starts[12] % 4096))
    for later in sorted((store / "commitlog").iterdir()):
        if int(later.name) > starts[12]:
            later.unlink()
    forget_note(store)
    mark_crashed(store)
    with open_small(store) as again:
        for number in range(5):
            assert again.put(Message("T", b"new" * number, queue_id=0)).queue_offset == 12 + number
    mark_crashed(store)
    reopen(store)
    assert bodies(store) == [body_of(number) for number in range(12)] + [b"new" * number for number in range(5)]


def test_damage_in_the_middle_is_refused_and_nothing_changed(store: Path) -> None:
    damaged = record_starts(store)[3]
    flip(store, damaged + 100)
    forget_note(store)
    before = tree(store)
    with pytest.raises(CorruptRecordError) as caught:
        open_small(store)
    assert caught.value.offset == damaged
    assert "rebuild" in str(caught.value.hint)
    after = tree(store)
    assert {name: data for name, data in after.items() if name != "lock"} == {
        name: data for name, data in before.items() if name != "lock"
    }


def lose(store: Path, number: int) -> int:
    """Turn record ``number`` into zeros, as a page does that never reached the disk; where it is."""
    start, end = record_starts(store)[number : number + 2]
    overwrite(log_file(store), start, bytes(end - start))
    return start


def test_zeros_in_the_middle_are_refused_like_any_damage(store: Path) -> None:
    lost = lose(store, 4)
    forget_note(store)
    before = tree(store)
    with pytest.raises(CorruptRecordError) as caught:
        open_small(store)
    assert (caught.value.offset, caught.value.found) == (lost, "UNWRITTEN")
    assert {name: data for name, data in tree(store).items() if name != "lock"} == {
        name: data for name, data in before.items() if name != "lock"
    }
    found = [finding for finding in findings(store) if finding.area == "log"]
    assert [(finding.offset, finding.found) for finding in found] == [(lost, "UNWRITTEN")]


def test_what_a_power_cut_leaves_behind_zeros_is_set_aside(store: Path) -> None:
    before = log_file(store).read_bytes()
    lost = lose(store, 4)
    forget_note(store)
    (store / "checkpoint").unlink()
    mark_crashed(store)
    reopen(store)
    assert bodies(store) == ALL[:4]
    kept = (store / "cut-off" / f"{lost:020d}" / log_file(store).name).read_bytes()
    assert kept[:lost] == before[:lost]
    assert body_of(9) in kept[lost:]


def test_damage_across_the_border_of_two_files_hides_nothing(tmp_path: Path) -> None:
    store = tmp_path / "store"
    fill(store, 25)
    starts = record_starts(store)
    first = next(number for number, start in enumerate(starts) if start >= 4096)
    for number in (first - 1, first):
        flip(store, starts[number] + 100)
    forget_note(store)
    with pytest.raises(CorruptRecordError) as caught:
        open_small(store)
    assert caught.value.offset == starts[first - 1]
    assert [path.name for path in sorted((store / "commitlog").iterdir())] == [f"{0:020d}", f"{4096:020d}"]


def test_older_records_behind_zeros_are_what_a_broker_cut_off(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    starts = record_starts(store)
    old = log_file(store).read_bytes()[starts[7] : starts[9]]
    overwrite(log_file(store), starts[3], bytes(4096 - starts[3]))
    forget_note(store)
    mark_crashed(store)
    later_ms = time.time_ns() // 1_000_000 + 60_000
    monkeypatch.setattr("time.time_ns", lambda: later_ms * 1_000_000)
    with open_small(store) as opened:
        opened.put(Message("T", b"newer", queue_id=0))
    overwrite(log_file(store), starts[7], old)
    forget_note(store)
    reopen(store)
    assert bodies(store) == [*ALL[:3], b"newer"]
    assert not (store / "cut-off").exists()
    assert not log_file(store).read_bytes()[starts[7] :].strip(b"\0")


def test_a_batch_whose_first_record_is_just_being_told_is_no_damage(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = record_starts(store)[4]
    size = log_file(store).read_bytes()[start : start + 4]
    overwrite(log_file(store), start, bytes(8))
    head = size + MAGIC_V1.to_bytes(4, "big", signed=True)
    monkeypatch.setattr("mqstore.store.log_reader.time.sleep", lambda wait_s: overwrite(log_file(store), start, head))
    with mqstore.inspect(store) as view:
        assert [record.body for record in view.scan()] in (ALL[:4], ALL)
        assert [record.body for record in view.scan()] == ALL


def test_stale_records_behind_the_end_do_not_come_back(store: Path) -> None:
    """A file that once held other records: their magic and checksums are right, their own offsets are not."""
    end = record_starts(store)[-1]
    with mqstore.inspect(store) as view:
        log_end = view.log_end
    stale = log_file(store).read_bytes()[:1000]
    assert end < log_end < 4096 - 1000
    overwrite(log_file(store), log_end, stale)
    forget_note(store)
    mark_crashed(store)
    reopen(store)
    assert bodies(store) == ALL


def test_a_record_whose_checksum_is_zero_is_sound(tmp_path: Path) -> None:
    store = tmp_path / "store"
    body = bytes.fromhex("9d0ad96d")
    with open_small(store) as opened:
        opened.put(Message("T", body, queue_id=0))
        opened.put_batch([Message("T", b"a", queue_id=0), Message("T", b"b", queue_id=0)])
    forget_note(store)
    mark_crashed(store)
    reopen(store)
    assert bodies(store) == [body, b"a", b"b"]


def test_an_empty_last_file_is_what_a_crash_leaves(store: Path) -> None:
    log_file(store, 4096).touch()
    mark_crashed(store)
    reopen(store)
    assert bodies(store) == ALL


def test_an_empty_file_in_the_middle_is_damage(tmp_path: Path) -> None:
    store = tmp_path / "store"
    fill(store, 60)
    log_file(store, 4096).write_bytes(b"")
    with pytest.raises(CorruptFileError) as caught:
        open_small(store)
    assert caught.value.path == str(log_file(store, 4096))


def test_a_missing_file_in_the_middle_is_damage(tmp_path: Path) -> None:
    store = tmp_path / "store"
    fill(store, 60)
    log_file(store, 4096).unlink()
    with pytest.raises(CorruptFileError, match="hole"):
        open_small(store)


def test_a_foreign_file_is_passed_over(store: Path) -> None:
    (store / "commitlog" / "notes.txt").write_text("backup of monday")
    open_small(store).close()
    assert bodies(store) == ALL
    assert [finding.message for finding in findings(store)] == ["a name that is no start offset"]


def test_a_short_last_file_is_completed(store: Path) -> None:
    with mqstore.inspect(store) as view:
        end = view.log_end
    with log_file(store).open("r+b") as file:
        file.truncate(end - 10)
    mark_crashed(store)
    forget_note(store)
    reopen(store)
    assert bodies(store) == ALL[:9]
    assert log_file(store).stat().st_size == 4096


def test_golden_stores_open_in_the_state_they_should_be_in(golden: Path, tmp_path: Path) -> None:
    for name in ("basic", "crashed", "crashed-bigindex", "cleaned", "cq-lost", "cq-lost-abort", "torn-flip-abort",
                 "torn-flip-clean", "torn-short-abort", "torn-short-clean", "cq-lost-abort-recovered", "broker",
                 "v5-basic", "v5-crashed", "v5-cleaned", "v5-cq-lost", "empty", "v5-empty"):  # fmt: skip
        store = tmp_path / name
        shutil.copytree(golden / name / "store", store)
        mqstore.open(store).close()
        assert [f for f in findings(store) if f.severity.value != "note"] == [], name
        before = tree(store)
        mqstore.open(store).close()
        assert tree(store) == before, name


def test_every_key_of_a_crashed_store_is_found(golden: Path, tmp_path: Path) -> None:
    """The original drops its unfinished index file after a crash and finds fewer than half of these keys again."""
    store = tmp_path / "store"
    shutil.copytree(golden / "crashed-bigindex" / "store", store)
    with mqstore.open(store, schedule_message_enable=False) as opened:  # what it delivers would be filed a moment later
        for record in mqstore.inspect(store).scan():
            for key in index_keys(record)[:1]:
                found = opened.query(record.topic, key, max_messages=10_000).messages
                assert record.physical_offset in [message.physical_offset for message in found]
