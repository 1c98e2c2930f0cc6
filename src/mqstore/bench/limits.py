"""What the machine can do at best: the same bytes without a store. In messages a second, as the stores' figures."""

from __future__ import annotations

import mmap
import os
import threading
import time
from pathlib import Path
from typing import Final

from mqstore.bench.store_work import Figures, run_threads

EXTRA_BYTES: Final = 128
"""What the record of a message of the benchmark takes beyond its body."""
_BLOCK_BYTES: Final = 1 << 20
_MEMORY_BYTES: Final = 64 << 20


def copy_in_memory(directory: Path, count: int, *, size: int = 1024) -> Figures:
    """Copy as many bytes as the records have from one place in memory to another."""
    source, target = bytearray(os.urandom(1)) * _MEMORY_BYTES, memoryview(bytearray(_MEMORY_BYTES))
    target[:] = source  # the first touch is not what is measured
    copies = max(4, count * (size + EXTRA_BYTES) // _MEMORY_BYTES)
    started = time.perf_counter()
    for _ in range(copies):
        target[:] = source
    bytes_per_second = copies * _MEMORY_BYTES / (time.perf_counter() - started)
    return _figures(bytes_per_second, size)


def copy_into_file(directory: Path, count: int, *, size: int = 1024) -> Figures:
    """Copy as many bytes into a new mapped file, as every append has to: the first touch of each page is part of it."""
    directory.mkdir(parents=True)
    total, block = count * (size + EXTRA_BYTES), os.urandom(_BLOCK_BYTES)
    with open(directory / "file", "w+b") as file:
        file.truncate(total)
        with mmap.mmap(file.fileno(), total) as mapped:
            started = time.perf_counter()
            for begin in range(0, total, _BLOCK_BYTES):
                end = min(total, begin + _BLOCK_BYTES)
                mapped[begin:end] = block[: end - begin]
            return _figures(total / (time.perf_counter() - started), size)


def read_file(directory: Path, count: int, *, size: int = 1024) -> Figures:
    """Read as many bytes from a file that the page cache holds, 1 MiB a call into the same memory."""
    directory.mkdir(parents=True)
    total, block = count * (size + EXTRA_BYTES), bytearray(_BLOCK_BYTES)
    path = directory / "file"
    with open(path, "wb") as writer:
        writer.writelines(block for _ in range(0, total, _BLOCK_BYTES))
    with open(path, "rb", buffering=0) as file:
        started, done = time.perf_counter(), 0
        while got := file.readinto(block):
            done += got
        return _figures(done / (time.perf_counter() - started), size)


def group_commit(directory: Path, count: int, *, size: int = 1024, threads: int = 1) -> Figures:
    """Append by so many threads, each of which waits for a sync that covers what it wrote; one sync serves all.

    The file has its full size from the beginning and is mapped, as a log's.
    """
    directory.mkdir(parents=True)
    record = os.urandom(size + EXTRA_BYTES)
    total = count * len(record)
    writing, syncing = threading.Lock(), threading.Lock()
    written = synced = 0
    with open(directory / "file", "w+b") as file:
        file.truncate(total)
        with mmap.mmap(file.fileno(), total) as mapped:

            def produce(first: int) -> None:
                nonlocal written, synced
                for _ in range(first, count, threads):
                    with writing:
                        mapped[written : written + len(record)] = record
                        written += len(record)
                        own = written
                    with syncing:
                        if synced < own:
                            end = written
                            os.fdatasync(file.fileno())
                            synced = end

            return {"per_second": count / run_threads(produce, threads)}


def _figures(bytes_per_second: float, size: int) -> Figures:
    return {"per_second": bytes_per_second / (size + EXTRA_BYTES), "bytes_per_second": bytes_per_second}
