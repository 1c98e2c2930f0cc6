"""Committed offsets of groups go along, from Kafka into a store and from a store into Kafka."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import mqstore
from convert.support import plain
from mqstore import Message, convert, kafka
from mqstore.convert import ConvertOptions, Loss
from mqstore.errors import UsageError
from mqstore.kafka import KafkaMessage
from mqstore.layout.kafka.internal_topics import decode_internal, group_partition


def records(path: Path) -> dict[tuple[str, int], list[tuple[Any, ...]]]:
    with kafka.inspect(path) as view:
        return {(one.topic, one.partition): plain(one.records()) for one in view.partitions()}


def commit(group: str, topic: str, partition: int, offset: int | None) -> KafkaMessage:
    """A commit as docs/format/kafka-internal-topics.md describes it: key of version 1, value of version 3."""
    texts = [one.encode() for one in (group, topic)]
    key = b"".join([struct.pack(">h", 1), *(struct.pack(">h", len(one)) + one for one in texts)])
    value = None if offset is None else struct.pack(">hqihq", 3, offset, -1, 0, 1_700_000_000_000)
    return KafkaMessage("__consumer_offsets", value, key + struct.pack(">i", partition), timestamp_ms=5)


def test_committed_offsets_go_along(tmp_path: Path) -> None:
    with kafka.open(tmp_path / "log", cleanup_policy="compact") as log:
        log.create_topics({"t.one": 2, "empty": 1, "other": 1})
        log.put_batch([KafkaMessage("t.one", b"%d" % number, key=b"%d" % (number % 4)) for number in range(8)])
        log.roll("t.one")
        log.compact("t.one", 0, force=True)  # offsets 4 to 7 stay, as 4 to 7
        producer = log.producer()
        with producer.transaction():
            producer.put_batch([KafkaMessage("t.one", b"x", key=b"x", partition=1)])
        log.put(KafkaMessage("t.one", b"y", key=b"y", partition=1))
        log.put_batch(
            [
                commit("g", "t.one", 0, 1), commit("g", "t.one", 0, 6), commit("late", "t.one", 0, 8),
                commit("early", "t.one", 0, 2), commit("gone", "t.one", 0, 5), commit("gone", "t.one", 0, None),
                commit("g", "t.one", 1, 2), commit("h", "t.one", 1, 3), commit("g", "empty", 0, 0),
                commit("none", "t.one", 0, -1), commit("reset", "t.one", 0, 6), commit("reset", "t.one", 0, -1),
                commit("a@b", "t.one", 0, 3), commit("g", "nowhere", 0, 3),
                KafkaMessage("__consumer_offsets", b"?", b"?"),
            ]
        )  # fmt: skip
    report = convert.to_rocketmq(tmp_path / "log", tmp_path / "store")
    with mqstore.inspect(tmp_path / "store") as view:
        found = view.settings.consumer_offsets
        assert found == {
            ("t%2Eone", "g"): {0: 6, 1: 1}, ("t%2Eone", "late"): {0: 8}, ("t%2Eone", "early"): {0: 4},
            ("t%2Eone", "h"): {1: 2}, ("empty", "g"): {0: 0},
        }  # fmt: skip
        next_bodies = {
            group: [one.body for one in view.get("t%2Eone", queue, offset, 1).messages]
            for (topic, group), queues in found.items()
            for queue, offset in queues.items()
            if topic == "t%2Eone" and (group, queue) != ("g", 0)
        }
        assert next_bodies == {"g": [b"y"], "late": [], "early": [b"4"], "h": []}
        assert [one.body for one in view.get("t%2Eone", 0, 6, 1).messages] == [b"6"]
    assert report.group_offsets == 6
    assert report.total_losses()[Loss.GROUP_OFFSETS] == 2
    back = convert.to_kafka(tmp_path / "store", tmp_path / "back")
    assert back.total_losses()[Loss.GROUP_OFFSETS] == 6
    assert records(tmp_path / "back")["__consumer_offsets", 0] == records(tmp_path / "log")["__consumer_offsets", 0]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Queue 1 has 8 messages; one group has a topic that is not there."""
    with mqstore.open(tmp_path / "store", expire_automatically=False) as store:
        for number in range(8):
            store.put(Message("orders", b"%d" % number, queue_id=1))
        store.wait_dispatched()
        for group, topic, queue_id, offset in (
            ("g", "orders", 1, 0), ("half", "orders", 1, 4), ("half", "nowhere", 0, 0), ("all", "orders", 1, 8),
        ):  # fmt: skip
            store.commit_offset(group, topic, queue_id, offset)
    return tmp_path / "store"


def commits(path: Path) -> dict[tuple[str, str, int], tuple[int, int]]:
    """Partition of ``__consumer_offsets`` and offset, by group, topic and partition."""
    found = {}
    with kafka.inspect(path) as view:
        for one in view.partitions():
            for record in one.records() if one.topic == "__consumer_offsets" else ():
                decoded = decode_internal(one.topic, record.key, record.value)
                assert decoded.value is not None
                where = decoded.key["group"], decoded.key["topic"], decoded.key["partition"]
                found[where] = one.partition, decoded.value["offset"]
    return found


def test_into_kafka(store: Path, tmp_path: Path) -> None:
    report = convert.to_kafka(store, tmp_path / "log")
    found = commits(tmp_path / "log")
    # Groups have their places by Java's hash of their names.
    assert found == {
        ("g", "orders", 1): (103 % 50, 0), ("half", "orders", 1): (3_194_931 % 50, 4),
        ("all", "orders", 1): (96_673 % 50, 8),
    }  # fmt: skip
    assert report.group_offsets == 3
    assert report.total_losses()[Loss.GROUP_OFFSETS] == 1
    with kafka.inspect(tmp_path / "log") as view:
        assert view.check() == []
        for (_, topic, partition), (_, offset) in found.items():
            values = [one.value for one in view.partition(topic, partition).records(offset)]
            assert values == [b"%d" % number for number in range(offset, 8)]
    with kafka.open(tmp_path / "log") as log:
        assert all(not one.rebuilt for one in log.reports)


def test_and_back(store: Path, tmp_path: Path) -> None:
    """Commits that a conversion wrote are no messages: they become progress again, and nothing besides."""
    convert.to_kafka(store, tmp_path / "log")
    back = convert.to_rocketmq(tmp_path / "log", tmp_path / "back")
    assert set(back.topics) == {"orders"}
    assert back.group_offsets == 3
    with mqstore.inspect(tmp_path / "back") as view:
        assert view.settings.consumer_offsets == {
            ("orders", "g"): {1: 0},
            ("orders", "half"): {1: 4},
            ("orders", "all"): {1: 8},
        }
        assert {queue.topic for queue in view.queues()} == {"orders"}
    with kafka.open(tmp_path / "log") as log:  # a broker goes on there
        log.put(replace(commit("g", "orders", 1, 7), partition=group_partition("g", 50)))
    convert.to_rocketmq(tmp_path / "log", tmp_path / "later")
    with mqstore.inspect(tmp_path / "later") as view:
        assert view.settings.consumer_offsets["orders", "g"][1] == 7


def test_as_many_partitions_as_the_cluster_has(store: Path, tmp_path: Path) -> None:
    convert.to_kafka(store, tmp_path / "log", ConvertOptions(offsets_topic_partitions=3))
    assert {place for place, _ in commits(tmp_path / "log").values()} <= {0, 1, 2}
    assert commits(tmp_path / "log")["half", "orders", 1] == (3_194_931 % 3, 4)
    convert.to_kafka(store, tmp_path / "none", ConvertOptions(internal=False))
    assert commits(tmp_path / "none") == {}
    with pytest.raises(UsageError):
        ConvertOptions(offsets_topic_partitions=0)


@pytest.mark.parametrize(
    ("group", "partition"),
    # By Java's String.hashCode; the second one's is -2**31, of which the absolute value is taken for 0.
    [("Aa", 2112 % 50), ("polygenelubricants", 0)],
)
def test_places_of_groups(group: str, partition: int) -> None:
    assert group_partition(group, 50) == partition
