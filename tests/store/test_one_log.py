"""A commit log has one writer, also when several stores lead to it."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import mqstore
from mqstore import CorruptFileError, Message, StoreLockedError
from store.support import bodies, fill, open_small, tree


@pytest.fixture
def log(tmp_path: Path) -> str:
    return str(tmp_path / "log")


def test_a_second_store_on_the_same_log_is_kept_out(tmp_path: Path, log: str) -> None:
    with open_small(tmp_path / "a", store_path_commit_log=log) as first:
        first.put(Message("T", b"one", queue_id=0))
        first.flush()
        before = tree(Path(log))
        with pytest.raises(StoreLockedError, match=r"this one") as caught:
            open_small(tmp_path / "b", store_path_commit_log=log)
        assert caught.value.path == log
        assert tree(Path(log)) == before
        first.put(Message("T", b"two", queue_id=0))
    assert bodies(tmp_path / "a") == [b"one", b"two"]
    with open_small(tmp_path / "b", store_path_commit_log=log) as second:  # one after the other they may
        assert second.put(Message("T", b"three", queue_id=0)).queue_offset == 2


def test_a_copy_of_a_store_whose_log_lies_elsewhere_is_kept_out(tmp_path: Path) -> None:
    fill(tmp_path / "s", 10, store_path_commit_log=f"{tmp_path / 'x'},{tmp_path / 'y'}")
    shutil.copytree(tmp_path / "s", tmp_path / "copy")
    os.symlink(tmp_path / "s", tmp_path / "link")
    with open_small(tmp_path / "s"):
        with pytest.raises(StoreLockedError, match="of the commit log"):
            open_small(tmp_path / "copy")
        queues = tree(tmp_path / "copy" / "consumequeue")
        with pytest.raises(StoreLockedError, match="of the commit log"):
            mqstore.rebuild(tmp_path / "copy", None, in_place=True)
        assert tree(tmp_path / "copy" / "consumequeue") == queues
        with pytest.raises(StoreLockedError):
            open_small(tmp_path / "link")
        mqstore.inspect(tmp_path / "copy").close()
    open_small(tmp_path / "copy").close()
    mqstore.rebuild(tmp_path / "copy", None, in_place=True)


def test_another_process_is_kept_out_and_told_by_whom(tmp_path: Path, log: str) -> None:
    script = (
        f"import mqstore, sys; s = mqstore.open({str(tmp_path / 'a')!r}, store_path_commit_log={log!r});"
        "print('open', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"open\n"
        with pytest.raises(StoreLockedError, match=rf"process {other.pid}\b|another process"):
            open_small(tmp_path / "b", store_path_commit_log=log)
        other.communicate()
    open_small(tmp_path / "b", store_path_commit_log=log).close()


def test_directories_that_only_hold_old_files_may_be_shared_but_nobody_writes_there(tmp_path: Path, log: str) -> None:
    Path(log).mkdir()
    with open_small(tmp_path / "a", read_only_commit_log_store_paths=log):
        open_small(tmp_path / "b", read_only_commit_log_store_paths=log).close()
        with pytest.raises(StoreLockedError):
            open_small(tmp_path / "c", store_path_commit_log=log)


def test_an_open_that_fails_lets_go_of_the_log(tmp_path: Path) -> None:
    fill(tmp_path / "s", 60)
    file = sorted((tmp_path / "s" / "commitlog").iterdir())[1]
    file.rename(tmp_path / "kept")
    with pytest.raises(CorruptFileError):
        open_small(tmp_path / "s")
    (tmp_path / "kept").rename(file)
    open_small(tmp_path / "s").close()


def test_a_child_of_a_fork_does_not_keep_the_log_locked(tmp_path: Path) -> None:
    ready, done = os.pipe(), os.pipe()
    store = open_small(tmp_path / "s")
    pid = os.fork()
    if pid == 0:
        os.write(ready[1], b"x")
        os.read(done[0], 1)
        os._exit(0)
    try:
        os.read(ready[0], 1)
        store.put(Message("T", b"m", queue_id=0))
        (tmp_path / "t").mkdir()
        with pytest.raises(StoreLockedError):  # nor has it given up its parent's
            open_small(tmp_path / "t", store_path_commit_log=str(tmp_path / "s" / "commitlog"))
        store.close()
        open_small(tmp_path / "s").close()
    finally:
        os.write(done[1], b"x")
        os.waitpid(pid, 0)
        for end in (*ready, *done):
            os.close(end)


def test_where_directories_cannot_be_locked_the_store_opens_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def flock(fd: int, operation: int) -> None:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))

    monkeypatch.setattr(fcntl, "flock", flock)
    with caplog.at_level(logging.WARNING), open_small(tmp_path / "s") as store:
        store.put(Message("T", b"m", queue_id=0))
    assert "no second writer is kept out" in caplog.text


def test_nothing_is_put_into_the_log_for_it(tmp_path: Path) -> None:
    with open_small(tmp_path / "s") as store:
        store.put(Message("T", b"m", queue_id=0))
        assert [path.name for path in (tmp_path / "s" / "commitlog").iterdir()] == ["0" * 20]
