"""Rows that Java makes once: ``mqstore.spark.read``, beside the source whose rows they are."""

from __future__ import annotations

import functools
import pickle
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

pytest.importorskip("pyspark", reason="needs the extra 'spark'")

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

import mqstore.spark
from mqstore.errors import NotAStoreError, UsageError
from mqstore.spark import frames, jobs, tasks
from mqstore.spark.source import VIEWS, RocketmqSource
from spark.support import ANSWERED, expected_messages, flip_a_body, rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

NO_SPARK: Any = None
TINY = {"splitBytes": 20_000, "maxPartitions": 8}


def test_every_row_of_every_store(spark: SparkSession, golden: Path) -> None:
    frame = mqstore.spark.read(spark, [golden / name / "store" for name in ANSWERED], options=TINY)
    expected = [row for name in sorted(ANSWERED) for row in expected_messages(golden, name, f"{name}/store")]
    assert rows_of(frame.toArrow()) == expected
    theirs = RocketmqSource({"path": str(golden / "basic" / "store")}).schema()
    assert [(one.name, one.dataType) for one in frame.schema] == [(one.name, one.dataType) for one in theirs]
    assert [one.name for one in frame.schema if one.nullable] == ["tags"]


@pytest.mark.parametrize("view", VIEWS)
def test_views_are_those_of_the_source(spark: SparkSession, golden: Path, view: str) -> None:
    mqstore.spark.register(spark)
    store = golden / ("broker" if view == "progress" else "basic") / "store"
    ours = mqstore.spark.read(spark, store, options={"view": view})
    theirs = spark.read.format("rocketmq").option("view", view).load(str(store))
    assert ours.columns == theirs.columns
    assert ours.count() == theirs.count() > 0
    if view != "messages":  # maps cannot be compared
        assert ours.exceptAll(theirs).count() == theirs.exceptAll(ours).count() == 0


def test_rows_are_not_copied_again(spark: SparkSession, golden: Path) -> None:
    mqstore.spark.register(spark)
    store = golden / "basic" / "store"

    def plan(frame: DataFrame) -> str:
        return str(frame._jdf.queryExecution().executedPlan())

    assert "Project" in plan(spark.read.format("rocketmq").load(str(store)))
    assert "Project" not in plan(mqstore.spark.read(spark, store))


def test_rows_and_columns_are_chosen(spark: SparkSession, golden: Path) -> None:
    expected = [row for row in expected_messages(golden, "basic") if row["topic"] == "TopicTest" and row["tags"]]
    tag = expected[0]["tags"]
    frame = mqstore.spark.read(
        spark,
        str(golden / "bas*" / "store"),
        options={"subscribe": "TopicTest", "where": tag, "pLAN": "queues", "minPartitions": 3},
        columns=["queueOffset", "TOPIC", "tags"],
    )
    assert frame.columns == ["queueOffset", "topic", "tags"]
    wanted = [(row["queueOffset"], "TopicTest", tag) for row in expected if row["tags"] == tag]
    assert sorted(tuple(row) for row in frame.collect()) == sorted(wanted)
    assert wanted
    assert frame.where("queueOffset < 0").count() == 0
    assert len(frame.limit(1).collect()) == 1


def test_nothing_to_read_is_an_empty_table(spark: SparkSession, golden: Path) -> None:
    frame = mqstore.spark.read(spark, golden / "basic" / "store", options={"subscribe": "nobody"})
    assert frame.collect() == []
    assert "body" in frame.columns


MADE: list[int] = []


class Part(NamedTuple):
    """Notes where it is made from its pickled form."""

    number: int

    def __reduce__(self) -> tuple[Any, ...]:
        return note_part, (self.number,)


def note_part(number: int) -> Part:
    MADE.append(number)
    return Part(number)


class OneRow:
    """Stands in for a reader."""

    def read(self, partition: InputPartition) -> Iterator[int]:
        yield partition.value.number


def test_a_task_makes_its_own_part_alone() -> None:
    """All are handed to each, and together they may be as large as what is read."""
    numbers = [pa.record_batch({"id": [2]})]
    parts = [Part(number) for number in range(4)]
    for task in (frames._Tasks(OneRow(), parts), tasks._Mapper(tuple, parts)):  # type: ignore[arg-type]
        MADE.clear()
        assert len(list(pickle.loads(pickle.dumps(task))(numbers))) == 1
        assert MADE == [2]


def test_what_it_does_not_take(spark: SparkSession, golden: Path, tmp_path: Path) -> None:
    store = golden / "basic" / "store"
    for options in (
        {"path": "x"},
        {"Paths": "x"},
        {"pushFilters": False},
        {"splitByte": 3},
        {"minOffsetsPerTrigger": 1},
    ):
        with pytest.raises(UsageError):
            mqstore.spark.read(spark, store, options=options)
    with pytest.raises(UsageError, match="option columns is not taken here"):
        mqstore.spark.read(spark, store, options={"columns": "topic"}, columns=["body"])
    assert mqstore.spark.read(spark, store, options={"columns": "body,topic"}).columns == ["body", "topic"]
    assert mqstore.spark.read(spark, store, columns="body, topic").columns == ["body", "topic"]
    for columns in (["topics"], [], ["topic", "topic"]):
        with pytest.raises(UsageError):
            mqstore.spark.read(spark, store, columns=columns)
    with pytest.raises(UsageError, match="no store to read") as caught:
        mqstore.spark.read(spark, [])
    assert caught.value.hint == "name one or more in source"
    for source in (b"store", 5, None, [store, b"store"], [7], ""):
        with pytest.raises(UsageError):
            mqstore.spark.read(spark, source)
    with pytest.raises(NotAStoreError):
        mqstore.spark.read(spark, tmp_path)


@pytest.mark.parametrize("source", [b"store", [b"store"], 5, None, [5], "", ["store", None]], ids=repr)
def test_what_names_no_store(source: Any, tmp_path: Path) -> None:
    for use in (mqstore.spark.read, jobs.stats, jobs.lag, functools.partial(jobs.export, output=tmp_path / "out")):
        with pytest.raises(UsageError, match=r"the path names no directory|paths of stores are none"):
            use(NO_SPARK, source)


@pytest.mark.parametrize("columns", [b"topic", 5, [5], [None]], ids=repr)
def test_what_names_no_column(columns: Any, golden: Path) -> None:
    with pytest.raises(UsageError, match=r"no such column|columns are none|one of columns is not text"):
        mqstore.spark.read(NO_SPARK, golden / "basic" / "store", columns=columns)


def test_damage_is_told_as_by_the_source(spark: SparkSession, golden: Path, tmp_path: Path) -> None:
    shutil.copytree(golden / "basic" / "store", tmp_path / "store")
    expected = expected_messages(golden, "basic")
    bad = flip_a_body(tmp_path / "store", expected)
    with pytest.raises(
        Exception, match=rf"hint: onCorruptRecord=skip .* offset {bad['physicalOffset']}; found BODY_CRC"
    ):
        mqstore.spark.read(spark, tmp_path / "store").collect()
    kept = mqstore.spark.read(spark, tmp_path / "store", options={"onCorruptRecord": "keep"})
    assert [row.physicalOffset for row in kept.where("corruptReason IS NOT NULL").collect()] == [bad["physicalOffset"]]
    assert kept.count() == len(expected)


def test_the_last_tasks_share_what_is_left_of_the_log(
    spark: SparkSession, golden: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqstore.spark.pieces.LEAST_SHARE_BYTES", 1000)
    store, expected = golden / "crashed-recovered" / "store", expected_messages(golden, "crashed-recovered")
    for options, number in (({}, 6), ({"maxPartitions": 100}, 5)):
        frame = mqstore.spark.read(spark, store, options=options)
        assert frame.rdd.getNumPartitions() == number
        assert rows_of(frame.toArrow()) == expected
