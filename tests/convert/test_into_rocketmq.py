"""Kafka logs into RocketMQ stores: the golden partitions, transactions, names, what no property string holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import mqstore
from convert.support import SIZES, golden_copy, plain
from mqstore import convert, kafka
from mqstore.convert import Aborted, ConvertOptions, Loss
from mqstore.errors import CorruptBatchError, NotAStoreError, UsageError
from mqstore.kafka import KafkaMessage
from mqstore.store.check import check_store


def assert_sound(store: Path) -> None:
    found: list[object] = []
    with mqstore.inspect(store) as view:
        check_store(view, found.append)
    assert found == []


@pytest.fixture(scope="module")
def source(golden_kafka: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return golden_copy(golden_kafka, tmp_path_factory.mktemp("golden") / "data")


@pytest.fixture(scope="module")
def converted(source: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, convert.ConversionReport]:
    store = tmp_path_factory.mktemp("converted") / "store"
    return store, convert.to_rocketmq(source, store, ConvertOptions(store_settings=SIZES))


def test_the_store_is_sound_and_in_order_of_time(converted: tuple[Path, convert.ConversionReport]) -> None:
    store, report = converted
    assert_sound(store)
    assert len(list((store / "commitlog").iterdir())) >= 2
    with mqstore.inspect(store) as view:
        times = [record.store_timestamp_ms for record in view.scan()]
        assert {queue.topic: queue.count for queue in view.queues()} == {
            part.topic: part.records for part in report.partitions
        }
        assert not view.was_aborted
        assert set(view.settings.topics) >= {part.topic for part in report.partitions}
    assert times == sorted(times)
    assert len(times) == report.records


def test_every_record_becomes_a_message(source: Path, converted: tuple[Path, convert.ConversionReport]) -> None:
    store, report = converted
    with kafka.inspect(source) as log, mqstore.inspect(store) as view:
        for part in report.partitions:
            partition = log.partition(part.topic, part.number)
            # What is decided although a transaction before it is still open is taken, too.
            records = list(partition.records(isolation="read_committed"))
            messages = [view.message_at(unit.physical_offset) for unit in view.units(part.topic, part.number)]
            for record, message in zip(records, messages, strict=False):
                assert message is not None
                assert message.body == (record.value or b"")
                assert message.born_timestamp_ms == max(0, record.timestamp_ms)
                if record.key is not None and record.key.isalnum():
                    assert message.keys == [record.key.decode()]
            assert len(messages) >= len(records) > 0


def test_the_report_counts_what_the_golden_answers_count(
    converted: tuple[Path, convert.ConversionReport], expected_kafka: dict[str, list[dict[str, Any]]]
) -> None:
    _, report = converted
    parts = {f"{part.topic}-{part.number}": part for part in report.partitions}
    controls = [line["dir"] for line in expected_kafka["record"] if "controlType" in line]
    records = [line["dir"] for line in expected_kafka["record"] if "controlType" not in line]
    for name, part in parts.items():
        lost = part.losses
        assert lost.get(Loss.CONTROL_RECORDS, 0) == controls.count(name)
        left_out = lost.get(Loss.ABORTED_RECORDS, 0) + lost.get(Loss.UNDECIDED_RECORDS, 0)
        below_start = 5 if name == "plain-0" else 0
        assert part.records + left_out + below_start == records.count(name)
    assert parts["txn-0"].losses[Loss.UNDECIDED_RECORDS] == 2
    assert Loss.DAMAGE not in report.total_losses()


def test_what_a_queue_offset_is(converted: tuple[Path, convert.ConversionReport]) -> None:
    store, _ = converted
    with mqstore.inspect(store) as view:
        queues = {queue.topic: queue for queue in view.queues()}
        assert (queues["plain"].min_offset, queues["plain"].max_offset) == (5, 1412)
        compacted = view.get("compacted", 0, 1, 1).messages[0]
    assert int(compacted.properties["KAFKA_OFFSET"]) > compacted.queue_offset


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "kafka"


def test_keys_headers_and_nulls(log: Path, tmp_path: Path) -> None:
    headers = [("trace", b"abc"), ("trace", b"2"), ("DELAY", b"3"), ("none", None), ("", b""), ("sp\x02lit", b"\x01")]
    messages = [
        KafkaMessage("t.one", b"body", b"key", headers, 1_700_000_000_000),
        KafkaMessage("t.one", None, b"\xff\x00", (), 1_700_000_000_001),
        KafkaMessage("t.one", b"", b"", (), 1_700_000_000_002),
        KafkaMessage("t.one", b"x", None, [("big", bytes(40_000))], 1_700_000_000_003),
        KafkaMessage("t.one", b"y", b"with space", (), 1_700_000_000_004, partition=0),
    ]
    with kafka.open(log) as opened:
        opened.put_batch(messages)
    report = convert.to_rocketmq(log, tmp_path / "store")
    assert report.topics == {"t.one": "t%2Eone"}
    assert report.total_losses()[Loss.ENVELOPES] == 1
    with mqstore.inspect(tmp_path / "store") as view:
        found = view.get("t%2Eone", 0, 0).messages
        assert view.query("t%2Eone", "key").messages == [found[0]]
    first = found[0].properties
    assert first["trace"] == "abc"
    assert "DELAY" not in first
    assert json.loads(first["KAFKA_HEADERS"])[2] == ["DELAY", "Mw=="]
    assert first["KAFKA_TOPIC"] == "t.one"
    assert [one.body for one in found[:3]] == [b"body", b"", b""]
    assert ["KAFKA_NULL_VALUE" in one.properties for one in found[:3]] == [False, True, False]
    assert found[2].properties["KAFKA_KEY"] == "="
    assert json.loads(found[3].body)["headers"][0][0] == "big"
    assert found[4].keys == []
    convert.to_kafka(tmp_path / "store", tmp_path / "back")
    with kafka.inspect(log) as before, kafka.inspect(tmp_path / "back") as after:
        assert plain(after.partition("t.one").records()) == plain(before.partition("t.one").records())


def test_partitions_are_merged_by_time(log: Path, tmp_path: Path) -> None:
    with kafka.open(log) as opened:
        opened.create_topic("t", 3)
        for number in range(90):
            opened.put(KafkaMessage("t", b"%d" % number, timestamp_ms=1000 + number // 2, partition=number % 3))
    convert.to_rocketmq(log, tmp_path / "store")
    with mqstore.inspect(tmp_path / "store") as view:
        numbers = [int(record.body) for record in view.scan()]
    assert [number // 2 for number in numbers] == sorted(number // 2 for number in range(90))


def test_aborted_records_as_rolled_back_messages(source: Path, tmp_path: Path) -> None:
    options = ConvertOptions(topics="txn", aborted=Aborted.ROLLBACK, store_settings=SIZES)
    report = convert.to_rocketmq(source, tmp_path / "store", options)
    assert Loss.ABORTED_RECORDS not in report.total_losses()
    assert_sound(tmp_path / "store")
    with mqstore.inspect(tmp_path / "store") as view:
        records = list(view.scan())
    assert sum(not record.is_queued for record in records) == 28
    assert report.records == len(records) - 28


def test_names(source: Path, tmp_path: Path) -> None:
    options = ConvertOptions(topics="plain|txn", names={"plain": "%RETRY%g"})
    report = convert.to_rocketmq(source, tmp_path / "store", options)
    assert report.topics == {"plain": "%RETRY%g", "txn": "txn"}
    for names, complaint in (
        ({"plain": "txn"}, "would both become"),
        ({"plain": "a.b"}, "cannot have this name"),
        ({"nothing": "a"}, "not there"),
    ):
        with pytest.raises(UsageError, match=complaint):
            convert.to_rocketmq(source, tmp_path / "x", ConvertOptions(topics="plain|txn", names=names))
        assert not (tmp_path / "x").exists()
    with pytest.raises(UsageError, match="regular expression"):
        ConvertOptions(topics="(")


def test_outputs_and_sources(source: Path, tmp_path: Path) -> None:
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").touch()
    with pytest.raises(UsageError, match="in use"):
        convert.to_rocketmq(source, tmp_path / "used")
    with pytest.raises(NotAStoreError):
        convert.to_rocketmq(tmp_path / "nothing", tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["used"]


def test_damage_is_refused_or_counted(golden_kafka: Path, tmp_path: Path) -> None:
    source = golden_copy(golden_kafka, tmp_path / "data")
    log = source / "plain-0" / f"{0:020d}.log"
    damaged = bytearray(log.read_bytes())
    damaged[735 + 100] ^= 1  # in the second batch, offsets 4 to 8
    log.write_bytes(damaged)
    options = ConvertOptions(topics="plain", store_settings=SIZES)
    with pytest.raises(CorruptBatchError):
        convert.to_rocketmq(source, tmp_path / "out", options)
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob(".*"))
    options = ConvertOptions(topics="plain", store_settings=SIZES, skip_damage=True)
    report = convert.to_rocketmq(source, tmp_path / "out", options)
    assert report.total_losses()[Loss.DAMAGE] == 1
    assert report.records == 1412 - 9
    assert_sound(tmp_path / "out")
    # Minutes pass between the last key of an index file and the first of the next one.
    mqstore.open(tmp_path / "out", expire_automatically=False).close()
    assert_sound(tmp_path / "out")


def test_little_memory_makes_no_difference(
    source: Path, tmp_path: Path, converted: tuple[Path, convert.ConversionReport], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqstore.convert.into_rocketmq.MEMORY_BYTES", 1)
    convert.to_rocketmq(source, tmp_path / "store", ConvertOptions(store_settings=SIZES))
    for path in (converted[0] / "commitlog").iterdir():
        assert (tmp_path / "store" / "commitlog" / path.name).read_bytes() == path.read_bytes()
