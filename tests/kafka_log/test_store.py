"""Putting and getting: batches, rolls, producers, transactions, retention, deletion, restarts."""

from __future__ import annotations

import contextlib
import operator
import os
import resource
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import mqstore
import mqstore.kafka as kafka
from kafka_log.support import (
    SMALL,
    TOPIC,
    bad,
    batch_positions,
    fill,
    log_files,
    mark_crashed,
    message,
    open_small,
    partition_of,
    read_all,
    tree,
    value_of,
    values,
)
from mqstore.errors import (
    MessageIllegalError,
    NotAStoreError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    StoreClosedError,
    StoreLockedError,
    UsageError,
)
from mqstore.kafka import KafkaMessage, Producer
from mqstore.kafka.batching import Sender
from mqstore.layout.kafka import names
from mqstore.layout.kafka.batch import encode_batch
from mqstore.layout.kafka.checkpoints import decode_offsets
from mqstore.layout.kafka.record import Record
from mqstore.status import GetMessageStatus

DAY_MS = 86_400_000


def offsets_in(path: Path, name: str) -> int | None:
    return decode_offsets((path / name).read_bytes()).get((TOPIC, 0))


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


class TestRolling:
    def test_by_size(self, tmp_path: Path) -> None:
        fill(tmp_path, 100, segment_index_bytes=4000)
        sizes = [path.stat().st_size for path in log_files(tmp_path)]
        assert len(sizes) > 3
        assert all(1800 < size <= 2000 for size in sizes[:-1])

    def test_names_are_the_next_offsets(self, tmp_path: Path) -> None:
        fill(tmp_path, 60)
        with kafka.inspect(tmp_path) as view:
            for segment in view.partition(TOPIC).segments():
                _, header, _ = next(segment.headers())
                assert header.base_offset == segment.base_offset

    def test_by_time_of_the_records(self, tmp_path: Path) -> None:
        with kafka.open(tmp_path, segment_ms=1000) as store:
            for stamp in (5000, 6000, 6001, 7001, 7002, 4000):
                store.put(message(0, timestamp_ms=stamp))
        # A segment ends when a record is more than segment_ms younger than its first.
        assert [int(path.stem) for path in log_files(tmp_path)] == [0, 2, 4]

    def test_by_full_indexes(self, tmp_path: Path) -> None:
        # Room for 5 offset entries and 3 - 1 time entries.
        with kafka.open(tmp_path, segment_index_bytes=40, index_interval_bytes=1) as store:
            for number in range(12):
                store.put(message(number))
        # The first batch gets no entry; the third has the second entry, so that the fourth batch goes to the next.
        assert [int(path.stem) for path in log_files(tmp_path)] == [0, 3, 6, 9]
        with kafka.inspect(tmp_path) as view:
            assert [len(one.time_index()) for one in view.partition(TOPIC).segments()] == [2, 2, 2, 2]
        (tmp_path / "other").mkdir()
        with kafka.open(tmp_path / "other", segment_index_bytes=40, index_interval_bytes=1) as store:
            for _ in range(12):
                store.put(message(0))  # one timestamp: one time entry
        assert [int(path.stem) for path in log_files(tmp_path / "other")] == [0, 6]

    def test_by_the_span_of_offsets(self, tmp_path: Path) -> None:
        with kafka.open(tmp_path) as store:
            store.put(message(0))
            for base in (2**31 - 1, 2**31, 2**33):
                batch = encode_batch([Record(base, 7, 0, b"k", b"v")], base_offset=base)
                assert store.append_batch(TOPIC, 0, batch, keep_offsets=True).base_offset == base
            assert [one.offset for one in read_all(store)] == [0, 2**31 - 1, 2**31, 2**33]
        assert [int(path.stem) for path in log_files(tmp_path)] == [0, 2**31, 2**33]
        assert bad(kafka.check(tmp_path)) == []

    def test_by_hand(self, tmp_path: Path) -> None:
        with kafka.open(tmp_path) as store:
            store.create_topic(TOPIC)
            assert not store.roll(TOPIC)
            store.put(message(0))
            assert store.roll(TOPIC)
            assert not store.roll(TOPIC)
            store.put(message(1))
            assert [one.offset for one in read_all(store)] == [0, 1]

    def test_live_indexes_are_those_of_a_rebuild(self, tmp_path: Path) -> None:
        """With records just below, at and above the size of the interval among them."""
        with open_small(tmp_path / "log") as store:
            for number in range(150):
                store.put(message(number, size=(150 - 61 - 10, 150 - 61, 150, 3)[number % 4]))
        written = kafka.reindex(tmp_path / "log", output=tmp_path / "new", index_interval_bytes=150)
        assert len(written) > 10
        for path in written:
            assert path.read_bytes() == (partition_of(tmp_path / "log") / path.name).read_bytes()

    def test_a_restart_counts_anew(self, tmp_path: Path) -> None:
        """As a broker's does: the next entry comes a whole interval after the restart."""
        with kafka.open(tmp_path, index_interval_bytes=250) as store:
            for number in range(2):
                store.put(message(number))
        with kafka.open(tmp_path, index_interval_bytes=250) as store:
            for number in range(2, 6):
                store.put(message(number))
        with kafka.inspect(tmp_path) as view:
            (segment,) = view.partition(TOPIC).segments()
            assert [entry.offset for entry in segment.offset_index()] == [5]
        assert bad(kafka.check(tmp_path)) == []


class TestProducers:
    def test_what_is_sent_twice_is_stored_once(self, tmp_path: Path) -> None:
        with open_small(tmp_path) as store:
            first = store.put_as([message(0), message(1)], Sender(7, 0, 0))
            again = store.put_as([message(0), message(1)], Sender(7, 0, 0))
            assert [one.offset for one in again] == [one.offset for one in first]
            assert [one.is_duplicate for one in first + again] == [False, False, True, True]
            for number in range(5):
                store.put_as([message(number)], Sender(7, 0, 2 + number))
            assert store.max_offset(TOPIC) == 7
            with pytest.raises(OutOfOrderSequenceError):  # only the last five batches are remembered
                store.put_as([message(0), message(1)], Sender(7, 0, 0))

    def test_a_gap_is_refused(self, tmp_path: Path) -> None:
        with open_small(tmp_path) as store:
            store.put_as([message(0)], Sender(7, 0, 4))  # an unknown producer may begin anywhere
            with pytest.raises(OutOfOrderSequenceError) as caught:
                store.put_as([message(1)], Sender(7, 0, 6))
            assert caught.value.expected == 5
            with pytest.raises(OutOfOrderSequenceError):  # a new epoch begins at 0
                store.put_as([message(1)], Sender(7, 1, 5))
            store.put_as([message(1)], Sender(7, 1, 0))
            with pytest.raises(ProducerFencedError):
                store.put_as([message(1)], Sender(7, 0, 5))
            assert store.max_offset(TOPIC) == 2

    def test_sequences_wrap(self, tmp_path: Path) -> None:
        with open_small(tmp_path) as store:
            store.put_as([message(0), message(1)], Sender(7, 0, 2**31 - 2))
            store.put_as([message(2)], Sender(7, 0, 0))
            assert store.producers(TOPIC)[0].last_sequence == 0
            assert [one.sequence for one in read_all(store)] == [2**31 - 2, 2**31 - 1, 0]

    @pytest.mark.parametrize("crash", [False, True])
    def test_known_after_a_restart(self, tmp_path: Path, crash: bool) -> None:
        with open_small(tmp_path) as store:
            for number in range(80):
                store.put_as([message(number)], Sender(7, 3, number))
            wanted = store.producers(TOPIC)
        if crash:
            mark_crashed(tmp_path)
            for path in partition_of(tmp_path).glob("*.snapshot"):
                path.unlink()
        with open_small(tmp_path, producer_id_expiration_ms=1 << 60) as store:
            assert store.producers(TOPIC) == wanted
            assert store.put_as([message(79)], Sender(7, 3, 79))[0].is_duplicate
            with pytest.raises(OutOfOrderSequenceError):
                store.put_as([message(81)], Sender(7, 3, 81))

    def test_forgotten_when_silent_for_long(self, tmp_path: Path) -> None:
        with open_small(tmp_path) as store:
            store.put_as([message(0, timestamp_ms=5)], Sender(7, 0, 0))
            store.put_as([message(0, timestamp_ms=5)], Sender(8, 0, 0, is_transactional=True))
        with open_small(tmp_path) as store:
            assert [one.producer_id for one in store.producers(TOPIC)] == [8]  # its transaction is open

    def test_new_numbers(self, tmp_path: Path) -> None:
        with open_small(tmp_path) as store:
            one, other = store.producer(), store.producer()
            assert one.producer_id != other.producer_id
            one.put(message(0))
            assert store.producer(one.producer_id, epoch=1).put(message(1)).offset == 1
            with pytest.raises(ProducerFencedError):
                one.put(message(2))


class TestTransactions:
    def test_commit_and_abort(self, tmp_path: Path) -> None:
        with open_small(tmp_path) as store:
            producer = store.producer()
            store.put(message(0))
            with producer.transaction():
                producer.put_batch([message(1), message(2)])
                producer.put(message(3, partition=1))
                assert store.get(TOPIC, 0, 1, isolation="read_committed").messages == []
            self.fail_in_a_transaction(producer)
            store.put(message(5))
            shown = [one.value for one in read_all(store, isolation="read_committed")]
            assert shown == [value_of(number) for number in (0, 1, 2, 5)]
            assert [one.value for one in read_all(store)] == [value_of(number) for number in (0, 1, 2, 4, 5)]
            assert len(read_all(store, partition=1, isolation="read_committed")) == 1
            (aborted,) = store.aborted_transactions(TOPIC)
            assert aborted == (producer.producer_id, 4, 5, 6)
        with kafka.inspect(tmp_path) as view:
            assert [one.value for one in read_all(view, isolation="read_committed")] == shown
            assert view.aborted_transactions(TOPIC) == [aborted]
        assert bad(kafka.check(tmp_path)) == []

    @staticmethod
    def fail_in_a_transaction(producer: Producer) -> None:
        with contextlib.suppress(ZeroDivisionError), producer.transaction():
            producer.put(message(4))
            raise ZeroDivisionError

    def test_an_open_transaction_holds_readers_back(self, tmp_path: Path) -> None:
        with open_small(tmp_path) as store:
            producer = store.producer()
            store.put(message(0))
            producer.begin()
            producer.put(message(1))
            for number in range(2, 60):
                store.put(message(number))
            assert len(read_all(store, isolation="read_committed")) == 1
            result = store.get(TOPIC, 0, 1, isolation="read_committed")
            assert (result.status, result.max_offset) == (GetMessageStatus.OFFSET_OVERFLOW_ONE, 1)
        with open_small(tmp_path) as store:
            assert store.partition(TOPIC).last_stable_offset == 1
            store.end_transaction(TOPIC, 0, producer.producer_id, 0, commit=False)
            assert len(read_all(store, isolation="read_committed")) == 59
        with kafka.inspect(tmp_path) as view:
            assert view.partition(TOPIC).last_stable_offset == 61

    def test_misuse(self, tmp_path: Path) -> None:
        with open_small(tmp_path) as store:
            producer = store.producer()
            with pytest.raises(UsageError):
                producer.commit()
            producer.begin()
            with pytest.raises(UsageError):
                producer.begin()
            producer.put(message(0))
            with pytest.raises(MessageIllegalError):  # the same producer outside of its transaction
                store.put_as([message(1)], Sender(producer.producer_id, 0, 1))
            with pytest.raises(UsageError):
                store.get(TOPIC, isolation="dirty")

    def test_aborts_are_found_again_after_a_crash(self, tmp_path: Path) -> None:
        with open_small(tmp_path) as store:
            producer = store.producer()
            for number in range(60):
                producer.begin()
                producer.put(message(number))
                producer.commit() if number % 3 else producer.abort()
            wanted = store.aborted_transactions(TOPIC)
            shown = [one.value for one in read_all(store, isolation="read_committed")]
        assert len(wanted) == 20
        before = tree(partition_of(tmp_path))
        for path in partition_of(tmp_path).glob("*.txnindex"):
            path.unlink()
        mark_crashed(tmp_path)
        with open_small(tmp_path, producer_id_expiration_ms=1 << 60) as store:
            assert store.aborted_transactions(TOPIC) == wanted
            assert [one.value for one in read_all(store, isolation="read_committed")] == shown
        assert tree(partition_of(tmp_path)) == before


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


class TestRemoving:
    def test_delete_records(self, tmp_path: Path) -> None:
        fill(tmp_path, 100)
        with open_small(tmp_path) as store:
            assert store.delete_records(TOPIC, 0, 50) == 50
            assert store.delete_records(TOPIC, 0, 20) == 50
            assert [one.offset for one in read_all(store)] == list(range(50, 100))
            assert store.get(TOPIC, 0, 49).status is GetMessageStatus.OFFSET_TOO_SMALL
            assert min(int(path.stem) for path in log_files(tmp_path)) <= 50 < int(log_files(tmp_path)[1].stem)
            with pytest.raises(UsageError):
                store.delete_records(TOPIC, 0, 101)
        assert offsets_in(tmp_path, names.LOG_STARTS) == 50
        with kafka.inspect(tmp_path) as view:
            assert view.min_offset(TOPIC) == 50
            assert [one.offset for one in read_all(view)] == list(range(50, 100))
        with open_small(tmp_path) as store:
            assert store.min_offset(TOPIC) == 50
            store.delete_records(TOPIC, 0, 100)
            assert store.put(message(0)).offset == 100
        assert bad(kafka.check(tmp_path)) == []

    def test_retention_by_time(self, tmp_path: Path) -> None:
        fill(tmp_path, 100)
        with open_small(tmp_path, retention_ms=1000) as store:
            newest = 1_000_000 + 99
            assert store.enforce_retention(newest + 1000) > 0
            first = store.min_offset(TOPIC)
            assert first == int(log_files(tmp_path)[0].stem)
            # Whole segments only, and only those whose last record is too old.
            assert [one.value for one in read_all(store)] == [value_of(number) for number in range(first, 100)]
            assert len(log_files(tmp_path)) > 0
            assert store.enforce_retention(newest + 1000) == 0
            store.enforce_retention(newest + 1001)
            assert store.min_offset(TOPIC) == store.max_offset(TOPIC) == 100
            assert store.put(message(100)).offset == 100
        assert bad(kafka.check(tmp_path)) == []

    def test_retention_without_timestamps_goes_by_the_file(self, golden_kafka: Path, tmp_path: Path) -> None:
        source = golden_kafka / "legacyv0-0"
        for path in source.iterdir():
            target = tmp_path / "legacyv0-0" / path.name
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(path.read_bytes())
            os.utime(target, (1000, 1000 + int(path.stem.split("-")[0] or 0)))
        (tmp_path / names.CLEAN_SHUTDOWN).touch()
        with kafka.open(tmp_path, retention_ms=1000, file_delete_delay_ms=0) as store:
            assert store.enforce_retention(1_000_000 + 1000 + 147_001) == 2
            assert store.min_offset("legacyv0") == 298

    def test_retention_is_not_fooled_by_zeros_in_a_time_index(self, tmp_path: Path) -> None:
        fill(tmp_path, 100)
        for path in partition_of(tmp_path).glob("*.timeindex"):
            path.write_bytes(path.read_bytes().ljust(396, b"\0"))
        with open_small(tmp_path, retention_ms=10_000_000) as store:
            assert store.enforce_retention(2_000_000) == 0

    def test_retention_by_size(self, tmp_path: Path) -> None:
        fill(tmp_path, 100)
        with open_small(tmp_path, retention_bytes=5000, retention_ms=-1) as store:
            store.enforce_retention()
            assert 5000 <= store.partition(TOPIC).size_bytes < 7000

    def test_compacted_partitions_keep_all(self, tmp_path: Path) -> None:
        fill(tmp_path, 100)
        with open_small(tmp_path, retention_ms=1, cleanup_policy="compact") as store:
            assert store.enforce_retention() == 0

    def test_deleted_files_wait(self, tmp_path: Path) -> None:
        fill(tmp_path, 100)
        with open_small(tmp_path, file_delete_delay_ms=60_000) as store:
            reader = store.partition(TOPIC).segments()[0]
            assert reader.read(0, 20)
            store.delete_records(TOPIC, 0, 90)
            gone = sorted(path.name for path in partition_of(tmp_path).glob("*.deleted"))
            assert "00000000000000000000.log.deleted" in gone
        with open_small(tmp_path) as store:
            assert not list(partition_of(tmp_path).glob("*.deleted"))
            assert len(read_all(store)) == 10


class TestLifeCycle:
    def test_files_of_a_clean_stop(self, tmp_path: Path) -> None:
        fill(tmp_path, 30)
        assert offsets_in(tmp_path, names.RECOVERY_POINTS) == 30
        assert offsets_in(tmp_path, names.HIGH_WATERMARKS) == 30
        assert (tmp_path / names.CLEAN_SHUTDOWN).exists()
        assert (partition_of(tmp_path) / "00000000000000000030.snapshot").exists()
        assert (partition_of(tmp_path) / names.LEADER_EPOCHS).read_text() == "0\n1\n0 0\n"
        with kafka.inspect(tmp_path) as view:
            assert view.partition(TOPIC).topic_id is not None
            assert view.meta_properties["version"] == "1"

    def test_the_marker_is_gone_while_running(self, tmp_path: Path) -> None:
        fill(tmp_path, 3)
        with open_small(tmp_path):
            assert not (tmp_path / names.CLEAN_SHUTDOWN).exists()
        assert (tmp_path / names.CLEAN_SHUTDOWN).exists()

    def test_opening_and_closing_changes_nothing(self, tmp_path: Path) -> None:
        fill(tmp_path, 90)
        before = tree(tmp_path)
        with open_small(tmp_path) as store:
            assert all(not report.rebuilt for report in store.reports)
        assert tree(tmp_path) == before

    def test_one_writer(self, tmp_path: Path) -> None:
        with open_small(tmp_path), pytest.raises(StoreLockedError):
            open_small(tmp_path)

    def test_after_close(self, tmp_path: Path) -> None:
        store = open_small(tmp_path)
        store.put(message(0))
        store.close()
        store.close()
        for call in (lambda: store.put(message(1)), lambda: store.get(TOPIC), store.flush, store.stats):
            with pytest.raises(StoreClosedError):
                call()

    def test_settings(self, tmp_path: Path) -> None:
        for wrong in (
            {"segment_byte": 5}, {"segment_bytes": 0}, {"segment_bytes": True}, {"cleanup_policy": "forget"},
            {"cleanup_policy": ""}, {"compression_type": "brotli"}, {"flush_messages": 0}, {"retention_ms": -2},
            {"message_timestamp_type": "x"}, {"min_cleanable_dirty_ratio": 2}, {"auto_create_topics_enable": 1},
        ):  # fmt: skip
            with pytest.raises(UsageError):
                kafka.open(tmp_path / "new", **wrong)
        assert not (tmp_path / "new").exists()
        with pytest.raises(UsageError) as caught:
            kafka.open(tmp_path / "new", segment_byte=5)
        assert "segment_bytes" in caught.value.hint
        (tmp_path / "file").touch()
        with pytest.raises(NotAStoreError):
            kafka.open(tmp_path / "file")

    def test_topic_ids_are_one_per_topic(self, tmp_path: Path) -> None:
        with open_small(tmp_path) as store:
            store.create_topic("a", 2)
            store.create_topic("b")
            store.create_topic("a", 3)
            assert store.topics() == {"a": [0, 1, 2], "b": [0]}
        with kafka.inspect(tmp_path) as view:
            ids = {(one.topic, one.topic_id) for one in view.partitions()}
        assert len(ids) == 2

    def test_many_topics_at_once(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """They are what single ones are, for two syncs a partition and one of the data directory."""
        synced: list[Path] = []
        for name in ("fsync", "fdatasync"):
            real = getattr(os, name)
            monkeypatch.setattr(
                os, name, lambda fd, real=real: (synced.append(Path(os.readlink(f"/proc/self/fd/{fd}"))), real(fd))
            )
        with open_small(tmp_path / "many") as store:
            synced.clear()
            store.create_topics({"a": 3, "b": None, "c": 1})
            directories = {tmp_path / "many" / name for name in ("a-0", "a-1", "a-2", "b-0", "c-0")}
            assert len(synced) == 11
            assert {*directories, tmp_path / "many"} <= set(synced)
            assert {path.parent for path in synced} >= directories
            with pytest.raises(UsageError):
                store.create_topics({"d": 1, "e/": 1})
            for topics in (None, ["d"], "d", 1, {("d", 1)}):
                with pytest.raises(UsageError):
                    store.create_topics(topics)  # type: ignore[arg-type]
            assert store.topics() == {"a": [0, 1, 2], "b": [0], "c": [0]}
            store.put_batch([KafkaMessage("a", b"x", partition=2), KafkaMessage("c", b"y")])
            assert [record.value for record in store.get("c").messages] == [b"y"]
        with open_small(tmp_path / "one") as store:
            for topic, partition in (("a", 0), ("a", 1), ("a", 2), ("b", 0), ("c", 0)):
                store.create_topic(topic, partition + 1)
            store.put_batch([KafkaMessage("a", b"x", partition=2), KafkaMessage("c", b"y")])
        for path in directories:
            names = {one.name for one in path.iterdir()}
            assert names == {one.name for one in (tmp_path / "one" / path.name).iterdir()}
        with kafka.inspect(tmp_path / "many") as view:
            assert view.check() == []
            assert len({one.topic_id for one in view.partitions()}) == 3

    def test_a_partition_that_nothing_came_into_costs_no_sync(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with open_small(tmp_path) as store:
            store.create_topics({"quiet": 3, "busy": 1})
            store.put_batch([KafkaMessage("busy", b"x"), KafkaMessage("quiet", b"y", partition=1)])
        synced: list[str] = []
        for name in ("fsync", "fdatasync"):
            real = getattr(os, name)
            monkeypatch.setattr(
                os, name, lambda fd, real=real: (synced.append(os.readlink(f"/proc/self/fd/{fd}")), real(fd))
            )
        with open_small(tmp_path) as store:
            store.put(KafkaMessage("busy", b"x"))
        assert not any("quiet" in path for path in synced)
        assert sum("busy" in path for path in synced) >= 5
        with kafka.inspect(tmp_path) as view:
            assert view.check() == []

    def test_a_directory_that_is_there_keeps_its_log(self, tmp_path: Path) -> None:
        with open_small(tmp_path) as store:
            fill(tmp_path / "other", 3)
            shutil.copytree(tmp_path / "other" / f"{TOPIC}-0", tmp_path / "late-0")
            store.create_topics({"late": 2})
            assert [store.max_offset("late", number) for number in range(2)] == [3, 0]

    def test_deleted_partitions_are_removed(self, tmp_path: Path) -> None:
        fill(tmp_path, 3)
        gone = tmp_path / f"old-0.{'0' * 32}-delete"
        gone.mkdir()
        stray = tmp_path / f"old-1.{'0' * 32}-stray"
        stray.mkdir()
        with open_small(tmp_path) as store:
            assert store.topics() == {TOPIC: [0]}
        assert not gone.exists()
        assert stray.exists()

    def test_flush_ms(self, tmp_path: Path) -> None:
        with open_small(tmp_path, flush_ms=1) as store:
            store.put(message(0))
            log = store.partition(TOPIC)
            deadline = time.monotonic() + 20
            while log.recovery_point < 1 and time.monotonic() < deadline:
                time.sleep(0.01)
            assert log.recovery_point == 1

    def test_flush_messages(self, tmp_path: Path) -> None:
        with open_small(tmp_path, flush_messages=3) as store:
            points = []
            for number in range(7):
                store.put(message(number))
                points.append(store.partition(TOPIC).recovery_point)
            assert points == [0, 0, 3, 3, 3, 6, 6]

    def test_a_fork_does_not_own_it(self, tmp_path: Path) -> None:
        with open_small(tmp_path) as store:
            store.put(message(0))
            reader, writer = os.pipe()
            child = os.fork()
            if child == 0:
                try:
                    store.put(message(1))
                except StoreClosedError:
                    os.write(writer, b"refused")
                os._exit(0)
            os.waitpid(child, 0)
            os.close(writer)
            with os.fdopen(reader, "rb") as answer:
                assert answer.read() == b"refused"
            assert len(read_all(store)) == 1


MANY = """
import os, resource, sys
import mqstore.kafka as kafka
from mqstore.kafka import KafkaMessage
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
os.fsync = os.fdatasync = lambda fd: None
path, count = sys.argv[1], int(sys.argv[2])
with kafka.open(path, segment_index_bytes=4096) as store:
    store.create_topic("many", count)
    for round in range(2):
        for partition in range(count):
            store.put(KafkaMessage("many", b"%d" % partition, partition=partition))
    assert all(len(store.get("many", partition).messages) == 2 for partition in range(count))
with kafka.inspect(path) as view:
    assert [one.log_end_offset for one in view.partitions()] == [2] * count
"""


def test_hundreds_of_partitions_with_few_descriptors(tmp_path: Path) -> None:
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[1] >= 256
    done = subprocess.run(
        [sys.executable, "-c", MANY, str(tmp_path), "300"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_batches_lie_where_the_index_says(tmp_path: Path) -> None:
    fill(tmp_path, 40)
    for log in log_files(tmp_path):
        assert batch_positions(log)[0] == 0
    assert SMALL["segment_bytes"] >= max(path.stat().st_size for path in log_files(tmp_path))
