"""Looking at a store without its lock while a rebuild in place is at work: all is found, or the answer is an error."""

from __future__ import annotations

import itertools
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import mqstore
from cli.test_commands import run
from mqstore import CorruptFileError, CorruptRecordError, Message, StoreIOError, StoreLockedError, StoreView
from mqstore.files import copying, durable
from mqstore.store import overlooked, queue_states
from mqstore.store import rebuild as rebuilding
from mqstore.store.consume_queue import ConsumeQueue
from mqstore.store.index_writer import IndexWriter
from mqstore.store.paths import StorePaths
from mqstore.store.queue_reader import QueueReader
from mqstore.store.queue_states import is_rebuilt, state_for_index, state_for_queues, state_of
from mqstore.store.rebuild import rebuild
from mqstore.store.recovery import LogEnd, Recovery
from store.support import SMALL, findings, log_file, open_small, overwrite

COUNT = 60
Ask = Callable[[], object]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("original") / "store"
    with open_small(store) as opened:
        for number in range(COUNT):
            opened.put(
                Message("TU"[number % 2], b"%d" % number, keys=[f"k{number}"], tags="a", queue_id=number % 4 // 2)
            )
        opened.wait_dispatched()
        opened.commit_offset("group", "T", 0, 3)
    return store


@pytest.fixture
def view(store: Path) -> Iterator[StoreView]:
    """One that was opened, and has read, before anything is rebuilt."""
    with mqstore.inspect(store) as opened:
        everything(opened)
        yield opened


def everything(view: StoreView) -> tuple[Any, ...]:
    """All that a view tells of queues and keys."""
    queues = view.queues()
    got = [view.get(one.topic, one.queue_id, 0, 100, "a").messages for one in queues]
    units = [list(view.units(one.topic, one.queue_id)) for one in queues]
    keys = [
        [message.queue_offset for message in view.query(topic, f"k{number}").messages]
        for number in (0, 1, 30, COUNT - 1)
        for topic in "TU"
    ]
    listed = [view.queue_inventory(one.topic, one.queue_id) for one in queues]
    files = [None if one is None else [entry.path.name for entry in one.entries] for one in listed]
    ends = [view.max_offset(one.topic, one.queue_id) for one in queues]
    return queues, got, units, keys, files, ends, view.progress(), view.topics(), view.overlooked()


def ask_at_every_step(monkeypatch: pytest.MonkeyPatch, ask: Ask) -> list[str]:
    """Have ``ask`` called before and behind everything that a rebuild does to files; the steps that there were."""
    steps: list[str] = []
    asking = False

    def wrap(owner: Any, name: str, every: int = 1) -> None:
        real, calls = getattr(owner, name), 0

        def step(*arguments: Any, **named: Any) -> Any:
            nonlocal asking, calls
            calls += 1
            if asking or calls % every:
                return real(*arguments, **named)
            asking = True
            try:
                ask()
                result = real(*arguments, **named)
                steps.append(name)
                ask()
            finally:
                asking = False
            return result

        monkeypatch.setattr(owner, name, step)

    for name in ("rename", "remove_file", "replace_file", "make_directories"):
        wrap(durable, name)
    wrap(copying, "remove_tree")
    wrap(ConsumeQueue, "put", 5)
    wrap(IndexWriter, "put", 5)
    return steps


def test_all_is_found_at_every_step(store: Path, view: StoreView, monkeypatch: pytest.MonkeyPatch) -> None:
    before = everything(view)

    def ask() -> None:
        assert everything(view) == before
        with mqstore.inspect(store) as other:
            assert everything(other) == before

    with monkeypatch.context() as patched:
        steps = ask_at_every_step(patched, ask)
        rebuild(store, None, in_place=True)
    assert steps.count("rename") >= 3
    assert "put" in steps
    assert "remove_tree" in steps
    ask()
    assert findings(store) == []


def test_all_is_found_at_every_step_of_putting_back(
    store: Path, view: StoreView, monkeypatch: pytest.MonkeyPatch
) -> None:
    third = [record.physical_offset for record in view.scan()][3]
    overwrite(log_file(store), third + 4, b"stray")
    before = [(one.topic, one.queue_id, one.max_offset) for one in view.queues()], view.query("T", "k58").messages

    def ask() -> None:
        found = [(one.topic, one.queue_id, one.max_offset) for one in view.queues()]
        assert (found, view.query("T", "k58").messages) == before

    with monkeypatch.context() as patched:
        steps = ask_at_every_step(patched, ask)
        with pytest.raises(CorruptRecordError):
            rebuild(store, None, in_place=True)
    assert steps.count("rename") >= 6
    ask()


@pytest.mark.parametrize(
    ("lost", "asked"),
    [
        ("consumequeue", lambda view: view.queues()),
        ("consumequeue", lambda view: view.get("T", 0, 0)),
        ("consumequeue/T", lambda view: view.queues()),
        ("consumequeue/T", lambda view: view.get("T", 0, 0)),
        ("index", lambda view: view.query("T", "k0")),
    ],
)
def test_what_was_lost_cannot_be_looked_at_meanwhile(
    store: Path, monkeypatch: pytest.MonkeyPatch, lost: str, asked: Callable[[StoreView], Any]
) -> None:
    shutil.rmtree(store / lost)
    refused: list[mqstore.MqstoreError] = []

    def ask() -> None:
        with mqstore.inspect(store) as view:
            if not is_rebuilt(view.paths):
                return
            try:
                found = asked(view)
            except (StoreLockedError, CorruptFileError) as error:
                refused.append(error)
            else:
                if refused:
                    assert lost == "consumequeue/T"  # what others had is told until this one is begun
                    assert not getattr(found, "messages", [])
        with mqstore.inspect(store, from_log=True) as view:
            assert asked(view)

    with monkeypatch.context() as patched:
        ask_at_every_step(patched, ask)
        rebuild(store, None, in_place=True)
    assert any(isinstance(error, StoreLockedError) for error in refused)
    assert all("rebuilt in place" in str(error) for error in refused)
    with mqstore.inspect(store) as view:
        assert len(view.queues()) == 4
        assert len(view.query("T", "k0").messages) == 1


def test_other_queues_are_found_while_a_lost_one_is_made(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(store / "consumequeue" / "T")

    def ask() -> None:
        with mqstore.inspect(store) as view:
            assert view.max_offset("U", 0) == COUNT // 4

    with monkeypatch.context() as patched:
        ask_at_every_step(patched, ask)
        rebuild(store, None, in_place=True)


@pytest.mark.parametrize(
    "ask",
    [
        lambda view: view.get("T", 0, 0),
        lambda view: list(view.units("T", 0)),
        lambda view: view.offset_at("T", 0, 0),
    ],
)
def test_moved_between_two_reads_of_one_question(
    store: Path, view: StoreView, monkeypatch: pytest.MonkeyPatch, ask: Callable[[StoreView], Any]
) -> None:
    """Found in the old queue, and its units then read from the new one, in which nothing is written yet."""
    before = ask(view)
    note, queues = store / "mqstore-dispatch.json", store / "consumequeue"
    real, calls = QueueReader.find_min, list[int]()

    def find_min(self: QueueReader, log_min: int, end: int) -> int:
        found = real(self, log_min, end)
        calls.append(found)
        if len(calls) == 1:
            note.rename(f"{note}.before-rebuild")
            queues.rename(f"{queues}.before-rebuild")
            shutil.copytree(f"{queues}.before-rebuild", queues)
            for file in queues.glob("*/*/*"):
                file.write_bytes(bytes(file.stat().st_size))
        return found

    monkeypatch.setattr(QueueReader, "find_min", find_min)
    assert ask(view) == before
    assert len(calls) == 2


def test_moved_between_two_looks_for_the_state(store: Path, view: StoreView, monkeypatch: pytest.MonkeyPatch) -> None:
    """The note is not aside yet, all is moved then, and while the old queue is read the new one becomes complete."""
    before = view.get("T", 0, 0)
    note, queues = store / "mqstore-dispatch.json", store / "consumequeue"
    aside = Path(f"{queues}.before-rebuild")
    real, looks = queue_states.is_rebuilt, list[bool]()
    real_min, calls = QueueReader.find_min, list[int]()

    def is_rebuilt(paths: StorePaths) -> bool:
        looks.append(real(paths))
        if len(looks) == 1:
            note.rename(f"{note}.before-rebuild")
            queues.rename(aside)
            queues.mkdir()
        return looks[-1]

    def find_min(self: QueueReader, log_min: int, end: int) -> int:
        found = real_min(self, log_min, end)
        calls.append(found)
        if len(calls) == 1:
            assert self.directory.is_relative_to(aside)
            shutil.copytree(aside, queues, dirs_exist_ok=True)
            Path(f"{note}.before-rebuild").rename(note)
            shutil.rmtree(aside)
        return found

    monkeypatch.setattr(queue_states, "is_rebuilt", is_rebuilt)
    monkeypatch.setattr(QueueReader, "find_min", find_min)
    assert view.get("T", 0, 0) == before
    assert looks[:2] == [False, True]
    assert len(calls) == 2


def test_no_state_comes_again(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever finds the same state before and after a question has had nothing moved in between."""
    paths = StorePaths(store)
    looks = {look: list[queue_states.State]() for look in (state_of, state_for_queues, state_for_index)}

    def ask() -> None:
        for look, states in looks.items():
            states.append(look(paths))

    with monkeypatch.context() as patched:
        ask_at_every_step(patched, ask)
        rebuild(store, None, in_place=True)
    for states in looks.values():
        runs = [state for number, state in enumerate(states) if not number or state != states[number - 1]]
        assert len(runs) == len(set(runs)) >= 5
    for whole, *parts in zip(*map(itertools.pairwise, looks.values()), strict=True):
        if whole[0] != whole[1] and any(state[-1] is not None for state in whole):  # while the note is aside
            assert all(was != now for was, now in parts)


def test_moved_while_it_is_asked_what_is_overlooked(
    store: Path, view: StoreView, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = overlooked.list_states, list[int]()

    def list_states(paths: StorePaths) -> list[tuple[str, int]]:
        calls.append(len(calls))
        if len(calls) > 1:
            return real(paths)
        paths.dispatch_checkpoint.rename(paths.aside.dispatch_checkpoint)
        paths.aside.consume_queue.mkdir()
        try:
            return real(paths)
        finally:
            paths.aside.consume_queue.rmdir()
            paths.consume_queue.rename(paths.aside.consume_queue)

    monkeypatch.setattr(overlooked, "list_states", list_states)
    assert view.overlooked() == []
    assert len(calls) == 2


def break_off(store: Path) -> None:
    """Leave what a rebuild leaves that is killed when it has made one queue file."""
    script = (
        "import os, sys; from mqstore.store import rebuild as r; from mqstore.store.consume_queue import ConsumeQueue\n"
        "real = ConsumeQueue.put\n"
        "def put(*a):\n real(*a)\n os._exit(9)\n"
        "ConsumeQueue.put = put; r.rebuild(sys.argv[1], None, in_place=True)"
    )
    assert subprocess.run([sys.executable, "-c", script, str(store)], check=False).returncode == 9
    assert (store / "mqstore-dispatch.json.before-rebuild").exists()


def test_what_a_killed_rebuild_leaves(store: Path, view: StoreView) -> None:
    before = everything(view)
    break_off(store)
    with mqstore.inspect(store) as other:
        assert everything(view) == everything(other) == before
    for command in (("query", store, "--topic", "T", "--key", "k8"), ("stats", store), ("lag", store)):
        assert run(*command).exit_code == 0
    result = run("check", store)
    assert result.exit_code == 2
    assert "rebuilt in place" in result.output
    assert "mqstore.open ends it" in result.output
    open_small(store).close()
    assert findings(store) == []


def test_a_killed_rebuild_of_a_store_without_queues(store: Path) -> None:
    for name in ("consumequeue", "index"):
        shutil.rmtree(store / name)
    break_off(store)
    for command in (("query", store, "--topic", "T", "--key", "k8"), ("stats", store), ("lag", store)):
        result = run(*command)
        assert result.exit_code == 1
        assert "rebuilt in place" in result.output
    assert run("query", store, "--topic", "T", "--key", "k8", "--from-log").exit_code == 0
    rebuild(store, None, in_place=True)
    assert findings(store) == []


def test_another_program_goes_on_behind_a_killed_rebuild(store: Path) -> None:
    """One that knows nothing of what lies aside, as a broker."""
    old = store.parent / "old"
    old.mkdir()
    for name in ("consumequeue", "index"):
        shutil.copytree(store / name, old / name)
    with open_small(store) as opened:
        for number in range(COUNT, COUNT + 40):
            opened.put(Message("T", b"%d" % number, keys=[f"k{number}"], queue_id=0))
    for name in ("consumequeue", "index"):
        (old / name).rename(store / f"{name}.before-rebuild")
    (store / "mqstore-dispatch.json").unlink()
    (store / "mqstore-dispatch.json.before-rebuild").touch()
    with mqstore.inspect(store) as view:
        assert view.max_offset("T", 0) == COUNT // 4 + 40
        assert len(view.query("T", "k99").messages) == len(view.query("T", "k8").messages) == 1
        assert view.max_offset("U", 1) == COUNT // 4


def test_a_store_whose_log_lies_elsewhere_is_one_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, log = tmp_path / "store", tmp_path / "log"
    with mqstore.open(store, **SMALL, store_path_commit_log=str(log)) as opened:
        opened.put(Message("T", b"one", queue_id=0))
        opened.wait_dispatched()
    (store / "checkpoint").unlink()
    seen: list[int] = []

    def ask() -> None:
        with mqstore.inspect(store) as view:
            seen.append(view.max_offset("T", 0))

    with monkeypatch.context() as patched:
        ask_at_every_step(patched, ask)
        rebuild(store, None, in_place=True)
    assert set(seen) == {1}


def test_notes_of_conditions_are_read_from_where_their_queues_lie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    settings = {"enable_consume_queue_ext": True, "enable_calc_filter_bit_map": True}
    with open_small(store, **settings) as opened:
        for number in range(10):
            opened.put(Message("T", b"%d" % number, tags="ab"[number % 2], queue_id=0))
    with mqstore.inspect(store) as view:
        before = list(view.units("T", 0))
    seen: list[bool] = []
    real = rebuilding.put_in_order

    def put_in_order(*arguments: Any) -> int:
        with mqstore.inspect(store) as view:
            seen.append(list(view.units("T", 0)) == before)
        return real(*arguments)

    monkeypatch.setattr(rebuilding, "put_in_order", put_in_order)
    rebuild(store, None, in_place=True)
    assert seen == [True]


def lay_aside(store: Path) -> Path:
    """What a rebuild leaves that is killed when the new queues are complete, before the old ones have gone."""
    aside = StorePaths(store).aside.consume_queue
    shutil.copytree(store / "consumequeue", aside)
    return aside


def test_what_waits_for_its_removal_alone_goes_while_the_store_is_opened(
    store: Path, view: StoreView, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, aside, gone = everything(view), lay_aside(store), threading.Event()
    real_remove, real_run = copying.remove_tree, Recovery.run

    def remove(path: Path) -> None:
        real_remove(path)
        gone.set()

    def run_when_gone(self: Recovery) -> LogEnd:
        assert gone.wait(60)
        return real_run(self)

    monkeypatch.setattr(copying, "remove_tree", remove)
    monkeypatch.setattr(Recovery, "run", run_when_gone)
    open_small(store).close()
    assert not aside.exists()
    assert everything(view) == before
    assert findings(store) == []


def test_what_may_still_be_needed_stays_when_opening_fails(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    break_off(store)
    paths = StorePaths(store).aside
    there = sorted(path for path in paths.consume_queue.rglob("*"))
    with monkeypatch.context() as patch:
        patch.setattr(Recovery, "run", lambda _self: (_ for _ in ()).throw(StoreIOError("the device has failed")))
        with pytest.raises(StoreIOError, match="device"):
            open_small(store)
    assert sorted(path for path in paths.consume_queue.rglob("*")) == there != []
    assert paths.dispatch_checkpoint.exists()
    open_small(store).close()
    assert not paths.consume_queue.exists()
    assert findings(store) == []


def test_without_any_note_what_lies_aside_stays_when_opening_fails(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    aside = lay_aside(store)
    (store / "mqstore-dispatch.json").unlink()
    with monkeypatch.context() as patch:
        patch.setattr(Recovery, "run", lambda _self: (_ for _ in ()).throw(StoreIOError("the device has failed")))
        with pytest.raises(StoreIOError, match="device"):
            open_small(store)
    assert aside.exists()
    open_small(store).close()
    assert not aside.exists()


def test_what_cannot_be_removed_meanwhile_is_told_and_the_lock_given_up(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    aside = lay_aside(store)

    def remove(path: Path) -> None:
        raise StoreIOError("may not be removed", path=path)

    with monkeypatch.context() as patch:
        patch.setattr(copying, "remove_tree", remove)
        with pytest.raises(StoreIOError, match="may not be removed"):
            open_small(store)
    open_small(store).close()
    assert not aside.exists()
