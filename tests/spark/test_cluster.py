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
whole = mqstore.spark.read(spark, golden + "/basic/store", options={{"splitBytes": 1000, "maxPartitions": 4}})
pq.write_table(whole.toArrow(), out + "/whole.parquet")
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
    assert rows_of(pq.read_table(tmp_path / "whole.parquet")) == expected
    queues = files_below(golden / "basic" / "store" / "consumequeue")
    assert files_below(tmp_path / "rebuilt" / "consumequeue") == queues
    index = list(files_below(golden / "basic" / "store" / "index").values())
    assert list(files_below(tmp_path / "rebuilt" / "index").values()) == index


TROUBLE = """
import functools, json, os, pathlib, time, uuid
import mqstore.spark
from mqstore import StoreConfig
from mqstore.spark.jobs import derived, loading, rebuilding

out = pathlib.Path({out!r})
config = StoreConfig(mapped_file_size_commit_log=1 << 16, max_hash_slot_num=100, max_index_num=800)
mqstore.spark.register(spark)
frame = spark.range(2000).selectExpr(
    "'t' || id % 3 AS topic", "repeat(cast(id as string), cast(id % 60 as int)) AS body", "array('k' || id) AS keys",
    "1700000000000 + id AS storeTimestamp",
)
run_tasks = loading.run_tasks

def claim(path):
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True

class Troubled:
    # The process of the first task dies when its work is done, and so before Spark knows. The last task waits until
    # Spark has started a second copy of it, which ends no sooner than that was noted. They may not be the same task:
    # Spark starts no second copy on a host that had an attempt before, a dead one too, and there are two hosts.
    def __init__(self, function, directory, last):
        assert last > 0, "Spark starts no second copy in a stage of one task"
        self.function, self.directory, self.last = function, directory, last
    def __call__(self, numbered):
        number, item = numbered
        (self.directory / (str(number) + "-" + uuid.uuid4().hex)).touch()
        result = self.function(item)
        if number == 0 and claim(self.directory / "died"):
            os._exit(1)
        copied = self.directory / "copied"
        if number == self.last and claim(self.directory / "slow"):
            attempts = functools.partial(self.directory.glob, str(number) + "-*")
            wait(lambda: len(list(attempts())) > 1)
            (self.directory / "noted").write_text(str(len(list(attempts())) > 1))
            (self.directory / "noted").rename(copied)
        elif number == self.last:
            wait(copied.exists)
        return result

def wait(condition):
    deadline = time.monotonic() + 120
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)

stages = []
def run_troubled(spark, function, items, on_progress=None, on_result=None):
    directory = out / ("stage-" + str(len(stages)))
    directory.mkdir()
    troubled = Troubled(function, directory, len(items) - 1)
    results = run_tasks(spark, troubled, list(enumerate(items)), on_result=on_result)
    name = getattr(function, "func", function).__name__
    stages.append([name, (directory / "died").exists(), (directory / "copied").read_text()])
    return results

mqstore.spark.jobs.load(spark, frame.repartition(3), out / "loaded", config=config)
mqstore.spark.jobs.rebuild(spark, out / "loaded", out / "rebuilt")
loading.run_tasks = rebuilding.run_tasks = derived.run_tasks = run_troubled
mqstore.spark.jobs.load(spark, frame.repartition(5), out / "loaded-in-trouble", config=config)
mqstore.spark.jobs.rebuild(spark, out / "loaded", out / "rebuilt-in-trouble")
path = str(out / "loaded-in-trouble")
stream = spark.readStream.format("rocketmq").options(startingOffsets="earliest", minPartitions=4).load(path)
writer = stream.select("physicalOffset").writeStream.format("parquet").trigger(availableNow=True)
query = writer.option("checkpointLocation", str(out / "checkpoint")).start(str(out / "rows"))
query.awaitTermination()
rows = spark.read.parquet(str(out / "rows"))
print(json.dumps([stages, rows.count(), rows.distinct().count()]))
"""


@pytest.mark.timeout(900)
def test_tasks_that_die_and_tasks_that_run_twice_at_once(cluster: Cluster, tmp_path: Path) -> None:
    printed = cluster.run(
        TROUBLE.format(out=str(tmp_path)),
        **{"spark.speculation": True, "spark.speculation.interval": "100ms", "spark.speculation.quantile": 0.1,
           "spark.speculation.multiplier": 1.0, "spark.speculation.minTaskRuntime": "100ms",
           # So that the sorted table has several files, and these stages several tasks.
           "spark.sql.adaptive.enabled": False, "spark.sql.shuffle.partitions": 4},
    )  # fmt: skip
    stages, rows, different = json.loads(printed.splitlines()[-1])
    names = ["measure", "write", "do_part", "build_file", "do_part", "build_file"]
    assert stages == [[name, True, "True"] for name in names]
    assert rows == different == 2000
    for calm, troubled in (("loaded", "loaded-in-trouble"), ("rebuilt", "rebuilt-in-trouble")):
        one, two = files_below(tmp_path / calm), files_below(tmp_path / troubled)
        assert one.keys() == two.keys()
        assert [name for name in one if one[name] != two[name] and not name.startswith("config/")] == []
