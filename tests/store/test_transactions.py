"""Transactions: what is committed counts, what is left open is asked about."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

import mqstore
from mqstore import DiskFullError, Message, TransactionState, UsageError
from mqstore.layout import constants as c
from mqstore.layout.constants import QUEUE_UNIT_SIZE
from mqstore.store.commit_log import Appended, CommitLog, Pending
from mqstore.store.transactions import CHECK_GROUP
from store.consuming import bodies, open_wide
from store.support import findings, flip_bit, forget_note, log_file, mark_crashed, overwrite, queue_file

NOW = 1_800_000_000_000


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
        oldest_ms = store.get(c.HALF_TOPIC, 0, 0, 1).messages[0].store_timestamp_ms
        assert store.transactions.check(oldest_ms + 999) == 0  # too young
        assert asked == []
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


def test_what_is_closed_is_not_remembered_for_ever(tmp_path: Path) -> None:
    with open_wide(tmp_path / "s", transaction_time_out=1) as store:
        states = dict.fromkeys((b"0", b"1", b"2"), TransactionState.UNKNOWN)
        store.transactions.set_checker("shop", lambda half: states[half.body])
        halves = [store.transaction("shop", Message("orders", body, queue_id=0)) for body in states]
        for _ in range(3):
            store.wait_dispatched()
            store.transactions.check(NOW * 2)
        assert len(store.transactions._copies) == 9
        states[b"0"] = TransactionState.COMMIT
        halves[2].rollback()
        store.wait_dispatched()
        assert store.transactions.check(NOW * 2) == 1
        assert len(store.transactions._copies) == 4  # what leads to the one that is open
        for closed in (halves[0], halves[2]):
            with pytest.raises(UsageError, match="closed already"):
                store.transactions.end(closed.half.physical_offset, TransactionState.COMMIT)
        halves[1].commit()
        store.wait_dispatched()
        store.transactions.check(NOW * 2)
        assert (store.transactions._copies, store.transactions._closed_by) == ({}, {})
        assert bodies(store, "orders") == [b"0", b"1"]


def test_a_producer_that_comes_while_progress_is_saved_comes_too_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_wide(tmp_path / "s", transaction_time_out=1) as store:
        transaction = store.transaction("shop", Message("orders", b"never", queue_id=0))
        transaction.rollback()
        store.wait_dispatched()
        commit_offset, tried = store.commit_offset, []

        def commit_meanwhile(group: str, topic: str, queue_id: int, offset: int) -> None:
            for _ in range(2):
                with pytest.raises(UsageError, match="closed already"):
                    store.transactions.end(transaction.half.physical_offset, TransactionState.COMMIT)
                tried.append(topic)
                commit_offset(group, topic, queue_id, offset)

        monkeypatch.setattr(store, "commit_offset", commit_meanwhile)
        assert store.transactions.check(NOW * 2) == 0
        assert c.HALF_TOPIC in tried
        store.wait_dispatched()
        assert store.max_offset("orders", 0) == 0


def test_a_checker_that_exits_ends_no_checking(tmp_path: Path) -> None:
    with open_wide(tmp_path / "s", transaction_time_out=1) as store:
        store.transaction("bad", Message("orders", b"bad", queue_id=0))
        store.transaction("good", Message("orders", b"good", queue_id=0))
        store.wait_dispatched()
        store.transactions.set_checker("bad", lambda half: sys.exit(3))
        store.transactions.set_checker("good", lambda half: TransactionState.COMMIT)
        assert store.transactions.check(NOW * 2) == 1
        assert bodies(store, "orders") == [b"good"]


@pytest.mark.parametrize("then", ["commit", "rollback"])
@pytest.mark.parametrize("by_checker", [False, True], ids=["producer", "checker"])
def test_an_end_that_fails_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: str, by_checker: bool
) -> None:
    """The message and the entry that closes it are one append: a second try never finds the first of the two there."""
    with open_wide(tmp_path / "s", transaction_time_out=1) as store:
        transaction = store.transaction("shop", Message("orders", b"5 EUR", queue_id=0))
        store.wait_dispatched()
        store.transactions.set_checker("shop", lambda half: TransactionState.COMMIT)
        log, appended = store._engine.commit_log, []

        def append(records: Sequence[Pending]) -> list[Appended]:
            appended.append(len(records))
            if len(appended) == 1:
                raise DiskFullError("no space left")
            return CommitLog.append(log, records)

        before = log.tail.end_offset
        monkeypatch.setattr(log, "append", append)
        with pytest.raises(DiskFullError):
            store.transactions.check(NOW * 2) if by_checker else transaction.commit()
        assert log.tail.end_offset == before
        assert bodies(store, "orders") == []
        getattr(transaction, then)()
        assert appended == [2, 2 if then == "commit" else 1]
        expected = [b"5 EUR"] if then == "commit" else []
        assert bodies(store, "orders") == expected
        assert store.transactions.check(NOW * 2) == 0
    assert findings(tmp_path / "s") == []


def test_a_half_message_that_could_not_be_ended_is_refused(tmp_path: Path) -> None:
    """It fits into a log file, but not together with the entry that closes it."""
    with open_wide(tmp_path / "s") as store:
        sizes = range((1 << 16) - 700, 1 << 16, 9)
        ended = 0
        for size in sizes:
            message = Message("orders", bytes(size), queue_id=0)
            with contextlib.suppress(mqstore.MessageIllegalError):
                transaction = store.transaction("shop", message)
                ended += transaction.commit() is not None
        assert 0 < ended < len(sizes)
        store.wait_dispatched()
        assert store.max_offset("orders", 0) == ended


@pytest.mark.parametrize("name", [c.PROPERTY_CHECK_IMMUNITY_TIME, c.PROPERTY_TRANSACTION_CHECK_TIMES])
def test_a_number_too_long_to_be_one_keeps_nobody_from_asking(tmp_path: Path, name: str) -> None:
    with open_wide(tmp_path / "s", transaction_time_out=1) as store:
        store.transactions.set_checker("shop", lambda half: TransactionState.COMMIT)
        store.transaction("shop", Message("orders", b"odd", queue_id=0, properties={name: "1" * 5000}))
        store.transaction("shop", Message("orders", b"next", queue_id=0))
        store.wait_dispatched()
        assert store.transactions.check(NOW * 2) == 2
        assert bodies(store, "orders") == [b"odd", b"next"]


def test_numbers_too_long_to_be_any_close_nothing_and_lead_nowhere(tmp_path: Path) -> None:
    with open_wide(tmp_path / "s", transaction_time_out=1) as store:
        where = {c.PROPERTY_REAL_TOPIC: "orders", c.PROPERTY_REAL_QID: "1" * 5000}
        store.put(Message(c.HALF_TOPIC, b"odd", queue_id=0, properties=where))
        store.transaction("shop", Message("orders", b"next", queue_id=0))
        store.put(Message(c.OP_HALF_TOPIC, b"1" * 5000, tags=c.TAG_OF_OP_MESSAGES, queue_id=0))
        store.transactions.set_checker("shop", lambda half: TransactionState.COMMIT)
        store.wait_dispatched()
        assert store.transactions.check(NOW * 2) == 2
        assert bodies(store, "orders") == [b"next"]
    mark_crashed(tmp_path / "s")  # a start in doubt reads all of them again
    forget_note(tmp_path / "s")
    with open_wide(tmp_path / "s", transaction_time_out=1) as store:
        assert bodies(store, "orders") == [b"next"]


def test_a_damaged_half_message_keeps_nobody_from_asking_about_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_wide(tmp_path / "s", transaction_time_out=1000) as store:
        store.transactions.set_checker("shop", lambda half: TransactionState.COMMIT)
        halves = [store.transaction("shop", Message("orders", b"%d" % number, queue_id=0)).half for number in range(3)]
        store.wait_dispatched()
        position = halves[0].physical_offset + 4
        sound = log_file(store.path).read_bytes()[position : position + 4]
        overwrite(log_file(store.path), position, b"gone")
        assert [store.transactions.check(NOW * 2) for _ in range(2)] == [2, 0]
        assert bodies(store, "orders") == [b"1", b"2"]
        assert store.committed_offset(CHECK_GROUP, c.HALF_TOPIC, 0) == 0
        assert store.transactions._told_open == {0}
        overwrite(log_file(store.path), halves[0].physical_offset + 4, sound)
        assert store.transactions.check(NOW * 2) == 1
        assert store.transactions._told_open == set()
    assert [one.getMessage() for one in caplog.records if "half message 0 is damaged" in one.getMessage()][1:] == []
    assert "half message 0 is damaged" in caplog.text


def leave_transactions(path: Path) -> None:
    """Numbers 0 to 4: the second rolled back, the last left open, the others committed."""
    with open_wide(path) as store:
        open_ones = [store.transaction("shop", Message("orders", b"%d" % number, queue_id=0)) for number in range(5)]
        for number, transaction in enumerate(open_ones[:4]):
            transaction.rollback() if number == 1 else transaction.commit()


@pytest.mark.parametrize("damaged", [0, 1, 3])
def test_no_bit_of_a_unit_reopens_a_closed_transaction_or_hides_an_open_one(
    tmp_path: Path, damaged: int, caplog: pytest.LogCaptureFixture
) -> None:
    leave_transactions(tmp_path / "s")
    with open_wide(tmp_path / "s") as store:
        transactions = store.transactions
        for bit in range(QUEUE_UNIT_SIZE * 8):
            for topic in (c.OP_HALF_TOPIC, c.HALF_TOPIC):
                flip_bit(queue_file(store.path, topic), damaged, bit)
            transactions._closed_by.clear()
            transactions._ops_read_to = 0
            transactions._read_ops()
            closed_by = {number: closing.queue_offset for number, closing in transactions._closed_by.items()}
            assert closed_by == {number: number for number in range(4)}, bit
            half = transactions._half_at(damaged)
            assert half is not None
            assert half.body == b"%d" % damaged, bit
            for topic in (c.OP_HALF_TOPIC, c.HALF_TOPIC):
                flip_bit(queue_file(store.path, topic), damaged, bit)
    assert caplog.text == ""


@pytest.mark.parametrize("bit", [0, 40, 60, 90])
def test_transactions_go_on_when_units_of_their_queues_are_damaged(tmp_path: Path, bit: int) -> None:
    leave_transactions(tmp_path / "s")
    for topic, unit in ((c.OP_HALF_TOPIC, 1), (c.HALF_TOPIC, 4)):
        flip_bit(queue_file(tmp_path / "s", topic), unit, bit)
    with open_wide(tmp_path / "s", transaction_time_out=1) as store:
        with store.transaction("shop", Message("orders", b"new", queue_id=0)):
            pass
        asked: list[bytes] = []

        def commit(half: mqstore.Record) -> TransactionState:
            asked.append(half.body)
            return TransactionState.COMMIT

        store.transactions.set_checker("shop", commit)
        assert store.transactions.check(NOW * 2) == 1
        assert asked == [b"4"]
        assert bodies(store, "orders") == [b"0", b"2", b"3", b"new", b"4"]


def test_a_half_message_whose_closing_record_is_gone_is_asked_about_again_and_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    leave_transactions(tmp_path / "s")
    with mqstore.inspect(tmp_path / "s") as view:
        closing = view.get(c.OP_HALF_TOPIC, 0).messages[1]
    with open_wide(tmp_path / "s", transaction_time_out=1) as store:
        overwrite(log_file(store.path), closing.physical_offset + 4, b"gone")
        asked: list[bytes] = []

        def roll_back(half: mqstore.Record) -> TransactionState:
            asked.append(half.body)
            return TransactionState.ROLLBACK

        store.transactions.set_checker("shop", roll_back)
        assert [store.transactions.check(NOW * 2) for _ in range(2)] == [2, 0]
        assert asked == [b"1", b"4"]
        with store.transaction("shop", Message("orders", b"new", queue_id=0)):
            pass
    assert caplog.text.count("damaged or gone: they may be asked about again") == 1


def test_closing_waits_for_one_question_and_not_for_all(tmp_path: Path) -> None:
    asked: list[bytes] = []
    is_asked, go_on = threading.Event(), threading.Event()

    def checker(half: mqstore.Record) -> TransactionState:
        asked.append(half.body)
        is_asked.set()
        assert go_on.wait(60)
        return TransactionState.COMMIT

    store = open_wide(tmp_path / "s", transaction_time_out=1, transaction_check_interval=1)
    for number in range(20):
        store.transaction("shop", Message("orders", b"%d" % number, queue_id=0))
    store.wait_dispatched()
    store.transactions.set_checker("shop", checker)
    assert is_asked.wait(60)
    closing = threading.Thread(target=store.close)
    closing.start()
    assert store.transactions._stop.wait(60)
    go_on.set()
    closing.join(60)
    assert len(asked) == 1
    with open_wide(tmp_path / "s") as store:
        assert bodies(store, "orders") == asked


@pytest.mark.parametrize("by_hand", [False, True], ids=["service", "by hand"])
def test_a_checker_cannot_close_the_store_that_waits_for_it(tmp_path: Path, by_hand: bool) -> None:
    refused: list[str] = []
    is_asked = threading.Event()
    interval_ms = 3_600_000 if by_hand else 1

    def checker(half: mqstore.Record) -> TransactionState:
        for work in (store.close, lambda: store.transactions.check(NOW * 2)):
            try:
                work()
            except UsageError as error:
                refused.append(error.message)
        is_asked.set()
        return TransactionState.COMMIT

    with open_wide(tmp_path / "s", transaction_time_out=1, transaction_check_interval=interval_ms) as store:
        store.transaction("shop", Message("orders", b"paid", queue_id=0))
        store.wait_dispatched()
        store.transactions.set_checker("shop", checker)
        if by_hand:
            assert store.transactions.check(NOW * 2) == 1
        assert is_asked.wait(60)
    assert [message.split(":")[0] for message in refused] == [
        "a checker cannot close the store",
        "a checker cannot check",
    ]
    with open_wide(tmp_path / "s") as store:
        assert bodies(store, "orders") == [b"paid"]


def test_close_lets_the_transaction_at_hand_end(tmp_path: Path) -> None:
    """Its message is in its queue and its half is closed: one without the other would commit it once more."""
    asked, states = threading.Event(), [TransactionState.COMMIT]
    store = open_wide(tmp_path / "s", transaction_time_out=1, transaction_check_interval=1)

    def checker(half: mqstore.Record) -> TransactionState:
        asked.set()
        assert store.transactions._stop.wait(60)
        return states.pop()

    store.transactions.set_checker("shop", checker)
    store.transaction("shop", Message("orders", b"x", queue_id=0))
    assert asked.wait(60)
    store.close()
    with open_wide(tmp_path / "s", transaction_time_out=1) as again:
        again.transactions.set_checker("shop", lambda half: TransactionState.COMMIT)
        again.transactions.check(NOW * 2)
        again.wait_dispatched()
        assert bodies(again, "orders") == [b"x"]
