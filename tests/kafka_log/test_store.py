"""Putting and getting: what goes in comes out, and is found by time."""

from __future__ import annotations

import operator
import threading
from pathlib import Path

import pytest

import mqstore
import mqstore.kafka as kafka
from kafka_log.support import (
    TOPIC,
    bad,
    message,
    open_small,
    read_all,
    value_of,
    values,
)
from mqstore.errors import (
    MessageIllegalError,
    UsageError,
)
from mqstore.kafka import KafkaMessage
from mqstore.status import GetMessageStatus


class TestPutAndGet:
    def test_round_trip(self, tmp_path: Path) -> None:
        sent = [
            KafkaMessage(TOPIC, b"v", b"k", [("h", b"1"), ("h", None), ("", b"")], 5),
            KafkaMessage(TOPIC, None, b"k", timestamp_ms=3),
            KafkaMessage(TOPIC, b"", b""),
            KafkaMessage(TOPIC, b"x" * 300, None, [("名", "字".encode())]),
        ]
        with open_small(tmp_path) as store:
            results = [store.put(one) for one in sent]
            assert [one.offset for one in results] == [0, 1, 2, 3]
            got = read_all(store)
            assert [(one.key, one.value, list(one.headers)) for one in got] == [
                (one.key, one.value, list(one.headers)) for one in sent
            ]
            assert [one.timestamp_ms for one in got[:2]] == [5, 3]
            assert got[2].timestamp_ms == results[2].timestamp_ms > 1_700_000_000_000
        assert values(tmp_path) == [one.value for one in sent]

    @pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
    def test_batches_of_every_codec(self, tmp_path: Path, codec: str) -> None:
        with kafka.open(tmp_path, compression_type=codec, batch_size=4000) as store:
            results = store.put_batch([message(number) for number in range(300)])
            assert [one.offset for one in results] == list(range(300))
            assert [one.value for one in read_all(store)] == [value_of(number) for number in range(300)]
            (stats,) = store.stats()
        assert stats.batches_by_codec.keys() == {codec}
        assert 5 < stats.batches < 20
        assert bad(kafka.check(tmp_path)) == []

    def test_statuses(self, tmp_path: Path) -> None:
        with open_small(tmp_path) as store:
            store.create_topic(TOPIC)
            assert store.get("other").status is GetMessageStatus.NO_MATCHED_LOGIC_QUEUE
            assert store.get(TOPIC).status is GetMessageStatus.NO_MESSAGE_IN_QUEUE
            for number in range(3):
                store.put(message(number))
            for offset, status, following in (
                (2, GetMessageStatus.FOUND, 3),
                (3, GetMessageStatus.OFFSET_OVERFLOW_ONE, 3),
                (9, GetMessageStatus.OFFSET_OVERFLOW_BADLY, 3),
                (-1, GetMessageStatus.OFFSET_TOO_SMALL, 0),
            ):
                result = store.get(TOPIC, 0, offset)
                assert (result.status, result.next_offset) == (status, following)
                assert (result.min_offset, result.max_offset) == (0, 3)

    def test_limits_of_a_get(self, tmp_path: Path) -> None:
        with kafka.open(tmp_path) as store:
            store.put_batch([message(number) for number in range(20)])
            result = store.get(TOPIC, 0, 5, 4)
            assert [one.offset for one in result.messages] == [5, 6, 7, 8]
            assert result.next_offset == 9
            assert len(store.get(TOPIC, 0, 0, 20, max_bytes=130).messages) == 2
            assert len(store.get(TOPIC, 0, 0, 20, max_bytes=1).messages) == 1
            for wrong in (0, -1, True, "5"):
                with pytest.raises(UsageError):
                    store.get(TOPIC, 0, 0, wrong)

    def test_an_mqstore_message(self, tmp_path: Path) -> None:
        with open_small(tmp_path) as store:
            result = store.put(mqstore.Message("t", b"body", keys=["a", "b"], properties={"p": "q"}, queue_id=2))
            assert (result.queue_id, result.queue_offset) == (2, 0)
            (got,) = read_all(store, partition=2)
        assert (got.body, got.key, got.headers, got.queue_offset) == (b"body", b"a b", (("p", b"q"),), 0)

    def test_what_is_refused_stores_nothing(self, tmp_path: Path) -> None:
        with open_small(tmp_path, max_message_bytes=500) as store:
            for wrong in (
                message(0, topic="a/b"), message(0, topic=".."), message(0, partition=-1), message(0, timestamp_ms=-1),
                message(0, size=600), KafkaMessage(TOPIC, "text"), KafkaMessage(TOPIC, b"", "text"),
                message(0, headers=[(b"x", b"")]), message(0, headers=[("x", "y")]), b"bytes", None,
            ):  # fmt: skip
                with pytest.raises((MessageIllegalError, UsageError)):
                    store.put_batch([message(0), wrong])
            assert store.topics() == {}
        with open_small(tmp_path, auto_create_topics_enable=False) as store, pytest.raises(MessageIllegalError):
            store.put(message(0))

    def test_log_append_time(self, tmp_path: Path) -> None:
        with open_small(tmp_path, message_timestamp_type="LogAppendTime") as store:
            result = store.put(message(0, timestamp_ms=5))
            (got,) = read_all(store)
        assert got.timestamp_ms == result.timestamp_ms > 1_700_000_000_000
        assert got.timestamp_type.name == "LOG_APPEND_TIME"

    def test_many_threads(self, tmp_path: Path) -> None:
        with open_small(tmp_path) as store:
            places: list[tuple[int, int, bytes | None]] = []

            def work(worker: int) -> None:
                for number in range(60):
                    sent = KafkaMessage(TOPIC, f"{worker}/{number}".encode(), partition=number % 2)
                    result = store.put(sent)
                    places.append((result.partition, result.offset, sent.value))

            threads = [threading.Thread(target=work, args=(worker,)) for worker in range(5)]
            for thread in threads:
                thread.start()
            while any(thread.is_alive() for thread in threads):
                read_all(store)
            for thread in threads:
                thread.join()
            found = [
                (partition, one.offset, one.value)
                for partition in (0, 1) for one in read_all(store, partition=partition)
            ]  # fmt: skip
            assert sorted(found) == sorted(places)
            assert [one.offset for one in read_all(store)] == list(range(150))
        assert bad(kafka.check(tmp_path)) == []

    def test_a_view_follows_the_writer(self, tmp_path: Path) -> None:
        with open_small(tmp_path) as store, kafka.inspect(tmp_path) as view:
            for number in range(100):
                store.put(message(number))
                assert view.max_offset(TOPIC) == number + 1
                assert view.get(TOPIC, 0, number).messages[0].value == value_of(number)
            assert view.was_aborted  # or running


class TestLookUp:
    def test_the_first_record_not_older(self, tmp_path: Path) -> None:
        with open_small(tmp_path) as store:
            for stamp in (10, 50, 20, 30, 60):
                store.put(message(0, timestamp_ms=stamp))
            assert store.offset_at(TOPIC, 0, 40) == (1, 50)
            assert store.offset_at(TOPIC, 0, 51) == (4, 60)
            assert store.offset_at(TOPIC, 0, 61) is None
            assert store.offset_at(TOPIC, 0, 0) == (0, 10)
            assert operator.index(store.offset_at(TOPIC, 0, 15)) == 1
            assert store.offset_at(TOPIC, 0, "max_timestamp") == (4, 60)
            assert store.offset_at(TOPIC, 0, "latest") == (5, -1)
            assert store.offset_at("other", 0, 0) is None
            with pytest.raises(UsageError):
                store.offset_at(TOPIC, 0, "newest")

    def test_agrees_with_a_plain_walk(self, tmp_path: Path) -> None:
        times = [(number * 7919) % 1000 for number in range(200)]
        with open_small(tmp_path) as store, kafka.inspect(tmp_path) as view:
            for number, stamp in enumerate(times):
                store.put(message(number, timestamp_ms=stamp))
            store.delete_records(TOPIC, 0, 33)
            for asked in range(-1, 1002, 13):
                wanted = next(((at, t) for at, t in enumerate(times) if t >= asked and at >= 33), None)
                assert store.offset_at(TOPIC, 0, asked) == wanted
                assert view.offset_at(TOPIC, 0, asked) == wanted
