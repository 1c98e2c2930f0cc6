"""Batches of a stream, planned and read in this process: every message of the queues once, limits, loss, damage."""

from __future__ import annotations

import json
import logging
import os
import pickle
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra 'spark'", exc_type=ImportError)

from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows

import mqstore
from mqstore import Message
from mqstore.files.pool import FilePool
from mqstore.layout.queue_unit import QueueUnit, encode_unit
from mqstore.spark import queue_reading, queue_splits
from mqstore.spark.messages import MessagesView
from mqstore.spark.options import ReadOptions
from mqstore.spark.queue_reading import read_queue_split
from mqstore.spark.queue_splits import QueueSplit
from mqstore.spark.splits import SplitPolicy
from mqstore.spark.stream import StreamReader
from spark.support import expected_messages

Rows = list[dict[str, Any]]
FILE_SIZE = 64 << 10
SIZES = {
    "mapped_file_size_commit_log": FILE_SIZE,
    "mapped_file_size_consume_queue": 20 * 300,
    "max_hash_slot_num": 100,
    "max_index_num": 400,
}


def reader_of(path: Path, **options: object) -> StreamReader:
    texts = {"startingOffsets": "earliest", **{name: str(value) for name, value in options.items()}}
    parsed = ReadOptions.parse({"path": str(path), **texts}, streaming=True)
    return StreamReader(parsed, MessagesView.schema_for(parsed).names)


def rows_of_part(reader: StreamReader, part: InputPartition) -> Iterator[dict[str, Any]]:
    for batch in StreamReader(reader.options, reader.columns).read(pickle.loads(pickle.dumps(part))):
        for row in batch.to_pylist():
            yield {**row, "properties": dict(row["properties"])}


def batches_of(reader: StreamReader) -> list[Rows]:
    """What Spark does at an AvailableNow trigger."""
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    found = []
    while (end := reader.latestOffset(start, reader.getDefaultReadLimit())) != start:
        start, end = (json.loads(json.dumps(one)) for one in (start, end))
        found.append([row for part in reader.partitions(start, end) for row in rows_of_part(reader, part)])
        start = end
    reader.stop()
    return found


def places(rows: Rows) -> list[tuple[str, int, int]]:
    return sorted((row["topic"], row["queueId"], row["queueOffset"]) for row in rows)


def all_rows(path: Path, **options: object) -> Rows:
    return [row for batch in batches_of(reader_of(path, **options)) for row in batch]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """2,000 messages of two topics in five queues, one of them large in places, in 20 log files."""
    path = tmp_path_factory.mktemp("made") / "broker-a"
    with mqstore.open(path, **SIZES) as store:
        for number in range(2000):
            topic, queue_id = ("rare", number // 40 % 2) if number % 40 == 0 else ("orders", number % 3)
            body = b"%d " % number * (number % 250)
            properties = {"number": str(number)}
            store.put(Message(topic, body, tags="even" if number % 2 == 0 else "odd", queue_id=queue_id,
                              properties=properties))  # fmt: skip
    return path


def test_golden_stores(golden: Path) -> None:
    for name in ("basic", "broker", "cleaned", "crashed-recovered", "v5-basic"):
        root = golden / name
        units = [json.loads(line) for line in (root / "EXPECTED-CQ.jsonl").read_text().splitlines()]
        queued = {unit["phyOffset"] for unit in units}
        expected = [row for row in expected_messages(golden, name) if row["physicalOffset"] in queued]
        found = all_rows(root / "store", minPartitions=3)
        assert sorted(found, key=lambda row: row["physicalOffset"]) == expected, name


@pytest.mark.parametrize(
    "options",
    [{}, {"minPartitions": 7}, {"splitBytes": 20_000}, {"maxOffsetsPerTrigger": 130}, {"maxBytesPerTrigger": 90_000}],
)
def test_each_message_once(made: Path, options: dict[str, object]) -> None:
    batches = batches_of(reader_of(made, **options))
    with mqstore.inspect(made) as view:
        expected = sorted((one.topic, one.queue_id, one.queue_offset) for one in view.scan())
    assert places([row for batch in batches for row in batch]) == expected
    for batch in batches:
        assert len(batch) <= int(str(options.get("maxOffsetsPerTrigger", 2000)))
        assert sum(row["storeSize"] for row in batch) <= int(str(options.get("maxBytesPerTrigger", 1 << 40)))


def test_far_apart_and_close_together(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [row for row in all_rows(made) if row["topic"] == "rare"]
    for gap, window in [(0, 1), (0, 1 << 20), (4096, 40_000), (1 << 20, 1 << 20)]:
        monkeypatch.setattr(queue_reading, "GAP_BYTES", gap)
        monkeypatch.setattr(queue_reading, "WINDOW_BYTES", window)
        assert all_rows(made, subscribe="rare") == expected


def test_no_queue_waits_for_ever(made: Path) -> None:
    for options in ({"maxOffsetsPerTrigger": 2}, {"maxBytesPerTrigger": 1}):
        reader = reader_of(made, **options)
        start = reader.initialOffset()
        for _ in range(12):
            start = reader.latestOffset(start, reader.getDefaultReadLimit())
        assert all(offset > 0 for broker in start["rare"].values() for offset in broker.values())
        reader.stop()


def test_limits_that_spark_is_told_of(made: Path) -> None:
    assert reader_of(made).getDefaultReadLimit() == ReadAllAvailable()
    assert reader_of(made, maxOffsetsPerTrigger=5, maxBytesPerTrigger=7).getDefaultReadLimit() == ReadMaxRows(5)
    assert reader_of(made, maxBytesPerTrigger=7).getDefaultReadLimit() == ReadMaxBytes(7)
    limited = reader_of(made, maxOffsetsPerTrigger=5)
    start = limited.initialOffset()
    assert limited.latestOffset(start, ReadAllAvailable()) == limited.reportLatestOffset()


def test_a_batch_waits_until_it_is_worth_it(copy: Path) -> None:
    reader = reader_of(copy, minOffsetsPerTrigger=50, maxTriggerDelay="1h")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMinRows(50)
    start = reader.latestOffset(reader.initialOffset(), limit)
    for more, waits in ((10, True), (39, True), (1, False)):
        with mqstore.open(copy, **SIZES) as store:
            for _ in range(more):
                store.put(Message("orders", b"more", queue_id=0))
        assert (reader.latestOffset(start, limit) == start) is waits
    impatient = reader_of(copy, minOffsetsPerTrigger=5000, maxTriggerDelay="0s")
    assert impatient.latestOffset(start, limit) != start


def test_new_queues_are_taken_in_as_often_as_asked(copy: Path) -> None:
    never, rarely, always = [
        reader_of(copy, **options)
        for options in ({"discoveryInterval": "-1"}, {"discoveryInterval": "1h"}, {})
    ]  # fmt: skip
    limit = ReadAllAvailable()
    starts = {reader: reader.latestOffset(reader.initialOffset(), limit) for reader in (never, rarely, always)}
    with mqstore.open(copy, **SIZES) as store:
        for topic in ("orders", "new"):
            store.put(Message(topic, b"more", queue_id=0))
    for reader, knows in (
        (never, False),
        (rarely, False),
        (always, True),
        (reader_of(copy, discoveryInterval="1h"), True),
    ):
        end = reader.latestOffset(starts.get(reader, starts[never]), limit)
        assert ("new" in end) is knows
        assert end["orders"] != starts[never]["orders"]
        assert reader.reportLatestOffset() == end
        reader.stop()


def test_where_a_stream_begins(made: Path) -> None:
    latest = reader_of(made).reportLatestOffset()
    assert reader_of(made, startingOffsets="latest").initialOffset() == latest
    text = '{"orders": {"broker-a": {"0": 7, "1": -1}, "2": 3}, "rare": {"0": -2}}'
    assert reader_of(made, startingOffsets=text).initialOffset() == {
        "orders": {"broker-a": {"0": 7, "1": latest["orders"]["broker-a"]["1"], "2": 3}},
        "rare": {"broker-a": {"0": 0, "1": 0}},
    }
    chosen = reader_of(made, assign='{"orders": [1], "rare": [0]}').initialOffset()
    assert chosen == {"orders": {"broker-a": {"1": 0}}, "rare": {"broker-a": {"0": 0}}}
    with pytest.raises(mqstore.CorruptFileError, match="offset 5000 of queue orders/0 of broker-a is not there"):
        reader_of(made, startingOffsets='{"orders": {"0": 5000}}').initialOffset()


def test_a_time_to_begin_at(copy: Path) -> None:
    with mqstore.inspect(copy) as view:
        last = max(record.store_timestamp_ms for record in view.scan())
        found = view.get("orders", 0, 500, max_messages=1).messages[0].store_timestamp_ms
    start = reader_of(copy, startingTimestamp=found).initialOffset()
    with mqstore.inspect(copy) as view:
        assert start["orders"]["broker-a"]["0"] == view.offset_at("orders", 0, found)
    with pytest.raises(mqstore.UsageError, match=r"no message of queue .* is as new as the starting timestamp"):
        reader_of(copy, startingTimestamp=last + 1).initialOffset()
    quiet = reader_of(copy, startingTimestamp=last + 1, startingOffsetsByTimestampStrategy="latest")
    assert quiet.initialOffset() == quiet.reportLatestOffset()


def test_where(made: Path) -> None:
    assert {int(row["properties"]["number"]) % 2 for row in all_rows(made, where="even")} == {0}
    rows = all_rows(made, where="number BETWEEN 100 AND 199 AND TAGS = 'odd'")
    assert sorted(int(row["properties"]["number"]) for row in rows) == list(range(101, 200, 2))
    assert len(all_rows(made, where="even || odd")) == 2000
    with pytest.raises(mqstore.UsageError, match="SQL92"):
        reader_of(made, where="number >")


def test_messages_removed_between_two_batches(copy: Path, caplog: pytest.LogCaptureFixture) -> None:
    strict, lax = reader_of(copy, subscribe="orders"), reader_of(copy, subscribe="orders", failOnDataLoss="false")
    start = strict.initialOffset()
    remove_first_file(copy)
    end = strict.latestOffset(start, ReadAllAvailable())
    with mqstore.inspect(copy) as view:
        begins = {queue.queue_id: queue.min_offset for queue in view.queues("orders")}
        expected = sorted((one.queue_id, one.queue_offset) for one in view.scan() if one.topic == "orders")
    assert min(begins.values()) > 0
    with pytest.raises(mqstore.CorruptFileError, match=f"messages 0 to {begins[0] - 1} of queue orders/0 of broker-a"):
        strict.partitions(start, end)
    with caplog.at_level(logging.WARNING):
        parts = lax.partitions(start, end)
    assert f"{sum(begins.values())} messages of this batch were lost" in caplog.text
    rows = [row for part in parts for row in rows_of_part(lax, part)]
    assert sorted((row["queueId"], row["queueOffset"]) for row in rows) == expected
    shutil.rmtree(copy / "consumequeue" / "orders" / "1")
    with pytest.raises(mqstore.CorruptFileError, match="queue orders/1 of broker-a is gone"):
        strict.latestOffset(start, ReadAllAvailable())
    assert lax.latestOffset(start, ReadAllAvailable())["orders"]["broker-a"]["1"] == 0  # should it come back


def remove_first_file(store: Path) -> None:
    min((store / "commitlog").iterdir()).unlink()


def test_messages_removed_between_plan_and_task(copy: Path) -> None:
    strict, lax = reader_of(copy, subscribe="rare"), reader_of(copy, subscribe="rare", failOnDataLoss="false")
    start = strict.initialOffset()
    parts = strict.partitions(start, strict.latestOffset(start, ReadAllAvailable()))
    remove_first_file(copy)
    with mqstore.inspect(copy) as view:
        expected = [one.physical_offset for one in view.scan() if one.topic == "rare"]
    with pytest.raises(mqstore.CorruptFileError, match=r"messages 0 to .* of queue rare/0 of broker-a were removed"):
        [row for part in parts for row in rows_of_part(strict, part)]
    rows = [row for part in parts for row in rows_of_part(lax, part)]
    assert sorted(row["physicalOffset"] for row in rows) == expected


def test_damage(copy: Path) -> None:
    rows = all_rows(copy)
    victim = max((row for row in rows if row["topic"] == "orders"), key=lambda row: len(row["body"]))
    path = copy / "commitlog" / f"{victim['physicalOffset'] // FILE_SIZE * FILE_SIZE:020d}"
    data = bytearray(path.read_bytes())
    data[victim["physicalOffset"] % FILE_SIZE + 200] ^= 1  # in its body
    path.write_bytes(data)
    with pytest.raises(mqstore.CorruptRecordError) as caught:
        all_rows(copy)
    assert caught.value.offset == victim["physicalOffset"]
    rest = [place for place in places(rows) if place != (victim["topic"], victim["queueId"], victim["queueOffset"])]
    assert places(all_rows(copy, onCorruptRecord="skip")) == rest
    kept = all_rows(copy, onCorruptRecord="keep")
    assert places(kept) == places(rows)
    (reason,) = (row["corruptReason"] for row in kept if row["corruptReason"] is not None)
    assert reason.startswith(f"the body has another checksum at {victim['physicalOffset']}: ")
    assert len(all_rows(copy, subscribe="rare")) == 50  # it lies between theirs


@pytest.mark.parametrize("field", ["offset", "size", "huge", "over", "none", "before", "again", "topic"])
def test_a_unit_that_leads_elsewhere(copy: Path, field: str) -> None:
    rows = all_rows(copy)
    path = copy / "consumequeue" / "rare" / "0" / f"{0:020d}"
    with mqstore.inspect(copy) as view:
        units = list(view.units("rare", 0))
        unit = units[3]
        others = {one.physical_offset: one for one in view.scan() if one.topic == "orders" and one.queue_id == 0}
        other = next(one for one in others.values() if one.queue_offset == 3)
    changed = {
        "offset": unit._replace(physical_offset=unit.physical_offset + 1),
        "size": unit._replace(size_bytes=unit.size_bytes + 1),
        "huge": unit._replace(size_bytes=(1 << 31) - 2),
        "over": unit._replace(size_bytes=FILE_SIZE - unit.physical_offset % FILE_SIZE),
        "none": unit._replace(size_bytes=0),
        "before": unit._replace(physical_offset=unit.physical_offset - unit.size_bytes),
        "again": units[4],
        "topic": QueueUnit(other.physical_offset, other.total_size, 0),
    }[field]
    with path.open("r+b") as file:
        file.seek(3 * 20)
        file.write(encode_unit(changed))
    with pytest.raises(mqstore.MqstoreError):
        all_rows(copy)
    rest = [place for place in places(rows) if place != ("rare", 0, 3)]
    assert places(all_rows(copy, onCorruptRecord="skip")) == rest


@pytest.mark.parametrize("gap", [0, 1 << 20])
def test_a_file_that_was_cut_short_meanwhile(
    copy: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, gap: int
) -> None:
    monkeypatch.setattr(queue_reading, "GAP_BYTES", gap)
    strict, lax = reader_of(copy, subscribe="rare"), reader_of(copy, subscribe="rare", failOnDataLoss="false")
    start = strict.initialOffset()
    parts = strict.partitions(start, strict.latestOffset(start, ReadAllAvailable()))
    rows = [row for part in parts for row in rows_of_part(strict, part)]
    victims = [row for row in rows if row["physicalOffset"] < FILE_SIZE][-2:]
    rest = [row for row in rows if row not in victims]
    real = FilePool.read_parts

    def read_parts(pool: FilePool, path: Path, parts: list[tuple[int, int]], target: memoryview) -> list[int]:
        whole = path.read_bytes()
        if int(path.name) == 0:
            os.truncate(path, victims[0]["physicalOffset"] + 10)
        there = real(pool, path, parts, target)
        path.write_bytes(whole)
        return there

    monkeypatch.setattr(FilePool, "read_parts", read_parts)
    with pytest.raises(mqstore.CorruptFileError, match=r"messages .* of queue rare/\d of broker-a were removed"):
        [row for part in parts for row in rows_of_part(strict, part)]
    with caplog.at_level(logging.WARNING):
        found = [row for part in parts for row in rows_of_part(lax, part)]
    assert found == rest  # whatever was to be read in one go with the victims
    assert "they were removed before they were read" in caplog.text


def test_a_file_that_is_removed_just_before_it_is_read(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    strict, lax = reader_of(copy, subscribe="rare"), reader_of(copy, subscribe="rare", failOnDataLoss="false")
    start = strict.initialOffset()
    (part,) = strict.partitions(start, strict.latestOffset(start, ReadAllAvailable()))
    rest = [row for row in rows_of_part(strict, part) if row["physicalOffset"] >= FILE_SIZE]
    real = FilePool.read_parts

    def read_parts(pool: FilePool, path: Path, parts: list[tuple[int, int]], target: memoryview) -> list[int]:
        if int(path.name):
            return real(pool, path, parts, target)
        path.rename(copy / "away")
        try:
            return real(pool, path, parts, target)
        finally:
            lost.append(path)

    lost: list[Path] = []
    monkeypatch.setattr(FilePool, "read_parts", read_parts)
    with pytest.raises(mqstore.CorruptFileError, match=r"messages 0 to .* of queue rare/0 of broker-a were removed"):
        list(rows_of_part(strict, part))
    (copy / "away").rename(lost[0])
    assert list(rows_of_part(lax, part)) == rest


def test_small_messages_far_apart_come_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "broker-a"
    with mqstore.open(path) as store:
        for number in range(400):
            store.put(Message("rare" if number % 100 == 0 else "orders", bytes(number % 100 * 100), queue_id=0))
    reader = reader_of(path, subscribe="rare")
    start = reader.initialOffset()
    (part,) = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
    split, policy = part.value, SplitPolicy.of(reader.options)
    (chunk,) = read_queue_split(split, policy)
    assert len(chunk.buffer) == sum(chunk.columns.size)  # and nothing of what lies between
    assert [record.queue_offset for record in chunk.records()] == [0, 1, 2, 3]
    # What lies between is counted where it is read.
    monkeypatch.setattr(queue_reading, "GAP_BYTES", 1 << 20)
    (chunk,) = read_queue_split(split, policy)
    assert len(chunk.buffer) > 1_000_000
    monkeypatch.setattr(queue_reading, "WINDOW_BYTES", 600_000)
    sizes = [len(chunk.buffer) for chunk in read_queue_split(split, policy)]
    assert len(sizes) == 2
    assert all(500_000 < size < 600_000 for size in sizes)


def test_partitions_are_small_and_say_the_same_each_time(made: Path) -> None:
    reader = reader_of(made, minPartitions=4)
    start, end = reader.initialOffset(), reader.reportLatestOffset()
    parts = reader.partitions(start, end)
    assert [one.value for one in reader.partitions(start, end)] == [one.value for one in parts]
    assert len(parts) == 4
    assert all(isinstance(one.value, QueueSplit) and len(pickle.dumps(one)) < 1024 for one in parts)
    assert reader.partitions(end, end) == []


def test_no_task_gets_too_many_small_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_splits, "MESSAGES_PER_SPLIT", 100)
    path = tmp_path / "broker-a"
    with mqstore.open(path) as store:
        for size in (5000, 1, 5000):
            for number in range(900 if size == 1 else 50):
                store.put(Message("orders", bytes(size), queue_id=number % 3))
    reader = reader_of(path)
    start, end = reader.initialOffset(), reader.reportLatestOffset()
    splits = [part.value for part in reader.partitions(start, end)]
    assert max(sum(one.end - one.begin for one in split.ranges) for split in splits) <= 100
    assert len(places(all_rows(path))) == len(set(places(all_rows(path)))) == 1000
    # Units that all lead to one place cannot be divided.
    unit = next(iter((path / "consumequeue" / "orders" / "0").iterdir())).read_bytes()[:20]
    for file in (path / "consumequeue").rglob("0" * 20):
        file.write_bytes(unit * 400)
    damaged = [part.value for part in reader_of(path).partitions(start, end)]
    assert sum(one.end - one.begin for split in damaged for one in split.ranges) == 1000


@pytest.mark.parametrize(
    "options",
    [
        {"endingOffsets": "latest"},
        {"endingTimestamp": "5"},
        {"maxTriggerDelay": "soon"},
        {"maxBytesPerTrigger": "0"},
        {"discoveryInterval": "often"},
    ],
)
def test_what_makes_no_sense_in_a_stream(made: Path, options: dict[str, str]) -> None:
    with pytest.raises(mqstore.UsageError, match=next(iter(options))):
        reader_of(made, **options)
