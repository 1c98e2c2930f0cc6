"""How an export writes: what it holds meanwhile, which columns get dictionaries, how its tasks share the log."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="needs the extra 'spark'")

import pyarrow as pa
import pyarrow.parquet as pq

from mqstore.spark.jobs.parquet import PartitionedWriter
from mqstore.store.columns import SCHEMA

COLUMNS = ["physicalOffset", "body"]


def batch_of(bodies: list[bytes], topics: list[str], first: int = 0) -> Any:
    """A batch that a writer of COLUMNS takes."""
    count = len(bodies)
    values = {
        "topic": topics,
        "physicalOffset": list(range(first, first + count)),
        "body": bodies,
        "storeTimestamp": [0] * count,
    }
    fields = [SCHEMA.field(name) for name in values]
    arrays = [pa.array(values[field.name], field.type) for field in fields]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def test_rows_of_a_rare_topic_that_wait_hold_no_others(tmp_path: Path) -> None:
    topics = ["rare", *["orders"] * 99]
    before = pa.total_allocated_bytes()
    with PartitionedWriter(tmp_path, "x", COLUMNS, 1 << 30, "zstd") as writer:
        for number in range(100):
            writer.write(batch_of([os.urandom(10_000) for _ in topics], topics, number * 100))
        held = pa.total_allocated_bytes() - before
        files = {file.path: file.rows for file in writer.close()}
    assert held < 40 << 20  # of 100 MB that were written, no more than 16 MiB wait
    assert files == {
        "topic=orders/date=1970-01-01/x-000.parquet": 9900,
        "topic=rare/date=1970-01-01/x-000.parquet": 100,
    }
    rare = pq.ParquetFile(tmp_path / "topic=rare/date=1970-01-01/x-000.parquet").read()
    assert rare["physicalOffset"].to_pylist() == list(range(0, 10_000, 100))
