"""A seeded mixture of everything a program does with a store, and what it was promised on the way."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mqstore
from mqstore import Message, Record, Store
from store.support import findings

TOPICS = ("orders", "payments", "audit")
SETTINGS: dict[str, Any] = {
    "mapped_file_size_commit_log": 4096,
    "mapped_file_size_consume_queue": 400,
    "max_hash_slot_num": 16,
    "max_index_num": 40,
    "default_topic_queue_nums": 2,
    "file_reserved_time": 0,
    "flush_interval_commit_log": 20,
    "sync_flush_timeout": 60_000,
    "flush_interval_consume_queue": 30,
    "flush_consume_queue_thorough_interval": 100,
    "message_delay_level": "1s 5s",
}
FAR_MS = 9_000_000_000_000

Place = tuple[str, int, int]


@dataclass
class Promises:
    """What the store has said, by the moment.

    Attributes:
        attempted: bodies that were given to it, acknowledged or not.
        acknowledged: body, place in the log and end there, by topic, queue and queue offset.
        committed: progress of the group that ``commit`` returned for, by topic and queue.
        handled: bodies that were acknowledged by the consumer.
        expired_to: everything before this physical offset may be gone.
    """

    attempted: set[bytes] = field(default_factory=set)
    acknowledged: dict[Place, tuple[bytes, int, int]] = field(default_factory=dict)
    committed: dict[tuple[str, int], int] = field(default_factory=dict)
    expired_to: int = 0

    def copy(self) -> Promises:
        return Promises(set(self.attempted), dict(self.acknowledged), dict(self.committed), self.expired_to)


class Workload:
    """Steps on one open store after another."""

    def __init__(self, path: Path, seed: int, **settings: Any) -> None:
        self._rng = random.Random(seed)
        self._path = path
        self._settings = {**SETTINGS, **settings}
        self._number = 0
        self.promises = Promises()
        self.store = self._open()

    def _open(self) -> Store:
        store = mqstore.open(self._path, **self._settings)
        self._consumer = store.consumer("group", "orders", auto_commit=False)
        return store

    def step(self) -> None:
        """Do one thing."""
        steps = (self._put, self._put_batch, self._consume, self._expire, self._flush, self._reopen)
        self._rng.choices(steps, weights=(60, 15, 15, 2, 3, 2))[0]()

    def _message(self) -> Message:
        self._number += 1
        body = b"%d:" % self._number + self._rng.randbytes(self._rng.randrange(200))
        self.promises.attempted.add(body)
        return Message(
            self._rng.choice(TOPICS),
            body,
            tags=self._rng.choice([None, "a", "b"]),
            keys=[f"k{self._number}"],
            delay_level=self._rng.choice([0, 0, 0, 0, 1]),
        )

    def _note(self, message: Message, result: mqstore.PutResult) -> None:
        place = (result.topic, result.queue_id, result.queue_offset)
        self.promises.acknowledged[place] = (
            message.body,
            result.physical_offset,
            result.physical_offset + result.size_bytes,
        )

    def _put(self) -> None:
        message = self._message()
        self._note(message, self.store.put(message))

    def _put_batch(self) -> None:
        messages = [self._message() for _ in range(self._rng.randrange(1, 6))]
        for message, result in zip(messages, self.store.put_batch(messages), strict=True):
            self._note(message, result)

    def _consume(self) -> None:
        self.store.wait_dispatched()
        for _ in range(self._rng.randrange(5)):
            try:
                message = self._consumer.get(block=False)
            except Exception as error:
                if type(error).__name__ != "Empty":
                    raise
                break
            if self._rng.random() < 0.1:
                self.promises.attempted.add(message.body)
                self._consumer.nack(message)
            else:
                self._consumer.ack(message)
        self._consumer.commit()
        for queue in self.store.queues("orders"):
            offset = self.store.committed_offset("group", "orders", queue.queue_id)
            if offset is not None:
                self.promises.committed["orders", queue.queue_id] = offset

    def _expire(self) -> None:
        before, end = self.promises.expired_to, self.store.log_end
        self.promises.expired_to = end - end % 4096 + 4096  # a message that is delivered meanwhile may begin a file
        report = self.store.expire(FAR_MS)
        self.promises.expired_to = max(before, report.min_physical_offset)

    def _flush(self) -> None:
        self.store.flush()

    def _reopen(self) -> None:
        self.store.close()
        self.store = self._open()


def verify(path: Path, promises: Promises, flushed_to: int | None = None) -> None:
    """Open what a crash left and hold it against ``promises``; ``flushed_to`` bounds those that count, None is all.

    Raises AssertionError, or whatever the store says when it cannot be opened.
    """
    with mqstore.open(path, **{**SETTINGS, "schedule_message_enable": False}) as store:
        for (topic, queue_id, offset), (body, start, end) in promises.acknowledged.items():
            if start < promises.expired_to or (flushed_to is not None and end > flushed_to):
                continue
            messages = store.get(topic, queue_id, offset, 1).messages
            assert messages, f"{topic}/{queue_id} {offset} at {start} is lost"
            assert (messages[0].queue_offset, messages[0].body) == (offset, body)
        for (topic, queue_id), offset in promises.committed.items():
            found = store.committed_offset("group", topic, queue_id) or 0
            assert found <= store.max_offset(topic, queue_id)
            assert flushed_to is not None or found >= offset, "progress was lost"
        for record in everything(store):
            assert record.body in promises.attempted or record.topic == "after", record
        put = store.put(Message("after", b"goes on"))
        assert store.wait_dispatched(), store.dispatch_behind_bytes
        found_again = store.get("after", put.queue_id, put.queue_offset)
        assert [one.body for one in found_again.messages] == [b"goes on"], (put, found_again)
    found = findings_of(path)
    assert found == [], found


def everything(store: Store) -> list[Record]:
    """All messages of all queues."""
    found: list[Record] = []
    for queue in store.queues():
        offset = queue.min_offset
        while offset < queue.max_offset:
            result = store.get(queue.topic, queue.queue_id, offset, 1000)
            found += result.messages
            assert result.next_offset > offset
            offset = result.next_offset
    return found


def findings_of(path: Path) -> list[str]:
    """What ``check`` says of it; delays of one and five seconds are the first two of the default levels."""
    return [str(one) for one in findings(path)]
