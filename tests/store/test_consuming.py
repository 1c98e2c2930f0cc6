"""Groups and their progress: acknowledging, committing, beginning, and what a crash or expiry does to it."""

from __future__ import annotations

import queue
import threading
from pathlib import Path
from typing import Any

import pytest

import mqstore
from mqstore import Message, UsageError
from store.consuming import open_wide, put_numbers, take
from store.support import open_small

NOW = 1_800_000_000_000


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
        assert consumer.get(timeout_s=60).body == b"here"
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


def test_progress_ahead_of_a_shortened_queue_is_brought_back(tmp_path: Path) -> None:
    with open_wide(tmp_path / "s", schedule_message_enable=False) as store:
        put_numbers(store, 3)
        store._engine.settings.commit_offset("g", "orders", 0, 20)
        store._engine.settings.commit_offset("g", "gone", 1, 7)
        store._engine.settings.set_delay_offset(1, 9)
    with open_wide(tmp_path / "s", schedule_message_enable=False) as store:
        assert store.committed_offset("g", "orders", 0) == 3
        assert store.committed_offset("g", "gone", 1) == 0
        assert store._engine.settings.delay_offsets == {1: 0}
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
