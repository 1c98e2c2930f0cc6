"""How the files of exports are merged: what goes where, what is kept out meanwhile, and what is never lost."""

from __future__ import annotations

import itertools
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="needs the extra 'spark'")

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

import mqstore
from mqstore import Message
from mqstore.spark.jobs import compact, compacting, export, exporting, lake, outputs, parquet
from spark.support import files_below, fill, run_here

NO_SPARK: Any = None
COLUMNS = ["physicalOffset", "body"]


@pytest.fixture(autouse=True)
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (exporting, compacting):
        monkeypatch.setattr(module, "run_tasks", run_here)


def rows_by_manifest(output: Path, job_id: str) -> list[int]:
    """Physical offsets in the files that a job's manifest names, or in those that hold their rows now."""
    merged = json.loads((output / "_mqstore" / "compacted" / "files.json").read_bytes())["merged"]
    wanted = [one["path"] for one in json.loads((output / "_mqstore" / f"{job_id}.json").read_bytes())["files"]]
    found: set[str] = set()
    while wanted:
        path = wanted.pop()
        if (output / path).exists():
            found.add(path)
        else:
            wanted += merged[path]
    tables = [pq.ParquetFile(output / path).read(["physicalOffset"]) for path in sorted(found)]
    return sorted(pa.concat_tables(tables)["physicalOffset"].to_pylist())


def only_once(real: Callable[..., None]) -> Callable[..., None]:
    """``real`` for the first call; the second is where the process is interrupted."""
    calls = itertools.count()

    def call(*arguments: Any) -> None:
        if next(calls):
            raise KeyboardInterrupt
        real(*arguments)

    return call


@pytest.mark.parametrize("killed", [False, True])
def test_where_the_rows_of_merged_files_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed: bool) -> None:
    places = []
    real = compacting._swap
    for job_id in ("first", "second", "third"):
        with mqstore.open(tmp_path / job_id) as store:
            for number in range(20):
                put = store.put(Message(("orders", "returns")[number % 2], bytes(number), queue_id=0))
                places += [put.physical_offset] * (job_id == "first")
        export(NO_SPARK, tmp_path / job_id, tmp_path / "out", job_id=job_id)
        if job_id == "first":
            continue
        if killed:
            monkeypatch.setattr(compacting, "_swap", only_once(real))
            with pytest.raises(KeyboardInterrupt):
                compact(NO_SPARK, tmp_path / "out")
            monkeypatch.setattr(compacting, "_swap", real)
            assert set(places) <= set(rows_by_manifest(tmp_path / "out", "first"))
        compact(NO_SPARK, tmp_path / "out")
        assert set(places) <= set(rows_by_manifest(tmp_path / "out", "first"))
    assert len(rows_by_manifest(tmp_path / "out", "first")) == 60
    assert export(NO_SPARK, tmp_path / "first", tmp_path / "out", job_id="first").replayed


def two_exports(store: Path, output: Path, **settings: Any) -> Path:
    for number, (begin, end) in enumerate(((0, 10), (10, 20))):
        ends = [json.dumps({"orders": {"0": offset}}) for offset in (begin, end)]
        options = dict(zip(("startingOffsets", "endingOffsets"), ends, strict=True))
        export(NO_SPARK, store, output, job_id=f"part-{number}", options=options, **settings)
    return output


def test_compacting_waits_for_an_export_that_was_broken_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has published some of its files: merged, they would be missed when it goes on, or be there twice."""
    store = fill(tmp_path / "store", [b"%d" % number for number in range(20)])
    output = two_exports(store, tmp_path / "out")
    moves, move = itertools.count(), outputs.move

    def dies(path: Path, target: Path) -> None:
        if next(moves) == 2:
            raise KeyboardInterrupt
        move(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(outputs, "move", dies)
        patch.setattr(parquet, "_PENDING_BYTES", 1)
        with pytest.raises(KeyboardInterrupt):
            export(NO_SPARK, store, output, job_id="third", target_file_bytes=1, options={"splitBytes": "1000"})
    (output / "_mqstore" / "part-0.partial").mkdir()
    (output / "_mqstore" / "part-0.partial" / "plan.json").touch()  # killed when all was done
    before = sorted(output.rglob("*"))
    with pytest.raises(mqstore.UsageError, match="not finished") as caught:
        compact(NO_SPARK, output)
    assert "third" in str(caught.value)
    assert sorted(output.rglob("*")) == before
    export(NO_SPARK, store, output, job_id="third", target_file_bytes=1, options={"splitBytes": "1000"})
    assert compact(NO_SPARK, output).files_after == 1
    found = ds.dataset(output, partitioning="hive", exclude_invalid_files=False).to_table()
    assert sorted(found["body"].to_pylist()) == sorted([b"%d" % number for number in range(20)] * 2)


def bodies_below(output: Path) -> list[bytes]:
    found = ds.dataset(output, partitioning="hive", exclude_invalid_files=False).to_table()
    return sorted(found["body"].to_pylist())


def test_two_compactions_of_one_output_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One would remove the new directories of the other, or put half of them in place."""
    store = fill(tmp_path / "store", [b"%d" % number for number in range(20)])
    output = two_exports(store, tmp_path / "out")
    refused = []

    def run_beside(*arguments: Any) -> list[Any]:
        found = run_here(*arguments)
        with pytest.raises(mqstore.StoreLockedError, match="another compaction") as caught:
            compact(NO_SPARK, output)
        refused.append(caught.value.path)
        return found

    monkeypatch.setattr(compacting, "run_tasks", run_beside)
    assert compact(NO_SPARK, output).files_after == 1
    assert refused == [str(output)]
    assert len(bodies_below(output)) == 20
    monkeypatch.undo()


@pytest.mark.parametrize("in_one_step", [True, False])
def test_what_comes_when_directories_change_places_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_one_step: bool
) -> None:
    store = fill(tmp_path / "store", [b"%d" % number for number in range(20)])
    output = two_exports(store, tmp_path / "out")
    real = compacting._exchange

    def exchange(one: Path, other: Path) -> bool:
        pq.write_table(pq.read_table(min(one.glob("*.parquet"))), one / "late.parquet")
        return in_one_step and real(one, other)

    monkeypatch.setattr(compacting, "_exchange", exchange)
    compact(NO_SPARK, output)
    assert len(bodies_below(output)) == 30


@pytest.mark.parametrize("refused", ["topic=orders", "topic=orders/date=1970-01-01", "_mqstore"])
def test_compacting_does_not_pass_over_what_it_may_not_look_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    store = fill(tmp_path / "store", [b"%d" % number for number in range(20)])
    output = two_exports(store, tmp_path / "out")
    (day,) = (output / "topic=orders").iterdir()
    day.rename(day.with_name("date=1970-01-01"))
    real = os.scandir

    def refuse(path: Any = ".") -> Any:
        if str(path) == str(output / refused):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", refuse)
    monkeypatch.setattr(os, "listdir", lambda path=".": [one.name for one in refuse(path)])
    with pytest.raises(mqstore.StoreIOError, match="Permission denied") as caught:
        compact(NO_SPARK, output)
    assert caught.value.path == str(output / refused)


def test_an_export_that_begins_while_files_are_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = fill(tmp_path / "store", [b"%d" % number for number in range(20)])
    output = two_exports(store, tmp_path / "out")

    def begin_another(*arguments: Any) -> list[Any]:
        (output / "_mqstore" / "third.partial").mkdir()
        (output / "_mqstore" / "third.partial" / "plan.json").touch()
        return run_here(*arguments)

    monkeypatch.setattr(compacting, "run_tasks", begin_another)
    with pytest.raises(mqstore.UsageError, match="not finished"):
        compact(NO_SPARK, output)
    assert len(list(output.glob("topic=*/*/*.parquet"))) == 2
    shutil.rmtree(output / "_mqstore" / "third.partial")
    monkeypatch.setattr(compacting, "run_tasks", run_here)
    assert compact(NO_SPARK, output).files_after == 1
    assert len(bodies_below(output)) == 20


@pytest.mark.parametrize("compression", exporting.CODECS)
def test_files_of_every_codec_are_compacted(tmp_path: Path, compression: str) -> None:
    store = fill(tmp_path / "store", [b"%d" % number for number in range(20)])
    output = two_exports(store, tmp_path / "out", compression=compression)
    assert compact(NO_SPARK, output).files_after == 1
    (file,) = output.glob("topic=*/date=*/*.parquet")
    said = {"none": "UNCOMPRESSED"}.get(compression, compression.upper())
    assert pq.read_metadata(file).row_group(0).column(0).compression == said


def test_a_damaged_note_of_earlier_compactions_is_told_before_anything_is_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = fill(tmp_path / "store", [b"%d" % number for number in range(20)])
    output = two_exports(store, tmp_path / "out")
    note = output / "_mqstore" / "compacted" / "files.json"
    note.parent.mkdir()
    monkeypatch.setattr(compacting, "run_tasks", lambda *_: pytest.fail("files were merged"))
    for text in ("{", "[]", '{"merged": 5}', '{"merged": {"a": 5}}'):
        note.write_text(text)
        before = sorted(output.rglob("*"))
        with pytest.raises(mqstore.CorruptFileError, match="note of an export is damaged") as caught:
            compact(NO_SPARK, output)
        assert caught.value.path == str(note)
        assert str(note) in str(caught.value.hint)
        assert sorted(output.rglob("*")) == before
    note.unlink()
    monkeypatch.setattr(compacting, "run_tasks", run_here)
    result = compact(NO_SPARK, output)
    assert result.files_after == 1
    assert list(result.stage_seconds) == ["plan", "merge", "replace"]


def test_files_of_other_columns_are_merged_among_themselves(tmp_path: Path) -> None:
    store = fill(tmp_path / "store", [b"%d" % number for number in range(20)])
    output = tmp_path / "out"
    for job_id, columns in (("a", COLUMNS), ("b", ["body"]), ("c", COLUMNS), ("d", ["body", "tags"]), ("e", ["body"])):
        export(NO_SPARK, store, output, job_id=job_id, columns=columns)
    result = compact(NO_SPARK, output)
    assert (result.files_before, result.files_after, result.rows, result.directories) == (5, 3, 80, 1)
    files = [pq.ParquetFile(path) for path in output.glob("topic=*/date=*/*.parquet")]
    assert sorted((file.schema_arrow.names, file.metadata.num_rows) for file in files) == [
        (["body"], 40), (["body", "tags"], 20), (COLUMNS, 40),
    ]  # fmt: skip
    places = ds.dataset(store.parent / "out", format="parquet", exclude_invalid_files=False)
    assert places.count_rows() == 100
    assert len(rows_by_manifest(output, "a")) == 40
    again = compact(NO_SPARK, output)
    assert (again.files_before, again.files_after, again.rows, again.directories) == (3, 3, 0, 0)


@pytest.mark.parametrize("place", [0, 40, -20])
def test_the_file_that_is_damaged_is_named(tmp_path: Path, place: int) -> None:
    store = fill(tmp_path / "store", [bytes([number]) * 300 for number in range(20)])
    output = two_exports(store, tmp_path / "out", compression="none")
    bad = sorted(output.glob("topic=*/date=*/*.parquet"))[1]
    data = bytearray(bad.read_bytes())
    data[place : place + 16 or None] = bytes(16)
    bad.write_bytes(data)
    before = files_below(output)
    with pytest.raises(mqstore.CorruptFileError, match="Parquet file cannot be read") as caught:
        compact(NO_SPARK, output)
    assert caught.value.path == str(bad)
    assert "manifests" in str(caught.value.hint)
    assert {path: data for path, data in files_below(output).items() if ".compact" not in str(path)} == before


@pytest.mark.parametrize("what", ["README.txt", "further", "partitioned"])
def test_a_directory_with_other_things_is_left_as_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    """Its merged files would never be put in place, and be made again by each compaction."""
    store = fill(tmp_path / "store", [b"%d" % number for number in range(20)])
    partition_by = "" if what == "partitioned" else "topic"
    output = two_exports(store, tmp_path / "out", partition_by=partition_by)
    directory = output / ("topic=orders" if partition_by else "")
    if what == "further":
        (directory / what).mkdir()
    elif partition_by:
        (directory / what).touch()
    before = files_below(output)
    result = compact(NO_SPARK, output)
    assert (result.directories, result.rows, result.files_after) == (0, 0, 2)
    assert files_below(output) == before
    assert f"{directory} is left as it is" in caplog.text
    assert (what if partition_by else "_mqstore") in caplog.text


def test_files_that_come_while_others_are_merged_are_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = fill(tmp_path / "store", [b"%d" % number for number in range(20)])
    output = two_exports(store, tmp_path / "out")

    def while_merging(*arguments: Any) -> list[Any]:
        (day,) = output.glob("topic=*/date=*")
        shutil.copy(min(day.iterdir()), day / "late.parquet")
        return run_here(*arguments)

    monkeypatch.setattr(compacting, "run_tasks", while_merging)
    result = compact(NO_SPARK, output)
    assert (result.directories, result.rows, result.files_after) == (0, 0, 3)
    assert len(bodies_below(output)) == 30


def test_a_directory_that_may_not_be_replaced_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = fill(tmp_path / "store", [b"%d" % number for number in range(20)])
    output = two_exports(store, tmp_path / "out")

    def refuse(one: Path, other: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(one), None, str(other))

    monkeypatch.setattr(compacting, "_exchange", refuse)
    with pytest.raises(mqstore.StoreIOError, match="put merged files in place: Permission denied") as caught:
        compact(NO_SPARK, output)
    assert str(output / "topic=orders") in str(caught.value.path)
    assert len(bodies_below(output)) == 20


def test_files_without_columns_stay(tmp_path: Path) -> None:
    store = fill(tmp_path / "store", [b"%d" % number for number in range(20)])
    output = two_exports(store, tmp_path / "out")
    (day,) = output.glob("topic=*/date=*")
    for name in ("a", "b"):
        pq.write_table(pa.table({}), day / f"{name}.parquet")
    result = compact(NO_SPARK, output)
    assert (result.directories, result.rows, result.files_after) == (1, 20, 3)


def test_the_files_of_an_iceberg_table_are_left_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its metadata name each file, and would lead nowhere."""
    monkeypatch.setattr(lake, "check_format", lambda _: None)
    for name in ("look_at_table", "commit_iceberg"):
        monkeypatch.setattr(lake, name, lambda *_: None)
    store = fill(tmp_path / "store", [b"%d" % number for number in range(20)])
    output = two_exports(store, tmp_path / "out", table_format="iceberg", table="lake.messages", catalog={})
    (output / "_mqstore" / "damaged.json").touch()
    before = files_below(output)
    with pytest.raises(mqstore.UsageError, match="Iceberg"):
        compact(NO_SPARK, output)
    assert files_below(output) == before
