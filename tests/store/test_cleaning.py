"""Queues that are removed: of deleted topics, and of topics whose messages have all expired."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import mqstore
from mqstore import DiskFullError, Message, Store
from mqstore.files import copying
from mqstore.store.commit_log import Appended, CommitLog, Pending
from mqstore.store.consume_queue import ConsumeQueue
from mqstore.store.dispatch import Dispatcher
from store.support import copy_of_running, mark_crashed, open_small, queue_file

TOPICS = [f"topic-{number}" for number in range(10)]


def fill_topics(path: Path) -> None:
    with open_small(path) as store:
        for number in range(40):
            store.put(Message(TOPICS[number % 10], b"%d" % number, queue_id=0, keys=["k"]))
        store.wait_dispatched()


def delete_topic(path: Path, topic: str) -> None:
    """As an operator does while the broker is down: out of the settings."""
    topics = path / "config" / "topics.json"
    table = json.loads(topics.read_text())
    del table["topicConfigTable"][topic]
    topics.write_text(json.dumps(table))


def topics_of(store: Store) -> list[str]:
    return sorted({queue.topic for queue in store.queues()})


@pytest.mark.parametrize("crashed", [False, True], ids=["closed", "crashed"])
def test_a_deleted_topic_does_not_come_back_and_leaves_the_others(tmp_path: Path, crashed: bool) -> None:
    path = tmp_path / "s"
    fill_topics(path)
    delete_topic(path, "topic-3")
    rest = [topic for topic in TOPICS if topic != "topic-3"]
    with open_small(path) as store:
        assert [(one.topic, one.count) for one in store.clean_unused_topics()] == [("topic-3", 4)]
        assert topics_of(store) == rest
        assert store.get("topic-3").messages == []
        store.put(Message("topic-4", b"goes on", queue_id=0))
        store.flush()
        if crashed:
            copy_of_running(path, tmp_path / "copy")
    if crashed:
        path = tmp_path / "copy"
        assert (path / "abort").exists()
    with open_small(path) as store:
        assert topics_of(store) == rest
        assert store.max_offset("topic-4", 0) == 5
        again = store.put(Message("topic-3", b"new", queue_id=0))
        store.wait_dispatched()
        messages = store.get("topic-3", 0, again.queue_offset).messages
        assert [message.body for message in messages] == [b"new"]
    mqstore.rebuild(path, tmp_path / "rebuilt")  # the log has its messages yet: this is how to get them back
    with mqstore.inspect(tmp_path / "rebuilt") as view:
        assert set(view.topics()) == set(TOPICS)


def test_killed_in_the_middle_nothing_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s"
    fill_topics(path)
    delete_topic(path, "topic-3")

    def killed(directory: Path) -> None:
        queue_file(path, "topic-3").unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        store = open_small(path)
        patch.setattr(copying, "remove_tree", killed)
        with pytest.raises(KeyboardInterrupt):
            store.clean_unused_topics()
        copy_of_running(path, tmp_path / "killed")
    store.close()
    mark_crashed(tmp_path / "killed")
    with open_small(tmp_path / "killed") as store:
        for topic in TOPICS:
            assert len(store.get(topic).messages) == 4
        assert len(store.clean_unused_topics()) == 1


def test_a_topic_is_known_before_its_first_message_can_be_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = CommitLog.append

    def slow(self: CommitLog, pending: list[Pending]) -> list[Appended]:
        appended = append(self, pending)
        store.wait_dispatched()
        assert store.clean_unused_topics() == []
        return appended

    monkeypatch.setattr(CommitLog, "append", slow)
    with open_small(tmp_path / "s", schedule_message_enable=False) as store:
        store.put(Message("new", b"a", queue_id=0))
        store.put_batch([Message("newer", b"b", queue_id=0)] * 2)
        store.put(Message("late", b"c", queue_id=0, delay_level=1))
        assert store.deliver_due(9_000_000_000_000) == 1
        store.wait_dispatched()
        found = {topic: len(store.get(topic).messages) for topic in ("new", "newer", "late")}
        assert found == {"new": 1, "newer": 2, "late": 1}


def test_topics_of_a_table_that_a_full_disk_cut_short_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append_rows, calls = CommitLog.append_rows, iter(range(9))

    def full(self: CommitLog, rows: object, done: int) -> int:
        if next(calls):
            raise DiskFullError("no space left")
        return append_rows(self, rows, done)

    monkeypatch.setattr(CommitLog, "append_rows", full)
    with open_small(tmp_path / "s") as store:
        with pytest.raises(DiskFullError) as caught:
            store.put_table(pa.table({"topic": ["T"] * 100, "body": [bytes(100)] * 100}))
        store.wait_dispatched()
        assert caught.value.offset is not None
        assert 0 < caught.value.offset == store.max_offset("T", 0) < 100
        assert store.clean_unused_topics() == []


@pytest.mark.parametrize("expired", [False, True], ids=["unused", "expired"])
def test_a_queue_that_gets_a_message_while_it_is_looked_at_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expired: bool
) -> None:
    path, remove = tmp_path / "s", Dispatcher.remove
    fill_topics(path)
    if not expired:
        delete_topic(path, "topic-3")
    with open_small(path) as store:
        if expired:
            store.put_batch([Message("other", bytes(100), queue_id=0)] * 20)
            store.put(Message("other", bytes(1000), queue_id=0))
            store.flush()
            assert store.expire(9_000_000_000_000).removed

        def late(self: Dispatcher, queue: ConsumeQueue, *arguments: Any) -> bool:
            if queue.topic == "topic-3":
                store.put(Message("topic-3", b"just now", queue_id=0))
                store.wait_dispatched()
            return remove(self, queue, *arguments)

        monkeypatch.setattr(Dispatcher, "remove", late)
        gone = store.clean_expired_queues() if expired else store.clean_unused_topics()
        assert "topic-3" not in [one.topic for one in gone]
        assert len(gone) == (9 if expired else 0)
        assert store.get("topic-3", 0, 4).messages[0].body == b"just now"


def test_a_queue_that_is_made_anew_at_once_keeps_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, destroy = tmp_path / "s", ConsumeQueue.destroy
    fill_topics(path)
    delete_topic(path, "topic-3")
    with open_small(path) as store:

        def slow(self: ConsumeQueue) -> None:
            store.put(Message("topic-3", b"just now", queue_id=0))
            store.wait_dispatched(0.2)  # all the time it could take, if it had to
            destroy(self)

        monkeypatch.setattr(ConsumeQueue, "destroy", slow)
        assert [one.topic for one in store.clean_unused_topics()] == ["topic-3"]
        store.wait_dispatched()
        assert queue_file(path, "topic-3").exists()
        assert store.get("topic-3", 0, 4).messages[0].body == b"just now"


def test_queues_are_listed_while_others_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s"
    fill_topics(path)
    delete_topic(path, "topic-3")
    with open_small(path) as store:
        queues = store._engine.queues

        class Removing(dict[Any, Any]):
            """Loses a queue as soon as its keys have been listed."""

            def __iter__(self) -> Iterator[Any]:
                keys = list(super().__iter__())
                if ("topic-3", 0) in self:
                    del self["topic-3", 0]
                return iter(keys)

        monkeypatch.setattr(queues, "_queues", Removing(queues._queues))
        assert len(queues.all()) in (9, 10)
        store._engine.dispatcher.remove(queues.find("topic-4", 0), lambda queue: True)  # type: ignore[arg-type]
        assert "topic-4" not in queues._of_topic


def test_topics_that_a_crash_kept_from_being_saved_are_known_again(tmp_path: Path) -> None:
    path, copy = tmp_path / "s", tmp_path / "copy"
    fill_topics(path)
    delete_topic(path, "topic-3")
    with open_small(path, flush_interval_consume_queue=3_600_000) as store:
        store.put(Message("new", b"acknowledged", queue_id=2))
        store.put(Message("late", b"", queue_id=0, delay_level=1))
        store.wait_dispatched()
        copy_of_running(path, copy)
    assert "new" not in (copy / "config" / "topics.json").read_text()
    mark_crashed(copy)
    with open_small(copy) as store:
        assert {one.topic for one in store.clean_unused_topics()} == {"topic-3"}
        assert store.get("new", 2).messages[0].body == b"acknowledged"
        assert store._engine.settings.topics["new"].write_queue_nums == 3
        assert "SCHEDULE_TOPIC_XXXX" not in store._engine.settings.topics
