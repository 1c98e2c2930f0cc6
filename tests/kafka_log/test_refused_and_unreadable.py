"""A directory that is refused stays as it is, and an index that cannot be read keeps nobody from reading the log."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mqstore
import mqstore.kafka as kafka
from kafka_log.support import (
    TOPIC,
    bad,
    files_of,
    fill,
    log_files,
    mark_crashed,
    message,
    open_small,
    partition_of,
    read_all,
    tree,
)
from mqstore.convert import to_rocketmq
from mqstore.errors import CorruptFileError, MqstoreError, StoreIOError, UsageError
from mqstore.layout.kafka import names
from mqstore.layout.kafka.names import FileKind

COUNT = 120
SIZES: dict[str, Any] = {"mapped_file_size_commit_log": 1 << 20, "mapped_file_size_consume_queue": 2000}
INDEXES = [FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TXN_INDEX]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Two topics, several segments, an aborted transaction in each."""
    with open_small(tmp_path / "log") as store:
        for topic in (TOPIC, "z"):
            for number in range(COUNT):
                store.put(message(number, topic=topic))
                if number % 40 == 20:
                    producer = store.producer()
                    producer.begin()
                    producer.put(message(number, topic=topic))
                    producer.abort()
    return tmp_path / "log"


def odd_file(log: Path) -> None:
    path = log / "z-0" / "00000000000000000000.log"
    path.unlink()
    path.mkdir()


def noise(name: str) -> Callable[[Path], None]:
    return lambda log: (log / name).write_text("noise") and None


class TestRefused:
    @pytest.mark.parametrize("crashed", [False, True])
    @pytest.mark.parametrize(
        "spoil",
        [odd_file, noise(names.LOG_STARTS), noise(names.META_PROPERTIES)],
        ids=["no file", "log starts", "meta.properties"],
    )
    def test_it_is_left_as_it_was(self, log: Path, spoil: Callable[[Path], None], crashed: bool) -> None:
        """The mark of a clean stop, and whatever recovery would have mended in another partition."""
        spoil(log)
        if crashed:
            (log / names.CLEAN_SHUTDOWN).unlink()
            os.truncate(log_files(log)[-1], 100)
            files_of(partition_of(log), FileKind.OFFSET_INDEX)[0].unlink()
        before = tree(log)
        for _ in range(2):
            with pytest.raises(CorruptFileError):
                open_small(log)
        after = tree(log)
        after.pop(names.LOCK, None)
        before.pop(names.LOCK, None)
        assert after == before

    def test_a_stop_stays_clean_where_loading_fails(self, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*args: object) -> None:
            raise StoreIOError("the device failed")

        with monkeypatch.context() as patch:
            patch.setattr("mqstore.kafka.store.PartitionLog", fail)
            with pytest.raises(StoreIOError):
                open_small(log)
        assert (log / names.CLEAN_SHUTDOWN).exists()
        with open_small(log) as store:
            assert not (log / names.CLEAN_SHUTDOWN).exists()
            assert store.max_offset(TOPIC) == store.max_offset("z") == COUNT + 6


@pytest.fixture
def unreadable(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Endings of names of files that the device gives no more."""
    endings: list[str] = []
    original = os.open

    def open_file(path: object, *args: object, **options: object) -> int:
        if endings and str(path).endswith(tuple(endings)):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return original(path, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", open_file)
    return endings


def everything(log: Path) -> object:
    with kafka.inspect(log) as view:
        found = [read_all(view), read_all(view, isolation="read_committed"), view.aborted_transactions(TOPIC)]
        times = [view.offset_at(TOPIC, 0, 1_000_000 + number) for number in range(0, COUNT, 7)]
        one_by_one = [view.get(TOPIC, 0, offset, 1).messages for offset in range(0, COUNT, 11)]
        return found, times, one_by_one, view.offset_at(TOPIC, 0, "max_timestamp"), view.stats()[0]


class TestUnreadable:
    @pytest.mark.parametrize("kind", INDEXES)
    def test_the_log_is_walked(self, log: Path, kind: FileKind, unreadable: list[str]) -> None:
        wanted = everything(log)
        unreadable.append(kind.value)
        assert everything(log) == wanted
        assert any("read" in one or "open" in one for one in bad(kafka.check(log)))
        unreadable.clear()
        assert bad(kafka.check(log)) == []

    @pytest.mark.parametrize("kind", INDEXES)
    def test_a_directory_in_its_place(self, log: Path, kind: FileKind) -> None:
        wanted = everything(log)
        for path in files_of(partition_of(log), kind):
            path.unlink()
            path.mkdir()
        assert everything(log) == wanted
        assert bad(kafka.check(log)) != []

    @pytest.mark.parametrize("kind", INDEXES)
    def test_of_any_length(self, log: Path, kind: FileKind) -> None:
        wanted = everything(log)
        for path in files_of(partition_of(log), kind)[:2]:
            content = path.read_bytes()
            for length in range(0, len(content), 3):
                path.write_bytes(content[:length])
                got = everything(log)
                if kind is FileKind.TXN_INDEX and length % 34 == 0:
                    continue  # whole entries fewer: taken at its word, and check tells
                assert got == wanted, length
            path.write_bytes(content)

    @pytest.mark.parametrize("kind", INDEXES)
    def test_a_running_writer_reads_on(self, log: Path, kind: FileKind, unreadable: list[str]) -> None:
        with open_small(log) as store:
            wanted = read_all(store, isolation="read_committed")
            for path in list(store._pool._open):
                store._pool.forget(path)
            unreadable.append(kind.value)
            assert read_all(store, isolation="read_committed") == wanted
            unreadable.clear()

    def test_a_log_that_cannot_be_read_is_told(self, log: Path, unreadable: list[str]) -> None:
        unreadable.append(".log")
        with kafka.inspect(log) as view, pytest.raises(MqstoreError):
            view.get(TOPIC)


def test_fill_is_read_without_any_index(tmp_path: Path) -> None:
    fill(tmp_path, 60)
    for kind in INDEXES:
        for path in files_of(partition_of(tmp_path), kind):
            path.unlink()
    with kafka.inspect(tmp_path) as view:
        assert [view.get(TOPIC, 0, offset, 1).messages[0].offset for offset in range(60)] == list(range(60))


ODD: dict[str, Callable[[Path], object]] = {
    "a link that leads nowhere": lambda path: path.symlink_to(path.with_name("nowhere") / "x.log"),
    "a link to itself": lambda path: path.symlink_to(path),
    "a directory": Path.mkdir,
    "a pipe": os.mkfifo,
}


@pytest.mark.parametrize("make", ODD.values(), ids=ODD)
class TestNoFileInPlaceOfALog:
    @pytest.fixture
    def odd(self, log: Path, make: Callable[[Path], object]) -> Path:
        """The third segment of some."""
        path = log_files(log)[2]
        path.unlink()
        make(path)
        return path

    def test_readers_are_told_where_they_need_it(self, log: Path, odd: Path) -> None:
        begin, end = int(odd.stem), int(log_files(log)[3].stem)
        calls: dict[str, Callable[[kafka.KafkaView], object]] = {
            "records": lambda view: list(view.partition(TOPIC).records()),
            "committed": lambda view: list(view.partition(TOPIC).records(isolation="read_committed")),
            "batches": lambda view: list(view.partition(TOPIC).batches()),
            "chunks": lambda view: list(view.partition(TOPIC).chunks()),
            "get": lambda view: view.get(TOPIC, 0, begin),
            "get inside": lambda view: view.get(TOPIC, 0, end - 1, 1),
            "get across": read_all,
            "stats": lambda view: view.stats(),
            "compare": lambda view: kafka.compare(log, log),
            "reindex": lambda view: kafka.reindex(log, output=log.with_name("reindexed")),
            "one segment": lambda view: kafka.reindex(log_files(log)[3], output=log.with_name("reindexed")),
            "convert": lambda view: to_rocketmq(log, log.with_name("converted")),
        }
        for name, call in calls.items():
            with kafka.inspect(log) as view, pytest.raises(CorruptFileError) as caught:
                call(view)
            assert caught.value.path == str(odd), name
        assert not log.with_name("reindexed").exists()
        with kafka.inspect(log) as view:
            assert [one.header.base_offset for one in view.partition(TOPIC).batches(0, begin)] == list(range(begin))
            assert view.get(TOPIC, 0, end, 1).messages[0].offset >= end
            assert view.get(TOPIC, 0, begin - 1, 1).messages[0].offset == begin - 1
        assert "something else than a file under the name of one" in bad(kafka.check(log))
        assert kafka.reindex(log_files(log)[1], output=log.with_name("reindexed")) != []

    @pytest.mark.parametrize("way", ["dry run", "output", "in place"])
    def test_recovery_refuses_it_every_way(self, log: Path, odd: Path, way: str) -> None:
        mark_crashed(log)
        files_of(log / "z-0", FileKind.OFFSET_INDEX)[0].unlink()
        before = tree(log)
        output = log.with_name("output")
        with pytest.raises(CorruptFileError) as caught:
            kafka.recover(log, **{"dry run": {}, "output": {"output": output}, "in place": {"in_place": True}}[way])
        assert caught.value.path == str(odd)
        assert {**tree(log), names.LOCK: b""} == {**before, names.LOCK: b""}
        assert not output.exists()


@pytest.mark.parametrize("way", ["dry run", "output", "in place"])
def test_recovery_refuses_what_open_refuses(log: Path, way: str) -> None:
    (log / names.META_PROPERTIES).write_text("noise")
    options = {"dry run": {}, "output": {"output": log.with_name("output")}, "in place": {"in_place": True}}[way]
    with pytest.raises(CorruptFileError) as caught:
        kafka.recover(log, **options)
    assert caught.value.path == str(log / names.META_PROPERTIES)
    assert caught.value.hint
    (log / names.META_PROPERTIES).unlink()
    assert len(kafka.recover(log, **options).partitions) == 2


def test_what_is_not_copied_is_told(log: Path, caplog: pytest.LogCaptureFixture) -> None:
    (log / "elsewhere").symlink_to(log.with_name("nowhere"))
    kafka.recover(log, output=log.with_name("output"))
    assert f"not copied, as it is neither a file nor a directory: {log / 'elsewhere'}" in caplog.text


class TestDirectoriesOfOthers:
    """Nothing is made in a directory that is clearly something else."""

    @pytest.fixture
    def rocketmq(self, tmp_path: Path) -> Path:
        with mqstore.open(tmp_path / "rocketmq", **SIZES) as store:
            store.put(mqstore.Message("orders", b"x"))
        return tmp_path / "rocketmq"

    def test_a_partition_is_no_data_directory(self, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        moved = Path(shutil.copytree(partition_of(log), tmp_path / "moved"))  # by itself, under another name
        monkeypatch.chdir(partition_of(log))
        for path in (partition_of(log), log / "new-0", moved, Path()):
            before = tree(tmp_path)
            with pytest.raises(UsageError, match="a partition's directory"):
                kafka.open(path)
            assert tree(tmp_path) == before
            assert not (log / "new-0").exists()

    def test_names_alone_say_nothing(self, tmp_path: Path) -> None:
        for name in ("disk-0", "disk-1"):
            for count in (1, 2):
                with open_small(tmp_path / name) as store:
                    store.put(message(count))
                    assert store.max_offset(TOPIC) == count

    def test_a_rocketmq_store(self, rocketmq: Path) -> None:
        before = tree(rocketmq)
        with pytest.raises(UsageError, match="a RocketMQ store"):
            kafka.open(rocketmq)
        assert tree(rocketmq) == before

    def test_kafka_for_rocketmq(self, log: Path) -> None:
        before = tree(log)
        for path in (log, partition_of(log)):
            with pytest.raises(UsageError, match="Kafka's"):
                mqstore.open(path, **SIZES)
        (log / names.META_PROPERTIES).unlink()
        with pytest.raises(UsageError, match="Kafka's"):
            mqstore.open(log, **SIZES)
        del before[names.META_PROPERTIES]
        assert tree(log) == before
        assert not (log / "consumequeue").exists()

    def test_what_is_foreign_to_both_is_left_alone(self, tmp_path: Path) -> None:
        for name, opened in (("a", mqstore.open), ("b", kafka.open)):
            (tmp_path / name / "photos").mkdir(parents=True)
            (tmp_path / name / "letter.txt").write_text("dear")
            opened(tmp_path / name, **(SIZES if name == "a" else {})).close()
            assert (tmp_path / name / "letter.txt").read_text() == "dear"
