"""What the jobs are called with: what cannot be meant is refused in one way by all of them, before they do anything."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from typer.testing import CliRunner

pytest.importorskip("pyspark", reason="needs the extra 'spark'", exc_type=ImportError)

import mqstore
import mqstore.spark
from mqstore.cli import app
from mqstore.spark.jobs import audit, compact, convert, export, exporting, lag, load, rebuild, stats
from mqstore.spark.jobs.outputs import check_page
from mqstore.spark.stores import StoreRef
from spark.support import run_here

NO_SPARK: Any = None
WRONG_PATHS = [b"store", 5, None, "", ["x", b"store"], []]


@pytest.fixture
def store(golden: Path) -> Path:
    return golden / "basic" / "store"


PATHS: dict[str, Callable[[Path, Path, Any], object]] = {
    "export": lambda _, out, wrong: export(NO_SPARK, wrong, out),
    "output of export": lambda store, _, wrong: export(NO_SPARK, store, wrong),
    "stats": lambda _, out, wrong: stats(NO_SPARK, wrong),
    "lag": lambda _, out, wrong: lag(NO_SPARK, wrong),
    "compact": lambda _, out, wrong: compact(NO_SPARK, wrong),
    "rebuild": lambda _, out, wrong: rebuild(NO_SPARK, wrong, out),
    "audit": lambda _, out, wrong: audit(NO_SPARK, wrong),
    "load": lambda _, out, wrong: load(NO_SPARK, NO_SPARK, wrong),
    "report of stats": lambda store, _, wrong: stats(NO_SPARK, store, report=wrong if wrong is not None else ""),
    "report of lag": lambda store, _, wrong: lag(NO_SPARK, store, report=wrong if wrong is not None else ""),
}


@pytest.mark.parametrize("wrong", WRONG_PATHS, ids=repr)
@pytest.mark.parametrize("job", PATHS)
def test_what_is_no_path(store: Path, tmp_path: Path, job: str, wrong: Any) -> None:
    with pytest.raises(mqstore.UsageError):
        PATHS[job](store, tmp_path / "out", wrong)
    assert not list(tmp_path.iterdir())


CONFIGS: dict[str, Callable[[Path, Path, Any], object]] = {
    "open": lambda _, out, wrong: mqstore.open(out, config=wrong),
    "rebuild in this process": lambda store, out, wrong: mqstore.rebuild(store, out, config=wrong),
    "rebuild": lambda store, out, wrong: rebuild(NO_SPARK, store, out, config=wrong),
    "audit": lambda store, _, wrong: audit(NO_SPARK, store, config=wrong),
    "load": lambda _, out, wrong: load(NO_SPARK, NO_SPARK, out, config=wrong),
}


@pytest.mark.parametrize("wrong", ["x", 5, {"a": 1}, [], mqstore.StoreConfig], ids=repr)
@pytest.mark.parametrize("function", CONFIGS)
def test_what_is_no_configuration(store: Path, tmp_path: Path, function: str, wrong: Any) -> None:
    with pytest.raises(mqstore.UsageError, match="not a configuration") as caught:
        CONFIGS[function](store, tmp_path / "out", wrong)
    assert caught.value.expected == "StoreConfig"
    assert not list(tmp_path.iterdir())


def test_an_output_that_cannot_be_written_is_told_before_spark_starts(store: Path) -> None:
    for nowhere in (Path("/proc/out"), Path("/proc/a/b/out")):
        with pytest.raises(mqstore.StoreIOError, match="could not create file"):
            exporting.check_export(store, nowhere)


SIZES: dict[str, Callable[[Path, Path, Any], object]] = {
    "export": lambda store, out, wrong: export(NO_SPARK, store, out, target_file_bytes=wrong),
    "compact": lambda _, out, wrong: compact(NO_SPARK, out, target_file_bytes=wrong),
    "rebuild": lambda store, out, wrong: rebuild(NO_SPARK, store, out, split_bytes=wrong),
    "audit": lambda store, _, wrong: audit(NO_SPARK, store, split_bytes=wrong),
}


@pytest.mark.parametrize("wrong", [0, -1, "1", 1.5, True], ids=repr)
@pytest.mark.parametrize("job", SIZES)
def test_what_is_no_size(store: Path, tmp_path: Path, job: str, wrong: Any) -> None:
    with pytest.raises(mqstore.UsageError, match="_bytes"):
        SIZES[job](store, tmp_path / "out", wrong)
    assert not list(tmp_path.iterdir())


WRONG: dict[str, Callable[[Path, Path], object]] = {
    "stored": lambda _, out: load(NO_SPARK, NO_SPARK, out, store_timestamp_ms=-5),
    "stored in seconds": lambda _, out: load(NO_SPARK, NO_SPARK, out, store_timestamp_ms=cast("Any", 1.5)),
    "stored by a flag": lambda _, out: load(NO_SPARK, NO_SPARK, out, store_timestamp_ms=True),
    "group": lambda store, _: lag(NO_SPARK, store, group=cast("Any", 5)),
    "topic": lambda store, _: lag(NO_SPARK, store, topic=cast("Any", b"x")),
    "job": lambda store, out: export(NO_SPARK, store, out, job_id=cast("Any", 5)),
    "blocks": lambda store, out: convert(NO_SPARK, store, out, block_bytes=cast("Any", "x")),
    "table": lambda store, out: export(NO_SPARK, store, out, table="messages"),
    "catalog": lambda store, out: export(NO_SPARK, store, out, catalog={}),
    "no table": lambda store, out: export(NO_SPARK, store, out, table_format="iceberg", catalog={}),
    "no catalog": lambda store, out: export(
        NO_SPARK, store, out, table_format="iceberg", table="m", catalog=cast("Any", "rest")
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_refused_before_anything_is_done(store: Path, tmp_path: Path, case: str) -> None:
    with pytest.raises(mqstore.UsageError):
        WRONG[case](store, tmp_path / "out")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["path", "Paths", "columns", "pushFilters", "topic", "view"])
def test_options_that_stats_does_not_take(store: Path, name: str) -> None:
    with pytest.raises(mqstore.UsageError):
        stats(NO_SPARK, store, options={name: "queues"})


def test_a_report_takes_no_directory_s_place(store: Path, tmp_path: Path) -> None:
    for report in (tmp_path, "s3://bucket/page.html"):
        for job in (stats, lag):
            with pytest.raises(mqstore.UsageError, match="file on this machine"):
                job(NO_SPARK, store, report=report)


def test_jobs_for_one_store_say_so_where_they_are_given_a_pattern(store: Path, tmp_path: Path) -> None:
    for call in (lambda: rebuild(NO_SPARK, store.parent / "*", tmp_path / "out"), lambda: audit(NO_SPARK, f"{store}*")):
        with pytest.raises(mqstore.UsageError, match="one store at a time"):
            call()
    shutil.copytree(store, tmp_path / "[a]")
    with pytest.raises(mqstore.UsageError, match="in use"):
        rebuild(NO_SPARK, tmp_path / "[a]", tmp_path / "[a]" / "commitlog")


ON_SPARK = ("--master", "local[2]")
COMMANDS: dict[str, tuple[list[str], str]] = {
    "columns": (["export", "{store}", "-o", "{new}", "--columns", "topics"], "no such column"),
    "partitions": (["export", "{store}", "-o", "{new}", "--partition-by", "day"], "no such partitioning"),
    "name": (["export", "{store}", "-o", "{new}", "--job-id", "../x"], "cannot be part of a file name"),
    "condition": (["export", "{store}", "-o", "{new}", "--where", "||"], "tag expression"),
    "inside": (["export", "{store}", "-o", "{store}/out"], "the output lies in the store"),
    "file": (["export", "{store}", "-o", "{file}"], "the output is no directory"),
    "no store": (["export", "{new}", "-o", "{new}"], "no such directory"),
    "rebuilt": (["rebuild", "{store}", "-o", "{used}", "--master", "local[2]"], "output directory is in use"),
    "rebuilt inside": (["rebuild", "{store}", "-o", "{store}/out", "--master", "local[2]"], "lie inside each other"),
    "loaded": (["load", "{file}", "-o", "{used}"], "output directory is in use"),
    "rebuilt nowhere": (["rebuild", "{store}", "-o", "/proc/new", "--master", "local[2]"], "could not create file"),
    "rebuilt pattern": (["rebuild", "{store}*", "-o", "{new}", "--master", "local[2]"], "one store at a time"),
    "rebuilt pattern here": (["rebuild", "{store}*", "-o", "{new}"], "one store at a time"),
    "audited pattern": (["audit", "{store}*"], "one store at a time"),
    "checked pattern": (["check", "{store}*"], "one store at a time"),
    "counted into a directory": (["stats", "{store}", "--report", "{used}"], "a report is a file on this machine"),
    "counted into the store": (["stats", "{store}", "--report", "{store}/page"], "the report lies in the store"),
    "counted into a file": (["stats", "{store}", "--report", "{file}/page"], "could not create file"),
    "counted nowhere": (["stats", "{store}", "--report", "/proc/page"], "could not create file"),
    "lag nowhere": (["lag", "{store}", "--report", "/proc/new/page"], "could not create file"),
    "lag elsewhere": (["lag", "{store}", "--report", "s3://bucket/page?a=b"], "a report is a file on this machine"),
    "loaded nowhere": (["load", "{file}", "-o", "/proc/new"], "could not create file"),
    "stored": (["load", "{file}", "-o", "{new}", "--stored", "0"], "no such store time"),
    "converted into what is used": (["kafka", "convert", "{store}", "-o", "{used}", *ON_SPARK], "directory is in use"),
    "converted nowhere": (["kafka", "convert", "{store}", "-o", "/proc/new", *ON_SPARK], "could not create file"),
    "converted to a URL": (["kafka", "convert", "{store}", "-o", "s3://b/x", *ON_SPARK], "on this machine"),
    "converted inside": (["kafka", "convert", "{store}", "-o", "{store}/out", *ON_SPARK], "lie inside each other"),
    "nothing converted": (["kafka", "convert", "{new}", "-o", "{used}", *ON_SPARK], "no such directory"),
    "demo": (["demo", "-o", "{new}", "--master", "nope"], "not the master of a Spark cluster"),
    "demo at a URL": (["demo", "-o", "s3://b/x"], "local directory"),
    "alert": (["lag", "{store}", "--alert", "5"], "no group has progress here"),
    "window": (["export", "{store}", "-o", "{new}", "--begin", "5", "--end", "3"], "the window ends before it begins"),
    "sql": (["export", "{store}", "-o", "{new}", "--sql", "amount >"], "not an SQL92 expression"),
    "sql and tags": (["export", "{store}", "-o", "{new}", "--sql", "a > 1", "--where", "b"], "either --where or --sql"),
    "compacted": (["compact", "{used}"], "nothing was exported to this directory"),
    "compacted away": (["compact", "{new}"], "nothing was exported to this directory"),
}


@pytest.mark.parametrize("case", COMMANDS)
def test_what_commands_tell_before_spark_is_started(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    monkeypatch.setattr(mqstore.spark, "session", lambda *_: pytest.fail("Spark was started"))
    (tmp_path / "file").touch()
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "mine").touch()
    places = {"store": store, "new": tmp_path / "new", "file": tmp_path / "file", "used": tmp_path / "used"}
    words, complaint = COMMANDS[case]
    if "/proc" in "".join(words) and not sys.platform.startswith("linux"):
        pytest.skip("there is no /proc")
    done = CliRunner().invoke(app.build_app(), [word.format(**places) for word in words])
    is_failure = complaint in ("no such directory", "could not create file")
    assert done.exit_code == (1 if is_failure else 2)
    assert complaint in " ".join(done.output.split())


def test_a_report_that_can_be_written_leaves_nothing_before(store: Path, tmp_path: Path) -> None:
    page = check_page(tmp_path / "new" / "page.html", [StoreRef(str(store), "store")])
    assert page == tmp_path / "new" / "page.html"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("condition", "rows"), [("amount > 17", 2), ("TRUE", 20), ("amount IS NULL", 0)])
def test_what_an_export_is_asked_for_in_sql(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, condition: str, rows: int
) -> None:
    with mqstore.open(tmp_path / "store") as made:
        for number in range(20):
            made.put(mqstore.Message("orders", b"", properties={"amount": str(number)}, queue_id=0))
    monkeypatch.setattr(mqstore.spark, "session", lambda *_: SimpleNamespace(stop=lambda: None))
    monkeypatch.setattr(exporting, "run_tasks", run_here)
    words = ["export", str(tmp_path / "store"), "-o", str(tmp_path / "out"), "--sql", condition, "--format", "json"]
    done = CliRunner().invoke(app.build_app(), words)
    assert json.loads(done.stdout)["rows"] == rows


def test_what_is_checked_before_needs_neither_arrow_nor_numpy(store: Path, tmp_path: Path) -> None:
    """Who has installed none of them is told so by the one who starts Spark, and not by a failing import."""
    code = f"""
import sys
for name in ("pyspark", "pyarrow", "numpy"):
    sys.modules[name] = None
import importlib.util
find = importlib.util.find_spec
from mqstore.spark import installed
installed.find_spec = lambda name: None if name == "pyspark" else find(name)
from mqstore.errors import MqstoreError
from mqstore.spark.jobs.compacting import check_compact
from mqstore.spark.jobs.exporting import check_export
for check in (lambda: check_compact({str(tmp_path)!r}), lambda: check_export({str(store)!r}, {str(tmp_path / "o")!r})):
    try:
        check()
    except MqstoreError as error:
        print(error.message)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["nothing was exported to this directory", "pyspark is not installed"], (
        done.stderr
    )
