"""What the Spark rebuild makes of a log, in this process: index files, and copies of stores that run."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="needs the extra 'spark'")

import mqstore
from mqstore import Message, StoreConfig
from mqstore.files import copying
from mqstore.layout.delay import DEFAULT_DELAY_LEVELS
from mqstore.spark.jobs import derived, rebuild, rebuilding
from mqstore.spark.jobs.key_files import KeyRange, read_keys
from mqstore.spark.jobs.log_copies import CopiedSplit, FileCopy, LogCopy, copy_whole
from mqstore.spark.jobs.log_shares import plan_splits
from mqstore.spark.jobs.queue_files import Kinds, SplitUnits, runs_of
from mqstore.spark.splits import Split
from mqstore.spark.stores import StoreRef
from mqstore.store.multi_dispatch import OFF
from mqstore.store.rebuild import rebuild as rebuild_in_order
from spark.support import files_below, run_at_once, run_here
from store.support import findings

NO_SPARK: Any = None


@pytest.fixture(autouse=True)
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (derived, rebuilding):
        monkeypatch.setattr(module, "run_tasks", run_here)


# -- index files


def log_of_all_kinds(path: Path, last: str) -> int:
    """A log of many small files, its records some seconds apart, whose keys are counted.

    Records have up to four keys or none, or are prepared, or rolled back; ``last`` says what it ends with.
    """
    sys_flags = {"prepared": 4, "rolled-back": 12}
    count = 0
    with mqstore.open(path, mapped_file_size_commit_log=4096) as store:
        for number in range(90):
            kind = "keys" if last == "keys" and number == 89 else [*"kkkkk", "prepared", "rolled-back"][number % 7]
            kind = last if number > 86 else kind
            keys = [f"k{number}-{one}" for one in range(number % 5)] if kind != "keyless" else []
            keys = keys or ["one"] if kind in ("keys", *sys_flags) else keys
            count += len(keys) if kind != "rolled-back" else 0
            topic = kind if kind in sys_flags else "T"
            where = store.put(Message(topic, bytes(number), keys=keys, queue_id=0)).physical_offset
            with (path / "commitlog" / f"{where // 4096 * 4096:020d}").open("r+b") as file:
                file.seek(where % 4096 + 36)
                file.write(sys_flags.get(kind, 0).to_bytes(4, "big"))
                file.seek(where % 4096 + 56)
                file.write((1_700_000_000_000 + number * 1700).to_bytes(8, "big"))
    return count


@pytest.mark.parametrize("last", ["keys", "keyless", "prepared", "rolled-back"])
def test_index_files_of_records_of_all_kinds(tmp_path: Path, last: str) -> None:
    """Full files end with a record's last key or before it, and behind them come records with keys, without, or none.

    Among the sizes is that at which the last file is full with the last key of the log.
    """
    count = log_of_all_kinds(tmp_path / "s", last)
    half = next(one for one in range(2, count) if count % one == 0)
    for entries in {2, 3, 4, 6, 11, half + 1, count // half + 1, count, count + 1, count + 2}:
        config = StoreConfig(max_hash_slot_num=7, max_index_num=entries)
        shutil.rmtree(tmp_path / "in-order", ignore_errors=True)
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        rebuild_in_order(tmp_path / "s", tmp_path / "in-order", config=config)
        result = rebuild(NO_SPARK, tmp_path / "s", tmp_path / "out", split_bytes=1500, config=config)
        assert (result.in_order, result.keys) == (False, count)
        assert files_below(tmp_path / "out") == files_below(tmp_path / "in-order"), entries


def test_no_index_is_built_where_there_is_to_be_none(golden: Path, tmp_path: Path) -> None:
    config = StoreConfig(message_index_enable=False)
    result = rebuild(NO_SPARK, golden / "basic" / "store", tmp_path / "out", config=config)
    assert (result.keys, result.index_files) == (0, 0)
    rebuild_in_order(golden / "basic" / "store", tmp_path / "in-order", config=config)
    assert files_below(tmp_path / "out") == files_below(tmp_path / "in-order")


def test_keys_that_are_gone_are_told(tmp_path: Path) -> None:
    (tmp_path / "keys").write_bytes(bytes(40))
    assert b"".join(read_keys([KeyRange(tmp_path / "keys", 1, 2)])) == bytes(20)
    for path, end in ((tmp_path / "keys", 3), (tmp_path / "nothing", 1)):
        with pytest.raises(mqstore.StoreIOError):
            list(read_keys([KeyRange(path, 0, end)]))


# -- beside a writer


@pytest.mark.parametrize("way", ["spark", "in-order"])
@pytest.mark.parametrize("count", [0, 5, 39, 40, 41])
def test_a_copy_of_a_running_store_ends_where_its_log_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, count: int
) -> None:
    """A batch that comes meanwhile may be copied without its first record, by which its writer makes it known."""
    copy_file = copying.copy_file
    with mqstore.open(tmp_path / "s", mapped_file_size_commit_log=8192) as store:
        for number in range(count):  # 40 fill two files, but for the blank record
            store.put(Message("T", bytes(290 if number % 20 == 19 else 304), queue_id=0))
        end = store.log_end

        def copy_while_it_grows(source: Path, target: Path) -> None:
            where = store.put_batch([Message("T", b"later", queue_id=0)] * 8)[0].physical_offset
            copy_file(source, target)
            if source.parent.name == "commitlog" and where // 8192 * 8192 == int(source.name):
                with target.open("r+b") as file:
                    file.seek(where % 8192)
                    file.write(bytes(100))

        monkeypatch.setattr(copying, "copy_file", copy_while_it_grows)
        if way == "spark":
            rebuild(NO_SPARK, tmp_path / "s", tmp_path / "out")
        else:
            rebuild_in_order(tmp_path / "s", tmp_path / "out")
        monkeypatch.undo()
    log = b"".join(files_below(tmp_path / "s" / "commitlog").values())
    found = b"".join(files_below(tmp_path / "out" / "commitlog").values())
    assert found == log[:end] + bytes(len(found) - end)
    with mqstore.inspect(tmp_path / "out") as view:
        assert len(list(view.scan())) == sum(queue.count for queue in view.queues()) == count
    assert findings(tmp_path / "out") == []


def test_damage_in_a_running_store_is_told_and_not_wiped_away(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "s", mapped_file_size_commit_log=1 << 16) as store:
        # All of one millisecond, so that none is older than what is noted as flushed.
        where = [one.physical_offset for one in store.put_batch([Message("T", bytes(200), queue_id=0)] * 9)]
        store.flush()
        with (tmp_path / "s" / "commitlog" / ("0" * 20)).open("r+b") as file:
            file.seek(where[4])
            file.write(b"\xff" * 60)
        # A power cut may have left messages so, if they are as new as these; so this comes first.
        rebuild_in_order(tmp_path / "s", tmp_path / "in-order")
        with pytest.raises(mqstore.CorruptRecordError):
            rebuild(NO_SPARK, tmp_path / "s", tmp_path / "out")
    assert list((tmp_path / "in-order" / "cut-off").iterdir())
    assert not (tmp_path / "out").exists()


# -- the log's copy


@pytest.fixture
def log_of_files(tmp_path: Path) -> Path:
    """A store whose log has ten closed files and one that goes on."""
    with mqstore.open(tmp_path / "s", mapped_file_size_commit_log=1 << 20) as store:
        while store.log_end < (10 << 20) + (1 << 18):
            store.put_batch([Message("t", bytes([number]) * 200_000, keys=["k"]) for number in range(1, 5)])
    for number, path in enumerate(sorted((tmp_path / "s" / "commitlog").iterdir())):
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
    return tmp_path / "s"


@pytest.mark.parametrize("run", [run_here, run_at_once])
@pytest.mark.parametrize("split_bytes", [300_000, 1 << 20, 1 << 30])
def test_the_log_is_copied_by_the_tasks_that_go_through_it(
    log_of_files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Any, split_bytes: int
) -> None:
    for module in (derived, rebuilding):
        monkeypatch.setattr(module, "run_tasks", run)
    mqstore.rebuild(log_of_files, tmp_path / "in-order")
    rebuild(NO_SPARK, log_of_files, tmp_path / "out", split_bytes=split_bytes)
    assert files_below(tmp_path / "out") == files_below(tmp_path / "in-order")
    os.sync()  # room is given when bytes are written back
    for path in sorted((log_of_files / "commitlog").iterdir()):
        copied, original = (tmp_path / "out" / "commitlog" / path.name).stat(), path.stat()
        if int(path.name) < 10 << 20:  # the last one is written to when the store is closed as it should be
            assert copied.st_mtime_ns == original.st_mtime_ns
        assert copied.st_blocks <= original.st_blocks  # what was never written takes no room
    assert findings(tmp_path / "out") == []


def test_each_byte_is_copied_once_and_the_last_file_as_a_whole(log_of_files: Path, tmp_path: Path) -> None:
    """What a store goes on writing to is copied under another name: an attempt that comes late would write to it."""
    paths = sorted((log_of_files / "commitlog").iterdir())
    files = [FileCopy(path, tmp_path / path.name, int(path.name), 1 << 20) for path in paths]
    splits = plan_splits(StoreRef(str(log_of_files), ""), 300_000)
    log = LogCopy(StoreRef(str(log_of_files), ""), files)
    whole, *parts = log.begin(splits)
    assert whole == files[-1]
    assert not whole.target.exists()
    assert [one for one in parts if isinstance(one, Split)] == [one for one in splits if one.begin >= 10 << 20]
    copied = [one for one in parts if isinstance(one, CopiedSplit)]
    assert [one.split for one in copied] == [one for one in splits if one.begin < 10 << 20]
    ranges = [(one.file.start + one.begin, one.file.start + one.end) for one in copied]
    assert ranges[0][0] == 0
    assert ranges[-1][1] == 10 << 20
    assert all(one[1] == two[0] for one, two in itertools.pairwise(ranges))


@pytest.mark.parametrize("late", ["at its begin", "at its end"])
def test_an_attempt_that_comes_late_replaces_no_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: str
) -> None:
    (tmp_path / "source").write_bytes(b"the log")
    file = FileCopy(tmp_path / "source", tmp_path / "target", 0, 1 << 20)
    scratch, real = tmp_path / "scratch", copying.copy_file
    scratch.mkdir()

    def copy(source: Path, target: Path) -> None:
        real(source, target)
        file.target.write_bytes(b"the log, which has gone on")

    if late == "at its end":
        monkeypatch.setattr(copying, "copy_file", copy)
    else:
        copy_whole(scratch, file)
        assert file.target.read_bytes() == b"the log"
        file.target.write_bytes(b"the log, which has gone on")
    copy_whole(scratch, file)
    assert file.target.read_bytes() == b"the log, which has gone on"
    assert not list(scratch.iterdir())


def test_a_log_that_cannot_be_copied(log_of_files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise mqstore.DiskFullError("no space left")

    for name in ("begin_copy", "copy_range", "copy_file"):
        with monkeypatch.context() as patch:
            patch.setattr(copying, name, full)
            with pytest.raises(mqstore.DiskFullError):
                rebuild(NO_SPARK, log_of_files, tmp_path / "out")
        assert [path.name for path in tmp_path.iterdir()] == ["s"]


def test_a_file_that_goes_before_it_is_read_is_told_with_what_a_rebuild_can_do_about_it(log_of_files: Path) -> None:
    split = plan_splits(StoreRef(str(log_of_files), ""), 1 << 20)[3]
    (log_of_files / "commitlog" / f"{3 << 20:020d}").unlink()
    with pytest.raises(mqstore.CorruptFileError, match="removed before it was read") as caught:
        list(runs_of(split, Kinds(DEFAULT_DELAY_LEVELS, OFF), SplitUnits()))
    assert "try again" in str(caught.value.hint)


def test_a_copy_is_without_foreign_files(golden: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As that of the rebuild in one process."""
    store = shutil.copytree(golden / "basic" / "store", tmp_path / "store")
    (store / "commitlog" / "notes.txt").write_text("backup of monday")
    rebuild(NO_SPARK, store, tmp_path / "new")
    rebuild_in_order(store, tmp_path / "in-order")
    assert caplog.text.count(str(store / "commitlog" / "notes.txt")) == 2
    assert files_below(tmp_path / "new") == files_below(tmp_path / "in-order")


def test_a_file_at_no_start_of_files_is_told(golden: Path, tmp_path: Path) -> None:
    store = shutil.copytree(golden / "basic" / "store", tmp_path / "store")
    path = store / "commitlog" / f"{1:020d}"
    path.write_bytes(b"x" * 100)
    for options in ({"output": tmp_path / "new"}, {"in_place": True}):
        with pytest.raises(mqstore.CorruptFileError, match="at which no file begins") as caught:
            rebuild(NO_SPARK, store, **options)
        assert caught.value.path == str(path)


def cut(path: Path) -> None:
    os.truncate(path, 300_000)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def spoil(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[210_000:210_100] = b"\xff" * 100
    path.write_bytes(data)


FAULTS: list[Callable[[Path], None]] = [cut, empty, Path.unlink, spoil]


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize(("first", "second"), list(itertools.product(FAULTS, FAULTS)))
def test_of_two_faults_both_rebuilds_tell_the_same(
    log_of_files: Path,
    tmp_path: Path,
    first: Callable[[Path], None],
    second: Callable[[Path], None],
    in_place: bool,
) -> None:
    """That of a file in front of that of a record; of two of a kind the one that comes first in the log."""
    files = sorted((log_of_files / "commitlog").iterdir())
    first(files[2])
    second(files[6])
    output = None if in_place else tmp_path / "out"
    told: list[tuple[Any, ...]] = []
    for run in (rebuild_in_order, lambda *arguments, **named: rebuild(NO_SPARK, *arguments, **named)):
        with pytest.raises((mqstore.CorruptFileError, mqstore.CorruptRecordError)) as caught:
            run(log_of_files, output, in_place=in_place)
        told.append((type(caught.value), caught.value.path, caught.value.found))
    assert told[0] == told[1]
    at = files[6] if first is spoil and second is not spoil else files[2]
    following = files[files.index(at) + 1]
    assert told[0][1] in (str(at), str(following))  # a hole is one in front of the file that comes next


@pytest.mark.parametrize("count", [1, 30])
@pytest.mark.parametrize("moment", ["inventory_to_copy", "copy_beside_log", "plan_splits"])
def test_a_store_that_is_opened_when_its_copy_has_just_begun(
    log_of_files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str, count: int
) -> None:
    real = getattr(rebuilding, moment)
    seen = []

    def go_on(*arguments: Any, **options: Any) -> Any:
        result = real(*arguments, **options) if moment != "plan_splits" else None
        with mqstore.open(log_of_files) as store:
            for _ in range(0 if seen else count):
                store.put(Message("t", bytes(100_000), keys=["later"], queue_id=0))
            seen.append(store.log_end)
        return real(*arguments, **options) if moment == "plan_splits" else result

    with mqstore.inspect(log_of_files) as view:
        before = sum(1 for _ in view.scan())
    monkeypatch.setattr(rebuilding, moment, go_on)
    result = rebuild(NO_SPARK, log_of_files, tmp_path / "out")
    assert before <= result.records <= before + count
    assert findings(tmp_path / "out") == []
    with mqstore.inspect(log_of_files) as view, mqstore.inspect(tmp_path / "out") as copy:
        assert copy.log_end <= view.log_end == seen[0]
        assert list(copy.scan()) == list(view.scan(end=copy.log_end))
