"""The stream of ``kafkalog``: limits, restarts, new partitions, retention under a running query, a killed driver."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="needs the extra 'spark'", exc_type=ImportError)

from mqstore.spark.kafka_options import KafkaReadOptions
from mqstore.spark.kafka_source import StreamReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = [pytest.mark.spark, pytest.mark.slow]

#: Base offsets of the golden partition's segments; it ends at 1412.
SEGMENTS = (0, 470, 939, 1393)
TIMEOUT_S = 240


@pytest.fixture
def growing(golden_kafka: Path, tmp_path: Path) -> Path:
    """A data directory to which segments of the golden partition ``plain`` come one after the other."""
    target = tmp_path / "growing"
    target.mkdir()
    shutil.copy(golden_kafka / "meta.properties", target)
    return target


def grow(golden_kafka: Path, target: Path, *bases: int, name: str = "plain-0") -> None:
    (target / name).mkdir(exist_ok=True)
    for base in bases:
        # The log last: without it the others are no segment.
        for path in sorted((golden_kafka / "plain-0").glob(f"{base:020d}.*"), key=lambda path: path.suffix == ".log"):
            shutil.copy(path, target / name)


def start(spark: SparkSession, source: Path, place: Path, *, now: bool = True, **options: object) -> StreamingQuery:
    """A query from ``source`` into Parquet files, each record of which is there once."""
    texts = {"startingOffsets": "earliest", **{name: str(value) for name, value in options.items()}}
    frame = spark.readStream.format("kafkalog").options(**texts).load(str(source))
    trigger = {"availableNow": True} if now else {"processingTime": "100 milliseconds"}
    writer = frame.select("topic", "partition", "offset", "value").writeStream.format("parquet")
    return writer.option("checkpointLocation", str(place / "checkpoint")).trigger(**trigger).start(str(place / "out"))


def run(spark: SparkSession, source: Path, place: Path, **options: object) -> list[int]:
    """Run a query until it has taken what there is; how many records each batch had."""
    query = start(spark, source, place, **options)
    try:
        assert query.awaitTermination(TIMEOUT_S)
    finally:
        query.stop()
    return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]


def offsets(spark: SparkSession, place: Path, topic: str = "plain") -> list[int]:
    frame = spark.read.parquet(str(place / "out"))
    return sorted(row["offset"] for row in frame.where(frame["topic"] == topic).select("offset").toArrow().to_pylist())


def test_a_limit_is_kept_and_nothing_lost(
    spark: SparkSession, golden_kafka: Path, growing: Path, tmp_path: Path
) -> None:
    grow(golden_kafka, growing, *SEGMENTS)
    grow(golden_kafka, growing, 0, name="other-3")
    batches = run(spark, growing, tmp_path, maxOffsetsPerTrigger=400)
    assert len(batches) >= (1412 + 470) // 400
    assert max(batches) <= 400 + 2
    assert offsets(spark, tmp_path) == list(range(1412))
    assert offsets(spark, tmp_path, "other") == list(range(470))


def test_goes_on_from_its_checkpoint(spark: SparkSession, golden_kafka: Path, growing: Path, tmp_path: Path) -> None:
    grow(golden_kafka, growing, 0)
    assert sum(run(spark, growing, tmp_path)) == 470
    grow(golden_kafka, growing, 470)
    assert sum(run(spark, growing, tmp_path, startingOffsets="latest")) == 469
    assert run(spark, growing, tmp_path) == []
    grow(golden_kafka, growing, 939, 1393)
    grow(golden_kafka, growing, 0, name="plain-1")
    assert sum(run(spark, growing, tmp_path)) == 1412 - 939 + 470
    assert offsets(spark, tmp_path) == sorted([*range(1412), *range(470)])


def test_latest_is_where_a_stream_begins(
    spark: SparkSession, golden_kafka: Path, growing: Path, tmp_path: Path
) -> None:
    grow(golden_kafka, growing, 0)
    query = start(spark, growing, tmp_path, now=False, startingOffsets="latest")
    try:
        wait_until(lambda: bool(query.lastProgress))
        grow(golden_kafka, growing, 470)
        grow(golden_kafka, growing, 0, name="new-7")
        wait_until(lambda: sum(one["numInputRows"] for one in query.recentProgress) >= 469 + 470)
        assert query.lastProgress is not None
        assert query.exception() is None
    finally:
        query.stop()
    assert offsets(spark, tmp_path) == list(range(470, 939))
    assert offsets(spark, tmp_path, "new") == list(range(470))


def wait_until(condition: object) -> None:
    assert callable(condition)
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_retention_under_a_query(spark: SparkSession, golden_kafka: Path, growing: Path, tmp_path: Path) -> None:
    grow(golden_kafka, growing, 0)
    assert sum(run(spark, growing, tmp_path)) == 470
    grow(golden_kafka, growing, 939, 1393)  # and 470 has been removed in between
    for path in (growing / "plain-0").glob(f"{0:020d}.*"):
        path.unlink()
    with pytest.raises(Exception, match="data may have been lost"):
        run(spark, growing, tmp_path)
    run(spark, growing, tmp_path, failOnDataLoss="false")
    assert offsets(spark, tmp_path) == [*range(470), *range(939, 1412)]
    shutil.rmtree(growing / "plain-0")
    grow(golden_kafka, growing, 0, name="other-0")
    with pytest.raises(Exception, match="is gone"):
        run(spark, growing, tmp_path)


def test_what_comes_back_is_not_read_again(golden_kafka: Path, growing: Path, tmp_path: Path) -> None:
    grow(golden_kafka, growing, 0, 470)
    grow(golden_kafka, growing, 0, name="other-0")
    for limit in ({}, {"maxOffsetsPerTrigger": "1000"}):

        def reader(**options: str) -> StreamReader:
            texts = {"path": str(growing), "startingOffsets": "earliest", "failOnDataLoss": "false", **options}
            return StreamReader(KafkaReadOptions.parse(texts, streaming=True), ["offset"])

        one = reader(**limit)
        start = one.initialOffset()
        for _ in range(3):
            start = one.latestOffset(start, one.getDefaultReadLimit())
        assert start == {"other": {"0": 470}, "plain": {"0": 939}}
        (growing / "plain-0").rename(tmp_path / "away")
        assert one.latestOffset(start, one.getDefaultReadLimit()) == start
        assert one.partitions(start, start) == []
        one.prepareForTriggerAvailableNow()
        shutil.copytree(tmp_path / "away", growing / "plain-0")
        assert one.latestOffset(start, one.getDefaultReadLimit()) == start
        shutil.rmtree(tmp_path / "away")
        one.stop()
        narrow = reader(failOnDataLoss="true", subscribe="other", **limit)
        assert narrow.latestOffset(start, narrow.getDefaultReadLimit()) == start
        # A batch that is done again has what it had, as far as that is there.
        begin = {"other": {"0": 0}, "plain": {"0": 0}}
        assert rows(narrow, begin, start) == 470 + 939
        (growing / "plain-0").rename(tmp_path / "away")
        assert rows(narrow, begin, start) == 470
        (tmp_path / "away").rename(growing / "plain-0")
        narrow.stop()


def rows(reader: StreamReader, begin: dict[str, dict[str, int]], end: dict[str, dict[str, int]]) -> int:
    return sum(batch.num_rows for part in reader.partitions(begin, end) for batch in reader.read(part))


DRIVER = """
import sys
import mqstore.spark
from pathlib import Path
from spark.test_kafka_stream import start
session = mqstore.spark.session("local[2]")
mqstore.spark.register(session)
start(session, Path(sys.argv[1]), Path(sys.argv[2]), now=False, maxOffsetsPerTrigger=40).awaitTermination()
"""


def test_a_killed_driver(spark: SparkSession, golden_kafka: Path, growing: Path, tmp_path: Path) -> None:
    grow(golden_kafka, growing, *SEGMENTS)
    command = [sys.executable, "-c", DRIVER, str(growing), str(tmp_path)]
    with open(tmp_path / "driver.log", "wb") as log:
        child = subprocess.Popen(command, cwd=Path(__file__).parents[1], stdout=log, stderr=log, start_new_session=True)
        try:
            wait_until(lambda: child.poll() is not None or len(list((tmp_path / "out").glob("*.parquet"))) >= 2)
            assert child.poll() is None, (tmp_path / "driver.log").read_text()[-2000:]
        finally:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    rest = run(spark, growing, tmp_path)
    assert sum(rest) < 1412
    assert offsets(spark, tmp_path) == list(range(1412))
