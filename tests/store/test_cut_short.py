"""A log file that was cut off exactly between two records, or is gone, with others behind it: no record tells that."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

import pytest

import mqstore
from cli.test_commands import run
from mqstore.layout.record import Damage
from mqstore.store.log_reader import LogDamage
from store.support import body_of, fill, findings, log_file

COUNT = 200
FILE_SIZE = 4096


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("original") / "store"
    fill(store, COUNT)
    return store


@pytest.fixture(params=[1, -2, 0], ids=["in the middle", "near the end", "at the beginning"])
def cut(original: Path, tmp_path: Path, request: pytest.FixtureRequest) -> tuple[Path, int, int]:
    """A store of which one log file is too short, where that ends, and how many records went with it."""
    store = shutil.copytree(original, tmp_path / "store")
    file = sorted((store / "commitlog").iterdir())[request.param]
    start = int(file.name)
    with mqstore.inspect(store) as view:
        ends = [one.end_offset for one in view.scan() if start <= one.physical_offset < start + FILE_SIZE]
    os.truncate(file, ends[-4] - start)
    return store, ends[-4], 3


def test_a_scan_tells_of_it(cut: tuple[Path, int, int]) -> None:
    store, end, lost = cut
    damages: list[LogDamage] = []

    def note(damage: LogDamage) -> bool:
        damages.append(damage)
        return True

    with mqstore.inspect(store) as view:
        found = list(view.scan(on_damage=note))
        assert len(found) == COUNT - lost
        assert [(one.physical_offset, one.damage) for one in damages] == [(end, Damage.SHORT)]
        assert damages[0].path == log_file(store, end - end % FILE_SIZE)
        before = [one for one in found if one.physical_offset < end]
        assert list(view.scan()) == before, "as any damage that nobody passes over"
        assert list(view.scan(end=end)) == before
        assert len(damages) == 1
        assert view.log.is_damaged_at(end)


def test_a_file_without_content_is_told_of(original: Path, tmp_path: Path) -> None:
    store = shutil.copytree(original, tmp_path / "store")
    os.truncate(log_file(store, FILE_SIZE), 0)
    damages: list[int] = []
    with mqstore.inspect(store) as view:
        rest = list(view.scan(on_damage=lambda damage: not damages.append(damage.physical_offset)))
    assert damages == [FILE_SIZE]
    assert {one.physical_offset // FILE_SIZE for one in rest} >= {0, 2}


def test_the_last_file_may_be_short(original: Path, tmp_path: Path) -> None:
    """Behind it nothing can be missing that a reader could know of."""
    store = shutil.copytree(original, tmp_path / "store")
    with mqstore.inspect(store) as view:
        end = view.log_end
    last = max((store / "commitlog").iterdir())
    os.truncate(last, end - int(last.name))
    damages: list[LogDamage] = []
    with mqstore.inspect(store) as view:
        assert len(list(view.scan(on_damage=lambda damage: bool(damages.append(damage))))) == COUNT
    assert damages == []


def test_commands_tell_of_it(cut: tuple[Path, int, int]) -> None:
    store, end, _ = cut
    result = run("dump", store)
    assert result.exit_code == 1
    assert f"damaged record at offset {end}" in result.stderr
    result = run("check", store)
    assert result.exit_code == 1
    assert "a file of another length" in result.output
    assert any(one.area == "log" and one.offset == end for one in findings(store))
    with pytest.raises(mqstore.MqstoreError):
        mqstore.open(store)


def test_tail_tells_of_it(original: Path, tmp_path: Path) -> None:
    store = shutil.copytree(original, tmp_path / "store")
    assert run("tail", store).stderr == ""
    file = sorted((store / "commitlog").iterdir())[-2]
    with mqstore.inspect(store) as view:
        end = next(one.end_offset for one in view.scan() if one.physical_offset >= int(file.name))
    os.truncate(file, end - int(file.name))
    result = run("tail", store)
    assert f"the log ends at {end} with damage" in result.stderr


def test_from_the_log_alone(original: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What lies behind the short file is found, and there is a warning of what is not."""
    store = shutil.copytree(original, tmp_path / "store")
    with mqstore.inspect(store) as view:
        end = next(one.end_offset for one in view.scan() if one.physical_offset >= FILE_SIZE)
    os.truncate(log_file(store, FILE_SIZE), end - FILE_SIZE)
    with caplog.at_level(logging.WARNING), mqstore.inspect(store, from_log=True) as view:
        assert view.query("T", f"k{COUNT - 1}").messages[0].body == body_of(COUNT - 1)
        assert caplog.text.count(f"passing over damage at {end}") == 1
        assert view.max_offset("T", 0) == COUNT
        assert caplog.text.count(f"passing over damage at {end}") == 2


def test_a_salvage_covers_it(cut: tuple[Path, int, int], tmp_path: Path) -> None:
    store, end, lost = cut
    result = mqstore.rebuild(store, tmp_path / "salvaged", salvage=True)
    assert [one.begin for one in result.losses] == [end]
    with mqstore.inspect(tmp_path / "salvaged") as view:
        bodies = [one for one in view.scan() if one.topic == "T"]
    assert len(bodies) == COUNT - lost


@pytest.mark.parametrize("number", [1, -2], ids=["in the middle", "near the end"])
def test_a_missing_file_is_told_of(original: Path, tmp_path: Path, number: int) -> None:
    store = shutil.copytree(original, tmp_path / "store")
    file = sorted((store / "commitlog").iterdir())[number]
    with mqstore.inspect(store) as view:
        rest = [one for one in view.scan() if one.physical_offset // FILE_SIZE != int(file.name) // FILE_SIZE]
    file.unlink()
    damages: list[LogDamage] = []
    with mqstore.inspect(store) as view:
        assert list(view.scan(on_damage=lambda damage: not damages.append(damage))) == rest
        assert [(one.path, one.physical_offset) for one in damages] == [(file, int(file.name))]
        assert {one.message for one in view.overlooked()} >= {"a hole between files"}
        assert list(view.scan()) == [one for one in rest if one.physical_offset < int(file.name)]
    result = run("dump", store)
    assert result.exit_code == 1
    assert f"damaged record at offset {int(file.name)} of {file}" in result.stderr
    result = run("dump", store, "--skip-damage")
    assert result.stdout.count(" T/0 ") == len(rest)
