"""One restart after another, clean or not: what was stored stays itself, and what was due comes."""

from __future__ import annotations

import collections
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import mqstore
from mqstore import CorruptConfigError, CorruptFileError, Message, StoreIOError
from store.support import (
    bodies,
    body_of,
    copy_of_running,
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

FAR_MS = 9_000_000_000_000


def record_starts(store: Path) -> list[int]:
    with mqstore.inspect(store) as view:
        return [record.physical_offset for record in view.scan()]


@pytest.mark.parametrize("trusted", [False, True], ids=["javas", "ours"])
def test_after_a_second_crash_every_unit_leads_to_its_own_message(tmp_path: Path, trusted: bool) -> None:
    """The log is cut by the first crash, its space is taken by messages of another size, and it crashes again."""
    path = tmp_path / "s"
    fill(path, 20)
    cut = record_starts(path)[12]
    with log_file(path).open("r+b") as file:
        file.seek(cut)
        file.write(bytes(4096 - cut))
    units = queue_file(path, start=200).read_bytes()
    for _ in range(2):
        mark_crashed(path)
        if not trusted:
            forget_note(path)
        with open_small(path) as store:
            for number in range(5):
                store.put(Message("T", b"other" * number, queue_id=number % 2))
            store.wait_dispatched()
    assert queue_file(path, start=200).read_bytes() != units
    with mqstore.inspect(path) as view:
        for queue in view.queues():
            for offset, unit in enumerate(view.units(queue.topic, queue.queue_id), queue.min_offset):
                record = view.message_at(unit.physical_offset)
                assert record is not None
                assert (record.topic, record.queue_id, record.queue_offset, record.total_size) == (
                    queue.topic, queue.queue_id, offset, unit.size_bytes
                )  # fmt: skip
        assert view.queues("T")[0].max_offset == 12 + 6
    assert findings(path) == []


def test_a_record_whose_end_was_not_written_is_cut_off(tmp_path: Path) -> None:
    """Body and magic are right, the last bytes of the properties are zeros: length arithmetic alone would pass it."""
    path = tmp_path / "s"
    with open_small(path) as store:
        for number in range(3):
            store.put(Message("T", body_of(number), properties={"a": "x" * 60}, queue_id=0))
        end = store.log_end
    overwrite(log_file(path), end - 30, bytes(30))
    mark_crashed(path)
    forget_note(path)
    with open_small(path) as store:
        assert store.log_end == record_starts(path)[-1] + (end - store.log_end)
        assert store.put(Message("T", b"again", queue_id=0)).queue_offset == 2
    assert bodies(path) == [body_of(0), body_of(1), b"again"]


def test_the_first_bytes_of_any_file_but_the_log_may_be_lost(tmp_path: Path) -> None:
    original = tmp_path / "original"
    with open_small(original) as store:
        for number in range(30):
            store.put(Message("T", body_of(number), keys=[f"k{number}"], queue_id=0))
        store.wait_dispatched()
        store.commit_offset("g", "T", 0, 7)
        store.flush()
        store.commit_offset("g", "T", 0, 8)
    names = [name for name in tree(original) if not name.startswith("commitlog")]
    assert len(names) >= 8
    refused = []
    for number, name in enumerate(names):
        store_path = shutil.copytree(original, tmp_path / str(number))
        overwrite(store_path / name, 0, bytes(16))
        mark_crashed(store_path)
        try:
            with open_small(store_path) as store:
                assert store.query("T", "k3").messages[0].body == body_of(3)
                assert store.committed_offset("g", "T", 0) in (7, 8)
        except CorruptConfigError:
            refused.append(name)
        if name.startswith("consumequeue") and int(Path(name).name) > 0:
            with pytest.raises(CorruptFileError, match=r"message .0 "):  # told, and no silent gap
                bodies(store_path)
            mqstore.rebuild(store_path, None, in_place=True)
        assert bodies(store_path) == [body_of(number) for number in range(30)]
    assert set(refused) <= {"config/topics.json", "config/subscriptionGroup.json"}  # those that have no older version


def test_records_near_the_largest_size_are_built_again_as_they_were(tmp_path: Path) -> None:
    path, largest = tmp_path / "s", 64 << 10
    settings: dict[str, Any] = {"mapped_file_size_commit_log": 1 << 20, "max_message_size": largest}
    with open_small(path, **settings) as store:
        for number, size in enumerate([largest - 1, largest, 0, 1, largest, 5, largest - 1] * 4):
            store.put(Message("T", bytes([number]) * size, keys=[f"k{number}"], queue_id=number % 2))
    before = tree(path / "consumequeue"), list(tree(path / "index").values())
    for name in ("consumequeue", "index", "mqstore-dispatch.json", "checkpoint"):
        shutil.rmtree(path / name) if (path / name).is_dir() else (path / name).unlink()
    with open_small(path, **settings) as store:
        assert [store.query("T", f"k{number}").messages[0].body[:1] for number in (0, 1, 4)] == [
            b"\0",
            b"\x01",
            b"\x04",
        ]
    assert (tree(path / "consumequeue"), list(tree(path / "index").values())) == before


def test_delayed_messages_over_clean_ends_come_once(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "mapped_file_size_commit_log": 1 << 16,
        "message_delay_level": "1h",
        "schedule_message_enable": False,
    }
    path = tmp_path / "s"
    due = []
    with open_small(path, **settings) as store:
        for number in range(100):
            put = store.put(Message("T", b"%d" % number, queue_id=0, delay_level=1))
            due.append(put.store_timestamp_ms + 3_600_000)
        store.wait_dispatched()
    for turn in range(4):
        with open_small(path, **settings) as store:
            assert store.deliver_due(due[0] - 1) == 0
            delivered = store.deliver_due(due[25 * turn + 24])
            assert delivered <= 100
            store.wait_dispatched()
            assert store.deliver_due(due[25 * turn + 24]) == 0
    assert bodies(path) == [b"%d" % number for number in range(100)]


def test_delayed_messages_over_a_kill_come_at_least_once_and_not_early(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "mapped_file_size_commit_log": 1 << 16,
        "message_delay_level": "1h",
        "schedule_message_enable": False,
        "flush_interval_consume_queue": 3_600_000,
    }
    path = tmp_path / "s"
    with open_small(path, **settings) as store:
        for number in range(60):
            store.put(Message("T", b"%d" % number, queue_id=0, delay_level=1))
        store.wait_dispatched()
    with open_small(path, **settings) as store:
        first = store.get("SCHEDULE_TOPIC_XXXX", 0).messages[0].store_timestamp_ms
        assert store.deliver_due(FAR_MS) == 60
        store.wait_dispatched()
        killed = copy_of_running(path, tmp_path / "killed")
    with open_small(killed, **settings) as store:
        assert store.deliver_due(first + 3_600_000 - 1) == 0
        store.deliver_due(FAR_MS)
        store.wait_dispatched()
        assert store.deliver_due(FAR_MS) == 0
    counts = collections.Counter(bodies(killed))
    assert set(counts) == {b"%d" % number for number in range(60)}
    assert max(counts.values()) <= 2
    assert bodies(path) == [b"%d" % number for number in range(60)]


def test_settings_are_saved_beside_a_temporary_directory_on_another_device(tmp_path: Path) -> None:
    elsewhere = Path("/dev/shm")
    if not os.access(elsewhere, os.W_OK) or elsewhere.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("needs a second file system")
    program = (
        "import sys, mqstore\n"
        "with mqstore.open(sys.argv[1]) as store:\n"
        "    store.put(mqstore.Message('T', b'', queue_id=0))\n"
        "    store.wait_dispatched()\n"
        "    store.commit_offset('g', 'T', 0, 1)\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "s")]
    done = subprocess.run(command, env={**os.environ, "TMPDIR": str(elsewhere)}, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    with mqstore.inspect(tmp_path / "s") as view:
        assert view.settings.committed_offset("g", "T", 0) == 1


def test_a_sound_backup_of_settings_is_not_replaced_by_a_damaged_file(tmp_path: Path) -> None:
    path, name = tmp_path / "s", "consumerOffset.json"
    fill(path, 10)
    with open_small(path) as store:
        for offset in (3, 4):
            store.commit_offset("g", "T", 0, offset)
            store.save_progress()
    backup = path / "config" / f"{name}.bak"
    sound = backup.read_bytes()
    for damaged in (b"", sound[:20], sound + b'}}"offsetTable":{', bytes(len(sound))):
        (path / "config" / name).write_bytes(damaged)
        with open_small(path) as store:
            assert store.committed_offset("g", "T", 0) == 3
            store.commit_offset("g", "T", 0, 5)
        assert backup.read_bytes() == sound
        with open_small(path) as store:
            assert store.committed_offset("g", "T", 0) == 5
    for one in (path / "config" / name, backup):
        one.write_bytes(b"noise")
    with pytest.raises(CorruptConfigError) as caught:
        open_small(path)
    assert str(path / "config" / name) in str(caught.value)
    assert str(backup) in str(caught.value)


@pytest.mark.parametrize("saved", [-3, 0, 5, 6, 1000], ids=str)
def test_progress_of_delivery_outside_its_queue_is_brought_back(tmp_path: Path, saved: int) -> None:
    """What is between the ends counts; ahead of the queue nothing that comes later may be passed over."""
    settings: dict[str, Any] = {"mapped_file_size_commit_log": 1 << 16, "schedule_message_enable": False}
    with open_small(tmp_path / "s", **settings) as store:
        for number in range(6):
            store.put(Message("T", body_of(number), queue_id=0, delay_level=1))
    offsets = tmp_path / "s" / "config" / "delayOffset.json"
    offsets.parent.mkdir(exist_ok=True)
    offsets.write_text(f'{{"offsetTable":{{1:{saved}}}}}')
    with open_small(tmp_path / "s", **settings) as store:
        store.put(Message("T", body_of(6), queue_id=0, delay_level=1))
        store.wait_dispatched()
        assert store.deliver_due(1 << 50) == 7 - min(max(saved, 0), 6)
        store.wait_dispatched()
        found = [message.body for message in store.get("T").messages]
    assert found == [body_of(number) for number in range(min(max(saved, 0), 6), 7)]


def test_a_checkpoint_that_claims_more_than_the_queues_hold_costs_nothing(tmp_path: Path) -> None:
    path = tmp_path / "s"
    fill(path, 20)
    forget_note(path)
    overwrite(path / "checkpoint", 8, (1 << 50).to_bytes(8, "big"))
    overwrite(queue_file(path, start=200), 100, bytes(100))
    mark_crashed(path)
    open_small(path).close()
    assert bodies(path) == [body_of(number) for number in range(20)]
    assert findings(path) == []


def test_an_end_with_messages_that_are_in_no_queue_yet_is_no_clean_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s"
    store = open_small(path)
    store.put(Message("T", body_of(0), queue_id=0))
    store.wait_dispatched()

    def fail(end: int) -> None:
        raise StoreIOError("the disk of the queues is gone", path=path)

    monkeypatch.setattr(store._engine.dispatcher, "run_to", fail)
    store.put(Message("T", body_of(1), queue_id=0))
    store.close()
    assert (path / "abort").exists()
    open_small(path).close()
    assert bodies(path) == [body_of(0), body_of(1)]
    assert not (path / "abort").exists()
