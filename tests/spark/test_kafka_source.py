"""The source ``kafkalog`` on Spark: what Kafka's own classes read, in batches and as a stream."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra 'spark'", exc_type=ImportError)

from mqstore import kafka
from mqstore.errors import CorruptBatchError, CorruptFileError, MqstoreError, NotAStoreError, StoreIOError
from mqstore.kafka import KafkaMessage
from mqstore.spark.kafka_columns import arrow_schema
from mqstore.spark.kafka_offsets import KafkaLogs, data_directories, ending_offsets, starting_offsets
from mqstore.spark.kafka_options import KafkaReadOptions
from mqstore.spark.kafka_reading import read_split
from mqstore.spark.kafka_splits import plan
from mqstore.spark.option_values import HINT_LOST
from spark.support import moment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

Rows = list[dict[str, Any]]
TYPES = {"NoTimestampType": -1, "CreateTime": 0, "LogAppendTime": 1}


@pytest.fixture(scope="module")
def data(golden_kafka: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The golden data directory without its crash image; the start offset that was not in force is not noted."""
    target = tmp_path_factory.mktemp("kafka") / "data"
    shutil.copytree(golden_kafka, target, ignore=shutil.ignore_patterns("crash-0", "DUMP", "EXPECTED*", "log-start*"))
    return target


def expected_rows(lines: dict[str, list[dict[str, Any]]], topic: str | None = None) -> Rows:
    """What a reader of uncommitted records gets, by topic and offset."""
    kinds = {(line["dir"], line["segment"], line["position"]): line for line in lines["batch"]}
    rows = []
    for line in lines["record"]:
        if "controlType" in line or line["dir"] == "crash-0":
            continue
        batch = kinds[line["dir"], line["segment"], line["batchPosition"]]
        rows.append(
            {
                "key": None if line["key"] is None else base64.b64decode(line["key"]),
                "value": None if line["value"] is None else base64.b64decode(line["value"]),
                "topic": line["dir"].rpartition("-")[0],
                "partition": 0,
                "offset": line["offset"],
                "timestamp": moment(line["timestamp"]),
                "timestampType": TYPES[batch["timestampType"]],
                "headers": [
                    {"key": name, "value": None if value is None else base64.b64decode(value)}
                    for name, value in line.get("headers", ())
                ]
                or None,
            }
        )
    return sorted((row for row in rows if topic in (None, row["topic"])), key=place)


def place(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["topic"], row["partition"], row["offset"]


def rows_of(frame: DataFrame) -> Rows:
    return sorted((row for batch in frame.toArrow().to_batches() for row in batch.to_pylist()), key=place)


def load(spark: SparkSession, path: Path, **options: object) -> DataFrame:
    texts = {
        name.replace("__", "."): str(value).lower() if value in (True, False) else value
        for name, value in options.items()
    }
    return spark.read.format("kafkalog").options(**texts).load(str(path))


def read_here(path: Path, **given: object) -> tuple[Rows, int]:
    """What the tasks of a read give, without Spark, and how many there are."""
    options = KafkaReadOptions.parse({"path": str(path), **{name: str(value) for name, value in given.items()}})
    with contextlib.closing(KafkaLogs(options)) as logs:
        splits = plan(logs.partitions(), starting_offsets(logs, options), ending_offsets(logs, options), options)
    names = arrow_schema(options.include_headers).names
    rows = [row for split in splits for batch in read_split(split, options, names) for row in batch.to_pylist()]
    return rows, len(splits)


@pytest.mark.parametrize("split_bytes", [1, 3000, 1 << 28])
def test_golden_records_in_splits_of_any_size(data: Path, expected_kafka: dict[str, Any], split_bytes: int) -> None:
    rows, splits = read_here(data, splitBytes=split_bytes, includeHeaders=True)
    assert rows == expected_rows(expected_kafka)
    lines = {name: sum(one["dir"] != "crash-0" for one in expected_kafka[name]) for name in ("batch", "segment")}
    assert lines["segment"] <= splits <= lines["batch"]
    assert splits == {1: lines["batch"], 1 << 28: lines["segment"]}.get(split_bytes, splits)


def test_every_golden_record_in_one_read(spark: SparkSession, data: Path, expected_kafka: dict[str, Any]) -> None:
    frame = load(spark, data, includeHeaders=True, splitBytes=60_000)
    assert frame.rdd.getNumPartitions() > 21
    assert rows_of(frame) == expected_rows(expected_kafka)
    names = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    assert load(spark, data).columns == names
    assert [field.dataType.simpleString() for field in frame.schema] == [
        "binary", "binary", "string", "int", "bigint", "timestamp", "int", "array<struct<key:string,value:binary>>",
    ]  # fmt: skip


def test_committed_records_only(spark: SparkSession, data: Path, expected_kafka: dict[str, Any]) -> None:
    aborted = [
        (one["producerId"], one["firstOffset"], one["lastOffset"])
        for line in expected_kafka["segment"]
        if line["dir"] == "txn-0"
        for one in line["abortedTxns"]
    ]
    batches = [line for line in expected_kafka["batch"] if line["dir"] == "txn-0" and not line["control"]]
    hidden = {
        offset
        for line in batches
        if line["transactional"]
        and any(who == line["producerId"] and low <= line["baseOffset"] <= high for who, low, high in aborted)
        for offset in range(line["baseOffset"], line["lastOffset"] + 1)
    }
    stable = next(line["lastStableOffset"] for line in expected_kafka["log"] if line["dir"] == "txn-0")
    wanted = [
        row["offset"]
        for row in expected_rows(expected_kafka, "txn")
        if row["offset"] not in hidden and row["offset"] < stable
    ]
    frame = load(spark, data, subscribe="txn", kafka__isolation__level="read_committed")
    assert [row["offset"] for row in rows_of(frame)] == wanted
    for split_bytes in (1, 500):
        found, _ = read_here(
            data, subscribe="txn", splitBytes=split_bytes, **{"kafka.isolation.level": "read_committed"}
        )
        assert [row["offset"] for row in found] == wanted
    assert len(hidden) > 20


def offsets(frame: DataFrame) -> list[int]:
    return sorted(row["offset"] for row in frame.select("offset").toArrow().to_pylist())


def test_bounds(data: Path, expected_kafka: dict[str, Any]) -> None:
    def plain(**more: object) -> list[int]:
        rows, _ = read_here(data, subscribe="plain", splitBytes=5000, **more)
        return [row["offset"] for row in rows]

    assert plain(startingOffsets='{"plain":{"0":100}}', endingOffsets='{"plain":{"0":1000}}') == list(range(100, 1000))
    assert plain(startingOffsets='{"plain":{"0":-2}}', endingOffsets='{"plain":{"0":-1}}') == list(range(1412))
    assert plain(startingOffsets="earliest", endingOffsets='{"plain":{"0":3}}') == [0, 1, 2]
    lookups = [line for line in expected_kafka["timestampLookup"] if line["dir"] == "plain-0"]
    found = [line for line in lookups if line["offset"] is not None and line["offset"] > 0][:3]
    assert len(found) == 3
    for line in found:
        assert plain(startingTimestamp=line["target"]) == list(range(line["offset"], 1412))
        by_time = json.dumps({"plain": {"0": line["target"]}})
        assert plain(startingOffsetsByTimestamp=by_time, startingOffsets="earliest")[:1] == [line["offset"]]
        assert plain(endingOffsetsByTimestamp=by_time) == list(range(line["offset"]))
    beyond = max(line["target"] for line in lookups if line["offset"] is None)
    assert plain(startingTimestamp=beyond, startingOffsetsByTimestampStrategy="latest") == []
    rows, _ = read_here(data, assign='{"plain":[0]}', endingOffsets='{"plain":{"0":5}}')
    assert [row["offset"] for row in rows] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"subscribe": "plain", "assign": "{}"}, "exclude each other"),
        ({"subscribe": "nothing"}, "no such partition or topic"),
        ({"assign": '{"plain":[7]}'}, "no such partition or topic"),
        ({"subscribe": "plain,txn", "startingOffsets": '{"plain":{"0":1}}'}, "must name every partition"),
        ({"subscribe": "plain", "startingOffsets": '{"plain":{"0":5000}}'}, "data may have been lost"),
        ({"subscribe": "plain", "startingOffsets": "latest"}, "would read nothing"),
        ({"subscribe": "plain", "startingOffsets": '{"plain":{"0":-1}}'}, "would read nothing"),
        ({"subscribe": "plain", "endingOffsets": "earliest"}, "would read nothing"),
        ({"subscribe": "plain", "startingTimestamp": "9000000000000"}, "as new as the starting timestamp"),
        ({"startingOffset": "earliest"}, "unknown option startingOffset"),
        ({"maxOffsetsPerTrigger": "5"}, "makes no sense in a batch"),
        ({"minOffsetsPerTrigger": "5"}, "does not have"),
        ({"topic": "a"}, "unknown option topic"),
        ({"kafka.isolation.levels": "read_committed"}, "unknown option kafka.isolation.levels"),
        ({"splitBytes": "0"}, "cannot be meant"),
        ({"failOnDataLoss": "perhaps"}, "cannot be meant"),
        ({"subscribePattern": "("}, "cannot be meant"),
    ],
)
def test_what_cannot_be_meant(data: Path, options: dict[str, str], complaint: str) -> None:
    with pytest.raises(MqstoreError, match=complaint):
        read_here(data, **options)


@pytest.mark.parametrize("refused", ["closed", "closed/data"])
def test_a_glob_does_not_pass_over_what_could_not_be_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    for name in ("closed/data", "open/data"):
        (tmp_path / name).mkdir(parents=True)
    real_list, real_scan, real_stat = os.listdir, os.scandir, os.stat

    def refuse(path: object) -> None:
        if str(path) == str(tmp_path / refused):
            raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "listdir", lambda path=".": (refuse(path), real_list(path))[1])
    monkeypatch.setattr(os, "scandir", lambda path=".": (refuse(path), real_scan(path))[1])
    monkeypatch.setattr(os, "stat", lambda path, **options: (refuse(path), real_stat(path, **options))[1])
    text = f"{tmp_path}/closed/*" if refused == "closed" else f"{tmp_path}/*/data"
    with pytest.raises(StoreIOError, match="Permission denied") as caught:
        data_directories((text,))
    assert caught.value.path == str(tmp_path / refused)
    monkeypatch.undo()
    assert data_directories((f"{tmp_path}/[co]*/d*",)) == [tmp_path / "closed" / "data", tmp_path / "open" / "data"]
    with pytest.raises(NotAStoreError, match="no Kafka log matches"):
        data_directories((f"{tmp_path}/none/*",))


def test_spark_tells_the_hint(spark: SparkSession, data: Path) -> None:
    with pytest.raises(Exception, match="did you mean startingOffsets"):
        load(spark, data, startingOffset="earliest").count()


def test_options_about_brokers_are_passed_over(spark: SparkSession, data: Path) -> None:
    options = {"kafka.bootstrap.servers": "broker:9092", "kafka.security.protocol": "SSL", "subscribe": "plain"}
    assert spark.read.format("kafkalog").options(**options).load(str(data)).count() == 1412


def test_a_schema_of_the_users_own(spark: SparkSession, data: Path) -> None:
    frame = spark.read.format("kafkalog").schema("offset bigint, value binary").option("subscribe", "txn")
    assert frame.load(str(data)).columns == ["offset", "value"]
    with pytest.raises(Exception, match="does not fit"):
        spark.read.format("kafkalog").schema("offset string").load(str(data)).count()
    with pytest.raises(Exception, match="leave NOT NULL out"):
        spark.read.format("kafkalog").schema("offset bigint not null").load(str(data)).count()


def test_damage(spark: SparkSession, golden_kafka: Path, tmp_path: Path) -> None:
    log = shutil.copytree(golden_kafka / "plain-0", tmp_path / "plain-0") / f"{0:020d}.log"
    damaged = bytearray(log.read_bytes())
    damaged[735 + 100] ^= 1  # in the second batch, offsets 4 to 8
    log.write_bytes(damaged)
    with pytest.raises(Exception, match="onCorruptBatch=skip"):
        load(spark, tmp_path / "plain-0").count()
    found = offsets(load(spark, tmp_path / "plain-0", onCorruptBatch="skip"))
    assert found == [*range(4), *range(9, 1412)]


def test_a_segment_that_is_gone_or_compacted(data: Path, tmp_path: Path) -> None:
    """Retention and compaction beside a running query: the plan names bytes that are no longer there."""
    copy = Path(shutil.copytree(data / "plain-0", tmp_path / "plain-0"))
    options = KafkaReadOptions((str(copy),))
    logs = KafkaLogs(options)
    splits = plan(logs.partitions(), starting_offsets(logs, options), ending_offsets(logs, options), options)
    log = copy / f"{0:020d}.log"
    shutil.copy(log, tmp_path / "other")
    (tmp_path / "other").replace(log)
    with pytest.raises(CorruptFileError, match="was compacted before"):
        list(read_split(splits[0], options, ["offset"]))
    log.unlink()
    with pytest.raises(CorruptFileError, match="was removed") as caught:
        list(read_split(splits[0], options, ["offset"]))
    assert caught.value.hint == HINT_LOST
    assert list(read_split(splits[0], KafkaReadOptions((str(copy),), fail_on_data_loss=False), ["offset"])) == []
    assert sum(batch.num_rows for batch in read_split(splits[1], options, ["offset"])) == 469


def test_is_found_by_its_name() -> None:
    import pyspark_kafkalog
    from mqstore.spark.kafka_source import KafkaLogSource

    assert pyspark_kafkalog.DefaultSource is KafkaLogSource
    assert KafkaLogSource.name() == "kafkalog"


@pytest.mark.parametrize("split_bytes", [1, 250])
@pytest.mark.parametrize("bit", [1, 20, 58, 61, 63])
@pytest.mark.parametrize("batch", [0, 5, 39, 40, 58])
def test_a_flipped_bit_of_a_base_offset_is_damage(tmp_path: Path, batch: int, bit: int, split_bytes: int) -> None:
    """No checksum covers it. However the log is cut into splits, the neighbours tell; nothing is lost unsaid."""
    with kafka.open(tmp_path / "log", segment_bytes=4000) as log:
        for number in range(60):
            log.put(KafkaMessage("t", b"%d" % number * 20))
    files = sorted((tmp_path / "log" / "t-0").glob("*.log"))
    places = [(one.segment.path(), one.position) for one in batches(tmp_path / "log")]
    assert len(files) > 1
    path, at = places[batch]
    data = bytearray(path.read_bytes())
    data[at + bit // 8] ^= 0x80 >> bit % 8
    path.write_bytes(data)
    for limits in ({}, {"endingOffsets": json.dumps({"t": {"0": min(batch + 1, 59)}})}):
        with pytest.raises(CorruptBatchError):
            read_here(tmp_path / "log", splitBytes=split_bytes, **limits)
        rows, _ = read_here(tmp_path / "log", splitBytes=split_bytes, onCorruptBatch="skip", **limits)
        end = min(batch + 1, 59) if limits else 60
        assert {b"%d" % number * 20 for number in range(end) if number != batch} <= {row["value"] for row in rows}


def batches(path: Path) -> list[Any]:
    with kafka.inspect(path) as view:
        return list(view.partition("t").batches())
