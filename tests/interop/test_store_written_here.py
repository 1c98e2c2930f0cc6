"""What mqstore wrote, the real store reads, and the other way round: every record, unit, offset and key."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import mqstore
from interop.dumps import Dump, differences
from interop.ours import MANY, comparable, dump_of, questions_about
from interop.real_store import RealStore, copy_store, crash_differences
from interop.writer import JAVA_SIZES, LONG_TOPIC, SIZES, V6_STORE, put
from mqstore.store.check import check_store


def read(real_store: RealStore, store: Path) -> Dump:
    """What the real store says of ``store``, asked for every key there is and for many times."""
    with mqstore.inspect(store) as view:
        questions = questions_about(view)
    return comparable(real_store.read(store, questions, **JAVA_SIZES, maxMsgsNumBatch=MANY))


def assert_same(real: Dump, store: Path, *ignore: str) -> None:
    """The real store and our reader say the same, neither more nor less."""
    with mqstore.inspect(store) as view:
        ours = dump_of(view, real)
    assert real.whole["problems"] == []
    assert differences(ours, real, ignore=ignore) == []
    assert differences(real, ours, ignore=ignore) == []


def assert_sound(store: Path) -> None:
    found: list[object] = []
    with mqstore.inspect(store) as view:
        check_store(view, found.append)
    assert found == []


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with every kind of message, written and closed by mqstore."""
    store = tmp_path_factory.mktemp("ours") / "store"
    with mqstore.open(store, **SIZES) as opened:
        put(opened, 1, 1000)
    with mqstore.open(store, broker_ip1=V6_STORE) as opened:
        put(opened, 2, 200)
    return store


def test_the_store_holds_every_kind(ours: Path) -> None:
    with mqstore.inspect(ours) as view:
        records = list(view.scan())
        queues = {(queue.topic, queue.queue_id): queue.count for queue in view.queues()}
        assert len(list(view.blanks())) >= 2
    transactions = [record.sys_flag & 0xC for record in records]
    assert all(transactions.count(kind) > 3 for kind in (0x0, 0x4, 0x8, 0xC))
    assert all(queues["SCHEDULE_TOPIC_XXXX", level] > 0 for level in range(18))
    assert {record.properties.get("DELAY") for record in records} == {None, *map(str, range(1, 19))}
    assert queues[LONG_TOPIC, 0] > 0
    assert len(LONG_TOPIC) == 127
    assert (
        {len(record.store_host_raw) for record in records}
        == {len(record.born_host_raw) for record in records}
        == {8, 20}
    )
    assert b"" in {record.body for record in records}
    assert max(len(record.keys) for record in records) == 30
    assert {"Aa", "BB", "AaBB", "BBAa"} < {key for record in records for key in record.keys}
    assert any(record.properties == {} for record in records)
    assert list((ours / "consumequeue").rglob("00000000000000002000"))  # several files of one queue
    assert len(list((ours / "index").iterdir())) >= 3


def test_ours_is_read_by_the_real_store(real_store: RealStore, ours: Path) -> None:
    assert_same(read(real_store, ours), ours)


def test_ours_goes_on_in_the_real_store_and_comes_back(real_store: RealStore, ours: Path, tmp_path: Path) -> None:
    store = copy_store(ours, tmp_path / "store")
    real_store.write(store, seed=7, count=300, **JAVA_SIZES)
    real = read(real_store, store)
    assert len(real.records) >= 1200 + 300
    assert_same(real, store)
    with mqstore.open(store) as opened:
        put(opened, 8, 200)
    assert_sound(store)
    assert_same(read(real_store, store), store)


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int]]:
    """A store whose writer was killed while it put, and the offsets of what it had acknowledged."""
    store = tmp_path_factory.mktemp("killed") / "store"
    command = [sys.executable, "-m", "interop.writer", str(store), "3"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1])
    assert child.stdout is not None
    acknowledged = [int(next(child.stdout)) for _ in range(400)]
    child.kill()
    acknowledged += [int(line) for line in child.stdout if line.endswith("\n")]
    child.wait()
    child.stdout.close()
    assert (store / "abort").exists()
    return store, acknowledged


def test_killed_is_read_by_the_real_store(
    real_store: RealStore, killed: tuple[Path, list[int]], tmp_path: Path
) -> None:
    store, acknowledged = killed
    real = read(real_store, store)
    assert real.whole["problems"] == []
    assert set(acknowledged) <= {row["commitLogOffset"] for row in real.records}

    recovered = copy_store(store, tmp_path / "store")
    mqstore.open(recovered).close()
    assert_sound(recovered)
    with mqstore.inspect(recovered) as view:
        ours = dump_of(view, real)
    # The times at which 4.9 last wrote a queue's file, which it searches by, are those of its own recovery; the
    # checkpoints are each one's own.
    of_its_own = ("checkpoint", "queues.offsetByTime", "keys")
    assert crash_differences(real_store, real, ours, of_its_own) == []
    # After a crash the real store drops index files that its checkpoint does not cover, and with them some keys.
    for asked, mine in zip(real.whole["keys"], ours.whole["keys"], strict=True):
        assert set(asked["offsets"]) <= set(mine["offsets"])
    # Having been put right by mqstore, it finds them all.
    assert_same(read(real_store, recovered), recovered)


def without_units(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "cq"}


@pytest.mark.parametrize("crash", [False, True], ids=["closed", "crashed"])
def test_theirs_is_read_here_and_goes_on(real_store: RealStore, tmp_path: Path, crash: bool) -> None:
    store = tmp_path / "store"
    real_store.write(store, seed=5, count=800, crash=crash, **JAVA_SIZES)
    real = read(real_store, store)
    with mqstore.inspect(store) as view:
        assert [record.physical_offset for record in view.scan()] == [row["commitLogOffset"] for row in real.records]
    if not crash:
        assert_same(real, store)
        assert_sound(store)
    with mqstore.open(store) as opened:
        assert opened.log_end == real.whole["maxPhyOffset"]
    with mqstore.inspect(store) as view:
        opened_here = dump_of(view, real)
    ignore = ("checkpoint", "queues.offsetByTime", "keys")
    found = differences(real, opened_here, ignore=ignore) + differences(opened_here, real, ignore=ignore)
    assert (crash_differences(real_store, real, opened_here, ignore) if crash else found) == []
    for asked, mine in zip(real.whole["keys"], opened_here.whole["keys"], strict=True):
        assert set(asked["offsets"]) <= set(mine["offsets"])
    with mqstore.open(store) as opened:
        put(opened, 6, 200)
    assert_sound(store)
    again = read(real_store, store)
    assert len(again.records) >= 1000
    assert [without_units(row) for row in again.records[: len(real.records)]] == list(map(without_units, real.records))
    assert_same(again, store)


LOAD = """
import sys
import mqstore.spark
from mqstore import StoreConfig
spark = mqstore.spark.session("local[2]")
frame = spark.range(3000).selectExpr(
    "CASE WHEN id % 7 = 0 THEN 'rare' ELSE 'orders' END AS topic",
    "repeat(cast(id as string), cast(id % 100 as int)) AS body",
    "array('k-' || id, 'Aa') AS keys", "'paid' AS tags", "map('id', cast(id as string), 'x', 'y') AS properties",
    "cast(id % 3 as int) AS queueId", "cast(if(id % 50 = 0, 3, 0) as int) AS delayLevel",
    "1700000000000 + id AS storeTimestamp",
)
mqstore.spark.jobs.load(spark, frame, sys.argv[1], config=StoreConfig(**{sizes!r}))
"""


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that Spark made of a table."""
    pytest.importorskip("pyspark", reason="needs the extra 'spark'", exc_type=ImportError)
    store = tmp_path_factory.mktemp("loaded") / "store"
    subprocess.run([sys.executable, "-c", LOAD.replace("{sizes!r}", repr(SIZES)), str(store)], check=True)
    return store


def test_a_loaded_table_is_read_by_the_real_store(real_store: RealStore, loaded: Path) -> None:
    assert_sound(loaded)
    assert_same(read(real_store, loaded), loaded)
