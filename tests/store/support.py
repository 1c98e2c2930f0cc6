"""Small stores and damage, for the tests of this folder."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import Any

import mqstore
from mqstore import Message, Store
from mqstore.findings import Finding
from mqstore.layout.constants import QUEUE_UNIT_SIZE
from mqstore.store.check import check_store

SMALL: dict[str, Any] = {
    "mapped_file_size_commit_log": 4096,
    "mapped_file_size_consume_queue": 200,
    "max_hash_slot_num": 8,
    "max_index_num": 20,
    "default_topic_queue_nums": 1,
}
"""Files of a few records, so that every border is met."""


def open_small(path: Path, **settings: Any) -> Store:
    return mqstore.open(path, **{**SMALL, **settings})


def fill(path: Path, count: int, topic: str = "T", size: int = 100, **settings: Any) -> None:
    """Put ``count`` messages with bodies ``0:xxx…``, ``1:xxx…`` into one queue and close the store."""
    with open_small(path, **settings) as store:
        for number in range(count):
            store.put(Message(topic, body_of(number, size), keys=[f"k{number}"], queue_id=0))


def body_of(number: int, size: int = 100) -> bytes:
    return f"{number}:".encode().ljust(size, b"x")


def bodies(store: Path, topic: str = "T", queue_id: int = 0) -> list[bytes]:
    """All bodies of a queue, read from outside."""
    with mqstore.inspect(store) as view:
        found: list[bytes] = []
        offset = next((q.min_offset for q in view.queues(topic) if q.queue_id == queue_id), 0)
        while True:
            result = view.get(topic, queue_id, offset)
            if not result.messages:
                return found
            found += [message.body for message in result.messages]
            offset = result.next_offset


def findings(store: Path) -> list[Finding]:
    found: list[Finding] = []
    with mqstore.inspect(store) as view:
        check_store(view, found.append)
    return found


def mark_crashed(store: Path) -> None:
    (store / "abort").touch()


def forget_note(store: Path) -> None:
    """Make the store look as a Java broker leaves it, without our own note."""
    (store / "mqstore-dispatch.json").unlink(missing_ok=True)


def copy_of_running(store: Path, target: Path) -> Path:
    """What a kill would leave: a copy of a store that is open, whose services are at work.

    A temporary file may go while it is made.
    """

    def copy_if_there(source: str, place: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            shutil.copy2(source, place)

    return Path(shutil.copytree(store, target, copy_function=copy_if_there))


def log_file(store: Path, start: int = 0) -> Path:
    return store / "commitlog" / f"{start:020d}"


def queue_file(store: Path, topic: str = "T", queue_id: int = 0, start: int = 0) -> Path:
    return store / "consumequeue" / topic / str(queue_id) / f"{start:020d}"


def overwrite(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def tree(directory: Path) -> dict[str, bytes]:
    """Contents of all files below a directory, by relative path."""
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()
    }


def reopen(store: Path) -> None:
    open_small(store).close()
    assert findings(store) == []


def record_starts(store: Path) -> list[int]:
    with mqstore.inspect(store) as view:
        return [record.physical_offset for record in view.scan()]


def flip(store: Path, physical_offset: int) -> None:
    path = log_file(store, physical_offset - physical_offset % 4096)
    position = physical_offset % 4096
    overwrite(path, position, bytes([path.read_bytes()[position] ^ 0x55]))


def flip_bit(file: Path, unit: int, bit: int) -> None:
    """Flip one bit of a unit of a queue file; done again, it is right again."""
    position = unit * QUEUE_UNIT_SIZE + bit // 8
    overwrite(file, position, bytes([file.read_bytes()[position] ^ 1 << bit % 8]))


def put_dispatched(store: mqstore.Store, *messages: mqstore.Message) -> list[mqstore.PutResult]:
    results = store.put_batch(list(messages))
    assert store.wait_dispatched(60)
    return results
