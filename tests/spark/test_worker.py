"""What is done once in every Python worker of Spark."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import runpy
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mqstore.spark import sessions, worker
from mqstore.spark.java import environment
from mqstore.spark.on_path import mqstore_daemon
from mqstore.spark.tasks import run_tasks
from project.source import ROOT


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


SETTLED = """
import sys
from pyspark import daemon
from mqstore.spark import worker
sys.modules["__main__"] = daemon
worker.mqstore_daemon.leave_in_silence(daemon)
daemon.manager()
"""
DAEMONS = {
    "of this package": ["-m", "mqstore_daemon", "pyspark.worker"],
    "whose worker has settled": ["-c", SETTLED, "pyspark.worker"],
    "of Spark itself": ["-m", "pyspark.daemon", "pyspark.worker"],
}


@pytest.fixture
def short_path() -> Iterator[str]:
    """A directory for Unix sockets, whose names have 107 bytes at most."""
    with tempfile.TemporaryDirectory(prefix="mq-") as directory:
        yield directory


@pytest.mark.parametrize("kind", DAEMONS)
def test_workers_of_the_daemon_go_in_silence(kind: str, short_path: str) -> None:
    """Also those that never run anything of this package. Those of Spark's own daemon say that they cannot."""
    variables = os.environ | {
        "PYTHONPATH": str(Path(mqstore_daemon.__file__).parent),
        "PYTHON_UNIX_DOMAIN_ENABLED": "true",
        "PYTHON_WORKER_FACTORY_SOCK_DIR": short_path,
        "SPARK_REUSE_WORKER": "1",
    }
    with subprocess.Popen(
        [sys.executable, *DAEMONS[kind]],
        env=variables,
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
    if kind == "of Spark itself":
        assert "BrokenPipeError" in said
    else:
        assert said == ""


def _wait_until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_workers_of_one_machine_are_of_our_daemon(spark: Any) -> None:
    assert run_tasks(spark, lambda _: sys.modules["__main__"].__spec__.name, [1]) == ["mqstore_daemon"]
    assert str(Path(mqstore_daemon.__file__).parent) not in os.environ.get("PYTHONPATH", "").split(os.pathsep)
    assert sessions._settings("local", {})["spark.python.daemon.module"] == "mqstore_daemon"
    assert sessions._settings("local", {"spark.python.daemon.module": "own"})["spark.python.daemon.module"] == "own"
    assert "spark.python.daemon.module" not in sessions._settings("spark://there:7077", {})


SUBMITTED = """
import sys
import mqstore.spark
spark = mqstore.spark.session("local[1]")
print(spark.sparkContext.parallelize([1], 1).map(lambda x: sys.modules["__main__"].__spec__.name).collect())
spark.stop()
"""


def test_a_java_that_spark_submit_has_begun_does_not_know_of_it(tmp_path: Path) -> None:
    import pyspark

    (tmp_path / "job.py").write_text(SUBMITTED)
    submit = [Path(pyspark.__file__).parent / "bin" / "spark-submit", "--master", "local[1]", tmp_path / "job.py"]
    done = subprocess.run(submit, env=os.environ | environment(), capture_output=True, text=True, check=False)
    assert done.stdout == "['pyspark.daemon']\n", done.stderr


BEHIND_ANOTHER = """
import sys
from pyspark.sql import SparkSession
from mqstore.spark.java import environment
import mqstore.spark, os
os.environ |= environment()
quiet = "-Dlog4j2.configurationFile=" + mqstore.spark.sessions.LOG_SETTINGS.as_uri()
SparkSession.builder.master("local[1]").config("spark.driver.extraJavaOptions", quiet).getOrCreate().stop()
spark = mqstore.spark.session("local[1]")
print(spark.sparkContext.parallelize([1], 1).map(lambda x: sys.modules["__main__"].__spec__.name).collect())
spark.stop()
"""


def test_benchmarks_find_the_workers_whose_memory_they_measure(spark: Any) -> None:
    found = runpy.run_path(str(ROOT / "bench" / "spark_processes.py"))["processes"]()
    kinds = {int(process.name): kind for kind, process in found if process.name != "self"}
    assert {kinds.get(process) for process in run_tasks(spark, lambda _: os.getpid(), range(4))} == {"worker"}
    assert list(kinds.values()).count("java") == 1


def test_a_java_that_others_have_begun_does_not_know_of_it() -> None:
    done = subprocess.run([sys.executable, "-c", BEHIND_ANOTHER], capture_output=True, text=True, check=False)
    assert done.stdout == "['pyspark.daemon']\n", done.stderr


def test_a_broken_pipe_between_tasks_is_its_owners_affair(spark: Any) -> None:
    """A thread that outlives its task may write to somebody who has gone; the worker has work all the same."""

    def leave_a_thread(_: int) -> int:
        def write_to_nobody() -> None:
            time.sleep(0.3)
            one, other = socket.socketpair()
            other.close()
            with contextlib.suppress(BrokenPipeError):
                one.sendall(b"x")

        threading.Thread(target=write_to_nobody, daemon=True).start()
        return os.getpid()

    numbers = spark.sparkContext.parallelize([1, 2], 2)
    before = set(numbers.map(leave_a_thread).collect())
    time.sleep(1)
    assert before & set(numbers.map(lambda _: os.getpid()).collect())


BARE = """
import sys
sys.path[:] = {path!r}  # not what a process that this one begins has
import mqstore.spark
spark = mqstore.spark.session("local[1]")
print(spark.sparkContext.parallelize([1], 1).map(lambda x: sys.modules["__main__"].__spec__.name).collect())
spark.stop()
"""


def test_workers_start_where_this_package_is_on_the_path_of_the_driver_alone(tmp_path: Path) -> None:
    """As from a script that puts it there. Another's file of its name in the working directory is no matter either."""
    (tmp_path / "mqstore.py").write_text("raise ImportError")
    done = subprocess.run(
        [sys.executable, "-c", BARE.format(path=sys.path)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("['mqstore_daemon']\n", "")


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
