"""Measure mqstore beside the real RocketMQ store, on the same machine, in the same run.

    python bench/run.py [--rounds 5] [--count 100000] [--versions 4.9.8,5.5.1] [--directory DIR] [--quick]

Rounds alternate between the stores, so that other load on the machine meets both. RocketMQ first puts as many
messages again that are not timed, for its virtual machine to compile what is measured. Results are medians with the
lowest and highest round, and ratios of medians; they go to ``bench/results/`` as JSON and Markdown. Rows without a
peer say so.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import shutil
import sqlite3
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

import mqstore
from interop import jvm, real_store
from mqstore import Message, kernels

SETTINGS = {"mapped_file_size_commit_log": 1 << 30, "default_topic_queue_nums": 4}
STRIDE = 7919
"""Prime, so that stepping by it modulo the count visits every number once."""
PASSES = 3
"""Reading is timed on the last of so many passes, on both sides."""

BROKER_SIZES = {
    "mappedFileSizeCommitLog": 1 << 30,
    "mappedFileSizeConsumeQueue": 6_000_000,
    "maxHashSlotNum": 5_000_000,
    "maxIndexNum": 20_000_000,
}
"""A stock broker's files, as ours are by default."""


@dataclass(frozen=True)
class Row:
    """One thing to measure: ``ours`` and ``peer`` give messages a second for a fresh directory."""

    name: str
    ours: Callable[[Path, int], float]
    peer: Callable[[real_store.RealStore, Path, int], float] | None = None


@dataclass
class Result:
    """All rounds of one row, in messages a second."""

    name: str
    ours: list[float] = field(default_factory=list)
    peers: dict[str, list[float]] = field(default_factory=dict)


def put_loop(size: int, threads: int = 1, mode: str = "ASYNC_FLUSH") -> Callable[[Path, int], float]:
    """``put`` one by one from ``threads`` threads, each to a queue of its own."""

    def measure(directory: Path, count: int) -> float:
        body = bytes(size)
        with mqstore.open(directory, flush_disk_type=mode, **SETTINGS) as store:

            def producer(queue_id: int) -> None:
                for number in range(queue_id, count, threads):
                    message = Message(
                        "BenchTopic", body, tags="bench", properties={"UNIQ_KEY": str(number)}, queue_id=queue_id
                    )
                    store.put(message)

            return count / _timed(producer, threads)

    return measure


def put_batches(size: int, batch: int) -> Callable[[Path, int], float]:
    """``put_batch`` from one thread."""

    def measure(directory: Path, count: int) -> float:
        body = bytes(size)
        with mqstore.open(directory, **SETTINGS) as store:
            started = time.perf_counter()
            for first in range(0, count, batch):
                store.put_batch(
                    [
                        Message("BenchTopic", body, tags="bench", properties={"UNIQ_KEY": str(number)}, queue_id=0)
                        for number in range(first, min(count, first + batch))
                    ]
                )
            return count / (time.perf_counter() - started)

    return measure


def read_back(directory: Path, count: int) -> float:
    """``get`` 32 at a time through one queue, decoded."""
    put_batches(1024, 1000)(directory, count)
    with mqstore.open(directory, **SETTINGS) as store:
        for _ in range(PASSES):
            started = time.perf_counter()
            offset = found = 0
            while (result := store.get("BenchTopic", 0, offset)).messages:
                found += len(result.messages)
                offset = result.next_offset
            seconds = time.perf_counter() - started
        return found / seconds


def query_all(directory: Path, count: int) -> float:
    """``query`` by unique key, one after the other in an order that jumps about, record checked and decoded."""
    put_batches(1024, 1000)(directory, count)
    with mqstore.open(directory, **SETTINGS) as store:
        for _ in range(PASSES):
            started = time.perf_counter()
            found = sum(
                len(store.query("BenchTopic", str(number * STRIDE % count), max_messages=32).messages)
                for number in range(count)
            )
            seconds = time.perf_counter() - started
        if found != count:
            raise RuntimeError(f"{found} of {count} messages were found")
        return count / seconds


def sqlite_put(mode: str) -> Callable[[Path, int], float]:
    """What many a Python program does instead: a row a message in SQLite, journal in WAL mode.

    ``mode`` is SQLite's ``synchronous``: OFF hands rows to the page cache as ASYNC_FLUSH does, FULL syncs each commit.
    """

    def measure(directory: Path, count: int) -> float:
        body = bytes(1024)
        directory.mkdir()
        with contextlib.closing(sqlite3.connect(directory / "queue.db", isolation_level=None)) as database:
            database.execute("PRAGMA journal_mode = WAL")
            database.execute(f"PRAGMA synchronous = {mode}")
            database.execute("CREATE TABLE messages (id INTEGER PRIMARY KEY, topic, queue, tags, key, body)")
            database.execute("CREATE INDEX by_key ON messages (topic, key)")
            started = time.perf_counter()
            for number in range(count):
                row = ("BenchTopic", 0, "bench", str(number), body)
                database.execute("INSERT INTO messages (topic, queue, tags, key, body) VALUES (?, ?, ?, ?, ?)", row)
            return count / (time.perf_counter() - started)

    return measure


def put_columns(directory: Path, count: int) -> float:
    """``put_table`` of 8,192 rows at a time, from one thread."""
    import pyarrow as pa

    rows = 8192
    same = {
        "topic": ["BenchTopic"] * rows,
        "body": [bytes(1024)] * rows,
        "tags": ["bench"] * rows,
        "queueId": [0] * rows,
    }
    tables = [
        pa.table({**same, "keys": [str(number) for number in range(first, first + rows)]}).slice(0, count - first)
        for first in range(0, count, rows)
    ]
    with mqstore.open(directory, **SETTINGS) as store:
        started = time.perf_counter()
        for table in tables:
            store.put_table(table)
        return count / (time.perf_counter() - started)


def open_store(directory: Path, count: int) -> float:
    """Opening what was closed in good order; messages in it a second."""
    put_batches(1024, 1000)(directory, count)
    return count / _open_seconds(directory)


def open_log_only(directory: Path, count: int) -> float:
    """Opening after a crash that left the log only, until queues and index are complete again."""
    _leave_log_only(directory, count)
    return count / _open_seconds(directory)


def _open_seconds(directory: Path) -> float:
    started = time.perf_counter()
    with mqstore.open(directory, **SETTINGS) as store:
        if not store.wait_dispatched(600):
            raise RuntimeError("the queues are not complete after ten minutes")
        return time.perf_counter() - started


def _leave_log_only(directory: Path, count: int) -> None:
    put_batches(1024, 1000)(directory, count)
    for name in ("consumequeue", "index"):
        shutil.rmtree(directory / name)
    for path in [directory / "checkpoint", *directory.glob("mqstore-*")]:
        path.unlink(missing_ok=True)
    (directory / "abort").touch()


def peer_open(store: real_store.RealStore, directory: Path, count: int) -> float:
    """The same in the real store: load, start, dispatch. Its virtual machine is running and cold, as at any start."""
    put_batches(1024, 1000)(directory, count)
    return count / store.open_seconds(directory, **BROKER_SIZES)


def peer_open_log_only(store: real_store.RealStore, directory: Path, count: int) -> float:
    """The same in the real store."""
    _leave_log_only(directory, count)
    return count / store.open_seconds(directory, **BROKER_SIZES)


def peer_put(
    size: int, threads: int = 1, mode: str = "ASYNC_FLUSH", batch: int = 1
) -> Callable[[real_store.RealStore, Path, int], float]:
    """The same loop of ``putMessage``, or ``putMessages``, in the real store."""

    def measure(store: real_store.RealStore, directory: Path, count: int) -> float:
        result = store.bench_put(
            directory,
            count=count,
            body_size_bytes=size,
            threads=threads,
            batch=batch,
            warm=count if mode == "ASYNC_FLUSH" else count // 4,
            flushDiskType=mode,
            **BROKER_SIZES,
        )
        if result["failed"]:
            raise RuntimeError(f"{result['failed']} puts failed in RocketMQ {store.version}")
        return float(result["messagesPerSecond"])

    return measure


def peer_get(store: real_store.RealStore, directory: Path, count: int) -> float:
    """``getMessage`` of the real store and its decoder, over the same messages."""
    result = store.bench_get(directory, count=count, body_size_bytes=1024, **BROKER_SIZES)
    if result["failed"]:
        raise RuntimeError(f"{result['failed']} messages failed in RocketMQ {store.version}")
    return float(result["messagesPerSecond"])


def peer_query(store: real_store.RealStore, directory: Path, count: int) -> float:
    """``queryMessage`` of the real store and its decoder, over the same keys."""
    result = store.bench_query(directory, count=count, body_size_bytes=1024, **BROKER_SIZES)
    if result["failed"]:
        raise RuntimeError(f"{result['failed']} look-ups failed in RocketMQ {store.version}")
    return float(result["messagesPerSecond"])


def _timed(producer: Callable[[int], None], threads: int) -> float:
    workers = [threading.Thread(target=producer, args=(number,)) for number in range(threads)]
    started = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return time.perf_counter() - started


def rows() -> list[Row]:
    """What is measured."""
    return [
        Row("put, 100 B, 1 thread", put_loop(100), peer_put(100)),
        Row("put, 1 KiB, 1 thread", put_loop(1024), peer_put(1024)),
        Row("put, 4 KiB, 1 thread", put_loop(4096), peer_put(4096)),
        Row("put, 1 KiB, 4 threads", put_loop(1024, 4), peer_put(1024, 4)),
        Row("put, 1 KiB, SYNC_FLUSH, 1 thread", put_loop(1024, 1, "SYNC_FLUSH"), peer_put(1024, 1, "SYNC_FLUSH")),
        Row("put, 1 KiB, SYNC_FLUSH, 8 threads", put_loop(1024, 8, "SYNC_FLUSH"), peer_put(1024, 8, "SYNC_FLUSH")),
        Row("put_batch of 32, 1 KiB", put_batches(1024, 32), peer_put(1024, batch=32)),
        Row("put_table beside put_batch of 32, 1 KiB", put_columns, peer_put(1024, batch=32)),
        Row("get, 32 a time, 1 KiB, decoded", read_back, peer_get),
        Row("query by key, 1 KiB, record checked", query_all, peer_query),
        Row("open after a clean stop, 1 KiB", open_store, peer_open),
        Row("open with the log only, 1 KiB", open_log_only, peer_open_log_only),
    ]


def sqlite_rows() -> list[Row]:
    """SQLite in our place, for comparison with the rows above."""
    return [
        Row("SQLite insert, 1 KiB, synchronous OFF", sqlite_put("OFF")),
        Row("SQLite insert, 1 KiB, synchronous FULL", sqlite_put("FULL")),
    ]


def measure_all(arguments: argparse.Namespace) -> list[Result]:
    """Run all rounds; a peer that cannot be had is told on standard error and left out."""
    peers = {}
    scratch = Path(tempfile.mkdtemp(prefix="mqstore-bench-", dir=arguments.directory))
    for version in filter(None, arguments.versions.split(",")):
        try:
            peers[version] = real_store.prepare(version, scratch)
        except jvm.Unavailable as error:
            print(f"no RocketMQ {version} beside: {error}", file=sys.stderr)
    results = []
    for row in [*rows(), *sqlite_rows()]:
        count = arguments.count // 20 if "SYNC" in row.name or "FULL" in row.name else arguments.count
        result = Result(row.name, peers={version: [] for version in peers if row.peer})
        for round_number in range(arguments.rounds):
            with tempfile.TemporaryDirectory(dir=scratch) as directory:
                result.ours.append(row.ours(Path(directory) / "ours", count))
                for version, store in peers.items() if row.peer else ():
                    assert row.peer is not None
                    result.peers[version].append(row.peer(store, Path(directory) / version, count))
            print(f"{row.name}: round {round_number + 1} of {arguments.rounds}", file=sys.stderr)
        results.append(result)
    return results


def report(results: list[Result], arguments: argparse.Namespace) -> str:
    """The results as Markdown."""
    versions = sorted({version for result in results for version in result.peers})
    lines = [
        f"# Measured on {datetime.now(timezone.utc):%Y-%m-%d}",
        "",
        f"{machine()}; kernels {kernels.NAME}; stores on {file_system(arguments.directory)};",
        f"RocketMQ's virtual machine with {' '.join(real_store.BENCH_OPTIONS)}.",
        f"{arguments.count} messages a round (a twentieth under SYNC_FLUSH),",
        f"{arguments.rounds} rounds, alternating. Medians, messages a second (lowest to highest); ratio: ours by",
        "theirs.",
        "",
        "| | mqstore | " + " | ".join(f"RocketMQ {version} | ratio" for version in versions) + " |",
        "|---|---|" + "---|---|" * len(versions),
    ]
    for result in results:
        cells = [result.name, spread(result.ours)]
        for version in versions:
            rates = result.peers.get(version)
            cells += (
                [spread(rates), f"{statistics.median(result.ours) / statistics.median(rates):.2f}"]
                if rates
                else ["no peer", ""]
            )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def spread(rates: list[float]) -> str:
    """Median with the extremes."""
    return f"{statistics.median(rates):,.0f} ({min(rates):,.0f} to {max(rates):,.0f})"


def file_system(directory: str | None) -> str:
    """The kind of file system that the stores are on."""
    place = os.path.realpath(directory or tempfile.gettempdir())
    with open("/proc/mounts", encoding="utf-8") as lines:
        mounts = [line.split()[1:3] for line in lines]
    return max((mount for mount in mounts if Path(place).is_relative_to(mount[0])), key=lambda one: len(one[0]))[1]


def machine() -> str:
    """Processor, cores and Python."""
    model = platform.machine()
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        model = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), model)
    return f"{model}, {os.cpu_count()} cores, Python {platform.python_version()}"


def main(words: list[str] | None = None) -> list[Result]:
    """Measure, print and keep the report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--versions", default="4.9.8,5.5.1", help="releases of RocketMQ to measure beside; empty: none")
    parser.add_argument("--directory", default=None, help="where the stores go; default: the temporary directory")
    parser.add_argument("--output", type=Path, default=ROOT / "bench" / "results")
    parser.add_argument("--quick", action="store_true", help="one small round, to see that everything runs")
    arguments = parser.parse_args(words)
    if arguments.quick:
        arguments.rounds, arguments.count = 1, 1000
    results = measure_all(arguments)
    text = report(results, arguments)
    print(text)
    arguments.output.mkdir(parents=True, exist_ok=True)
    (arguments.output / "store.md").write_text(text, encoding="utf-8")
    kept = [{"name": result.name, "ours": result.ours, "peers": result.peers} for result in results]
    (arguments.output / "store.json").write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    return results


if __name__ == "__main__":
    main()
