"""A consumer that goes on somewhere else: behind damage, or again from before."""

from __future__ import annotations

import asyncio
import queue
from pathlib import Path
from typing import Any

import pytest

import mqstore
from mqstore import CorruptRecordError, Message, Store, StoreClosedError, UsageError, aio
from store.consuming import open_wide, put_numbers, take
from store.support import SMALL, log_file, overwrite


def damage(store: Store, number: int, topic: str = "orders") -> None:
    place = store.get(topic, 0, number, 1).messages[0].physical_offset
    overwrite(log_file(store.path), place + 4, b"gone")


def test_a_consumer_gives_what_lies_before_damage_and_goes_on_behind_it(tmp_path: Path) -> None:
    with open_wide(tmp_path / "s") as store:
        put_numbers(store, 12)
        damage(store, 5)
        consumer = store.consumer("g", "orders")
        assert take(consumer, 5) == [b"0", b"1", b"2", b"3", b"4"]
        for _ in range(2):
            with pytest.raises(CorruptRecordError, match="message 5 of queue orders/0") as caught:
                consumer.get(timeout_s=5)
        assert "seek(0, 6)" in str(caught.value.hint)
        assert store.committed_offset("g", "orders", 0) == 5
        consumer.seek(0, 6)
        assert store.committed_offset("g", "orders", 0) == 6
        assert take(consumer, 6) == [b"%d" % number for number in range(6, 12)]
        assert (store.committed_offset("g", "orders", 0), consumer.lost) == (12, 0)


def test_messages_given_out_before_hold_the_group_until_they_are_acknowledged(tmp_path: Path) -> None:
    with open_wide(tmp_path / "s") as store:
        put_numbers(store, 40)
        consumer = store.consumer("g", "orders", auto_commit=False)
        first, second = consumer.get(timeout_s=5), consumer.get(timeout_s=5)
        consumer.seek(0, 38)
        assert take(consumer, 1) == [b"38"]
        consumer.ack(second)
        consumer.commit()
        assert store.committed_offset("g", "orders", 0) == 0
        consumer.ack(first)
        consumer.commit()
        assert store.committed_offset("g", "orders", 0) == 40 - len(take(consumer, 1))
        consumer.seek(0, 40)
        with pytest.raises(queue.Empty):
            consumer.get(block=False)


def test_what_comes_again_need_not_be_acknowledged_twice(tmp_path: Path) -> None:
    with open_wide(tmp_path / "s") as store:
        put_numbers(store, 6)
        consumer = store.consumer("g", "orders")
        assert take(consumer, 2) == [b"0", b"1"]
        before = [consumer.get(timeout_s=5) for _ in range(2)]
        consumer.seek(0, 1)
        assert store.committed_offset("g", "orders", 0) == 1
        assert [consumer.ack(message) for message in before] == [False, False]
        assert take(consumer, 5) == [b"1", b"2", b"3", b"4", b"5"]
        assert store.committed_offset("g", "orders", 0) == 6


def test_damage_in_the_retry_topic_is_passed_in_the_same_way(tmp_path: Path) -> None:
    with open_wide(tmp_path / "s") as store:
        for number in range(3):
            store.put(Message("%RETRY%g", b"%d" % number, queue_id=0))
        store.wait_dispatched()
        damage(store, 0, "%RETRY%g")
        consumer = store.consumer("g", "orders")
        with pytest.raises(CorruptRecordError) as caught:
            consumer.get(timeout_s=5)
        assert "seek(0, 1, topic='%RETRY%g')" in str(caught.value.hint)
        consumer.seek(0, 1, topic="%RETRY%g")
        assert take(consumer, 2) == [b"1", b"2"]


def test_places_that_cannot_be_meant(tmp_path: Path) -> None:
    with open_wide(tmp_path / "s") as store:
        put_numbers(store, 6)
        consumer = store.consumer("g", "orders")
        places: list[Any] = [(1, 0), (0, 7), (0, -1), (0, True), (0, 1.0), ("0", 0), (None, 0), ([], 0)]
        for queue_id, offset in places:
            with pytest.raises(UsageError) as caught:
                consumer.seek(queue_id, offset)
            assert caught.value.hint
        with pytest.raises(UsageError, match="not this consumer's"):
            consumer.seek(0, 0, topic="other")
        assert take(consumer, 1) == [b"0"]
        consumer.close()
        with pytest.raises(StoreClosedError):
            consumer.seek(0, 0)


def test_from_asyncio(tmp_path: Path) -> None:
    async def main() -> list[bytes]:
        async with await aio.open(tmp_path / "s", **SMALL) as store, await store.consumer("g", "t") as consumer:
            for number in range(5):
                await store.put(Message("t", b"%d" % number, queue_id=0))
            await store.wait_dispatched()
            damage(store.store, 1, "t")
            found = [(await consumer.get(5)).body]
            with pytest.raises(mqstore.CorruptRecordError):
                await consumer.get(5)
            await consumer.seek(0, 2)
            return [*found, *[(await consumer.get(5)).body for _ in range(3)]]

    assert asyncio.run(main()) == [b"0", b"2", b"3", b"4"]
