"""What a store looks like after a crash or with parts lost, and what opening it makes of that."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import mqstore
from mqstore import CorruptFileError, CorruptRecordError, DiskFullError, Message
from mqstore.files import copying, durable
from mqstore.files.pool import FilePool
from mqstore.layout.index import index_keys
from mqstore.store import recovery
from mqstore.store.consume_queue import ConsumeQueue
from store.support import (
    bodies,
    body_of,
    fill,
    findings,
    forget_note,
    log_file,
    mark_crashed,
    open_small,
    overwrite,
    queue_file,
    tree,
)

ALL = [body_of(number) for number in range(10)]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    fill(tmp_path / "store", 10)
    return tmp_path / "store"


def reopen(store: Path) -> None:
    open_small(store).close()
    assert findings(store) == []


def zero_last_units(store: Path) -> None:
    overwrite(queue_file(store), 7 * 20, bytes(60))


def shorten_queue_file(store: Path) -> None:
    with queue_file(store).open("r+b") as file:
        file.truncate(140)


def remove_queues(store: Path) -> None:
    shutil.rmtree(store / "consumequeue")


def remove_one_queue(store: Path) -> None:
    shutil.rmtree(store / "consumequeue" / "T")


def remove_index(store: Path) -> None:
    shutil.rmtree(store / "index")


def empty_index_file(store: Path) -> None:
    max((store / "index").iterdir()).write_bytes(b"")


def damage_index_entry(store: Path) -> None:
    overwrite(max((store / "index").iterdir()), 40 + 8 * 4 + 20, b"\x7f" * 20)


def damage_index_header(store: Path) -> None:
    overwrite(max((store / "index").iterdir()), 36, b"\x7f\xff\xff\xff")


def remove_checkpoint(store: Path) -> None:
    (store / "checkpoint").unlink()


def empty_note(store: Path) -> None:
    (store / "mqstore-dispatch.json").write_bytes(b"")


def garble_note(store: Path) -> None:
    (store / "mqstore-dispatch.json").write_text('{"version": 1, "logOffset": "many"}')


def note_ahead_of_the_log(store: Path) -> None:
    path = store / "mqstore-dispatch.json"
    path.write_text(path.read_text().replace('"logOffset": ', '"logOffset": 9'))


def checkpoint_ahead(store: Path) -> None:
    overwrite(store / "checkpoint", 8, struct.pack(">q", 2**62))


LOSSES: list[Callable[[Path], None]] = [
    zero_last_units, shorten_queue_file, remove_queues, remove_one_queue, remove_index, empty_index_file,
    damage_index_entry, damage_index_header, remove_checkpoint, empty_note, garble_note, note_ahead_of_the_log,
    checkpoint_ahead,
]  # fmt: skip


@pytest.mark.parametrize("crashed", [False, True], ids=["closed", "crashed"])
@pytest.mark.parametrize("foreign", [False, True], ids=["ours", "javas"])
@pytest.mark.parametrize("lose", LOSSES, ids=lambda lose: lose.__name__)
def test_derived_files_follow_from_the_log_again(
    store: Path, lose: Callable[[Path], None], foreign: bool, crashed: bool
) -> None:
    before = tree(store / "consumequeue")
    if foreign and "note" not in lose.__name__:
        forget_note(store)
    if crashed:
        mark_crashed(store)
    lose(store)
    reopen(store)
    assert bodies(store) == ALL
    assert tree(store / "consumequeue") == before
    with mqstore.inspect(store) as view:
        for number in range(10):
            assert [m.body for m in view.query("T", f"k{number}").messages] == [ALL[number]]


def test_opening_again_changes_nothing(store: Path) -> None:
    before = tree(store)
    reopen(store)
    assert tree(store) == before


@pytest.mark.parametrize("noted", [False, True], ids=["javas", "ours"])
def test_a_recovery_that_is_broken_off_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, noted: bool
) -> None:
    """Twenty files; a start that is killed again and again comes to its end all the same."""
    path = tmp_path / "s"
    with open_small(path) as store:
        for number in range(400):
            store.put(Message("T", body_of(number), keys=[f"k{number}"], queue_id=0))
            if number == 40:
                store.flush()
                note = (path / "mqstore-dispatch.json").read_bytes()
    whole = tree(path / "consumequeue"), list(tree(path / "index").values())
    for name in ("consumequeue", "index") if not noted else ():
        shutil.rmtree(path / name)
    (path / "mqstore-dispatch.json").write_bytes(note if noted else b"")
    mark_crashed(path)
    monkeypatch.setattr(recovery, "_NOTE_INTERVAL_S", 0)
    left = []

    def killed(done: int, total: int) -> None:
        if not done:
            return
        left.append(total)
        if done >= total // 3 and total > 8 * 4096:
            raise KeyboardInterrupt

    while not left or left[-1] > 8 * 4096:
        starts = len(left)
        with contextlib.suppress(KeyboardInterrupt):
            open_small(path, on_progress=killed).close()
        assert starts == 0 or left[starts] < left[starts - 1]
        assert len(left) < 500
    open_small(path).close()
    assert (tree(path / "consumequeue"), list(tree(path / "index").values())) == whole
    assert findings(path) == []


def broken_off(path: Path, calls: int) -> int:
    """Open the store and be killed after so many tellings of progress; the bytes of log that were to be walked."""
    totals: list[int] = []

    def kill(done: int, total: int) -> None:
        totals.append(total)
        if len(totals) == calls:
            raise KeyboardInterrupt

    with contextlib.suppress(KeyboardInterrupt):
        open_small(path, on_progress=kill).close()
    return totals[0]


def as_a_broker_left_it(path: Path) -> None:
    fill(path, 400)
    forget_note(path)
    mark_crashed(path)


def test_the_first_walk_of_a_brokers_log_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as the log is not known to be sound its index stays as it is, and how far the walk came is noted."""
    path = tmp_path / "s"
    as_a_broker_left_it(path)
    whole = tree(path / "consumequeue"), tree(path / "index")
    monkeypatch.setattr(recovery, "_NOTE_INTERVAL_S", 0)
    walked = [broken_off(path, 4) for _ in range(4)]
    assert walked == sorted(walked, reverse=True)
    assert len(set(walked)) == 4
    assert (tree(path / "consumequeue"), tree(path / "index")) == whole
    assert (path / "mqstore-scan.json").exists()
    open_small(path).close()
    assert not (path / "mqstore-scan.json").exists()
    assert tree(path / "consumequeue") == whole[0]
    assert list(tree(path / "index").values()) == list(whole[1].values())
    assert findings(path) == []


def test_a_note_of_another_log_is_not_gone_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "other"):
        as_a_broker_left_it(tmp_path / name)
    monkeypatch.setattr(recovery, "_NOTE_INTERVAL_S", 0)
    everything = broken_off(tmp_path / "one", 4)
    assert broken_off(tmp_path / "one", 1) < everything
    note = (tmp_path / "one" / "mqstore-scan.json").read_bytes()
    (tmp_path / "other" / "mqstore-scan.json").write_bytes(note)
    assert broken_off(tmp_path / "other", 1) == everything  # the same places, but other times
    for wrong in (note[:-9], b"", note.replace(b'"size": ', b'"size": 1')):
        (tmp_path / "one" / "mqstore-scan.json").write_bytes(wrong)
        assert broken_off(tmp_path / "one", 1) == everything


def record_starts(store: Path) -> list[int]:
    with mqstore.inspect(store) as view:
        return [record.physical_offset for record in view.scan()]


def flip(store: Path, physical_offset: int) -> None:
    path = log_file(store, physical_offset - physical_offset % 4096)
    position = physical_offset % 4096
    overwrite(path, position, bytes([path.read_bytes()[position] ^ 0x55]))


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
    assert [finding.message for finding in findings(store)] == ["a name that is not 20 digits"]


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


def test_reading_a_damaged_unit_is_an_error_and_not_a_gap(store: Path) -> None:
    overwrite(queue_file(store), 4 * 20, bytes(20))
    with open_small(store) as opened:
        assert [m.body for m in opened.get("T", 0, 0, max_messages=4).messages] == ALL[:4]
        with pytest.raises(CorruptFileError, match="message 4 of queue T/0"):
            opened.get("T", 0, 4)
        assert [m.body for m in opened.get("T", 0, 5).messages] == ALL[5:]


def test_what_a_power_cut_leaves_behind_damage_is_set_aside(store: Path) -> None:
    damaged = record_starts(store)[3]
    before = log_file(store).read_bytes()
    flip(store, damaged + 100)
    (store / "mqstore-dispatch.json").unlink()
    (store / "checkpoint").unlink()
    mark_crashed(store)
    reopen(store)
    assert bodies(store) == ALL[:3]
    kept = (store / "cut-off" / f"{damaged:020d}" / log_file(store).name).read_bytes()
    assert kept[: damaged + 100] == before[: damaged + 100]
    assert kept[damaged + 101 :] == before[damaged + 101 :]


def spoil_as_a_power_cut_does(store: Path, number: int) -> int:
    """Damage record ``number``, with sound ones behind it, that no note says were on the device; where it is."""
    damaged = record_starts(store)[number]
    flip(store, damaged + 100)
    (store / "mqstore-dispatch.json").unlink()
    (store / "checkpoint").unlink()
    mark_crashed(store)
    return damaged


def test_what_was_set_aside_in_part_is_set_aside_anew(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    damaged = spoil_as_a_power_cut_does(store, 3)
    before = log_file(store).read_bytes()

    def full_in_the_middle(source: Path, target: Path) -> None:
        target.write_bytes(before[:1000])
        raise DiskFullError("no space left while trying to write", path=target)

    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(copying, "copy_file", full_in_the_middle)
            with pytest.raises(DiskFullError):
                open_small(store)
        assert log_file(store).read_bytes() == before
        assert list((store / "cut-off").iterdir()) == []
    reopen(store)
    assert bodies(store) == ALL[:3]
    assert (store / "cut-off" / f"{damaged:020d}" / log_file(store).name).read_bytes() == before


def test_a_start_that_is_killed_behind_setting_aside_does_it_once(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    damaged = spoil_as_a_power_cut_does(store, 3)

    def killed(recovery: object, end: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(recovery.Recovery, "_cut_log", killed)
        with pytest.raises(KeyboardInterrupt):
            open_small(store)
    reopen(store)
    assert [path.name for path in (store / "cut-off").iterdir()] == [f"{damaged:020d}"]


def test_a_log_that_is_cut_twice_at_one_place_is_set_aside_twice(store: Path) -> None:
    damaged = spoil_as_a_power_cut_does(store, 3)
    reopen(store)
    with open_small(store) as opened:
        for number in range(3, 6):
            opened.put(Message("T", b"later " + body_of(number), keys=[f"k{number}"], queue_id=0))
    assert spoil_as_a_power_cut_does(store, 3) == damaged
    before = log_file(store).read_bytes()
    reopen(store)
    assert bodies(store) == ALL[:3]
    assert sorted(path.name for path in (store / "cut-off").iterdir()) == [f"{damaged:020d}", f"{damaged:020d}.1"]
    assert (store / "cut-off" / f"{damaged:020d}.1" / log_file(store).name).read_bytes() == before


def test_old_damage_is_no_power_cut(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sound records that are younger by more than any sync takes: the damaged one had been on the device."""
    damaged = record_starts(store)[3]
    later_ms = time.time_ns() // 1_000_000 + 60_000
    with open_small(store) as opened:
        monkeypatch.setattr("time.time_ns", lambda: later_ms * 1_000_000)
        opened.put(Message("T", b"later", queue_id=0))
    monkeypatch.undo()
    flip(store, damaged + 100)
    (store / "mqstore-dispatch.json").unlink()
    (store / "checkpoint").unlink()
    mark_crashed(store)
    with pytest.raises(CorruptRecordError):
        open_small(store)


def test_a_failed_sync_is_final_for_every_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = durable.sync_file

    def fail(fd: int, path: object) -> None:
        if "commitlog" in str(path):
            raise mqstore.StoreIOError("could not sync file: Input/output error", path=str(path))
        real(fd, path)  # type: ignore[arg-type]

    store = open_small(tmp_path / "store", flush_disk_type="SYNC_FLUSH")
    store.put(Message("T", b"safe", queue_id=0))
    monkeypatch.setattr(durable, "sync_file", fail)
    with pytest.raises(mqstore.StoreIOError):
        store.put(Message("T", b"not safe", queue_id=0))
    monkeypatch.undo()
    with pytest.raises(mqstore.NotWritableError, match="syncing its log failed"):
        store.put(Message("T", b"refused", queue_id=0))
    with pytest.raises(mqstore.StoreIOError):
        store.flush()
    with pytest.raises(mqstore.StoreIOError):
        store.close()
    assert (tmp_path / "store" / "abort").exists()
    reopen(tmp_path / "store")
    assert bodies(tmp_path / "store")[0] == b"safe"


def test_an_interrupted_sync_is_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, synced = durable.sync_file, []

    def interrupted(fd: int, path: str | os.PathLike[str]) -> None:
        if Path(path).parent.name == "commitlog":
            raise KeyboardInterrupt
        real(fd, path)

    def watched(fd: int, path: str | os.PathLike[str]) -> None:
        synced.append(Path(path).name)
        real(fd, path)

    never = 3_600_000
    quiet = {"flush_interval_commit_log": never, "flush_interval_consume_queue": never}
    with open_small(tmp_path / "store", **quiet) as store:
        for number in range(60):
            store.put(Message("T", body_of(number), queue_id=0))
        assert store.log_end > 2 * 4096
        with monkeypatch.context() as patch:
            patch.setattr(durable, "sync_file", interrupted)
            with pytest.raises(KeyboardInterrupt):
                store.flush()
        assert store.flushed_offset == 0
        with monkeypatch.context() as patch:
            patch.setattr(durable, "sync_file", watched)
            store.flush()
        assert store.flushed_offset == store.log_end
        assert {f"{start:020d}" for start in range(0, store.log_end, 4096)} <= set(synced)


def test_a_refused_message_leaves_no_topic(tmp_path: Path) -> None:
    with open_small(tmp_path / "store") as opened:
        for message in (Message("bad/topic", b""), Message("T", b"", queue_id=2**31), Message("T", b"", keys=["a b"])):
            with pytest.raises(mqstore.MessageIllegalError):
                opened.put(message)
    assert mqstore.inspect(tmp_path / "store").settings.topics == {}


def test_disk_full_while_rolling_leaves_nothing_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.ftruncate
    with open_small(tmp_path / "store") as opened:
        opened.put(Message("T", body_of(0, 3500), queue_id=0))

        def full(fd: int, size: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(os, "ftruncate", full)
        with pytest.raises(mqstore.DiskFullError):
            opened.put(Message("T", body_of(1, 3500), queue_id=0))
        monkeypatch.setattr(os, "ftruncate", real)
        assert opened.put(Message("T", body_of(1, 3500), queue_id=0)).queue_offset == 1
    assert bodies(tmp_path / "store") == [body_of(0, 3500), body_of(1, 3500)]
    assert findings(tmp_path / "store") == []


@pytest.mark.parametrize("claimed", [0, 2, 9, 1 << 20, 1 << 40], ids=["first", "taken", "later", "far", "very far"])
def test_a_wrong_queue_offset_harms_no_other_message(store: Path, claimed: int) -> None:
    """No checksum covers the queue offset: a record may claim any place, and must not get one that is not its own."""
    overwrite(log_file(store), record_starts(store)[4] + 20, struct.pack(">q", claimed))
    (store / "mqstore-dispatch.json").unlink()
    open_small(store).close()
    found = bodies(store)
    assert [body for body in found if body != ALL[4]] == ALL[:4] + ALL[5:]


def test_a_file_that_a_broker_allocated_ahead_is_written_to_and_read_back(tmp_path: Path) -> None:
    """Recovery removes it; whoever still had it open would go on reading its zeros."""
    fill(tmp_path / "s", 10)
    (tmp_path / "s" / "commitlog" / f"{4096:020d}").write_bytes(bytes(4096))
    forget_note(tmp_path / "s")
    with open_small(tmp_path / "s") as store:
        for number in range(10, 60):
            store.put(Message("T", body_of(number), queue_id=0))
        assert store.wait_dispatched(30)
        assert store.max_offset("T", 0) == 60
    assert bodies(tmp_path / "s") == [body_of(number) for number in range(60)]
    assert findings(tmp_path / "s") == []


def test_units_that_are_dispatched_again_may_lie_in_two_files(tmp_path: Path) -> None:
    fill(tmp_path / "s", 15)
    queue = ConsumeQueue("T", 0, tmp_path / "s" / "consumequeue" / "T" / "0", FilePool(writable=True), 200)
    units = queue.units(0, 10) + queue.units(10, 5)
    queue.min_offset, queue.max_offset = 0, 12
    assert queue.put(8, units[8 * 20 :])
    assert queue.max_offset == 15
    changed = bytearray(units[8 * 20 :])
    changed[3 * 20 + 7] ^= 1
    assert not queue.put(8, bytes(changed))
