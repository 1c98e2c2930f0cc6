"""Rebuild and salvage: killed anywhere they leave the original or the result, and they lose no sound message."""

from __future__ import annotations

import contextlib
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import mqstore
from cli.test_commands import run
from mqstore import CorruptRecordError, Message, StoreLockedError, UsageError
from mqstore.files import durable
from mqstore.files.lock import StoreLock
from mqstore.files.pool import FilePool
from mqstore.files.whole import mode_of
from mqstore.layout.queue_unit import QueueUnit, encode_unit
from mqstore.store import rebuild as rebuilding
from mqstore.store.consume_queue import ConsumeQueue
from mqstore.store.rebuild import rebuild, truncate
from store.support import (
    SMALL,
    bodies,
    body_of,
    fill,
    findings,
    forget_note,
    log_file,
    open_small,
    overwrite,
    record_starts,
    tree,
)

COUNT = 60


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("original") / "store"
    fill(store, COUNT, **SMALL)
    return store


def derived(store: Path) -> dict[str, bytes]:
    return {name: data for name, data in tree(store).items() if name.startswith(("consumequeue", "index"))}


@pytest.mark.parametrize("gone", [["consumequeue"], ["index"], ["consumequeue", "index"]])
def test_a_killed_rebuild_in_place_does_not_forget_the_sizes_of_files(store: Path, gone: list[str]) -> None:
    before = derived(store)
    for again in (lambda: mqstore.open(store).close(), lambda: rebuild(store, None, in_place=True)):
        (store / "mqstore-dispatch.json").unlink()
        for name in gone:
            (store / name).rename(store / f"{name}.before-rebuild")
        again()
        assert derived(store) == before
        assert not list(store.glob("*.before-rebuild"))


def kill_during_rebuild(store: Path, after_s: float, *options: str) -> int:
    """Start a rebuild in a process of its own and kill it; its exit code, negative when the kill was in time."""
    script = (
        "import sys; from pathlib import Path; from mqstore.store.rebuild import rebuild; print('go', flush=True)\n"
        "rebuild(Path(sys.argv[1]), *(Path(p) for p in sys.argv[2:]) or [None], in_place=len(sys.argv) == 2)"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(store), *options], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(after_s)
        child.kill()
        return child.wait()


# Whenever the kill comes, the outcome must be one of two; the times only spread the kills over the work.
MOMENTS_S = [0.0, 0.003, 0.01, 0.02, 0.04, 0.07, 0.12, 0.2]


@pytest.mark.parametrize("after_s", MOMENTS_S)
def test_killed_rebuilding_a_copy(store: Path, tmp_path: Path, after_s: float) -> None:
    before, output = tree(store), tmp_path / "out"
    kill_during_rebuild(store, after_s, str(output))
    assert tree(store) == before
    if output.exists():
        assert derived(output) == derived(store)
    else:
        rebuild(store, output)  # what the killed one left is no hindrance
    assert findings(output) == []
    assert bodies(output) == [body_of(number) for number in range(COUNT)]
    assert {path.name for path in tmp_path.iterdir()} == {"store", "out"}


@pytest.mark.parametrize("after_s", MOMENTS_S)
def test_killed_rebuilding_in_place(store: Path, after_s: float) -> None:
    before = derived(store)
    kill_during_rebuild(store, after_s)
    open_small(store).close()
    assert derived(store) == before
    assert not list(store.glob("*.before-rebuild"))
    assert findings(store) == []
    rebuild(store, None, in_place=True)
    assert derived(store) == before
    assert not list(store.glob("*.before-rebuild"))


def test_two_rebuilds_into_one_output(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build, refused = rebuilding.put_in_order, []
    with mqstore.inspect(store) as view:
        end = view.log_end

    def build_while_another_begins(*arguments: Any) -> int:
        monkeypatch.undo()
        for begin in (lambda: rebuild(store, tmp_path / "out"), lambda: truncate(store, end, tmp_path / "out")):
            with pytest.raises(StoreLockedError, match="under way") as caught:
                begin()
            refused.append(caught.value.hint)
        return build(*arguments)

    monkeypatch.setattr(rebuilding, "put_in_order", build_while_another_begins)
    rebuild(store, tmp_path / "out")
    assert all(refused)
    assert len(refused) == 2
    assert bodies(tmp_path / "out") == [body_of(number) for number in range(COUNT)]
    assert {path.name for path in tmp_path.iterdir()} == {"store", "out"}


def test_a_fault_of_the_original_is_told_of_the_original(store: Path, tmp_path: Path) -> None:
    (store / "config" / "topics.json").write_text('{"x')
    (store / "config" / "topics.json.bak").unlink(missing_ok=True)
    with pytest.raises(mqstore.MqstoreError) as caught:
        rebuild(store, tmp_path / "out")
    assert caught.value.path == str(store / "config" / "topics.json")


def test_a_failure_in_place_puts_back_what_was_there(store: Path) -> None:
    with mqstore.inspect(store) as view:
        third = [record.physical_offset for record in view.scan()][3]
    overwrite(log_file(store), third + 100, b"stray")
    before = derived(store)
    with pytest.raises(CorruptRecordError):
        rebuild(store, None, in_place=True)
    assert derived(store) == before
    assert not list(store.glob("*.before-rebuild"))


def test_a_failure_in_place_leaves_alone_what_a_writer_is_building(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, locks = derived(store), []

    def fail_while_another_opens(path: Path, *_: object) -> int:
        locks.append(StoreLock(path / "lock"))
        (path / "consumequeue").mkdir()
        (path / "consumequeue" / "begun").touch()
        raise mqstore.DiskFullError("no space left")

    monkeypatch.setattr(rebuilding, "put_in_order", fail_while_another_opens)
    with pytest.raises(mqstore.DiskFullError):
        rebuild(store, None, in_place=True)
    assert (store / "consumequeue" / "begun").exists()
    (store / "consumequeue" / "begun").unlink()
    locks.pop().release()
    open_small(store).close()
    assert derived(store) == before
    assert not list(store.glob("*.before-rebuild"))


def test_a_running_store_is_not_rebuilt_in_place_but_can_be_copied(store: Path, tmp_path: Path) -> None:
    with open_small(store) as opened:
        opened.put(Message("T", body_of(COUNT), queue_id=0))
        with pytest.raises(StoreLockedError):
            rebuild(store, None, in_place=True)
        rebuild(store, tmp_path / "out")
        assert opened.put(Message("T", b"still running", queue_id=0)).queue_offset == COUNT + 1
    assert bodies(tmp_path / "out") == [body_of(number) for number in range(COUNT + 1)]


def test_what_cannot_be_meant(store: Path, tmp_path: Path) -> None:
    for output, in_place, salvage in ((None, False, False), (tmp_path / "x", True, False), (None, True, True)):
        with pytest.raises(UsageError):
            rebuild(store, output, in_place=in_place, salvage=salvage)


def places(store: Path) -> tuple[int, list[tuple[str, int]]]:
    """Number of a record in the middle, and a byte position of every class of its fields."""
    number = 25
    with mqstore.inspect(store) as view:
        record = list(view.scan())[number]
    names = {
        "size": (0, 4), "magic": (4, 4), "crc": (8, 4), "queue id": (12, 4), "flag": (16, 4), "queue offset": (20, 8),
        "own offset": (28, 8), "sys flag": (36, 4), "born time": (40, 8), "born host": (48, 8), "store time": (56, 8),
        "store host": (64, 8), "reconsumed": (72, 4), "prepared": (76, 8), "body size": (84, 4),
        "body": (88, len(record.body)), "topic size": (88 + len(record.body), 1), "topic": (89 + len(record.body), 1),
        "properties size": (90 + len(record.body), 2),
        "properties": (92 + len(record.body), record.total_size - 92 - len(record.body)),
    }  # fmt: skip
    found = [
        (name, record.physical_offset + byte)
        for name, (start, length) in names.items()
        for byte in sorted({start, start + length - 1})
    ]
    return number, found


def test_salvage_loses_at_most_the_record_with_the_flipped_byte(original: Path, tmp_path: Path) -> None:
    number, positions = places(original)
    chance = random.Random(1)
    everything = [body_of(one) for one in range(COUNT)]
    without = everything[:number] + everything[number + 1 :]
    lost = 0
    for name, position in positions:
        store = shutil.copytree(original, tmp_path / "store")
        path = log_file(store, position - position % 4096)
        old = path.read_bytes()[position % 4096]
        overwrite(path, position % 4096, bytes([old ^ chance.randrange(1, 256)]))
        forget_note(store)
        result = rebuild(store, tmp_path / "out", salvage=True)
        with mqstore.inspect(tmp_path / "out") as view:
            kept = [record.body for record in view.scan() if record.topic != "MQSTORE_SALVAGED"]
        if result.losses:
            lost += 1
            assert kept == without, name
            assert bodies(tmp_path / "out") == without, name
        else:  # a field that no checksum covers
            assert [body for body in kept if body in without] == without, name
            assert [body for body in bodies(tmp_path / "out") if body in without] == without, name
        with mqstore.open(tmp_path / "out") as opened:
            after = opened.put(Message("T", b"goes on", queue_id=0))
            opened.wait_dispatched()
            assert opened.get("T", 0, after.queue_offset).messages[0].body == b"goes on", name
        assert bodies(tmp_path / "out")[-1] == b"goes on", name
        shutil.rmtree(store)
        shutil.rmtree(tmp_path / "out")
    assert lost >= 10


def spoil_queue(store: Path, number: int, field: str) -> None:
    """Give a record a topic, or a queue id, that no directory can be named after; no checksum covers them."""
    physical_offset = record_starts(store)[number]
    place, value = (12, b"\xff") if field == "queue id" else (89 + len(body_of(number)), b"/")
    overwrite(log_file(store, physical_offset - physical_offset % 4096), physical_offset % 4096 + place, value)


@pytest.mark.parametrize("number", [COUNT // 2, COUNT - 1])
@pytest.mark.parametrize("field", ["queue id", "topic"])
def test_a_message_of_a_queue_that_cannot_be_is_told(store: Path, tmp_path: Path, number: int, field: str) -> None:
    spoil_queue(store, number, field)
    assert rebuild(store, tmp_path / "out").left_out == 1
    assert rebuild(store, None, in_place=True).left_out == 1
    assert bodies(store) == bodies(tmp_path / "out") == [body_of(one) for one in range(COUNT) if one != number]
    told = run("rebuild", store, "--output", tmp_path / "again")
    assert told.exit_code == 1
    assert "1 messages are in no queue" in told.stdout


@pytest.mark.parametrize("number", [0, 1, COUNT // 2, COUNT - 1])
@pytest.mark.parametrize("bit", [0, 1, 5, 12, 20, 40, 62, 63])
def test_a_false_place_costs_one_message_at_most(store: Path, number: int, bit: int) -> None:
    physical_offset = record_starts(store)[number]
    place = physical_offset % 4096 + 20 + 7 - bit // 8
    file = log_file(store, physical_offset - physical_offset % 4096)
    overwrite(file, place, bytes([file.read_bytes()[place] ^ 1 << bit % 8]))
    result = rebuild(store, None, in_place=True)
    assert result.left_out <= 1
    found = bodies(store)
    assert len(found) >= COUNT - 1
    assert set(found) <= {body_of(one) for one in range(COUNT)}
    with open_small(store) as again:
        assert again.put(Message("T", b"later", queue_id=0)).queue_offset in (COUNT - 1, COUNT, COUNT + 1, COUNT + 2)


@pytest.mark.parametrize("bit", [0, 2, 5, 6])
@pytest.mark.parametrize("number", [0, 1, 2, 50])
def test_a_false_place_further_on_costs_one_message_more_where_others_give_it_room(
    tmp_path: Path, number: int, bit: int
) -> None:
    """What comes behind it in the log is put where it belongs, into the gap that the false place has made."""
    store, count = tmp_path / "s", 100
    with open_small(store, mapped_file_size_commit_log=1 << 17) as opened:
        for one in range(count):
            opened.put_batch([Message("other", b"x" * 900, queue_id=0), Message("T", body_of(one), queue_id=0)])
    starts = record_starts(store)[1::2]
    file = log_file(store)
    overwrite(file, starts[number] + 27, bytes([file.read_bytes()[starts[number] + 27] ^ 1 << bit]))
    result = rebuild(store, None, in_place=True)
    found = bodies(store)
    assert result.left_out <= 1
    assert len(found) >= count - 2
    assert len([body for body in found if body != body_of(number)]) >= count - 2
    assert set(found) <= {body_of(one) for one in range(count)}


def test_a_first_message_at_a_false_place_gives_way_to_the_second(tmp_path: Path) -> None:
    """Also when they come one by one, as large ones do."""
    pool = FilePool(writable=True)
    with contextlib.closing(pool):
        queue = ConsumeQueue("T", 0, tmp_path / "0", pool, 2000)
        units = [encode_unit(QueueUnit(number * 200, 200, 0)) for number in range(5)]
        assert [queue.put(place, unit) for place, unit in zip([64, 1, 2, 3, 4], units, strict=True)] == [True] * 5
        assert (queue.min_offset, queue.max_offset, queue.left_out) == (1, 5, 1)
        assert queue.units(1, 4) == b"".join(units[1:])


def test_a_rebuild_that_fails_leaves_nothing_behind(store: Path, tmp_path: Path) -> None:
    overwrite(log_file(store), 400, b"\xff" * 40)  # in the middle: refused, after the log was copied
    for output in (tmp_path / "out", tmp_path / "empty" / "out"):
        with pytest.raises(CorruptRecordError):
            rebuild(store, output)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "store"]
    assert list((tmp_path / "empty").iterdir()) == []


def test_what_a_running_store_replaces_or_removes_while_it_is_copied(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics, note = store / "config" / "topics.json", store / "abort"
    longer, shorter = topics.read_bytes() + b"\n" * 100, topics.read_bytes()
    topics.write_bytes(longer)
    note.touch()
    gone = store / "config" / ".topics.json.abcdefgh.tmp"
    gone.touch()
    create, list_directory = durable.create_file, durable.list_directory

    def begin(path: Path, size_bytes: int) -> int:
        if path.name == topics.name:
            durable.replace_file(topics, shorter)
        return create(path, size_bytes)

    def list_and_lose(path: Path) -> list[Path]:
        found = list_directory(path)
        gone.unlink(missing_ok=True)
        return found

    def look(path: Path) -> int:
        mode = mode_of(path)
        if path == note:
            note.unlink(missing_ok=True)
        return mode

    monkeypatch.setattr(durable, "create_file", begin)
    monkeypatch.setattr(durable, "list_directory", list_and_lose)
    monkeypatch.setattr(rebuilding, "mode_of", look)
    rebuild(store, tmp_path / "out")
    assert (tmp_path / "out" / "config" / "topics.json").read_bytes().strip() == shorter.strip()
    assert findings(tmp_path / "out") == []
