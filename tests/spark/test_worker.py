"""What is done once in every Python worker of Spark."""

from __future__ import annotations

import gc
import importlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mqstore.spark import sessions, worker
from mqstore.spark.tasks import run_tasks

WRITE_TO_NOBODY = """
import os, sys
from pyspark import TaskContext
from mqstore.spark import worker
if sys.argv[1] == "task":
    TaskContext._setTaskContext(TaskContext())
worker._settle(0)
reader, writer = os.pipe()
os.close(reader)
try:
    os.write(writer, b"good-bye")
finally:
    print("goes on", flush=True)
"""


def _write_to_nobody(when: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", WRITE_TO_NOBODY, when], check=False, capture_output=True, text=True)


def test_what_a_worker_has_loaded_is_out_of_the_collectors_sight(spark: Any) -> None:
    frozen = run_tasks(spark, lambda _: gc.get_freeze_count(), [1, 2, 3])
    assert all(count > 10_000 for count in frozen)
    assert gc.get_freeze_count() == 0


def test_what_is_loaded_later_is_taken_out_as_well(spark: Any) -> None:
    def count(name: str) -> tuple[int, bool, int]:
        was_there = name in sys.modules
        importlib.import_module(name)
        return os.getpid(), was_there, gc.get_freeze_count()

    found: dict[int, list[tuple[bool, int]]] = {}
    for process, was_there, frozen in run_tasks(spark, count, ["sqlite3.dbapi2"] * 8):
        found.setdefault(process, []).append((was_there, frozen))
    counts = [one for one in found.values() if [was_there for was_there, _ in one[:2]] == [False, True]]
    assert counts, found
    assert all(one[1][1] > one[0][1] for one in counts), found


def test_nothing_is_done_outside_of_workers() -> None:
    worker.settle()
    assert gc.get_freeze_count() == 0


def test_a_worker_without_work_goes_in_silence_when_its_socket_is_closed() -> None:
    done = _write_to_nobody("idle")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_in_a_task_writing_to_nobody_is_an_error_as_ever() -> None:
    done = _write_to_nobody("task")
    assert done.stdout == "goes on\n"
    assert "BrokenPipeError" in done.stderr


@pytest.mark.parametrize("module", [worker.DAEMON, "pyspark.daemon"])
def test_all_workers_of_the_daemon_go_in_silence(module: str, tmp_path: Path) -> None:
    """Also those that never run anything of this package. Those of Spark's own daemon say that they cannot."""
    environment = os.environ | {
        "PYTHON_UNIX_DOMAIN_ENABLED": "true",
        "PYTHON_WORKER_FACTORY_SOCK_DIR": str(tmp_path),
        "SPARK_REUSE_WORKER": "1",
    }
    with subprocess.Popen(
        [sys.executable, "-m", module, "pyspark.worker"],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as daemon:
        assert daemon.stdin is not None
        assert daemon.stdout is not None
        assert daemon.stderr is not None
        address = daemon.stdout.read(int.from_bytes(daemon.stdout.read(4)))
        with socket.socket(socket.AF_UNIX) as to_worker:
            to_worker.settimeout(30)
            to_worker.connect(address)
            process = int.from_bytes(to_worker.recv(4))
        _wait_until(lambda: not Path(f"/proc/{process}").exists())
        daemon.stdin.close()
        said = daemon.stderr.read().decode()
    if module == worker.DAEMON:
        assert said == ""
    else:
        assert "BrokenPipeError" in said


def _wait_until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_workers_of_this_machine_are_of_our_daemon(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_tasks(spark, lambda _: sys.modules["__main__"].__spec__.name, [1]) == [worker.DAEMON]
    monkeypatch.setenv("PYSPARK_PYTHON", "/usr/bin/another-python")
    assert "spark.python.daemon.module" not in sessions._settings("local[2]", {})
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    assert "spark.python.daemon.module" in sessions._settings("local[2]", {})
    assert "spark.python.daemon.module" not in sessions._settings("spark://there:7077", {})


def test_workers_are_spoken_to_through_unix_sockets(spark: Any) -> None:
    assert spark.conf.get("spark.python.unix.domain.socket.enabled") == "true"


def test_a_task_does_not_keep_what_the_one_before_left(spark: Any) -> None:
    def fill(number: int) -> tuple[int, int]:
        import pyarrow as pa

        with open("/proc/self/statm") as file:
            resident_mib = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20
        buffers = [memoryview(pa.allocate_buffer(1 << 20)).cast("B") for _ in range(200)]
        for buffer in buffers:
            buffer[::4096] = bytes(256)
        return os.getpid(), resident_mib

    found: dict[int, list[int]] = {}
    for process, resident_mib in run_tasks(spark, fill, range(8)):
        found.setdefault(process, []).append(resident_mib)
    assert any(len(one) > 1 for one in found.values())
    assert all(later - first < 100 for first, *others in found.values() for later in others), found
