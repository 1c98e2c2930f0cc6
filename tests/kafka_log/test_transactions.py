"""Numbered producers and transactions: once and in order, all or nothing."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

import mqstore.kafka as kafka
from kafka_log.support import (
    TOPIC,
    bad,
    mark_crashed,
    message,
    open_small,
    partition_of,
    read_all,
    tree,
    value_of,
)
from mqstore.errors import (
    MessageIllegalError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    UsageError,
)
from mqstore.kafka import Producer
from mqstore.kafka.batching import Sender
from mqstore.status import GetMessageStatus


class TestProducers:
    def test_what_is_sent_twice_is_stored_once(self, tmp_path: Path) -> None:
        with open_small(tmp_path) as store:
            first = store.put_as([message(0), message(1)], Sender(7, 0, 0))
            again = store.put_as([message(0), message(1)], Sender(7, 0, 0))
            assert [one.offset for one in again] == [one.offset for one in first]
            assert [one.is_duplicate for one in first + again] == [False, False, True, True]
            for number in range(5):
                store.put_as([message(number)], Sender(7, 0, 2 + number))
            assert store.max_offset(TOPIC) == 7
            with pytest.raises(OutOfOrderSequenceError):  # only the last five batches are remembered
                store.put_as([message(0), message(1)], Sender(7, 0, 0))

    def test_a_gap_is_refused(self, tmp_path: Path) -> None:
        with open_small(tmp_path) as store:
            store.put_as([message(0)], Sender(7, 0, 4))  # an unknown producer may begin anywhere
            with pytest.raises(OutOfOrderSequenceError) as caught:
                store.put_as([message(1)], Sender(7, 0, 6))
            assert caught.value.expected == 5
            with pytest.raises(OutOfOrderSequenceError):  # a new epoch begins at 0
                store.put_as([message(1)], Sender(7, 1, 5))
            store.put_as([message(1)], Sender(7, 1, 0))
            with pytest.raises(ProducerFencedError):
                store.put_as([message(1)], Sender(7, 0, 5))
            assert store.max_offset(TOPIC) == 2

    def test_sequences_wrap(self, tmp_path: Path) -> None:
        with open_small(tmp_path) as store:
            store.put_as([message(0), message(1)], Sender(7, 0, 2**31 - 2))
            store.put_as([message(2)], Sender(7, 0, 0))
            assert store.producers(TOPIC)[0].last_sequence == 0
            assert [one.sequence for one in read_all(store)] == [2**31 - 2, 2**31 - 1, 0]

    @pytest.mark.parametrize("crash", [False, True])
    def test_known_after_a_restart(self, tmp_path: Path, crash: bool) -> None:
        with open_small(tmp_path) as store:
            for number in range(80):
                store.put_as([message(number)], Sender(7, 3, number))
            wanted = store.producers(TOPIC)
        if crash:
            mark_crashed(tmp_path)
            for path in partition_of(tmp_path).glob("*.snapshot"):
                path.unlink()
        with open_small(tmp_path, producer_id_expiration_ms=1 << 60) as store:
            assert store.producers(TOPIC) == wanted
            assert store.put_as([message(79)], Sender(7, 3, 79))[0].is_duplicate
            with pytest.raises(OutOfOrderSequenceError):
                store.put_as([message(81)], Sender(7, 3, 81))

    def test_forgotten_when_silent_for_long(self, tmp_path: Path) -> None:
        with open_small(tmp_path) as store:
            store.put_as([message(0, timestamp_ms=5)], Sender(7, 0, 0))
            store.put_as([message(0, timestamp_ms=5)], Sender(8, 0, 0, is_transactional=True))
        with open_small(tmp_path) as store:
            assert [one.producer_id for one in store.producers(TOPIC)] == [8]  # its transaction is open

    def test_new_numbers(self, tmp_path: Path) -> None:
        with open_small(tmp_path) as store:
            one, other = store.producer(), store.producer()
            assert one.producer_id != other.producer_id
            one.put(message(0))
            assert store.producer(one.producer_id, epoch=1).put(message(1)).offset == 1
            with pytest.raises(ProducerFencedError):
                one.put(message(2))


class TestTransactions:
    def test_commit_and_abort(self, tmp_path: Path) -> None:
        with open_small(tmp_path) as store:
            producer = store.producer()
            store.put(message(0))
            with producer.transaction():
                producer.put_batch([message(1), message(2)])
                producer.put(message(3, partition=1))
                assert store.get(TOPIC, 0, 1, isolation="read_committed").messages == []
            self.fail_in_a_transaction(producer)
            store.put(message(5))
            shown = [one.value for one in read_all(store, isolation="read_committed")]
            assert shown == [value_of(number) for number in (0, 1, 2, 5)]
            assert [one.value for one in read_all(store)] == [value_of(number) for number in (0, 1, 2, 4, 5)]
            assert len(read_all(store, partition=1, isolation="read_committed")) == 1
            (aborted,) = store.aborted_transactions(TOPIC)
            assert aborted == (producer.producer_id, 4, 5, 6)
        with kafka.inspect(tmp_path) as view:
            assert [one.value for one in read_all(view, isolation="read_committed")] == shown
            assert view.aborted_transactions(TOPIC) == [aborted]
        assert bad(kafka.check(tmp_path)) == []

    @staticmethod
    def fail_in_a_transaction(producer: Producer) -> None:
        with contextlib.suppress(ZeroDivisionError), producer.transaction():
            producer.put(message(4))
            raise ZeroDivisionError

    def test_an_open_transaction_holds_readers_back(self, tmp_path: Path) -> None:
        with open_small(tmp_path) as store:
            producer = store.producer()
            store.put(message(0))
            producer.begin()
            producer.put(message(1))
            for number in range(2, 60):
                store.put(message(number))
            assert len(read_all(store, isolation="read_committed")) == 1
            result = store.get(TOPIC, 0, 1, isolation="read_committed")
            assert (result.status, result.max_offset) == (GetMessageStatus.OFFSET_OVERFLOW_ONE, 1)
        with open_small(tmp_path) as store:
            assert store.partition(TOPIC).last_stable_offset == 1
            store.end_transaction(TOPIC, 0, producer.producer_id, 0, commit=False)
            assert len(read_all(store, isolation="read_committed")) == 59
        with kafka.inspect(tmp_path) as view:
            assert view.partition(TOPIC).last_stable_offset == 61

    def test_misuse(self, tmp_path: Path) -> None:
        with open_small(tmp_path) as store:
            producer = store.producer()
            with pytest.raises(UsageError):
                producer.commit()
            producer.begin()
            with pytest.raises(UsageError):
                producer.begin()
            producer.put(message(0))
            with pytest.raises(MessageIllegalError):  # the same producer outside of its transaction
                store.put_as([message(1)], Sender(producer.producer_id, 0, 1))
            with pytest.raises(UsageError):
                store.get(TOPIC, isolation="dirty")

    def test_aborts_are_found_again_after_a_crash(self, tmp_path: Path) -> None:
        with open_small(tmp_path) as store:
            producer = store.producer()
            for number in range(60):
                producer.begin()
                producer.put(message(number))
                producer.commit() if number % 3 else producer.abort()
            wanted = store.aborted_transactions(TOPIC)
            shown = [one.value for one in read_all(store, isolation="read_committed")]
        assert len(wanted) == 20
        before = tree(partition_of(tmp_path))
        for path in partition_of(tmp_path).glob("*.txnindex"):
            path.unlink()
        mark_crashed(tmp_path)
        with open_small(tmp_path, producer_id_expiration_ms=1 << 60) as store:
            assert store.aborted_transactions(TOPIC) == wanted
            assert [one.value for one in read_all(store, isolation="read_committed")] == shown
        assert tree(partition_of(tmp_path)) == before
