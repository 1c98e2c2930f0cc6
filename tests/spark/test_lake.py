"""Exports as tables of other formats, divided otherwise, and compacted."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="needs the extra 'spark'")

import pyarrow.parquet as pq

import mqstore
from mqstore.spark.jobs import compact, compacting, export, exporting, lake, merging
from spark.support import expected_messages, files_below, open_files_below, run_here

NO_SPARK: Any = None
COLUMNS = ["queueId", "queueOffset", "physicalOffset", "keys", "properties", "body", "storeTimestamp"]


@pytest.fixture(autouse=True)
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (exporting, compacting):
        monkeypatch.setattr(module, "run_tasks", run_here)


def plain(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    names = ("topic", *COLUMNS)
    found = [{**row, "properties": sorted(dict(row["properties"]).items())} for row in rows]
    return sorted(tuple(str(row[name]) for name in names) for row in found)


def test_delta(golden: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("deltalake")
    from deltalake import DeltaTable

    expected = plain(expected_messages(golden, "basic"))
    arguments: dict[str, Any] = {"columns": COLUMNS, "table_format": "delta", "job_id": "one"}
    finish = exporting._finish

    def dies(*_: object) -> None:
        raise ConnectionError

    monkeypatch.setattr(exporting, "_finish", dies)
    with pytest.raises(ConnectionError):  # behind the commit
        export(NO_SPARK, golden / "basic" / "store", tmp_path / "t", **arguments)
    monkeypatch.setattr(exporting, "_finish", finish)
    for _ in range(2):
        export(NO_SPARK, golden / "basic" / "store", tmp_path / "t", **arguments)
    table = DeltaTable(str(tmp_path / "t"))
    assert table.version() == 0
    assert plain(table.to_pyarrow_table().to_pylist()) == expected
    export(NO_SPARK, golden / "broker" / "store", tmp_path / "t", **{**arguments, "job_id": "two"})
    table = DeltaTable(str(tmp_path / "t"))
    assert table.version() == 1
    assert plain(table.to_pyarrow_table().to_pylist()) == sorted(expected + plain(expected_messages(golden, "broker")))
    with pytest.raises(mqstore.UsageError, match="own means"):
        compact(NO_SPARK, tmp_path / "t")


def test_iceberg(golden: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyiceberg")
    from pyiceberg.catalog import load_catalog

    catalog = {
        "type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": (tmp_path / "warehouse").as_uri(),
        "name": "prod",
    }  # fmt: skip
    arguments: dict[str, Any] = {
        "columns": COLUMNS, "table_format": "iceberg", "job_id": "one", "table": "lake.messages", "catalog": catalog,
    }  # fmt: skip
    finish = exporting._finish
    monkeypatch.setattr(exporting, "_finish", lambda *_: (_ for _ in ()).throw(ConnectionError))
    with pytest.raises(ConnectionError):  # behind the commit
        export(NO_SPARK, golden / "basic" / "store", tmp_path / "a lake, ü", **arguments)
    monkeypatch.setattr(exporting, "_finish", finish)
    export(NO_SPARK, golden / "basic" / "store", tmp_path / "a lake, ü", **arguments)
    found = load_catalog("prod", **{key: catalog[key] for key in catalog if key != "name"}).load_table("lake.messages")
    assert len(found.metadata.snapshots) == 1
    assert plain(found.scan().to_arrow().to_pylist()) == plain(expected_messages(golden, "basic"))


def test_a_catalog_that_cannot_be_reached_is_told_before_anything_is_written(golden: Path, tmp_path: Path) -> None:
    pytest.importorskip("pyiceberg")
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/not/there.db", "warehouse": tmp_path.as_uri()}
    arguments: dict[str, Any] = {"table_format": "iceberg", "table": "lake.messages", "catalog": catalog}
    with pytest.raises(mqstore.StoreIOError, match="could not look for the table") as caught:
        export(NO_SPARK, golden / "basic" / "store", tmp_path / "t", **arguments)
    assert "start the same export again" in str(caught.value.hint)
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize(
    "catalog", [{"uri": "mysql://u:hidden@h/db"}, {"uri": "hidden"}, {"type": "rest", "uri": "http://[::1]:1/?token=hidden"},
                {"type": "sql", "uri": "nodialect://u:hidden@h/db", "warehouse": "hidden"}],
)  # fmt: skip
def test_what_a_catalog_is_told_is_told_to_nobody(golden: Path, tmp_path: Path, catalog: dict[str, str]) -> None:
    pytest.importorskip("pyiceberg")
    arguments: dict[str, Any] = {"table_format": "iceberg", "table": "lake.messages", "catalog": catalog}
    with pytest.raises((mqstore.StoreIOError, mqstore.UsageError), match="could not look for the table") as caught:
        export(NO_SPARK, golden / "basic" / "store", tmp_path / "t", **arguments)
    assert "hidden" not in str(caught.value)
    assert caught.value.__suppress_context__


def test_a_commit_that_fails_is_told_and_made_good_by_a_repetition(golden: Path, tmp_path: Path) -> None:
    pytest.importorskip("deltalake")
    from deltalake import DeltaTable

    log = tmp_path / "t" / "_delta_log"
    arguments: dict[str, Any] = {"table_format": "delta", "columns": COLUMNS}
    log.parent.mkdir()
    log.write_bytes(b"in the way")
    with pytest.raises(mqstore.StoreIOError, match="could not") as caught:
        export(NO_SPARK, golden / "basic" / "store", tmp_path / "t", **arguments)
    assert caught.value.path == str(tmp_path / "t")
    log.unlink()
    export(NO_SPARK, golden / "basic" / "store", tmp_path / "t", **arguments)
    table = DeltaTable(str(tmp_path / "t"))
    assert plain(table.to_pyarrow_table().to_pylist()) == plain(expected_messages(golden, "basic"))


@pytest.mark.parametrize("partition_by", [["topic"], ["date"], []])
def test_divided_otherwise(golden: Path, tmp_path: Path, partition_by: list[str]) -> None:
    export(NO_SPARK, golden / "basic" / "store", tmp_path / "t", columns=COLUMNS, partition_by=partition_by)
    rows = []
    for file in sorted((tmp_path / "t").rglob("*.parquet")):
        names = [part.partition("=") for part in file.relative_to(tmp_path / "t").parts[:-1]]
        assert [name for name, _, _ in names] == partition_by
        values = {name: value for name, _, value in names}
        rows += [{**values, **row} for row in pq.ParquetFile(file).read().to_pylist()]
    expected = expected_messages(golden, "basic")
    if "topic" in partition_by:
        for row in expected:
            row["topic"] = exporting_name(row["topic"])
    assert plain(rows) == plain(expected)


def exporting_name(topic: str) -> str:
    from urllib.parse import quote

    return quote(topic, safe="")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"partition_by": ["date", "topic"]}, "no such partitioning"),
        ({"partition_by": ["hour"]}, "no such partitioning"),
        ({"table_format": "hudi"}, "no such table format"),
        ({"table_format": "iceberg"}, "a name and a catalog"),
        ({"table": "a.b", "catalog": {}}, "a name and a catalog"),
    ],
)
def test_refused(golden: Path, tmp_path: Path, arguments: dict[str, Any], complaint: str) -> None:
    with pytest.raises(mqstore.UsageError, match=complaint):
        export(NO_SPARK, golden / "broker" / "store", tmp_path / "t", **arguments)
    assert not (tmp_path / "t").exists()


def test_a_package_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lake, "find_spec", lambda name: None)
    with pytest.raises(mqstore.UsageError, match="deltalake is not installed"):
        lake.check_format("delta")


@pytest.fixture
def exported(golden: Path, tmp_path: Path) -> Path:
    """Three exports of which each has made many small files."""
    for number, name in enumerate(("basic", "broker", "cleaned")):
        export(NO_SPARK, golden / name / "store", tmp_path / "t", job_id=str(number), columns=COLUMNS,
               options={"splitBytes": "300000"}, target_file_bytes=3000)  # fmt: skip
    return tmp_path / "t"


def rows_below(root: Path) -> list[tuple[Any, ...]]:
    found = []
    for file in root.rglob("*.parquet"):
        if "_mqstore" not in file.parts:
            topic = file.parent.parent.name
            found += plain([{"topic": topic, **row} for row in pq.ParquetFile(file).read().to_pylist()])
    return sorted(found)


def test_small_files_become_large_ones(exported: Path) -> None:
    before = rows_below(exported)
    result = compact(NO_SPARK, exported)
    assert rows_below(exported) == before
    assert (result.rows, result.files_after) == (result.rows, len(list(exported.glob("topic=*/date=*/*.parquet"))))
    assert result.files_before > 3 * result.files_after
    assert all(len(list(directory.iterdir())) == 1 for directory in exported.glob("topic=*/date=*"))
    content = files_below(exported)
    again = compact(NO_SPARK, exported)
    assert (again.directories, again.rows) == (0, 0)
    assert files_below(exported) == content
    left = sorted(path.name for path in (exported / "_mqstore").iterdir())
    assert left == ["0.json", "1.json", "2.json", "compacted"]


def test_large_files_stay(exported: Path) -> None:
    before = rows_below(exported)
    largest = max(exported.glob("topic=*/date=*/*.parquet"), key=lambda path: path.stat().st_size)
    inode = largest.stat().st_ino
    compact(NO_SPARK, exported, target_file_bytes=largest.stat().st_size * 2)
    assert largest.stat().st_ino == inode
    assert rows_below(exported) == before


@pytest.mark.parametrize("in_one_step", [True, False])
@pytest.mark.parametrize("dies_at", [0, 1, 2])
def test_killed_in_the_middle(exported: Path, monkeypatch: pytest.MonkeyPatch, dies_at: int, in_one_step: bool) -> None:
    """Each directory has its old files or its new ones; the next run finishes."""
    before = rows_below(exported)
    if not in_one_step:
        monkeypatch.setattr(compacting, "_exchange", lambda one, other: False)
    steps = 0
    real = os.rename if not in_one_step else compacting._exchange

    def dies(*paths: Any) -> Any:
        nonlocal steps
        steps += 1
        if steps > dies_at:
            raise KeyboardInterrupt
        return real(*paths)

    with monkeypatch.context() as patch:
        patch.setattr(*((compacting.os, "rename") if not in_one_step else (compacting, "_exchange")), dies)
        with pytest.raises(KeyboardInterrupt):
            compact(NO_SPARK, exported)
    if in_one_step:
        assert rows_below(exported) == before
    compact(NO_SPARK, exported)
    assert rows_below(exported) == before
    assert all(len(list(directory.iterdir())) == 1 for directory in exported.glob("topic=*/date=*"))


def test_what_a_killed_one_staged_is_no_directory_that_was_put_aside(exported: Path) -> None:
    staged = exported / "_mqstore" / compacting._STAGE_NAME / "topic=Orders.old" / "date=2020-01-01"
    staged.mkdir(parents=True)
    shutil.copy(next(exported.glob("topic=*/date=*/*.parquet")), staged / "merged.parquet")
    before = rows_below(exported)
    compact(NO_SPARK, exported)
    assert rows_below(exported) == before


def test_files_that_come_meanwhile_stay(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = max(exported.glob("topic=*/date=*"), key=lambda path: len(list(path.iterdir())))

    def run_and_add(*arguments: Any) -> list[Any]:
        results = run_here(*arguments)
        first = min(directory.iterdir())
        shutil.copy(first, directory / "more.parquet")
        return results

    monkeypatch.setattr(compacting, "run_tasks", run_and_add)
    compact(NO_SPARK, exported)
    assert (directory / "more.parquet").exists()


def test_what_cannot_be_compacted(tmp_path: Path) -> None:
    for path, complaint in ((tmp_path, "nothing was exported"), ("s3://bucket/x", "object store")):
        with pytest.raises(mqstore.UsageError, match=complaint):
            compact(NO_SPARK, path)
    with pytest.raises(mqstore.UsageError, match="target_file_bytes"):
        compact(NO_SPARK, tmp_path, target_file_bytes=0)


def test_a_merge_that_fails_leaves_no_file_open(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "_ROW_GROUP_BYTES", 1)  # so that a file has been begun by then
    damaged = max(exported.glob("topic=TopicTest/date=*/*.parquet"))
    damaged.write_bytes(damaged.read_bytes()[:-1])
    with pytest.raises(mqstore.CorruptFileError) as caught:
        compact(NO_SPARK, exported)
    assert open_files_below(exported) == []
    assert caught.value.__traceback__ is not None
