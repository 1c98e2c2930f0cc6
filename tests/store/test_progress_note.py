"""A log that has lost its end on the border of a record, or with its newest file, is known to have lost it."""

from __future__ import annotations

import json
import shutil
import zlib
from pathlib import Path
from typing import Any

import pytest

import mqstore
from mqstore import Message, Record, Store, StoreIOError, TransactionState
from mqstore.files import durable
from mqstore.store import engine
from mqstore.store.checkpoint import ProgressNote
from store.consuming import bodies
from store.support import SMALL, copy_of_running, findings, log_file

FAR_MS = 9_000_000_000_000
NOTE, DOUBT = "mqstore-progress.json", "mqstore-progress-in-doubt"
DELAYED = [b"a", b"b", b"c"]


def quiet(path: Path, **settings: Any) -> Store:
    return mqstore.open(
        path, **{**SMALL, "mapped_file_size_commit_log": 65536, **settings}, schedule_message_enable=False
    )


def noted(store: Path) -> int:
    return int(json.loads((store / NOTE).read_text())["logOffset"])


def lose_from(store: Path, offset: int) -> None:
    """As a copy that came too early has it, or a disk that did not write: zeros from the border of a record on."""
    file = log_file(store)
    content = file.read_bytes()
    file.write_bytes(content[:offset].ljust(len(content), b"\0"))


def put_delayed(store: Store) -> None:
    for body in DELAYED:
        store.put(Message("orders", body, queue_id=0, delay_level=1))
    store.wait_dispatched()


def ask_all(store: Store) -> list[bytes]:
    """Bodies of the half messages that are asked about; they are committed."""
    asked = []

    def check(half: Record) -> TransactionState:
        asked.append(half.body)
        return TransactionState.COMMIT

    store.transactions.set_checker("p", check)
    store.transactions.check(FAR_MS)
    return asked


def fail_on_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise AssertionError("progress was doubted")

    monkeypatch.setattr(engine, "take_back_progress", fail)


@pytest.fixture(params=["never noted", "noted before", "noted behind", "closed"])
def early_log(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A store whose log ends before what its progress speaks of; dispatch was noted as the parameter says."""
    copy = tmp_path / "copy"
    with quiet(tmp_path / "live") as store:
        put_delayed(store)
        transaction = store.transaction("p", Message("orders", b"half", queue_id=0))
        store.wait_dispatched()
        if request.param == "noted before":
            store.flush()
        end = store.log_end
        store.deliver_due(FAR_MS)
        transaction.commit()
        store.wait_dispatched()
        ask_all(store)
        store.save_progress()
        if request.param == "noted behind":
            store.flush()
        if request.param != "closed":
            copy_of_running(tmp_path / "live", copy)
    if request.param == "closed":
        shutil.copytree(tmp_path / "live", copy)
        (copy / "mqstore-dispatch.json").unlink()
    lose_from(copy, end)
    return copy


def test_what_the_log_does_not_hold_any_more_is_done_again(early_log: Path) -> None:
    assert noted(early_log) > 0
    with quiet(early_log) as store:
        end = store.log_end
        assert not (early_log / DOUBT).exists()
        assert noted(early_log) == end
        assert store.deliver_due(FAR_MS) == 3
        assert ask_all(store) == [b"half"]
        assert bodies(store, "orders") == [*DELAYED, b"half"]
    assert findings(early_log) == []


def test_a_start_that_is_broken_off_does_not_forget_it(early_log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        fail_on_doubt(patch)
        for _ in range(2):
            with pytest.raises(AssertionError):
                quiet(early_log)
    with quiet(early_log) as store:
        assert store.deliver_due(FAR_MS) == 3


def test_a_second_loss_at_the_same_place_is_known_too(early_log: Path, tmp_path: Path) -> None:
    with quiet(early_log) as store:
        end = store.log_end
        store.deliver_due(FAR_MS)
        store.save_progress()
        assert noted(early_log) == store.log_end
        copied = copy_of_running(early_log, tmp_path / "again")
    lose_from(copied, end)
    with quiet(copied) as store:
        assert store.deliver_due(FAR_MS) == 3


def test_a_rebuilt_copy_is_right(early_log: Path, tmp_path: Path) -> None:
    (early_log / "abort").unlink(missing_ok=True)
    mqstore.rebuild(early_log, tmp_path / "rebuilt")
    assert not (tmp_path / "rebuilt" / DOUBT).exists()
    with quiet(tmp_path / "rebuilt") as store:
        assert noted(tmp_path / "rebuilt") == store.log_end
        assert store.deliver_due(FAR_MS) == 3


def test_the_newest_file_is_lost(tmp_path: Path) -> None:
    with quiet(tmp_path / "s", mapped_file_size_commit_log=4096) as store:
        put_delayed(store)
        while store.log_end < 4096:
            store.put(Message("other", bytes(20), queue_id=0))
            if store.log_end < 4000:
                store.wait_dispatched()
                store.flush()
        store.deliver_due(FAR_MS)
        store.save_progress()
        copied = copy_of_running(tmp_path / "s", tmp_path / "copy")
    log_file(copied, 4096).unlink()
    with quiet(copied) as store:
        assert store.deliver_due(FAR_MS) == 3
        assert bodies(store, "orders") == DELAYED


@pytest.fixture
def delivered(tmp_path: Path) -> Path:
    with quiet(tmp_path / "s") as store:
        put_delayed(store)
        store.deliver_due(FAR_MS)
    return tmp_path / "s"


@pytest.mark.parametrize("crashed", [True, False])
def test_nothing_is_doubted_where_nothing_is_lost(
    delivered: Path, monkeypatch: pytest.MonkeyPatch, crashed: bool
) -> None:
    if crashed:
        (delivered / "abort").touch()
    fail_on_doubt(monkeypatch)
    with monkeypatch.context() as patch:  # a broker lets the log grow, and does not know the note
        patch.setattr(ProgressNote, "reach", lambda note, log_offset: None)
        with quiet(delivered) as store:
            store.put(Message("orders", b"of a broker", queue_id=0, delay_level=1))
            store.wait_dispatched()
            assert store.deliver_due(FAR_MS) == 1
            assert noted(delivered) < store.log_end
    (delivered / NOTE).unlink()
    quiet(delivered).close()
    assert not (delivered / NOTE).exists()


def test_the_note_is_written_before_the_progress_and_only_when_it_grows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with quiet(tmp_path / "s") as store:
        written: list[str] = []
        replace = durable.replace_file

        def note(path: Path, data: bytes) -> None:
            if path.suffix == ".json" and "dispatch" not in path.name:
                written.append(path.name)
            replace(path, data)

        monkeypatch.setattr(durable, "replace_file", note)
        put_delayed(store)
        store.commit_offset("g", "orders", 0, 0)
        store.save_progress()
        assert written[0] == NOTE
        assert "consumerOffset.json" in written[1:]
        assert noted(tmp_path / "s") == store.log_end
        written.clear()
        store.commit_offset("g", "other", 0, 0)
        store.save_progress()
        assert written == ["consumerOffset.json"]

        def refuse(path: Path, data: bytes) -> None:
            if path.name == NOTE:
                raise StoreIOError("the disk is gone")
            note(path, data)

        store.deliver_due(FAR_MS)
        monkeypatch.setattr(durable, "replace_file", refuse)
        with pytest.raises(StoreIOError):
            store.save_progress()
        assert not (tmp_path / "s" / "config" / "delayOffset.json").exists()
        monkeypatch.setattr(durable, "replace_file", replace)


def whole(content: dict[str, Any]) -> bytes:
    return json.dumps({**content, "crc32": zlib.crc32(json.dumps(content, sort_keys=True).encode())}).encode()


DAMAGED = [b"", b"\0" * 60, b"null", b"[]", b'"x"', b"9" * 5000, b"[" * 200_000, b'{"a":' * 100_000, b'{"version":1}',
           b'{"version":1,"logOffset":5,"crc32":7}', whole({"version": 2, "logOffset": 5}), whole({"version": 1}),
           whole({"version": 1, "logOffset": -1}), whole({"version": 1, "logOffset": "x"})]  # fmt: skip


@pytest.mark.parametrize("content", DAMAGED, ids=lambda value: str(value[:40]))
def test_a_damaged_note_is_doubt(delivered: Path, content: bytes) -> None:
    (delivered / NOTE).write_bytes(content)
    with quiet(delivered) as store:
        assert noted(delivered) == store.log_end
        assert store.deliver_due(FAR_MS) == 0
        assert bodies(store, "orders") == DELAYED
    (delivered / NOTE).write_bytes(content)
    (delivered / "mqstore-dispatch.json").unlink()
    with mqstore.inspect(delivered) as view:
        first_copy = next(record for record in view.scan() if record.topic == "orders")
    lose_from(delivered, first_copy.physical_offset)
    with quiet(delivered) as store:
        assert store.deliver_due(FAR_MS) == 3


def test_a_truncated_copy_has_the_note_of_its_own_log(delivered: Path, tmp_path: Path) -> None:
    with mqstore.inspect(delivered) as view:
        first_copy = next(record for record in view.scan() if record.topic == "orders")
    mqstore.truncate(delivered, first_copy.physical_offset, tmp_path / "cut")
    assert noted(tmp_path / "cut") == first_copy.physical_offset < noted(delivered)
    assert not (tmp_path / "cut" / DOUBT).exists()
    with quiet(tmp_path / "cut") as store:
        assert store.deliver_due(FAR_MS) == 3


@pytest.mark.parametrize("keeps_settings", [True, False])
def test_a_log_that_begins_anew_is_not_doubted_for_ever(delivered: Path, keeps_settings: bool) -> None:
    for name in ("commitlog", "consumequeue", *(() if keeps_settings else ("config",))):
        shutil.rmtree(delivered / name)
    quiet(delivered).close()
    assert noted(delivered) == 0
    with quiet(delivered) as store:
        put_delayed(store)
        assert store.deliver_due(FAR_MS) == 3
        store.save_progress()
        assert noted(delivered) == store.log_end
    with quiet(delivered) as store:
        assert store.deliver_due(FAR_MS) == 0
