"""What the store puts once more by itself: what it has taken gets where it belongs, whatever has changed since."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import mqstore
from mqstore import Message, MessageIllegalError, Record, TransactionState
from mqstore.layout import constants as c
from mqstore.store.transactions import CHECK_GROUP, Transactions
from store.consuming import bodies, open_wide, put_numbers
from store.support import copy_of_running, findings, open_small

NOW = 1_800_000_000_000
NAMES, OFFSETS = c.PROPERTY_INNER_MULTI_DISPATCH, c.PROPERTY_INNER_MULTI_QUEUE_OFFSET
MANY = ",".join(f"%LMQ%{number}" for number in range(100))
ON: dict[str, Any] = {"enable_multi_dispatch": True, "enable_lmq": True}


def lose_queues(path: Path) -> None:
    shutil.rmtree(path / "consumequeue")


def rebuild(path: Path) -> None:
    mqstore.rebuild(path, None, in_place=True)


def put_files(store: mqstore.Store, count: int) -> None:
    """Messages until ``count`` further files of the log have begun."""
    end = (store.log_end // 4096 + count) * 4096
    while store.log_end <= end:
        store.put(Message("fill", bytes(500), queue_id=0))
    store.wait_dispatched()


def expire_all_but_the_newest(store: mqstore.Store) -> None:
    store.flush()
    while store.expire(NOW * 2).removed:
        pass


def commit_all(asked: list[bytes]) -> Callable[[Record], TransactionState]:
    def checker(half: Record) -> TransactionState:
        asked.append(half.body)
        return TransactionState.COMMIT

    return checker


@pytest.mark.parametrize("begin_anew", [lose_queues, rebuild])
def test_older_entries_close_no_half_message_of_a_queue_that_begins_anew(
    tmp_path: Path, begin_anew: Callable[[Path], None]
) -> None:
    """All half messages have expired, the entries that close numbers 0 to 3 have not."""
    path = tmp_path / "s"
    with open_small(path) as store:
        halves = [store.transaction("shop", Message("orders", b"old", queue_id=0)) for _ in range(4)]
        put_files(store, 1)
        for half in halves:
            half.commit()
        store.wait_dispatched()
        expire_all_but_the_newest(store)
        assert store.queues(c.HALF_TOPIC) == [mqstore.QueueInfo(c.HALF_TOPIC, 0, 4, 4)]
        assert [one.body for one in store.get(c.OP_HALF_TOPIC, 0).messages] == [b"0", b"1", b"2", b"3"]
    begin_anew(path)
    asked: list[bytes] = []
    with open_small(path) as store:
        store.transactions.set_checker("shop", commit_all(asked))
        first = store.transaction("shop", Message("new", b"0", queue_id=0))
        assert first.half.queue_offset == 0
        store.transactions.check(0)  # takes in the old entries
        first.commit()
        store.transaction("shop", Message("new", b"1", queue_id=0))
    with open_small(path) as store:  # which reads them all again, the newest behind them
        with pytest.raises(mqstore.UsageError, match="closed already"):
            store.transactions.end(first.half.physical_offset, TransactionState.COMMIT)
        store.transactions.set_checker("shop", commit_all(asked))
        store.transaction("shop", Message("new", b"2", queue_id=0)).rollback()
        store.transaction("shop", Message("new", b"3", queue_id=0))
        store.wait_dispatched()
        assert [store.transactions.check(NOW * 2), store.transactions.check(NOW * 2)] == [2, 0]
        assert asked == [b"1", b"3"]
        assert bodies(store, "new") == [b"0", b"1", b"3"]
    assert findings(path) == []


@pytest.mark.parametrize("begin_anew", [lose_queues, rebuild])
def test_a_group_reads_a_queue_that_begins_anew_from_its_beginning(
    tmp_path: Path, begin_anew: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    """Also when the store is killed right after the first messages: the group's old place must be gone by then."""
    path = tmp_path / "s"
    with open_small(path) as store:
        put_numbers(store, 3)
        store.commit_offset("g", "orders", 0, 3)
        put_files(store, 1)
        expire_all_but_the_newest(store)
    begin_anew(path)
    with open_small(path) as store:
        assert "group g is ahead of queue orders/0: 3 back to 0" in caplog.text
        put_numbers(store, 5)
        killed = copy_of_running(path, tmp_path / "killed")
    for one in (path, killed):
        with open_small(one) as store, store.consumer("g", "orders", timeout_s=0) as consumer:
            assert [message.body for message in consumer] == [b"0", b"1", b"2", b"3", b"4"]


def test_transactions_need_no_topic_that_is_created_by_itself(tmp_path: Path) -> None:
    settings = {"auto_create_topic_enable": False, "transaction_check_max": 1}
    with open_wide(tmp_path / "s", **settings) as store:
        store.create_topic("orders", 1)
        asked: list[bytes] = []
        store.transactions.set_checker("unsure", lambda half: TransactionState.UNKNOWN)
        store.transactions.set_checker("shop", commit_all(asked))
        store.transaction("unsure", Message("orders", b"unsure", queue_id=0))
        store.transaction("shop", Message("orders", b"sure", queue_id=0))
        for _ in range(3):
            store.wait_dispatched()
            store.transactions.check(NOW * 2)
        assert asked == [b"sure"]
        assert bodies(store, c.TRANS_CHECK_MAX_TIME_TOPIC) == [b"unsure"]
        assert store._engine.settings.topics[c.TRANS_CHECK_MAX_TIME_TOPIC].write_queue_nums == 1


def test_a_lower_largest_size_holds_back_no_copy_of_what_is_stored(tmp_path: Path) -> None:
    with open_wide(tmp_path / "s", schedule_message_enable=False, transaction_check_max=1) as store:
        store.transactions.set_checker("shop", lambda half: TransactionState.UNKNOWN)
        store.transaction("shop", Message("orders", bytes(300), queue_id=0))
        put_numbers(store, 1, topic="mail")
        store.put(Message("mail", bytes(200)))
        store.max_message_size = 100
        for _ in range(2):
            store.wait_dispatched()
            store.transactions.check(NOW * 2)
        assert bodies(store, c.TRANS_CHECK_MAX_TIME_TOPIC) == [bytes(300)]
        with store.consumer("g", "mail", timeout_s=0) as consumer:
            taken = list(consumer)
            assert consumer.nack(taken[1]) is not None
            assert consumer.nack(taken[0], delay_level=-1) is not None
        store.wait_dispatched()
        assert store.deliver_due(NOW * 2) == 1
        assert bodies(store, "%RETRY%g") == [bytes(200)]
        with pytest.raises(MessageIllegalError, match="max_message_size"):
            store.put(Message("mail", bytes(101)))


def test_what_is_taken_as_a_half_message_can_be_asked_about_to_the_end(tmp_path: Path) -> None:
    """Each question writes how often it was asked into the properties; they must have room for that."""
    with open_wide(tmp_path / "s", transaction_check_max=2) as store:
        store.transactions.set_checker("shop", lambda half: TransactionState.UNKNOWN)
        taken = 0
        for size in range(32_560, 32_760, 10):
            try:
                store.transaction("shop", Message("orders", b"", properties={"p": "x" * size}, queue_id=0))
                taken += 1
            except MessageIllegalError:
                break
        assert 0 < taken < 20
        for _ in range(3):
            store.wait_dispatched()
            store.transactions.check(NOW * 2)
        store.wait_dispatched()
        assert store.max_offset(c.TRANS_CHECK_MAX_TIME_TOPIC, 0) == taken


@pytest.mark.parametrize("topic", ["o", "T" * 127])
def test_what_is_taken_as_a_half_message_can_be_committed_and_asked_about(tmp_path: Path, topic: str) -> None:
    """Whatever is longer then than while it waits: its topic, or the count of questions."""
    with open_small(tmp_path / "s") as store:
        store.transactions.set_checker("shop", lambda half: TransactionState.UNKNOWN)
        sizes, taken = range(3400, 3800, 9), []
        for size in sizes:
            try:
                transaction = store.transaction("shop", Message(topic, bytes(size), queue_id=0))
            except MessageIllegalError:
                continue
            store.wait_dispatched()
            store.transactions.check(NOW * 2)
            transaction.commit()
            taken.append(size)
        assert taken == list(sizes[: len(taken)])
        assert 0 < len(taken) < len(sizes)
        store.wait_dispatched()
        assert store.max_offset(topic, 0) == len(taken)


def test_a_half_message_that_cannot_be_put_again_stays_open_and_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As one may be that was taken by a broker."""
    monkeypatch.setattr(Transactions, "_check_can_end", lambda *_: None)
    with open_wide(tmp_path / "s") as store:
        full = Message("orders", b"full", properties={"p": "x" * 32_700}, queue_id=0)
        transaction = store.transaction("shop", full)
        store.transaction("other", Message("orders", b"other", queue_id=0)).rollback()
        store.transaction("new", Message("orders", b"new", queue_id=0))
        store.transactions.set_checker("shop", lambda half: TransactionState.UNKNOWN)
        store.wait_dispatched()
        assert [store.transactions.check(NOW * 2) for _ in range(2)] == [0, 0]
        assert caplog.text.count("half message 0 cannot be put where it belongs, and its transaction stays open") == 1
        asked: list[bytes] = []
        store.transactions.set_checker("new", commit_all(asked))
        assert store.transactions.check(NOW * 2) == 1
        assert asked == [b"new"]
        assert store.committed_offset(CHECK_GROUP, c.HALF_TOPIC, 0) == 0
        transaction.commit()
        assert bodies(store, "orders") == [b"new", b"full"]
    assert findings(tmp_path / "s") == []


@pytest.mark.parametrize("way", ["delayed", "half"])
def test_what_waits_is_refused_when_it_could_not_go_to_its_further_queues(tmp_path: Path, way: str) -> None:
    with open_wide(tmp_path / "s", schedule_message_enable=False, **ON) as store:

        def put(size: int, names: str = MANY) -> None:
            message = Message("orders", b"", queue_id=0, properties={NAMES: names, "p": "x" * size})
            if way == "delayed":
                store.put(replace(message, delay_level=1))
            else:
                store.transaction("shop", message).commit()

        end = store.log_end
        for size, given, match in ((31_500, MANY, "too large"), (10, "%LMQ%a,a/b", "queue that cannot be")):
            with pytest.raises(MessageIllegalError, match=match):
                put(size, given)
        assert store.log_end == end
        put(29_500)
        store.wait_dispatched()
        store.deliver_due(NOW * 2)
        store.wait_dispatched()
        assert store.max_offset("orders", 0) == 1
        assert all(store.max_offset(f"%LMQ%{number}", 0) == 1 for number in range(100))
    assert findings(tmp_path / "s") == []


@pytest.mark.parametrize(
    "properties",
    [{NAMES: "a/b"}, {NAMES: MANY, "p": "x" * 31_820}, {NAMES: "%LMQ%a,a/b", OFFSETS: "0,0"}],
    ids=["no name", "too large", "with old numbers"],
)
def test_what_cannot_go_to_further_queues_goes_to_its_own_and_is_told(
    tmp_path: Path, properties: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """It was taken when further queues were off, and so nobody looked at what it names."""
    with open_wide(tmp_path / "s", schedule_message_enable=False) as store:
        store.put(Message("orders", b"delayed", queue_id=0, delay_level=1, properties=properties))
        half = store.transaction("shop", Message("orders", b"half", queue_id=0, properties=properties)).half
    with open_wide(tmp_path / "s", schedule_message_enable=False, **ON) as store:
        assert store.deliver_due(NOW * 2) == 1
        store.transactions.end(half.physical_offset, TransactionState.COMMIT)
        assert bodies(store, "orders") == [b"delayed", b"half"]
        assert [queue.topic for queue in store.queues() if queue.topic.startswith("%LMQ%")] == []
        assert [message.properties.get(OFFSETS) for message in store.get("orders", 0).messages] == [None, None]
        assert caplog.text.count("goes to its own queue only, and to none that it names") == 2


def test_a_transaction_cannot_be_delayed(tmp_path: Path) -> None:
    with open_small(tmp_path / "s") as store:
        with pytest.raises(MessageIllegalError, match="delay level 2"):
            store.transaction("g", Message("T", b"later", queue_id=0, delay_level=2))
        assert store.queues() == []
