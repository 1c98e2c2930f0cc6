"""What a note claims is on the device before it is written, whatever goes on beside the round of syncs."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mqstore import Message, Store, StoreIOError
from mqstore.files import durable
from mqstore.files.mapped_file import MappedFile
from mqstore.files.pool import FilePool
from mqstore.layout.queue_ext import ExtUnit
from mqstore.store.consume_queue import ConsumeQueue
from mqstore.store.queue_ext import QueueExt
from store.interleaving import Beside
from store.support import open_small

QUIET = {"flush_interval_consume_queue": 3_600_000}
"""No round of syncs but those that a test makes."""


def at_sync_of(monkeypatch: pytest.MonkeyPatch, path: Path, action: Callable[[], None]) -> None:
    """Have ``action`` done once, when file ``path`` is about to be synced."""
    real, todo = durable.sync_file, [action]

    def watched(fd: int, synced: str | os.PathLike[str]) -> None:
        if Path(synced) == path and todo:
            todo.pop()()
        real(fd, synced)

    monkeypatch.setattr(durable, "sync_file", watched)


def noted_queues(store: Store) -> dict[str, Any]:
    return dict(json.loads(store.paths.dispatch_checkpoint.read_text())["queues"])


def test_a_note_waits_for_the_round_of_syncs_that_is_on_its_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_small(tmp_path / "s", **QUIET) as store:
        store.put(Message("a", b"1", queue_id=0))
        store.wait_dispatched()
        write_back = store._engine._write_back
        flush = Beside(store.flush, write_back, "_guard")
        happened: list[str] = []
        replace_file = durable.replace_file

        def noting(path: Path, data: bytes) -> None:
            if path == store.paths.dispatch_checkpoint:
                happened.append("noted")
            replace_file(path, data)

        def held_up() -> None:
            flush.begin()
            happened.append("synced")

        monkeypatch.setattr(durable, "replace_file", noting)
        at_sync_of(monkeypatch, store.paths.queue("a", 0) / f"{0:020d}", held_up)
        write_back.sync_queues()
        flush.end()
        assert happened == ["synced", "noted"]


def test_a_round_passes_over_queues_that_are_removed_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_small(tmp_path / "s", **QUIET) as store:
        for topic in ("a", "b"):
            store.put(Message(topic, b"1", queue_id=0))
        store.wait_dispatched()
        gone = store._engine.queues.find("b", 0)
        assert gone is not None

        def remove() -> None:
            assert store._engine.dispatcher.remove(gone, lambda queue: True)

        at_sync_of(monkeypatch, store.paths.queue("a", 0) / f"{0:020d}", remove)
        store.flush()
        store.put(Message("a", b"2", queue_id=0))
        store.flush()
        assert noted_queues(store) == {"a": {"0": [0, 2]}}
    with open_small(tmp_path / "s") as store:
        assert store.max_offset("a", 0) == 2


@pytest.fixture
def pool() -> Iterator[FilePool]:
    pool = FilePool(writable=True)
    with contextlib.closing(pool):
        yield pool


def when_opened(monkeypatch: pytest.MonkeyPatch, path: Path, action: Callable[[], None]) -> None:
    """Have ``action`` done once, right before file ``path`` is taken from its pool."""
    real, todo = FilePool.descriptor, [action]

    def watched(pool: FilePool, taken: Path) -> contextlib.AbstractContextManager[int]:
        if taken == path and todo:
            todo.pop()()
        return real(pool, taken)

    monkeypatch.setattr(FilePool, "descriptor", watched)


def test_a_file_that_is_removed_while_its_turn_comes_is_no_failure(
    tmp_path: Path, pool: FilePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = ConsumeQueue("T", 0, tmp_path / "T" / "0", pool, 200)
    for number in range(25):
        queue.put(number, (number * 100).to_bytes(8, "big") + (100).to_bytes(4, "big") + bytes(8))
    first = queue.inventory.entries[0]
    when_opened(monkeypatch, first.path, lambda: queue.remove_file(first))
    queue.sync()
    assert [entry.start for entry in queue.inventory.entries] == [200, 400]


def test_nor_is_an_extension_file(tmp_path: Path, pool: FilePool, monkeypatch: pytest.MonkeyPatch) -> None:
    ext = QueueExt(tmp_path / "ext", pool, 400)
    ext.end_after(None)
    addresses = [ext.append(ExtUnit(number, number, bytes(12))) for number in range(40)]
    when_opened(monkeypatch, tmp_path / "ext" / f"{0:020d}", lambda: ext.expire(addresses[-1]))
    ext.sync()
    assert ext.find(addresses[0]) is None
    assert ext.find(addresses[-1]) is not None


def test_a_file_that_cannot_be_synced_is_tried_again(
    tmp_path: Path, pool: FilePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = ConsumeQueue("T", 0, tmp_path / "T" / "0", pool, 200)
    queue.put(0, bytes(8) + (100).to_bytes(4, "big") + bytes(8))
    synced: list[str] = []

    def fail() -> None:
        raise StoreIOError("could not sync file: Input/output error")

    at_sync_of(monkeypatch, queue.directory / f"{0:020d}", fail)
    with pytest.raises(StoreIOError):
        queue.sync()
    monkeypatch.setattr(durable, "sync_file", lambda fd, path: synced.append(str(path)))
    monkeypatch.setattr(durable, "sync_directory", lambda path: synced.append(str(path)))
    queue.sync()
    queue.sync()
    assert synced == [str(queue.directory / f"{0:020d}"), str(queue.directory)]


def test_a_sync_beside_the_next_index_file_takes_the_full_one_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The note that follows tells that the full file is complete on the device."""
    with open_small(tmp_path / "s", **QUIET) as store:
        index, lend, real = store._engine.index, FilePool.lend, durable.sync_file
        assert index is not None
        store.put(Message("a", b"0", keys=["k0"], queue_id=0))
        store.wait_dispatched()
        full, synced = index.paths[0], []
        beside = Beside(index.sync, index, "_list_guard")

        def watched(fd: int, path: str | os.PathLike[str]) -> None:
            synced.append(Path(path))
            real(fd, path)

        def sync_meanwhile(pool: FilePool, file: MappedFile) -> None:
            lend(pool, file)
            if file.path.parent == full.parent:
                beside.begin()

        monkeypatch.setattr(durable, "sync_file", watched)
        monkeypatch.setattr(FilePool, "lend", sync_meanwhile)
        for number in range(1, 25):
            store.put(Message("a", b"x", keys=[f"k{number}"], queue_id=0))
        store.wait_dispatched()
        beside.end()
        assert len(index.paths) == 2
        assert full in synced
