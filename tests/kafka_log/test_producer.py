"""Producers that number their records: what fails, what is tried again, and how transactions end all the same."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mqstore.kafka as kafka
from kafka_log.support import TOPIC, bad, mark_crashed, message, open_small, read_all, value_of
from mqstore.errors import DiskFullError, MessageIllegalError, MqstoreError, ProducerFencedError, UsageError
from mqstore.files import durable
from mqstore.kafka import KafkaMessage, KafkaStore, Producer
from mqstore.kafka.batching import Sender


class Disk:
    """Takes so many more writes to a ``.log`` of a partition, and is full then; None: it has room."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left: int | None = None
        self.partition = ""
        original = durable.write_at

        def write_at(fd: int, data: bytes, position: int, path: Path | str) -> None:
            if self.left is not None and str(path).endswith(".log") and f"/{self.partition}" in str(path):
                if self.left == 0:
                    raise DiskFullError("no space left", path=path)
                self.left -= 1
            original(fd, data, position, path)

        monkeypatch.setattr(durable, "write_at", write_at)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def stored(store: KafkaStore, topic: str = TOPIC, partition: int = 0, **options: Any) -> list[bytes | None]:
    if partition not in store.topics().get(topic, []):
        return []
    return [record.value for record in read_all(store, topic, partition, **options)]


TOO_LARGE = KafkaMessage("another", b"x" * 3_000_000)
REFUSED: dict[str, Callable[[Producer], object]] = {
    "too large": lambda producer: producer.put(TOO_LARGE),
    "no topic's name": lambda producer: producer.put(KafkaMessage("no/topic", b"x")),
    "no bytes": lambda producer: producer.put_batch([message(8), KafkaMessage("another", "text")]),  # type: ignore[arg-type]
    "no partition": lambda producer: producer.put(KafkaMessage("another", b"x", partition=-1)),
    "no message": lambda producer: producer.put_batch([message(8), object()]),
}


class TestRefusedInATransaction:
    @pytest.mark.parametrize("commit", [True, False])
    @pytest.mark.parametrize("why", REFUSED)
    def test_it_can_end_both_ways(self, tmp_path: Path, why: str, commit: bool) -> None:
        with open_small(tmp_path) as store:
            producer = store.producer()
            producer.begin()
            producer.put(message(0))
            with pytest.raises((MessageIllegalError, UsageError)):
                REFUSED[why](producer)
            producer.commit() if commit else producer.abort()
            assert not producer.in_transaction
            store.put(message(1))
            shown = [value_of(0), value_of(1)] if commit else [value_of(1)]
            assert stored(store, isolation="read_committed") == shown
            with producer.transaction():
                producer.put(message(2))
            assert stored(store, isolation="read_committed") == [*shown, value_of(2)]
        assert bad(kafka.check(tmp_path)) == []

    def test_nothing_was_put(self, tmp_path: Path) -> None:
        with open_small(tmp_path) as store:
            producer = store.producer()
            with pytest.raises(MessageIllegalError), producer.transaction():
                producer.put(TOO_LARGE)
            with producer.transaction():
                pass
            assert store.topics() == {}

    def test_unknown_topics(self, tmp_path: Path) -> None:
        with open_small(tmp_path) as store:
            store.create_topic(TOPIC)
        with open_small(tmp_path, auto_create_topics_enable=False) as store:
            producer = store.producer()
            with pytest.raises(MessageIllegalError, match="unknown partition"), producer.transaction():
                producer.put_batch([message(0), KafkaMessage("another", b"x")])
            assert stored(store) == []

    def test_fenced_in_one_partition(self, tmp_path: Path) -> None:
        with open_small(tmp_path) as store:
            store.create_topic(TOPIC, 2)
            old = store.producer(7)
            store.put_as([message(0, partition=1)], Sender(7, 1, 0))
            with pytest.raises(ProducerFencedError), old.transaction():
                old.put_batch([message(1), message(2), message(3, partition=1)])
            assert store.partition(TOPIC).last_stable_offset == store.max_offset(TOPIC) == 0
            assert stored(store, partition=1) == [value_of(0)]

    def test_a_full_disk(self, tmp_path: Path, disk: Disk) -> None:
        with open_small(tmp_path, batch_size=100) as store:
            producer = store.producer()
            producer.begin()
            disk.left = 3
            with pytest.raises(DiskFullError):
                producer.put_batch([message(number, partition=number // 2) for number in range(6)])
            disk.left = None
            producer.abort()
            assert [stored(store, partition=number, isolation="read_committed") for number in range(3)] == [[]] * 3
            with producer.transaction():  # the aborted ones are not taken for stored
                producer.put_batch([message(number, partition=number // 2) for number in range(6)])
            for number in range(3):
                wanted = [value_of(2 * number), value_of(2 * number + 1)]
                assert stored(store, partition=number, isolation="read_committed") == wanted
        assert bad(kafka.check(tmp_path)) == []


@pytest.mark.parametrize("commit", [True, False])
def test_ending_goes_on_where_it_failed(tmp_path: Path, disk: Disk, commit: bool) -> None:
    with open_small(tmp_path) as store:
        producer = store.producer()
        producer.begin()
        producer.put_batch([message(number, partition=number) for number in range(4)])
        end, other = (producer.commit, producer.abort) if commit else (producer.abort, producer.commit)
        disk.left, disk.partition = 0, f"{TOPIC}-1"
        with pytest.raises(DiskFullError, match=f"not ended in {TOPIC}-1"):
            end()
        open_ones = [store.partition(TOPIC, number).last_stable_offset == 0 for number in range(4)]
        assert open_ones == [False, True, False, False]
        for refused in (other, producer.begin, lambda: producer.put(message(5))):
            with pytest.raises(UsageError):
                refused()
        disk.left = None
        end()
        for number in range(4):
            shown = stored(store, partition=number, isolation="read_committed")
            assert shown == ([value_of(number)] if commit else [])
            assert store.max_offset(TOPIC, number) == 2  # one marker each
        with producer.transaction():
            producer.put(message(9))
    assert bad(kafka.check(tmp_path)) == []


def test_ending_that_reached_no_partition_can_end_the_other_way(tmp_path: Path, disk: Disk) -> None:
    with open_small(tmp_path) as store:
        producer = store.producer()
        producer.begin()
        producer.put(message(0))
        disk.left = 0
        with pytest.raises(DiskFullError):
            producer.commit()
        disk.left = None
        producer.abort()
        assert stored(store, isolation="read_committed") == []


class TestTriedAgain:
    @pytest.mark.parametrize("room", [0, 1, 4, 5, 6, 17])
    def test_each_message_is_there_once(self, tmp_path: Path, disk: Disk, room: int) -> None:
        """Whatever the number of batches that were stored before it failed."""
        with open_small(tmp_path, batch_size=100) as store:
            store.create_topic(TOPIC, 2)
            producer = store.producer()
            producer.put(message(999))
            messages = [message(number, partition=number // 20 % 2) for number in range(40)]
            for _ in range(2):
                disk.left = room
                with pytest.raises(DiskFullError):
                    producer.put_batch(messages)
            disk.left = None
            store.put(message(1000))  # what others do changes nothing
            results = producer.put_batch([message(number, partition=number // 20 % 2) for number in range(40)])
            assert sum(one.is_duplicate for one in results) == 2 * room
            for number in (0, 1):
                found = {record.offset: record.value for record in read_all(store, partition=number)}
                wanted = [one.value for one in messages if one.partition == number]
                places = [one.offset for one in results if one.partition == number]
                assert [found[offset] for offset in places] == wanted
            values = sorted(value or b"" for number in (0, 1) for value in stored(store, partition=number))
            assert values == sorted(value_of(number) for number in [*range(40), 999, 1000])
            assert producer.put_batch(messages)[0].is_duplicate is False  # a call that succeeded is no retry
        assert bad(kafka.check(tmp_path)) == []

    def test_all_are_checked_before_the_first_is_stored(self, tmp_path: Path) -> None:
        with open_small(tmp_path) as store:
            producer = store.producer()
            for refused in (KafkaMessage("b", "text"), KafkaMessage("b/", b""), TOO_LARGE):  # type: ignore[arg-type]
                with pytest.raises(MqstoreError):
                    producer.put_batch([message(0), refused])
            assert store.topics() == {}
            assert not any(one.is_duplicate for one in producer.put_batch([message(0), KafkaMessage("b", b"")]))
            assert stored(store) == [value_of(0)]

    def test_other_messages_are_no_retry(self, tmp_path: Path, disk: Disk) -> None:
        """They must not be taken for those with the same numbers that were stored before."""
        with open_small(tmp_path, batch_size=100) as store:
            store.create_topic(TOPIC)
            producer = store.producer()
            disk.left = 1
            with pytest.raises(DiskFullError):
                producer.put_batch([message(0), message(1), message(2)])
            disk.left = None
            kept = stored(store)
            assert kept
            producer.put_batch([message(3), message(4), message(5)])
            assert stored(store) == [*kept, value_of(3), value_of(4), value_of(5)]

    def test_the_producer_was_dropped(self, tmp_path: Path, disk: Disk) -> None:
        """What it knows of the call that failed is kept with the store, not with the caller's object."""
        messages = [message(number) for number in range(6)]
        with open_small(tmp_path, batch_size=100) as store:
            store.create_topic(TOPIC)
            disk.left = 3
            with pytest.raises(DiskFullError):
                store.producer(7).put_batch(messages)
            disk.left = None
            gc.collect()
            results = store.producer(7).put_batch(messages)
            assert [one.is_duplicate for one in results] == [True] * 3 + [False] * 3
            assert stored(store) == [value_of(number) for number in range(6)]

    @pytest.mark.parametrize("between", ["another put", "a transaction", "records deleted", "opened anew"])
    def test_a_new_call_with_the_same_messages(self, tmp_path: Path, disk: Disk, between: str) -> None:
        messages = [message(0)] * 6
        store = open_small(tmp_path, batch_size=100)
        store.create_topic(TOPIC)
        producer = store.producer(7)
        disk.left = 3
        with pytest.raises(DiskFullError):
            producer.put_batch(messages)
        disk.left = None
        if between == "another put":
            producer.put(message(1, partition=1))
        elif between == "a transaction":
            with producer.transaction():
                pass
        elif between == "records deleted":
            store.delete_records(TOPIC, 0, 1)
        else:
            store.close()
            store = open_small(tmp_path, batch_size=100, producer_id_expiration_ms=1 << 60)
            producer = store.producer(7)
        results = producer.put_batch(messages)
        assert [(one.offset, one.is_duplicate) for one in results] == [(offset, False) for offset in range(3, 9)]
        assert store.max_offset(TOPIC) == 9
        store.close()
        assert bad(kafka.check(tmp_path)) == []

    def test_the_same_number_again(self, tmp_path: Path) -> None:
        """After a restart, and twice in one process, the numbers go on where the log is."""
        with open_small(tmp_path) as store:
            store.producer(7).put(message(0))
            store.producer(7).put(message(1))
        with open_small(tmp_path, producer_id_expiration_ms=1 << 60) as store:
            one, other = store.producer(7), store.producer(7)
            one.put(message(2))
            other.put(message(3))
            one.put(message(4))
            assert stored(store) == [value_of(number) for number in range(5)]
            assert [record.sequence for record in read_all(store)] == [0, 1, 2, 3, 4]


class TestTakingOver:
    @staticmethod
    def leave_open(store: KafkaStore) -> Producer:
        """Something of producer 7 in two partitions, and of another in the second; neither is ended."""
        old, other = store.producer(7), store.producer(8)
        for producer, partitions in ((old, (0, 1)), (other, (1,))):
            producer.begin()
            producer.put_batch([message(10 * producer.producer_id + one, partition=one) for one in partitions])
        return old

    @pytest.mark.parametrize("epoch", [0, 1])
    def test_after_opening_anew(self, tmp_path: Path, epoch: int) -> None:
        """What the predecessor left open is aborted, everywhere; what others left stays."""
        with open_small(tmp_path) as store:
            self.leave_open(store)
        with open_small(tmp_path) as store:
            new = store.producer(7, epoch)
            assert store.partition(TOPIC, 0).last_stable_offset == store.max_offset(TOPIC, 0) == 2
            assert store.partition(TOPIC, 1).last_stable_offset == 1  # the other's is open yet
            assert [one.first_offset for one in store.aborted_transactions(TOPIC)] == [0]
            with new.transaction():
                new.put(message(1))
            assert stored(store, isolation="read_committed") == [value_of(1)]
            store.end_transaction(TOPIC, 1, 8, 0, commit=True)
            assert stored(store, partition=1, isolation="read_committed") == [value_of(81)]
        assert bad(kafka.check(tmp_path)) == []
        mark_crashed(tmp_path)
        with open_small(tmp_path) as store:
            assert stored(store, isolation="read_committed") == [value_of(1)]

    @pytest.mark.parametrize("commit", [True, False])
    def test_the_old_one_is_fenced(self, tmp_path: Path, commit: bool) -> None:
        with open_small(tmp_path) as store:
            old = self.leave_open(store)
            new = store.producer(7, epoch=1)
            assert not old.in_transaction
            for refused in (lambda: old.put(message(0, partition=2)), old.begin, old.commit if commit else old.abort):
                with pytest.raises(ProducerFencedError):
                    refused()
            with pytest.raises(UsageError, match="no transaction is open"):
                old.commit()
            with pytest.raises(ProducerFencedError):
                store.producer(7)
            assert store.producer(7, epoch=1) is new
            assert 2 not in store.topics()[TOPIC]
            with new.transaction():
                new.put(message(1))
            assert stored(store, isolation="read_committed") == [value_of(1)]
        assert bad(kafka.check(tmp_path)) == []
        with open_small(tmp_path, producer_id_expiration_ms=1 << 60) as store, pytest.raises(ProducerFencedError):
            store.producer(7)

    def test_one_that_another_process_has_fenced(self, tmp_path: Path) -> None:
        """Known only from numbered batches: a commit of the rest would show half of the transaction."""
        with open_small(tmp_path) as store:
            old = self.leave_open(store)
            store.end_transaction(TOPIC, 0, 7, 1, commit=False)
            with pytest.raises(ProducerFencedError):
                old.commit()
            assert not old.in_transaction
            store.end_transaction(TOPIC, 1, 8, 0, commit=False)
            for number in (0, 1):
                assert store.partition(TOPIC, number).last_stable_offset == store.max_offset(TOPIC, number)
                assert stored(store, partition=number, isolation="read_committed") == []

    def test_a_partition_that_cannot_be_ended(self, tmp_path: Path, disk: Disk) -> None:
        """Nobody takes over before all of it has ended; the same call goes on."""
        with open_small(tmp_path) as store:
            self.leave_open(store)
        with open_small(tmp_path) as store:
            disk.left, disk.partition = 0, f"{TOPIC}-0"
            with pytest.raises(DiskFullError, match=f"not ended in {TOPIC}-0"):
                store.producer(7, epoch=1)
            disk.left = None
            store.producer(7, epoch=1)
            assert [store.max_offset(TOPIC, number) for number in (0, 1)] == [2, 3]  # one marker each

    def test_a_commit_under_way_is_ended_first(self, tmp_path: Path, disk: Disk) -> None:
        with open_small(tmp_path) as store:
            old = self.leave_open(store)
            disk.left, disk.partition = 0, f"{TOPIC}-1"
            for failing in (old.commit, lambda: store.producer(7, epoch=1)):
                with pytest.raises(DiskFullError, match=f"not ended in {TOPIC}-1"):
                    failing()
            disk.left = None
            store.producer(7, epoch=1)
            store.end_transaction(TOPIC, 1, 8, 0, commit=False)
            shown = [stored(store, partition=number, isolation="read_committed") for number in (0, 1)]
            assert shown == [[value_of(70)], [value_of(71)]]


def test_a_free_number_behind_the_last(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        store.put_as([message(0)], Sender(1, 0, 0))
        taken = {1, *(store.producer(number).producer_id for number in (0, (1 << 63) - 1))}
        made = [store.producer().producer_id for _ in range(3)]
        assert len({*made, *taken}) == 6
