"""A seeded mixture of everything a program does with a Kafka log, and what it was promised on the way."""

from __future__ import annotations

import copy
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mqstore.kafka as kafka
from mqstore.findings import Severity
from mqstore.kafka import KafkaMessage, KafkaStore, Producer, Record

PLAIN, KEYED = "plain", "keyed"
PLACES = [(PLAIN, 0), (PLAIN, 1), (KEYED, 0)]
SETTINGS: dict[str, Any] = {
    "segment_bytes": 1500,
    "segment_index_bytes": 600,
    "index_interval_bytes": 120,
    "batch_size": 500,
    "cleanup_policy": "compact,delete",
    "file_delete_delay_ms": 20,
    "log_flush_offset_checkpoint_interval_ms": 50,
    "producer_id_expiration_ms": 1 << 60,
}
FAR_MS = 9_000_000_000_000

Place = tuple[str, int]


@dataclass
class Promises:
    """What the log has said, by the moment.

    Attributes:
        attempted: values that were given to it, acknowledged or not.
        acknowledged: key and value by partition and offset.
        aborted: values of transactions whose abort was acknowledged.
        committed: values of transactions whose commit was acknowledged.
        deleted_to: by partition, the offset below which records were deleted and must not come back.
        may_be_gone: by partition, the offset below which records may be gone.
    """

    attempted: set[bytes] = field(default_factory=set)
    acknowledged: dict[Place, dict[int, tuple[bytes, bytes]]] = field(default_factory=dict)
    aborted: set[bytes] = field(default_factory=set)
    committed: set[bytes] = field(default_factory=set)
    deleted_to: dict[Place, int] = field(default_factory=dict)
    may_be_gone: dict[Place, int] = field(default_factory=dict)

    def copy(self) -> Promises:
        return copy.deepcopy(self)


class Workload:
    """Steps on one open store after another; each tells ``promises`` before and after."""

    def __init__(self, path: Path, seed: str, tell: Callable[..., None] | None = None, **settings: Any) -> None:
        self._rng = random.Random(seed)
        self._seed = seed
        self._path = path
        self._settings = {**SETTINGS, **settings}
        self._number = 0
        self.calm = threading.Lock()
        self.promises = Promises()
        self._tell = tell if tell is not None else self._note
        self.store: KafkaStore = self._open()

    def _open(self) -> KafkaStore:
        store = kafka.open(self._path, **self._settings)
        self._producer: Producer = store.producer()
        return store

    def _note(self, kind: str, *words: Any) -> None:
        take_in(self.promises, kind, *words)

    def step(self) -> None:
        """Do one thing."""
        steps = (
            (self._put, 50), (self._put_batch, 15), (self._transaction, 10), (self._compact, 5), (self._roll, 3),
            (self._delete, 2), (self._expire, 1), (self._flush, 4), (self._reopen, 2),
        )  # fmt: skip
        self._rng.choices([one for one, _ in steps], weights=[weight for _, weight in steps])[0]()

    def _message(self, place: Place | None = None) -> KafkaMessage:
        self._number += 1
        topic, partition = place or self._rng.choice(PLACES)
        value = f"{self._seed}/{self._number}:{'x' * self._rng.randrange(120)}"
        key = f"k{self._rng.randrange(6)}" if topic == KEYED else f"{self._seed}/{self._number}"
        self._tell("try", value)
        return KafkaMessage(topic, value.encode(), key.encode(), partition=partition)

    def _told(self, messages: list[KafkaMessage], results: list[kafka.PutResult]) -> None:
        for message, result in zip(messages, results, strict=True):
            assert message.key is not None
            assert message.value is not None
            self._tell(
                "put", result.topic, result.partition, result.offset, message.key.decode(), message.value.decode()
            )

    def _put(self) -> None:
        message = self._message()
        self._told([message], [self.store.put(message)])

    def _put_batch(self) -> None:
        messages = [self._message() for _ in range(self._rng.randrange(1, 8))]
        self._told(messages, self.store.put_batch(messages))

    def _transaction(self) -> None:
        place = self._rng.choice(PLACES)
        self._producer.begin()
        messages = [self._message(place) for _ in range(self._rng.randrange(1, 4))]
        self._told(messages, self._producer.put_batch(messages))
        if self._rng.random() < 0.5:
            self._producer.commit()
            self._tell("commit", [message.value.decode() for message in messages if message.value])
        else:
            self._producer.abort()
            self._tell("abort", [message.value.decode() for message in messages if message.value])

    def _compact(self) -> None:
        self.store.compact(KEYED, force=True) if KEYED in self.store.topics() else None

    def _roll(self) -> None:
        place = self._rng.choice(PLACES)
        if place[1] in self.store.topics().get(place[0], []):
            self.store.roll(*place)

    def _delete(self) -> None:
        place = self._rng.choice(PLACES)
        end = self.store.max_offset(*place)
        if end:
            before = self._rng.randrange(self.store.min_offset(*place), end + 1)
            self._tell("may be gone", *place, before)
            self.store.delete_records(*place, before)
            self._tell("deleted", *place, before)

    def _expire(self) -> None:
        with self.calm:  # what is put after the first line may be gone as well
            for place in PLACES:
                self._tell("may be gone", *place, self.store.max_offset(*place))
            self.store.enforce_retention(FAR_MS)

    def _flush(self) -> None:
        self.store.flush()

    def _reopen(self) -> None:
        self.store.close()
        self.store = self._open()

    def flushed(self) -> dict[Place, int]:
        """By partition, the offset below which everything is said to be on the device."""
        return {where: log.recovery_point for where, log in dict(self.store._logs).items()}


def take_in(promises: Promises, kind: str, *words: Any) -> None:
    """Note what the log has said, or is about to be asked."""
    if kind == "try":
        promises.attempted.add(words[0].encode())
    elif kind == "put":
        topic, partition, offset, key, value = words
        promises.acknowledged.setdefault((topic, partition), {})[offset] = (key.encode(), value.encode())
    elif kind in ("commit", "abort"):
        values = promises.committed if kind == "commit" else promises.aborted
        values.update(value.encode() for value in words[0])
    elif kind == "may be gone":
        place = (words[0], words[1])
        promises.may_be_gone[place] = max(words[2], promises.may_be_gone.get(place, 0))
    elif kind == "deleted":
        place = (words[0], words[1])
        promises.deleted_to[place] = max(words[2], promises.deleted_to.get(place, 0))


def verify(path: Path, promises: Promises, flushed: dict[Place, int] | None = None) -> None:
    """Open the log as after a crash and hold it against what it promised.

    With ``flushed``, only what lies below these offsets was promised to survive.
    """
    with kafka.open(path, **SETTINGS) as store:
        for place in PLACES:
            _verify_partition(store, place, promises, None if flushed is None else flushed.get(place, 0))
        for place in PLACES:  # and it takes records again
            result = store.put(KafkaMessage(place[0], b"one more", b"one more", partition=place[1]))
            assert store.get(*place, result.offset).messages[0].value == b"one more"
        found = [one for one in store.check() if one.severity is not Severity.NOTE]
        assert found == [], found


def _verify_partition(store: KafkaStore, place: Place, promises: Promises, flushed: int | None) -> None:
    records = read_all(store, place, "read_uncommitted")
    offsets = [record.offset for record in records]
    assert offsets == sorted(set(offsets)), f"{place}: {offsets}"
    foreign = {record.value for record in records} - promises.attempted - {b"one more"}
    assert not foreign, f"{place} holds what nobody put: {foreign}"
    start = store.min_offset(*place)
    if flushed is None:
        assert start >= promises.deleted_to.get(place, 0), f"{place} begins at {start} again"
    present = {record.offset: (record.key, record.value) for record in records}
    newest: dict[bytes | None, int] = {record.key: record.offset for record in records}
    gone_below = promises.may_be_gone.get(place, 0)
    for offset, (key, value) in promises.acknowledged.get(place, {}).items():
        if offset < gone_below or (flushed is not None and offset >= flushed):
            continue
        if place[0] == KEYED and (newest.get(key, -1) > offset or value in promises.aborted):
            continue  # a newer one of the key stands for it
        assert present.get(offset) == (key, value), f"{place} lost offset {offset}: {present.get(offset)}"
    shown = {record.value for record in read_all(store, place, "read_committed")}
    assert not shown & promises.aborted, f"{place} shows what was aborted: {shown & promises.aborted}"
    if flushed is None:
        for record in records:
            if record.value in promises.committed:
                stable = store.partition(*place).last_stable_offset
                # A transaction that its killed producer left open holds back what comes behind it.
                assert record.value in shown or record.offset >= stable, f"{place} hides {record.offset} below {stable}"


def read_all(store: KafkaStore, place: Place, isolation: str) -> list[Record]:
    offset, found = store.min_offset(*place), []
    while True:
        result = store.get(*place, offset, 50, isolation=isolation)
        found += result.messages
        if result.next_offset <= offset:
            return found
        offset = result.next_offset
