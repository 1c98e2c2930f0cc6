"""What a Python program would use instead of a store: SQLite by itself, or one of two queues that are made of it.

Those are in the extra ``bench``; without them their rows are left out, with a word.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mqstore.bench.store_work import Figures
from mqstore.errors import hint_extra

_BODY = bytes(1024)


class Missing(Exception):
    """A package is not installed; the text says which, and how it would be."""

    def __init__(self, package: str) -> None:
        super().__init__(f"{package} is not installed: {hint_extra('bench', 'it')}")


def sqlite_put(directory: Path, count: int, *, mode: str = "OFF") -> Figures:
    """A row a message, with an index by key, journal in WAL mode.

    ``mode`` is SQLite's ``synchronous``: OFF hands rows to the page cache as ASYNC_FLUSH does, FULL syncs each commit.
    """
    with _database(directory, mode) as database:
        started = time.perf_counter()
        for number in range(count):
            database.execute(
                "INSERT INTO messages (topic, queue, tags, key, body) VALUES (?, ?, ?, ?, ?)",
                ("BenchTopic", 0, "bench", str(number), _BODY),
            )
        return {"per_second": count / (time.perf_counter() - started)}


def sqlite_get(directory: Path, count: int) -> Figures:
    """Rows in order, 32 a query."""
    with _database(directory, "OFF") as database:
        database.executemany(
            "INSERT INTO messages (topic, queue, tags, key, body) VALUES ('BenchTopic', 0, 'bench', ?, ?)",
            ((str(number), _BODY) for number in range(count)),
        )
        started = time.perf_counter()
        last = found = 0
        statement = "SELECT id, topic, queue, tags, key, body FROM messages WHERE id > ? ORDER BY id LIMIT 32"
        while rows := database.execute(statement, (last,)).fetchall():
            found += len(rows)
            last = rows[-1][0]
        return {"messages": found, "per_second": found / (time.perf_counter() - started)}


@contextlib.contextmanager
def _database(directory: Path, mode: str) -> Iterator[sqlite3.Connection]:
    directory.mkdir(parents=True)
    with contextlib.closing(sqlite3.connect(directory / "queue.db", isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute(f"PRAGMA synchronous = {mode}")
        database.execute("CREATE TABLE messages (id INTEGER PRIMARY KEY, topic, queue, tags, key, body)")
        database.execute("CREATE INDEX by_key ON messages (topic, key)")
        yield database


def persist_queue_put(directory: Path, count: int) -> Figures:
    """``put`` of persist-queue's queue on SQLite, as it comes: each put is a commit."""
    queue = _persist_queue(directory)
    started = time.perf_counter()
    for _ in range(count):
        queue.put(_BODY)
    return {"messages": queue.qsize(), "per_second": count / (time.perf_counter() - started)}


def persist_queue_get(directory: Path, count: int) -> Figures:
    """``get`` of the same, which removes."""
    queue = _persist_queue(directory)
    for _ in range(count):
        queue.put(_BODY)
    started = time.perf_counter()
    found = sum(len(queue.get(block=False)) == len(_BODY) for _ in range(count))
    return {"messages": found, "per_second": count / (time.perf_counter() - started)}


def _persist_queue(directory: Path) -> Any:
    try:
        import persistqueue
    except ImportError as error:
        raise Missing("persist-queue") from error
    return persistqueue.SQLiteQueue(str(directory), multithreading=True, auto_commit=True)


def litequeue_put(directory: Path, count: int) -> Figures:
    """``put`` of litequeue, as it comes; it takes text."""
    queue, text = _litequeue(directory), _BODY.decode()
    started = time.perf_counter()
    for _ in range(count):
        queue.put(text)
    return {"messages": queue.qsize(), "per_second": count / (time.perf_counter() - started)}


def litequeue_get(directory: Path, count: int) -> Figures:
    """``pop`` and ``done`` of the same."""
    queue, text, found = _litequeue(directory), _BODY.decode(), 0
    for _ in range(count):
        queue.put(text)
    started = time.perf_counter()
    while (message := queue.pop()) is not None:
        queue.done(message.message_id)
        found += 1
    return {"messages": found, "per_second": found / (time.perf_counter() - started)}


def _litequeue(directory: Path) -> Any:
    try:
        import litequeue
    except ImportError as error:
        raise Missing("litequeue") from error
    directory.mkdir(parents=True)
    return litequeue.LiteQueue(str(directory / "queue.db"))
