"""The benchmark measures what it says: every row puts or reads the messages it counts."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import sqlite3
import sys
from array import array
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from typer.testing import CliRunner

import mqstore
from mqstore.bench import other_queues, store_cell, store_report, store_work, stores
from mqstore.bench.stores import Plan, Row
from mqstore.cli.app import build_app
from mqstore.errors import UsageError
from project.source import ROOT

COUNT = 64


def load_script(name: str) -> ModuleType:
    sys.path[:0] = [str(ROOT / "bench")]
    try:
        spec = importlib.util.spec_from_file_location(f"bench_{name}", ROOT / "bench" / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[f"bench_{name}"] = module
        spec.loader.exec_module(module)
        return module
    finally:
        sys.path.remove(str(ROOT / "bench"))


def do(work: str, directory: Path, **options: Any) -> dict[str, Any]:
    return store_cell.do({"work": work, "directory": str(directory), "count": COUNT, "options": options})


@pytest.mark.parametrize("row", [row for row in stores.OURS if row.fill != {"end": "crash"}], ids=lambda row: row.name)
def test_every_row_handles_as_many_messages_as_it_counts(tmp_path: Path, row: Row) -> None:
    if row.fill is not None:
        do("fill", tmp_path / "store", **row.fill)
    figures = do(row.work, tmp_path / "store", **row.options)
    assert figures["per_second"] > 0
    with mqstore.inspect(tmp_path / "store") as view:
        records = list(view.scan())
        assert len(records) == COUNT
        assert {len(record.body) for record in records} == {row.options.get("size", 1024)}
        assert {record.queue_id for record in records} == set(range(row.options.get("threads", 1)))
        assert len(view.query("BenchTopic", str(COUNT - 1)).messages) == 1


def test_a_crash_is_one(tmp_path: Path) -> None:
    """The process ends with the store open, and the next one opens it with everything in it."""
    plan = Plan(COUNT, 1, "open after a crash", directory=tmp_path)
    (row,) = plan.rows()
    seen: dict[str, Any] = {}

    def peer(work: str, directory: Path, count: int, options: Any) -> dict[str, Any]:
        seen.update(work=work, count=count, aborted=(directory / "abort").exists())
        return do(work, directory)

    found = stores.measure_row(plan, row, {"another": peer})
    assert seen == {"work": "open_store", "count": COUNT, "aborted": True}
    assert [cell["seconds"] > 0 for cell in (*found["ours"], *found["peers"]["another"])] == [True, True]
    assert list(tmp_path.iterdir()) == []


def test_consumers_get_everything_while_files_roll(tmp_path: Path) -> None:
    figures = store_work.put(tmp_path / "s", 400, threads=4, consumers=2, file_bytes=1 << 16, time_each=True)
    assert figures["consumed"] == 400
    assert 0 < figures["p50_us"] <= figures["p99_us"] <= figures["p999_us"] <= figures["max_us"]
    assert len(list((tmp_path / "s" / "commitlog").iterdir())) >= 400 * 1024 // (1 << 16)


def test_topics_take_turns(tmp_path: Path) -> None:
    store_work.put(tmp_path / "s", 30, topics=10, size=10)
    with mqstore.inspect(tmp_path / "s") as view:
        queues = view.queues()
        assert len(queues) == 10
        assert {queue.max_offset for queue in queues} == {4}  # one each to make the topic


def test_percentiles() -> None:
    nanos = array("q", [1000 * number for number in range(1000, 0, -1)])
    assert store_work.percentiles(nanos) == {"p50_us": 501.0, "p99_us": 991.0, "p999_us": 1000.0, "max_us": 1000.0}


@pytest.mark.parametrize("threads", [1, 8])
def test_a_group_commit_holds_every_record(tmp_path: Path, threads: int) -> None:
    assert do("group_commit", tmp_path / "limit", size=100, threads=threads)["per_second"] > 0
    data = (tmp_path / "limit" / "file").read_bytes()
    assert data == data[:228] * COUNT
    assert any(data)


def test_the_other_limits_move_as_many_bytes(tmp_path: Path) -> None:
    for work in ("copy_into_file", "read_file"):
        figures = do(work, tmp_path / work, size=100_000)
        assert figures["bytes_per_second"] == pytest.approx(figures["per_second"] * 100_128)
        assert (tmp_path / work / "file").stat().st_size >= COUNT * 100_128
    assert do("copy_in_memory", tmp_path)["per_second"] > 0


def test_sqlite_holds_as_many_rows_as_it_counts(tmp_path: Path) -> None:
    for work in ("sqlite_put", "sqlite_get"):
        assert do(work, tmp_path / work)["per_second"] > 0
        with contextlib.closing(sqlite3.connect(tmp_path / work / "queue.db")) as database:
            assert database.execute("SELECT count(*), sum(length(body)) FROM messages").fetchone() == (64, 65536)


@pytest.mark.parametrize("work", ["persist_queue_put", "persist_queue_get", "litequeue_put", "litequeue_get"])
def test_other_queues_hold_or_give_everything(tmp_path: Path, work: str) -> None:
    assert do(work, tmp_path / work)["messages"] == COUNT


def test_a_package_that_is_missing_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "persistqueue", None)
    with pytest.raises(other_queues.Missing):
        other_queues.persist_queue_put(tmp_path / "q", COUNT)
    assert do("persist_queue_put", tmp_path / "q") == {
        "skipped": "persist-queue is not installed: "
        "the extra bench brings it; in a checkout of mqstore: pip install '.[bench]'"
    }


def run(*words: object, code: int = 0) -> Any:
    done = CliRunner().invoke(build_app(), ["bench", "store", *map(str, words), "--format", "json"])
    assert done.exit_code == code, done.output
    return json.loads(done.stdout)


def test_the_command(tmp_path: Path) -> None:
    places = ["--directory", tmp_path, "--output", tmp_path / "results"]
    results = run("--count", 100, "--rounds", 2, "--only", "query by key", *places)["results"]
    assert results == json.loads((tmp_path / "results" / "store.json").read_text())
    (row,) = results["rows"]
    assert [cell["messages"] for cell in row["ours"]] == [100, 100]
    assert "| query by key, 1 KiB, record checked | 100 | " in (tmp_path / "results" / "store.md").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["results"]
    added = run("--count", 200, "--rounds", 1, "--only", "SQLite: select", "--add", *places)["results"]["rows"]
    assert [(one["name"], one["messages"]) for one in added] == [(row["name"], 100), ("SQLite: select, 32 a time", 200)]


def test_what_cannot_be_measured(tmp_path: Path) -> None:
    (tmp_path / "store.json").write_text('{"rows": [{"name": "another"}]}')
    for words in (["--only", "no such row"], ["--directory", tmp_path / "nowhere"], ["--add", "--output", tmp_path]):
        assert run(*words, code=2)["error"]["type"] == UsageError.__name__


def test_what_is_not_finished_is_told(tmp_path: Path) -> None:
    results = stores.run(Plan(COUNT, 1, "put, 100 B", 0.001, tmp_path), tmp_path / "results")
    assert store_report.failed(results["rows"][0]) == ["put took more than 0 s", "copy_into_file took more than 0 s"]
    assert "- put, 100 B, 1 thread: put took more than 0 s" in (tmp_path / "results" / "store.md").read_text()


def test_the_report_gives_medians_and_ratios() -> None:
    def cells(*numbers: float) -> list[dict[str, float]]:
        return [{"per_second": one} for one in numbers]

    row = {
        "name": "put", "messages": 1000, "ours": cells(10, 30, 20), "limit": cells(40),
        "peers": {"RocketMQ 4.9.8": cells(5, 40, 10)},
    }  # fmt: skip
    other = {"name": "SQLite", "messages": 9, "ours": cells(4), "limit": [], "peers": {}, "beside": "put"}
    about = {"machine": "m", "kernels": "native", "file_system": "ext4", "about_peers": "", "rounds": 3, "count": 1000}
    lines = store_report.report({**about, "rows": [row, other]}).splitlines()
    assert "| put | 1,000 | 20 (10 to 30) | 0.50 | 10 (5 to 40) | 2.00 |" in lines
    assert "| put | 40 (40 to 40) |" in lines
    assert lines[-1] == "| SQLite | 4 (4 to 4) | put: 20 | 5.00 |"


@pytest.mark.interop
def test_the_peer_does_the_same(tmp_path: Path) -> None:
    """The real store puts as many messages, and finds what was filled for it."""
    peers = load_script("peers").find_peers("4.9.8", tmp_path)
    if not peers:
        pytest.skip("the real store cannot be had here")
    (peer,) = peers.values()
    options = {"threads": 4, "consumers": 2, "time_each": True, "size": 100, "warm": 20}
    figures = peer("put", tmp_path / "put", 400, options)
    assert figures["consumed"] == 400
    assert 0 < figures["p50_us"] <= figures["max_us"]
    with mqstore.inspect(tmp_path / "put") as view:
        assert sorted((one.topic, one.queue_id, one.max_offset) for one in view.queues()) == [
            *(("BenchTopic", queue, 100) for queue in range(4)), *(("WarmTopic", queue, 5) for queue in range(4))
        ]  # fmt: skip
    do("fill", tmp_path / "filled")
    for work in ("get", "query", "open_store"):
        assert peer(work, tmp_path / "filled", COUNT, {})["per_second"] > 0
    assert "messages failed" in peer("get", tmp_path / "filled", COUNT + 1, {})["failed"]


def tables(page: Path) -> list[str]:
    """Every table of a page."""
    found: list[list[str]] = [[]]
    for line in (*page.read_text("utf-8").splitlines(), ""):
        if line.startswith("|"):
            found[-1].append(line)
        elif found[-1]:
            found.append([])
    return ["\n".join(lines) for lines in found if lines]


def test_the_page_tells_what_was_measured() -> None:
    """Every table of the page is one of a report, line by line, but the one that judges them."""
    results = ROOT / "bench" / "results"
    reported = {table for path in results.glob("*.md") for table in tables(path)}
    told = tables(ROOT / "docs" / "performance.md")
    judging = [table for table in told if table.startswith("| work | wanted |")]
    assert len(judging) == 1
    assert len(told) > 2
    assert set(told) - set(judging) <= reported
