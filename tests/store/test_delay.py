"""Delayed messages come when they are due, whatever the clock does, and none holds up another."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import pytest

import mqstore
from mqstore import Message
from mqstore.layout import constants as c
from mqstore.layout.constants import QUEUE_UNIT_SIZE
from store.consuming import bodies, open_wide
from store.support import findings, flip_bit, log_file, open_small, overwrite, queue_file

NOW = 1_800_000_000_000


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
        assert store._engine.settings.delay_offsets == {1: 1, 2: 1}
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

        def refuse_large(records: Any, *, wait: bool) -> list[mqstore.PutResult]:
            if records[0][1].fields[1] == b"large":
                raise mqstore.MessageIllegalError("does not fit into one commit log file")
            return put_prepared(records, wait=wait)

        monkeypatch.setattr(store._engine.putting, "put_prepared", refuse_large)
        assert store.deliver_due(2 * NOW) == 2
        assert bodies(store, "t") == [b"after it", b"other level"]
        assert "cannot be delivered" in caplog.text


def test_one_whose_queue_is_too_long_a_number_holds_up_no_other(tmp_path: Path, caplog: Any) -> None:
    with open_wide(tmp_path / "s", schedule_message_enable=False) as store:
        where = {c.PROPERTY_REAL_TOPIC: "t", c.PROPERTY_REAL_QID: "1" * 5000}
        store.put(Message(c.SCHEDULE_TOPIC, b"odd", queue_id=0, properties={**where, c.PROPERTY_DELAY: "1"}))
        store.put(Message("t", b"after it", delay_level=1, queue_id=0))
        store.wait_dispatched()
        assert store.deliver_due(2 * NOW) == 1
        assert bodies(store, "t") == [b"after it"]
        assert "does not say where to" in caplog.text


@pytest.fixture(scope="module")
def with_delayed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five delayed messages among others; their records have sizes that one flipped bit can confuse."""
    path = tmp_path_factory.mktemp("delayed") / "s"
    with open_wide(path, schedule_message_enable=False) as store:
        for number in range(5):
            store.put(Message("other", b"x" * 50, queue_id=0))
            store.put(Message("orders", b"%d" % number, queue_id=0, delay_level=2))
    return path


@pytest.mark.parametrize("damaged", [0, 2, 4])
def test_no_bit_of_a_unit_loses_a_delayed_message_or_brings_it_early(
    with_delayed: Path, tmp_path: Path, damaged: int, caplog: Any
) -> None:
    """The log is sound: each message comes once, in order, and never before its time."""
    path = tmp_path / "s"
    shutil.copytree(with_delayed, path)
    with mqstore.inspect(path) as view:
        due = [one.store_timestamp_ms + 5000 for one in view.get(c.SCHEDULE_TOPIC, 1).messages]
    file = queue_file(path, c.SCHEDULE_TOPIC, 1)
    with open_wide(path, schedule_message_enable=False) as store:
        for bit in range(QUEUE_UNIT_SIZE * 8):
            begin = store.max_offset("orders", 0)
            flip_bit(file, damaged, bit)
            store._engine.settings.delay_offsets[2] = 0
            for number in (damaged, 4):
                store.deliver_due(due[number] - 1)
                store.wait_dispatched()
                early = [one.body for one in store.get("orders", 0, begin).messages]
                assert early == [b"%d" % one for one in range(5) if due[one] < due[number]], bit
            assert store.deliver_due(due[4]) + len(early) == 5, bit
            store.wait_dispatched()
            assert [one.body for one in store.get("orders", 0, begin).messages] == [b"%d" % one for one in range(5)]
            flip_bit(file, damaged, bit)
    assert caplog.text == ""


def test_damaged_delayed_units_are_searched_for_once_and_only_records_that_are_gone_are_passed_over(
    with_delayed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    path = tmp_path / "s"
    shutil.copytree(with_delayed, path)
    with mqstore.inspect(path) as view:
        gone = view.get(c.SCHEDULE_TOPIC, 1).messages[2]
    with open_wide(path, schedule_message_enable=False) as store:
        overwrite(queue_file(path, c.SCHEDULE_TOPIC, 1), QUEUE_UNIT_SIZE, bytes(4 * QUEUE_UNIT_SIZE))
        overwrite(log_file(path), gone.physical_offset + 4, b"gone")
        starts = []
        scan = store.log.scan

        def noted(start: int, end: int, **options: Any) -> Any:
            starts.append(start)
            return scan(start, end, **options)

        monkeypatch.setattr(store.log, "scan", noted)
        assert store._engine.schedule.deliver_due(2 * NOW) == 4
        monkeypatch.undo()
        assert len([one for one in starts if one < gone.physical_offset]) == 1  # the others are the dispatcher's
        assert bodies(store, "orders") == [b"0", b"1", b"3", b"4"]
        assert caplog.text.count("cannot be delivered: its record is damaged or gone") == 1


def test_units_that_fill_a_gap_are_no_delayed_messages(tmp_path: Path, caplog: Any) -> None:
    """Where records are lost, units repeat the one before: that message is not delivered again."""
    with open_wide(tmp_path / "s", schedule_message_enable=False) as store:
        for number in range(4):
            store.put(Message("orders", b"%d" % number, queue_id=0, delay_level=1))
        store.wait_dispatched()
        file = queue_file(store.path, c.SCHEDULE_TOPIC, 0)
        lost = store.get(c.SCHEDULE_TOPIC, 0).messages[1:3]
        for number, record in enumerate(lost, 1):
            overwrite(log_file(store.path), record.physical_offset + 4, b"gone")
            overwrite(file, number * QUEUE_UNIT_SIZE, file.read_bytes()[:QUEUE_UNIT_SIZE])
        assert store.deliver_due(2 * NOW) == 2
        assert bodies(store, "orders") == [b"0", b"3"]
    assert "cannot be delivered" not in caplog.text
