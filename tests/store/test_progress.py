"""After a log has lost its end, services do what is not done in what remains, and nothing twice."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

import mqstore
from mqstore import Message, Record, Store, TransactionState
from mqstore.layout import constants as c
from mqstore.store.transactions import CHECK_GROUP
from store.consuming import bodies, open_wide
from store.support import copy_of_running, findings, forget_note, log_file, mark_crashed

FAR_MS = 9_000_000_000_000
DOUBT = "mqstore-progress-in-doubt"


def quiet(path: Path) -> Store:
    return open_wide(path, schedule_message_enable=False)


def records(store: Path) -> list[Record]:
    with mqstore.inspect(store) as view:
        return list(view.scan())


@pytest.fixture(scope="module")
def delivered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Delayed messages of three levels, some of them alike, all delivered; other messages between their copies."""
    path = tmp_path_factory.mktemp("delayed") / "s"
    with quiet(path) as store:
        store.put(Message("orders", b"early", queue_id=0))
        for body, level in ((b"a", 1), (b"same", 1), (b"same", 1), (b"b", 2), (b"same", 2), (b"c", 3)):
            store.put(Message("orders", body, queue_id=0, delay_level=level, born_timestamp_ms=1))
        store.wait_dispatched()
        assert store.deliver_due(FAR_MS) == 6
        store.put(Message("orders", b"late", queue_id=0))
        assert store._engine.settings.delay_offsets == {1: 3, 2: 2, 3: 1}
    return path


def test_a_delivery_that_is_cut_off_is_made_again_and_no_other(delivered: Path, tmp_path: Path) -> None:
    of_all = records(delivered)
    for number, record in enumerate(of_all):
        cut = tmp_path / f"{number}"
        mqstore.truncate(delivered, record.end_offset, cut)
        assert not (cut / DOUBT).exists()
        left = of_all[: number + 1]
        waiting = Counter(one.body for one in left if one.topic == c.SCHEDULE_TOPIC)
        undelayed = Counter(one.body for one in left if "DELAY" not in one.properties)
        with quiet(cut) as store:
            store.deliver_due(FAR_MS)
            assert Counter(bodies(store, "orders")) == waiting + undelayed, number
        assert findings(cut) == []


def test_a_copy_without_the_level_that_a_broker_may_write_counts(tmp_path: Path) -> None:
    with quiet(tmp_path / "s") as store:
        store.put(Message("orders", b"a", queue_id=0, delay_level=1, born_timestamp_ms=1))
        copy = {c.PROPERTY_REAL_TOPIC: "orders", "REAL_QID": "0"}
        store.put(Message("orders", b"a", queue_id=0, born_timestamp_ms=1, properties=copy))
        store._engine.settings.set_delay_offset(1, 1)
    mark_crashed(tmp_path / "s")
    forget_note(tmp_path / "s")
    with quiet(tmp_path / "s") as store:
        assert store.deliver_due(FAR_MS) == 0


def lose_end(store: Path, record: Record) -> None:
    """As a power cut may leave it: nothing from ``record`` on was written."""
    file = log_file(store)
    content = file.read_bytes()
    file.write_bytes(content[: record.physical_offset].ljust(len(content), b"\0"))


@pytest.mark.parametrize("crashed", [True, False])
def test_a_start_that_finds_the_logs_end_lost_delivers_again(delivered: Path, tmp_path: Path, crashed: bool) -> None:
    store = Path(shutil.copytree(delivered, tmp_path / "s"))
    last = [record for record in records(store) if record.body == b"c"][-1]
    lose_end(store, last)
    if crashed:
        mark_crashed(store)
        forget_note(store)
    with quiet(store) as opened:
        assert opened.deliver_due(FAR_MS) == 1
        assert bodies(opened, "orders") == [b"early", b"a", b"same", b"same", b"b", b"same", b"c"]


def test_a_torn_copy_is_delivered_again(delivered: Path, tmp_path: Path) -> None:
    store = Path(shutil.copytree(delivered, tmp_path / "s"))
    last = [record for record in records(store) if record.body == b"c"][-1]
    lose_end(store, last)
    with log_file(store).open("r+b") as file:
        file.seek(last.physical_offset)
        file.write(bytes([0, 0, 0, last.total_size]) + b"\xda\xa3\x20\xa7" + b"\1" * 20)
    mark_crashed(store)
    with quiet(store) as opened:
        assert opened.deliver_due(FAR_MS) == 1


def test_a_crash_that_loses_nothing_delivers_nothing_again(delivered: Path, tmp_path: Path) -> None:
    store = Path(shutil.copytree(delivered, tmp_path / "s"))
    mark_crashed(store)
    forget_note(store)
    with quiet(store) as opened:
        assert opened.deliver_due(FAR_MS) == 0


def test_a_start_that_is_broken_off_looks_again(delivered: Path, tmp_path: Path) -> None:
    store = Path(shutil.copytree(delivered, tmp_path / "s"))
    (store / DOUBT).touch()  # the log was cut and is sound since
    lose_end(store, [record for record in records(store) if record.body == b"c"][-1])
    with quiet(store) as opened:
        assert opened.deliver_due(FAR_MS) == 1
        assert not (store / DOUBT).exists()


@pytest.mark.parametrize(("name", "levels"), [("basic", {1: 4, 2: 2}), ("torn-flip-abort", {1: 4, 2: 1})])
def test_a_brokers_store_goes_back_by_what_its_log_lacks(
    golden: Path, tmp_path: Path, name: str, levels: dict[int, int]
) -> None:
    """Both had delivered four and two; the end of the second one's log, with the last copy, is torn."""
    store = Path(shutil.copytree(golden / name / "store", tmp_path / "s"))
    mark_crashed(store)
    with mqstore.open(store, schedule_message_enable=False) as opened:
        assert opened._engine.settings.delay_offsets == levels


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Transactions that were committed, rolled back and asked about, and the progress of that saved."""
    path = tmp_path_factory.mktemp("transactions") / "s"
    with quiet(path) as store:
        opened = [store.transaction("p", Message("orders", b"%d" % number, queue_id=0)) for number in range(5)]
        store.put(Message("other", b"between", queue_id=0))
        opened[1].commit()
        opened[0].rollback()
        opened[2].commit()
        store.wait_dispatched()
        store.transactions.set_checker("p", lambda half: TransactionState.COMMIT)
        assert store.transactions.check(FAR_MS) == 2
        assert store.committed_offset(CHECK_GROUP, c.HALF_TOPIC, 0) == 5
        store.wait_dispatched()
        store.transactions.check(FAR_MS)
    return path


def test_a_transaction_whose_end_is_cut_off_is_open_again_and_no_other(ended: Path, tmp_path: Path) -> None:
    of_all = records(ended)
    for number, record in enumerate(of_all):
        cut = tmp_path / f"{number}"
        mqstore.truncate(ended, record.end_offset, cut)
        left = of_all[: number + 1]
        halves = {one.queue_offset for one in left if one.topic == c.HALF_TOPIC}
        closed = {int(one.body) for one in left if one.topic == c.OP_HALF_TOPIC}
        asked: list[int] = []

        def check(half: Record, asked: list[int] = asked) -> TransactionState:
            asked.append(half.queue_offset)
            return TransactionState.COMMIT

        with quiet(cut) as store:
            store.transactions.set_checker("p", check)
            store.transactions.check(FAR_MS)
            assert set(asked) == halves - closed, number
            assert len(asked) == len(set(asked))
            store.wait_dispatched()
            store.transactions.check(FAR_MS)
            assert len(asked) == len(halves - closed)
        assert findings(cut) == []


def test_a_producer_can_end_what_is_open_again(ended: Path, tmp_path: Path) -> None:
    of_all = records(ended)
    first_end = next(one for one in of_all if one.topic == "other")
    mqstore.truncate(ended, first_end.end_offset, tmp_path / "cut")
    with quiet(tmp_path / "cut") as store:
        assert store.transactions.end(of_all[0].physical_offset, TransactionState.COMMIT) is not None
        assert bodies(store, "orders") == [b"0"]


def test_groups_are_brought_back_to_the_ends_of_queues_that_are_cut(tmp_path: Path) -> None:
    with quiet(tmp_path / "s") as store:
        puts = [store.put(Message("orders", b"%d" % number, queue_id=0)) for number in range(4)]
        gone = store.put(Message("later", b"x", queue_id=0))
        store.wait_dispatched()
        for topic, queue_offset in (("orders", 4), ("later", 1)):
            store.commit_offset("ahead", topic, 0, queue_offset)
        store.commit_offset("within", "orders", 0, 1)
    assert gone.physical_offset > puts[-1].physical_offset
    mqstore.truncate(tmp_path / "s", puts[2].physical_offset, tmp_path / "cut")
    with quiet(tmp_path / "cut") as store:
        assert store.committed_offset("ahead", "orders", 0) == 2
        assert store.committed_offset("ahead", "later", 0) == 0
        assert store.committed_offset("within", "orders", 0) == 1


def test_a_copy_of_a_running_store_does_not_claim_what_came_after_its_log(delivered: Path, tmp_path: Path) -> None:
    """``rebuild`` copies the log first and the progress after."""
    with quiet(tmp_path / "s") as store:
        store.put(Message("orders", b"a", queue_id=0, delay_level=1))
        store.wait_dispatched()
        copied = copy_of_running(tmp_path / "s", tmp_path / "copy")
        store.deliver_due(FAR_MS)
        store.flush()
        shutil.copytree(tmp_path / "s" / "config", copied / "config", dirs_exist_ok=True)
    mqstore.rebuild(copied, tmp_path / "rebuilt")
    with quiet(tmp_path / "rebuilt") as store:
        assert store.deliver_due(FAR_MS) == 1
