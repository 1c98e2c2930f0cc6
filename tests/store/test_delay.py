"""Delayed messages come when they are due, whatever the clock does, and none holds up another."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import mqstore
from mqstore import Message
from mqstore.layout import constants as c
from store.consuming import bodies, open_wide
from store.support import findings, open_small

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
