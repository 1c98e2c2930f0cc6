"""What is closed answers nothing any more, and closing twice does nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mqstore
from mqstore import Message, Store, StoreClosedError, aio
from mqstore.store.view import StoreView
from store.support import fill, open_small

READS: dict[str, Callable[[Any], object]] = {
    "get": lambda one: one.get("T", 0),
    "query": lambda one: one.query("T", "k1"),
    "message_by_id": lambda one: one.message_by_id("7F00000100002A9F" + 16 * "0"),
    "offset_at": lambda one: one.offset_at("T", 0, 0),
}
OF_STORE: dict[str, Callable[[Store], object]] = {
    **READS,
    "put": lambda store: store.put(Message("T", b"x")),
    "min_offset": lambda store: store.min_offset("T", 0),
    "max_offset": lambda store: store.max_offset("T", 0),
    "message_at": lambda store: store.message_at(0),
    "commit_offset": lambda store: store.commit_offset("g", "T", 0, 1),
    "committed_offset": lambda store: store.committed_offset("g", "T", 0),
    "subscribe": lambda store: store.subscribe("g", "T", mqstore.sql("a = 1")),
    "unsubscribe": lambda store: store.unsubscribe("g", "T"),
    "queues": lambda store: store.queues(),
    "topics": lambda store: store.topics(),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    fill(tmp_path / "s", 3)
    return tmp_path / "s"


@pytest.mark.parametrize("name", OF_STORE)
def test_a_closed_store(path: Path, name: str) -> None:
    store = open_small(path)
    OF_STORE[name](store)
    store.close()
    with pytest.raises(StoreClosedError):
        OF_STORE[name](store)


@pytest.mark.parametrize("name", READS)
def test_a_closed_view(path: Path, name: str) -> None:
    view: StoreView = mqstore.inspect(path)
    READS[name](view)
    view.close()
    with pytest.raises(StoreClosedError):
        READS[name](view)


def test_closing_twice(path: Path) -> None:
    async def main() -> None:
        async with await aio.open(path) as store:
            await store.close()
            await store.close()
            with pytest.raises(StoreClosedError):
                await store.put(Message("T", b"x"))

    asyncio.run(main())
    store = open_small(path)
    store.close()
    store.close()


def test_a_message_that_is_still_in_a_write_buffer_has_an_id(tmp_path: Path) -> None:
    with open_small(tmp_path / "s", transient_store_pool_enable=True, commit_interval_commit_log=600_000) as store:
        result = store.put(Message("T", b"just put"))
        message = store.message_by_id(result.msg_id)
        assert message is not None
        assert message.body == b"just put"


def test_a_transaction_that_is_refused_leaves_no_group(tmp_path: Path) -> None:
    with open_small(tmp_path / "s") as store:
        for message in (Message("no/topic", b"x"), Message("T", b"x", properties=None), "x"):  # type: ignore[arg-type]
            with pytest.raises(mqstore.MqstoreError):
                store.transaction("producers", message)  # type: ignore[arg-type]
        assert store._engine.settings.subscription_groups == {}
