"""A round trip loses nothing that it does not report: what no field holds, what others changed, what is empty."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import pytest

import mqstore
from convert.support import members, plain
from mqstore import Message, convert, kafka, kernels
from mqstore.convert import ConversionReport, ConvertOptions, Loss
from mqstore.errors import UsageError
from mqstore.kafka import KafkaMessage, Record
from mqstore.layout.kafka.batch import encode_batch
from mqstore.layout.kafka.constants import TimestampType

Records = dict[tuple[str, int], list[tuple[Any, ...]]]


def batch(timestamp_ms: int, base_offset: int = 0) -> bytes:
    record = Record(0, timestamp_ms, TimestampType.CREATE_TIME, b"k", b"v")
    return encode_batch([record], base_offset=base_offset, checksum=kernels.crc32c)


def records(path: Path) -> Records:
    with kafka.inspect(path) as view:
        return {(one.topic, one.partition): plain(one.records()) for one in view.partitions()}


def there_and_back(log: Path, tmp_path: Path) -> tuple[ConversionReport, ConversionReport]:
    there = convert.to_rocketmq(log, tmp_path / "store")
    back = convert.to_kafka(tmp_path / "store", tmp_path / "back")
    assert records(tmp_path / "back") == records(log)
    return there, back


def test_times_before_1970(tmp_path: Path) -> None:
    with kafka.open(tmp_path / "log") as log:
        for timestamp_ms in (-1, -5, 0, -(1 << 63), 3):
            log.append_batch("t", 0, batch(timestamp_ms))
    there, back = there_and_back(tmp_path / "log", tmp_path)
    assert there.total_losses() == {Loss.BATCHES: 5, Loss.TOPIC_IDS: 1, Loss.LATER_TIMES: 1}  # 0, and the log is at 1
    assert back.total_losses() == {}


def test_empty_partitions_stay(tmp_path: Path) -> None:
    with kafka.open(tmp_path / "log") as log:
        log.create_topic("some", 4)
        log.create_topic("none", 2)
        log.create_topic("gone")
        log.put(KafkaMessage("some", b"x", partition=1))
        log.put_batch([KafkaMessage("gone", b"x")] * 7)
        log.roll("gone")
        log.delete_records("gone", 0, 7)
    there, back = there_and_back(tmp_path / "log", tmp_path)
    assert there.total_losses()[Loss.LOG_STARTS] == 1
    assert {(one.topic, one.number) for one in back.partitions} == records(tmp_path / "log").keys()
    with mqstore.open(tmp_path / "store", expire_automatically=False) as store:
        store.put(Message("none", b"first", queue_id=1))
        store.wait_dispatched()
        assert [one.body for one in store.get("none", 1).messages] == [b"first"]


def test_a_partition_number_beyond_all_queues(tmp_path: Path) -> None:
    with kafka.open(tmp_path / "log") as log:
        log.put(KafkaMessage("t", b"x", partition=(1 << 31) - 1))
    there_and_back(tmp_path / "log", tmp_path)


def test_offsets_that_no_queue_reaches(tmp_path: Path) -> None:
    with kafka.open(tmp_path / "log") as log:
        for offset in (1 << 60, (1 << 60) + 5, (1 << 62)):
            log.append_batch("t", 0, batch(1, offset), keep_offsets=True)
    there, back = there_and_back(tmp_path / "log", tmp_path)
    assert there.records == back.records == 3
    assert there.total_losses()[Loss.OFFSET_HOLES] == (1 << 62) - 2
    with mqstore.inspect(tmp_path / "store") as view:
        assert [one.queue_offset for one in view.get("t", 0).messages] == [0, 1, 2]


@pytest.mark.parametrize("change", ["key", "header", "null header", "no header", "value", "time", "topic"])
def test_what_an_application_changed_in_between(tmp_path: Path, change: str) -> None:
    """A message as a record, which an application then writes again with something changed."""
    with mqstore.open(tmp_path / "first") as store:
        store.put(Message("t", b"body", tags="T", keys=["old"], queue_id=0))
    convert.to_kafka(tmp_path / "first", tmp_path / "kafka")
    with kafka.inspect(tmp_path / "kafka") as view:
        (record,) = view.partition("t").records()
    value, key, headers, time_ms, topic = record.value, record.key, list(record.headers), record.timestamp_ms, "t"
    if change == "key":
        key = b"new"
    elif change == "value":
        value = b"other"
    elif change == "time":
        time_ms += 1
    elif change == "topic":
        topic = "a.b"
    else:
        headers = {
            "header": [*headers, ("rmq.custom", b"mine")],
            "null header": [*headers, ("none", None)],
            "no header": headers[1:],
        }[change]
    with kafka.open(tmp_path / "log") as log:
        log.put(KafkaMessage(topic, value, key, headers, time_ms))
    there = convert.to_rocketmq(tmp_path / "log", tmp_path / "store")
    # Values, times and topics are fields of both; what else does not fit makes it an ordinary record.
    assert there.total_losses().get(Loss.MISFITS, 0) == (change in ("key", "header", "null header", "no header"))
    convert.to_kafka(tmp_path / "store", tmp_path / "back")
    after = records(tmp_path / "back")
    if change == "topic":
        assert after.keys() == {("a.252Eb", 0)}
        ((found, *_),) = after.values()
        assert dict(found[5])["rmq.topic"] == b"a%2Eb"
    else:
        ((before, *_),) = records(tmp_path / "log").values()
        ((found, *_),) = after.values()
        assert [one for one in found[5] if one[0] != "rmq.physicalOffset"] == [
            one for one in before[5] if one[0] != "rmq.physicalOffset"
        ]
        assert found[:5] == before[:5]


def test_names_of_ours_in_records_of_others(tmp_path: Path) -> None:
    forged = [
        ("rmq.storeTimestamp", b"1"), ("rmq.physicalOffset", b"0"), ("rmq.bornHost", b"127.0.0.1:1"),
        ("rmq.storeHost", b"127.0.0.1:1"), ("rmq.topic", b"elsewhere"),
    ]  # fmt: skip
    with kafka.open(tmp_path / "log") as log:
        log.put(KafkaMessage("a.b", b"x", headers=[("rmq.topic", b"bad name!")]))
        log.put(KafkaMessage("c.d", b"x", headers=[("rmq.topic", b"c")]))
        log.put(KafkaMessage("c", b"x", headers=[("rmq.storeTimestamp", b"1")]))
        log.put(KafkaMessage("e.f", b"x", headers=[("KAFKA_TOPIC", b"g"), ("KAFKA_KEY", b"=eA==")]))
        log.put(KafkaMessage("h.i", b"x", headers=forged))
    there = convert.to_rocketmq(tmp_path / "log", tmp_path / "store")
    assert there.topics == {name: name.replace(".", "%2E") for name in ("a.b", "c", "c.d", "e.f", "h.i")}
    # The last one cannot be told from a message, and is one: but its topic is not what it says, which is told.
    losses = there.total_losses()
    assert (losses[Loss.MISFITS], losses[Loss.FORMER_TOPICS]) == (3, 1)
    convert.to_kafka(tmp_path / "store", tmp_path / "back")
    before, after = records(tmp_path / "log"), records(tmp_path / "back")
    for where in before.keys() - {("h.i", 0)}:
        assert after[where] == before[where]


@pytest.mark.parametrize("change", ["user property", "KAFKA_OFFSET", "KAFKA_TOPIC", "tags"])
def test_names_of_ours_in_messages_of_others(tmp_path: Path, change: str) -> None:
    with kafka.open(tmp_path / "log") as log:
        log.put(KafkaMessage("t.one", b"body", b"key", [("h", b"1")], 5))
    convert.to_rocketmq(tmp_path / "log", tmp_path / "made")
    with mqstore.inspect(tmp_path / "made") as view:
        (message,) = view.get("t%2Eone", 0).messages
    properties = {**message.properties}
    topic = "t%2Eone"
    if change == "user property":
        properties = {"KAFKA_TIMESTAMP_TYPE": "CreateTime", "mine": "1"}
    elif change == "KAFKA_OFFSET":
        properties = {"KAFKA_OFFSET": str(10**18), "mine": "1"}
    elif change == "KAFKA_TOPIC":
        properties["KAFKA_TOPIC"] = "another.topic"
    else:
        properties["TAGS"] = "T"
    with mqstore.open(tmp_path / "store") as store:
        store.put(Message(topic, b"body", properties=properties, queue_id=0))
    there = convert.to_kafka(tmp_path / "store", tmp_path / "kafka")
    assert there.total_losses()[Loss.MISFITS] == 1
    assert there.partitions[0].first_offset == 0
    convert.to_rocketmq(tmp_path / "kafka", tmp_path / "back")
    found = []
    for path in (tmp_path / "store", tmp_path / "back"):
        with mqstore.inspect(path) as view:
            found.append([members(one) for one in view.get(topic, 0).messages])
    assert found[0] == found[1]


def test_memory_does_not_depend_on_how_well_a_log_is_compressed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = bytes(1000)
    with kafka.open(tmp_path / "log", compression_type="gzip", batch_size=1 << 20) as log:
        for _ in range(12):
            log.put_batch([KafkaMessage("t", value, timestamp_ms=1) for _ in range(2000)])
    monkeypatch.setattr("mqstore.convert.into_rocketmq.MEMORY_BYTES", 1 << 20)
    tracemalloc.start()
    try:
        report = convert.to_rocketmq(tmp_path / "log", tmp_path / "store")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert report.records == 24_000
    assert report.total_losses()[Loss.BATCHES] == 24
    # One batch as bytes and as records, and a megabyte; all are 24 MB and more. Plain Python takes a little more.
    assert peak < (12 if kernels.NAME == "native" else 16) << 20


def test_a_topic_that_is_not_there_and_an_output_inside_the_source(tmp_path: Path) -> None:
    with kafka.open(tmp_path / "log") as log:
        log.put(KafkaMessage("orders", b"x"))
    with pytest.raises(UsageError, match=r"no topic matches.*one of orders"):
        convert.to_rocketmq(tmp_path / "log", tmp_path / "store", ConvertOptions(topics="order"))
    convert.to_rocketmq(tmp_path / "log", tmp_path / "store")
    with pytest.raises(UsageError, match=r"no topic matches.*one of orders"):
        convert.to_kafka(tmp_path / "store", tmp_path / "back", ConvertOptions(topics="order"))
    (tmp_path / "link").symlink_to(tmp_path / "log")
    for source, output in (("log", "log/out"), ("log", "link/a"), ("store", "store/commitlog/x")):
        job = convert.to_rocketmq if source == "log" else convert.to_kafka
        before = sorted((tmp_path / source).rglob("*"))
        with pytest.raises(UsageError, match="lie inside each other"):
            job(tmp_path / source, tmp_path / output)
        assert sorted((tmp_path / source).rglob("*")) == before
