"""Consumers of one group share the queues, whoever comes or goes; broadcast consumers share nothing."""

from __future__ import annotations

import queue
import threading
from pathlib import Path

import pytest

import mqstore
from store.consuming import open_wide, put_numbers, take


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
