"""What is measured on a store: each function does one kind of work and gives its figures.

All of them take the store's directory and how many messages there are to be. ``fill`` prepares a directory, which the
readers and ``open_store`` want; the others begin with an empty one. Rates are messages a second; ``open_kib`` is what
memory the process holds while the store is still open.
"""

from __future__ import annotations

import shutil
import threading
import time
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import mqstore
from mqstore import Message, Store, errors
from mqstore.bench.machine import resident_kib

Figures = dict[str, Any]

TOPIC: Final = "BenchTopic"
STRIDE: Final = 7919
"""Prime, so that stepping by it modulo the count visits every number once."""
PASSES: Final = 3
"""Reading is timed on the last of so many passes: a virtual machine beside needs them to compile what is measured."""
_ROWS: Final = 8192
_IDLE_S: Final = 0.001
_DISPATCH_S: Final = 600.0


def open_bench_store(directory: Path, mode: str = "ASYNC_FLUSH", file_bytes: int = 1 << 30) -> Store:
    """A store with a stock broker's files, unless ``file_bytes`` says how large those of the log are."""
    return mqstore.open(
        directory, flush_disk_type=mode, mapped_file_size_commit_log=file_bytes, default_topic_queue_nums=4
    )


def put(
    directory: Path,
    count: int,
    *,
    size: int = 1024,
    threads: int = 1,
    mode: str = "ASYNC_FLUSH",
    topics: int = 1,
    consumers: int = 0,
    file_bytes: int = 1 << 30,
    time_each: bool = False,
) -> Figures:
    """``put`` one by one from ``threads`` threads, each to a queue of its own, or round-robin to ``topics`` topics.

    ``consumers`` threads follow meanwhile, 32 messages a ``get``. With ``time_each`` the figures hold percentiles of
    the time that a put takes, in µs. Topics beyond the first are made before the time begins.
    """
    body = bytes(size)
    nanos = array("q", bytes(8 * count)) if time_each else None
    with open_bench_store(directory, mode, file_bytes) as store:
        names = [TOPIC] if topics == 1 else [f"bench{number}" for number in range(topics)]
        for name in names if topics > 1 else ():
            store.put(Message(name, body, queue_id=0, wait_store_msg_ok=False))
        store.wait_dispatched()

        def produce(first: int) -> None:
            for number in range(first, count, threads):
                message = Message(
                    names[number % topics],
                    body,
                    tags="bench",
                    properties={"UNIQ_KEY": str(number)},
                    queue_id=first if topics == 1 else 0,
                )
                if nanos is None:
                    store.put(message)
                else:
                    before = time.perf_counter_ns()
                    store.put(message)
                    nanos[number] = time.perf_counter_ns() - before

        with Followers(store, consumers, threads) as followers:
            seconds = run_threads(produce, threads)
            store.wait_dispatched()
            dispatched_s = time.perf_counter() - followers.started
        figures: Figures = {"open_kib": resident_kib()}
    figures |= {"per_second": count / seconds, "dispatched_per_second": count / dispatched_s}
    if nanos is not None:
        figures |= percentiles(nanos)
    if consumers:
        figures["consumed"] = followers.consumed
    return figures


def run_threads(work: Callable[[int], None], threads: int) -> float:
    """Run ``work(number)`` in so many threads; the seconds until all are done. Raises what one of them raised."""
    failures: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=guarded, args=(number,)) for number in range(threads)]
    started = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    seconds = time.perf_counter() - started
    if failures:
        raise failures[0]
    return seconds


class Followers:
    """Consumers beside the producers: threads that share the queues and go on until the block ends and all is got."""

    def __init__(self, store: Store, consumers: int, queues: int) -> None:
        self._store = store
        self._queues = queues
        self._stopped = threading.Event()
        self._offsets = [0] * queues
        self._threads = [
            threading.Thread(target=self._follow, args=(range(number, queues, consumers),))
            for number in range(min(consumers, queues))
        ]

    @property
    def consumed(self) -> int:
        """How many messages were got."""
        return sum(self._offsets)

    def _follow(self, queues: range) -> None:
        is_last = False
        while True:
            found = 0
            for queue in queues:
                result = self._store.get(TOPIC, queue, self._offsets[queue])
                self._offsets[queue] = result.next_offset
                found += len(result.messages)
            if not found:
                if is_last:
                    return
                is_last = self._stopped.wait(_IDLE_S)

    def __enter__(self) -> Followers:
        self.started = time.perf_counter()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()


def percentiles(nanos: array[int]) -> Figures:
    """Median, p99, p99.9 and the longest of single times, in µs."""
    ordered = sorted(nanos)
    places = {"p50_us": 0.5, "p99_us": 0.99, "p999_us": 0.999, "max_us": 1.0}
    return {name: ordered[min(len(ordered) - 1, int(len(ordered) * part))] / 1e3 for name, part in places.items()}


def put_batch(directory: Path, count: int, *, size: int = 1024, batch: int = 32) -> Figures:
    """``put_batch`` from one thread."""
    body = bytes(size)
    with open_bench_store(directory) as store:
        started = time.perf_counter()
        for first in range(0, count, batch):
            store.put_batch(
                [
                    Message(TOPIC, body, tags="bench", properties={"UNIQ_KEY": str(number)}, queue_id=0)
                    for number in range(first, min(count, first + batch))
                ]
            )
        return {"per_second": count / (time.perf_counter() - started)}


def put_table(directory: Path, count: int, *, size: int = 1024) -> Figures:
    """``put_table`` of 8,192 rows at a time, from one thread."""
    tables = list(_tables(count, size))
    with open_bench_store(directory) as store:
        started = time.perf_counter()
        for table in tables:
            store.put_table(table)
        return {"per_second": count / (time.perf_counter() - started)}


def _tables(count: int, size: int, first: int = 0) -> Iterator[Any]:
    import pyarrow as pa

    same = {"topic": [TOPIC] * _ROWS, "body": [bytes(size)] * _ROWS, "tags": ["bench"] * _ROWS, "queueId": [0] * _ROWS}
    for begin in range(first, first + count, _ROWS):
        keys = [str(number) for number in range(begin, begin + _ROWS)]
        yield pa.table({**same, "keys": keys}).slice(0, first + count - begin)


def fill(directory: Path, count: int, *, size: int = 1024, end: str = "close") -> Figures:
    """Put ``count`` messages into queue 0, behind those that are there.

    ``end`` is how the store is left: "close" in good order, "crash" as by a crash, "log only" by one that left nothing
    but the log.
    """
    started = time.perf_counter()
    store = open_bench_store(directory)
    for table in _tables(count, size, store.max_offset(TOPIC, 0)):
        store.put_table(table)
    store.wait_dispatched()
    seconds = time.perf_counter() - started
    if end == "crash":
        store.put(Message(TOPIC, bytes(size), queue_id=0))
        return {"seconds": seconds, "exit": True}  # the process leaves, and the store stays open until it does
    store.close()
    if end == "log only":
        leave_log_only(directory, count)
    return {"seconds": seconds}


def leave_log_only(directory: Path, count: int) -> Figures:
    """Make a closed store one that crashed and lost everything but its log."""
    for name in ("consumequeue", "index"):
        shutil.rmtree(directory / name)
    for path in [directory / "checkpoint", *directory.glob("mqstore-*")]:
        path.unlink(missing_ok=True)
    (directory / "abort").touch()
    return {}


def open_store(directory: Path, count: int) -> Figures:
    """Open what is there, until queues and index are complete; messages in it a second."""
    started = time.perf_counter()
    with open_bench_store(directory) as store:
        if not store.wait_dispatched(_DISPATCH_S):
            raise errors.StoreIOError("the queues are not complete after ten minutes", path=directory)
        seconds = time.perf_counter() - started
        if store.max_offset(TOPIC, 0) < count:
            raise errors.StoreIOError("messages are missing", expected=count, found=store.max_offset(TOPIC, 0))
        held = resident_kib()
    return {"per_second": count / seconds, "seconds": seconds, "open_kib": held}


def get(directory: Path, count: int) -> Figures:
    """``get`` 32 at a time through one queue, decoded."""
    with open_bench_store(directory) as store:
        for _ in range(PASSES):
            started = time.perf_counter()
            offset = found = 0
            while (result := store.get(TOPIC, 0, offset)).messages:
                found += len(result.messages)
                offset = result.next_offset
            seconds = time.perf_counter() - started
        held = resident_kib()
    return _all_found(found, count) | {"per_second": found / seconds, "open_kib": held}


def get_table(directory: Path, count: int) -> Figures:
    """``get_table`` of 8,192 rows at a time through one queue, with the columns that a consumer looks at."""
    columns = ("queueOffset", "tags", "keys", "body", "storeTimestamp")
    with open_bench_store(directory) as store:
        for _ in range(PASSES):
            started = time.perf_counter()
            offset = found = 0
            while rows := (result := store.get_table(TOPIC, 0, offset, _ROWS, columns)).table.num_rows:
                found += rows
                offset = result.next_offset
            seconds = time.perf_counter() - started
    return _all_found(found, count) | {"per_second": found / seconds}


def query(directory: Path, count: int, *, lookups: int | None = None) -> Figures:
    """``query`` by key, one after the other in an order that jumps about, record checked and decoded.

    ``lookups`` is how many; None is one for each message. The figures hold percentiles in µs.
    """
    lookups = count if lookups is None else lookups
    nanos = array("q", bytes(8 * lookups))
    with open_bench_store(directory) as store:
        store.wait_dispatched()
        for _ in range(PASSES):
            found = 0
            started = time.perf_counter()
            for number in range(lookups):
                before = time.perf_counter_ns()
                found += len(store.query(TOPIC, str(number * STRIDE % count), max_messages=32).messages)
                nanos[number] = time.perf_counter_ns() - before
            seconds = time.perf_counter() - started
    return _all_found(found, lookups) | {"per_second": lookups / seconds} | percentiles(nanos)


def _all_found(found: int, count: int) -> Figures:
    if found != count:
        raise errors.StoreIOError("messages were not found", expected=count, found=found)
    return {"messages": found}
