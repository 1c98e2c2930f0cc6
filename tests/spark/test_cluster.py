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


LOAD = """
import json, os, pathlib
import mqstore.spark
from mqstore import StoreConfig
from mqstore.spark.jobs import loading

out = pathlib.Path({out!r})
config = StoreConfig(mapped_file_size_commit_log=1 << 16, max_hash_slot_num=100, max_index_num=400)
mqstore.spark.register(spark)
frame = spark.range(2000).selectExpr(
    "'t' || id % 3 AS topic", "repeat(cast(id as string), cast(id % 60 as int)) AS body", "array('k' || id) AS keys",
    "1700000000000 + id AS storeTimestamp",
)
run_tasks = loading.run_tasks

class Dies:
    # The process of one task of each kind dies when its work is done, and so before Spark knows.
    def __init__(self, function):
        self.function = function
    def __call__(self, item):
        result = self.function(item)
        marker = out / ("died-" + self.function.__name__)
        try:
            marker.touch(exist_ok=False)
        except FileExistsError:
            return result
        os._exit(1)

mqstore.spark.jobs.load(spark, frame.repartition(3), out / "one", config=config)
loading.run_tasks = lambda spark, function, items, on_progress=None: run_tasks(spark, Dies(function), items)
mqstore.spark.jobs.load(spark, frame.repartition(5), out / "two", config=config)
stream = spark.readStream.format("rocketmq").options(startingOffsets="earliest", minPartitions=4).load(str(out / "two"))
writer = stream.select("physicalOffset").writeStream.format("parquet").trigger(availableNow=True)
query = writer.option("checkpointLocation", str(out / "checkpoint")).start(str(out / "rows"))
query.awaitTermination()
rows = spark.read.parquet(str(out / "rows"))
print(json.dumps([sorted(path.name for path in out.glob("died-*")), rows.count(), rows.distinct().count()]))
"""


def test_load_with_tasks_that_die(cluster: Cluster, tmp_path: Path) -> None:
    printed = cluster.run(LOAD.format(out=str(tmp_path)))
    assert json.loads(printed.splitlines()[-1]) == [["died-measure", "died-write"], 2000, 2000]
    one, two = files_below(tmp_path / "one"), files_below(tmp_path / "two")
    assert one.keys() == two.keys()
    assert [name for name in one if one[name] != two[name] and not name.startswith("config/")] == []
