"""What a store looks like after a crash or with parts lost, and what opening it makes of that."""

from __future__ import annotations

import contextlib
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

import mqstore
from mqstore import CorruptFileError, CorruptRecordError, Message
from mqstore.files.pool import FilePool
from mqstore.store import recovery
from mqstore.store.consume_queue import ConsumeQueue
from store.support import (
    bodies,
    body_of,
    fill,
    findings,
    flip,
    flip_bit,
    forget_note,
    log_file,
    mark_crashed,
    open_small,
    overwrite,
    queue_file,
    record_starts,
    reopen,
    tree,
)

ALL = [body_of(number) for number in range(10)]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    fill(tmp_path / "store", 10)
    return tmp_path / "store"


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


def test_an_index_stays_while_damage_may_refuse_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where there is a note of it, which a queue contradicts."""
    path = tmp_path / "s"
    fill(path, 5)
    note = (path / "mqstore-dispatch.json").read_bytes()
    fill(path, 395)
    (path / "mqstore-dispatch.json").write_bytes(note)
    flip_bit(queue_file(path), 4, 60)
    index = tree(path / "index")
    flip(path, record_starts(path)[300] + 100)
    monkeypatch.setattr(recovery, "_NOTE_INTERVAL_S", 0)
    with pytest.raises(CorruptRecordError):
        open_small(path)
    assert tree(path / "index") == index


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


def test_reading_a_damaged_unit_is_an_error_and_not_a_gap(store: Path) -> None:
    overwrite(queue_file(store), 4 * 20, bytes(20))
    with open_small(store) as opened:
        assert [m.body for m in opened.get("T", 0, 0, max_messages=4).messages] == ALL[:4]
        with pytest.raises(CorruptFileError, match="message 4 of queue T/0"):
            opened.get("T", 0, 4)
        assert [m.body for m in opened.get("T", 0, 5).messages] == ALL[5:]


@pytest.mark.parametrize("claimed", [0, 2, 9, 1 << 20, 1 << 40], ids=["first", "taken", "later", "far", "very far"])
def test_a_wrong_queue_offset_harms_no_other_message(store: Path, claimed: int) -> None:
    """No checksum covers the queue offset: a record may claim any place, and must not get one that is not its own."""
    overwrite(log_file(store), record_starts(store)[4] + 20, struct.pack(">q", claimed))
    (store / "mqstore-dispatch.json").unlink()
    open_small(store).close()
    found = bodies(store)
    assert [body for body in found if body != ALL[4]] == ALL[:4] + ALL[5:]


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
