"""Arguments that cannot be meant are refused, and what fails lets go of everything."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mqstore
from mqstore import (
    Message,
    MessageIllegalError,
    StoreIOError,
    UsageError,
    kafka,
)
from store.hostile import SIZES
from store.support import open_small

ODD: list[Any] = [None, True, 0.5, "x", b"x", -1, 1 << 70, [], {}, float("nan"), "\ud800", ["\ud800"], [None], {1: "a"}]


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(Message)])
def test_odd_fields_of_messages_are_stored_or_refused(tmp_path: Path, name: str) -> None:
    sound = Message("T", b"sound")
    with open_small(tmp_path / "s") as running:
        stored = 0
        for value in ODD:
            odd = dataclasses.replace(sound, **{name: value})
            for put in (lambda one: [running.put(one)], lambda one: running.put_batch([sound, one])):
                with contextlib.suppress(MessageIllegalError, UsageError):
                    stored += len(put(odd))
        running.wait_dispatched()
        assert sum(queue.count for queue in running.queues()) == stored
        assert running.check() == []


@pytest.mark.parametrize("odd", [None, 5, "x", b"x", ("T", b"x"), {}, object()])
def test_what_is_no_message_is_refused(tmp_path: Path, odd: Any) -> None:
    with open_small(tmp_path / "s") as running:
        for call in (running.put, lambda one: running.put_batch([one]), lambda one: running.transaction("p", one)):
            with pytest.raises(UsageError):
                call(odd)
        for call in (running.message_by_id, lambda one: running.query("T", one), lambda one: running.query(one, "k")):
            if not isinstance(odd, str):
                with pytest.raises(UsageError):
                    call(odd)
        with pytest.raises(UsageError):
            running.put_batch(object())  # type: ignore[arg-type]
        assert running.queues() == []


def test_odd_arguments_are_refused(store: Path) -> None:
    """The numbers that lead into files: not one of the odd values passes for an offset, a queue or a time."""
    with mqstore.open(store, **SIZES) as running, mqstore.inspect(store) as view:
        calls: list[Callable[[Any], object]] = []
        for one in (running, view):
            calls += [
                lambda value, one=one: one.get("T", value),
                lambda value, one=one: one.get(value if isinstance(value, int | float) else 5, 0),
                lambda value, one=one: one.get("T", 0, value),
                lambda value, one=one: one.get("T", 0, 0, value),
                lambda value, one=one: one.offset_at("T", 0, value),
                lambda value, one=one: one.query("T", "k1", value),
                lambda value, one=one: one.query("T", "k1", 0, value),
                one.message_at,
                lambda value, one=one: one.max_offset("T", value),
                lambda value, one=one: one.min_offset("T", value),
                lambda value, one=one: one.committed_offset("g", "T", value),
            ]
        calls += [
            lambda value: running.commit_offset("g", "T", 0, value),
            lambda value: running.commit_offset("g", "T", value, 0),
            lambda value: running.wait_arrival(value, 0),
            lambda value: running.set_retry_max_times("g", value),
            lambda value: running.consumer("g", "T", timeout_s=value if value is not None else "x"),
        ]
        for call in calls:
            for value in ODD:
                if value == -1 or (value == 0.5 and call is calls[-1]):
                    continue  # a time or an offset may be before the first; half a second is a time to wait
                with pytest.raises(UsageError):
                    call(value)


def open_below(directory: Path) -> list[str]:
    """The files of ``directory`` that this process has open."""
    links = []
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile, by whomever
            links.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    return [link for link in links if link.startswith(f"{directory.resolve()}/")]


def test_an_open_that_fails_lets_go_of_everything(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path, data: bytes) -> None:
        raise StoreIOError("no", path=path)

    monkeypatch.setattr("mqstore.store.engine.durable.replace_file", fail)
    for _ in range(3):
        with pytest.raises(StoreIOError):
            mqstore.open(store, **SIZES)
    monkeypatch.undo()
    assert open_below(store) == []
    with mqstore.open(store, **SIZES) as running:
        assert running.check() == []


def test_a_close_that_fails_lets_go_of_everything(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise StoreIOError("no")

    running = mqstore.open(store, **SIZES)
    assert open_below(store)
    monkeypatch.setattr(running._engine, "save_settings", fail)
    with pytest.raises(StoreIOError):
        running.close()
    assert open_below(store) == []
    with mqstore.open(store, **SIZES) as again:
        assert again.check() == []


def test_check_beside_the_writer_knows_of_queues_that_are_new(tmp_path: Path) -> None:
    """A message without keys leaves the index behind: its queue is not one of which the log holds nothing."""
    with open_small(tmp_path / "s") as running:
        running.put(Message("T", b"1", keys=["k"]))
        running.wait_dispatched()
        for number in range(5):
            running.put(Message(f"new{number}", b"2", queue_id=0))
            running.wait_dispatched()
            assert running.check() == []


@pytest.mark.parametrize("odd", ["", "a\0b", "/tmp/\0", b"bytes", 3, None])
def test_odd_paths_are_refused(store: Path, tmp_path: Path, odd: Any) -> None:
    calls: list[Callable[[], object]] = [
        lambda: mqstore.open(odd),
        lambda: mqstore.inspect(odd),
        lambda: mqstore.rebuild(odd, tmp_path / "new"),
        lambda: mqstore.truncate(odd, 0, tmp_path / "new"),
        lambda: mqstore.truncate(store, 0, odd),
        lambda: kafka.open(odd),
        lambda: kafka.inspect(odd),
    ]
    if odd is not None:
        calls.append(lambda: mqstore.rebuild(store, odd))
    if isinstance(odd, str) and odd:
        calls += [
            lambda: mqstore.open(store, store_path_commit_log=odd),
            lambda: mqstore.open(store, read_only_commit_log_store_paths=odd),
            lambda: mqstore.inspect(store, store_path_commit_log=odd),
            lambda: mqstore.StoreConfig.from_broker_conf(odd),
        ]
    for number, call in enumerate(calls):
        with pytest.raises(UsageError):
            pytest.fail(f"call {number} gave {call()}")


@pytest.mark.parametrize("odd", [1e300, float("inf"), float("nan"), 10**400, -1, "1", True])
def test_times_that_no_thread_can_wait_are_refused(store: Path, odd: Any) -> None:
    with mqstore.open(store, **SIZES) as running, running.consumer("g", "new") as consumer:
        calls: list[Callable[[], object]] = [
            lambda: running.wait_dispatched(odd),
            lambda: running.wait_arrival(0, odd),
            lambda: running.consumer("g", "T", timeout_s=odd),
            lambda: consumer.get(timeout_s=odd),
        ]
        for call in calls:
            with pytest.raises(UsageError):
                call()
