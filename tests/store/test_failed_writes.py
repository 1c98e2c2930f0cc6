"""A device that fails, a full disk, an interrupt: what is acknowledged is there, and all else leaves no trace."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

import mqstore
from mqstore import Message
from mqstore.files import durable
from mqstore.files.allocation import Allocator
from store.support import (
    bodies,
    body_of,
    fill,
    findings,
    forget_note,
    open_small,
    reopen,
)


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


def held_open(directory: Path) -> set[str]:
    """Files below ``directory`` that this process has open or mapped."""
    descriptors = Path("/proc/self/fd")
    linked = [os.readlink(one) for one in descriptors.iterdir() if one.is_symlink()]
    mapped = [line.split(maxsplit=5)[-1] for line in Path("/proc/self/maps").read_text().splitlines()]
    return {name for name in [*linked, *mapped] if name.startswith(f"{directory}/")}


@pytest.mark.parametrize("fails", ["commitlog", "index", "allocator"])
def test_a_close_that_fails_holds_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str) -> None:
    real, never = durable.sync_file, 3_600_000
    quiet = {"flush_interval_commit_log": never, "flush_interval_consume_queue": never}
    store = open_small(tmp_path / "store", **quiet, warm_maped_file_enable=True)
    for number in range(60):
        store.put(Message("T", body_of(number), keys=[f"k{number}"], queue_id=0))
    store.wait_dispatched()
    assert len(held_open(tmp_path)) > 5

    def fail(fd: int, path: str | os.PathLike[str]) -> None:
        if Path(path).parent.name == fails:
            raise mqstore.StoreIOError("could not sync file: Input/output error", path=str(path))
        real(fd, path)

    def fail_to_stop(allocator: Allocator) -> None:
        stop(allocator)
        raise mqstore.StoreIOError("could not remove file: Input/output error")

    stop = Allocator.stop
    monkeypatch.setattr(durable, "sync_file", fail)
    if fails == "allocator":
        monkeypatch.setattr(Allocator, "stop", fail_to_stop)
    with pytest.raises(mqstore.StoreIOError, match="Input/output error"):
        store.close()
    assert held_open(tmp_path) == set()


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
