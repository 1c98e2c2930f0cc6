"""A streaming driver that is killed at each stage of a batch, and started again: each message is in the sink once.

The stages are those of docs/spark.md. Every test first makes sure that the query did die where it was meant to.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra 'spark'", exc_type=ImportError)

import mqstore
import mqstore.spark
from mqstore.spark.sink import SinkOptions, StreamWriter
from mqstore.spark.source import RocketmqSource
from spark.test_stream import TIMEOUT_S, WHERE, arrived, drop_last_commit, fill, stored, wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = [pytest.mark.spark, pytest.mark.slow]

MESSAGES, CAP = 80, 50
DRIVER = """
import sys
from spark.test_stream_stages import drive
drive(*sys.argv[1:])
"""


def start(spark: SparkSession, source: Path, place: Path, sink: str, stage: str = "") -> StreamingQuery:
    """A query into ``sink`` that hangs at ``stage`` for good; without one it takes what there is and ends."""
    frame = spark.readStream.format("rocketmq").options(
        startingOffsets="earliest", maxOffsetsPerTrigger=CAP, minPartitions=3
    )
    rows = frame.load(str(source)).select(*WHERE)
    if stage in ("planned", "half read"):
        rows = rows.mapInArrow(hanging(place, stage), rows.schema)
    if sink == "rocketmq":
        rows = rows.selectExpr("'copies' AS topic", f"to_json(struct({', '.join(WHERE)})) AS body")
    writer = rows.writeStream.option("checkpointLocation", str(place / "checkpoint"))
    # With a trigger of its own a query takes one batch and then waits.
    writer = writer.trigger(processingTime="10000 days") if stage else writer.trigger(availableNow=True)
    if sink == "foreachBatch":
        return writer.foreachBatch(writing(place, stage)).start()
    return writer.format(sink).start(str(place / "out"))


def hanging(place: Path, stage: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Passes batches on. "planned": no task gets as far as its first; "half read": one task ends behind its first."""

    def passes(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            if stage == "planned":
                hang(place)
            yield batch
            try:
                (place / "chosen").touch(exist_ok=False)
            except FileExistsError:
                continue
            wait_until((place / "another task is through").exists)
            hang(place)
        (place / "another task is through").touch()

    return passes


def writing(place: Path, stage: str) -> Callable[[DataFrame, int], None]:
    """A batch goes into a directory of its own, so that one that comes again takes its own place."""

    def write(batch: DataFrame, number: int) -> None:
        batch.write.mode("overwrite").parquet(str(place / "out" / f"batch={number}"))
        if stage == "written":
            hang(place)

    return write


def hang(place: Path) -> None:
    (place / "hangs").touch()
    time.sleep(10 * TIMEOUT_S)


class HangingSource(RocketmqSource):
    """The sink hangs when it has written a batch, before Spark knows."""

    def streamWriter(self, schema: Any, overwrite: bool) -> StreamWriter:  # noqa: N802
        return HangingWriter(SinkOptions.parse(self.options, schema, overwrite))


class HangingWriter(StreamWriter):
    def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803
        super().commit(messages, batchId)
        hang(self._options.store.parent)


def drive(source: str, place: str, sink: str, stage: str) -> None:
    """What the process does that is killed."""
    spark = mqstore.spark.session("local[2]")
    spark.dataSource.register(HangingSource if stage == "written" else RocketmqSource)
    start(spark, Path(source), Path(place), sink, stage).awaitTermination()


def kill_at(stage: str, sink: str, source: Path, place: Path) -> None:
    tests = str(Path(__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([tests, os.environ.get("PYTHONPATH", "")])}
    log = place / "driver.log"
    with open(log, "wb") as output:
        child = subprocess.Popen(
            [sys.executable, "-c", DRIVER, str(source), str(place), sink, stage],
            cwd=tests, env=environment, stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip
        there = (place / "checkpoint" / "commits" / "0") if stage == "noted" else (place / "hangs")
        try:
            wait_until(lambda: child.poll() is not None or there.exists())
            assert child.poll() is None, log.read_text()[-2000:]
        finally:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()


def batches_in(place: Path, log: str) -> list[str]:
    directory = place / "checkpoint" / log
    return sorted(path.name for path in directory.iterdir() if path.name.isdecimal()) if directory.exists() else []


def in_sink(spark: SparkSession, place: Path, sink: str) -> Counter[tuple[Any, ...]]:
    if sink != "rocketmq":
        return arrived(spark, place)
    with mqstore.inspect(place / "out") as view:
        rows = [json.loads(record.body) for record in view.scan()]
    return Counter(tuple(row[name] for name in WHERE) for row in rows)


@pytest.mark.parametrize(
    ("stage", "sink", "dropped", "repeated"),
    [
        ("planned", "parquet", False, [50, 30]),
        ("half read", "parquet", False, [50, 30]),
        ("written", "foreachBatch", False, [50, 30]),
        ("written", "rocketmq", False, [50, 30]),
        ("noted", "rocketmq", False, [30]),
        ("noted", "parquet", True, [30]),  # this sink reads nothing of a batch that it has
    ],
)
def test_a_driver_killed(
    spark: SparkSession, tmp_path: Path, stage: str, sink: str, dropped: bool, repeated: list[int]
) -> None:
    source = tmp_path / "broker"
    fill(source, {"orders": 60, "returns": 20})
    everything = stored(source)
    kill_at(stage, sink, source, tmp_path)

    assert batches_in(tmp_path, "offsets") == ["0"]
    assert batches_in(tmp_path, "commits") == (["0"] if stage == "noted" else [])
    if stage in ("written", "noted"):
        before = in_sink(spark, tmp_path, sink)
        assert before.total() == CAP
        assert before <= everything
    else:
        assert not (tmp_path / "out" / "_spark_metadata" / "0").exists()
        for mark in ("chosen", "another task is through"):
            assert (tmp_path / mark).exists() == (stage == "half read")
    if dropped:
        drop_last_commit(tmp_path)
        assert batches_in(tmp_path, "commits") == []

    query = start(spark, source, tmp_path, sink)
    try:
        assert query.awaitTermination(TIMEOUT_S)
    finally:
        query.stop()
    assert [one["numInputRows"] for one in query.recentProgress if one["numInputRows"]] == repeated
    assert batches_in(tmp_path, "commits") == ["0", "1"]
    assert in_sink(spark, tmp_path, sink) == everything
