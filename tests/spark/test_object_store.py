"""Stores and outputs in an object store: the same rows as from the directory, at an endpoint that speaks S3."""

from __future__ import annotations

import errno
import itertools
import logging
import os
import pickle
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra 'spark'", exc_type=ImportError)
pytest.importorskip("moto", reason="needs moto's server")

import pyarrow as pa
import pyarrow.dataset as ds
from moto.server import ThreadedMotoServer

import mqstore
import mqstore.spark
from mqstore.cli.messages import broker_name
from mqstore.cli.output import to_json
from mqstore.files import remote
from mqstore.files.pool import FilePool
from mqstore.files.remote import RemotePath, as_path
from mqstore.files.whole import mode_of
from mqstore.spark.jobs import counting, exporting, outputs
from mqstore.spark.messages import MessagesView
from mqstore.spark.options import ReadOptions
from mqstore.spark.source import VIEWS
from mqstore.spark.stores import find_stores
from mqstore.store.view import StoreView
from spark.support import expected_messages, rows_of, run_here
from spark.test_queue_reading import SIZES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
NO_SPARK: Any = None


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """The query that leads to the server."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_EC2_METADATA_DISABLED": "true",
        }.items():  # fmt: skip
            patch.setenv(name, value)
        logging.getLogger("werkzeug").setLevel(logging.WARNING)
        server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
        try:
            _, port = server.get_host_and_port()
            yield f"scheme=http&endpoint_override=127.0.0.1:{port}&region=us-east-1&allow_bucket_creation=true"
        finally:
            server.stop()


def upload(source: Path, target: Path) -> None:
    for path in sorted(source.rglob("*")):
        if path.is_file():
            (target / str(path.relative_to(source))).write_bytes(path.read_bytes())


@pytest.fixture(scope="module")
def bucket(endpoint: str, golden: Path) -> str:
    """A bucket with two golden stores below ``stores/``; its name with the query, for ``format``."""
    root = as_path(f"s3://lake?{endpoint}")
    assert isinstance(root, RemotePath)
    system, name = root.address
    system.create_dir(name)
    for store in ("basic", "broker"):
        upload(golden / store / "store", root / "stores" / store)
    return "s3://lake/{}?" + endpoint


def view_of(name: str, path: str, **options: str) -> Any:
    parsed = ReadOptions.parse({"paths": f'["{path}"]', "view": name, **options})
    return VIEWS[name](find_stores(parsed), parsed, list(VIEWS[name].schema.names))


def table_of(view: Any) -> list[dict[str, Any]]:
    return [row for part in view.plan() for batch in view.read(part) for row in batch.to_pylist()]


@pytest.mark.parametrize("name", VIEWS)
def test_every_view(bucket: str, golden: Path, name: str) -> None:
    remote = table_of(view_of(name, bucket.format("stores/broker"), brokerName="b"))
    local = table_of(view_of(name, str(golden / "broker" / "store"), brokerName="b"))
    for row in remote + local:
        row.pop("path", None)
    assert remote == local
    assert remote


def test_by_queues_and_index(bucket: str, golden: Path) -> None:
    with mqstore.inspect(golden / "basic" / "store") as view:
        record = next(one for one in view.scan() if one.keys and one.transaction_type == 0)
    for options in ({"subscribe": record.topic}, {"subscribe": record.topic, "keys": record.keys[0]}):
        scanned = table_of(view_of("messages", bucket.format("stores/basic"), plan="scan", **options))
        guided = table_of(view_of("messages", bucket.format("stores/basic"), plan="queues", **options))
        assert record.physical_offset in [row["physicalOffset"] for row in guided]
        assert sorted(guided, key=lambda row: row["physicalOffset"]) == scanned


def test_on_spark(spark: SparkSession, bucket: str, golden: Path) -> None:
    mqstore.spark.register(spark)
    frame = (
        spark.read.format("rocketmq").options(splitBytes="1000000", maxPartitions="2").load(bucket.format("stores/*"))
    )
    expected = [row for name in ("basic", "broker") for row in expected_messages(golden, name, name)]
    assert rows_of(frame.toArrow()) == sorted(expected, key=lambda row: (row["brokerName"], row["physicalOffset"]))


def test_export(bucket: str, golden: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "run_tasks", run_here)
    source, output = bucket.format("stores/basic"), bucket.format("exported")
    result = exporting.export(NO_SPARK, source, output, job_id="one", columns=["physicalOffset"])
    assert not result.replayed
    expected = sorted(row["physicalOffset"] for row in expected_messages(golden, "basic"))
    root = as_path(output)
    assert isinstance(root, RemotePath)
    system, inside = root.address
    table = ds.dataset(inside, filesystem=system, partitioning="hive").to_table()
    assert sorted(table["physicalOffset"].to_pylist()) == expected
    assert result.rows == len(expected)
    assert sorted(path.name for path in (root / "_mqstore").iterdir()) == ["one.json"]
    again = exporting.export(NO_SPARK, source, output, job_id="one", columns=["physicalOffset"])
    assert (again.replayed, again.rows, again.bytes) == (True, result.rows, result.bytes)


def test_an_export_that_was_broken_off_goes_on(bucket: str, golden: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "run_tasks", run_here)
    source, output = bucket.format("stores/basic"), bucket.format("broken")
    options = {"splitBytes": "1000000"}
    moves = itertools.count()
    real = RemotePath.move_to

    def dies(path: RemotePath, target: RemotePath) -> None:
        if next(moves) == 3:
            raise KeyboardInterrupt
        real(path, target)

    monkeypatch.setattr(RemotePath, "move_to", dies)
    with pytest.raises(KeyboardInterrupt):
        exporting.export(NO_SPARK, source, output, job_id="one", options=options)
    result = exporting.export(NO_SPARK, source, output, job_id="one", options=options)
    assert result.rows == len(expected_messages(golden, "basic"))


def test_what_is_not_there(bucket: str, endpoint: str) -> None:
    with pytest.raises(mqstore.NotAStoreError, match="no such directory"):
        view_of("messages", bucket.format("stores/none"))
    with pytest.raises(mqstore.NotAStoreError, match="no store matches"):
        view_of("messages", bucket.format("none*"))
    with pytest.raises(mqstore.UsageError, match="only the last name may be a pattern"):
        view_of("messages", bucket.format("*/basic"))
    with pytest.raises(mqstore.UsageError, match="no file system"):
        view_of("messages", "gopher://hole/x")
    with pytest.raises(mqstore.StoreIOError):
        FilePool().read(as_path(bucket.format("stores/basic/none")), 0, 10)
    with pytest.raises(mqstore.UsageError, match="local directory"):
        mqstore.open(bucket.format("new"))


def test_a_view_of_a_store_by_its_url(bucket: str, golden: Path) -> None:
    with StoreView(bucket.format("stores/broker")) as remote, mqstore.inspect(golden / "broker" / "store") as local:
        assert remote.queues() == local.queues()
        assert list(remote.scan()) == list(local.scan())
        assert remote.progress() == local.progress()
        assert remote.checkpoint == local.checkpoint


def test_paths(tmp_path: Path) -> None:
    path = as_path("s3://bucket/a/b?endpoint_override=http://h:1&region=x")
    assert isinstance(path, RemotePath)
    assert as_path(os.fspath(path / "c")) == path / "c"
    assert (path / "c").parent == path
    assert str(path) == f"{path}" == "s3://bucket/a/b"
    assert repr(path) == "RemotePath('s3://bucket/a/b')"
    assert path != as_path("s3://bucket/a/b?endpoint_override=http://other:1&region=x")
    assert as_path("s3://bucket").name == "bucket"
    assert as_path(f"file://{tmp_path}") == as_path(f"file:{tmp_path}") == as_path(str(tmp_path)) == tmp_path
    assert not isinstance(as_path("a:b/c"), RemotePath)


@pytest.mark.parametrize(
    "url",
    [
        "s3://AK:hidden%2F@bucket/a/b",
        "s3://bucket/a/b?endpoint_override=http://me:hidden@h:1/x&secret=hidden",
        "s3://AK:hidden@bucket/a/b?secret=hidden",
    ],
)
def test_what_is_told_holds_no_secrets(url: str) -> None:
    for path in (url, as_path(url)):
        assert mqstore.errors.shown_path(path) == "s3://bucket/a/b"
        error = mqstore.NotAStoreError("no such store", path=path)
        again = pickle.loads(pickle.dumps(error))
        assert str(error) == str(again) == "no such store; path s3://bucket/a/b"
    with pytest.raises(mqstore.UsageError, match="no file system") as caught:
        as_path(url.replace("s3:", "nope:")).stat()
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("secret", ["", ":hidden"])
@pytest.mark.parametrize("query", ["", "?key=hidden"])
def test_the_container_of_a_url_is_no_secret(secret: str, query: str) -> None:
    """What goes by the text, as a Delta table does, would otherwise be put in another container."""
    url = f"abfss://lake{secret}@account.dfs.core.windows.net/a/b{query}"
    path = as_path(url)
    told = "abfss://lake@account.dfs.core.windows.net/a/b"
    assert mqstore.errors.shown_path(url) == mqstore.errors.shown_path(path) == str(path) == told
    assert str(path / "c") == f"{told}/c"
    if not query:
        assert path.address[1] == "lake/a/b"


class _Refusing:
    """A file system that fails as Azure's does: in Arrow's own errors, and with all of the URL."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __getattr__(self, name: str) -> Any:
        def fail(*_: object, **__: object) -> None:
            raise self._error

        return fail


@pytest.mark.parametrize("kind", [OSError, PermissionError, pa.ArrowException, pa.ArrowNotImplementedError])
def test_errors_of_file_systems_are_of_one_kind_and_tell_no_query(
    monkeypatch: pytest.MonkeyPatch, kind: type[Exception]
) -> None:
    error = kind("Failed: https://account/lake?sig=hidden%3D&sv=1 Azure Error: []")
    monkeypatch.setattr(remote, "_file_system", lambda *_: (_Refusing(error), "lake/"))
    path = RemotePath("abfss:/lake@account/a")
    calls: list[Callable[[], object]] = [
        path.stat, path.exists, path.is_dir, path.is_file, path.listing, path.read_bytes, path.open_sink, path.remove,
        lambda: path.write_bytes(b""), lambda: path.move_to(path),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(OSError, match=r"Failed: https://account/lake Azure Error: \[\]") as caught:
            call()
        assert caught.value.__suppress_context__
    with pytest.raises(mqstore.StoreIOError, match="could not read") as told:
        remote.RemoteFiles().read(path, 0, 10)
    assert "hidden" not in str(told.value)
    for job_call in (outputs.remove_tree, outputs.remove_file, outputs.names, mode_of):
        with pytest.raises(mqstore.StoreIOError) as told:
            job_call(path)
        assert told.value.path == "abfss://lake@account/a"
        assert "hidden" not in str(told.value)


def test_what_fails_behind_the_opening_tells_no_query_either() -> None:
    told = mqstore.errors.from_os_error(
        OSError("Failed: https://u:hidden@account/lake?sig=hidden%3D&sv=1 Azure Error: []"), "write Parquet", "a"
    )
    assert str(told) == "could not write Parquet: Failed: https://account/lake Azure Error: []; path a"


def test_kinds_and_numbers_of_errors_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    path = RemotePath("abfss:/lake@account/a")
    for error, number in (
        (FileNotFoundError("gone"), errno.ENOENT),
        (PermissionError(errno.EACCES, "no"), errno.EACCES),
    ):
        monkeypatch.setattr(remote, "_file_system", lambda *_, error=error: (_Refusing(error), "lake/"))
        with pytest.raises(type(error)) as caught:
            path.read_bytes()
        assert caught.value.errno == number
        assert str(caught.value).count("Errno") == 1
    monkeypatch.setattr(remote, "_file_system", lambda *_: (_Refusing(pa.ArrowMemoryError("full")), "lake/"))
    with pytest.raises(MemoryError):
        path.read_bytes()


def test_a_file_system_that_cannot_move_copies(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = as_path(bucket.format("moved/a"))
    path.write_bytes(b"content")
    system, inside = path.address

    class NoMove:
        get_file_info, copy_file, delete_file = system.get_file_info, system.copy_file, system.delete_file

        def move(self, *_: str) -> None:
            raise pa.ArrowNotImplementedError("FileSystem::Move() is not implemented")

    with monkeypatch.context() as patch:
        patch.setattr(remote, "_file_system", lambda *_: (NoMove(), inside.removesuffix("moved/a")))
        path.move_to(path.with_name("b"))
    assert [one.name for one in path.parent.iterdir()] == ["b"]
    assert path.with_name("b").read_bytes() == b"content"


@pytest.mark.parametrize("path", ["/a:/b", "a:b/c", "a?b/c@d", "", "x:/y", "file:///a/b"])
def test_local_paths_are_told_as_they_are(path: str) -> None:
    assert mqstore.errors.shown_path(path) == path


def test_a_local_copy_is_no_different(golden: Path, tmp_path: Path) -> None:
    shutil.copytree(golden / "broker" / "store", tmp_path / "s")
    parsed = ReadOptions.parse({"path": f"file://{tmp_path / 's'}", "brokerName": "b"})
    view = MessagesView(find_stores(parsed), parsed, ["physicalOffset"])
    found = [row["physicalOffset"] for row in table_of(view)]
    assert found == [row["physicalOffset"] for row in expected_messages(golden, "broker")]


def test_a_view_follows_a_copy_that_grows(bucket: str, tmp_path: Path) -> None:
    copy = as_path(bucket.format("stores/growing"))
    for count in (10, 30, 50):
        with mqstore.open(tmp_path / "store", **SIZES) as store:
            while sum(one.count for one in store.queues()) < count:
                store.put(mqstore.Message("t", b"x" * 100, queue_id=0))
                store.wait_dispatched()
        upload(tmp_path / "store", copy)
        if count == 10:
            view = StoreView(copy)
        assert view.queues()[0].count == count
        assert len(list(view.scan())) == count
    view.close()


def test_what_is_noted_and_shown_holds_no_secrets(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(exporting, "run_tasks", run_here)
    monkeypatch.setattr(counting, "run_tasks", run_here)
    url = bucket.replace("s3://", "s3://KEY:hidden@").format
    source, output = url("stores/basic"), url("told")
    told: list[object] = [find_stores(ReadOptions.parse({"path": source})), ReadOptions.parse({"path": source})]
    with monkeypatch.context() as patch:
        patch.setattr(RemotePath, "move_to", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            exporting.export(NO_SPARK, source, output, job_id="one")
    begun = as_path(output) / "_mqstore" / "one.partial"
    told += [one.read_bytes() for one in begun.iterdir() if one.is_file()]
    with pytest.raises(mqstore.UsageError, match="broken off") as caught:
        exporting.export(NO_SPARK, source, output, columns="body")
    told += [caught.value, caught.value.hint]
    result = exporting.export(NO_SPARK, source, output)
    assert (result.job_id, result.rows > 0, result.replayed) == ("one", True, False)
    assert exporting.export(NO_SPARK, source, output, job_id="one").replayed
    with pytest.raises(mqstore.UsageError, match="with other arguments"):
        exporting.export(NO_SPARK, source.replace("hidden", "hidden-too"), output, job_id="one")
    told += [result, to_json(result), result.manifest.read_bytes()]
    result.manifest.write_bytes(b"{")
    with pytest.raises(mqstore.CorruptFileError) as damaged:
        exporting.export(NO_SPARK, source, output, job_id="one")
    told += [damaged.value, damaged.value.hint]
    counting.stats(NO_SPARK, source, report=tmp_path / "page.html")
    told.append((tmp_path / "page.html").read_text())
    with pytest.raises(mqstore.UsageError, match="lies in the store"):
        exporting.export(NO_SPARK, source, url("stores/basic/out"))
    with pytest.raises(mqstore.UsageError) as refused:
        counting.stats(NO_SPARK, source, report=output)
    told += [refused.value, table_of(view_of("files", source)), caplog.messages]
    for text in map(repr, told):
        assert "hidden" not in text
        assert "endpoint_override" not in text
    assert sum("s3://lake/" in repr(one) for one in told) >= 10


def test_the_name_of_a_store_that_is_a_whole_bucket(bucket: str, endpoint: str, golden: Path) -> None:
    root = as_path(f"s3://KEY:hidden@single?{endpoint}")
    assert isinstance(root, RemotePath)
    root.address[0].create_dir("single")
    upload(golden / "empty" / "store", root)
    (one,) = find_stores(ReadOptions.parse({"path": os.fspath(root)}))
    assert one.broker_name == broker_name(root) == "single"


@pytest.mark.parametrize("make", [mqstore.rebuild, lambda store, url: mqstore.truncate(store, 4171936, url)])
def test_nothing_is_made_in_a_directory_that_is_called_like_a_url(
    golden: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path, str], object]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(mqstore.UsageError, match="on this machine") as caught:
        make(golden / "basic" / "store", "s3://KEY:hidden@bucket/new")
    assert caught.value.path == "s3://bucket/new"
    assert not list(tmp_path.iterdir())
