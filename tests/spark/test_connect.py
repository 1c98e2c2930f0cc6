"""Spark Connect: the same tables, streams, sink and jobs for a client that has no Spark of its own."""

from __future__ import annotations

import atexit
import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="needs the extra 'spark'")
pytest.importorskip("grpc", reason="needs the extra 'connect'")

import mqstore
import mqstore.spark
from mqstore.spark import installed
from spark.cluster import RUN_TIMEOUT_S
from spark.connect import ConnectServer
from spark.support import expected_messages, files_below, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    server = ConnectServer(tmp_path_factory.mktemp("connect"))
    atexit.register(server.stop)
    try:
        yield server.start()
    finally:
        server.stop()


CLIENT = """
import json, os
import pyarrow.parquet as pq
import mqstore.spark
from mqstore.spark import jobs

golden, out = {golden!r}, {out!r}
spark = mqstore.spark.session({url!r}, **{{"spark.sql.shuffle.partitions": 3}})
said = {{"settings": [spark.conf.get("spark.sql.session.timeZone"), spark.conf.get("spark.sql.shuffle.partitions")]}}

def view(name, **options):
    return spark.read.format("rocketmq").options(view=name, **options).load(golden)

pq.write_table(view("messages", splitBytes="300000").toArrow(), out + "/messages.parquet")
for name in ("queues", "index", "files", "progress"):
    pq.write_table(view(name).toArrow(), out + "/" + name + ".parquet")

pq.write_table(mqstore.spark.read(spark, golden, options={{"splitBytes": 300000}}).toArrow(), out + "/whole.parquet")

calls = []
rebuilt = jobs.rebuild(spark, golden, out + "/rebuilt", split_bytes=1_000_000)
exported = jobs.export(
    spark, golden, out + "/exported", options={{"splitBytes": "1000000"}}, on_progress=lambda *call: calls.append(call)
)
said["jobs"] = {{
    "rebuild": [rebuilt.records, rebuilt.units],
    "audit": jobs.audit(spark, out + "/rebuilt").ok,
    "export": exported.rows,
    "compact": jobs.compact(spark, out + "/exported").files_before,
    "stats": jobs.stats(spark, golden).messages,
    "lag": sum(jobs.lag(spark, golden).lag.values()),
}}
there = jobs.convert(spark, golden, out + "/kafka")
said["convert"] = [there.records, jobs.convert(spark, out + "/kafka", out + "/back").records]
said["calls"] = [calls[0][0], calls[-1][0] == calls[-1][1] > 1]

frame = spark.range(200).selectExpr("'orders' AS topic", "cast(id AS string) AS body", "cast(id % 2 AS int) AS queueId")
loaded = jobs.load(spark, frame, out + "/loaded", store_timestamp_ms=1_700_000_000_000)
said["load"] = [loaded.records, loaded.units]
for _ in range(2):
    frame.write.format("rocketmq").mode("append").option("jobId", "once").save(out + "/loaded")

stream = spark.readStream.format("rocketmq").options(startingOffsets="earliest", maxOffsetsPerTrigger="150")
writer = stream.load(out + "/loaded").select("queueId", "queueOffset").writeStream.format("parquet")
query = writer.option("checkpointLocation", out + "/seen").trigger(availableNow=True).start(out + "/rows")
query.awaitTermination()
said["stream"] = [one.numInputRows for one in query.recentProgress if one.numInputRows]
said["rows"] = sorted(map(list, spark.read.parquet(out + "/rows").collect()))

try:
    jobs.audit(spark, out)
except mqstore.NotAStoreError as error:
    said["error"] = error.hint
raw = bytearray(open(golden + "/commitlog/" + "0" * 20, "rb").read())
raw[3221 + 4] ^= 1
os.makedirs(out + "/damaged/commitlog")
open(out + "/damaged/commitlog/" + "0" * 20, "wb").write(raw)
try:
    jobs.export(spark, out + "/damaged", out + "/none")
except mqstore.CorruptRecordError as error:
    said["damage"] = error.offset
spark.stop()
print(json.dumps(said))
"""


@pytest.mark.timeout(900)
def test_all_of_it_over_connect(server: ConnectServer, golden: Path, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    store = golden / "basic" / "store"
    # A process of its own: one that has used Spark Connect can have no Spark of its own any more.
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", CLIENT.format(golden=str(store), out=str(tmp_path), url=server.url)],
        cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    expected = expected_messages(golden, "basic")
    with mqstore.inspect(store) as view:
        keys = sum(file.header.index_count - 1 for file in view.index_files())
        progress = list(view.progress())
    units = [json.loads(line) for line in (golden / "basic" / "EXPECTED-CQ.jsonl").read_text().splitlines()]

    assert said["settings"] == ["UTC", "3"]
    assert rows_of(pq.read_table(tmp_path / "messages.parquet")) == expected
    assert rows_of(pq.read_table(tmp_path / "whole.parquet")) == expected
    table = pq.read_table(tmp_path / "queues.parquet").to_pylist()
    names = ("topic", "queueId", "queueOffset", "physicalOffset", "storeSize", "tagsCode")
    seen = ("topic", "queueId", "cqOffset", "phyOffset", "size", "tagsCode")
    assert sorted([row[name] for name in names] for row in table) == sorted([one[key] for key in seen] for one in units)
    assert pq.read_metadata(tmp_path / "index.parquet").num_rows == keys
    assert pq.read_metadata(tmp_path / "files.parquet").num_rows == sum(
        len(files_below(store / kind)) for kind in ("commitlog", "consumequeue", "index")
    )
    assert pq.read_metadata(tmp_path / "progress.parquet").num_rows == len(progress)

    assert said["jobs"] == {
        "rebuild": [len(expected), len(units)], "audit": True, "export": len(expected),
        "compact": said["jobs"]["compact"], "stats": len(expected), "lag": sum(one.lag for one in progress),
    }  # fmt: skip
    assert said["jobs"]["compact"] >= 5
    assert files_below(tmp_path / "rebuilt" / "consumequeue") == files_below(store / "consumequeue")
    with mqstore.inspect(store) as view, mqstore.inspect(tmp_path / "back") as back:
        assert said["convert"] == [sum(queue.count for queue in one.queues()) for one in (view, back)]
    with mqstore.kafka.inspect(tmp_path / "kafka") as log:
        assert sum(len(list(partition.records())) for partition in log.partitions()) == said["convert"][0]
    assert said["calls"] == [0, True]
    assert said["load"] == [200, 200]
    # What load stored, and what the sink appended once.
    assert said["stream"] == [150, 150, 100]
    assert said["rows"] == [[queue, offset] for queue in range(2) for offset in range(200)]
    assert "commitlog/" in said["error"]
    assert said["damage"] == 3221


def test_nobody_listens() -> None:
    with pytest.raises(
        mqstore.spark.SparkUnavailableError, match=r"no session of Spark Connect at sc://127\.0\.0\.1:1"
    ):
        mqstore.spark.session("sc://127.0.0.1:1")


def test_a_process_that_has_a_spark_of_its_own(server: ConnectServer, spark: SparkSession) -> None:
    with pytest.raises(mqstore.spark.SparkUnavailableError, match="already running") as caught:
        mqstore.spark.session(server.url)
    assert "must stop it first" in str(caught.value.hint)
    assert spark.range(3).count() == 3


def test_what_connect_needs_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = importlib.util.find_spec

    def without_grpc(name: str) -> ModuleSpec | None:
        return None if name == "grpc" else find_spec(name)

    monkeypatch.setattr(installed, "find_spec", without_grpc)
    with pytest.raises(mqstore.spark.SparkUnavailableError, match="what Spark Connect needs") as caught:
        mqstore.spark.session("sc://127.0.0.1:1")
    assert caught.value.found == "no grpc"
    assert "'.[connect]'" in (caught.value.hint or "")
