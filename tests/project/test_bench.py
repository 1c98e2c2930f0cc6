"""The benchmark measures what it says: every row puts or reads the messages it counts."""

from __future__ import annotations

import contextlib
import importlib.util
import sqlite3
import sys
from pathlib import Path
from types import ModuleType

import mqstore
from project.source import ROOT


def load_bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_run", ROOT / "bench" / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["bench_run"] = module
    spec.loader.exec_module(module)
    return module


def test_every_row_handles_as_many_messages_as_it_counts(tmp_path: Path) -> None:
    bench = load_bench()
    for number, row in enumerate(bench.rows()):
        directory = tmp_path / str(number)
        assert row.ours(directory, 64) > 0
        with mqstore.inspect(directory) as view:
            assert sum(1 for _ in view.scan()) == 64, row.name


def test_sqlite_holds_as_many_rows_as_it_counts(tmp_path: Path) -> None:
    bench = load_bench()
    for number, row in enumerate(bench.sqlite_rows()):
        assert row.ours(tmp_path / str(number), 64) > 0
        with contextlib.closing(sqlite3.connect(tmp_path / str(number) / "queue.db")) as database:
            assert database.execute("SELECT count(*) FROM messages").fetchone() == (64,)


def test_the_report_gives_medians_and_ratios() -> None:
    bench = load_bench()
    result = bench.Result("put", [10.0, 30.0, 20.0], {"4.9.8": [5.0, 40.0, 10.0]})
    arguments = type("Arguments", (), {"count": 3, "rounds": 3, "directory": None})
    last = bench.report([result], arguments).splitlines()[-1]
    assert last == "| put | 20 (10 to 30) | 10 (5 to 40) | 2.00 |"


def test_the_page_tells_what_was_measured() -> None:
    """The table on the page is the report's."""
    report = (ROOT / "bench" / "results" / "store.md").read_text("utf-8").splitlines()
    table = [line for line in report if line.startswith("|")]
    assert len(table) > 10
    assert "\n".join(table) in (ROOT / "docs" / "performance.md").read_text("utf-8")
