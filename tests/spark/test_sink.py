"""The sink ``rocketmq``: tables and streams into a store that there is, each batch once whenever the writer dies."""

from __future__ import annotations

import functools
import itertools
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra 'spark'", exc_type=ImportError)

import pyarrow as pa

import mqstore
from mqstore import Message
from mqstore.spark import sink, sink_ledger
from mqstore.spark.sink_ledger import LEDGER_NAME, Batch, append
from mqstore.store.check import check_store
from mqstore.store.store import Store
from spark.support import open_files_below
from spark.test_stream import drop_last_commit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def bodies(path: Path) -> list[bytes]:
    found: list[object] = []
    with mqstore.inspect(path) as view:
        check_store(view, found.append)
        rows = [record.body for record in view.scan()]
    assert found == []
    return rows


def ours(path: Path) -> list[bytes]:
    """The bodies of messages with a property ``n``."""
    with mqstore.inspect(path) as view:
        return [record.body for record in view.scan() if "n" in record.properties]


def put_aside(tmp_path: Path, name: str, *numbers: range) -> list[str]:
    """What tasks would put aside, a file each."""
    options = sink.SinkOptions(tmp_path / "store", None)
    paths = []
    for part in numbers:
        rows = [{"topic": "t", "body": f"{name}{number}", "keys": "a b", "properties": [("n", str(number))],
                 "delayLevel": 18 if number % 5 == 0 else None} for number in part]  # fmt: skip
        schema = pa.schema([("topic", pa.string()), ("body", pa.string()), ("keys", pa.string()),
                            ("properties", pa.map_(pa.string(), pa.string())), ("delayLevel", pa.int32())])  # fmt: skip
        written = sink._put_aside(options, name, [pa.RecordBatch.from_pylist(rows, schema)])
        paths.append(str(written.path))
    return paths


def expected(name: str, *numbers: range) -> list[bytes]:
    return [b"%s%d" % (name.encode(), number) for part in numbers for number in part]


def flush_that_dies(after: int) -> Callable[[Store], None]:
    real, left = Store.flush, [after]

    def flush(self: Store) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError("died")
        real(self)

    return flush


@pytest.mark.parametrize("dies_after", [0, 1, 7, 15, 19, 20])
def test_a_writer_that_dies_is_finished_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies_after: int
) -> None:
    store = tmp_path / "store"
    append(store, Batch("q", 0, put_aside(tmp_path, "q", range(3))))
    put = Store.put
    left = [dies_after]

    def dying_put(self: Store, message: Message) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise OSError("died")
        put(self, Message("t", message.body, queue_id=0))  # as the store itself does when a message falls due
        return put(self, message)

    parts = (range(10, 20), range(20, 30))
    first = put_aside(tmp_path, "q", *parts)
    with monkeypatch.context() as patch:
        patch.setattr(Store, "put", dying_put)
        patch.setattr(Store, "flush", flush_that_dies(1))
        with pytest.raises(OSError, match="died"):
            append(store, Batch("q", 1, first))
    assert len(bodies(store)) == 3 + 2 * dies_after
    # Spark does the batch again; its tasks have put the rows aside in another order.
    again = put_aside(tmp_path, "q", *parts[::-1])
    assert append(store, Batch("q", 1, again)) == 20 - dies_after
    assert ours(store) == expected("q", range(3), *parts)
    assert append(store, Batch("q", 1, again)) == 0
    assert append(store, Batch("other", 0, put_aside(tmp_path, "o", range(2)))) == 2
    assert ours(store) == expected("q", range(3), *parts) + expected("o", range(2))


KILLED = """
import json, os, sys
from pathlib import Path
from mqstore.spark import sink_ledger
from mqstore.store.store import Store

def dying(owner, name, after):
    real, left = getattr(owner, name), [after]

    def call(*arguments):
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), 9)
        return real(*arguments)

    setattr(owner, name, call)

owner = {"put": Store, "flush": Store, "save": sink_ledger._Ledger}[sys.argv[2]]
dying(owner, sys.argv[2], int(sys.argv[3]))
sink_ledger.append(Path(sys.argv[1]), sink_ledger.Batch("q", 1, json.loads(sys.argv[4])))
"""


@pytest.mark.parametrize(("where", "after"), [("save", 1), ("put", 7), ("flush", 0), ("flush", 1)])
def test_a_writer_that_is_killed_is_finished_by_the_next(tmp_path: Path, where: str, after: int) -> None:
    store = tmp_path / "store"
    append(store, Batch("q", 0, put_aside(tmp_path, "q", range(3))))
    parts = (range(10, 20), range(20, 30))
    first = json.dumps(put_aside(tmp_path, "q", *parts))
    command = [sys.executable, "-c", KILLED, str(store), where, str(after), first]
    child = subprocess.run(command, check=False, timeout=240)
    assert child.returncode == -signal.SIGKILL
    append(store, Batch("q", 1, put_aside(tmp_path, "q", *parts[::-1])))
    assert sorted(ours(store)) == sorted(expected("q", range(3), *parts))
    assert not bodies(store)[23:]


@pytest.mark.parametrize("lmq", [False, True])
def test_properties_that_a_store_changes_do_not_hide_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lmq: bool
) -> None:
    store = tmp_path / "store"
    mqstore.open(store, config=mqstore.StoreConfig(enable_multi_dispatch=lmq, enable_lmq=lmq)).close()
    copied = [
        {"DELAY": "1", "REAL_TOPIC": "other", "REAL_QID": "7"},
        {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b", "INNER_MULTI_QUEUE_OFFSET": "5,9", "WAIT": "true"},
    ]
    rows = [
        {"topic": "t", "body": "b", "queueId": 0, "properties": list(properties.items()), "delayLevel": level}
        for properties, level in itertools.product(copied, (0, 18))
    ]
    schema = pa.schema([("topic", pa.string()), ("body", pa.string()), ("queueId", pa.int32()),
                        ("properties", pa.map_(pa.string(), pa.string())), ("delayLevel", pa.int32())])  # fmt: skip
    written = sink._put_aside(sink.SinkOptions(store, None), "q", [pa.RecordBatch.from_pylist(rows, schema)])
    with monkeypatch.context() as patch:
        real, left = Store.put, [len(rows)]

        def dying_put(self: Store, message: Message) -> Any:
            left[0] -= 1
            if not left[0]:
                raise OSError("died")
            return real(self, message)

        patch.setattr(Store, "put", dying_put)
        with pytest.raises(OSError, match="died"):
            append(store, Batch("q", 0, [str(written.path)]))
    assert append(store, Batch("q", 0, [])) == 1
    assert len(bodies(store)) == len(rows)


def test_the_log_is_safe_up_to_the_end_that_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = tmp_path / "store"
    append(store, Batch("q", 0, put_aside(tmp_path, "q", range(3))), noted=False)
    monkeypatch.setattr(Store, "flush", flush_that_dies(0))
    with pytest.raises(OSError, match="died"):
        append(store, Batch("q", 1, put_aside(tmp_path, "q", range(3))))
    assert not (store / LEDGER_NAME).exists()


def test_two_that_append_to_one_store_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = tmp_path / "store"
    other = mqstore.open(store)
    timer = threading.Timer(1.0, other.close)
    timer.start()
    append(store, Batch("q", 0, put_aside(tmp_path, "q", range(3))))
    timer.join()
    assert len(bodies(store)) == 3
    monkeypatch.setattr(sink_ledger, "_WAIT_S", 0.2)
    with mqstore.open(store), pytest.raises(mqstore.StoreLockedError):
        append(store, Batch("q", 1, put_aside(tmp_path, "q", range(3))))


def test_files_that_went_before_a_batch_was_begun_are_in_nobodys_way(tmp_path: Path) -> None:
    store = tmp_path / "store"
    paths = put_aside(tmp_path, "q", range(3))
    # Another under the same name is done, and has cleaned up.
    sink._append(
        sink.SinkOptions(store, None), "q", 0, [sink.Written("q", put_aside(tmp_path, "q", range(2))[0])], True
    )
    with pytest.raises(mqstore.CorruptFileError, match="are gone") as caught:
        append(store, Batch("q", 1, paths))
    assert "under one name" in str(caught.value.hint)
    assert append(store, Batch("other", 0, put_aside(tmp_path, "o", range(2)))) == 2
    assert append(store, Batch("q", 1, put_aside(tmp_path, "q", range(3)))) == 3


def test_what_else_wrote_in_between_is_not_taken_for_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = tmp_path / "store"
    with monkeypatch.context() as patch:
        patch.setattr(Store, "flush", flush_that_dies(1))
        patch.setattr(Store, "put", lambda self, message: (_ for _ in ()).throw(OSError("died")))
        with pytest.raises(OSError, match="died"):
            append(store, Batch("q", 0, put_aside(tmp_path, "q", range(3))))
    with mqstore.open(store) as other:
        other.put(Message("t", b"q0", queue_id=0))
    append(store, Batch("q", 1, put_aside(tmp_path, "q", range(3, 5))))
    assert bodies(store) == [b"q0", *expected("q", range(5))]


def test_a_batch_that_the_store_cannot_take_is_in_nobodys_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks know the limits of all stores; this one has small files and further queues, and looks before it begins."""
    store, options = tmp_path / "store", sink.SinkOptions(tmp_path / "store", None)
    with mqstore.open(store, mapped_file_size_commit_log=1 << 16, enable_multi_dispatch=True) as opened:
        opened.put(Message("t", b"first", queue_id=0))

    def written(name: str, **row: Any) -> sink.Written:
        return sink._put_aside(options, name, [pa.RecordBatch.from_pylist([{"topic": "t", "body": "b", **row}])])

    delayed = {"topic": "t" * 120, "delayLevel": 1}
    room = (1 << 16) - written("small", **delayed).largest_bytes
    refused = [
        written("large", body="b" * 70_000),
        # It fits where it waits, and not where it is meant for.
        written("later", body="b" * (room - 50), **delayed),
        written("further", properties=[("INNER_MULTI_DISPATCH", "no/name")]),
    ]
    for one in refused:
        for noted in (True, False):
            for largest_bytes in (one.largest_bytes, None):
                with pytest.raises(mqstore.MessageIllegalError):
                    append(store, Batch(one.name, 0, [str(one.path)]), noted, largest_bytes)
    assert bodies(store) == [b"first"]
    assert append(store, Batch("q", 0, put_aside(tmp_path, "q", range(3)))) == 3
    # Whatever tasks have found in order needs no second look where there is room for it.
    mqstore.open(store, enable_multi_dispatch=False).close()
    last = written("last")
    with monkeypatch.context() as patch:
        patch.setattr(Store, "check_message", None)
        assert append(store, Batch("last", 0, [str(last.path)]), True, last.largest_bytes) == 1
    # One that was begun all the same is named.
    with mqstore.open(store) as opened:
        begun = {"done": {}, "begun": {"batch": ["large", 0, [str(refused[0].path)]], "logEnd": opened.log_end}}
    (store / LEDGER_NAME).write_text(json.dumps(begun))
    with pytest.raises(mqstore.MessageIllegalError) as caught:
        append(store, Batch("q", 1, []))
    assert LEDGER_NAME in str(caught.value.hint)


def test_a_query_without_an_id_has_no_name_to_be_known_by(tmp_path: Path) -> None:
    writer = sink.StreamWriter(sink.SinkOptions(tmp_path / "store", None))
    with pytest.raises(mqstore.UsageError, match="no id of the query"):
        writer.write(iter([]))


def test_a_damaged_note_and_lost_files(tmp_path: Path) -> None:
    store = tmp_path / "store"
    append(store, Batch("q", 0, put_aside(tmp_path, "q", range(3))))
    note = (store / LEDGER_NAME).read_bytes()
    (store / LEDGER_NAME).write_bytes(note[:-1])
    with pytest.raises(mqstore.CorruptFileError, match="damaged"):
        append(store, Batch("q", 1, []))
    (store / LEDGER_NAME).write_bytes(note)
    with pytest.raises(mqstore.CorruptFileError, match="gone"):
        append(store, Batch("q", 1, [str(tmp_path / "lost.parquet")]))


def test_a_table(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(40).selectExpr(
        "'orders' AS topic", "concat('body ', id) AS body", "array('k' || id) AS keys", "'paid' AS tags",
        "map('n', cast(id as string)) AS properties", "cast(id % 2 as int) AS queueId",
        "timestamp_millis(1700000000000 + id) AS bornTimestamp",
    )  # fmt: skip
    store = tmp_path / "store"
    for _ in range(2):
        frame.write.format("rocketmq").mode("append").option("jobId", "once").save(str(store))
    frame.limit(5).write.format("rocketmq").mode("append").save(str(store))
    assert sorted(bodies(store)[:40]) == sorted(b"body %d" % number for number in range(40))
    assert len(bodies(store)) == 45
    with mqstore.inspect(store) as view:
        found = view.query("orders", "k7").messages[-1]
        assert (found.body, found.tags, found.queue_id, found.properties["n"]) == (b"body 7", "paid", 1, "7")
        assert found.born_timestamp_ms == 1_700_000_000_007
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
    for options, change, complaint in [
        ({}, frame.drop("body"), "no column body"),
        ({}, frame.withColumnRenamed("topic", "Topic"), r"no column Topic.*withColumnRenamed\('Topic', 'topic'\)"),
        (
            {},
            frame.withColumn("price", frame["queueId"]),
            r"no column price.*drop\('price'\).*expected bornTimestamp, ",
        ),
        ({}, frame.withColumn("storeTimestamp", frame["bornTimestamp"]), "gives its messages their times itself"),
        ({"jobid2": "x"}, frame, "did you mean jobId"),
        ({"topic": "orders"}, frame, "unknown option topic.*docs/spark.md"),
        ({}, frame.selectExpr("'not legal' AS topic", "body"), "illegal character"),
    ]:
        with pytest.raises(Exception, match=complaint):
            change.write.format("rocketmq").mode("append").options(**options).save(str(store))
    with pytest.raises(Exception, match="not written over"):
        frame.write.format("rocketmq").mode("overwrite").save(str(store))
    assert len(bodies(store)) == 45


@pytest.mark.slow
def test_a_stream_whose_last_commit_is_lost(spark: SparkSession, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"

    def run(count: int) -> None:
        with mqstore.open(source) as store:
            for _ in range(count):
                number = store.log_end
                store.put(Message("orders", b"%d" % number, queue_id=number % 3, keys=[str(number)]))
        frame = spark.readStream.format("rocketmq").option("startingOffsets", "earliest")
        frame = frame.option("maxOffsetsPerTrigger", 30).load(str(source))
        writer = frame.select("topic", "body", "keys", "queueId").writeStream.format("rocketmq")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        query = writer.start(str(target))
        assert query.awaitTermination(240)

    run(70)
    drop_last_commit(tmp_path)
    run(20)
    assert sorted(bodies(target)) == sorted(bodies(source))


@pytest.mark.parametrize("name", ["/absolute", "../neighbour", "..", "", "a/b", "a" * 101])
def test_names_of_jobs_lead_nowhere(tmp_path: Path, name: str) -> None:
    from pyspark.sql.types import StringType, StructType

    schema = StructType().add("topic", StringType()).add("body", StringType())
    with pytest.raises(mqstore.UsageError, match="file name"):
        sink.SinkOptions.parse({"path": str(tmp_path / "store"), "jobId": name}, schema, overwrite=False)
    parsed = sink.SinkOptions.parse({"path": f"file://{tmp_path}/store", "jobId": "evening-1"}, schema, overwrite=False)
    assert parsed == (tmp_path / "store", "evening-1")
    with pytest.raises(mqstore.UsageError, match="local directory"):
        sink.SinkOptions.parse({"path": "s3://bucket/store"}, schema, overwrite=False)
    for several in ("one,two", "st*"):
        with pytest.raises(mqstore.UsageError, match="one store"):
            sink.SinkOptions.parse({"path": str(tmp_path / several)}, schema, overwrite=False)
        (tmp_path / several).mkdir()  # a store may be called so
        assert sink.SinkOptions.parse({"path": str(tmp_path / several)}, schema, overwrite=False).job_id is None


@pytest.mark.parametrize("column", ["queueId", "delayLevel", "bornTimestamp"])
def test_numbers_as_text(tmp_path: Path, column: str) -> None:
    options = sink.SinkOptions(tmp_path / "store", None)

    def put(text: str) -> list[object]:
        rows = [{"topic": "t", "body": "b", column: text}]
        written = sink._put_aside(options, "job", [pa.RecordBatch.from_pylist(rows)])
        return pa.parquet.read_table(written.path)[column].to_pylist()

    assert put("3") == [3]
    for text in ("2024-01-01", "", "3.5"):
        with pytest.raises(Exception, match=f"column {column} is no whole number"):
            put(text)


def test_times_of_any_year(tmp_path: Path) -> None:
    micros = [253_402_300_800_000_000 * 2, 1_999, 0, None]
    times = pa.array(micros, pa.timestamp("us", "UTC"))
    rows = pa.RecordBatch.from_arrays(
        [pa.array(["t"] * 4), pa.array(["b"] * 4), times], ["topic", "body", "bornTimestamp"]
    )
    written = sink._put_aside(sink.SinkOptions(tmp_path / "store", None), "job", [rows])
    born = pa.parquet.read_table(written.path)["bornTimestamp"].to_pylist()
    assert born[:3] == [253_402_300_800_000 * 2, 1, 0]
    assert born[3] > 1_700_000_000_000


def test_what_holds_for_all_rows_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"topic": "t", "body": "b"}] * 3
    put = functools.partial(sink._put_aside, sink.SinkOptions(tmp_path / "store", None), "job")
    put([pa.RecordBatch.from_pylist(rows)])
    monkeypatch.setattr(pa, "schema", None)
    monkeypatch.setattr(sink, "StoreConfig", None)
    assert put([pa.RecordBatch.from_pylist(rows)]).path


def test_a_row_that_is_refused_leaves_no_file_open(tmp_path: Path) -> None:
    batches = [pa.RecordBatch.from_pylist([{"topic": topic, "body": "b"}]) for topic in ("t", "no topic")]
    with pytest.raises(mqstore.MessageIllegalError) as caught:
        sink._put_aside(sink.SinkOptions(tmp_path / "store", None), "job", batches)
    assert open_files_below(tmp_path) == []
    assert caught.value.__traceback__ is not None
