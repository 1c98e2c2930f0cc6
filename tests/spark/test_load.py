"""``load``: a table into a store, the same bytes whatever the partitions, as a live store writes them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra 'spark'", exc_type=ImportError)

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import mqstore
import mqstore.spark
from mqstore import Message, StoreConfig
from mqstore.spark.jobs import loading
from mqstore.spark.telling import refusing
from mqstore.store.engine import Engine
from spark.support import files_below, run_here
from store.support import findings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

FIRST_MS = 1_700_000_000_000
CONFIG = StoreConfig(
    mapped_file_size_commit_log=1 << 16,
    mapped_file_size_consume_queue=20 * 100,
    max_hash_slot_num=100,
    max_index_num=400,
)


def message_of(number: int) -> dict[str, Any]:
    return {
        "topic": ("orders", "returns", "rare")[0 if number % 7 else 1 + number % 2],
        "body": b"%05d " % number * (number * 37 % 300),
        "tags": "paid" if number % 3 else None,
        "keys": [f"o-{number}", f"c-{number % 10}"] if number % 5 else None,
        "properties": {"number": str(number), "region": "eu"} if number % 2 else None,
        "delayLevel": 3 if number % 50 == 0 else None,
        "queueId": number % 4,
        "storeTimestamp": FIRST_MS + number,
    }


SCHEMA = (
    "topic string, body binary, tags string, keys array<string>, properties map<string,string>, delayLevel int, "
    "queueId int, storeTimestamp long"
)


def table(spark: SparkSession, numbers: list[int], parts: int = 3) -> DataFrame:
    return spark.createDataFrame([message_of(number) for number in numbers], SCHEMA).repartition(parts)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same messages put one by one into a running store, at other times."""
    path = tmp_path_factory.mktemp("live") / "store"
    with mqstore.open(path, config=CONFIG) as store:
        for number in range(1500):
            row = message_of(number)
            store.put(
                Message(row["topic"], row["body"], tags=row["tags"], keys=row["keys"] or (),
                        properties=row["properties"] or {}, queue_id=row["queueId"],
                        delay_level=row["delayLevel"] or 0, born_timestamp_ms=row["storeTimestamp"])
            )  # fmt: skip
    return path


def fields_of(path: Path) -> list[tuple[Any, ...]]:
    """Everything of a store's records but their store time, and their places."""
    with mqstore.inspect(path) as view:
        return [one._replace(store_timestamp_ms=0) for one in view.scan()] + list(view.blanks())


def test_what_a_live_store_writes(spark: SparkSession, live: Path, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    result = mqstore.spark.jobs.load(
        spark,
        table(spark, list(range(1500))),
        tmp_path / "s",
        config=CONFIG,
        on_progress=lambda *step: told.append(step),
    )
    assert list(result.stage_seconds) == ["sort", "measure", "write", "derive"]
    assert [done for done, _ in told].count(0) >= 4
    assert sum(done == total for done, total in told) >= 4
    assert all(0 <= done <= total for done, total in told)
    assert fields_of(tmp_path / "s") == fields_of(live)
    with mqstore.inspect(live) as old, mqstore.inspect(tmp_path / "s") as new:
        assert new.queues() == old.queues()
        assert len(list(new.blanks())) >= 5
        assert (result.records, result.log_bytes) == (1500, old.log_end)
        assert result.units == 1500
        assert {name: one.write_queue_nums for name, one in new.settings.topics.items()} == {
            name: one.write_queue_nums for name, one in old.settings.topics.items()
        }
    assert mqstore.spark.jobs.audit(spark, tmp_path / "s").ok
    assert findings(tmp_path / "s") == []
    with mqstore.open(tmp_path / "s", config=CONFIG) as store:
        assert store.query("orders", "o-1").messages[0].body == message_of(1)["body"]
        store.put(Message("orders", b"and one more", queue_id=0))
    assert findings(tmp_path / "s") == []
    assert not list(tmp_path.glob(".*"))


def test_the_same_bytes_whatever_the_partitions(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = list(range(600))
    mqstore.spark.jobs.load(spark, table(spark, numbers, 1), tmp_path / "one", config=CONFIG)
    monkeypatch.setattr(loading, "run_tasks", run_here)  # each task twice, as when an attempt is lost
    spark.conf.set("spark.sql.shuffle.partitions", 7)
    try:
        mqstore.spark.jobs.load(spark, table(spark, numbers[::-1], 5), tmp_path / "two", config=CONFIG)
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", 4)
    one, two = files_below(tmp_path / "one"), files_below(tmp_path / "two")
    assert one.keys() == two.keys()
    assert [name for name in one if one[name] != two[name] and not name.startswith("config/")] == []


def test_only_topic_and_body(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame([(f"body {number}",) for number in range(200)], "body string")
    frame = frame.selectExpr("'orders' AS topic", "body")
    for name in ("a", "b"):
        mqstore.spark.jobs.load(spark, frame, tmp_path / name, config=CONFIG, store_timestamp_ms=FIRST_MS)
    with mqstore.inspect(tmp_path / "a") as view:
        assert {one.store_timestamp_ms for one in view.scan()} == {one.born_timestamp_ms for one in view.scan()}
        assert {one.store_timestamp_ms for one in view.scan()} == {FIRST_MS}
        assert len(view.queues("orders")) == CONFIG.default_topic_queue_nums
    one, two = (files_below(tmp_path / name / "commitlog") for name in ("a", "b"))
    assert one == two


def test_the_new_store_is_opened_once(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened, begin = [], Engine.__init__

    def count(engine: Engine, path: Path, *rest: Any) -> None:
        opened.append(path.name)
        begin(engine, path, *rest)

    monkeypatch.setattr(Engine, "__init__", count)
    loading.load(spark, table(spark, list(range(20))), tmp_path / "out", config=CONFIG)
    assert opened == [".out.partial"]
    with mqstore.inspect(tmp_path / "out") as view:
        assert {"orders", "returns", "rare"} <= set(view.settings.topics)


def test_an_empty_table(spark: SparkSession, tmp_path: Path) -> None:
    result = mqstore.spark.jobs.load(spark, table(spark, []), tmp_path / "s", config=CONFIG)
    assert (result.records, result.log_bytes) == (0, 0)
    assert findings(tmp_path / "s") == []


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ("'a' AS topic", "no column body"),
        ("'a' AS topic, 'b' AS body, 1 AS offset", "no column offset"),
        ("'a' AS topic, 5 AS body", "column body has a type"),
        ("'a' AS topic, 'b' AS body, 'c' AS properties", "column properties has a type"),
        ("'a b' AS topic, 'b' AS body", "illegal character"),
        ("'a' AS topic, CAST(NULL AS string) AS body", "no body"),
        ("CAST(NULL AS string) AS topic, 'b' AS body", r"has no topic.*null in column topic, beside body b'b'"),
        ("'a' AS topic, repeat('b', 70000) AS body", "does not fit into one commit log file"),
        (
            "repeat('a', 127) AS topic, repeat('b', 65220) AS body, 1 AS delayLevel",
            "does not fit into one commit log file",  # not when it is delivered
        ),
        ("'a' AS topic, 'b' AS body, -1 AS queueId", "queue_id is out of range"),
        ("'a' AS topic, 'b' AS body, 0L AS storeTimestamp", "storeTimestamp is out of range"),
        ("'a' AS topic, 'b' AS body, 'c' AS body", "a column is there twice"),
        ("'a' AS topic, 'b' AS body, 'abc' AS queueId", "a value of the table cannot be meant"),
        ("'a' AS topic, 'b' AS body, 8589934593L AS queueId", "a value of the table cannot be meant"),
    ],
)
def test_refused(spark: SparkSession, tmp_path: Path, columns: str, complaint: str) -> None:
    frame = spark.range(1).selectExpr(*columns.split(", ")) if "(" not in columns else spark.sql(f"SELECT {columns}")
    with pytest.raises(mqstore.MqstoreError, match=complaint):
        mqstore.spark.jobs.load(spark, frame, tmp_path / "s", config=CONFIG)
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_the_table_that_cannot_be_read(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "100% table"
    spark.range(4).selectExpr("'a' AS topic", "CAST(id AS string) AS body").repartition(2).write.parquet(str(table))
    bad = max(table.glob("*.parquet"))
    bad.write_bytes(b"no such table")
    with pytest.raises(mqstore.StoreIOError, match="could not read a file of the table") as caught:
        mqstore.spark.jobs.load(
            spark, spark.read.schema("topic string, body string").parquet(str(table)), tmp_path / "out"
        )
    assert caught.value.path == str(bad)
    with pytest.raises(mqstore.StoreIOError, match="could not read a file of the table"), refusing("Spark cannot read"):
        spark.read.parquet(str(bad))
    assert [path.name for path in tmp_path.iterdir()] == [table.name]


@pytest.mark.parametrize(("path", "option"), [("", "false"), ("table", "maybe")])
def test_what_spark_calls_an_illegal_argument(spark: SparkSession, tmp_path: Path, path: str, option: str) -> None:
    pq.write_table(pa.table({"topic": ["t"], "body": ["b"]}), tmp_path / "table")
    with pytest.raises(mqstore.UsageError, match="Spark cannot read"), refusing("Spark cannot read"):
        spark.read.option("mergeSchema", option).parquet(path and str(tmp_path / path))


def test_large_bodies_are_read_one_by_one(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sorted table has pages of about a megabyte, not of a hundred rows: a page is in memory as a whole.

    And few large ones among many that are small are not read by the thousand, as their average might have it.
    """
    held, rows_of_batches = [], []

    def look(spool: Path) -> None:
        for path in spool.glob("part-*.parquet"):
            before = pa.total_allocated_bytes()
            with pq.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False) as file:
                for batch in loading._batches(file):
                    held.append(pa.total_allocated_bytes() - before)
                    rows_of_batches.append(batch.num_rows)

    monkeypatch.setattr(loading.copying, "remove_tree", look)
    large = "unhex(repeat(sha2(string(id), 512), 8192)) body"  # half a MiB
    for few, small in ((30, 0), (60, 20_000)):
        rows = spark.range(0, few, 1, 1).selectExpr("'T' topic", "10L + id storeTimestamp", large)
        rows = rows.unionAll(
            spark.range(0, small, 1, 1).selectExpr("'T' topic", "1L + id % 50 storeTimestamp", "unhex('00') body")
        )
        mqstore.spark.jobs.load(spark, rows, tmp_path / f"s{small}")
        assert sum(rows_of_batches) == few + small
        assert max(held) < 16 << 20
        held.clear()
        rows_of_batches.clear()


def test_rows_are_taken_by_the_largest_of_them_together() -> None:
    few_large = np.full(5000, 100)
    few_large[1001] = 5 << 20
    some_large = np.full(5000, 100)
    some_large[1000:1100] = 1 << 20
    for sizes, rows in (
        (np.zeros(0, np.int64), 1024), (np.full(5000, 100), 1024), (np.full(5000, 8 << 10), 512),
        (few_large, 1024), (some_large, 4), (np.full(3, 9 << 20), 1),
    ):  # fmt: skip
        assert loading._rows_at_a_time(sizes.astype(np.int64)) == rows
