"""The stream of ``rocketmq`` on Spark: limits, restarts, new queues, retention."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra 'spark'", exc_type=ImportError)

import mqstore
from mqstore import Message

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = [pytest.mark.spark, pytest.mark.slow]

TIMEOUT_S = 240
SIZES = {"mapped_file_size_commit_log": 1 << 16, "max_hash_slot_num": 100, "max_index_num": 400}
WHERE = ("brokerName", "topic", "queueId", "queueOffset")


def fill(path: Path, topics: dict[str, int], body: bytes = b"x" * 100) -> None:
    with mqstore.open(path, **SIZES) as store:
        for topic, count in topics.items():
            for number in range(count):
                store.put(Message(topic, body, queue_id=number % 2))


def stored(*paths: Path) -> Counter[tuple[Any, ...]]:
    found: Counter[tuple[Any, ...]] = Counter()
    for path in paths:
        with mqstore.inspect(path) as view:
            found.update((path.name, one.topic, one.queue_id, one.queue_offset) for one in view.scan())
    return found


def start(
    frame_of: Callable[[DataFrame], DataFrame] | None,
    spark: SparkSession,
    source: object,
    place: Path,
    **options: object,
) -> StreamingQuery:
    """A query from ``source`` into Parquet files, in which a batch that is written again is there once."""
    now = bool(options.pop("now", True))
    texts = {"startingOffsets": "earliest", **{name: str(value) for name, value in options.items()}}
    frame = spark.readStream.format("rocketmq").options(**texts).load(str(source))
    frame = (frame_of or (lambda same: same))(frame.select(*WHERE))
    trigger = {"availableNow": True} if now else {"processingTime": "100 milliseconds"}
    writer = frame.writeStream.format("parquet").option("checkpointLocation", str(place / "checkpoint"))
    return writer.trigger(**trigger).start(str(place / "out"))


def run(spark: SparkSession, source: object, place: Path, **options: object) -> list[dict[str, Any]]:
    """Run a query until it has taken what there is; the progress of its batches."""
    query = start(None, spark, source, place, **options)
    try:
        assert query.awaitTermination(TIMEOUT_S)
    finally:
        query.stop()
    return [json.loads(progress.json) for progress in query.recentProgress if progress["numInputRows"]]


def arrived(spark: SparkSession, place: Path) -> Counter[tuple[Any, ...]]:
    rows = spark.read.parquet(str(place / "out")).toArrow().to_pylist()
    return Counter(tuple(row[name] for name in WHERE) for row in rows)


def drop_last_commit(place: Path) -> None:
    commits = [path for path in (place / "checkpoint" / "commits").iterdir() if path.name.isdecimal()]
    last = max(commits, key=lambda path: int(path.name))
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)


class FailsOnce:
    """Passes batches on; one task dies in the middle."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            yield batch
            if not self.marker.exists():
                self.marker.touch()
                raise RuntimeError("died in the middle")


def test_each_message_once_whatever_happens(spark: SparkSession, tmp_path: Path) -> None:
    stores = [tmp_path / "stores" / "a", tmp_path / "stores" / "b"]
    fill(stores[0], {"orders": 700})
    fill(stores[1], {"orders": 200, "returns": 100})
    source = tmp_path / "stores" / "*"
    dies = FailsOnce(tmp_path / "died")
    query = start(lambda frame: frame.mapInArrow(dies, frame.schema), spark, source, tmp_path, maxOffsetsPerTrigger=250)
    with pytest.raises(Exception, match="died in the middle"):
        query.awaitTermination(TIMEOUT_S)
    query.stop()
    progress = run(spark, source, tmp_path, maxOffsetsPerTrigger=250)
    assert [one["numInputRows"] for one in progress] == [250] * 4
    last = progress[-1]["sources"][0]
    assert last["endOffset"] == last["latestOffset"]
    assert last["endOffset"]["orders"] == {"a": {"0": 350, "1": 350}, "b": {"0": 100, "1": 100}}
    assert arrived(spark, tmp_path) == stored(*stores)

    drop_last_commit(tmp_path)  # as when the driver died between the sink and the checkpoint
    fill(stores[0], {"orders": 50, "new": 30})
    run(spark, source, tmp_path, startingOffsets="latest")
    assert arrived(spark, tmp_path) == stored(*stores)
    assert run(spark, source, tmp_path) == []


def test_what_comes_and_goes_under_a_running_query(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "broker"
    fill(path, {"orders": 20})
    query = start(None, spark, path, tmp_path, now=False, failOnDataLoss="false")
    try:
        wait_until(lambda: received(query) == 20)
        fill(path, {"orders": 5, "new": 7})
        wait_until(lambda: received(query) == 32)
        assert query.exception() is None
    finally:
        query.stop()
    before = stored(path)
    assert arrived(spark, tmp_path) == before
    fill(path, {"orders": 1000})
    min((path / "commitlog").iterdir()).unlink()
    with mqstore.inspect(path) as view:
        begin = view.queues("orders")[0].min_offset
    with pytest.raises(Exception, match=f"messages 13 to {begin - 1} of queue orders/0 of broker are gone"):
        run(spark, path, tmp_path)
    run(spark, path, tmp_path, failOnDataLoss="false")
    assert arrived(spark, tmp_path) == before + stored(path)


def test_a_rebuild_in_place_under_a_running_query(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "broker"
    fill(path, {"orders": 20})
    query = start(None, spark, path, tmp_path, now=False)
    try:
        wait_until(lambda: received(query) == 20)
        mqstore.rebuild(path, None, in_place=True)
        fill(path, {"orders": 5})
        wait_until(lambda: received(query) == 25)
    finally:
        query.stop()
    assert arrived(spark, tmp_path) == stored(path)


def received(query: StreamingQuery) -> int:
    return sum(one["numInputRows"] for one in query.recentProgress)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
