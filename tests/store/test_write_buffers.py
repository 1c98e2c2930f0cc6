"""Write buffers in front of the log's files: readers see what was committed, and nothing else."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mqstore
from mqstore import Message, NotWritableError, StoreIOError
from mqstore.files import durable
from mqstore.files.write_buffer import BufferPool
from mqstore.store.log_reader import LogReader
from store.support import bodies, body_of, findings, open_small

LATE = 3_600_000
BUFFERED: dict[str, Any] = {
    "transient_store_pool_enable": True,
    "commit_interval_commit_log": LATE,
    "flush_interval_commit_log": LATE,
    "flush_interval_consume_queue": LATE,
}


def put(store: mqstore.Store, begin: int, end: int) -> None:
    for number in range(begin, end):
        store.put(Message("T", body_of(number), keys=[f"k{number}"], queue_id=0))


def test_what_is_not_committed_can_be_read_by_nobody(tmp_path: Path) -> None:
    with open_small(tmp_path / "s", **BUFFERED) as store:
        put(store, 0, 5)
        assert store.log_end > 0
        assert not store.wait_arrival(0, 0.05)
        assert store.get("T", 0, 0).messages == []
        assert bodies(tmp_path / "s") == []
        info = store.runtime_info()
        assert info["remainHowManyDataToCommit"] == store.log_end == store.dispatch_behind_bytes
        assert info["remainTransientStoreBufferNumbs"] == 4
        assert store._engine.dispatch.failure is None
        assert store.wait_dispatched()
        assert len(store.get("T", 0, 0).messages) == 5
        assert bodies(tmp_path / "s") == [body_of(number) for number in range(5)]
        assert store.runtime_info()["remainHowManyDataToCommit"] == 0
    assert findings(tmp_path / "s") == []


def test_the_interval_commits(tmp_path: Path) -> None:
    settings = {**BUFFERED, "commit_interval_commit_log": 5, "commit_commit_log_thorough_interval": LATE}
    with open_small(tmp_path / "s", **settings, mapped_file_size_commit_log=1 << 20) as store:
        put(store, 0, 3)
        assert not store.wait_arrival(0, 0.1)  # less than four pages
        put(store, 3, 100)
        assert store.wait_arrival(0, 60)
        result = store.get("T", 0, 0)
        assert result.messages[0].body == body_of(0)
    settings["commit_commit_log_thorough_interval"] = 1
    with open_small(tmp_path / "s", **settings, mapped_file_size_commit_log=1 << 20) as store:
        end = store.log_end
        put(store, 100, 101)
        assert store.wait_arrival(end, 60)


def test_buffers_go_round_over_many_files(tmp_path: Path) -> None:
    with open_small(tmp_path / "s", **BUFFERED, transient_store_pool_size=2) as store:
        for begin in range(0, 200, 20):
            put(store, begin, begin + 20)
            store.flush()
            assert store.flushed_offset == store.log_end
            assert store.runtime_info()["remainTransientStoreBufferNumbs"] == 1
        assert bodies(tmp_path / "s") == [body_of(number) for number in range(200)]
    assert findings(tmp_path / "s") == []


def test_a_file_that_finds_no_buffer_is_written_directly(tmp_path: Path) -> None:
    with open_small(tmp_path / "s", **BUFFERED, transient_store_pool_size=1) as store:
        put(store, 0, 60)
        assert store.runtime_info()["remainTransientStoreBufferNumbs"] == 0
        assert store.get("T", 0, 0).messages == []
        store.wait_dispatched()
        assert bodies(tmp_path / "s") == [body_of(number) for number in range(60)]
    assert findings(tmp_path / "s") == []


def test_without_a_buffer_a_put_may_fail_at_once(tmp_path: Path) -> None:
    settings = {**BUFFERED, "transient_store_pool_size": 2, "fast_fail_if_no_buffer_in_store_pool": True}
    with pytest.raises(mqstore.UsageError, match="transient_store_pool_size"):
        open_small(tmp_path / "s", **{**settings, "transient_store_pool_size": 1})
    with open_small(tmp_path / "s", **settings) as store:
        taken = 0
        with pytest.raises(NotWritableError, match="no write buffer") as caught:  # noqa: PT012
            while True:
                put(store, taken, taken + 1)
                taken += 1
        assert caught.value.retriable
        store.wait_dispatched()
        put(store, taken, taken + 1)
    assert bodies(tmp_path / "s") == [body_of(number) for number in range(taken + 1)]


def test_closing_commits_and_syncs_everything(tmp_path: Path) -> None:
    with open_small(tmp_path / "s", **BUFFERED) as store:
        put(store, 0, 70)
    assert not (tmp_path / "s" / "abort").exists()
    assert bodies(tmp_path / "s") == [body_of(number) for number in range(70)]
    with open_small(tmp_path / "s", **BUFFERED) as store:  # into a file that was there, so through its map
        put(store, 70, 140)
    assert bodies(tmp_path / "s") == [body_of(number) for number in range(140)]
    assert findings(tmp_path / "s") == []


def die(program: str, store: Path) -> None:
    command = [sys.executable, "-c", program, str(store)]
    assert subprocess.run(command, cwd=Path(__file__).parents[1], check=False).returncode == 9


DIES = """
import os, sys
import mqstore
from store.support import SMALL
from store.test_write_buffers import BUFFERED, put
store = mqstore.open(sys.argv[1], **{**SMALL, **BUFFERED})
put(store, 0, 45)
store.wait_dispatched()
put(store, 45, 95)
os._exit(9)
"""


def test_a_process_that_dies_takes_along_what_was_not_committed(tmp_path: Path) -> None:
    die(DIES, tmp_path / "s")
    with open_small(tmp_path / "s") as store:
        assert store.max_offset("T", 0) == 45
        assert store.put(Message("T", body_of(45), queue_id=0)).queue_offset == 45
    assert bodies(tmp_path / "s") == [body_of(number) for number in range(46)]
    assert findings(tmp_path / "s") == []


def test_a_commit_that_fails_ends_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_small(tmp_path / "s", **BUFFERED)
    put(store, 0, 5)
    store.wait_dispatched()
    put(store, 5, 10)

    def fail(*arguments: object) -> None:
        raise StoreIOError("device failed", path=tmp_path)

    with monkeypatch.context() as patch:
        patch.setattr(durable, "write_at", fail)
        with pytest.raises(StoreIOError, match="device failed"):
            store.wait_dispatched()
    with pytest.raises(NotWritableError):
        put(store, 10, 11)
    assert len(store.get("T", 0, 0).messages) == 5
    with pytest.raises(StoreIOError):
        store.close()
    with open_small(tmp_path / "s") as again:
        assert again.max_offset("T", 0) == 5


def test_sync_flush_does_without(tmp_path: Path) -> None:
    with open_small(tmp_path / "s", **BUFFERED, flush_disk_type="SYNC_FLUSH") as store:
        put(store, 0, 3)
        assert store._engine.buffers is None
        with mqstore.inspect(tmp_path / "s") as view:
            assert [record.body for record in view.scan()] == [body_of(number) for number in range(3)]


def test_a_transaction_finds_its_half_message(tmp_path: Path) -> None:
    with open_small(tmp_path / "s", **BUFFERED) as store:
        with store.transaction("group", Message("T", b"whole", queue_id=0)):
            pass
        store.wait_dispatched()
        assert [message.body for message in store.get("T", 0, 0).messages] == [b"whole"]


def test_memory_that_is_not_to_be_had_is_an_error() -> None:
    with pytest.raises(StoreIOError, match="no memory"):
        BufferPool(1, 1 << 60).borrow()


# -- files made ahead


def log_names(store: Path) -> list[int]:
    return sorted(int(path.name) for path in (store / "commitlog").iterdir())


def wait_for_files(store: Path, count: int) -> None:
    deadline = time.monotonic() + 60
    while len(log_names(store)) < count and time.monotonic() < deadline:
        time.sleep(0.005)
    assert len(log_names(store)) == count


@pytest.mark.parametrize(
    "settings",
    [
        {"flush_disk_type": "SYNC_FLUSH", "flush_least_pages_when_warm_maped_file": 1},
        {"flush_disk_type": "ASYNC_FLUSH"},
        {**BUFFERED},
    ],
    ids=["sync", "async", "buffers"],
)
def test_the_next_file_is_made_ahead(tmp_path: Path, settings: dict[str, Any]) -> None:
    with open_small(tmp_path / "s", warm_maped_file_enable=True, **settings) as store:
        put(store, 0, 1)
        wait_for_files(tmp_path / "s", 2)
        put(store, 1, 100)
        store.wait_dispatched()
        wait_for_files(tmp_path / "s", store.log_end // 4096 + 2)
        store.flush()
        assert findings(tmp_path / "s") == []
        while store.expire(9_000_000_000_000).removed:
            pass
        assert log_names(tmp_path / "s")[0] == store.log_end // 4096 * 4096  # what is written to stays
        put(store, 100, 101)
        end = store.log_end
    assert log_names(tmp_path / "s")[-1] == end // 4096 * 4096  # a clean end removes what was made and not used
    with open_small(tmp_path / "s") as store:
        assert store.put(Message("T", b"", queue_id=0)).queue_offset == 101


def test_a_file_made_ahead_is_left_by_a_crash_and_found(tmp_path: Path) -> None:
    program = (
        "import os, sys, mqstore\nfrom store.support import SMALL\n"
        "from store.test_write_buffers import put, wait_for_files\nfrom pathlib import Path\n"
        "store = mqstore.open(sys.argv[1], warm_maped_file_enable=True, **SMALL)\n"
        "put(store, 0, 5)\nstore.wait_dispatched()\nwait_for_files(Path(sys.argv[1]), 2)\nos._exit(9)\n"
    )
    die(program, tmp_path / "s")
    assert log_names(tmp_path / "s") == [0, 4096]
    assert findings(tmp_path / "s") == []
    with open_small(tmp_path / "s", warm_maped_file_enable=True) as store:
        put(store, 5, 100)
    assert bodies(tmp_path / "s") == [body_of(number) for number in range(100)]


@pytest.mark.parametrize(
    "look",
    [
        lambda log, end: [chunk.columns.position for chunk in log.scan()],
        lambda log, end: log._end_from(0),
        lambda log, end: log.is_damaged_at(end),
        lambda log, end: log.record_behind(end),
        lambda log, end: list(log.blanks()),
    ],
)
def test_a_file_made_ahead_goes_beside_a_reader_that_has_listed_it(
    tmp_path: Path, look: Callable[[LogReader, int], object]
) -> None:
    with open_small(tmp_path / "s", warm_maped_file_enable=True) as store:
        put(store, 0, 5)
        end = store.log_end
        wait_for_files(tmp_path / "s", 2)
        log = LogReader([tmp_path / "s" / "commitlog"])
    assert len(log.inventory.entries) == 2
    assert log_names(tmp_path / "s") == [0]
    assert look(log, end) == look(LogReader([tmp_path / "s" / "commitlog"]), end)


def test_a_file_that_cannot_be_made_ahead_is_made_when_it_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserve = durable.reserve

    def limited(fd: int, start: int, end: int, path: Path) -> None:
        if Path(path).name == f"{4096:020d}":
            raise mqstore.DiskFullError("no space", path=path)
        reserve(fd, start, end, path)

    with open_small(tmp_path / "s", warm_maped_file_enable=True) as store:
        with monkeypatch.context() as patch:
            patch.setattr(durable, "reserve", limited)
            taken = 0
            with pytest.raises(mqstore.DiskFullError):  # noqa: PT012
                while True:
                    put(store, taken, taken + 1)
                    taken += 1
        put(store, taken, taken + 40)
    assert bodies(tmp_path / "s") == [body_of(number) for number in range(taken + 40)]


def test_an_interrupt_while_buffers_are_committed_leaves_no_hole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_at = durable.write_at

    def interrupted(fd: int, data: bytes | memoryview, position: int, path: Any) -> None:
        raise KeyboardInterrupt

    with open_small(tmp_path / "s", **BUFFERED) as store:
        put(store, 0, 30)
        assert store.log_end > 4096
        with monkeypatch.context() as patch:
            patch.setattr(durable, "write_at", interrupted)
            with pytest.raises(KeyboardInterrupt):
                store.flush()
        assert durable.write_at is write_at
        store.flush()
        assert bodies(tmp_path / "s") == [body_of(number) for number in range(30)]
    assert findings(tmp_path / "s") == []
