"""What recover and reindex make anew has its name when it is complete, however they are broken off."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mqstore.kafka as kafka
from kafka_log.support import (
    TOPIC,
    bad,
    files_of,
    flip,
    log_files,
    mark_crashed,
    message,
    open_small,
    partition_of,
    tree,
)
from mqstore.errors import DiskFullError
from mqstore.files import durable
from mqstore.layout.kafka.names import FileKind

KILLED = """
import os, signal, sys
import mqstore.kafka as kafka
from mqstore.files import durable
source, output, call, left = *sys.argv[1:4], int(sys.argv[4])
original = durable.sync_file
def sync_file(fd, path):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    original(fd, path)
durable.sync_file = sync_file
getattr(kafka, call)(source, output=output)
"""
CALLS: dict[str, Callable[..., Any]] = {"recover": kafka.recover, "reindex": kafka.reindex}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Two partitions with indexes to be made anew."""
    path = tmp_path / "log"
    with open_small(path) as store:
        for number in range(100):
            store.put(message(number, partition=number % 2))
    for partition in (0, 1):
        for index in files_of(path / f"{TOPIC}-{partition}", FileKind.OFFSET_INDEX):
            index.write_bytes(b"\1" * 40)
    mark_crashed(path)
    return path


def step_counter(monkeypatch: pytest.MonkeyPatch, fail_at: int | None) -> list[int]:
    """Count what is written, and let the disk be full in front of number ``fail_at``."""
    seen = [0]
    original = durable.write_at

    def write_at(fd: int, data: bytes, position: int, path: Path | str) -> None:
        seen[0] += 1
        if fail_at is not None and seen[0] >= fail_at:
            raise DiskFullError("no space left", path=path)
        original(fd, data, position, path)

    monkeypatch.setattr(durable, "write_at", write_at)
    return seen


@pytest.mark.parametrize("call", CALLS)
class TestBrokenOff:
    def test_a_full_disk(self, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
        before = sorted(one.name for one in tmp_path.iterdir())
        with monkeypatch.context() as patch:
            steps = step_counter(patch, None)
            CALLS[call](log, output=tmp_path / "whole")
        whole = tree(tmp_path / "whole")
        before.append("whole")
        assert steps[0] > 8
        for fail_at in {1, 2, steps[0] // 3, steps[0] // 2, steps[0] - 1, steps[0]}:
            with monkeypatch.context() as patch:
                step_counter(patch, fail_at)
                with pytest.raises(DiskFullError):
                    CALLS[call](log, output=tmp_path / "output")
            assert sorted(one.name for one in tmp_path.iterdir()) == before, fail_at
        CALLS[call](log, output=tmp_path / "output")
        assert tree(tmp_path / "output") == whole

    @pytest.mark.parametrize("left", [1, 5, 9])
    def test_a_kill(self, log: Path, tmp_path: Path, call: str, left: int) -> None:
        output = tmp_path / "output"
        command = [sys.executable, "-W", "ignore", "-c", KILLED, str(log), str(output), call, str(left)]
        done = subprocess.run(command, capture_output=True, check=False)
        assert done.returncode == -signal.SIGKILL, done.stderr.decode()
        assert not output.exists()
        assert (tmp_path / ".output.partial").exists()
        CALLS[call](log, output=output)
        CALLS[call](log, output=tmp_path / "whole")
        assert tree(output) == tree(tmp_path / "whole")
        assert sorted(one.name for one in tmp_path.iterdir()) == ["log", "output", "whole"]


def test_what_is_told_lies_in_the_output(log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flip(log_files(log)[1], 70)
    output = tmp_path / "output"
    report = kafka.recover(log, output=output)
    assert report.output == output
    assert [one.directory for one in report.partitions] == [output / f"{TOPIC}-0", output / f"{TOPIC}-1"]
    damage = report.partitions[0].damage
    assert damage is not None
    assert damage.path == partition_of(output) / log_files(log)[1].name
    assert bad(kafka.check(output)) == []
    monkeypatch.chdir(tmp_path)
    written = kafka.reindex("log", output="indexes")
    assert written
    assert all(path.is_file() and path.parent.parent == Path("indexes") for path in written)
    single = kafka.recover(partition_of(log), output="single").partitions
    assert [one.directory for one in single] == [Path("single")]
