"""The store beside a dictionary: whatever is done to it in whatever order, it holds what the dictionary holds.

Killing is copying the directory while the store is open: what a killed process leaves behind, since the page cache
outlives it. Power cuts are the business of tests/crash.
"""

from __future__ import annotations

import os
import queue
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import mqstore
from mqstore import Message, MessageIllegalError, PutResult
from store.support import copy_of_running, findings

SIZES: dict[str, Any] = {
    "mapped_file_size_commit_log": 16_384,
    "mapped_file_size_consume_queue": 400,
    "max_hash_slot_num": 8,
    "max_index_num": 30,
    "schedule_message_enable": False,
    "file_reserved_time": 1,
}
FAR_MS = 4_000_000_000_000
EXAMPLES = int(os.environ.get("MQSTORE_MODEL_EXAMPLES", "25"))

TOPICS = st.sampled_from(["orders", "payments"])
QUEUES = st.integers(0, 1)
SIZE = st.one_of(st.integers(0, 300), st.integers(3000, 6000))
KEYS = st.sampled_from([(), ("a",), ("b", "c"), ("a", "c")])
TAGS = st.sampled_from([None, "paid", "refunded"])


@dataclass(frozen=True)
class Stored:
    """What the dictionary knows of a message."""

    offset: int
    physical_offset: int
    body: bytes
    keys: tuple[str, ...]
    tags: str | None


class StoreMachine(RuleBasedStateMachine):
    """Every rule does one thing to the store and the same to the model."""

    def __init__(self) -> None:
        super().__init__()
        self._scratch = Path(tempfile.mkdtemp(prefix="mqstore-model-"))
        self._generation = 0
        self._number = 0
        self._min_physical = 0
        self.model: dict[tuple[str, int], list[Stored]] = {}
        self.delayed: set[bytes] = set()
        self.acknowledged: dict[tuple[str, str, int], int] = {}
        self.not_lost: dict[tuple[str, str, int], int] = {}

    @initialize()
    def start(self) -> None:
        self.store = mqstore.open(self._path, **SIZES)

    def teardown(self) -> None:
        self.store.close()
        assert findings(self._path) == []
        shutil.rmtree(self._scratch)

    @property
    def _path(self) -> Path:
        return self._scratch / str(self._generation)

    def _message(self, topic: str, queue_id: int, size: int, keys: Sequence[str], tags: str | None) -> Message:
        self._number += 1
        body = b"%d:" % self._number
        return Message(topic, body.ljust(size, b"."), queue_id=queue_id, keys=keys, tags=tags)

    def _note(self, message: Message, result: PutResult) -> None:
        stored = self.model.setdefault((result.topic, result.queue_id), [])
        assert result.queue_offset == (stored[-1].offset + 1 if stored else 0)
        stored.append(
            Stored(result.queue_offset, result.physical_offset, message.body, tuple(message.keys), message.tags)
        )

    # -- writing

    @rule(topic=TOPICS, queue_id=QUEUES, size=SIZE, keys=KEYS, tags=TAGS)
    def put(self, topic: str, queue_id: int, size: int, keys: Sequence[str], tags: str | None) -> None:
        message = self._message(topic, queue_id, size, keys, tags)
        self._note(message, self.store.put(message))

    @rule(parts=st.lists(st.tuples(TOPICS, QUEUES, st.integers(0, 900), KEYS, TAGS), min_size=1, max_size=12))
    def put_batch(self, parts: list[tuple[str, int, int, Sequence[str], str | None]]) -> None:
        messages = [self._message(*part) for part in parts]
        for message, result in zip(messages, self.store.put_batch(messages), strict=True):
            self._note(message, result)

    @rule(topic=TOPICS, many=st.booleans())
    def put_what_is_refused(self, topic: str, many: bool) -> None:
        sound, wrong = Message(topic, b"sound"), Message(topic, bytes(20_000))
        with pytest.raises(MessageIllegalError):
            self.store.put_batch([sound, wrong]) if many else self.store.put(wrong)

    @rule(size=st.integers(0, 300), level=st.integers(1, 3))
    def put_delayed(self, size: int, level: int) -> None:
        message = self._message("later", 0, size, (), None)
        message.delay_level = level
        self.store.put(message)
        self.delayed.add(message.body)

    @rule()
    def deliver(self) -> None:
        self.store.wait_dispatched()
        self.store.deliver_due(FAR_MS)
        self.store.wait_dispatched()
        if self._min_physical == 0:  # nothing expired while it waited
            assert self._bodies("later", 0) >= self.delayed

    # -- consuming

    @rule(topic=TOPICS, group=st.sampled_from(["g", "h"]), count=st.integers(1, 40))
    def consume(self, topic: str, group: str, count: int) -> None:
        """What comes, comes in the order of its queue, from where the group has acknowledged or before."""
        self.store.wait_dispatched()
        last: dict[int, int] = {}
        with self.store.consumer(group, topic) as consumer:
            for _ in range(count):
                try:
                    message = consumer.get(block=False)
                except queue.Empty:
                    break
                assert message.topic == topic
                key = (group, topic, message.queue_id)
                queue_id, offset = message.queue_id, message.queue_offset
                if queue_id in last:
                    assert offset == last[queue_id] + 1
                else:
                    assert offset <= max(self.acknowledged.get(key, 0), self.store.min_offset(topic, queue_id))
                last[queue_id] = offset
                assert consumer.ack(message)
                self.acknowledged[key] = max(self.acknowledged.get(key, 0), offset + 1)
                self.not_lost[key] = max(self.not_lost.get(key, 0), offset + 1)

    def _progress(self) -> dict[tuple[str, str, int], int]:
        return {(one.group, one.topic, one.queue_id): one.consumer_offset for one in self.store.progress()}

    @invariant()
    def progress_is_never_ahead(self) -> None:
        for one in self.store.progress():
            if one.group in ("g", "h"):
                acknowledged = self.acknowledged.get((one.group, one.topic, one.queue_id), 0)
                assert one.consumer_offset <= max(acknowledged, self.store.min_offset(one.topic, one.queue_id))

    # -- reading

    def _bodies(self, topic: str, queue_id: int) -> set[bytes]:
        return {message.body for message in self._all(topic, queue_id)}

    def _all(self, topic: str, queue_id: int, where: str | None = None) -> list[mqstore.Record]:
        found: list[mqstore.Record] = []
        offset, end = self.store.min_offset(topic, queue_id), self.store.max_offset(topic, queue_id)
        while offset < end:
            result = self.store.get(topic, queue_id, offset, 1000, where)
            found += result.messages
            assert result.next_offset > offset
            offset = result.next_offset
        return found

    @rule(where=st.sampled_from([None, "paid", "paid || refunded"]))
    def read_everything(self, where: str | None) -> None:
        self.store.wait_dispatched()
        wanted = None if where is None else set(where.split(" || "))
        for (topic, queue_id), stored in self.model.items():
            kept = [one for one in stored if one.physical_offset >= self._min_physical]
            assert self.store.max_offset(topic, queue_id) == stored[-1].offset + 1
            found = self._all(topic, queue_id, where)
            assert [(record.queue_offset, record.physical_offset, record.body) for record in found] == [
                (one.offset, one.physical_offset, one.body) for one in kept if wanted is None or one.tags in wanted
            ]

    @rule(topic=TOPICS, key=st.sampled_from("abcd"))
    def query(self, topic: str, key: str) -> None:
        self.store.wait_dispatched()
        found = self.store.query(topic, key, max_messages=10_000)
        assert not found.truncated
        assert [record.physical_offset for record in found.messages] == sorted(
            one.physical_offset
            for (of_topic, _), stored in self.model.items()
            for one in stored
            if of_topic == topic and key in one.keys and one.physical_offset >= self._min_physical
        )

    # -- what happens to stores

    @rule()
    def flush(self) -> None:
        self.store.flush()
        assert self.store.flushed_offset == self.store.log_end

    @rule()
    def expire(self) -> None:
        self.store.wait_dispatched()
        self.store.flush()
        report = self.store.expire(FAR_MS)
        assert report.min_physical_offset >= self._min_physical
        self._min_physical = report.min_physical_offset

    @rule()
    def reopen(self) -> None:
        self.store.close()
        assert findings(self._path) == []
        self.store = mqstore.open(self._path, **SIZES)
        saved = self._progress()
        assert all(saved[key] >= offset for key, offset in self.not_lost.items())

    @rule(wait_s=st.sampled_from([0, 0, 0.005]))
    def kill(self, wait_s: float) -> None:
        time.sleep(wait_s)
        before = self._path
        self._generation += 1
        copy_of_running(before, self._path)
        self.store.close()
        shutil.rmtree(before)
        self.store = mqstore.open(self._path, **SIZES)
        assert self.store.check() == []
        self.not_lost = self._progress()  # what was acknowledged last may come again, after a kill and only then


StoreMachine.TestCase.settings = settings(
    max_examples=EXAMPLES,
    report_multiple_bugs=False,
    stateful_step_count=30,
    suppress_health_check=list(HealthCheck),
    deadline=None,
)
TestStoreAgainstTheModel = StoreMachine.TestCase
