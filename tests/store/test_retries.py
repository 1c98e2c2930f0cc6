"""What fails comes again after growing delays, and in the end goes to the dead letters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mqstore
from mqstore import Message
from store.consuming import open_wide, put_numbers
from store.support import findings, open_small

NOW = 1_800_000_000_000


def test_what_fails_comes_again_and_at_last_goes_to_the_dead_letters(tmp_path: Path) -> None:
    with open_wide(tmp_path / "s", schedule_message_enable=False) as store:
        put_numbers(store, 5, tags="paid", keys=["o-1"], properties={"mine": "yes"})
        store.set_retry_max_times("g", 2)
        attempts = []

        def handle(message: mqstore.Record) -> None:
            attempts.append((message.body, message.reconsume_times))
            if message.body == b"3":
                raise RuntimeError("cannot be handled")

        consumer = store.consumer("g", "orders", timeout_s=0.05)
        assert consumer.run(handle) == 4
        assert store.committed_offset("g", "orders", 0) == 5
        for _ in range(2):
            store.wait_dispatched()  # what the consumer gave back
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
        assert store._engine.settings.topics["%DLQ%g"].write_queue_nums == 1


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
