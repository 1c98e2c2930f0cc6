"""Both layouts through the one face that they share."""

from __future__ import annotations

import operator
from collections.abc import Callable
from pathlib import Path

import pytest

import mqstore
import mqstore.kafka as kafka
from mqstore import Message
from mqstore.findings import Severity
from mqstore.log_protocol import MessageLog
from mqstore.status import GetMessageStatus


def open_rocketmq(path: Path) -> MessageLog:
    return mqstore.open(
        path,
        mapped_file_size_commit_log=65536,
        mapped_file_size_consume_queue=2000,
        max_hash_slot_num=100,
        max_index_num=400,
        default_topic_queue_nums=3,
    )


def open_kafka(path: Path) -> MessageLog:
    return kafka.open(path, segment_bytes=4000, num_partitions=3)


@pytest.fixture(params=[open_rocketmq, open_kafka], ids=["rocketmq", "kafka"])
def open_log(request: pytest.FixtureRequest) -> Callable[[Path], MessageLog]:
    return request.param


def settle(log: MessageLog) -> None:
    wait = getattr(log, "wait_dispatched", None)
    if wait is not None:
        assert wait(20)


def read_all(log: MessageLog, topic: str, queue_id: int) -> list[tuple[int, bytes | None]]:
    offset, found = log.min_offset(topic, queue_id), []
    while True:
        result = log.get(topic, queue_id, offset, 10)
        found += [(one.queue_offset, one.body) for one in result.messages]
        if result.next_offset <= offset:
            return found
        offset = result.next_offset


def test_put_get_reopen(open_log: Callable[[Path], MessageLog], tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for number in range(90):
        place = log.put(Message("T", b"%d" % number, keys=[f"k{number}"], queue_id=number % 3))
        assert (place.topic, place.queue_id, place.queue_offset) == ("T", number % 3, number // 3)
    places = log.put_batch([Message("T", b"b%d" % number, queue_id=1) for number in range(5)])
    assert [place.queue_offset for place in places] == [30, 31, 32, 33, 34]
    settle(log)
    for _ in range(2):
        assert read_all(log, "T", 0) == [(number // 3, b"%d" % number) for number in range(0, 90, 3)]
        assert len(read_all(log, "T", 1)) == 35
        assert (log.min_offset("T", 2), log.max_offset("T", 2)) == (0, 30)
        assert [(one.topic, one.queue_id, one.max_offset) for one in log.stats()] == [
            ("T", 0, 30), ("T", 1, 35), ("T", 2, 30),
        ]  # fmt: skip
        log.flush()
        assert [one for one in log.check() if one.severity is Severity.ERROR] == []
        log.close()
        log = open_log(tmp_path)
    log.close()


def test_statuses(open_log: Callable[[Path], MessageLog], tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert log.get("T", 0, 0, 1).status is GetMessageStatus.NO_MATCHED_LOGIC_QUEUE
    log.put(Message("T", b"x", queue_id=0))
    settle(log)
    assert log.get("T", 0, 0, 1).status is GetMessageStatus.FOUND
    assert log.get("T", 0, 1, 1).status is GetMessageStatus.OFFSET_OVERFLOW_ONE
    assert log.get("T", 0, 7, 1).status is GetMessageStatus.OFFSET_OVERFLOW_BADLY
    assert log.get("T", 0, 7, 1).next_offset == 1
    assert log.min_offset("other", 0) == log.max_offset("other", 0) == 0
    assert log.offset_at("other", 0, 0) is None
    log.close()


def test_offset_at(open_log: Callable[[Path], MessageLog], tmp_path: Path) -> None:
    log = open_log(tmp_path)
    place = log.put(Message("T", b"x", queue_id=0))
    log.put(Message("T", b"y", queue_id=0))
    settle(log)
    answer = log.offset_at("T", 0, 0)
    assert answer is not None
    assert operator.index(answer) == place.queue_offset == 0
    log.close()


def test_what_cannot_be_put_is_refused_by_both(open_log: Callable[[Path], MessageLog], tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for wrong in (Message("a/b", b""), b"bytes"):
        with pytest.raises(mqstore.MqstoreError):
            log.put(wrong)
    log.close()
    with pytest.raises(mqstore.StoreClosedError):
        log.put(Message("T", b"x"))
