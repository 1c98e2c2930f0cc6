"""Queues that are removed: of deleted topics, and of topics whose messages have all expired."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import mqstore
from mqstore import Message, Store
from mqstore.files import copying
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
