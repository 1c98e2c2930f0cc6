"""``stats`` and ``lag``: what they count is what is there, and the pages say it."""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

pytest.importorskip("pyspark", reason="needs the extra 'spark'", exc_type=ImportError)

import mqstore
import mqstore.spark
from mqstore import Message
from mqstore.cli import app
from mqstore.files.pool import FilePool
from mqstore.spark.jobs import counting, lag, lagging, stats
from mqstore.spark.tasks import run_tasks
from mqstore.store.log_reader import LogReader
from spark.support import run_here

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NO_SPARK: Any = None
HOUR_MS = 3_600_000


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (counting, lagging):
        monkeypatch.setattr(module, "run_tasks", run_here)


@pytest.mark.usefixtures("in_process")
def test_stats_of_a_golden_store(golden: Path, tmp_path: Path) -> None:
    lines = (golden / "basic" / "EXPECTED.jsonl").read_text().splitlines()
    seen = [json.loads(line) for line in lines]
    result = stats(NO_SPARK, golden / "basic" / "store", options={"splitBytes": "300000"}, report=tmp_path / "r.html")
    assert (result.messages, result.bytes) == (len(seen), sum(one["storeSize"] for one in seen))
    assert {one.topic: one.messages for one in result.topics} == Counter(one["topic"] for one in seen)
    assert {one.topic: one.first_ms for one in result.topics} == {
        topic: min(one["storeTimestamp"] for one in seen if one["topic"] == topic)
        for topic in {one["topic"] for one in seen}
    }
    hours = Counter((one["topic"], one["storeTimestamp"] // HOUR_MS * HOUR_MS) for one in seen)
    assert {(one.topic, one.begin_ms): one.messages for one in result.hours} == hours
    tags = Counter((one["topic"], one["properties"].get("TAGS")) for one in seen)
    assert {(one.topic, one.name): one.messages for one in result.tags} == tags
    hosts = Counter(one["bornHost"].rpartition(":")[0] for one in seen)
    assert {one.name: one.messages for one in result.hosts} == hosts
    assert sum(count for _, count in result.sizes) == len(seen)
    for limit, count in result.sizes:
        assert count == sum(limit // 2 < one["storeSize"] <= limit for one in seen)
    assert sum(messages for _, messages, _ in result.days) == len(seen)
    page = (tmp_path / "r.html").read_text()
    assert page.count("<svg") == 2
    assert "TopicTest" in page
    chosen = stats(NO_SPARK, golden / "basic" / "store", options={"subscribe": "TopicTest"})
    assert [one.topic for one in chosen.topics] == ["TopicTest"]
    assert chosen.report is None


@pytest.mark.usefixtures("in_process")
def test_too_many_tags_are_counted_as_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "_MOST_NAMES", 10)
    with mqstore.open(tmp_path / "s") as store:
        for number in range(300):
            store.put(Message("T", b"x", tags="often" if number % 2 else f"t{number}", queue_id=0))
    result = stats(NO_SPARK, tmp_path / "s")
    assert result.tags[0] == ("T", "often", 150)
    assert sum(one.messages for one in result.tags) == 300
    assert any(one.name == counting.OTHERS for one in result.tags)


@pytest.mark.usefixtures("in_process")
def test_an_empty_store(golden: Path, tmp_path: Path) -> None:
    assert stats(NO_SPARK, golden / "empty" / "store", report=tmp_path / "r.html").messages == 0
    assert lag(NO_SPARK, golden / "empty" / "store", report=tmp_path / "l.html").rows == []
    assert "<svg" not in (tmp_path / "r.html").read_text() + (tmp_path / "l.html").read_text()
    with pytest.raises(mqstore.UsageError, match="only messages"):
        stats(NO_SPARK, golden / "empty" / "store", options={"view": "queues"})


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two groups at different places of three queues, and one that follows a queue that is not there."""
    path = tmp_path_factory.mktemp("behind") / "broker-a"
    with mqstore.open(path) as store:
        for number in range(90):
            store.put(Message("orders", b"x" * 200, queue_id=number % 3))
        store.wait_dispatched()
        for group, offsets in {"slow": (0, 10, 30), "fast": (25, 30, 29)}.items():
            for queue_id, offset in enumerate(offsets):
                store.commit_offset(group, "orders", queue_id, offset)
    return path


@pytest.mark.usefixtures("in_process")
def test_lag(behind: Path, tmp_path: Path) -> None:
    result = lag(NO_SPARK, behind, report=tmp_path / "lag.html")
    assert result.lag == {"fast": 6, "slow": 50}
    assert [(row.group, row.queue_id, row.lag) for row in result.rows] == [
        ("fast", 0, 5), ("fast", 1, 0), ("fast", 2, 1), ("slow", 0, 30), ("slow", 1, 20), ("slow", 2, 0),
    ]  # fmt: skip
    with mqstore.inspect(behind) as view:
        times = {(one.queue_id, one.queue_offset): one.store_timestamp_ms for one in view.scan()}
    for row in result.rows:
        waiting = [stored for (queue_id, at), stored in times.items() if queue_id == row.queue_id and
                   at >= row.consumer_offset]  # fmt: skip
        assert (row.oldest_ms, row.newest_ms) == ((min(waiting), max(waiting)) if waiting else (None, None))
    hours: Counter[tuple[str, int]] = Counter()
    for row in result.rows:
        for (queue_id, at), stored in times.items():
            if queue_id == row.queue_id and at >= row.consumer_offset:
                hours[row.group, stored // HOUR_MS * HOUR_MS] += 1
    assert {(one.group, one.begin_ms): one.messages for one in result.waiting} == hours
    assert "slow" in (tmp_path / "lag.html").read_text()
    assert [row.group for row in lag(NO_SPARK, behind, group="fast", topic="orders").rows] == ["fast"] * 3
    assert lag(NO_SPARK, behind, topic="none").rows == []


@pytest.mark.usefixtures("in_process")
def test_lag_reads_the_log_once_for_all_queues(behind: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = []

    def note(kind: type, name: str) -> None:
        works = getattr(kind, name)

        def noted(*arguments: Any) -> Any:
            read.append(name)
            return works(*arguments)

        monkeypatch.setattr(kind, name, noted)

    note(LogReader, "read")
    note(FilePool, "read_parts")
    lag(NO_SPARK, behind)
    # To plan, once for what lies behind the log's end; and the only task runs twice here.
    assert read == ["read", "read", "read_parts", "read_parts"]


@pytest.mark.usefixtures("in_process")
def test_lag_of_further_queues(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "s", enable_multi_dispatch=True, enable_lmq=True) as store:
        for number in range(9):
            names = {"INNER_MULTI_DISPATCH": "%LMQ%light,other"} if number % 2 else {}
            store.put(Message("orders", b"x", queue_id=0, properties=names))
            time.sleep(0.002)
        store.wait_dispatched()
        for topic in ("orders", "other", "%LMQ%light"):
            store.commit_offset("slow", topic, 0, 2)
    with mqstore.inspect(tmp_path / "s") as view:
        times = [record.store_timestamp_ms for record in view.scan()]
    result = lag(NO_SPARK, tmp_path / "s")
    assert [(row.topic, row.lag, row.oldest_ms, row.newest_ms) for row in result.rows] == [
        ("%LMQ%light", 2, times[5], times[7]), ("orders", 7, times[2], times[8]), ("other", 2, times[5], times[7]),
    ]  # fmt: skip
    assert sum(one.messages for one in result.waiting) == 7


@pytest.mark.usefixtures("in_process")
def test_lag_of_what_has_expired(behind: Path, tmp_path: Path) -> None:
    shutil.copytree(behind, tmp_path / "s")
    file = tmp_path / "s" / "config" / "consumerOffset.json"
    file.write_text(file.read_text().replace('"orders@slow":', '"nowhere@gone":{0:7},"orders@slow":'))
    result = lag(NO_SPARK, tmp_path / "s")
    assert [(row.lag, row.oldest_ms) for row in result.rows if row.group == "gone"] == [(None, None)]


@pytest.mark.spark
def test_progress_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    """The last task ends only after somebody was told that others have."""
    seen: list[tuple[int, int]] = []
    told = tmp_path / "told"

    def tell(done: int, total: int) -> None:
        seen.append((done, total))
        if 0 < done < total:
            told.touch()

    def task(number: int) -> None:
        deadline = time.monotonic() + 60
        while number == 3 and not told.exists() and time.monotonic() < deadline:
            time.sleep(0.01)

    run_tasks(spark, task, range(4), tell)
    assert seen[0] == (0, 4)
    assert seen[-1] == (4, 4)
    assert seen == sorted(seen)
    assert any(0 < done < 4 for done, _ in seen)
    assert spark.sparkContext.getLocalProperty("spark.jobGroup.id") is None


@pytest.mark.spark
def test_commands(spark: SparkSession, behind: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mqstore.spark, "session", lambda master, name: spark)
    monkeypatch.setattr(type(spark), "stop", lambda session: None)

    def run(*words: object, code: int = 0) -> Any:
        done = CliRunner().invoke(app.build_app(), [*map(str, words), "--format", "json"])
        assert done.exit_code == code, done.output
        return json.loads(done.stdout)

    assert run("stats", behind, "--master", "local[2]")["counted"]["messages"] == 90
    assert run("stats", behind, "--report", tmp_path / "r.html")["counted"]["report"] == str(tmp_path / "r.html")
    found = run("lag", behind, "--master", "local[2]", "--alert", 49, code=1)
    assert found["lag"] == {"fast": 6, "slow": 50}
    assert run("rebuild", behind, "--output", tmp_path / "built", "--master", "local[2]")["units"] == 90
    assert run("audit", tmp_path / "built")["records"] == 90
    (tmp_path / "built" / "consumequeue" / "orders" / "0" / ("0" * 20)).write_bytes(bytes(6_000_000))
    assert run("audit", tmp_path / "built", code=1)["wrongUnits"] == 30
    assert run("rebuild", tmp_path / "built", "--in-place", "--master", "local[2]")["units"] == 90
    assert run("audit", tmp_path / "built")["wrongUnits"] == 0
    for ways in (["--in-place", "--output", tmp_path / "x"], [], ["--in-place", "--salvage"]):
        run("rebuild", behind, *ways, "--master", "local[2]", code=2)
    log_file = behind / "commitlog" / ("0" * 20)
    kept = log_file.read_bytes()
    for command in ("stats", "lag"):
        run(command, behind, "--report", log_file, code=2)
        run(command, behind, "--report", behind / "report.html", code=2)
    assert log_file.read_bytes() == kept
    run("export", behind, "--output", log_file / "out", code=2)
    (tmp_path / "file").write_bytes(b"")
    run("export", behind, "--output", tmp_path / "file" / "out", code=1)
    for table, kind in ((tmp_path / "none", "parquet"), (tmp_path / "file", "parquet"), (tmp_path / "file", "foo")):
        run("load", table, "--from", kind, "--output", tmp_path / "loaded", code=2)
    done = CliRunner().invoke(app.build_app(), ["load", str(tmp_path / "file"), "--output", str(tmp_path / "loaded")])
    assert f"Spark cannot read {tmp_path / 'file'} as parquet" in done.output.replace("\n", " ")
    assert not (tmp_path / "loaded").exists()
    text = CliRunner().invoke(app.build_app(), ["stats", str(behind), "--master", "local[2]"])
    assert "90 messages" in text.stdout


@pytest.mark.usefixtures("in_process")
def test_what_is_overlooked_is_told(behind: Path, tmp_path: Path) -> None:
    assert stats(NO_SPARK, behind).warnings == lag(NO_SPARK, behind).warnings == []
    store = Path(shutil.copytree(behind, tmp_path / "broker-a"))
    (queue,) = (store / "consumequeue" / "orders" / "1").iterdir()
    queue.unlink()
    queue.mkdir()
    with mqstore.inspect(store) as view:
        last = [one.physical_offset for one in view.scan()][-1]
    (log,) = (store / "commitlog").iterdir()
    with log.open("r+b") as file:
        file.seek(last + 4)
        file.write(b"torn")
    counted = stats(NO_SPARK, store, report=tmp_path / "stats.html")
    assert counted.messages == 89
    assert [(one.path, one.offset) for one in counted.warnings] == [(str(log), last)]
    waiting = lag(NO_SPARK, store, report=tmp_path / "lag.html")
    assert [(one.path, one.offset) for one in waiting.warnings] == [(str(log), last), (str(queue), None)]
    for page in ("stats.html", "lag.html"):
        assert "Not looked at" in (tmp_path / page).read_text()
        assert str(log) in (tmp_path / page).read_text()
