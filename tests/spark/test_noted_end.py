"""Where the store's own note says that the log ends: trusted, and found out when it is wrong."""

from __future__ import annotations

import itertools
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="needs the extra 'spark'")

import mqstore
from mqstore import Message
from mqstore.spark.jobs import audit, auditing, derived, log_shares, rebuild, rebuilding
from mqstore.spark.jobs.log_shares import plan_splits
from mqstore.spark.log_end import readable_end
from mqstore.spark.stores import StoreRef
from mqstore.store.check import check_store
from spark.support import files_below, run_here

NO_SPARK: Any = None
NOTE = "mqstore-dispatch.json"
LOG = Path("commitlog", "0" * 20)


@pytest.fixture(autouse=True)
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (auditing, derived, rebuilding):
        monkeypatch.setattr(module, "run_tasks", run_here)


def fill(path: Path, *bodies: bytes) -> list[int]:
    """Put messages; where they lie in the log."""
    with mqstore.open(path, mapped_file_size_commit_log=1 << 16) as store:
        return [store.put(Message("T", body, keys=["k"], queue_id=0)).physical_offset for body in bodies]


@pytest.fixture
def sound(tmp_path: Path) -> Path:
    fill(tmp_path / "store", *[b"x" * 100] * 20)
    return tmp_path / "store"


@pytest.fixture
def cut_since(tmp_path: Path) -> Path:
    """A store whose log was cut off in front of its noted end and went on; what lay there is still in the file."""
    path = tmp_path / "store"
    places = fill(path, *[b"x" * 100] * 20)
    note, old = (path / NOTE).read_bytes(), (path / LOG).read_bytes()
    mqstore.truncate(path, places[10], tmp_path / "cut")
    shutil.rmtree(path)
    shutil.move(tmp_path / "cut", path)
    time.sleep(0.002)  # newer than what was cut off, at a millisecond each
    fill(path, b"y" * 37)
    with mqstore.inspect(path) as view:
        end = view.log_end
    left = next(place for place in places if place > end)
    (path / LOG).write_bytes((path / LOG).read_bytes()[:left] + old[left:])
    (path / NOTE).write_bytes(note)
    return path


def counted(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each time that a log's end is looked for from now on, whether a record near it was known."""
    looked: list[bool] = []

    def look(log: Any, known: Any = None) -> int:
        looked.append(known is not None)
        return readable_end(log, known)

    monkeypatch.setattr(log_shares, "readable_end", look)
    return looked


@pytest.mark.parametrize("in_place", [True, False])
def test_a_noted_end_spares_looking_for_it(sound: Path, monkeypatch: pytest.MonkeyPatch, in_place: bool) -> None:
    before, output = files_below(sound / "consumequeue"), None if in_place else sound.parent / "new"
    looked = counted(monkeypatch)
    assert audit(NO_SPARK, sound).ok
    assert rebuild(NO_SPARK, sound, output, in_place=in_place).records == 20
    assert looked == [True, True]
    assert files_below((output or sound) / "consumequeue") == before


def test_a_note_of_another_log_is_none(sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path / "other", *[b"z" * 100] * 15)
    shutil.copy(tmp_path / "other" / NOTE, sound / NOTE)
    looked = counted(monkeypatch)
    assert rebuild(NO_SPARK, sound, tmp_path / "new").records == 20
    (sound / NOTE).unlink()
    assert audit(NO_SPARK, sound).records == 20
    assert looked == [False, False]


def test_what_came_behind_a_note_is_found(sound: Path, tmp_path: Path) -> None:
    note = (sound / NOTE).read_bytes()
    fill(sound, *[b"later"] * 3)
    (sound / NOTE).write_bytes(note)
    assert rebuild(NO_SPARK, sound, tmp_path / "new").records == 23
    assert audit(NO_SPARK, sound).records == 23


@pytest.mark.parametrize("in_place", [True, False])
def test_a_log_that_was_cut_off_since(cut_since: Path, tmp_path: Path, in_place: bool) -> None:
    store = StoreRef(str(cut_since), "")
    assert plan_splits(store, trust_note=True) != plan_splits(store)
    shutil.copytree(cut_since, tmp_path / "unnoted")
    (tmp_path / "unnoted" / NOTE).unlink()
    made = []
    for source in (cut_since, tmp_path / "unnoted"):
        output = source if in_place else tmp_path / f"{source.name}-rebuilt"
        assert rebuild(NO_SPARK, source, None if in_place else output, in_place=in_place).records == 11
        assert not list(output.glob("mqstore-rebuild*"))
        made.append([list(files_below(output / part).values()) for part in ("commitlog", "consumequeue", "index")])
    assert made[0] == made[1]


def test_damage_in_front_of_the_noted_end_is_told_once(
    sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = bytearray((sound / LOG).read_bytes())
    raw[raw.index(b"x" * 100, 1000)] ^= 1
    (sound / LOG).write_bytes(raw)
    plans = itertools.count()
    real = derived.build_aside

    def build(*arguments: Any) -> Any:
        next(plans)
        return real(*arguments)

    monkeypatch.setattr(derived, "build_aside", build)
    with pytest.raises(mqstore.CorruptRecordError, match="BODY_CRC"):
        rebuild(NO_SPARK, sound, tmp_path / "new")
    assert next(plans) == 1
    assert not (tmp_path / "new").exists()


def test_an_audit_of_it_finds_what_a_check_finds(cut_since: Path) -> None:
    found: list[Any] = []
    with mqstore.inspect(cut_since) as view:
        summary = check_store(view, found.append)
    result = audit(NO_SPARK, cut_since)
    assert result.findings == found
    assert result.summary == summary
    assert found
