"""RocketMQ stores into Kafka logs and back: every message of every kind, byte for byte."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import pytest

import mqstore
from convert.support import SIZES, golden_copy, members, plain
from interop.writer import put
from mqstore import Message, convert, kafka
from mqstore.convert import ConvertOptions, Loss
from mqstore.convert.topics import kafka_topic, rocketmq_topic
from mqstore.errors import CorruptFileError, CorruptRecordError, DamageError, UsageError
from mqstore.layout.constants import SysFlag
from mqstore.layout.kafka.names import is_topic_name
from mqstore.store.paths import is_legal_topic
from mqstore.store.rebuild import rebuild


def test_golden_partitions_come_back_as_they_were(golden_kafka: Path, tmp_path: Path) -> None:
    source = golden_copy(golden_kafka, tmp_path / "data")
    convert.to_rocketmq(source, tmp_path / "store", ConvertOptions(store_settings=SIZES))
    settings = {"segment_bytes": 65_536, "index_interval_bytes": 512, "compression_type": "zstd"}
    report = convert.to_kafka(tmp_path / "store", tmp_path / "back", ConvertOptions(kafka_settings=settings))
    assert report.total_losses().keys() == {Loss.TIMESTAMP_TYPE_NONE}
    with kafka.inspect(source) as before, kafka.inspect(tmp_path / "back") as after:
        assert after.topics() == before.topics()
        assert after.check() == []
        for partition in before.partitions():
            found = after.partition(partition.topic, partition.partition)
            records = plain(partition.records(isolation="read_committed"))
            assert plain(found.records())[: len(records)] == records
            assert found.log_start_offset == records[0][0]
        assert len(after.partition("plain").segments()) > 1


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with every kind of message."""
    store = tmp_path_factory.mktemp("store") / "store"
    with mqstore.open(store, expire_automatically=False, schedule_message_enable=False, **SIZES) as opened:
        put(opened, 1, 900)
        opened.wait_dispatched()
        opened.commit_offset("group", "TopicTest", 0, 3)
    return store


def queued(store: Path) -> dict[tuple[str, int], list[Any]]:
    with mqstore.inspect(store) as view:
        return {
            (queue.topic, queue.queue_id): [
                members(message)
                for unit in view.units(queue.topic, queue.queue_id)
                if (message := view.message_at(unit.physical_offset)) is not None
            ]
            for queue in view.queues()
        }


def test_every_message_comes_back_as_it_was(store: Path, tmp_path: Path) -> None:
    report = convert.to_kafka(store, tmp_path / "kafka", ConvertOptions(kafka_settings={"segment_bytes": 100_000}))
    assert report.total_losses().keys() == {Loss.UNQUEUED_MESSAGES, Loss.SETTINGS}
    assert report.topics["%RETRY%group-1"] == ".25RETRY.25group-1"
    with kafka.inspect(tmp_path / "kafka") as view:
        assert view.check() == []
    back = convert.to_rocketmq(tmp_path / "kafka", tmp_path / "back", ConvertOptions(store_settings=SIZES))
    # Messages that are in no queue are not there any more, so that others move up in the log.
    assert set(back.total_losses()) <= {Loss.BATCHES, Loss.MOVED_IN_LOG}
    assert queued(tmp_path / "back") == queued(store)


def test_the_log_comes_back_byte_for_byte(tmp_path: Path) -> None:
    """Without messages that are in no queue the order of the log tells where each message lay."""
    with mqstore.open(tmp_path / "store", expire_automatically=False, **SIZES) as opened:
        for number in range(500):
            opened.put(
                Message(f"T{number % 7}", b"%d" % number * 30, tags="a", keys=[f"k{number}"], queue_id=number % 3)
            )
    convert.to_kafka(tmp_path / "store", tmp_path / "kafka")
    back = convert.to_rocketmq(tmp_path / "kafka", tmp_path / "back", ConvertOptions(store_settings=SIZES))
    assert back.total_losses().keys() == {Loss.BATCHES}
    for name in ("commitlog", "consumequeue"):
        files = [path for path in (tmp_path / "store" / name).rglob("*") if path.is_file()]
        for path in files:
            assert (tmp_path / "back" / path.relative_to(tmp_path / "store")).read_bytes() == path.read_bytes()
        assert files


def test_compressed_bodies_are_inflated(tmp_path: Path) -> None:
    body = b"many words " * 50
    sound, broken = zlib.compress(body), zlib.compress(body)[:-5]
    with mqstore.open(tmp_path / "store", expire_automatically=False, **SIZES) as opened:
        for data in (sound, broken):
            opened.put(Message("T", data, sys_flag=SysFlag.COMPRESSED, queue_id=0))
    report = convert.to_kafka(tmp_path / "store", tmp_path / "kafka")
    assert report.total_losses() == {Loss.INFLATED_BODIES: 1, Loss.SETTINGS: 1}  # T has more queues than one
    with kafka.inspect(tmp_path / "kafka") as view:
        first, second = view.partition("T").records()
    assert first.value == body
    assert second.value == broken
    assert "rmq.sysFlag" not in dict(first.headers)
    assert dict(second.headers)["rmq.sysFlag"] == b"1"


def test_a_damaged_log_is_refused(store: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    rebuild(store, copy)
    log = min((copy / "commitlog").iterdir())
    data = bytearray(log.read_bytes())
    with mqstore.inspect(copy) as view:
        position = next(one for one in view.scan() if one.topic == "TopicTest" and one.is_queued).physical_offset
    data[position + 4] ^= 0xFF
    log.write_bytes(data)
    for skips in (False, True):  # what is left out could not even be counted
        with pytest.raises(CorruptRecordError, match="the log is damaged"):
            convert.to_kafka(copy, tmp_path / "kafka", convert.ConvertOptions(skip_damage=skips))
        assert not (tmp_path / "kafka").exists()


def records_in(report: convert.ConversionReport) -> int:
    return sum(part.records for part in report.partitions)


@pytest.mark.parametrize("name", ["short-abort", "flip-clean"])
def test_a_torn_end_is_what_a_crash_leaves(golden: Path, tmp_path: Path, name: str) -> None:
    """Before a broker has recovered the store and after: the same records."""
    torn, recovered = (golden / f"torn-{name}/store", golden / f"torn-{name}-recovered/store")
    reports = [convert.to_kafka(path, tmp_path / path.parent.name) for path in (torn, recovered)]
    with mqstore.inspect(recovered) as view:
        wanted = sum(one.max_offset - one.min_offset for one in view.queues())
    assert [records_in(one) for one in reports] == [wanted, wanted]


def test_a_queue_with_missing_messages(store: Path, tmp_path: Path) -> None:
    """Units that point nowhere, as a consumer passes over them."""
    copy = tmp_path / "copy"
    rebuild(store, copy)
    queue = copy / "consumequeue" / "TopicTest" / "0" / f"{0:020d}"
    units = bytearray(queue.read_bytes())
    units[20 * 5 : 20 * 5 + 8] = (1 << 40).to_bytes(8, "big")
    queue.write_bytes(units)
    with pytest.raises(DamageError, match="cannot be read"):
        convert.to_kafka(copy, tmp_path / "kafka")
    assert not (tmp_path / "kafka").exists()
    report = convert.to_kafka(copy, tmp_path / "kafka", ConvertOptions(skip_damage=True))
    assert report.total_losses()[Loss.UNREADABLE_MESSAGES] == 1


def test_a_queue_whose_end_cannot_be_looked_at(tmp_path: Path) -> None:
    """It would seem to end before."""
    store = tmp_path / "store"
    with mqstore.open(store, mapped_file_size_consume_queue=200) as opened:
        for topic in ("orders", "others"):
            for number in range(25):
                opened.put(Message(topic, b"%d" % number, queue_id=0))
    last = max((store / "consumequeue" / "orders" / "0").iterdir())
    last.unlink()
    last.mkdir()
    with pytest.raises(CorruptFileError, match="cannot be looked at as a whole") as caught:
        convert.to_kafka(store, tmp_path / "kafka")
    assert caught.value.path == str(last)
    assert not (tmp_path / "kafka").exists()
    assert records_in(convert.to_kafka(store, tmp_path / "rest", ConvertOptions(topics="others"))) == 25
    assert records_in(convert.to_kafka(store, tmp_path / "some", ConvertOptions(skip_damage=True))) == 45


def test_names_that_do_not_fit() -> None:
    for topic in ("a.b", "%RETRY%g", "x" * 249, "a" * 127, "A|b", "." * 249):
        if is_topic_name(topic):
            assert is_legal_topic(rocketmq_topic(topic))
            assert len(rocketmq_topic(topic)) <= 127
        if is_legal_topic(topic):
            assert is_topic_name(kafka_topic(topic))
    assert rocketmq_topic("x" * 200) != rocketmq_topic("x" * 201)
    with pytest.raises(UsageError, match="unknown setting"):
        convert.to_kafka("x", "y", ConvertOptions(kafka_settings={"segment_byte": 3}))
