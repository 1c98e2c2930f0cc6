"""What the Spark rebuild does to a store in place, in this process."""

from __future__ import annotations

import functools
import itertools
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="needs the extra 'spark'")

import mqstore
from mqstore import Message, StoreConfig
from mqstore.spark.jobs import derived, rebuild, rebuilding
from mqstore.spark.jobs.log_shares import plan_splits
from mqstore.spark.jobs.queue_files import JoinedRanges, Kinds, QueueWork, SplitUnits, build_units
from mqstore.spark.stores import StoreRef
from mqstore.store.check import check_store
from mqstore.store.engine import Engine
from mqstore.store.multi_dispatch import OFF
from mqstore.store.rebuild import rebuild as rebuild_in_order
from spark.support import files_below, run_at_once, run_here

NO_SPARK: Any = None


@pytest.fixture(autouse=True)
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (derived, rebuilding):
        monkeypatch.setattr(module, "run_tasks", run_here)


@pytest.fixture
def store(golden: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(golden / "basic" / "store", tmp_path / "s"))


def findings(path: Path) -> list[Any]:
    found: list[Any] = []
    with mqstore.inspect(path) as view:
        check_store(view, found.append)
    return [finding for finding in found if finding.area != "config"]


@pytest.mark.parametrize("name", ["basic", "broker", "cleaned", "crashed", "cq-lost", "torn-flip-abort", "v5-cleaned",
                                  "empty"])  # fmt: skip
def test_in_place_it_is_the_same_as_in_order(golden: Path, tmp_path: Path, name: str) -> None:
    for copy in ("s", "in-order"):
        shutil.copytree(golden / name / "store", tmp_path / copy)
    rebuild_in_order(tmp_path / "in-order", None, in_place=True)
    result = rebuild(NO_SPARK, tmp_path / "s", in_place=True, split_bytes=33_333)
    assert not result.in_order
    assert result.output == tmp_path / "s"
    assert files_below(tmp_path / "s") == files_below(tmp_path / "in-order")
    assert {path.name for path in (tmp_path / "s").iterdir()} == {
        path.name for path in (tmp_path / "in-order").iterdir()
    }
    assert findings(tmp_path / "s") == []
    log = files_below(golden / name / "store" / "commitlog")
    assert name.startswith(("torn", "crashed")) or files_below(tmp_path / "s" / "commitlog") == log


def test_an_irregular_log_in_place(store: Path, tmp_path: Path) -> None:
    from mqstore.store.salvage import salvage_log

    file = store / "commitlog" / ("0" * 20)
    raw = bytearray(file.read_bytes())
    raw[500_000:510_000] = b"\xff" * 10_000
    file.write_bytes(raw)
    before = files_below(store)
    with pytest.raises(mqstore.CorruptRecordError) as caught:
        rebuild(NO_SPARK, store, in_place=True)
    assert "--salvage" in str(caught.value.hint)
    assert files_below(store) == before
    assert not (store / "mqstore-rebuild").exists()
    salvage_log(store / "commitlog", lambda loss: None)
    shutil.copytree(store, tmp_path / "in-order")
    assert rebuild(NO_SPARK, store, in_place=True, split_bytes=40_000).in_order
    rebuild_in_order(tmp_path / "in-order", None, in_place=True)
    assert files_below(store) == files_below(tmp_path / "in-order")


def test_an_irregular_log_that_fails_keeps_its_queues(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = files_below(store / "consumequeue"), files_below(store / "index")

    def fail(*arguments: Any) -> int:
        assert not (store / "consumequeue").exists()
        raise mqstore.DiskFullError("no space left")

    monkeypatch.setattr(derived.queue_files.JoinedRanges, "take", lambda joined, _: vars(joined).update(irregular=True))
    monkeypatch.setattr("mqstore.store.rebuild.put_in_order", fail)
    with pytest.raises(mqstore.DiskFullError):
        rebuild(NO_SPARK, store, in_place=True)
    assert (files_below(store / "consumequeue"), files_below(store / "index")) == before
    assert not list(store.glob("*rebuild*"))
    monkeypatch.undo()
    mqstore.open(store).close()
    assert findings(store) == []


def test_a_store_that_runs_is_refused_and_cannot_be_opened_meanwhile(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with mqstore.open(store), pytest.raises(mqstore.StoreLockedError):
        rebuild(NO_SPARK, store, in_place=True)
    seen = []

    def run_while_others_try(*arguments: Any) -> list[Any]:
        for others in (lambda: mqstore.open(store), lambda: rebuild(NO_SPARK, store, in_place=True)):
            with pytest.raises(mqstore.StoreLockedError):
                others()
        seen.append(files_below(store / "consumequeue"))
        return run_here(*arguments)

    before = files_below(store / "consumequeue")
    monkeypatch.setattr(derived, "run_tasks", run_while_others_try)
    rebuild(NO_SPARK, store, in_place=True)
    assert seen == [before] * 2


@pytest.mark.parametrize("step", ["do_part", "build_file", "move_in", "_note"])
def test_a_failure_in_place_leaves_what_was_there(store: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    def fail(*arguments: Any) -> None:
        raise mqstore.DiskFullError("no space left")

    def run(spark: Any, function: Callable[[Any], Any], items: Sequence[Any], *others: Any) -> list[Any]:
        results = run_here(spark, function, items, *others)
        if getattr(function, "func", function).__name__ == step:
            fail()
        return results

    before = files_below(store)
    monkeypatch.setattr(derived, "run_tasks", run)
    if step in ("move_in", "_note"):
        monkeypatch.setattr(rebuilding if step == "move_in" else derived, step, fail)
    with pytest.raises(mqstore.DiskFullError):
        rebuild(NO_SPARK, store, in_place=True)
    after = files_below(store)
    made = {name for name in after if name.startswith(("consumequeue", "index"))}
    assert {name: after[name] for name in made} == {
        name: data for name, data in before.items() if name.startswith(("consumequeue", "index"))
    }
    assert not list(store.glob("*rebuild*"))
    mqstore.open(store).close()
    assert findings(store) == []


STEPS = ("rename", "replace", "unlink", "rmdir")
WAYS: dict[str, Callable[[Path], object]] = {
    "spark": lambda store: rebuild(NO_SPARK, store, in_place=True, split_bytes=10_000),
    "in-order": lambda store: rebuild_in_order(store, None, in_place=True),
    "opened": lambda store: mqstore.open(store).close(),
}


def killed_at(moment: int, work: Callable[[], object]) -> bool:
    """Do ``work`` in a process that ends in front of step number ``moment``; whether it came so far."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    steps = itertools.count()

    def counted(function: Callable[..., None]) -> Callable[..., None]:
        def run(*arguments: Any, **named: Any) -> None:
            if next(steps) == moment:
                os._exit(7)
            function(*arguments, **named)

        return run

    try:
        for name in STEPS:
            setattr(os, name, counted(getattr(os, name)))
        work()
        os._exit(0)
    finally:
        os._exit(1)


@pytest.mark.parametrize("way", ["spark", "in-order"])
def test_killed_in_place(tmp_path: Path, way: str) -> None:
    """Whatever name is the next to come or go: opening and another rebuild come to the same, sizes of files too."""
    store, killed, again = (tmp_path / name for name in ("s", "killed", "again"))
    sizes: dict[str, Any] = {"mapped_file_size_consume_queue": 400, "max_hash_slot_num": 50, "max_index_num": 20}
    with mqstore.open(store, mapped_file_size_commit_log=1 << 20, **sizes) as opened:
        for number in range(25):
            opened.put(Message("T", bytes(80), keys=[f"k{number}"], queue_id=number % 2))
    os.truncate(store / "commitlog" / ("0" * 20), 8192)  # only the note tells how long it was
    expected = Path(shutil.copytree(store, tmp_path / "expected"))
    WAYS[way](expected)
    whole = {name: data for name, data in files_below(expected).items() if name not in ("checkpoint", "abort")}
    moment = 0
    while killed_at(moment, lambda: WAYS[way](shutil.copytree(store, killed))):
        for name, repeat in WAYS.items():
            repeat(Path(shutil.copytree(killed, again)))
            found = files_below(again)
            assert {one: found.get(one) for one in whole} == whole, (moment, name)
            left = {one for one in found.keys() - whole.keys() if not one.endswith(".tmp")}
            assert left <= {"checkpoint"}, (moment, name)
            shutil.rmtree(again)
        shutil.rmtree(killed)
        moment += 1
    assert moment > {"spark": 25, "in-order": 12}[way]
    assert findings(killed) == []


def zero_units(store: Path) -> None:
    """Damage a queue in a way that opening mends as long as nothing says that the queues are complete."""
    for file in sorted((store / "consumequeue").rglob("0" * 20)):
        with file.open("r+b") as opened:
            opened.seek(20 * 20)
            opened.write(bytes(20 * 20))
    (store / "mqstore-dispatch.json").unlink(missing_ok=True)


@pytest.mark.parametrize("by", ["spark", "process"])
def test_a_failure_takes_the_note_of_new_queues_back_with_them(
    store: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    def fail(*arguments: Any) -> None:
        (store / "mqstore-dispatch.json").write_bytes(note)
        raise mqstore.DiskFullError("no space left")

    rebuild_in_order(store, None, in_place=True)
    note = (store / "mqstore-dispatch.json").read_bytes()
    zero_units(store)
    broken = files_below(store / "consumequeue")
    monkeypatch.setattr(derived, "_note", fail)
    monkeypatch.setattr("mqstore.store.rebuild.put_in_order", fail)
    with pytest.raises(mqstore.DiskFullError):
        rebuild(NO_SPARK, store, in_place=True) if by == "spark" else rebuild_in_order(store, None, in_place=True)
    assert files_below(store / "consumequeue") == broken
    mqstore.open(store).close()
    assert findings(store) == []


def test_what_a_killed_rebuild_put_aside_comes_back_when_the_next_one_fails(store: Path) -> None:
    before = files_below(store / "consumequeue"), files_below(store / "index")
    damaged = store / "commitlog" / ("0" * 20)
    sound = damaged.read_bytes()
    damaged.write_bytes(sound[:500_000] + b"\xff" * 10_000 + sound[510_000:])
    for again in (
        lambda: rebuild(NO_SPARK, store, in_place=True),
        lambda: rebuild_in_order(store, None, in_place=True),
    ):
        for name in ("consumequeue", "index"):
            (store / name).rename(store / f"{name}.before-rebuild")
        with pytest.raises(mqstore.CorruptRecordError):
            again()
        assert (files_below(store / "consumequeue"), files_below(store / "index")) == before
        assert not list(store.glob("*.before-rebuild"))


def test_a_link_is_not_rebuilt_in_place(store: Path, tmp_path: Path) -> None:
    for name in ("consumequeue", "index"):
        (store / name).rename(tmp_path / name)
        (store / name).symlink_to(tmp_path / name)
        before = files_below(tmp_path)
        for works in (
            lambda: rebuild(NO_SPARK, store, in_place=True),
            lambda: rebuild_in_order(store, None, in_place=True),
        ):
            with pytest.raises(mqstore.UsageError, match="link"):
                works()
        assert files_below(tmp_path) == before
        (store / name).unlink()
        (tmp_path / name).rename(store / name)


def test_a_damaged_checkpoint_is_made_anew(store: Path, tmp_path: Path) -> None:
    small = StoreConfig(max_hash_slot_num=50, max_index_num=90)
    for size in (4096, 5):
        (store / "checkpoint").write_bytes(b"\xee" * size)
        shutil.copytree(store, tmp_path / "in-order")
        rebuild_in_order(tmp_path / "in-order", None, in_place=True, config=small)
        rebuild(NO_SPARK, store, in_place=True, config=small)
        assert len(files_below(store / "index")) > 1
        assert files_below(store) == files_below(tmp_path / "in-order")
        shutil.rmtree(tmp_path / "in-order")


def test_a_service_may_take_the_store_as_soon_as_its_queues_are_there(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for error in (mqstore.StoreLockedError("another came"), mqstore.DiskFullError("no space left")):
        zero_units(store)

        def fail(*arguments: Any, error: mqstore.MqstoreError = error) -> int:
            raise error

        monkeypatch.setattr(rebuilding, "put_in_order", fail)
        if isinstance(error, mqstore.StoreLockedError):
            assert rebuild(NO_SPARK, store, in_place=True).left_out == 0
        else:
            with pytest.raises(mqstore.DiskFullError):
                rebuild(NO_SPARK, store, in_place=True)
        assert findings(store) == []  # the new queues are complete, so they stay
    mqstore.open(store).close()
    assert not list(store.glob("*rebuild*"))


def test_an_attempt_that_comes_late_makes_nothing(store: Path, tmp_path: Path) -> None:
    split, *_ = plan_splits(StoreRef(str(store), ""), 1 << 30)
    for keys in (None, tmp_path / "gone"):
        with pytest.raises(mqstore.StoreIOError, match="over"):
            build_units(QueueWork(tmp_path / "gone" / "built", 6_000_000, Kinds("1s", OFF), keys), split)
    assert not (tmp_path / "gone").exists()


def test_keys_that_are_lost_on_their_way_fill_no_index_file(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(spark: Any, function: Callable[[Any], Any], items: Sequence[Any], *others: Any) -> list[Any]:
        results = run_here(spark, function, items, *others)
        for path in store.glob("mqstore-rebuild/*/keys-*"):
            with path.open("r+b") as file:
                file.seek(path.stat().st_size // 40 * 20)
                file.write(bytes(20))
        return results

    before = files_below(store)
    monkeypatch.setattr(derived, "run_tasks", run)
    with pytest.raises(mqstore.StoreIOError, match="lost on their way"):
        rebuild(NO_SPARK, store, in_place=True, split_bytes=100_000)
    assert files_below(store) == before


def test_the_progress_of_a_store_that_died_is_doubted_in_place(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "s", mapped_file_size_commit_log=1 << 16) as opened:
        opened.put(Message("T", b"not delivered yet", delay_level=18))
    (tmp_path / "s" / "config" / "delayOffset.json").write_text('{"offsetTable":{18:1}}')
    (tmp_path / "s" / "abort").touch()
    shutil.copytree(tmp_path / "s", tmp_path / "in-order")
    rebuild_in_order(tmp_path / "in-order", None, in_place=True)
    rebuild(NO_SPARK, tmp_path / "s", in_place=True)
    assert files_below(tmp_path / "s") == files_below(tmp_path / "in-order")
    noted = (tmp_path / "s" / "config" / "delayOffset.json").read_text()
    assert "".join(noted.split()) == '{"offsetTable":{18:0}}'


def test_the_places_of_the_log_may_be_given(tmp_path: Path) -> None:
    places = f"{tmp_path / 'a'},{tmp_path / 'b'}"
    with mqstore.open(tmp_path / "s", store_path_commit_log=places, mapped_file_size_commit_log=4096) as opened:
        for number in range(150):
            opened.put(Message("t", b"%d" % number, keys=[f"k{number}"], queue_id=number % 2))
    before = files_below(tmp_path / "s")
    (tmp_path / "s" / "mqstore-commitlog.json").unlink()
    for _ in range(2):
        result = rebuild(
            NO_SPARK, tmp_path / "s", in_place=True, split_bytes=5000, config=StoreConfig(store_path_commit_log=places)
        )
        assert (result.records, result.units, result.keys) == (150, 150, 150)
    assert files_below(tmp_path / "s") == before


def test_further_queues_in_place(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "s", enable_multi_dispatch=True, enable_lmq=True) as opened:
        for name in ("%LMQ%a", "%LMQ%a,%LMQ%b", "mirror"):
            opened.put(Message("T", b"x", properties={"INNER_MULTI_DISPATCH": name}, queue_id=0))
    before = files_below(tmp_path / "s")
    for path in (tmp_path / "s").glob("mqstore-*"):
        path.unlink()  # the light queues tell it, too
    assert rebuild(NO_SPARK, tmp_path / "s", in_place=True).queues == 4
    assert files_below(tmp_path / "s" / "consumequeue") == {
        name.removeprefix("consumequeue/"): data for name, data in before.items() if name.startswith("consumequeue/")
    }


def test_further_queues_as_configured(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "s", enable_multi_dispatch=True, enable_lmq=True) as opened:
        for name in ("mirror", "mirror,%LMQ%b"):
            opened.put(Message("T", b"x", properties={"INNER_MULTI_DISPATCH": name}, queue_id=0))
    for path in [*(tmp_path / "s").glob("mqstore-*"), tmp_path / "s" / "consumequeue"]:
        path.unlink() if path.is_file() else shutil.rmtree(path)
    config = StoreConfig(enable_multi_dispatch=True, enable_lmq=True)
    rebuild_in_order(tmp_path / "s", tmp_path / "in-order", config=config)
    assert rebuild(NO_SPARK, tmp_path / "s", tmp_path / "out", config=config).queues == 3
    assert rebuild(NO_SPARK, tmp_path / "s", in_place=True, config=config).queues == 3
    for name in ("out", "s"):
        assert files_below(tmp_path / name) == files_below(tmp_path / "in-order")


@pytest.mark.parametrize("noted", [None, False, True])
@pytest.mark.parametrize("given", [None, False, True])
def test_a_topic_with_a_name_of_light_queues_switches_nothing_on(
    tmp_path: Path, noted: bool | None, given: bool | None
) -> None:
    """New queues must not tell what the store, or its configuration, does not say."""
    small = {"mapped_file_size_commit_log": 1 << 14, "max_hash_slot_num": 50, "max_index_num": 20}
    with mqstore.open(tmp_path / "s", enable_multi_dispatch=noted, enable_lmq=noted, **small) as opened:
        for name in ("%LMQ%x", "T"):
            opened.put(Message(name, b"x", properties={"INNER_MULTI_DISPATCH": "mirror,%LMQ%y"}, queue_id=1))
    if noted is None:
        shutil.rmtree(tmp_path / "s" / "consumequeue")
    for enabled, lmq in ((given, None), (given, given)):
        config = StoreConfig(enable_multi_dispatch=enabled, enable_lmq=lmq)
        for way in (rebuild_in_order, functools.partial(rebuild, NO_SPARK)):
            shutil.copytree(tmp_path / "s", tmp_path / "c")
            shutil.rmtree(tmp_path / "out", ignore_errors=True)
            way(tmp_path / "c", tmp_path / "out", config=config)
            way(tmp_path / "c", None, in_place=True, config=config)
            found = {name: files_below(tmp_path / name) for name in ("c", "out")}
            shutil.rmtree(tmp_path / "c")
            if way is rebuild_in_order:
                expected = found
        assert found == expected, (enabled, lmq)


@pytest.mark.parametrize("fails", ["_build_index", "move_in", "put_in_order"])
def test_settings_given_for_a_rebuild_that_fails_are_not_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    def fail(*arguments: Any, **named: Any) -> None:
        raise mqstore.DiskFullError("no space left")

    def fill() -> None:
        places = f"{tmp_path / 'a'},{tmp_path / 'b'}"
        with mqstore.open(tmp_path / "s", store_path_commit_log=places, mapped_file_size_commit_log=4096) as opened:
            opened.put(Message("T", b"x", properties={"INNER_MULTI_DISPATCH": "%LMQ%x"}, queue_id=0))

    fill()
    config = StoreConfig(
        enable_multi_dispatch=True, enable_lmq=True, message_delay_level="1s 2s",
        store_path_commit_log=f"{tmp_path / 'b'},{tmp_path / 'a'}",
    )  # fmt: skip
    before = files_below(tmp_path / "s")
    if fails == "put_in_order":  # for a log that has to be gone through in order
        open_files = Engine._open_files
        monkeypatch.setattr(Engine, "_open_files", fail)
        with pytest.raises(mqstore.DiskFullError):
            rebuild_in_order(tmp_path / "s", None, in_place=True, config=config)
        monkeypatch.setattr(Engine, "_open_files", open_files)
    else:
        monkeypatch.setattr(derived if fails == "_build_index" else rebuilding, fails, fail)
        with pytest.raises(mqstore.DiskFullError):
            rebuild(NO_SPARK, tmp_path / "s", in_place=True, config=config)
    assert files_below(tmp_path / "s") == before


def test_extension_files_are_not_lost_on_spark(store: Path) -> None:
    ext = {"enable_consume_queue_ext": True, "enable_calc_filter_bit_map": True}
    rebuild_in_order(store, None, in_place=True, config=StoreConfig(**ext))
    (store / "consumequeue_ext").mkdir(exist_ok=True)
    before = files_below(store)
    with pytest.raises(mqstore.UsageError, match="extension files"):
        rebuild(NO_SPARK, store, in_place=True)
    assert (store / "consumequeue_ext").is_dir()
    assert files_below(store) == before


def test_ranges_are_joined_and_not_kept_by_split() -> None:
    joined, queue = JoinedRanges(), ("T", 0)
    for begin, end in ((3, 5), (5, 9)):
        found = SplitUnits(ranges={queue: (begin, end)})
        joined.take(found)
        assert found.ranges == {}
    assert (joined.ranges, joined.irregular) == ({queue: (3, 9)}, False)
    for begin in (10, 8):
        joined = JoinedRanges()
        for one in ((3, 9), (begin, 12)):
            joined.take(SplitUnits(ranges={queue: one}))
        assert joined.irregular


def test_tasks_that_run_twice_at_once_in_place(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(store, tmp_path / "in-order")
    monkeypatch.setattr(derived, "run_tasks", run_at_once)
    rebuild(NO_SPARK, store, in_place=True, split_bytes=300_000)
    rebuild_in_order(tmp_path / "in-order", None, in_place=True)
    assert files_below(store) == files_below(tmp_path / "in-order")


def test_a_log_of_which_one_file_without_content_is_left(tmp_path: Path) -> None:
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    (tmp_path / "store" / "commitlog" / f"{1 << 16:020d}").touch()
    for build in (functools.partial(rebuild_in_order), functools.partial(rebuild, NO_SPARK)):
        for output, in_place in ((tmp_path / "new", False), (None, True)):
            with pytest.raises(mqstore.CorruptFileError, match="multiple"):
                build(tmp_path / "store", output, in_place=in_place)


def test_what_cannot_be_meant(store: Path, tmp_path: Path) -> None:
    for output, in_place in ((None, False), (tmp_path / "x", True)):
        with pytest.raises(mqstore.UsageError, match="either an output directory or in_place"):
            rebuild(NO_SPARK, store, output, in_place=in_place)
    with pytest.raises(mqstore.UsageError, match="extension files"):
        rebuild(NO_SPARK, store, in_place=True, config=StoreConfig(enable_consume_queue_ext=True))
    assert not (tmp_path / "x").exists()
