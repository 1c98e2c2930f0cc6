"""Recoveries that are killed after any of their system calls: the next one ends where an unbroken one does."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mqstore.kafka as kafka
from kafka_log.support import (
    TOPIC,
    batch_positions,
    copy_of,
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
from mqstore.layout.kafka import names

CALLS = ("open", "ftruncate", "unlink", "rename", "pwrite")  # a sync changes nothing that a kill leaves


def recover(path: Path) -> None:
    kafka.recover(path, in_place=True, index_interval_bytes=150)


def start(path: Path) -> None:
    open_small(path).close()


def killed(action: Callable[[Path], None], path: Path, left: int) -> bool:
    """Do ``action`` in a child that dies right after its system call number ``left``; False if it had fewer."""
    child = os.fork()
    if child == 0:
        try:
            for name in CALLS:
                setattr(os, name, counted(getattr(os, name), left))
            action(path)
            os._exit(0)
        finally:
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 9)
    return code == 9


_made = 0


def counted(call: Callable[..., Any], left: int) -> Callable[..., Any]:
    def counting(*arguments: Any, **options: Any) -> Any:
        global _made
        result = call(*arguments, **options)
        if call.__name__ == "open" and not arguments[1] & os.O_CREAT:
            return result
        _made += 1
        if _made == left:
            os._exit(9)
        return result

    return counting


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four segments with a producer; the second is damaged in its middle."""
    path = tmp_path_factory.mktemp("damaged") / "log"
    with open_small(path, segment_bytes=1200) as store:
        producer = store.producer()
        for number in range(25):
            producer.put(message(number, size=80))
    assert len(log_files(path)) == 4
    second = log_files(path)[1]
    flip(second, batch_positions(second)[3] + 70)
    mark_crashed(path)
    return path


def lost(path: Path) -> bool:
    return any(one.damage is not None for one in kafka.recover(path, index_interval_bytes=150).partitions)


def check_all_kills(action: Callable[[Path], None], source: Path, whole: Path) -> int:
    """Kill ``action`` after each of its system calls, and do it again; how many calls it has.

    What a kill leaves either tells its damage still, or has the log of the unbroken run.
    """
    copy_of(source, whole)
    action(whole)
    wanted, logs = tree(partition_of(whole)), [log.read_bytes() for log in log_files(whole)]
    path, left = whole.with_name("killed"), 1
    while True:
        copy_of(source, path)
        if not killed(action, path, left):
            return left - 1
        assert lost(path) or [log.read_bytes() for log in log_files(path)] == logs, left
        action(path)
        assert tree(partition_of(path)) == wanted, left
        shutil.rmtree(path)
        left += 1


@pytest.mark.parametrize("action", [recover, start])
def test_damage_in_the_middle(damaged: Path, tmp_path: Path, action: Callable[[Path], None]) -> None:
    assert check_all_kills(action, damaged, tmp_path / "whole") > 15
    assert len(log_files(tmp_path / "whole")) == 2


def test_a_torn_end_in_spite_of_a_clean_stop(tmp_path: Path) -> None:
    """The indexes that a kill leaves hold nothing of what was cut off: no later start would look at them again."""
    source = tmp_path / "source"
    with open_small(source) as store:
        for number in range(10):
            store.put(message(number))
    (log,) = log_files(source)
    os.truncate(log, log.stat().st_size - 5)
    assert check_all_kills(start, source, tmp_path / "whole") > 5


def test_a_replacement_that_was_broken_off(tmp_path: Path) -> None:
    """A ``.cleaned`` shows that the ``.swap`` behind it was broken off: it goes after it."""
    source = tmp_path / "source"
    with open_small(source) as store:
        for number in range(60):
            store.put(message(number))
    first, second = log_files(source)[:2]
    shutil.copy(second, f"{second}.swap")
    os.truncate(f"{second}.swap", batch_positions(second)[2])
    shutil.copy(first, f"{first}.cleaned")
    assert check_all_kills(start, source, tmp_path / "whole") > 5
    assert log_files(tmp_path / "whole")[1].read_bytes() == second.read_bytes()


def test_a_full_disk_does_not_hide_the_loss(damaged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = copy_of(damaged, tmp_path / "log")
    (path / names.HIGH_WATERMARKS).write_text(f"0\n1\n{TOPIC} 0 40\n")
    original = durable.replace_file

    def replace_file(where: Path, data: bytes) -> None:
        if where.name == names.HIGH_WATERMARKS:
            raise DiskFullError("no space left", path=where)
        original(where, data)

    with monkeypatch.context() as patch:
        patch.setattr(durable, "replace_file", replace_file)
        with pytest.raises(DiskFullError):
            recover(path)
    assert lost(path)
    recover(path)
    assert not lost(path)
