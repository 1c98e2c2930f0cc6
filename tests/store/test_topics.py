"""Topics that are made known before their first message."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import mqstore
from mqstore import Message, MessageIllegalError, StoreClosedError, UsageError, aio
from store.support import open_small


def test_a_topic_that_is_made_known_has_the_queues_it_was_given(tmp_path: Path) -> None:
    with open_small(tmp_path / "s", auto_create_topic_enable=False, default_topic_queue_nums=3) as store:
        with pytest.raises(MessageIllegalError) as refused:
            store.put(Message("orders", b"x"))
        assert "create_topic" in (refused.value.hint or "")
        assert store.topics() == []
        assert store.create_topic("orders", 2) == 2
        assert store.create_topic("others") == 3
        assert store.topics() == ["orders", "others"]
        assert {store.put(Message("orders", b"x")).queue_id for _ in range(8)} == {0, 1}
        with pytest.raises(MessageIllegalError):
            store.put(Message("another", b"x"))
    with open_small(tmp_path / "s", auto_create_topic_enable=False) as store:
        assert store.create_topic("orders", 1) == 2
        assert store.create_topic("orders", 4) == 4
        assert {store.put(Message("orders", b"x")).queue_id for _ in range(8)} == {0, 1, 2, 3}
        assert store._engine.settings.topics["orders"].read_queue_nums == 4
        assert store._engine.settings.topics["others"].write_queue_nums == 3


@pytest.mark.parametrize(("topic", "queues"), [("", 1), ("a/b", 1), (5, 1), ("t", 0), ("t", True), ("t", 1 << 31)])
def test_what_can_be_no_topic_is_refused(tmp_path: Path, topic: str, queues: int) -> None:
    with open_small(tmp_path / "s") as store:
        with pytest.raises((MessageIllegalError, UsageError)):
            store.create_topic(topic, queues)
        assert store.topics() == []
    with pytest.raises(StoreClosedError):
        store.create_topic("t")


def test_for_asyncio(tmp_path: Path) -> None:
    async def main() -> None:
        async with await aio.open(tmp_path / "s") as store:
            assert await store.create_topic("orders", 2) == 2
            assert (await store.put(Message("orders", b"x"))).queue_id in (0, 1)

    asyncio.run(main())
    assert mqstore.inspect(tmp_path / "s").topics() == ["orders"]
