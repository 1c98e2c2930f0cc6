"""Faults that users of other connectors reported: rows one by one, batches on the driver, small files, bad keys."""

from __future__ import annotations

import json
import pickle
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra 'spark'", exc_type=ImportError)

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.datasource import SimpleDataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadAllAvailable

import mqstore
from mqstore import Message
from mqstore.spark.jobs import compact, compacting, export, exporting
from mqstore.spark.messages import MessagesView
from mqstore.spark.options import ReadOptions
from mqstore.spark.stores import find_stores
from mqstore.spark.stream import StreamReader
from mqstore.store.columns import BATCH_ROWS
from spark.support import run_here

NO_SPARK: Any = None
QUEUES = 8
MOST_BATCH_BYTES = 16 << 20


def fill(path: Path, count: int, body: bytes = b"x") -> Path:
    with mqstore.open(path, default_topic_queue_nums=QUEUES) as store:
        for first in range(0, count, 1000):
            numbers = range(first, min(count, first + 1000))
            store.put_batch([Message("orders", body, queue_id=number % QUEUES) for number in numbers])
    return path


def reader_of(path: Path, **options: object) -> StreamReader:
    texts = {"startingOffsets": "earliest", **{name: str(value) for name, value in options.items()}}
    parsed = ReadOptions.parse({"path": str(path), **texts}, streaming=True)
    return StreamReader(parsed, MessagesView.schema_for(parsed).names)


@pytest.mark.parametrize(("count", "size"), [(30_000, 10), (64, 1 << 20)])
def test_rows_come_as_batches_of_limited_size(tmp_path: Path, count: int, size: int) -> None:
    path = fill(tmp_path / "broker", count, b"x" * size)
    batches = list(_batches_of_table(path))
    reader = reader_of(path)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    for part in reader.partitions(reader.initialOffset(), end):
        batches += reader.read(part)
    reader.stop()
    assert all(isinstance(batch, pa.RecordBatch) for batch in batches)
    assert sum(batch.num_rows for batch in batches) == 2 * count
    assert max(batch.num_rows for batch in batches) <= BATCH_ROWS
    assert max(batch.nbytes for batch in batches) <= MOST_BATCH_BYTES
    assert len(batches) < 2 * count / 5  # not one by one either


def _batches_of_table(path: Path) -> Iterator[pa.RecordBatch]:
    options = ReadOptions.parse({"path": str(path)})
    view = MessagesView(find_stores(options), options, list(MessagesView.schema.names))
    for part in view.plan():
        yield from view.read(part)


def test_the_driver_plans_a_batch_without_holding_it(tmp_path: Path) -> None:
    assert not issubclass(StreamReader, SimpleDataSourceStreamReader)
    peaks, sizes = [], []
    for count in (2000, 60_000):
        reader = reader_of(fill(tmp_path / str(count), count, b"x" * 100), minPartitions=4)
        start = reader.initialOffset()
        tracemalloc.start()
        end = reader.latestOffset(start, ReadAllAvailable())
        parts = reader.partitions(start, end)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        reader.stop()
        sizes += [len(pickle.dumps(part)) for part in parts]
        assert sum(end["orders"][str(count)].values()) == count
    assert max(sizes) < 1024
    assert peaks[1] < peaks[0] + (1 << 20)  # of 10 MB


def test_a_hundred_batches_into_small_files_and_few_large_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (exporting, compacting):
        monkeypatch.setattr(module, "run_tasks", run_here)
    path = fill(tmp_path / "broker", 1600)
    for batch in range(100):
        begin, end = (json.dumps({"orders": dict.fromkeys(range(QUEUES), 2 * number)}) for number in (batch, batch + 1))
        options = {"startingOffsets": begin, "endingOffsets": end, "minPartitions": QUEUES}
        export(NO_SPARK, path, tmp_path / "table", job_id=f"batch-{batch}", options=options)
    before = _rows_below(tmp_path / "table")
    assert len(before) == len(set(before)) == 1600
    result = compact(NO_SPARK, tmp_path / "table")
    assert (result.files_before >= 100, result.rows) == (True, 1600)
    assert result.files_after == len(list((tmp_path / "table").glob("topic=*/date=*"))) <= 2
    assert result.bytes_after < result.bytes_before / 10
    (file, *_) = (tmp_path / "table").glob("topic=*/date=*/*.parquet")
    assert pq.read_metadata(file).num_row_groups == 1  # small row groups would be no better than small files
    assert _rows_below(tmp_path / "table") == before


def _rows_below(root: Path) -> list[tuple[int, int]]:
    tables = [pq.ParquetFile(file).read(["queueId", "queueOffset"]) for file in root.glob("topic=*/date=*/*.parquet")]
    return sorted((row["queueId"], row["queueOffset"]) for table in tables for row in table.to_pylist())


def test_rows_are_known_by_their_place_not_by_their_task(tmp_path: Path) -> None:
    path = fill(tmp_path / "broker", 1600)
    keys: dict[str, set[tuple[Any, ...]]] = {"task": set(), "queue": set(), "log": set()}
    for partitions in (3, 7):  # as when an attempt is made again and divides its input otherwise
        reader = reader_of(path, minPartitions=partitions)
        end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
        for number, part in enumerate(reader.partitions(reader.initialOffset(), end)):
            rows = [row for batch in reader.read(part) for row in batch.to_pylist()]
            keys["task"] |= {(number, place) for place in range(len(rows))}
            keys["queue"] |= {(row["brokerName"], row["topic"], row["queueId"], row["queueOffset"]) for row in rows}
            keys["log"] |= {(row["brokerName"], row["physicalOffset"]) for row in rows}
        reader.stop()
    assert len(keys["queue"]) == len(keys["log"]) == 1600
    assert len(keys["task"]) != 1600
