"""One step of a cell of :mod:`mqstore.bench.layouts`: one layout under one load, in a process of its own.

    python -m mqstore.bench.layout_cell '{"step": "write", "layout": "kafka", ...}'

``write`` creates the topics, appends, and leaves without closing, as a crash would; ``open`` opens what is left and
closes it; ``read`` reads queues back, cold or warm. Each prints one JSON object.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import mqstore
from mqstore import Message, kafka

SAMPLE: Final = 64
"""How many topics are created one after the other, each as durable as a program would have it."""


class Layout(Protocol):
    """What both layouts are asked to do."""

    def create(self, topics: Sequence[str]) -> None:
        """Make topics of one queue, those that no first message is to make."""

    def append(self, topic: str, values: Sequence[bytes], durable: bool) -> None:
        """Append a batch to queue 0 of a topic; with ``durable`` return when all appended so far survives a crash."""

    def sync(self) -> None:
        """Make everything appended so far survive a crash."""

    def settle(self) -> None:
        """Wait until everything can be read."""


class RocketmqLayout:
    """``mqstore.Store``: one commit log; queues and index are built from it.

    Under ``queues`` a barrier syncs the queues and the index as well, which durability does not need.
    """

    def __init__(self, directory: Path, queues: bool) -> None:
        self._store = mqstore.open(
            directory,
            flush_disk_type="SYNC_FLUSH",
            default_topic_queue_nums=1,
            # No syncs but those of the barriers.
            flush_interval_commit_log=3_600_000,
            flush_interval_consume_queue=3_600_000,
            flush_consume_queue_thorough_interval=3_600_000,
            sync_flush_timeout=600_000,
        )
        self._queues = queues

    def create(self, topics: Sequence[str]) -> None:
        """See :class:`Layout`; the first message makes a queue, here."""

    def append(self, topic: str, values: Sequence[bytes], durable: bool) -> None:
        """See :class:`Layout`."""
        self._store.put_batch(
            [Message(topic, value, queue_id=0, wait_store_msg_ok=durable and not self._queues) for value in values]
        )
        if durable and self._queues:
            self._store.flush()

    def sync(self) -> None:
        """See :class:`Layout`."""
        if self._queues:
            self._store.flush()
        else:
            self._store.put(Message("barrier", b"x", queue_id=0))

    def settle(self) -> None:
        """See :class:`Layout`."""
        self._store.wait_dispatched()


class KafkaLayout:
    """``mqstore.kafka``: a directory with a log and two indexes for each partition."""

    def __init__(self, directory: Path) -> None:
        self._store = kafka.open(directory)

    def create(self, topics: Sequence[str]) -> None:
        """See :class:`Layout`."""
        self._store.create_topics(dict.fromkeys(topics, 1))

    def append(self, topic: str, values: Sequence[bytes], durable: bool) -> None:
        """See :class:`Layout`."""
        self._store.put_batch([kafka.KafkaMessage(topic, value) for value in values])
        if durable:
            self._store.flush()

    def sync(self) -> None:
        """See :class:`Layout`."""
        self._store.flush()

    def settle(self) -> None:
        """See :class:`Layout`; everything can be read at once."""


class Syncs:
    """Counts and times what this process asks the device to make durable.

    Attributes:
        are_awaited: False passes over them, for work that is not measured; :func:`os.sync` then does it for all.
    """

    def __init__(self) -> None:
        self.count = 0
        self.seconds = 0.0
        self.are_awaited = True
        for name in ("fsync", "fdatasync"):
            if hasattr(os, name):  # macOS has one of the two
                setattr(os, name, self._counted(getattr(os, name)))

    def _counted(self, function: Callable[[Any], None]) -> Callable[[Any], None]:
        def counted(fd: Any) -> None:
            started = time.perf_counter()
            if self.are_awaited:
                function(fd)
            self.count += 1
            self.seconds += time.perf_counter() - started

        return counted

    def restart(self) -> None:
        """Count from zero."""
        self.count, self.seconds = 0, 0.0

    @contextlib.contextmanager
    def passed_over(self) -> Iterator[None]:
        """Not waiting for single syncs inside, but for all at the end."""
        self.are_awaited = False
        try:
            yield
        finally:
            self.are_awaited = True
            os.sync()


def make(layout: str, directory: Path) -> RocketmqLayout | KafkaLayout:
    """The layout of that name, open in ``directory``."""
    return KafkaLayout(directory) if layout == "kafka" else RocketmqLayout(directory, layout == "rocketmq+queues")


def topic_name(number: int) -> str:
    """The topics are numbered."""
    return f"t{number}"


def write(task: dict[str, Any], directory: Path) -> dict[str, Any]:
    """Create the topics and append the load, once for each distance of barriers."""
    syncs = Syncs()
    value = os.urandom(task["size"] // 2) + bytes(task["size"] - task["size"] // 2)
    store = make(task["layout"], directory)
    created = create(store, task["topics"], value, syncs)
    writes = []
    for barrier_bytes in task["barriers"]:
        writes.append({**created, **append_load(store, task, barrier_bytes, value, syncs, directory)})
        with syncs.passed_over():
            store.settle()
            store.sync()
    return {"writes": writes}


def append_load(
    store: Layout, task: dict[str, Any], barrier_bytes: int, value: bytes, syncs: Syncs, directory: Path
) -> dict[str, Any]:
    """Append round-robin, ``batch`` messages an append, with a barrier every ``barrier_bytes``, if that is not 0."""
    values, topics = [value] * task["batch"], task["topics"]
    before = device_writes(directory)
    syncs.restart()
    since = appended = 0
    started = time.perf_counter()
    for number in range(task["messages"] // task["batch"]):
        since += task["size"] * task["batch"]
        due = bool(barrier_bytes) and since >= barrier_bytes
        store.append(topic_name(number % topics), values, due)
        appended += task["batch"]
        since = 0 if due else since
    appended_s = time.perf_counter() - started
    files = len(os.listdir("/dev/fd"))
    if barrier_bytes:
        store.sync()
    else:
        os.sync()  # the same for both: everything that the page cache still holds
    durable_s = time.perf_counter() - started
    after = device_writes(directory)
    return {
        "messages": appended,
        "appended_s": appended_s,
        "durable_s": durable_s,
        "syncs": syncs.count,
        "sync_s": syncs.seconds,
        "open_files": files,
        "device_writes": {name: after[name] - before[name] for name in after},
    }


def create(store: Layout, topics: int, value: bytes, syncs: Syncs) -> dict[str, Any]:
    """Create the topics with a message in each: a sample of them as it is, the rest without waiting for the device."""
    sample = min(topics, SAMPLE)
    syncs.restart()
    started = time.perf_counter()
    for number in range(sample):
        store.create([topic_name(number)])
        store.append(topic_name(number), [value], False)
    store.settle()
    found = {"sample": sample, "sample_s": time.perf_counter() - started, "sample_syncs": syncs.count}
    with syncs.passed_over():
        store.create([topic_name(number) for number in range(sample, topics)])
        for number in range(sample, topics):
            store.append(topic_name(number), [value], False)
        store.settle()
        store.sync()
    return found


def device_writes(directory: Path) -> dict[str, int]:
    """Write requests of the directory's device, those merged into others, and bytes written: of the whole machine."""
    device = os.stat(directory.parent).st_dev
    with contextlib.suppress(OSError), open("/proc/diskstats", encoding="utf-8") as lines:
        for fields in map(str.split, lines):
            if (int(fields[0]), int(fields[1])) == (os.major(device), os.minor(device)):
                return {"requests": int(fields[7]), "merged": int(fields[8]), "bytes": int(fields[9]) * 512}
    return {}


def open_again(task: dict[str, Any], directory: Path) -> dict[str, Any]:
    """Open what a process left that did not close; close; open again."""
    syncs = Syncs()
    seconds, counts = [], []
    for _ in range(2):
        syncs.restart()
        started = time.perf_counter()
        if task["layout"] == "kafka":
            store: Any = kafka.open(directory)
        else:
            store = mqstore.open(directory)
            store.wait_dispatched()
        seconds.append(time.perf_counter() - started)
        counts.append(syncs.count)
        with syncs.passed_over():
            store.close()
    sizes = [path.stat() for path in directory.rglob("*") if path.is_file()]
    return {
        "recovery_s": seconds[0],
        "clean_open_s": seconds[1],
        "recovery_syncs": counts[0],
        "clean_open_syncs": counts[1],
        "files": len(sizes),
        "bytes_on_disk": sum(one.st_blocks * 512 for one in sizes),
        "bytes_apparent": sum(one.st_size for one in sizes),
    }


def read(task: dict[str, Any], directory: Path) -> dict[str, Any]:
    """Read whole queues until some hundred messages have come; cold drops every file from the page cache before."""
    if task["cold"]:
        os.sync()
        for path in directory.rglob("*"):
            if path.is_file():
                fd = os.open(path, os.O_RDONLY)
                if hasattr(os, "posix_fadvise"):
                    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
                os.close(fd)
    read_queue = kafka_reader(directory) if task["layout"] == "kafka" else rocketmq_reader(directory)
    messages = queues = size = 0
    started = time.perf_counter()
    for number in range(task["topics"]):
        found = read_queue(topic_name(number))
        messages, size, queues = messages + found[0], size + found[1], queues + 1
        if messages >= task["read_messages"]:
            break
    seconds = time.perf_counter() - started
    return {"messages": messages, "queues": queues, "bytes": size, "seconds": seconds}


def rocketmq_reader(directory: Path) -> Callable[[str], tuple[int, int]]:
    """A function that reads queue 0 of a topic: how many messages, how many bytes of bodies."""
    view = mqstore.inspect(directory)

    def read_queue(topic: str) -> tuple[int, int]:
        offset = messages = size = 0
        while (result := view.get(topic, 0, offset, max_messages=1000)).messages:
            messages += len(result.messages)
            size += sum(len(message.body) for message in result.messages)
            offset = result.next_offset
        return messages, size

    return read_queue


def kafka_reader(directory: Path) -> Callable[[str], tuple[int, int]]:
    """The same for partition 0 of a topic."""
    view = kafka.inspect(directory)

    def read_queue(topic: str) -> tuple[int, int]:
        offset = messages = size = 0
        while (result := view.get(topic, 0, offset, max_messages=1000)).messages:
            messages += len(result.messages)
            size += sum(len(message.value or b"") for message in result.messages)
            offset = result.next_offset
        return messages, size

    return read_queue


def main() -> None:
    """Do the task given as JSON and leave as it says."""
    task = json.loads(sys.argv[1])
    step = {"write": write, "open": open_again, "read": read}[task["step"]]
    sys.stdout.write(json.dumps(step(task, Path(task["directory"]))) + "\n")
    sys.stdout.flush()
    if task["step"] == "write":
        os._exit(0)  # a crash, as far as the store can tell


if __name__ == "__main__":
    main()
