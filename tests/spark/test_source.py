"""The source on Spark itself: every golden store through the views, and what a user sees."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra 'spark'")

import pyarrow.parquet as pq

import mqstore
import mqstore.spark
from mqstore import Message
from mqstore.spark.source import VIEWS, PushingReader, RocketmqSource
from spark.support import ANSWERED, expected_messages, flip_a_body, rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="session")
def source(spark: SparkSession) -> Callable[..., DataFrame]:
    mqstore.spark.register(spark)

    def read(*paths: Path, **options: object) -> DataFrame:
        reader = spark.read.format("rocketmq").options(**{name: str(value) for name, value in options.items()})
        return reader.load(",".join(map(str, paths)))

    return read


def test_every_row_of_every_store(source: Callable[..., DataFrame], golden: Path) -> None:
    frame = source(*(golden / name / "store" for name in ANSWERED), splitBytes=20_000, maxPartitions=8)
    expected = [row for name in sorted(ANSWERED) for row in expected_messages(golden, name, f"{name}/store")]
    assert rows_of(frame.toArrow()) == expected


def test_why_a_kept_record_is_corrupt(
    spark: SparkSession, source: Callable[..., DataFrame], golden: Path, tmp_path: Path
) -> None:
    shutil.copytree(golden / "basic" / "store", tmp_path / "store")
    expected = expected_messages(golden, "basic")
    bad = flip_a_body(tmp_path / "store", expected)
    frame = source(tmp_path / "store", onCorruptRecord="keep")
    assert frame.columns == [*RocketmqSource({"path": "x"}).schema().fieldNames(), "corruptReason"]
    rows = frame.where("corruptReason IS NOT NULL").select("physicalOffset", "corruptReason").collect()
    assert [row.physicalOffset for row in rows] == [bad["physicalOffset"]]
    assert "another checksum" in rows[0].corruptReason
    assert frame.count() == len(expected)
    exported = mqstore.spark.jobs.export(
        spark, tmp_path / "store", tmp_path / "out", options={"onCorruptRecord": "keep"}
    )
    table = pq.read_table(exported.output)
    assert table.num_rows == len(expected)
    assert table.num_rows - table["corruptReason"].null_count == 1
    with pytest.raises(Exception, match="onCorruptRecord=keep brings it"):
        source(tmp_path / "store", columns="corruptReason")


def test_splits_smaller_than_a_record(source: Callable[..., DataFrame], golden: Path) -> None:
    frame = source(golden / "basic" / "store", splitBytes=1000, maxPartitions=4)
    assert rows_of(frame.toArrow()) == expected_messages(golden, "basic")


def test_every_unit_of_every_store(source: Callable[..., DataFrame], golden: Path) -> None:
    paths = [golden / name / "store" for name in ANSWERED]
    table = source(*paths, view="queues").toArrow()
    columns = ("brokerName", "topic", "queueId", "queueOffset", "physicalOffset", "storeSize", "tagsCode")
    found = sorted(tuple(row[name] for name in columns) for row in table.to_pylist())
    expected = []
    for name in ANSWERED:
        with mqstore.inspect(golden / name / "store") as view:
            log_min = view.min_physical_offset
        for line in (golden / name / "EXPECTED-CQ.jsonl").read_text().splitlines():
            unit = json.loads(line)
            # 4.9.8 leaves a queue's minimum where it was when all its messages have expired.
            if unit["phyOffset"] >= log_min:
                numbers = [unit[key] for key in ("queueId", "cqOffset", "phyOffset", "size", "tagsCode")]
                expected.append((f"{name}/store", unit["topic"], *numbers))
    assert found == sorted(expected)


def test_index_files_and_progress(source: Callable[..., DataFrame], golden: Path) -> None:
    path = golden / "broker" / "store"
    with mqstore.inspect(path) as view:
        progress = {(one.group, one.topic, one.queue_id, one.consumer_offset, one.lag) for one in view.progress()}
        entries = sum(file.header.index_count - 1 for file in view.index_files())
        index_names = {str(file.path) for file in view.index_files()}
        log_end = view.log_end
        offsets = {record.physical_offset for record in view.scan()}
        first = next(view.scan())
    rows = source(path, view="progress").collect()
    assert {(row.group, row.topic, row.queueId, row.consumerOffset, row.lag) for row in rows} == progress
    index = source(path, view="index").toArrow().to_pylist()
    assert len(index) == entries
    assert {row["physicalOffset"] for row in index} <= offsets
    assert abs(index[0]["storeTimestamp"].timestamp() - first.store_timestamp_ms / 1000) < 1
    files = source(path, view="files").toArrow().to_pylist()
    assert {row["path"] for row in files if row["kind"] == "index"} == index_names
    assert sum(row["usedBytes"] for row in files if row["kind"] == "commitlog") == log_end


def test_schema_and_chosen_columns(source: Callable[..., DataFrame], spark: SparkSession, golden: Path) -> None:
    path = golden / "broker" / "store"
    assert source(path).columns == VIEWS["messages"].schema.names
    frame = source(path, columns="storeTimestamp, TOPIC")
    assert frame.columns == ["storeTimestamp", "topic"]
    own = spark.read.format("rocketmq").schema("queueOffset long, keys array<string>").load([str(path)])
    expected = expected_messages(golden, "broker")
    rows = frame.join(own).limit(1).collect()
    assert set(rows[0].asDict()) == {"storeTimestamp", "topic", "queueOffset", "keys"}
    assert sorted(row.queueOffset for row in own.collect()) == sorted(row["queueOffset"] for row in expected)


def test_filters_reach_the_reader(source: Callable[..., DataFrame], spark: SparkSession, golden: Path) -> None:
    from pyspark.sql import functions as F  # noqa: N812

    messages = expected_messages(golden, "basic")
    moment = messages[len(messages) // 2]["storeTimestamp"]
    expected = [
        row["physicalOffset"]
        for row in messages
        if row["topic"] == "TopicTest" and row["queueId"] in (1, 2) and row["tags"] == "TagA"
        and row["storeTimestamp"] <= moment and row["queueOffset"] > 10
    ]  # fmt: skip
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = source(golden / "basic" / "store", pushFilters="true")
        frame = frame.where("topic = 'TopicTest' and queueId in (1, 2) and tags = 'TagA' and queueOffset > 10")
        frame = frame.where(F.col("storeTimestamp") <= F.lit(moment)).select("physicalOffset")
        plan = frame._jdf.queryExecution().executedPlan().toString()
        assert "TopicTest" not in plan  # Spark has nothing left to compare
        assert sorted(row.physicalOffset for row in frame.collect()) == expected
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_which_filters_are_taken(golden: Path) -> None:
    from pyspark.sql.datasource import EqualTo, In
    from pyspark.sql.types import StructType

    source = RocketmqSource({"path": str(golden / "basic" / "store"), "pushFilters": "true"})
    schema = source.schema()
    assert isinstance(schema, StructType)
    reader = source.reader(schema)
    assert isinstance(reader, PushingReader)
    left = EqualTo(("msgId",), "TagA")
    taken = [EqualTo(("topic",), "TopicTest"), In(("queueId",), (0, 1, 2)), EqualTo(("queueId",), 2)]
    assert list(reader.pushFilters([*taken, left])) == [left]
    batches = itertools.chain.from_iterable(reader.read(part) for part in reader.partitions())
    found = {pair for batch in batches for pair in zip(*batch.select(["topic", "queueId"]).to_pydict().values(),
                                                      strict=True)}  # fmt: skip
    assert found == {("TopicTest", 2)}


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"view": "tables"}, "no such view"),
        ({"columns": "topic,bodies"}, "no such column"),
        ({"columns": "topic,TOPIC"}, "twice"),
        ({"splitByte": "7"}, "did you mean splitBytes"),
        ({"where": "||"}, "names no tag"),
    ],
)
def test_what_a_user_reads_of_an_error(
    source: Callable[..., DataFrame], golden: Path, options: dict[str, str], complaint: str
) -> None:
    from pyspark.errors import AnalysisException

    with pytest.raises(AnalysisException, match=complaint):
        source(golden / "basic" / "store", **options)


def test_what_a_user_reads_of_a_missing_store_and_of_damage(
    source: Callable[..., DataFrame], spark: SparkSession, golden: Path, tmp_path: Path
) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException, match=r"no such directory.*\(hint: give the directory that holds commitlog/"):
        source(tmp_path / "none").count()
    with pytest.raises(PySparkException, match=r"column queueId of the schema does not fit.*expected queueId int"):
        spark.read.format("rocketmq").schema("queueId long").load(str(golden / "basic" / "store")).count()
    with pytest.raises(PySparkException, match=r"does not fit \(hint: leave NOT NULL out.*found topic string NOT NULL"):
        spark.read.format("rocketmq").schema("topic string not null").load(str(golden / "basic" / "store")).count()
    store = tmp_path / "store" / "commitlog"
    store.mkdir(parents=True)
    raw = bytearray((golden / "basic" / "store" / "commitlog" / ("0" * 20)).read_bytes())
    raw[3221 + 4] ^= 1
    (store / ("0" * 20)).write_bytes(raw)
    with pytest.raises(PySparkException, match=r"damaged record.*offset 3221.*"):
        source(tmp_path / "store").count()


def test_tables_of_sql(spark: SparkSession, golden: Path) -> None:
    from pyspark.errors import PySparkException

    path = golden / "basic" / "store"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW some USING rocketmq OPTIONS (path '{path}', subscribe 'TopicTest')")
    expected = [row for row in expected_messages(golden, "basic") if row["topic"] == "TopicTest"]
    assert spark.sql("SELECT count(*) FROM some").collect() == [(len(expected),)]
    with pytest.raises(PySparkException, match=r"no store to read.*not those of CREATE TABLE"):
        spark.sql(f"CREATE TABLE same USING rocketmq OPTIONS (path '{path}')")
    with pytest.raises(PySparkException, match=r"unknown option topic.*did you mean subscribe"):
        spark.sql(f"CREATE TEMPORARY VIEW other USING rocketmq OPTIONS (path '{path}', topic 'TopicTest')")


def test_a_table_is_as_it_was_when_it_was_first_used(spark: SparkSession, tmp_path: Path) -> None:
    def put(count: int) -> None:
        with mqstore.open(tmp_path / "store") as store:
            for number in range(count):
                store.put(Message("orders", b"%d" % number, queue_id=0))

    put(3)
    frame = spark.read.format("rocketmq").load(str(tmp_path / "store"))
    assert frame.count() == 3
    put(2)
    assert [frame.count(), frame.where("topic = 'orders'").count()] == [3, 3]
    assert spark.read.format("rocketmq").load(str(tmp_path / "store")).count() == 5


def test_partitions_are_small_when_pickled(golden: Path) -> None:
    import pickle

    source = RocketmqSource({"path": str(golden / "basic" / "store"), "splitBytes": "100000", "subscribe": "TopicTest"})
    schema: Any = source.schema()
    assert all(len(pickle.dumps(part)) < 500 for part in source.reader(schema).partitions())


def test_types_are_those_spark_expects() -> None:
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

    for view in VIEWS.values():
        assert to_arrow_schema(from_arrow_schema(view.schema), timezone="UTC").equals(view.schema)


def test_spark_finds_the_source_by_itself() -> None:
    import pyspark_rocketmq

    assert pyspark_rocketmq.DefaultSource is RocketmqSource
    assert RocketmqSource.name() == "rocketmq"


def test_jobs(spark: SparkSession, golden: Path, tmp_path: Path) -> None:
    jobs = mqstore.spark.jobs
    rebuilt = jobs.rebuild(spark, golden / "cq-lost-recovered" / "store", tmp_path / "rebuilt", split_bytes=400_000)
    assert rebuilt.records == len(expected_messages(golden, "basic"))
    assert not rebuilt.in_order
    assert jobs.audit(spark, tmp_path / "rebuilt", split_bytes=1 << 20).ok
    exported = jobs.export(spark, tmp_path / "rebuilt", tmp_path / "out", columns=["physicalOffset"])
    assert spark.read.parquet(str(tmp_path / "out")).count() == exported.rows == rebuilt.records
    with pytest.raises(mqstore.NotAStoreError):
        jobs.audit(spark, tmp_path)


def test_an_error_in_a_task_is_raised_as_what_it_is(spark: SparkSession, golden: Path, tmp_path: Path) -> None:
    store = tmp_path / "store" / "commitlog"
    store.mkdir(parents=True)
    raw = bytearray((golden / "basic" / "store" / "commitlog" / ("0" * 20)).read_bytes())
    raw[3221 + 4] ^= 1
    (store / ("0" * 20)).write_bytes(raw)
    with pytest.raises(mqstore.CorruptRecordError) as caught:
        mqstore.spark.jobs.export(spark, tmp_path / "store", tmp_path / "out")
    assert caught.value.offset == 3221
