"""Arguments that cannot be meant: refused by name, whatever they are handed to, and nothing is changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mqstore.kafka as kafka
from kafka_log.support import TOPIC, fill, message, open_small, tree
from mqstore import kernels
from mqstore.errors import MessageIllegalError, UsageError
from mqstore.kafka import KafkaConfig, KafkaMessage, KafkaStore, KafkaView
from mqstore.layout.kafka.batch import encode_batch
from mqstore.layout.kafka.record import Record

NO_NUMBERS: list[Any] = [True, False, 0.5, 1.0, float("nan"), "1", b"1", None, [], 1 << 63, -(1 << 63) - 1]
NO_TIMES: list[Any] = [True, 0.5, "soon", None, b"latest", []]
BATCH = encode_batch([Record(0, 1, 0, b"k", b"v", ())], checksum=kernels.crc32c)

Call = Callable[[Any, Any], object]

READING: dict[str, Call] = {
    "get": lambda log, odd: log.get(TOPIC, 0, odd),
    "get of partition": lambda log, odd: log.get(TOPIC, odd),
    "get of no partition": lambda log, odd: log.get("other", 0, odd),
    "max_messages": lambda log, odd: log.get(TOPIC, 0, 0, odd),
    "max_bytes": lambda log, odd: log.get(TOPIC, max_bytes=odd),
    "offset_at of partition": lambda log, odd: log.offset_at(TOPIC, odd, 5),
    "min_offset": lambda log, odd: log.min_offset(TOPIC, odd),
    "max_offset": lambda log, odd: log.max_offset(TOPIC, odd),
    "aborted_transactions": lambda log, odd: log.aborted_transactions(TOPIC, odd),
    "producers": lambda log, odd: log.producers(TOPIC, odd),
    "partition": lambda log, odd: log.partition(TOPIC, odd),
}
MAY_BE_NONE: dict[str, Call] = {
    "start": lambda log, odd: log.aborted_transactions(TOPIC, 0, odd),
    "end": lambda log, odd: log.aborted_transactions(TOPIC, 0, 0, odd),
}
OF_A_PARTITION: dict[str, Call] = {
    "records": lambda one, odd: list(one.records(odd)),
    "records to": lambda one, odd: list(one.records(0, odd)),
    "batches": lambda one, odd: list(one.batches(odd)),
    "chunks": lambda one, odd: list(one.chunks(odd)),
    "chunks to": lambda one, odd: list(one.chunks(0, odd)),
}
CHANGING: dict[str, Call] = {
    "create_topic": lambda store, odd: store.create_topic("new", odd) if odd is not None else refuse(),
    "roll": lambda store, odd: store.roll(TOPIC, odd),
    "delete_records": lambda store, odd: store.delete_records(TOPIC, 0, odd),
    "delete_records of": lambda store, odd: store.delete_records(TOPIC, odd, 1),
    "compact": lambda store, odd: store.compact(TOPIC, odd),
    "compact at": lambda store, odd: store.compact(TOPIC, now_ms=odd) if odd is not None else refuse(),
    "retention": lambda store, odd: store.enforce_retention(odd) if odd is not None else refuse(),
    "producer": lambda store, odd: store.producer(odd) if odd is not None else refuse(),
    "epoch": lambda store, odd: store.producer(1, odd),
    "marker": lambda store, odd: store.end_transaction(TOPIC, 0, odd, 0, commit=True),
    "marker's epoch": lambda store, odd: store.end_transaction(TOPIC, 0, 1, odd, commit=True),
    "coordinator": lambda store, odd: store.end_transaction(TOPIC, 0, 1, 0, commit=True, coordinator_epoch=odd),
    "leader epoch": lambda store, odd: (
        store.append_batch(TOPIC, 0, BATCH, leader_epoch=odd) if odd is not None else refuse()
    ),
    "put into": lambda store, odd: store.put(KafkaMessage(TOPIC, b"x", partition=odd)),
    "append into": lambda store, odd: store.append_batch(TOPIC, odd, BATCH),
}


def refuse() -> None:
    """Where None stands for what was not given."""
    raise UsageError("no case")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    fill(tmp_path / "log", 20)
    return tmp_path / "log"


@pytest.fixture(params=["store", "view"])
def reader(request: pytest.FixtureRequest, log: Path) -> Any:
    with open_small(log) if request.param == "store" else kafka.inspect(log) as opened:
        yield opened


class TestReading:
    @pytest.mark.parametrize("call", READING)
    def test_no_numbers(self, reader: KafkaStore | KafkaView, call: str) -> None:
        for odd in NO_NUMBERS:
            with pytest.raises(UsageError):
                READING[call](reader, odd)

    @pytest.mark.parametrize("call", MAY_BE_NONE)
    def test_no_bounds(self, reader: KafkaStore | KafkaView, call: str) -> None:
        for odd in NO_NUMBERS:
            if odd is not None:
                with pytest.raises(UsageError):
                    MAY_BE_NONE[call](reader, odd)

    def test_no_times(self, reader: KafkaStore | KafkaView) -> None:
        for odd in NO_TIMES:
            for topic in (TOPIC, "other"):
                with pytest.raises(UsageError):
                    reader.offset_at(topic, 0, odd)

    def test_no_topics(self, reader: KafkaStore | KafkaView) -> None:
        for odd in (None, 5, b"t", ["t"], {}):
            with pytest.raises(UsageError):
                reader.get(odd)  # type: ignore[arg-type]
        assert reader.get("no/topic").messages == []  # there is none of this name

    @pytest.mark.parametrize("call", OF_A_PARTITION)
    def test_of_a_partition(self, log: Path, call: str) -> None:
        with kafka.inspect(log) as view:
            for odd in NO_NUMBERS:
                if odd is not None:
                    with pytest.raises(UsageError):
                        OF_A_PARTITION[call](view.partition(TOPIC), odd)

    def test_find_batch(self, log: Path) -> None:
        with kafka.inspect(log) as view:
            for odd in NO_NUMBERS:
                with pytest.raises(UsageError):
                    view.partition(TOPIC).find_batch(odd)

    def test_what_is_outside_is_no_mistake(self, reader: KafkaStore | KafkaView) -> None:
        assert reader.get(TOPIC, 0, -5).next_offset == 0
        assert reader.get(TOPIC, 0, (1 << 63) - 1).next_offset == 20
        assert reader.get(TOPIC, -1).messages == []
        assert reader.offset_at(TOPIC, 0, -(10**40)) == (0, 1_000_000)
        assert reader.offset_at(TOPIC, 0, 10**40) is None


class TestChanging:
    @pytest.mark.parametrize("call", CHANGING)
    def test_no_numbers(self, log: Path, call: str) -> None:
        with open_small(log) as store:
            before = tree(log)
            for odd in [*NO_NUMBERS, -5]:
                with pytest.raises(UsageError):
                    CHANGING[call](store, odd)
            assert tree(log) == before
            assert store.put(message(20)).offset == 20
        with open_small(log) as store:
            assert (store.min_offset(TOPIC), store.max_offset(TOPIC)) == (0, 21)

    def test_no_batches(self, log: Path) -> None:
        with open_small(log) as store:
            for odd in (None, "x", 5, [b"x"]):
                with pytest.raises(UsageError):
                    store.append_batch(TOPIC, 0, odd)  # type: ignore[arg-type]
            store.append_batch(TOPIC, 0, bytearray(BATCH))  # type: ignore[arg-type]

    def test_no_messages(self, log: Path) -> None:
        with open_small(log) as store:
            for odd in (None, 5, "text", b"bytes", [None], [b"x"]):
                for put_batch in (store.put_batch, store.producer().put_batch):
                    with pytest.raises(UsageError):
                        put_batch(odd)  # type: ignore[arg-type]
            for odd in (True, 0.5, "1", -1, 1 << 63):
                with pytest.raises(MessageIllegalError):
                    store.put(KafkaMessage(TOPIC, b"x", timestamp_ms=odd))  # type: ignore[arg-type]


class TestHeaders:
    def test_they_are_read_once(self, tmp_path: Path) -> None:
        """Judged and written from one look: an iterator is used up by it."""
        with open_small(tmp_path) as store:
            for headers in (iter([("a", b"b"), ("a", None)]), (one for one in [("a", b"b"), ("a", None)])):
                store.put(KafkaMessage(TOPIC, b"x", headers=headers))  # type: ignore[arg-type]
                with store.producer().transaction() as producer:
                    producer.put(KafkaMessage(TOPIC, b"x", headers=map(tuple, [["a", b"b"], ["a", None]])))  # type: ignore[arg-type]
            found = [one.headers for one in store.get(TOPIC).messages]
            assert found == [(("a", b"b"), ("a", None))] * 4

    @pytest.mark.parametrize(
        "odd",
        [
            None, 5, "ab", b"ab", {"a": b"b"}, ["ab"], [("a",)], [("a", b"b", b"c")], [(b"a", b"b")], [("a", "b")],
            [(None, b"b")], [("\ud800", b"x")], [("a\udfff", None)], [5],
        ],
    )  # fmt: skip
    def test_what_is_refused(self, tmp_path: Path, odd: Any) -> None:
        with open_small(tmp_path) as store:
            with pytest.raises(MessageIllegalError):
                store.put(KafkaMessage(TOPIC, b"x", headers=odd))
            assert store.topics() == {}

    def test_buffers_of_any_kind(self, tmp_path: Path) -> None:
        values = [bytearray(b"x"), memoryview(b"abcd")[::2], memoryview(b"abcdefgh").cast("I")]
        with open_small(tmp_path, batch_size=60) as store:
            store.put_batch([KafkaMessage(TOPIC, value, headers=[("h", value)]) for value in values])  # type: ignore[arg-type, list-item]
            assert [one.value for one in store.get(TOPIC).messages] == [b"x", b"ac", b"abcdefgh"]
            assert [one.headers[0][1] for one in store.get(TOPIC).messages] == [b"x", b"ac", b"abcdefgh"]


def test_paths_and_settings(log: Path) -> None:
    for odd in (None, 5, "", b"x", ["x"]):
        for use in (kafka.open, kafka.inspect, kafka.recover, kafka.check):
            with pytest.raises(UsageError):
                use(odd)  # type: ignore[operator]
        with pytest.raises(UsageError):
            kafka.reindex(odd, in_place=True)  # type: ignore[arg-type]
    for interval in [*NO_NUMBERS, -1, 1 << 31]:
        with pytest.raises(UsageError):
            kafka.recover(log, index_interval_bytes=interval)
        with pytest.raises(UsageError):
            kafka.reindex(log, in_place=True, index_interval_bytes=interval)
    with pytest.raises(UsageError):
        KafkaConfig(min_cleanable_dirty_ratio=True)
    for config in ({}, "x", 5):
        with pytest.raises(UsageError):
            kafka.open(log, config=config)  # type: ignore[arg-type]
