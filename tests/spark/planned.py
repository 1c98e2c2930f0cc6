"""A store to plan reads of, and what these give, in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mqstore
from mqstore import Message
from mqstore.files.pool import FilePool
from mqstore.spark.messages import MessagesView
from mqstore.spark.options import ReadOptions
from mqstore.spark.stores import find_stores
from spark.support import read_here

Rows = list[dict[str, Any]]
COLUMNS = ["topic", "queueId", "queueOffset", "physicalOffset", "tags", "body"]
SIZES = {
    "mapped_file_size_commit_log": 64 << 10,
    "mapped_file_size_consume_queue": 20 * 300,
    "max_hash_slot_num": 100,
    "max_index_num": 400,
}


def rows_of(path: Path, **options: object) -> Rows:
    return sorted(read_here(path, COLUMNS, **options), key=lambda row: row["physicalOffset"])


def plan_of(path: Path, **options: object) -> list[Any]:
    parsed = ReadOptions.parse({"path": str(path), **{name: str(value) for name, value in options.items()}})
    return [piece for part in MessagesView(find_stores(parsed), parsed, COLUMNS).plan() for piece in part]


def make_store(path: Path) -> Path:
    """3,000 messages, of which 50 are rare, in 30 log files; some have keys."""
    with mqstore.open(path, **SIZES) as store:
        for number in range(3000):
            topic, queue_id = ("rare", number // 60 % 2) if number % 60 == 0 else ("orders", number % 3)
            keys = [f"k-{number}", f"g-{number % 7}"] if number % 3 == 0 else ()
            store.put(Message(topic, b"%d " % number * (number % 250), tags=f"t{number % 4}", keys=keys,
                              queue_id=queue_id))  # fmt: skip
    return path


def counted_reads(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Gives how many bytes of files were read since it was last asked."""
    counts: list[int] = []
    real, real_parts = FilePool.read, FilePool.read_parts

    def read(pool: FilePool, path: Path, position: int, size_bytes: int) -> bytes:
        data = real(pool, path, position, size_bytes)
        counts.append(len(data))
        return data

    def read_parts(pool: FilePool, path: Path, parts: list[tuple[int, int]], target: memoryview) -> list[int]:
        counts.append(sum(size_bytes for _, size_bytes in parts))
        return real_parts(pool, path, parts, target)

    monkeypatch.setattr(FilePool, "read", read)
    monkeypatch.setattr(FilePool, "read_parts", read_parts)

    def asked() -> int:
        total = sum(counts)
        counts.clear()
        return total

    return asked
