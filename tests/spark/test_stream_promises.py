"""What the guide says of streams: what is repeated when a query dies at each stage, caps, ends, nothing left behind."""

from __future__ import annotations

import os
import re
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="needs the extra 'spark'", exc_type=ImportError)

import mqstore
from mqstore import Message
from mqstore.spark.options import ReadOptions
from mqstore.spark.stream import StreamReader
from mqstore.store.columns import SCHEMA
from spark.test_stream import fill, run, start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

BACKLOG = int(os.environ.get("MQSTORE_BACKLOG", "1000"))
CAP = BACKLOG // (100 if BACKLOG > 100_000 else 10)
MOST_GROWTH_BYTES = 64 << 20


def test_a_backlog_comes_in_capped_batches(spark: SparkSession, tmp_path: Path) -> None:
    """With MQSTORE_BACKLOG=1000000 a hundred of them, and the driver's memory stays what it was."""
    path = tmp_path / "broker"
    with mqstore.open(path) as store:
        for first in range(0, BACKLOG, 1000):
            store.put_batch(
                [Message("orders", b"%d" % (first + number), queue_id=number % 4) for number in range(1000)]
            )
    memory: list[int] = []
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", 1000)  # more than batches, with or without rows
    runtime = spark._jvm.java.lang.Runtime.getRuntime()  # type: ignore[union-attr]
    query = start(None, spark, path, tmp_path, maxOffsetsPerTrigger=CAP)
    try:
        while query.isActive and not query.awaitTermination(5):
            runtime.gc()
            memory.append(runtime.totalMemory() - runtime.freeMemory() + resident_bytes())
    finally:
        query.stop()
    counts = [one["numInputRows"] for one in query.recentProgress if one["numInputRows"]]
    assert counts == [CAP] * (BACKLOG // CAP)
    frame = spark.read.parquet(str(tmp_path / "out"))
    assert frame.count() == frame.distinct().count() == BACKLOG
    if BACKLOG > 100_000:  # fewer are over before Java has what it needs at all
        print(f"{len(counts)} batches, memory of the driver in MiB: {[one >> 20 for one in memory]}")
        assert memory[-1] - memory[1] < MOST_GROWTH_BYTES


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_topic_that_is_not_there_ends_and_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "broker"
    fill(path, {"orders": 5})
    before = set(threading.enumerate())
    assert run(spark, path, tmp_path, subscribe="none") == []
    query = start(None, spark, path, tmp_path / "second", now=False)
    query.stop()
    assert set(threading.enumerate()) <= before
    names = [str(thread.getName()) for thread in spark._jvm.Thread.getAllStackTraces().keySet()]  # type: ignore[union-attr]
    assert [name for name in names if "stream execution" in name] == []
    assert not spark.streams.active


def test_where_a_group_stands(tmp_path: Path) -> None:
    path = tmp_path / "broker"
    with mqstore.open(path) as store:
        for number in range(30):
            store.put(Message("orders", b"x", queue_id=number % 3))
        store.wait_dispatched()
        store.commit_offset("billing", "orders", 0, 4)
        store.commit_offset("billing", "orders", 1, 10)

    def begins(**options: str) -> dict[str, int]:
        reader = StreamReader(ReadOptions.parse({"path": str(path), **options}, streaming=True), SCHEMA.names)
        try:
            return reader.initialOffset()["orders"]["broker"]
        finally:
            reader.stop()

    assert begins(startingGroup="billing", startingOffsets="earliest") == {"0": 4, "1": 10, "2": 0}
    assert begins(startingGroup="billing") == {"0": 4, "1": 10, "2": 10}
    assert begins(startingGroup="nobody", startingOffsets="earliest") == {"0": 0, "1": 0, "2": 0}
    assert begins(startingGroup="billing", startingOffsets='{"orders": {"0": 7}}') == {"0": 7, "1": 10, "2": 0}
    for options in ({"startingGroup": " "}, {"startingGroup": "g", "startingTimestamp": "0"}):
        with pytest.raises(mqstore.UsageError, match="startingGroup"):
            begins(**options)
    with pytest.raises(mqstore.UsageError, match="makes no sense in a batch"):
        ReadOptions.parse({"path": str(path), "startingGroup": "billing"})


def test_columns_are_those_of_the_guide() -> None:
    from pyspark.sql.pandas.types import from_arrow_schema

    page = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
    table = page[page.index("The columns of `messages`") : page.index("`messages` needs nothing but the log")]
    said: Counter[tuple[str, str]] = Counter()
    words = {"array of string": "array<string>", "map of string to string": "map<string,string>", "long": "bigint"}
    for names, kind in re.findall(r"^\| (`.*?) \| (.*?) \|", table, re.MULTILINE):
        said.update((name, words.get(kind, kind)) for name in re.findall(r"`(\w+)`", names))
    assert said == Counter((one.name, one.dataType.simpleString()) for one in from_arrow_schema(SCHEMA))
