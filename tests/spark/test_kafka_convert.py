"""Converting on Spark: the same as locally, the same again when it is done again, and on a cluster of processes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra 'spark'", exc_type=ImportError)

import mqstore
import mqstore.spark
from mqstore import Message, convert, kafka
from mqstore.convert import ConvertOptions
from mqstore.errors import CorruptBatchError, CorruptRecordError, UsageError
from mqstore.store.check import check_store
from spark.support import files_below

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark.cluster import Cluster

pytestmark = pytest.mark.spark

SIZES: dict[str, Any] = {
    "mapped_file_size_commit_log": 1 << 18,
    "mapped_file_size_consume_queue": 2000,
    "max_hash_slot_num": 100,
    "max_index_num": 700,
}
OPTIONS = ConvertOptions(topics="plain|codecs|txn|legacyv1", store_settings=SIZES)


@pytest.fixture(scope="module")
def data(golden_kafka: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("kafka") / "data"
    return Path(shutil.copytree(golden_kafka, target, ignore=shutil.ignore_patterns("crash-0", "DUMP", "EXPECTED*")))


def queues_of(store: Path) -> dict[tuple[str, int], list[tuple[Any, ...]]]:
    with mqstore.inspect(store) as view:
        return {
            (queue.topic, queue.queue_id): [
                (message.queue_offset, message.body, message.properties_raw, message.born_timestamp_ms)
                for unit in view.units(queue.topic, queue.queue_id)
                if (message := view.message_at(unit.physical_offset)) is not None
            ]
            for queue in view.queues()
        }


def test_there_and_back(spark: SparkSession, data: Path, tmp_path: Path) -> None:
    job = mqstore.spark.jobs.convert
    told: list[tuple[int, int]] = []

    def note(done: int, total: int) -> None:
        told.append((done, total))

    made = job(spark, data, tmp_path / "store", options=OPTIONS, block_bytes=20_000, on_progress=note)
    assert sum(done == total for done, total in told) >= 3  # measuring, writing, building queues and index
    local = convert.to_rocketmq(data, tmp_path / "local", OPTIONS)
    assert [(one.topic, one.records, one.end_offset) for one in made.partitions] == [
        (one.topic, one.records, one.end_offset) for one in local.partitions
    ]
    times = convert.Loss.LATER_TIMES
    losses = [{loss: count for loss, count in one.total_losses().items() if loss is not times} for one in (made, local)]
    assert losses[0] == losses[1]
    assert queues_of(tmp_path / "store") == queues_of(tmp_path / "local")
    found: list[object] = []
    with mqstore.inspect(tmp_path / "store") as view:
        check_store(view, found.append)
        stored = [record.store_timestamp_ms for record in view.scan()]
    assert found == []
    assert stored == sorted(stored)
    assert len(list((tmp_path / "store" / "commitlog").iterdir())) > 2
    job(spark, data, tmp_path / "again", options=OPTIONS, block_bytes=20_000)
    assert files_below(tmp_path / "again" / "commitlog") == files_below(tmp_path / "store" / "commitlog")

    told.clear()
    back = job(spark, tmp_path / "store", tmp_path / "back", on_progress=note)
    assert told[0] == (0, len(back.partitions))
    assert told[-1] == (len(back.partitions), len(back.partitions))
    convert.to_kafka(tmp_path / "local", tmp_path / "local-back")
    assert back.records == made.records
    with kafka.inspect(tmp_path / "back") as ours, kafka.inspect(tmp_path / "local-back") as other:
        assert ours.topics() == other.topics()
        assert ours.check() == []
        for partition in ours.partitions():
            assert list(partition.records()) == list(other.partition(partition.topic).records())


def test_what_is_refused(spark: SparkSession, data: Path, tmp_path: Path) -> None:
    job = mqstore.spark.jobs.convert
    small = ConvertOptions(topics="codecs", store_settings={**SIZES, "mapped_file_size_commit_log": 70_000})
    with pytest.raises(UsageError, match="larger than a commit log file"):
        job(spark, data, tmp_path / "out", options=small)
    damaged = Path(shutil.copytree(data / "plain-0", tmp_path / "plain-0"))
    log = min(damaged.glob("*.log"))
    content = bytearray(log.read_bytes())
    content[800] ^= 1
    log.write_bytes(content)
    with pytest.raises(CorruptBatchError):
        job(spark, damaged, tmp_path / "out", options=ConvertOptions(store_settings=SIZES))
    assert [path.name for path in tmp_path.iterdir()] == ["plain-0"]


JOBS = """
import json
import mqstore.spark
from mqstore.convert import ConvertOptions

data, out = {data!r}, {out!r}
mqstore.spark.register(spark)
frame = spark.read.format("kafkalog").options(subscribe="plain,txn", splitBytes=20000).load(data)
rows = sorted((row.topic, row.offset) for row in frame.select("topic", "offset").collect())
options = ConvertOptions(topics="plain|txn", store_settings={sizes!r})
made = mqstore.spark.jobs.convert(spark, data, out + "/store", options=options, block_bytes=20000)
back = mqstore.spark.jobs.convert(spark, out + "/store", out + "/back")
print(json.dumps([rows, made.records, back.records]))
"""


@pytest.mark.slow
def test_on_a_cluster(cluster: Cluster, data: Path, tmp_path: Path) -> None:
    printed = cluster.run(JOBS.format(data=str(data), out=str(tmp_path), sizes=SIZES))
    rows, made, back = json.loads(printed.splitlines()[-1])
    with kafka.inspect(data) as view:
        expected = [[name, one.offset] for name in ("plain", "txn") for one in view.partition(name).records()]
    assert rows == expected
    local = convert.to_rocketmq(data, tmp_path / "local", ConvertOptions(topics="plain|txn", store_settings=SIZES))
    assert made == back == local.records
    assert queues_of(tmp_path / "store") == queues_of(tmp_path / "local")


def test_records_behind_damage_are_not_left_out_unsaid(tmp_path: Path) -> None:
    """The driver looks at the log before any task begins: Spark is not asked for anything."""
    source = tmp_path / "store"
    with mqstore.open(source, mapped_file_size_commit_log=1 << 14) as store:
        for number in range(200):
            store.put(Message("orders", b"%d" % number * 20, queue_id=0))
    with mqstore.inspect(source) as view:
        starts = [record.physical_offset for record in view.scan()]
    last = max((source / "commitlog").iterdir())
    damaged = next(offset for offset in starts if offset > int(last.name))
    content = bytearray(last.read_bytes())
    content[damaged - int(last.name) + 4] ^= 1  # its magic
    last.write_bytes(content)
    with pytest.raises(CorruptRecordError, match="what lies behind would be left out") as caught:
        mqstore.spark.jobs.convert(None, source, tmp_path / "out")  # type: ignore[arg-type]
    assert caught.value.offset == damaged
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
