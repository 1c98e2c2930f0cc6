"""How an export writes: what it holds meanwhile, which columns get dictionaries, how its tasks share the log."""

from __future__ import annotations

import itertools
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="needs the extra 'spark'")

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

import mqstore
from mqstore import Message
from mqstore.files import durable
from mqstore.spark import pieces
from mqstore.spark.jobs import compact, compacting, export, export_notes, exporting, outputs, parquet
from mqstore.spark.jobs.parquet import PartitionedWriter
from mqstore.spark.pieces import levelled
from mqstore.spark.queue_splits import QueueSplit
from mqstore.spark.splits import Split
from mqstore.spark.stores import StoreRef
from mqstore.store.columns import SCHEMA
from spark.support import fill, run_here

NO_SPARK: Any = None
COLUMNS = ["physicalOffset", "body"]


@pytest.fixture(autouse=True)
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (exporting, compacting):
        monkeypatch.setattr(module, "run_tasks", run_here)


def batch_of(bodies: list[bytes], topics: list[str], first: int = 0) -> Any:
    """A batch that a writer of COLUMNS takes."""
    count = len(bodies)
    values = {
        "topic": topics,
        "physicalOffset": list(range(first, first + count)),
        "body": bodies,
        "storeTimestamp": [0] * count,
    }
    fields = [SCHEMA.field(name) for name in values]
    arrays = [pa.array(values[field.name], field.type) for field in fields]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def test_rows_of_a_rare_topic_that_wait_hold_no_others(tmp_path: Path) -> None:
    topics = ["rare", *["orders"] * 99]
    before = pa.total_allocated_bytes()
    with PartitionedWriter(tmp_path, "x", COLUMNS, 1 << 30, "zstd") as writer:
        for number in range(100):
            writer.write(batch_of([os.urandom(10_000) for _ in topics], topics, number * 100))
        held = pa.total_allocated_bytes() - before
        files = {file.path: file.rows for file in writer.close()}
    assert held < 40 << 20  # of 100 MB that were written, no more than 16 MiB wait
    assert files == {
        "topic=orders/date=1970-01-01/x-000.parquet": 9900,
        "topic=rare/date=1970-01-01/x-000.parquet": 100,
    }
    rare = pq.ParquetFile(tmp_path / "topic=rare/date=1970-01-01/x-000.parquet").read()
    assert rare["physicalOffset"].to_pylist() == list(range(0, 10_000, 100))


def dictionaries(path: Path) -> dict[str, bool]:
    """Which columns of a file have a dictionary page."""
    group = pq.read_metadata(path).row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    return {column.path_in_schema: column.has_dictionary_page for column in columns}


def exported(tmp_path: Path, bodies: list[bytes]) -> Path:
    export(NO_SPARK, fill(tmp_path / "store", bodies), tmp_path / "out")
    (file,) = (tmp_path / "out").glob("topic=*/date=*/*.parquet")
    assert sorted(pq.ParquetFile(file).read(["body"])["body"].to_pylist()) == sorted(bodies)
    return file


def test_values_that_differ_get_no_dictionary(tmp_path: Path) -> None:
    found = dictionaries(exported(tmp_path, [b"%d" % number for number in range(300)]))
    plain = {
        "queueOffset", "physicalOffset", "msgId", "keys.list.element", "body", "bodyCRC", "properties.key_value.value",
    }  # fmt: skip
    assert {name for name, has in found.items() if not has} == plain


def test_a_body_that_comes_again_is_kept_once(tmp_path: Path) -> None:
    pair = [os.urandom(100_000), os.urandom(100_000)]
    file = exported(tmp_path, pair * 40)
    found = dictionaries(file)
    assert (found["body"], found["bodyCRC"], found["msgId"]) == (True, True, False)
    assert file.stat().st_size < 300_000


def test_compacting_chooses_dictionaries_as_well(tmp_path: Path) -> None:
    store = fill(tmp_path / "store", [b"%d" % number for number in range(300)])
    for begin in (0, 150):
        ends = [json.dumps({"orders": {"0": offset}}) for offset in (begin, begin + 150)]
        options = dict(zip(("startingOffsets", "endingOffsets"), ends, strict=True))
        export(NO_SPARK, store, tmp_path / "out", job_id=f"from-{begin}", options=options)
    assert compact(NO_SPARK, tmp_path / "out").files_after == 1
    (file,) = (tmp_path / "out").glob("topic=*/date=*/*.parquet")
    found = dictionaries(file)
    assert (found["body"], found["msgId"], found["tags"]) == (False, False, True)


def test_a_job_id_stands_for_its_arguments(tmp_path: Path) -> None:
    """Whatever is other than it was: the job is another, also when it has been finished."""
    store, other = (fill(tmp_path / name, [b"%d" % number for number in range(20)]) for name in ("store", "other"))
    given: dict[str, Any] = {"columns": ["body"], "compression": "zstd", "target_file_bytes": 1 << 20}
    changes: list[dict[str, Any]] = [
        {"columns": ["body", "tags"]}, {"compression": "none"}, {"target_file_bytes": 1 << 21},
        {"partition_by": "date"}, {"options": {"subscribe": "returns"}}, {"columns": None},
    ]  # fmt: skip
    first = export(NO_SPARK, store, tmp_path / "out", job_id="first", **given)
    for change in changes:
        with pytest.raises(mqstore.UsageError, match="finished with other arguments"):
            export(NO_SPARK, store, tmp_path / "out", job_id="first", **{**given, **change})
        # Without a name of its own it is taken for another export, and not for one done before.
        shutil.rmtree(tmp_path / "unnamed", ignore_errors=True)
        export(NO_SPARK, store, tmp_path / "unnamed", **given)
        with pytest.raises(mqstore.UsageError, match="holds another export"):
            export(NO_SPARK, store, tmp_path / "unnamed", **{**given, **change})
    with pytest.raises(mqstore.UsageError, match="finished with other arguments"):
        export(NO_SPARK, other, tmp_path / "out", job_id="first", **given)
    (tmp_path / "out").rename(tmp_path / "moved")
    again = export(NO_SPARK, store, tmp_path / "moved", job_id="first", **{**given, "compression": "ZSTD"})
    assert (again.replayed, again.rows) == (True, first.rows)
    content = json.loads(again.manifest.read_text())
    del content["asked"]  # as versions before wrote it
    again.manifest.write_text(json.dumps(content))
    assert export(NO_SPARK, store, tmp_path / "moved", job_id="first", columns=["tags"]).replayed


def test_an_empty_name_is_refused(tmp_path: Path) -> None:
    store = fill(tmp_path / "store", [b"1"])
    with pytest.raises(mqstore.UsageError):
        export(NO_SPARK, store, tmp_path / "out", job_id="")
    assert not (tmp_path / "out").exists()


def test_what_a_killed_job_left_beside_manifests_is_removed(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "a") as store:
        store.put(Message("orders", b"x"))
    output = tmp_path / "out"
    left = output / "_mqstore" / ".first.json.abcd1234.tmp"
    for run in (lambda: export(NO_SPARK, tmp_path / "a", output, job_id="first"), lambda: compact(NO_SPARK, output)):
        left.parent.mkdir(parents=True, exist_ok=True)
        left.write_bytes(b"{")
        run()
        assert [path.name for path in left.parent.iterdir()] == ["first.json"]


def test_what_a_job_left_that_was_killed_before_it_had_a_plan_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by another, and where the store has grown since: without a name, that is another job."""
    store, output = fill(tmp_path / "store", [b"1"]), tmp_path / "out"
    state = output / "_mqstore"

    def killed(at: str) -> None:
        def dies(*arguments: Any) -> None:
            raise SystemExit

        with monkeypatch.context() as patch:
            patch.setattr(durable, at, dies)
            with pytest.raises(SystemExit):
                export(NO_SPARK, store, output)
        (left,) = state.glob("*.partial")
        if at == "write_at":
            (left / ".plan.json.abcd1234.tmp").write_bytes(b"{")

    killed("replace_file")
    with mqstore.open(store) as opened:
        opened.put(Message("orders", b"2"))
    killed("write_at")
    assert export(NO_SPARK, store, output).rows == 2
    (manifest,) = state.iterdir()
    (state / "killed.partial").mkdir()
    (state / "begins.partial").mkdir()
    (state / "begins.partial" / "plan.json").touch()
    (state / f"{manifest.stem}.partial").mkdir()  # killed when all was done and its plan had gone
    (state / f"{manifest.stem}.partial" / "000000.json").touch()
    assert export(NO_SPARK, store, output, job_id=manifest.stem).replayed
    (state / "killed.partial").mkdir()
    with pytest.raises(mqstore.UsageError, match="not finished"):
        compact(NO_SPARK, output)
    (state / "begins.partial" / "plan.json").unlink()
    compact(NO_SPARK, output)
    assert [path.name for path in state.iterdir()] == [manifest.name]


def test_a_directory_that_another_job_found_empty_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, output = fill(tmp_path / "store", [b"1"]), tmp_path / "out"
    real, calls = durable.replace_file, itertools.count()

    def removed_first(path: Path, data: bytes) -> None:
        if path.name == "plan.json" and next(calls) < 2:
            export_notes.remove_leftovers(output)
            assert not path.parent.exists()
        real(path, data)

    monkeypatch.setattr(durable, "replace_file", removed_first)
    assert export(NO_SPARK, store, output, job_id="one").rows == 1


def test_files_without_columns_are_refused(tmp_path: Path) -> None:
    store = fill(tmp_path / "store", [b"%d" % number for number in range(10)])
    for columns in (["topic"], []):
        for by in ("topic", "topic,date"):
            with pytest.raises(mqstore.UsageError, match=r"have no rows|option columns"):
                export(NO_SPARK, store, tmp_path / "out", columns=columns, partition_by=by)
    assert not (tmp_path / "out").exists()
    assert export(NO_SPARK, store, tmp_path / "out", columns=["topic"], partition_by="date").rows == 10
    found = ds.dataset(tmp_path / "out", partitioning="hive", exclude_invalid_files=False).to_table()
    assert found["topic"].to_pylist() == ["orders"] * 10


@pytest.mark.parametrize("dies_in", ["move", "_commit", "_finish", "remove_tree"])
def test_an_export_without_a_name_goes_on_when_the_store_has_grown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies_in: str
) -> None:
    """A scheduler starts it again, and the broker has gone on meanwhile."""
    bodies = [b"%d" % number for number in range(20)]
    store, output = fill(tmp_path / "store", bodies), tmp_path / "out"
    given: dict[str, Any] = {"target_file_bytes": 1, "options": {"splitBytes": "1000"}}
    moves, move = itertools.count(), outputs.move

    def dies(*arguments: Any) -> None:
        if dies_in != "move" or next(moves) == 1:
            raise KeyboardInterrupt
        move(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(exporting if dies_in.startswith("_") else outputs, dies_in, dies)
        with pytest.raises(KeyboardInterrupt):
            export(NO_SPARK, store, output, **given)
    with mqstore.open(store) as opened:
        opened.put_batch([Message("orders", b"later", queue_id=0)])
    with pytest.raises(mqstore.UsageError, match="the output holds an") as caught:
        export(NO_SPARK, store, output, **given, partition_by="date")
    assert (".partial" in str(caught.value)) == (dies_in != "remove_tree")
    assert export(NO_SPARK, store, output, **given).rows == 20
    found = ds.dataset(output, partitioning="hive", exclude_invalid_files=False).to_table()
    assert sorted(found["body"].to_pylist()) == sorted(bodies)
    assert [path.suffix for path in (output / "_mqstore").iterdir()] == [".json"]
    with pytest.raises(mqstore.UsageError, match="holds another export"):
        export(NO_SPARK, store, output, **given)


@pytest.mark.parametrize("content", [b"", bytes(100), b"[]", b'{"job": 1}', b"7", b"[" * 100_000, b"\xff"])
def test_a_damaged_note_of_an_export_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    bodies = [b"%d" % number for number in range(20)]
    store, output = fill(tmp_path / "store", bodies), tmp_path / "out"

    def dies(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(exporting, "_publish", dies)
        with pytest.raises(KeyboardInterrupt):
            export(NO_SPARK, store, output, job_id="one")
    stage = output / "_mqstore" / "one.partial"
    for note, name in ((stage / "plan.json", None), (stage / "plan.json", "one"), (stage / "000000.json", "one")):
        sound = note.read_bytes()
        note.write_bytes(content)
        with pytest.raises(mqstore.CorruptFileError, match="the note of an export is damaged") as caught:
            export(NO_SPARK, store, output, job_id=name)
        assert "remove " in str(caught.value.hint)
        note.write_bytes(sound)
    assert export(NO_SPARK, store, output).rows == 20
    (output / "_mqstore" / "one.json").write_bytes(content)
    with pytest.raises(mqstore.CorruptFileError, match="the note of an export is damaged"):
        export(NO_SPARK, store, output, job_id="one")


def ranges(parts: list[list[Any]]) -> list[list[tuple[int, int]]]:
    return [[(piece.begin, piece.end) for piece in part] for part in parts]


def test_what_is_left_for_few_cores_is_shared_among_all() -> None:
    mib = 1 << 20
    store = StoreRef("store", "broker")
    parts: list[list[Any]] = [[Split(store, at * mib, min(at + 256, 1124) * mib)] for at in range(0, 1124, 256)]
    assert levelled(parts, 5) == levelled(parts, 1) == parts
    halves = [[Split(store, 1024 * mib, 1074 * mib)], [Split(store, 1074 * mib, 1124 * mib)]]
    assert levelled(parts, 2) == [*parts[:4], *halves]
    assert ranges(levelled(parts[:3], 4)) == [
        [(0, 192 * mib)],
        [(192 * mib, 256 * mib), (256 * mib, 384 * mib)],
        [(384 * mib, 512 * mib), (512 * mib, 576 * mib)],
        [(576 * mib, 768 * mib)],
    ]
    small: list[list[Any]] = [[Split(store, 0, 63 * mib)]]
    assert levelled(small, 8) == small  # not worth two tasks
    by_queues: list[list[Any]] = [[QueueSplit(store, [])]]
    assert levelled(by_queues, 8) == by_queues


def test_an_export_on_more_cores_is_the_same_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bodies = [os.urandom(1000) for _ in range(300)]
    store = fill(tmp_path / "store", bodies)
    monkeypatch.setattr(pieces, "LEAST_SHARE_BYTES", 10_000)
    monkeypatch.setattr(exporting, "cores", lambda _: 4)
    first = export(NO_SPARK, store, tmp_path / "out")
    assert (first.rows, first.files) == (300, 4)
    found = ds.dataset(tmp_path / "out", partitioning="hive", exclude_invalid_files=False).to_table()
    assert sorted(found["body"].to_pylist()) == sorted(bodies)
    monkeypatch.setattr(exporting, "cores", lambda _: 2)
    assert export(NO_SPARK, store, tmp_path / "out").replayed
    whole = export(NO_SPARK, store, tmp_path / "whole", options={"maxPartitions": "1"})
    assert whole.files == 1


def test_the_device_begins_before_a_file_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[tuple[int, int]] = []
    works = durable.begin_sync

    def note(fd: int, position: int, size_bytes: int) -> None:
        begun.append((position, position + size_bytes))
        works(fd, position, size_bytes)

    monkeypatch.setattr(durable, "begin_sync", note)
    monkeypatch.setattr(parquet, "_PENDING_BYTES", 100_000)
    monkeypatch.setattr(parquet, "_AHEAD_BYTES", 200_000)
    with PartitionedWriter(tmp_path, "x", COLUMNS, 1 << 30, "none") as writer:
        for number in range(20):
            writer.write(batch_of([os.urandom(10_000) for _ in range(10)], ["orders"] * 10, number * 10))
        (file,) = writer.close()
    assert [end for _, end in begun[:-1]] == [begin for begin, _ in begun[1:]]
    assert begun[0][0] == 0
    assert begun[-1][1] > file.size_bytes - 500_000
