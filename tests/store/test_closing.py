"""An open or a close that is broken off: no thread goes on without the lock, and no lock stays without an owner."""

from __future__ import annotations

import threading
from collections import deque
from pathlib import Path
from typing import Any

import pytest

from mqstore import Message, StoreIOError, StoreLockedError
from mqstore.files import durable
from mqstore.files.lock import StoreLock
from store.support import bodies, findings, open_small
from store.threads import interrupt_join, ours, refuse_to_start

ALL_SERVICES: dict[str, Any] = {"expire_automatically": True, "transient_store_pool_enable": True}
THREADS = [
    "mqstore-commit",
    "mqstore-disk",
    "mqstore-dispatch",
    "mqstore-expiry",
    "mqstore-flush",
    "mqstore-maintenance",
    "mqstore-schedule",
    "mqstore-transactions",
]


def test_these_are_all_threads(tmp_path: Path) -> None:
    with open_small(tmp_path / "s", **ALL_SERVICES):
        assert ours() == THREADS
    assert ours() == []


@pytest.mark.parametrize("name", THREADS)
def test_a_close_that_is_interrupted_ends_all_threads_before_the_lock_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    store = open_small(tmp_path / "s", **ALL_SERVICES)
    store.put(Message("T", b"1", queue_id=0))
    store.wait_dispatched()
    store.commit_offset("g", "T", 0, 1)
    with monkeypatch.context() as patch:
        interrupt_join(patch, name)
        with pytest.raises(KeyboardInterrupt):
            store.close()
    assert ours() == []
    assert (tmp_path / "s" / "abort").exists()
    store.close()
    with open_small(tmp_path / "s") as again:
        assert again.put(Message("T", b"2", queue_id=0)).queue_offset == 1
        assert again.committed_offset("g", "T", 0) == 1
    assert bodies(tmp_path / "s") == [b"1", b"2"]
    assert findings(tmp_path / "s") == []


@pytest.mark.parametrize("name", THREADS)
def test_an_open_that_fails_leaves_neither_threads_nor_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    with monkeypatch.context() as patch:
        refuse_to_start(patch, name)
        with pytest.raises(StoreIOError, match="can't start new thread"):
            open_small(tmp_path / "s", **ALL_SERVICES)
    assert ours() == []
    with open_small(tmp_path / "s") as store:
        assert store.put(Message("T", b"1", queue_id=0)).queue_offset == 0
    assert bodies(tmp_path / "s") == [b"1"]


def test_a_close_that_cannot_save_is_no_clean_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_small(tmp_path / "s")
    store.put(Message("T", b"1", queue_id=0))
    replace_file = durable.replace_file

    def refuse(path: Path, data: bytes) -> None:
        if path.name == "topics.json":
            raise StoreIOError("could not replace file: Input/output error", path=path)
        replace_file(path, data)

    with monkeypatch.context() as patch:
        patch.setattr(durable, "replace_file", refuse)
        with pytest.raises(StoreIOError):
            store.close()
    assert ours() == []
    assert (tmp_path / "s" / "abort").exists()
    open_small(tmp_path / "s").close()
    assert not (tmp_path / "s" / "abort").exists()
    assert bodies(tmp_path / "s") == [b"1"]


def test_a_close_in_a_second_thread_returns_when_the_store_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_small(tmp_path / "s")
    is_closing, go_on, failures = threading.Event(), threading.Event(), []
    save_rest = store._engine.save_settings

    def save_slowly() -> None:
        is_closing.set()
        assert go_on.wait(60)
        save_rest()

    def open_anew() -> None:
        try:
            store.close()
            open_small(tmp_path / "s").close()
        except StoreLockedError as error:
            failures.append(error)

    monkeypatch.setattr(store._engine, "save_settings", save_slowly)
    first, second = threading.Thread(target=store.close), threading.Thread(target=open_anew)
    first.start()
    assert is_closing.wait(60)
    second.start()
    second.join(0.2)
    go_on.set()
    for thread in (first, second):
        thread.join(60)
    assert failures == []


def test_a_signal_handler_may_close_what_is_being_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_small(tmp_path / "s")
    save_rest = store._engine.save_settings

    def save_beside_a_signal() -> None:
        store.close()
        save_rest()

    monkeypatch.setattr(store._engine, "save_settings", save_beside_a_signal)
    store.close()
    open_small(tmp_path / "s").close()


class InterruptedStack(deque):  # type: ignore[type-arg]
    """The steps of closing, with Ctrl-C where the next of them has been taken out and not yet been done."""

    left = 0

    def pop(self, *_: Any) -> Any:
        step = super().pop()
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt
        return step


def test_an_interrupt_between_any_two_steps_of_a_close_leaves_neither_threads_nor_the_lock(tmp_path: Path) -> None:
    number, steps = 0, 1
    while number < steps:
        number += 1
        store = open_small(tmp_path / "s", **ALL_SERVICES)
        store.put(Message("T", b"%d" % number, queue_id=0))
        held: Any = store._engine._held
        held._exit_callbacks = InterruptedStack(held._exit_callbacks)
        steps = len(held._exit_callbacks)
        held._exit_callbacks.left = number
        with pytest.raises(KeyboardInterrupt):
            store.close()
        assert ours() == []
    open_small(tmp_path / "s").close()
    assert bodies(tmp_path / "s") == [b"%d" % one for one in range(1, steps + 1)]
    assert findings(tmp_path / "s") == []


def test_a_lock_that_nobody_has_any_more_is_free(tmp_path: Path) -> None:
    """As when Ctrl-C comes between taking it and noting that it was taken."""
    lock = StoreLock(tmp_path / "lock")
    with pytest.raises(StoreLockedError):
        StoreLock(tmp_path / "lock")
    del lock
    again = StoreLock(tmp_path / "lock")
    again.release()
    again.release()
