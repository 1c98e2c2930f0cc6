"""Many threads that put, views and checks beside a writer, and a writer that is killed."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

import mqstore
from mqstore import (
    FlushDiskType,
    Message,
)
from mqstore.files.pool import FilePool
from mqstore.store import check
from mqstore.store.dispatch import Dispatcher
from store.support import bodies, body_of, findings, open_small, put_dispatched


@pytest.mark.parametrize("mode", list(FlushDiskType))
def test_many_threads_lose_and_double_nothing(tmp_path: Path, mode: FlushDiskType) -> None:
    path = tmp_path / "store"

    def producer(number: int) -> None:
        for turn in range(25):
            store.put_batch([Message("t", b"%d/%d/%d" % (number, turn, i), queue_id=i % 2) for i in range(4)])

    with open_small(path, mapped_file_size_commit_log=1 << 16, flush_disk_type=mode) as store:
        threads = [threading.Thread(target=producer, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if mode is FlushDiskType.SYNC_FLUSH:
            assert store.flushed_offset == store.log_end
    found = bodies(path, "t", 0) + bodies(path, "t", 1)
    assert sorted(found) == sorted(b"%d/%d/%d" % (n, t, i) for n in range(4) for t in range(25) for i in range(4))
    assert findings(path) == []


def test_a_view_follows_a_running_writer(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with open_small(path) as store:
        view = mqstore.inspect(path)
        for number in range(60):
            put_dispatched(store, Message("t", body_of(number), queue_id=0, keys=["k"]))
            assert view.log_end == store.log_end
            assert view.queues()[0].max_offset == number + 1
            assert view.get("t", 0, number).messages[0].body == body_of(number)
        assert len(view.query("t", "k").messages) == 60
        assert sum(1 for _ in view.scan()) == 60


def test_what_is_unwritten_is_not_read_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_small(tmp_path / "store", mapped_file_size_commit_log=1 << 20) as store:
        put_dispatched(store, Message("t", b"one", queue_id=0))
    with mqstore.inspect(tmp_path / "store") as view:
        end, sizes, real = view.log_end, list[int](), FilePool.read

        def read(pool: FilePool, path: Path, position: int, size_bytes: int) -> bytes:
            sizes.append(size_bytes)
            return real(pool, path, position, size_bytes)

        monkeypatch.setattr(FilePool, "read", read)
        assert view.log_end == end
        assert sum(sizes) < 100


KILLED = """
import os, sys, mqstore
from mqstore import Message
store = mqstore.open(sys.argv[1], mapped_file_size_commit_log=65536, mapped_file_size_consume_queue=2000,
                     max_hash_slot_num=100, max_index_num=300, flush_disk_type="SYNC_FLUSH")
number = 0
while True:
    batch = [Message("t", b"%d" % i, keys=["k%d" % i], queue_id=0) for i in range(number, number + 3)]
    results = store.put_batch(batch)
    number += 3
    print(results[-1].queue_offset, flush=True)
"""


@pytest.mark.parametrize("acknowledged", [1, 40, 200])
def test_killed_in_the_middle_of_putting(tmp_path: Path, acknowledged: int) -> None:
    path = tmp_path / "store"
    with subprocess.Popen([sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        last = 0
        for _ in range(acknowledged):
            last = int(child.stdout.readline())
        child.kill()
        rest = child.stdout.read().split()
        last = int(rest[-1]) if rest and rest[-1].isdigit() else last
    mqstore.open(path).close()
    assert findings(path) == []
    found = bodies(path, "t")
    assert found == [b"%d" % number for number in range(len(found))]
    assert len(found) > last


def test_a_check_beside_a_writer_ends_and_finds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "store"
    stop = threading.Event()
    sizes = {
        "mapped_file_size_commit_log": 1 << 24,
        "mapped_file_size_consume_queue": 2_000_000,
        "max_hash_slot_num": 25_000,
        "max_index_num": 100_000,
    }
    with open_small(path, **sizes) as store:

        def write() -> None:
            while not stop.is_set():
                store.put_batch([Message("t", body_of(1), keys=["k"], queue_id=0) for _ in range(20)])
                time.sleep(0.01)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            deadline = time.monotonic() + 60
            while store.max_offset("t", 0) < 100 and time.monotonic() < deadline:
                time.sleep(0.01)
            assert store.max_offset("t", 0) >= 100
            for _ in range(3):
                assert [finding for finding in findings(path) if finding.severity.value != "note"] == []
        finally:
            stop.set()
            writer.join()


def test_a_check_waits_for_units_that_are_only_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer builds them when the check has looked again in vain."""
    looked_again = threading.Event()
    run_to, sleep = Dispatcher.run_to, time.sleep

    def late(dispatcher: Dispatcher, end: int) -> None:
        assert looked_again.wait(60)
        run_to(dispatcher, end)

    def noted_sleep(seconds: float) -> None:
        looked_again.set()
        sleep(seconds)

    with open_small(tmp_path / "s") as store:
        put_dispatched(store, Message("t", b"in time", queue_id=0))
        monkeypatch.setattr(Dispatcher, "run_to", late)
        monkeypatch.setattr(check, "time", SimpleNamespace(monotonic=time.monotonic, sleep=noted_sleep))
        store.put(Message("t", b"late", queue_id=0))
        assert findings(tmp_path / "s") == []
        assert looked_again.is_set()
