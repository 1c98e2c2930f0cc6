"""A partition that fails is a matter of its own: the others are flushed and noted, and what is due is removed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kafka_log.support import open_small
from mqstore import StoreIOError
from mqstore.files import durable
from mqstore.kafka import KafkaMessage, KafkaStore
from mqstore.kafka.data_directory import DataDirectory
from mqstore.layout.kafka import names

PATIENCE_S = 60


def fail_syncs_of(monkeypatch: pytest.MonkeyPatch, partition: str) -> None:
    real = durable.sync_file

    def failing(fd: int, path: str | os.PathLike[str]) -> None:
        if Path(path).parent.name == partition and Path(path).suffix == ".log":
            raise StoreIOError("could not sync file: Input/output error", path=path)
        real(fd, path)

    monkeypatch.setattr(durable, "sync_file", failing)


def put(store: KafkaStore, topic: str, value: bytes) -> None:
    store.put(KafkaMessage(topic, value, partition=0))


def wait_until(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE_S
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.01)
    return holds()


def test_flush_goes_on_behind_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_small(tmp_path / "d", flush_ms=3_600_000) as store:
        put(store, "a", b"1")
        put(store, "b", b"1")
        with monkeypatch.context() as patch:
            fail_syncs_of(patch, "a-0")
            with pytest.raises(StoreIOError):
                store.flush()
        noted = DataDirectory(tmp_path / "d").load_checkpoint(names.RECOVERY_POINTS)
        assert (noted["a", 0], noted["b", 0]) == (0, 1)


def test_so_does_the_store_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_small(tmp_path / "d", flush_ms=1, file_delete_delay_ms=1) as store:
        with monkeypatch.context() as patch:
            fail_syncs_of(patch, "a-0")
            put(store, "a", b"1")
            log = store.partition("a", 0)
            assert wait_until(lambda: log.failure is not None)
        put(store, "b", b"1")
        flushed = store.partition("b", 0)
        assert wait_until(lambda: flushed.recovery_point == 1)
        gone = tmp_path / "d" / "b-0" / "to.go"
        gone.touch()
        flushed.discard([gone])
        assert wait_until(lambda: not gone.exists())


def test_so_does_close(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_small(tmp_path / "d", flush_ms=3_600_000)
    put(store, "a", b"1")
    put(store, "b", b"1")
    with monkeypatch.context() as patch:
        fail_syncs_of(patch, "a-0")
        with pytest.raises(StoreIOError):
            store.close()
    files = DataDirectory(tmp_path / "d")
    assert files.load_checkpoint(names.RECOVERY_POINTS) == {("a", 0): 0, ("b", 0): 1}
    assert not files.has_clean_marker()
    with open_small(tmp_path / "d") as again:
        assert [len(again.get(topic).messages) for topic in ("a", "b")] == [1, 1]


def test_what_could_not_be_removed_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remove_file, failures = durable.remove_file, []

    def failing(path: Path) -> None:
        if path.name == "to.go" and not failures:
            failures.append(path)
            raise StoreIOError("could not remove file: Input/output error", path=path)
        remove_file(path)

    monkeypatch.setattr(durable, "remove_file", failing)
    with open_small(tmp_path / "d", flush_ms=1, file_delete_delay_ms=1) as store:
        put(store, "a", b"1")
        gone = tmp_path / "d" / "a-0" / "to.go"
        gone.touch()
        store.partition("a", 0).discard([gone])
        assert wait_until(lambda: not gone.exists())
    assert len(failures) == 1
