"""The same on a cluster of separate processes: one master, two workers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="needs the extra 'spark'")

from spark.support import expected_messages, files_below, rows_of

if TYPE_CHECKING:
    from spark.cluster import Cluster

pytestmark = [pytest.mark.spark, pytest.mark.slow]

JOBS = """
import json
import pyarrow.parquet as pq
import mqstore.spark

golden, out = {golden!r}, {out!r}
mqstore.spark.register(spark)
frame = spark.read.format("rocketmq").options(splitBytes=1000, maxPartitions=4).load(golden + "/basic/store")
pq.write_table(frame.toArrow(), out + "/messages.parquet")
units = spark.read.format("rocketmq").option("view", "queues").load(golden + "/basic/store").count()
rebuilt = mqstore.spark.jobs.rebuild(spark, golden + "/cq-lost-recovered/store", out + "/rebuilt", split_bytes=600_000)
exported = mqstore.spark.jobs.export(spark, golden + "/basic/store", out + "/exported", job_id="one")
again = mqstore.spark.jobs.export(spark, golden + "/basic/store", out + "/exported", job_id="one")
audit = mqstore.spark.jobs.audit(spark, out + "/rebuilt", split_bytes=1 << 20)
print(json.dumps([units, rebuilt.units, exported.rows, again.replayed, audit.ok]))
"""


def test_source_and_jobs(cluster: Cluster, golden: Path, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    printed = cluster.run(JOBS.format(golden=str(golden), out=str(tmp_path)))
    expected = expected_messages(golden, "basic")
    units = len((golden / "basic" / "EXPECTED-CQ.jsonl").read_text().splitlines())
    assert json.loads(printed.splitlines()[-1]) == [units, units, len(expected), True, True]
    assert rows_of(pq.read_table(tmp_path / "messages.parquet")) == expected
    queues = files_below(golden / "basic" / "store" / "consumequeue")
    assert files_below(tmp_path / "rebuilt" / "consumequeue") == queues
    index = list(files_below(golden / "basic" / "store" / "index").values())
    assert list(files_below(tmp_path / "rebuilt" / "index").values()) == index
