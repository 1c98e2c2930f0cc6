"""Small files are replaced through temporary ones, which nothing leaves for long."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import mqstore.kafka as kafka
from kafka_log.support import TOPIC, bad, fill, message, open_small, partition_of, tree
from mqstore.errors import DiskFullError, StoreIOError
from mqstore.files import durable
from mqstore.layout.kafka import names

NOTE = "left by a writer that was stopped while it replaced a small file, or is at it now"
KILLED = """
import os, signal, sys
import mqstore.kafka as kafka
store = kafka.open(sys.argv[1])
store.roll("t")
store.put(kafka.KafkaMessage("t", b"x"))
rename = os.rename
def die(path, target):
    if str(target).endswith(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    rename(path, target)
os.rename = die
store.roll("t")
store.close()
"""


def temporaries(path: Path) -> list[Path]:
    return sorted(path.rglob("*.tmp"))


@pytest.mark.parametrize("call", ["pwrite", "fchmod", "fdatasync", "rename"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_failure_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int) -> None:
    def fail(*args: object) -> None:
        raise OSError(code, os.strerror(code))

    path = tmp_path / "file"
    durable.replace_file(path, b"old")
    monkeypatch.setattr(os, call, fail)
    with pytest.raises(DiskFullError if code == errno.ENOSPC else StoreIOError):
        durable.replace_file(path, b"new")
    assert tree(tmp_path) == {"file": b"old"}


def test_a_full_disk_while_topics_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = durable.write_at

    def write_at(fd: int, data: bytes, position: int, path: Path) -> None:
        if "b-1" in str(path):
            raise DiskFullError("no space left", path=path)
        original(fd, data, position, path)

    with open_small(tmp_path) as store:
        with monkeypatch.context() as patch:
            patch.setattr(durable, "write_at", write_at)
            with pytest.raises(DiskFullError):
                store.create_topics({"a": 2, "b": 2})
        assert temporaries(tmp_path) == []
        store.create_topics({"a": 2, "b": 2})
        store.put(message(1, topic="b", partition=1))
    assert bad(kafka.check(tmp_path)) == []


@pytest.mark.parametrize("target", [".snapshot", names.RECOVERY_POINTS, names.CLEAN_SHUTDOWN])
@pytest.mark.parametrize("way", ["open", "recover"])
def test_those_of_a_kill_are_told_and_removed(tmp_path: Path, target: str, way: str) -> None:
    log = tmp_path / "log"
    fill(log, 30)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", KILLED, str(log), target], capture_output=True, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    (left,) = temporaries(log)
    assert [one.path for one in kafka.check(log) if one.message == NOTE] == [str(left)]
    kafka.recover(log)
    assert temporaries(log) == [left]
    if way == "open":
        open_small(log).close()
    else:
        kafka.recover(log, in_place=True)
    assert temporaries(log) == []
    with kafka.inspect(log) as view:
        assert view.max_offset(TOPIC) == 31
    assert bad(kafka.check(log)) == []


def test_what_only_looks_like_one_stays(tmp_path: Path) -> None:
    fill(tmp_path, 30)
    ours = [
        tmp_path / f"{names.RECOVERY_POINTS}.tmp",
        tmp_path / f".{names.CLEAN_SHUTDOWN}.ab_4efgh.tmp",
        partition_of(tmp_path) / f"{names.LEADER_EPOCHS}.tmp",
        partition_of(tmp_path) / f".{0:020d}.index.abcdefgh.tmp",
        partition_of(tmp_path) / f"{7:020d}.snapshot.tmp",
    ]
    theirs = [
        tmp_path / "notes.tmp",
        tmp_path / ".notes.abcdefgh.tmp",
        partition_of(tmp_path) / f"{0:020d}.log.tmp",
        partition_of(tmp_path) / ".tmp",
    ]
    for path in ours + theirs:
        path.write_bytes(b"x")
    assert {one.path for one in kafka.check(tmp_path) if one.message == NOTE} == set(map(str, ours))
    open_small(tmp_path).close()
    assert temporaries(tmp_path) == sorted(theirs)
