"""The processes of a benchmark on Spark, and how much memory each has had."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

WORKER_MARKS = (b"pyspark.daemon", b"mqstore_daemon", b"pyspark.worker", b"pyspark/daemon.py", b"pyspark/worker.py")
JAVA_MARK = b"org.apache.spark.deploy.SparkSubmit"
RESET_PEAK = "5"  # see proc_pid_clear_refs(5)


def processes() -> list[tuple[str, Path]]:
    """This process, the Java that it started and the Python workers of that, each with its kind."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    found = [("driver", Path("/proc/self"))]
    own = os.getpid()
    for pid in parents:
        line = pid
        while line in parents and line != own:
            line = parents[line]
        if line != own or pid == own:
            continue
        with contextlib.suppress(OSError):
            words = (Path("/proc") / str(pid) / "cmdline").read_bytes()
            if JAVA_MARK in words:  # it is told what workers to begin
                found.append(("java", Path("/proc") / str(pid)))
            elif any(mark in words for mark in WORKER_MARKS):
                found.append(("worker", Path("/proc") / str(pid)))
    return found


def high_water_bytes(process: Path) -> int:
    """The most resident memory that a process has had since it was last set back."""
    lines = (process / "status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) << 10


def reset_high_water(process: Path) -> None:
    """Let a process's :func:`high_water_bytes` begin anew, if it is still there."""
    with contextlib.suppress(OSError):
        (process / "clear_refs").write_text(RESET_PEAK)
