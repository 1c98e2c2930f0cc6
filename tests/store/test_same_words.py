"""A running store and a view are asked with the same words and answer the same."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mqstore
from mqstore import Message, Store, StoreClosedError, StoreView
from mqstore.store.store_reader import StoreReader
from store.support import body_of, open_small, put_dispatched

QUESTIONS: list[Callable[[Any], Any]] = [
    lambda one: one.topics(),
    lambda one: one.queues(),
    lambda one: one.queues("t"),
    lambda one: list(one.scan()),
    lambda one: list(one.scan(end=600)),
    lambda one: one.get("t", 0, 3, 5),
    lambda one: one.get("t", 0, 3, 5, "paid"),
    lambda one: one.get("t", 7),
    lambda one: one.query("t", "k2"),
    lambda one: one.query("t", "k2", begin_ms=1, end_ms=2),
    lambda one: [one.offset_at("t", 0, 1, boundary) for boundary in ("lower", "upper")],
    lambda one: [one.offset_at(topic, 0, 1 << 50) for topic in ("t", "none")],
    lambda one: [one.min_offset(topic, 0) for topic in ("t", "none")],
    lambda one: [one.max_offset(topic, 0) for topic in ("t", "none")],
    lambda one: [one.committed_offset(group, "t", 0) for group in ("g", "nobody")],
    lambda one: one.progress(),
    lambda one: [one.message_at(place) for place in (0, 1, 1 << 40)],
    lambda one: one.message_by_id(one.message_at(0).msg_id),
    operator.attrgetter("min_physical_offset"),
    operator.attrgetter("log_end"),
]


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with open_small(tmp_path / "s") as store:
        put_dispatched(store, Message("u", b"other", queue_id=0))
        for number in range(40):
            message = Message(
                "t", body_of(number), queue_id=0, keys=[f"k{number % 5}"], tags=("paid", "open")[number % 2]
            )
            put_dispatched(store, message)
        store.commit_offset("g", "t", 0, 9)
        store.save_progress()
        yield store


@pytest.mark.parametrize("number", range(len(QUESTIONS)))
def test_both_give_the_same_answer(store: Store, number: int) -> None:
    with mqstore.inspect(store.path) as view:
        assert QUESTIONS[number](view) == QUESTIONS[number](store)


def test_neither_hides_a_question_from_the_other() -> None:
    for name, asked in inspect.getmembers(StoreReader, inspect.isfunction):
        for kind in (Store, StoreView):
            own = getattr(kind, name)
            if name[0] != "_":
                assert inspect.signature(own) == inspect.signature(asked), (kind, name)


def test_a_scan_of_a_running_store_ends_where_it_began_to(store: Store) -> None:
    bodies = []
    for record in store.scan():
        bodies.append(record.body)
        store.put(Message("t", b"later", queue_id=0))
    assert bodies == [b"other", *map(body_of, range(40))]


def test_a_scan_sees_what_is_in_write_buffers(tmp_path: Path) -> None:
    never = 3_600_000
    with open_small(
        tmp_path / "s", transient_store_pool_enable=True, transient_store_pool_size=2, commit_interval_commit_log=never
    ) as store:
        store.put(Message("t", b"buffered", queue_id=0))
        assert [record.body for record in store.scan()] == [b"buffered"]
    with pytest.raises(StoreClosedError):
        store.scan()
