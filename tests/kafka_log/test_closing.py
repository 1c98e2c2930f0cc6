"""An open or a close that is broken off: no thread goes on without the lock, and no lock stays without an owner."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_log.support import open_small
from mqstore import DiskFullError, StoreIOError
from mqstore.files import durable
from mqstore.kafka import KafkaMessage
from mqstore.kafka.partition_log import PartitionLog
from store.threads import interrupt_join, ours, refuse_to_start

THREAD = "mqstore-kafka-maintenance"


def put_again(path: Path) -> None:
    with open_small(path) as store:
        assert store.put(KafkaMessage("t", value=b"2", partition=0)).offset == 1
        assert [message.value for message in store.get("t", 0).messages] == [b"1", b"2"]
    assert ours() == []


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with open_small(tmp_path / "d") as store:
        store.put(KafkaMessage("t", value=b"1", partition=0))
    return tmp_path / "d"


def test_an_interrupted_close(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_small(path)
    assert ours() == [THREAD]
    with monkeypatch.context() as patch:
        interrupt_join(patch, THREAD)
        with pytest.raises(KeyboardInterrupt):
            store.close()
    assert ours() == []
    assert not (path / ".kafka_cleanshutdown").exists()
    store.close()
    put_again(path)


def test_an_open_without_a_thread(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        refuse_to_start(patch, THREAD)
        with pytest.raises(StoreIOError, match="can't start new thread"):
            open_small(path)
    assert ours() == []
    put_again(path)


def test_an_open_that_cannot_note_what_it_has_recovered(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(log: PartitionLog, up_to: int | None = None) -> None:
        raise DiskFullError("no space left while trying to sync file")

    (path / ".kafka_cleanshutdown").unlink()
    with monkeypatch.context() as patch:
        patch.setattr(PartitionLog, "flush", full)
        with pytest.raises(DiskFullError):
            open_small(path)
    assert ours() == []
    put_again(path)


def test_a_flush_that_is_interrupted_is_due_as_before(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(fd: int, synced: object) -> None:
        raise KeyboardInterrupt

    with open_small(path, flush_ms=3_600_000) as store:
        store.put(KafkaMessage("t", value=b"2", partition=0))
        log = store.partition("t", 0)
        due = log.oldest_unflushed_ms
        assert due is not None
        with monkeypatch.context() as patch:
            patch.setattr(durable, "sync_file", interrupted)
            with pytest.raises(KeyboardInterrupt):
                store.flush()
        assert (log.oldest_unflushed_ms, log.failure) == (due, None)
        store.flush()
        assert log.oldest_unflushed_ms is None
