"""Export, rebuild and audit, in this process: what each task does, and what the driver makes of it."""

from __future__ import annotations

import errno
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="needs the extra 'spark'")

import pyarrow.dataset as ds

import mqstore
from mqstore import Message, StoreConfig
from mqstore.spark import pieces
from mqstore.spark.jobs import audit, auditing, derived, export, exporting, log_shares, parquet, rebuild, rebuilding
from mqstore.spark.jobs.log_shares import plan_splits, split_bytes_for_cores
from mqstore.spark.stores import StoreRef
from mqstore.store.check import check_store
from mqstore.store.rebuild import rebuild as rebuild_in_order
from spark.support import expected_messages, files_below, open_files_below, read_here, rows_of, run_at_once, run_here

NO_SPARK: Any = None


@pytest.fixture(autouse=True)
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (auditing, derived, exporting, rebuilding):
        monkeypatch.setattr(module, "run_tasks", run_here)


# -- rebuild


@pytest.mark.parametrize("name", ["basic", "broker", "cleaned", "crashed", "cq-lost", "torn-flip-abort", "v5-cleaned",
                                  "empty"])  # fmt: skip
def test_rebuild_is_the_same_as_in_order(golden: Path, tmp_path: Path, name: str) -> None:
    small = StoreConfig(max_hash_slot_num=1000, max_index_num=4000) if name == "cq-lost" else None
    rebuild_in_order(golden / name / "store", tmp_path / "in-order", config=small)
    result = rebuild(NO_SPARK, golden / name / "store", tmp_path / "out", split_bytes=33_333, config=small)
    assert files_below(tmp_path / "out") == files_below(tmp_path / "in-order")
    assert not result.in_order
    findings: list[Any] = []
    with mqstore.inspect(tmp_path / "out") as view:
        check_store(view, findings.append)
    assert [finding for finding in findings if finding.area != "config"] == []
    before = files_below(tmp_path / "out" / "consumequeue"), files_below(tmp_path / "out" / "index")
    mqstore.open(tmp_path / "out").close()
    assert (files_below(tmp_path / "out" / "consumequeue"), files_below(tmp_path / "out" / "index")) == before


def test_rebuild_is_what_the_real_store_wrote(golden: Path, tmp_path: Path) -> None:
    sizes = StoreConfig(mapped_file_size_consume_queue=2000, max_hash_slot_num=1000, max_index_num=4000)
    rebuild(NO_SPARK, golden / "cq-lost" / "store", tmp_path / "out", split_bytes=10_000, config=sizes)
    assert files_below(tmp_path / "out" / "consumequeue") == files_below(golden / "basic" / "store" / "consumequeue")
    index = list(files_below(tmp_path / "out" / "index").values())
    assert index == list(files_below(golden / "basic" / "store" / "index").values())


@pytest.mark.parametrize("entries", [2, 3, 5, 100, 5223, 5224, 5225])
def test_index_files_begin_where_they_would_have(golden: Path, tmp_path: Path, entries: int) -> None:
    """Borders within a record's keys, between records, before records without keys, and just at the log's end."""
    source = tmp_path / "few"
    with mqstore.open(source, mapped_file_size_commit_log=1 << 20) as store:
        for number in range(40):
            keys = [f"k{number}-{one}" for one in range(number % 4)]
            store.put(Message("T", b"x", keys=keys, queue_id=0))
    path = source if entries < 100 else golden / "basic" / "store"
    config = StoreConfig(max_hash_slot_num=50, max_index_num=entries)
    rebuild_in_order(path, tmp_path / "in-order", config=config)
    result = rebuild(NO_SPARK, path, tmp_path / "out", split_bytes=700 if entries < 100 else 60_000, config=config)
    assert files_below(tmp_path / "out") == files_below(tmp_path / "in-order")
    assert result.index_files == len(list((tmp_path / "out" / "index").iterdir()))


def test_a_queue_with_a_gap_is_rebuilt_in_order(golden: Path, tmp_path: Path) -> None:
    from mqstore.store.salvage import salvage_log

    shutil.copytree(golden / "basic" / "store", tmp_path / "store")
    file = tmp_path / "store" / "commitlog" / ("0" * 20)
    raw = bytearray(file.read_bytes())
    raw[500_000:510_000] = b"\xff" * 10_000
    file.write_bytes(raw)
    with pytest.raises(mqstore.CorruptRecordError):
        rebuild(NO_SPARK, tmp_path / "store", tmp_path / "out")
    salvage_log(tmp_path / "store" / "commitlog", lambda loss: None)
    result = rebuild(NO_SPARK, tmp_path / "store", tmp_path / "out", split_bytes=40_000)
    assert result.in_order
    rebuild_in_order(tmp_path / "store", tmp_path / "in-order")
    assert files_below(tmp_path / "out") == files_below(tmp_path / "in-order")


@pytest.mark.parametrize("place", [12, 20], ids=["queue id", "queue offset"])
def test_a_message_of_a_queue_that_cannot_be_is_told(tmp_path: Path, place: int) -> None:
    with mqstore.open(tmp_path / "s") as store:
        last = [store.put(mqstore.Message("T", b"%d" % one, queue_id=0)) for one in range(5)][-1].physical_offset
    with (tmp_path / "s" / "commitlog" / ("0" * 20)).open("r+b") as file:
        file.seek(last + place)
        file.write(b"\xff")
    result = rebuild(NO_SPARK, tmp_path / "s", tmp_path / "out")
    assert (result.in_order, result.units, result.left_out) == (False, 4, 1)
    assert rebuild_in_order(tmp_path / "s", tmp_path / "in-order").left_out == 1


def test_further_queues_are_rebuilt_and_audited(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "s", mapped_file_size_commit_log=1 << 16, enable_multi_dispatch=True, enable_lmq=True,
                      mapped_file_size_consume_queue=200, max_hash_slot_num=50, max_index_num=90) as store:  # fmt: skip
        for number in range(300):
            names = ["%LMQ%a", "%LMQ%a,%LMQ%b", "mirror", "T"][number % 4]
            topic = "TU"[number % 3 == 0]
            store.put(Message(topic, bytes(200), properties={"INNER_MULTI_DISPATCH": names}, queue_id=0))
    rebuild_in_order(tmp_path / "s", tmp_path / "in-order")
    result = rebuild(NO_SPARK, tmp_path / "s", tmp_path / "out", split_bytes=10_000)
    assert not result.in_order
    assert result.queues == 5
    assert files_below(tmp_path / "out") == files_below(tmp_path / "in-order")
    assert files_below(tmp_path / "out" / "consumequeue") == files_below(tmp_path / "s" / "consumequeue")
    audited = audit(NO_SPARK, tmp_path / "out", split_bytes=10_000)
    assert audited.ok
    assert audited.units == audited.units_in_queues == result.units
    light = tmp_path / "out" / "consumequeue" / "%LMQ%a" / "0" / f"{200:020d}"
    light.write_bytes(bytes(200))
    (found, *_) = audit(NO_SPARK, tmp_path / "out", split_bytes=10_000).findings
    assert (found.area, found.path) == ("queue", str(light.parent))
    assert found.message == "10 messages are missing from the queue"


def test_the_progress_of_a_store_that_died_is_doubted(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "s", mapped_file_size_commit_log=1 << 16) as store:
        store.put(Message("T", b"not delivered yet", delay_level=18))
    (tmp_path / "s" / "config" / "delayOffset.json").write_text('{"offsetTable":{18:1}}')
    (tmp_path / "s" / "abort").touch()
    rebuild_in_order(tmp_path / "s", tmp_path / "in-order")
    rebuild(NO_SPARK, tmp_path / "s", tmp_path / "out")
    assert files_below(tmp_path / "out") == files_below(tmp_path / "in-order")
    noted = (tmp_path / "out" / "config" / "delayOffset.json").read_text()
    assert "".join(noted.split()) == '{"offsetTable":{18:0}}'


def test_a_log_file_that_is_none_is_not_left_out(golden: Path, tmp_path: Path) -> None:
    shutil.copytree(golden / "basic" / "store", tmp_path / "s")
    first = max((tmp_path / "s" / "commitlog").iterdir())
    following = first.with_name(f"{int(first.name) + first.stat().st_size:020d}")
    following.symlink_to(tmp_path / "unmounted")
    for work in (
        lambda: rebuild_in_order(tmp_path / "s", tmp_path / "out"),
        lambda: rebuild(NO_SPARK, tmp_path / "s", tmp_path / "out"),
    ):
        with pytest.raises(mqstore.CorruptFileError) as caught:
            work()
        assert caught.value.path == str(following)
    assert {path.name for path in tmp_path.iterdir()} == {"s"}


def test_rebuild_leaves_what_is_there_alone(golden: Path, tmp_path: Path) -> None:
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").write_text("mine")
    with pytest.raises(mqstore.UsageError, match="in use"):
        rebuild(NO_SPARK, golden / "basic" / "store", tmp_path / "used")
    with pytest.raises(mqstore.UsageError, match="split_bytes"):
        rebuild(NO_SPARK, golden / "basic" / "store", tmp_path / "new", split_bytes=0)
    with pytest.raises(mqstore.NotAStoreError):
        rebuild(NO_SPARK, tmp_path / "nothing", tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_an_export_into_the_store_itself_is_refused(golden: Path, tmp_path: Path) -> None:
    store = shutil.copytree(golden / "basic" / "store", tmp_path / "s")
    (tmp_path / "link").symlink_to(store)
    before = files_below(tmp_path)
    for output in (store, store / "commitlog", store / "new"):
        for source in (store, tmp_path / "link"):
            with pytest.raises(mqstore.UsageError, match="lies in the store"):
                export(NO_SPARK, source, output)
    assert files_below(tmp_path) == before


def test_partitions_by_name_as_the_command_takes_them(golden: Path, tmp_path: Path) -> None:
    export(NO_SPARK, golden / "basic" / "store", tmp_path / "one", partition_by="topic")
    export(NO_SPARK, golden / "basic" / "store", tmp_path / "two", partition_by=["topic"])
    names = [{path.relative_to(root).parent for path in root.rglob("*.parquet")} for root in tmp_path.iterdir()]
    assert len(names[0]) > 1
    assert names[0] == names[1]


def test_how_much_of_a_log_one_task_takes() -> None:
    for files, here, elsewhere in ((1, 512 << 20, 64 << 20), (2, 1 << 30, 128 << 20), (40, 1 << 30, 1 << 30)):
        sizes = (split_bytes_for_cores(files << 30, 2), split_bytes_for_cores(files << 30, None))
        assert sizes == (here, elsewhere)
    assert split_bytes_for_cores(0, 2) == 64 << 20


def test_cores_end_together_with_a_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eleven files for two cores are ten and two halves, not six for one core and five for the other."""
    with mqstore.open(tmp_path, mapped_file_size_commit_log=1 << 20) as made:
        while made.log_end < (10 << 20) + (1 << 19):
            made.put_batch([Message("t", b"x" * 10_000)] * 10)
    monkeypatch.setattr(log_shares, "split_bytes_for_cores", lambda *_: 1 << 20)
    monkeypatch.setattr(pieces, "LEAST_SHARE_BYTES", 1 << 10)
    store = StoreRef(str(tmp_path), "")
    sizes = [one.end - one.begin for one in plan_splits(store, cores=2)]
    assert (len(sizes), sizes[:10]) == (12, [1 << 20] * 10)
    assert abs(sizes[10] - sizes[11]) <= 1
    splits = plan_splits(store)
    assert len(splits) == 11
    assert sum(one.end - one.begin for one in splits) == sum(sizes)
    assert len(plan_splits(store, 1 << 20, cores=2)) == 11  # as it was asked for


def test_rebuild_of_a_damaged_log_names_what_passes_over_it(golden: Path, tmp_path: Path) -> None:
    damaged = Path(shutil.copytree(golden / "basic" / "store", tmp_path / "store"))
    log = damaged / "commitlog" / ("0" * 20)
    raw = bytearray(log.read_bytes())
    raw[3221 + 4] ^= 1  # a record's magic
    log.write_bytes(raw)
    with pytest.raises(mqstore.CorruptRecordError) as caught:
        rebuild(NO_SPARK, damaged, tmp_path / "new", split_bytes=100_000)
    assert caught.value.offset == 3221
    assert "rebuild STORE --output NEW --salvage" in str(caught.value.hint)
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_a_log_over_several_directories_is_one_log(tmp_path: Path) -> None:
    places = f"{tmp_path / 'a'},{tmp_path / 'b'}"
    settings: dict[str, Any] = {"mapped_file_size_commit_log": 4096, "max_hash_slot_num": 8, "max_index_num": 20}
    with mqstore.open(tmp_path / "store", store_path_commit_log=places, **settings) as store:
        store.put(Message("few", b"among many", queue_id=0))
        for number in range(150):
            store.put(Message("t", b"%d" % number, keys=[f"k{number}"], queue_id=number % 2))
    rebuild_in_order(tmp_path / "store", tmp_path / "in-order")
    rebuild(NO_SPARK, tmp_path / "store", tmp_path / "out", split_bytes=5000)
    assert files_below(tmp_path / "out") == files_below(tmp_path / "in-order")
    assert audit(NO_SPARK, tmp_path / "store", split_bytes=5000).ok
    assert len(read_here(tmp_path / "store", splitBytes=5000)) == 151
    assert [row["body"] for row in read_here(tmp_path / "store", subscribe="few")] == [b"among many"]
    double = tmp_path / "b" / f"{0:020d}"
    double.write_bytes(bytes(4096))
    for work in (
        lambda: rebuild(NO_SPARK, tmp_path / "store", tmp_path / "new"),
        lambda: read_here(tmp_path / "store"),
    ):
        with pytest.raises(mqstore.CorruptFileError, match="two directories"):
            work()


# -- audit


def test_audit_of_a_sound_store(golden: Path) -> None:
    result = audit(NO_SPARK, golden / "basic" / "store", split_bytes=50_000)
    expected = expected_messages(golden, "basic")
    assert result.ok
    assert result.records == len(expected)
    units = (golden / "basic" / "EXPECTED-CQ.jsonl").read_text().splitlines()
    assert result.units == result.units_in_queues == len(units)
    assert result.keys == result.keys_in_index


# -- export


def read_export(output: Path) -> list[dict[str, Any]]:
    # Two kinds of strings for one column are one too many for Arrow: the topic is in the directory's name.
    table = ds.dataset(output, partitioning=ds.partitioning(flavor="hive"), ignore_prefixes=["_"]).to_table()
    return rows_of(table)


def with_date(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {**{name: value for name, value in row.items() if name != "propertiesString"},
         "date": row["storeTimestamp"].date().isoformat()}
        for row in rows
    ]  # fmt: skip


def test_export_holds_every_row_once(golden: Path, tmp_path: Path) -> None:
    source = golden / "basic" / "store"
    result = export(NO_SPARK, source, tmp_path / "out", options={"splitBytes": "300000"}, target_file_bytes=50_000)
    expected = with_date(expected_messages(golden, "basic"))
    assert read_export(tmp_path / "out") == expected
    files = sorted((tmp_path / "out").glob("topic=*/date=*/*.parquet"))
    assert (result.rows, result.files) == (len(expected), len(files))
    assert result.bytes == sum(file.stat().st_size for file in files)
    manifest = json.loads(result.manifest.read_text())
    assert sorted(file["path"] for file in manifest["files"]) == [str(f.relative_to(tmp_path / "out")) for f in files]
    assert sorted(path.name for path in (tmp_path / "out" / "_mqstore").iterdir()) == [result.manifest.name]


def test_a_repeated_export_does_nothing(golden: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = export(NO_SPARK, golden / "broker" / "store", tmp_path / "out", job_id="nightly")
    before = files_below(tmp_path / "out")
    monkeypatch.setattr(exporting, "run_tasks", None)
    again = export(NO_SPARK, golden / "broker" / "store", tmp_path / "out", job_id="nightly")
    assert again.replayed
    assert not first.replayed
    assert (again.rows, again.files, again.bytes) == (first.rows, first.files, first.bytes)
    assert files_below(tmp_path / "out") == before


def test_an_export_that_was_broken_off_goes_on(golden: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments: dict[str, Any] = {"options": {"splitBytes": "500000"}, "job_id": "one"}
    source = golden / "basic" / "store"

    def run_some(spark: object, function: Any, items: Any, on_progress: Any) -> None:
        run_here(spark, function, items[:4])
        raise ConnectionError

    monkeypatch.setattr(exporting, "run_tasks", run_some)
    with pytest.raises(ConnectionError):
        export(NO_SPARK, source, tmp_path / "out", **arguments)
    assert not list((tmp_path / "out").glob("topic=*"))
    with pytest.raises(mqstore.UsageError, match="other arguments"):
        export(NO_SPARK, source, tmp_path / "out", job_id="one")
    done = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out" / "_mqstore" / "one.partial").iterdir()}
    seen = []

    def run_rest(spark: object, function: Any, items: Any, on_progress: Any) -> list[Any]:
        results = run_here(spark, function, items)
        stage = tmp_path / "out" / "_mqstore" / "one.partial"
        seen.append({path.name: path.stat().st_mtime_ns for path in stage.iterdir()})
        return results

    monkeypatch.setattr(exporting, "run_tasks", run_rest)
    export(NO_SPARK, source, tmp_path / "out", **arguments)
    assert done.items() <= seen[0].items()
    assert read_export(tmp_path / "out") == with_date(expected_messages(golden, "basic"))


def test_an_export_goes_on_after_a_crash_while_publishing(
    golden: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish = exporting._publish

    def publish_half(job: Any, files: Any) -> None:
        publish(job, files[: len(files) // 2])
        raise ConnectionError

    monkeypatch.setattr(exporting, "_publish", publish_half)
    with pytest.raises(ConnectionError):
        export(NO_SPARK, golden / "basic" / "store", tmp_path / "out", job_id="one")
    monkeypatch.setattr(exporting, "_publish", publish)
    export(NO_SPARK, golden / "basic" / "store", tmp_path / "out", job_id="one")
    assert read_export(tmp_path / "out") == with_date(expected_messages(golden, "basic"))


def test_export_of_chosen_rows_and_columns(golden: Path, tmp_path: Path) -> None:
    result = export(
        NO_SPARK, [golden / "basic" / "store", golden / "broker" / "store"], tmp_path / "out",
        options={"subscribe": "TopicTest", "where": "TagA"}, columns=["brokerName", "physicalOffset", "body"],
    )  # fmt: skip
    expected = [
        {"brokerName": f"{name}/store", "physicalOffset": row["physicalOffset"], "body": row["body"],
         "topic": "TopicTest", "date": row["storeTimestamp"].date().isoformat()}
        for name in ("basic", "broker")
        for row in expected_messages(golden, name)
        if row["topic"] == "TopicTest" and row["tags"] == "TagA"
    ]  # fmt: skip
    assert read_export(tmp_path / "out") == expected
    assert result.rows == len(expected) > 20


def test_export_with_many_topics_and_little_memory(
    golden: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mqstore.spark.jobs import parquet

    monkeypatch.setattr(parquet, "_OPEN_FILES", 1)
    monkeypatch.setattr(parquet, "_PENDING_BYTES", 10_000)
    export(NO_SPARK, golden / "basic" / "store", tmp_path / "out")
    assert read_export(tmp_path / "out") == with_date(expected_messages(golden, "basic"))


@pytest.mark.parametrize("method", ["__init__", "write_table"])
def test_an_export_that_fails_leaves_no_file_open(
    golden: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    works, calls = getattr(parquet.pq.ParquetWriter, method), []

    def fail(*args: Any, **named: Any) -> Any:
        calls.append(method)
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, "no space left")
        return works(*args, **named)

    monkeypatch.setattr(parquet.pq.ParquetWriter, method, fail)
    with pytest.raises(mqstore.DiskFullError) as caught:
        export(NO_SPARK, golden / "basic" / "store", tmp_path / "out")
    assert open_files_below(tmp_path) == []
    assert caught.value.__traceback__ is not None


def test_names_of_topics_are_safe_as_directories() -> None:
    from mqstore.spark.jobs.parquet import partition_name

    assert partition_name("%RETRY%a|b", 0) == "topic=%25RETRY%25a%7Cb/date=1970-01-01"
    assert partition_name("../x", 20_000) == "topic=..%2Fx/date=2024-10-04"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"columns": ["topics"]}, "no such column"),
        ({"options": {"view": "queues"}}, "only messages are exported"),
        ({"options": {"Path": "x"}}, "option Path is not taken here"),
        ({"options": {"paths": '["x"]'}}, "option paths is not taken here"),
        ({"options": {"pushFilters": True}}, "option pushFilters is not taken here"),
        ({"options": {"columns": "topic"}, "columns": ["body"]}, "option columns is not taken here"),
        ({"options": {"topic": "orders"}}, "unknown option topic"),
        ({"options": [("where", "a")]}, "options are none"),
        ({"columns": ["body", b"tags"]}, "one of columns is not text"),
        ({"columns": "body,body"}, "asked for twice"),
        ({"columns": []}, "columns"),
        ({"partition_by": 5}, "partition_by"),
        ({"target_file_bytes": "x"}, "target_file_bytes"),
        ({"compression": None}, "compression"),
        ({"options": {"where": "||"}}, "tag expression"),
        ({"target_file_bytes": 0}, "target_file_bytes"),
        ({"job_id": "../x"}, "file name"),
        ({"compression": "zip"}, "compression"),
    ],
)
def test_refused_exports(golden: Path, tmp_path: Path, arguments: dict[str, Any], complaint: str) -> None:
    with pytest.raises(mqstore.UsageError, match=complaint):
        export(NO_SPARK, golden / "basic" / "store", tmp_path / "out", **arguments)
    assert not (tmp_path / "out").exists()


def test_columns_of_an_export_come_one_by_one_in_one_text_and_as_an_option(golden: Path, tmp_path: Path) -> None:
    store = golden / "basic" / "store"
    ways: list[dict[str, Any]] = [
        {"columns": ["queueId", "body"]}, {"columns": "queueid, BODY"}, {"options": {"columns": "queueId,body"}},
    ]  # fmt: skip
    for number, way in enumerate(ways):
        export(NO_SPARK, store, tmp_path / f"{number}", **way)
        (manifest,) = (tmp_path / f"{number}" / "_mqstore").glob("*.json")
        assert json.loads(manifest.read_text())["columns"] == ["queueId", "body"]


def test_export_into_a_file_is_refused(golden: Path, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    with pytest.raises(mqstore.UsageError, match="no directory"):
        export(NO_SPARK, golden / "basic" / "store", tmp_path / "out")


def test_another_export_into_the_same_directory_is_refused(golden: Path, tmp_path: Path) -> None:
    """Its messages would be there twice; whoever means to add some names the job."""
    export(NO_SPARK, golden / "broker" / "store", tmp_path / "out")
    with pytest.raises(mqstore.UsageError, match="another export"):
        export(NO_SPARK, golden / "broker" / "store", tmp_path / "out", options={"subscribe": "TopicTest"})
    export(NO_SPARK, golden / "basic" / "store", tmp_path / "out", job_id="basic")


def test_an_export_without_rows_is_not_another(golden: Path, tmp_path: Path) -> None:
    """So after a topic that was misspelt the right one can be exported to the same place."""
    store, out = golden / "broker" / "store", tmp_path / "out"
    assert export(NO_SPARK, store, out, options={"subscribe": "TopicTset"}).rows == 0
    assert export(NO_SPARK, store, out, options={"subscribe": "TopicTest"}).rows > 0
    assert export(NO_SPARK, store, out, options={"subscribe": "TopicTest"}).replayed
    (empty,) = [one for one in (out / "_mqstore").glob("*.json") if json.loads(one.read_text())["rows"] == 0]
    empty.write_text("{")  # nobody knows what that export wrote
    with pytest.raises(mqstore.UsageError, match="another export"):
        export(NO_SPARK, store, out, options={"subscribe": "TopicTest", "minPartitions": 2})


def test_tasks_that_run_twice_at_the_same_time(golden: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (derived, exporting, rebuilding):
        monkeypatch.setattr(module, "run_tasks", run_at_once)
    rebuild_in_order(golden / "basic" / "store", tmp_path / "in-order")
    rebuild(NO_SPARK, golden / "basic" / "store", tmp_path / "out", split_bytes=300_000)
    assert files_below(tmp_path / "out") == files_below(tmp_path / "in-order")
    export(NO_SPARK, golden / "basic" / "store", tmp_path / "rows", options={"splitBytes": "500000"})
    assert read_export(tmp_path / "rows") == with_date(expected_messages(golden, "basic"))
