"""How much memory the Spark jobs take, and how long they do: with small bodies, large bodies, and a large store.

    python bench/spark_memory.py [--case 1024:1 --case 1048576:1 --case 1024:10] [--cores 2] [--directory DIR]

A case is BODY:GIB, bytes of a body and size of the log. Each makes a store with ``put_table`` and takes it through
every job on ``local[CORES]``; ``load`` makes a store of an eighth of it. Noted are the most resident memory that any
Python worker, the Java process and the driver in Python had during the job, as the kernel says (``VmHWM``, set back
before each). It takes up to two and a half times the store's size on the disk. Results go to
``bench/results/spark-memory.json`` and ``spark-memory.md``; what these say of other cases stays.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from spark_processes import high_water_bytes, processes, reset_high_water

import mqstore
import mqstore.spark
from mqstore.bench.machine import machine

RESULTS = Path(__file__).resolve().parent / "results"
TABLE_BYTES = 64 << 20
LOAD_PART = 8
LOOK_EVERY_S = 0.1
DRIVER_MEMORY = "1g"


class Peaks:
    """The most resident memory of this process's Java and Python workers, and of itself, while the block runs."""

    def __init__(self) -> None:
        self.bytes = {"worker": 0, "java": 0, "driver": 0}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Peaks:
        for _, process in processes():
            reset_high_water(process)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._look()

    def _watch(self) -> None:
        while not self._over.wait(LOOK_EVERY_S):
            self._look()

    def _look(self) -> None:
        for kind, process in processes():
            with contextlib.suppress(OSError, StopIteration):
                self.bytes[kind] = max(self.bytes[kind], high_water_bytes(process))


def make_store(path: Path, body_bytes: int, log_bytes: int) -> int:
    """Fill a store with tables, a third of each body random; the number of messages."""
    random = np.random.default_rng(7)
    rows = max(1, TABLE_BYTES // body_bytes)
    total = log_bytes // (body_bytes + 200)
    done = 0
    with mqstore.open(path) as store:
        while done < total:
            count = min(rows, total - done)
            bodies = np.zeros((count, body_bytes), np.uint8)
            bodies[:, : body_bytes // 3] = random.integers(0, 256, (count, body_bytes // 3), np.uint8)
            offsets = pa.array(np.arange(count + 1, dtype=np.int64) * body_bytes)
            numbers = np.arange(done, done + count)
            table = pa.table(
                {
                    "topic": pa.array([f"topic-{number % 10}" for number in numbers]),
                    "tags": pa.array([f"tag-{number % 3}" for number in numbers]),
                    "keys": pa.array([f"k-{number}" for number in numbers]),
                    "queueId": pa.array(numbers % 4, pa.int32()),
                    "body": pa.LargeBinaryArray.from_buffers(
                        pa.large_binary(), count, [None, offsets.buffers()[1], pa.py_buffer(bodies)]
                    ).cast(pa.binary()),
                }
            )
            store.put_table(table)
            store.wait_dispatched()
            done += count
    return done


def measure(work: Path, body_bytes: int, log_gib: float, cores: int, chosen: str) -> dict[str, Any]:
    """The jobs whose names match ``chosen``, on one store."""
    store = work / "store"
    messages = make_store(store, body_bytes, int(log_gib * 2**30))
    spark: Any = mqstore.spark.session(f"local[{cores}]", "memory", **{"spark.driver.memory": DRIVER_MEMORY})
    mqstore.spark.register(spark)
    jobs = mqstore.spark.jobs

    def read() -> None:
        spark.read.format("rocketmq").load(str(store)).write.format("noop").mode("overwrite").save()

    def load() -> None:
        frame = spark.read.format("rocketmq").options(columns="topic,tags,keys,queueId,body,physicalOffset")
        part = frame.load(str(store)).where(f"physicalOffset < {int(log_gib * 2**30) // LOAD_PART}")
        jobs.load(spark, part.drop("physicalOffset"), work / "loaded", store_timestamp_ms=1)

    works: dict[str, Callable[[], object]] = {
        "read, all columns": read,
        "export": lambda: jobs.export(spark, store, work / "exported"),
        "audit": lambda: jobs.audit(spark, store),
        "rebuild": lambda: jobs.rebuild(spark, store, work / "rebuilt"),
        f"load, a part of 1/{LOAD_PART}": load,
    }
    rows = {}
    try:
        for name, run in works.items():
            if re.match(chosen, name) is None:
                continue
            with Peaks() as peaks:
                started = time.perf_counter()
                run()
                seconds = time.perf_counter() - started
            rows[name] = {"seconds": seconds, **{f"{kind}PeakBytes": peak for kind, peak in peaks.bytes.items()}}
            told = ", ".join(f"{kind} {peak >> 20} MiB" for kind, peak in peaks.bytes.items())
            print(f"{body_bytes} B, {log_gib:g} GiB, {name}: {seconds:.1f} s, {told}", flush=True)
            for output in ("exported", "rebuilt", "loaded"):
                shutil.rmtree(work / output, ignore_errors=True)
    finally:
        spark.stop()
    return {"bodyBytes": body_bytes, "logGib": log_gib, "messages": messages, "cores": cores, "rows": rows}


def write(cases: dict[str, Any]) -> None:
    """All cases as JSON and Markdown."""
    (RESULTS / "spark-memory.json").write_text(json.dumps({"machine": machine(), "cases": cases}, indent=1) + "\n")
    lines = [
        "# Memory of the Spark jobs",
        "",
        f"{machine()}.",
        "The most resident memory in MiB that each kind of process had (`make bench-spark-memory`);",
        f"Java was allowed {DRIVER_MEMORY} of heap.",
        "",
        "| log | job | seconds | a Python worker | Java | driver's Python |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for case in cases.values():
        size = f"{case['logGib']:g} GiB, {case['messages']:,} bodies of {case['bodyBytes']:,} B, local[{case['cores']}]"
        for name, row in case["rows"].items():
            peaks = " | ".join(f"{row[f'{kind}PeakBytes'] / 2**20:.0f}" for kind in ("worker", "java", "driver"))
            lines.append(f"| {size} | {name} | {row['seconds']:.1f} | {peaks} |")
    (RESULTS / "spark-memory.md").write_text("\n".join(lines) + "\n")


def main() -> None:
    """Every case; what was measured before of others stays."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", action="append", metavar="BODY:GIB")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--jobs", default="", help="a regular expression: only the jobs whose names it matches")
    parser.add_argument("--directory", type=Path, help="where to put the data; left out: a temporary directory")
    arguments = parser.parse_args()
    results = RESULTS / "spark-memory.json"
    cases = json.loads(results.read_text())["cases"] if results.exists() else {}
    for case in arguments.case or ["1024:1", "1048576:1", "1024:10"]:
        body_bytes, _, gib = case.partition(":")
        with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
            cases[case] = measure(Path(directory), int(body_bytes), float(gib), arguments.cores, arguments.jobs)
        write(cases)


if __name__ == "__main__":
    sys.exit(main())
