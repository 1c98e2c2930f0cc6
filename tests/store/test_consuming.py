"""Groups, acknowledging, retries, dead letters, delay and transactions, through the public verbs."""

from __future__ import annotations

import queue
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import mqstore
from mqstore import Message, Store, TransactionState, UsageError
from mqstore.layout import constants as c
from mqstore.store.transactions import CHECK_GROUP
from store.support import findings, open_small

NOW = 1_800_000_000_000


def open_wide(path: Path, **settings: Any) -> Store:
    """Files large enough for the properties of retries."""
    return open_small(path, mapped_file_size_commit_log=65536, mapped_file_size_consume_queue=2000, **settings)


def put_numbers(store: Store, count: int, topic: str = "orders", **fields: Any) -> None:
    for number in range(count):
        store.put(Message(topic, b"%d" % number, **fields))
    store.wait_dispatched()


def take(consumer: mqstore.Consumer, count: int) -> list[bytes]:
    """Bodies of the next ``count`` messages, acknowledged."""
    found = []
    for _ in range(count):
        message = consumer.get(timeout_s=5)
        consumer.ack(message)
        found.append(message.body)
    return found


def test_a_group_goes_on_where_it_was_after_a_restart(tmp_path: Path) -> None:
    with open_wide(tmp_path / "s") as store:
        put_numbers(store, 10)
        with store.consumer("billing", "orders") as consumer:
            assert take(consumer, 5) == [b"0", b"1", b"2", b"3", b"4"]
            for _ in range(3):
                consumer.get(timeout_s=5)  # taken and never acknowledged
    with open_wide(tmp_path / "s") as store:
        assert store.committed_offset("billing", "orders", 0) == 5
        with store.consumer("billing", "orders", timeout_s=0.05) as consumer:
            assert [message.body for message in consumer] == [b"5", b"6", b"7", b"8", b"9"]
        with store.consumer("audit", "orders") as consumer:
            assert take(consumer, 1) == [b"0"]


def test_progress_stops_in_front_of_the_first_message_that_is_not_acknowledged(tmp_path: Path) -> None:
    with open_wide(tmp_path / "s") as store:
        put_numbers(store, 6)
        consumer = store.consumer("g", "orders")
        messages = [consumer.get(timeout_s=5) for _ in range(6)]
        for number in (0, 1, 3, 5):
            consumer.ack(messages[number])
        assert store.committed_offset("g", "orders", 0) == 2
        consumer.ack(messages[2])
        assert store.committed_offset("g", "orders", 0) == 4
        consumer.ack(messages[4])
        assert store.committed_offset("g", "orders", 0) == 6
        with pytest.raises(UsageError, match="acknowledged before"):
            consumer.ack(messages[0])


def test_without_auto_commit_only_commit_moves_the_group(tmp_path: Path) -> None:
    with open_wide(tmp_path / "s") as store:
        put_numbers(store, 10)
        with store.consumer("g", "orders", auto_commit=False) as consumer:
            take(consumer, 5)
            assert store.committed_offset("g", "orders", 0) is None
            consumer.commit()
            take(consumer, 2)
        assert store.committed_offset("g", "orders", 0) == 5
    with open_wide(tmp_path / "s") as store, store.consumer("g", "orders") as consumer:
        assert take(consumer, 1) == [b"5"]


def test_get_waits_and_gives_up_as_the_standard_library_queue_does(tmp_path: Path) -> None:
    with open_wide(tmp_path / "s") as store, store.consumer("g", "later") as consumer:
        with pytest.raises(queue.Empty):
            consumer.get(block=False)
        with pytest.raises(queue.Empty):
            consumer.get(timeout_s=0.05)
        timer = threading.Timer(0.2, lambda: store.put(Message("later", b"here")))
        timer.start()
        assert consumer.get(timeout_s=10).body == b"here"
        timer.join()


def test_tags_pick_and_what_is_not_picked_counts_as_handled(tmp_path: Path) -> None:
    with open_wide(tmp_path / "s") as store:
        for number in range(9):
            store.put(Message("orders", b"%d" % number, tags=("paid", "sent", "gone")[number % 3]))
        store.wait_dispatched()
        with store.consumer("g", "orders", "paid || sent", timeout_s=0.05) as consumer:
            bodies = []
            for message in consumer:
                bodies.append(message.body)
                consumer.ack(message)
        assert bodies == [b"0", b"1", b"3", b"4", b"6", b"7"]
        assert store.committed_offset("g", "orders", 0) == 9


def test_the_queues_are_shared_and_everything_comes_once(tmp_path: Path) -> None:
    with open_wide(tmp_path / "s", default_topic_queue_nums=4) as store:
        put_numbers(store, 200)
        consumers = [store.consumer("g", "orders", timeout_s=0.5) for _ in range(3)]
        found: list[list[mqstore.Record]] = [[] for _ in consumers]

        def consume(number: int) -> None:
            for message in consumers[number]:
                found[number].append(message)
                assert consumers[number].ack(message)

        threads = [threading.Thread(target=consume, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        queues = [{message.queue_id for message in one} for one in found]
        assert sorted(map(len, queues)) == [1, 1, 2]
        assert set().union(*queues) == {0, 1, 2, 3}
        assert sorted(int(message.body) for one in found for message in one) == list(range(200))


def test_queues_move_when_a_consumer_comes_or_goes(tmp_path: Path) -> None:
    with open_wide(tmp_path / "s", default_topic_queue_nums=2) as store:
        put_numbers(store, 8)
        first = store.consumer("g", "orders")
        held = [first.get(timeout_s=5) for _ in range(8)]
        second = store.consumer("g", "orders")
        moved = {message.queue_offset for message in held if message.queue_id == 1}
        assert [first.ack(message) for message in held] == [message.queue_id == 0 for message in held]
        again = [second.get(timeout_s=5) for _ in range(4)]
        assert {message.queue_id for message in again} == {1}
        assert {message.queue_offset for message in again} == moved
        second.close()
        put_numbers(store, 2)
        assert sorted(take(first, 6)) == sorted([message.body for message in again] + [b"0", b"1"])


def test_broadcast_consumers_all_get_everything(tmp_path: Path) -> None:
    with open_wide(tmp_path / "s") as store:
        put_numbers(store, 3)
        consumers = [store.consumer("g", "orders", broadcast=True) for _ in range(2)]
        assert [take(consumer, 3) for consumer in consumers] == [[b"0", b"1", b"2"]] * 2
        assert store.committed_offset("g", "orders", 0) is None
        latest = store.consumer("g", "orders", broadcast=True, start="latest")
        with pytest.raises(queue.Empty):
            latest.get(block=False)
        put_numbers(store, 1)
        assert take(latest, 1) == [b"0"]


def test_what_fails_comes_again_and_at_last_goes_to_the_dead_letters(tmp_path: Path) -> None:
    with open_wide(tmp_path / "s", schedule_message_enable=False) as store:
        put_numbers(store, 5, tags="paid", keys=["o-1"], properties={"mine": "yes"})
        store.settings.set_retry_max_times("g", 2)
        attempts = []

        def handle(message: mqstore.Record) -> None:
            attempts.append((message.body, message.reconsume_times))
            if message.body == b"3":
                raise RuntimeError("cannot be handled")

        consumer = store.consumer("g", "orders", timeout_s=0.05)
        assert consumer.run(handle) == 4
        assert store.committed_offset("g", "orders", 0) == 5
        for _ in range(2):
            assert store.deliver_due(NOW * 2) == 1
            store.wait_dispatched()
            consumer.run(handle)
        assert [one for one in attempts if one[0] == b"3"] == [(b"3", 0), (b"3", 1), (b"3", 2)]
        store.wait_dispatched()
        (dead,) = store.get("%DLQ%g", 0).messages
        assert (dead.body, dead.tags, dead.keys, dead.reconsume_times) == (b"3", "paid", ["o-1"], 3)
        original = store.get("orders", 0, 3, 1).messages[0]
        assert dead.properties["RETRY_TOPIC"] == "orders"
        assert dead.properties["ORIGIN_MESSAGE_ID"] == original.msg_id
        assert dead.properties["mine"] == "yes"
        assert dead.born_timestamp_ms == original.born_timestamp_ms
        (retried, _) = store.get("%RETRY%g", 0).messages
        assert retried.properties["REAL_TOPIC"] == "%RETRY%g"
    assert findings(tmp_path / "s") == []


def test_giving_up_at_once(tmp_path: Path) -> None:
    with open_wide(tmp_path / "s") as store:
        put_numbers(store, 1)
        consumer = store.consumer("g", "orders")
        result = consumer.nack(consumer.get(timeout_s=5), delay_level=-1)
        assert result is not None
        assert (result.topic, result.queue_id) == ("%DLQ%g", 0)
        assert store.settings.topics["%DLQ%g"].write_queue_nums == 1


def test_delayed_messages_come_when_they_are_due_and_not_before(tmp_path: Path) -> None:
    with open_wide(tmp_path / "s", schedule_message_enable=False) as store:
        early = store.put(Message("orders", b"soon", tags="t", keys=["k"], queue_id=0, delay_level=1))
        late = store.put(Message("orders", b"later", queue_id=0, delay_level=2))
        assert (early.topic, early.queue_id, late.queue_id) == (c.SCHEDULE_TOPIC, 0, 1)
        store.wait_dispatched()
        assert store.deliver_due(early.store_timestamp_ms + 999) == 0
        assert store.deliver_due(early.store_timestamp_ms + 1000) == 1
        assert store.deliver_due(early.store_timestamp_ms + 1000) == 0
        store.wait_dispatched()
        (message,) = store.get("orders", 0, where="t").messages
        assert (message.body, message.keys) == (b"soon", ["k"])
        assert message.properties["REAL_TOPIC"] == "orders"
        assert store.deliver_due(late.store_timestamp_ms + 5_000) == 1
    with open_wide(tmp_path / "s", schedule_message_enable=False) as store:
        assert store.settings.delay_offsets == {1: 1, 2: 1}
        assert store.deliver_due(NOW * 2) == 0
        assert [message.body for message in store.get("orders", 0).messages] == [b"soon", b"later"]
    assert findings(tmp_path / "s") == []


def test_the_service_delivers_by_itself(tmp_path: Path) -> None:
    with open_wide(tmp_path / "s", message_delay_level="1s") as store, store.consumer("g", "orders") as consumer:
        put = store.put(Message("orders", b"soon", delay_level=1))
        message = consumer.get(timeout_s=30)
        assert message.body == b"soon"
        assert message.store_timestamp_ms >= put.store_timestamp_ms + 1000


def test_a_due_time_that_no_delay_explains_is_now(tmp_path: Path) -> None:
    with open_wide(tmp_path / "s", message_delay_level="2h", schedule_message_enable=False) as store:
        store.put(Message("orders", b"x", queue_id=0, delay_level=1))
    with open_wide(tmp_path / "s", message_delay_level="1s", schedule_message_enable=False) as store:
        assert store.deliver_due(time.time_ns() // 1_000_000) == 1


def test_progress_ahead_of_a_shortened_queue_is_brought_back(tmp_path: Path) -> None:
    with open_wide(tmp_path / "s", schedule_message_enable=False) as store:
        put_numbers(store, 3)
        store.settings.commit_offset("g", "orders", 0, 20)
        store.settings.commit_offset("g", "gone", 1, 7)
        store.settings.set_delay_offset(1, 9)
    with open_wide(tmp_path / "s", schedule_message_enable=False) as store:
        assert store.committed_offset("g", "orders", 0) == 3
        assert store.committed_offset("g", "gone", 1) == 0
        assert store.settings.delay_offsets == {1: 0}
        put_numbers(store, 1)
        with store.consumer("g", "orders") as consumer:
            assert take(consumer, 1) == [b"0"]


def test_a_consumer_that_comes_after_expiry_says_what_it_missed(tmp_path: Path) -> None:
    with open_small(tmp_path / "s", file_reserved_time=1) as store:
        put_numbers(store, 100)
        consumer = store.consumer("g", "orders")
        assert take(consumer, 1) == [b"0"]
        consumer.close()
        store.flush()
        low = store.expire(NOW * 2).lost_ranges["orders", 0][1]
        assert low > 32
        with store.consumer("g", "orders") as consumer:
            assert take(consumer, 1) == [b"%d" % low]
            assert consumer.lost == low - 1


# -- transactions


def bodies(store: Store, topic: str) -> list[bytes]:
    store.wait_dispatched()
    return [message.body for message in store.get(topic, 0).messages]


def test_a_transaction_counts_when_it_is_committed(tmp_path: Path) -> None:
    with open_wide(tmp_path / "s") as store:
        with store.transaction("shop", Message("orders", b"paid", tags="t", queue_id=0)) as transaction:
            assert bodies(store, "orders") == []
        assert bodies(store, "orders") == [b"paid"]
        with pytest.raises(UsageError, match="closed already"):
            transaction.commit()
        with pytest.raises(ZeroDivisionError), store.transaction("shop", Message("orders", b"no", queue_id=0)):
            raise ZeroDivisionError
        assert bodies(store, "orders") == [b"paid"]
        (message,) = store.get("orders", 0, where="t").messages
        half = store.get(c.HALF_TOPIC, 0).messages[0]
        assert message.sys_flag & c.SysFlag.TRANSACTION_MASK == c.SysFlag.TRANSACTION_COMMIT
        assert message.prepared_transaction_offset == half.physical_offset
        assert message.properties["PGROUP"] == "shop"
        closing = store.get(c.OP_HALF_TOPIC, 0, where="d").messages
        assert [one.body for one in closing] == [b"0", b"1"]
    assert findings(tmp_path / "s") == []


def test_transactions_left_open_are_asked_about(tmp_path: Path) -> None:
    with open_wide(tmp_path / "s", transaction_time_out=1000) as store:
        for number in range(4):
            store.transaction("shop", Message("orders", b"%d" % number, queue_id=0))
        store.wait_dispatched()
        store.transactions.end(store.get(c.HALF_TOPIC, 0, 1, 1).messages[0].physical_offset, TransactionState.COMMIT)
    with open_wide(tmp_path / "s", transaction_time_out=1000, transaction_check_max=2) as store:
        answers = {b"0": TransactionState.COMMIT, b"2": TransactionState.ROLLBACK, b"3": TransactionState.UNKNOWN}
        asked: list[bytes] = []

        def checker(half: mqstore.Record) -> TransactionState:
            asked.append(half.body)
            return answers[half.body]

        assert store.transactions.check(NOW * 2) == 0  # nobody to ask
        store.transactions.set_checker("shop", checker)
        assert store.transactions.check(time.time_ns() // 1_000_000) == 0  # too young
        assert store.transactions.check(NOW * 2) == 2
        assert asked == [b"0", b"2", b"3"]
        assert bodies(store, "orders") == [b"1", b"0"]
        for _ in range(4):
            store.wait_dispatched()
            store.transactions.check(NOW * 2)
        assert asked == [b"0", b"2", b"3", b"3"]  # transaction_check_max times, and not once more
        assert bodies(store, c.TRANS_CHECK_MAX_TIME_TOPIC) == [b"3"]
        assert bodies(store, "orders") == [b"1", b"0"]
        assert store.committed_offset(CHECK_GROUP, c.HALF_TOPIC, 0) == store.max_offset(c.HALF_TOPIC, 0)
        half = store.get(c.HALF_TOPIC, 0, 0, 1).messages[0]
        with pytest.raises(UsageError, match="closed already"):
            store.transactions.end(half.physical_offset, TransactionState.COMMIT)
    assert findings(tmp_path / "s") == []


def test_bad_transactions_are_refused_before_anything_is_stored(tmp_path: Path) -> None:
    with open_wide(tmp_path / "s") as store:
        with pytest.raises(mqstore.MessageIllegalError):
            store.transaction("shop", Message("no such letter é", b""))
        with pytest.raises(mqstore.MessageIllegalError):
            store.transaction("shop", Message("orders", b"", queue_id=-1))
        with pytest.raises(UsageError):
            store.transaction("", Message("orders", b""))
        with pytest.raises(UsageError):
            store.transactions.end(12345, TransactionState.COMMIT)
        assert store.queues() == []


def test_a_commit_that_failed_can_be_tried_again(tmp_path: Path) -> None:
    with open_wide(tmp_path / "s") as store:
        transaction = store.transaction("shop", Message("orders", b"x", queue_id=0))
        store._engine.commit_log.set_disk_full(True)
        with pytest.raises(mqstore.DiskFullError):
            transaction.commit()
        store._engine.commit_log.set_disk_full(False)
        transaction.commit()
        assert bodies(store, "orders") == [b"x"]


def test_what_is_closed_stays_closed_over_a_restart(tmp_path: Path) -> None:
    with open_wide(tmp_path / "s") as store:
        halves = [store.transaction("shop", Message("orders", b"%d" % number, queue_id=0)) for number in range(2)]
        halves[0].commit()
        halves[1].rollback()
    with open_wide(tmp_path / "s") as store:
        for half in halves:
            with pytest.raises(UsageError, match="closed already"):
                store.transactions.end(half.half.physical_offset, TransactionState.COMMIT)
        assert bodies(store, "orders") == [b"0"]


def test_a_checker_that_fails_or_does_not_know_holds_nobody_up(tmp_path: Path) -> None:
    with open_wide(tmp_path / "s", transaction_time_out=1) as store:
        bad = store.transaction("bad", Message("orders", b"bad", queue_id=0))
        slow = store.transaction("slow", Message("orders", b"slow", queue_id=0))
        store.transaction("good", Message("orders", b"good", queue_id=0))
        store.put(Message(c.HALF_TOPIC, b"no half message", queue_id=0))
        store.wait_dispatched()
        store.transactions.set_checker("bad", lambda half: 1 / 0)  # type: ignore[arg-type,return-value]
        store.transactions.set_checker("slow", lambda half: TransactionState.UNKNOWN)
        store.transactions.set_checker("good", lambda half: TransactionState.COMMIT)
        assert store.transactions.check(NOW * 2) == 2
        slow.commit()  # although a copy has taken the place of its half message
        bad.commit()
        assert bodies(store, "orders") == [b"good", b"slow", b"bad"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("g", "t", 1 << 70, 0),
        ("g", "t", True, 0),
        ("g", "t", 0, None),
        ("g", "a@b", 0, 0),
        ("g", "\ud800", 0, 0),
        ("\ud800", "t", 0, 0),
        (5, "t", 0, 0),
        ("g", None, 0, 0),
    ],
)
def test_progress_that_could_not_be_saved_is_refused(tmp_path: Path, arguments: tuple[Any, ...]) -> None:
    with open_wide(tmp_path / "s") as store:
        store.put(Message("t", b"", queue_id=0))
        store.wait_dispatched()
        with pytest.raises(mqstore.MqstoreError):
            store.commit_offset(*arguments)
    open_wide(tmp_path / "s").close()


def test_latest_begins_behind_what_there_was_and_misses_nothing_after(tmp_path: Path) -> None:
    with open_wide(tmp_path / "s") as store:
        put_numbers(store, 3)
        first = store.consumer("g", "orders", start="latest")
        later = store.consumer("g", "later", start="latest")
        put_numbers(store, 1)
        store.put(Message("later", b"first of its topic", queue_id=0))
        store.wait_dispatched()
        assert first.get(timeout_s=5).queue_offset == 3  # and never acknowledged
        first.close()
        with store.consumer("g", "orders", start="latest") as second:
            assert second.get(timeout_s=5).queue_offset == 3
        assert later.get(timeout_s=5).body == b"first of its topic"


def test_a_queue_that_goes_and_comes_back_is_acknowledged_as_any_other(tmp_path: Path) -> None:
    with open_wide(tmp_path / "s", default_topic_queue_nums=2) as store:
        put_numbers(store, 8)
        first = store.consumer("g", "orders", auto_commit=False)
        taken = [first.get(timeout_s=5) for _ in range(8)]
        second = store.consumer("g", "orders", auto_commit=False)
        assert {second.get(timeout_s=5).queue_id for _ in range(4)} == {1}
        for message in taken:
            first.ack(message)
        first.commit()
        second.close()
        again = [first.get(timeout_s=5) for _ in range(4)]
        assert [first.ack(message) for message in again] == [True] * 4
        first.commit()
        assert [store.committed_offset("g", "orders", queue_id) for queue_id in (0, 1)] == [4, 4]


def test_an_owner_that_lost_its_queue_does_not_set_the_group_back(tmp_path: Path) -> None:
    with open_wide(tmp_path / "s", default_topic_queue_nums=2) as store:
        put_numbers(store, 8)
        first = store.consumer("g", "orders", auto_commit=False)
        first.ack(first.get(timeout_s=5))
        second = store.consumer("g", "orders", auto_commit=False)
        assert take(second, 4)
        second.commit()
        assert store.committed_offset("g", "orders", 1) == 4
        first.commit()
        assert store.committed_offset("g", "orders", 1) == 4
        with pytest.raises(mqstore.MessageIllegalError):
            store.consumer("g", "no such letter é")


def test_a_clock_that_steps_back_delivers_nothing_before_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_wide(tmp_path / "s", schedule_message_enable=False) as store:
        first = store.put(Message("orders", b"first", queue_id=0))
        back_ms = first.store_timestamp_ms - 5000
        monkeypatch.setattr("time.time_ns", lambda: back_ms * 1_000_000)
        late = store.put(Message("orders", b"late", queue_id=0, delay_level=18))
        store.wait_dispatched()
        assert store.deliver_due(back_ms) == 0
        assert store.deliver_due(late.store_timestamp_ms + 2 * 3600 * 1000 - 1) == 0
        assert store.deliver_due(late.store_timestamp_ms + 2 * 3600 * 1000) == 1


def test_a_broadcast_message_that_fails_is_for_this_consumer_alone(tmp_path: Path, caplog: Any) -> None:
    """It goes into no retry queue, from which all would get it, or nobody."""
    with open_wide(tmp_path / "s") as store:
        put_numbers(store, 2)
        with store.consumer("g", "orders", broadcast=True, timeout_s=0.05) as consumer:

            def handle(message: mqstore.Record) -> None:
                if message.body == b"0":
                    raise ValueError("not this one")

            assert consumer.run(handle) == 1
        assert "does not come again" in caplog.text
        assert [one.topic for one in store.queues()] == ["orders"]


def test_a_message_too_full_to_be_retried_stays_unacknowledged(tmp_path: Path, caplog: Any) -> None:
    with open_small(tmp_path / "s", mapped_file_size_commit_log=1 << 20) as store:
        store.put(Message("orders", b"full", properties={"p": "x" * 32_740}))
        put_numbers(store, 1)

        def handle(message: mqstore.Record) -> None:
            if message.body == b"full":
                raise ValueError("never")

        with store.consumer("g", "orders", timeout_s=0.05) as consumer:
            assert consumer.run(handle) == 1
        assert "stays unacknowledged" in caplog.text
        with store.consumer("g", "orders") as consumer:
            assert consumer.get(timeout_s=5).body == b"full"


def test_a_new_group_has_lost_nothing(tmp_path: Path) -> None:
    """What expired before it began was never its."""
    with open_small(tmp_path / "s") as store:
        put_numbers(store, 60)
        store.flush()
        store.expire(now_ms=2 * NOW)
        first = store.min_offset("orders", 0)
        assert first > 0
        with store.consumer("g", "orders") as consumer:
            assert consumer.get(timeout_s=5).queue_offset == first
            assert consumer.lost == 0


def test_a_delayed_message_that_could_not_be_delivered_is_refused(tmp_path: Path) -> None:
    """It is longer under its own topic than in the schedule."""
    with open_small(tmp_path / "s", schedule_message_enable=False) as store:
        with pytest.raises(mqstore.MessageIllegalError, match="does not fit"):
            store.put(Message("t" * 127, b"x" * 3740, delay_level=1, queue_id=0))
        store.put(Message("t", b"x" * 3740, delay_level=1, queue_id=0))
        store.wait_dispatched()
        assert store.deliver_due(2 * NOW) == 1


def test_one_that_cannot_be_delivered_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """As when a store made with larger files is opened: what does not fit is logged and left where it is."""
    with open_wide(tmp_path / "s", schedule_message_enable=False) as store:
        for body, level in ((b"large", 1), (b"after it", 1), (b"other level", 2)):
            store.put(Message("t", body, delay_level=level, queue_id=0))
        store.wait_dispatched()
        put_prepared = store._engine.putting.put_prepared

        def refuse_large(topic: str, pending: Any) -> mqstore.PutResult:
            if pending.fields[1] == b"large":
                raise mqstore.MessageIllegalError("does not fit into one commit log file")
            return put_prepared(topic, pending)

        monkeypatch.setattr(store._engine.putting, "put_prepared", refuse_large)
        assert store.deliver_due(2 * NOW) == 2
        assert bodies(store, "t") == [b"after it", b"other level"]
        assert "cannot be delivered" in caplog.text
