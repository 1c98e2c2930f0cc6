"""What a power cut strands behind damage is set aside before the log is cut, once and as a whole."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from mqstore import CorruptRecordError, DiskFullError, Message
from mqstore.files import copying
from mqstore.store import recovery
from store.support import (
    bodies,
    body_of,
    fill,
    flip,
    log_file,
    mark_crashed,
    open_small,
    record_starts,
    reopen,
)

ALL = [body_of(number) for number in range(10)]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    fill(tmp_path / "store", 10)
    return tmp_path / "store"


def test_what_a_power_cut_leaves_behind_damage_is_set_aside(store: Path) -> None:
    damaged = record_starts(store)[3]
    before = log_file(store).read_bytes()
    flip(store, damaged + 100)
    (store / "mqstore-dispatch.json").unlink()
    (store / "checkpoint").unlink()
    mark_crashed(store)
    reopen(store)
    assert bodies(store) == ALL[:3]
    kept = (store / "cut-off" / f"{damaged:020d}" / log_file(store).name).read_bytes()
    assert kept[: damaged + 100] == before[: damaged + 100]
    assert kept[damaged + 101 :] == before[damaged + 101 :]


def spoil_as_a_power_cut_does(store: Path, number: int) -> int:
    """Damage record ``number``, with sound ones behind it, that no note says were on the device; where it is."""
    damaged = record_starts(store)[number]
    flip(store, damaged + 100)
    (store / "mqstore-dispatch.json").unlink()
    (store / "checkpoint").unlink()
    mark_crashed(store)
    return damaged


def test_what_was_set_aside_in_part_is_set_aside_anew(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    damaged = spoil_as_a_power_cut_does(store, 3)
    before = log_file(store).read_bytes()

    def full_in_the_middle(source: Path, target: Path) -> None:
        target.write_bytes(before[:1000])
        raise DiskFullError("no space left while trying to write", path=target)

    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(copying, "copy_file", full_in_the_middle)
            with pytest.raises(DiskFullError):
                open_small(store)
        assert log_file(store).read_bytes() == before
        assert list((store / "cut-off").iterdir()) == []
    reopen(store)
    assert bodies(store) == ALL[:3]
    assert (store / "cut-off" / f"{damaged:020d}" / log_file(store).name).read_bytes() == before


def test_a_start_that_is_killed_behind_setting_aside_does_it_once(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    damaged = spoil_as_a_power_cut_does(store, 3)

    def killed(recovery: object, end: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(recovery.Recovery, "_cut_log", killed)
        with pytest.raises(KeyboardInterrupt):
            open_small(store)
    reopen(store)
    assert [path.name for path in (store / "cut-off").iterdir()] == [f"{damaged:020d}"]


def test_a_log_that_is_cut_twice_at_one_place_is_set_aside_twice(store: Path) -> None:
    damaged = spoil_as_a_power_cut_does(store, 3)
    reopen(store)
    with open_small(store) as opened:
        for number in range(3, 6):
            opened.put(Message("T", b"later " + body_of(number), keys=[f"k{number}"], queue_id=0))
    assert spoil_as_a_power_cut_does(store, 3) == damaged
    before = log_file(store).read_bytes()
    reopen(store)
    assert bodies(store) == ALL[:3]
    assert sorted(path.name for path in (store / "cut-off").iterdir()) == [f"{damaged:020d}", f"{damaged:020d}.1"]
    assert (store / "cut-off" / f"{damaged:020d}.1" / log_file(store).name).read_bytes() == before


def test_old_damage_is_no_power_cut(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sound records that are younger by more than any sync takes: the damaged one had been on the device."""
    damaged = record_starts(store)[3]
    later_ms = time.time_ns() // 1_000_000 + 60_000
    with open_small(store) as opened:
        monkeypatch.setattr("time.time_ns", lambda: later_ms * 1_000_000)
        opened.put(Message("T", b"later", queue_id=0))
    monkeypatch.undo()
    flip(store, damaged + 100)
    (store / "mqstore-dispatch.json").unlink()
    (store / "checkpoint").unlink()
    mark_crashed(store)
    with pytest.raises(CorruptRecordError):
        open_small(store)
