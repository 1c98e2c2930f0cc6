"""What a look does not see, ``stats`` and ``lag`` tell: figures are not given as if they were whole."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import mqstore
from cli.test_commands import run
from mqstore import Message, StoreIOError
from mqstore.findings import Finding
from store.support import fill, findings, log_file, open_small, overwrite, queue_file

COUNT = 110


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("original") / "store"
    fill(store, COUNT)
    with open_small(store) as opened:
        opened.put(Message("U", b"one", queue_id=0))
        opened.wait_dispatched()
        opened.commit_offset("group", "T", 0, 3)
    return store


def replace_by_directory(path: Path) -> Path:
    path.unlink()
    path.mkdir()
    return path


def replace_by_file(path: Path) -> Path:
    shutil.rmtree(path)
    path.write_text("no directory")
    return path


def cut(path: Path, length: int) -> Path:
    os.truncate(path, length)
    return path


def damage_a_record(store: Path) -> Path:
    with mqstore.inspect(store) as view:
        place = [one.physical_offset for one in view.scan()][-4]
    file = log_file(store, place - place % 4096)
    overwrite(file, place % 4096 + 4, b"stray")
    return file


def damage_a_beginning(store: Path) -> Path:
    """Of a file far in front of the log's end."""
    file = log_file(store)
    overwrite(file, 4, b"stray")
    return file


def swap_files(store: Path) -> Path:
    first, second = log_file(store), log_file(store, 4096)
    first.rename(store / "first")
    second.rename(first)
    (store / "first").rename(second)
    return second


def lose_the_content(store: Path) -> Path:
    file = log_file(store)
    file.write_bytes(bytes(4096))
    return file


def lead_where_nobody_may_look(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link into a directory that this user may not go through; for root there is none, so the call is refused."""
    kept = path.with_name("kept-" + path.name)
    path.rename(kept)
    path.symlink_to(kept)
    real = os.stat

    def refuse(place: object, *rest: object, **options: object) -> os.stat_result:
        if str(place) == str(path) and options.get("follow_symlinks", True):
            raise PermissionError(13, "Permission denied", str(place))
        return real(place, *rest, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "stat", refuse)


DAMAGES: dict[str, Callable[[Path], Path]] = {
    "a directory in place of a queue file": lambda store: replace_by_directory(queue_file(store, start=200)),
    "a queue file too short": lambda store: cut(queue_file(store, start=1000), 60),
    "a queue file without content": lambda store: cut(queue_file(store, start=200), 0),
    "a file in place of a queue": lambda store: replace_by_file(store / "consumequeue" / "T" / "0"),
    "a file in place of a topic": lambda store: replace_by_file(store / "consumequeue" / "T"),
    "a log file too short": lambda store: cut(log_file(store, 4096), 2000),
    "a directory in place of a log file": lambda store: replace_by_directory(log_file(store, 4096)),
    "a damaged record": damage_a_record,
    "a damaged record at a file's beginning": damage_a_beginning,
    "files under each other's names": swap_files,
    "zeros in place of a file's content": lose_the_content,
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("command", ["stats", "lag"])
def test_commands_tell_of_it(store: Path, command: str, damage: str) -> None:
    path = DAMAGES[damage](store)
    result = run(command, store)
    assert result.exit_code == 0
    assert "warning: the figures may be too small: " in result.stderr
    assert str(path) in result.stderr
    result = run(command, store, "--format", "json")
    assert result.stderr == ""
    warnings = json.loads(result.stdout)["warnings"]
    assert str(path) in {one["path"] for one in warnings}
    assert {one["severity"] for one in warnings} == {"error"}


@pytest.mark.parametrize("command", ["stats", "lag"])
def test_there_is_nothing_to_tell_of_a_sound_store(store: Path, command: str) -> None:
    (store / "consumequeue" / "T" / "0" / "notes.txt").write_text("nobody's")
    assert run(command, store).stderr == ""
    assert json.loads(run(command, store, "--format", "json").stdout)["warnings"] == []


def test_nor_of_one_that_is_being_written(store: Path) -> None:
    with open_small(store) as opened, mqstore.inspect(store) as view:
        for number in range(40):
            opened.put(Message("T", b"%d" % number, queue_id=0))
            assert view.overlooked() == []


def test_lag_tells_of_its_own_queues_alone(store: Path) -> None:
    replace_by_directory(queue_file(store, "U"))
    assert run("lag", store).stderr == ""
    assert "/U/0/" in run("stats", store).stderr
    assert run("stats", store, "--from-log").stderr == ""


def test_a_check_finds_the_same_files(store: Path) -> None:
    replace_by_directory(queue_file(store, start=200))
    cut(log_file(store, 4096), 2000)
    with mqstore.inspect(store) as view:
        overlooked: list[Finding] = view.overlooked()
    assert len(overlooked) >= 3
    assert {one for one in overlooked if one.offset is None} <= set(findings(store))


def test_a_torn_end_is_no_call_for_a_salvage(store: Path) -> None:
    with mqstore.inspect(store) as view:
        last = [one.physical_offset for one in view.scan()][-1]
    overwrite(log_file(store, last - last % 4096), last % 4096 + 4, b"stray")
    with mqstore.inspect(store) as view:
        (finding,) = view.overlooked()
    assert (finding.offset, finding.repair) == (last, "opening the store with mqstore.open mends it")
    assert "nothing sound lies behind it" in finding.message


def test_a_query_does_not_pass_over_what_has_the_name_of_an_index_file(store: Path) -> None:
    path = max((store / "index").iterdir())
    replace_by_directory(path)
    for command in (("stats", store), ("query", store, "--topic", "T", "--key", f"k{COUNT - 1}")):
        result = run(*command)
        assert result.exit_code == 1
        assert "something else than a file" in result.output


@pytest.mark.parametrize(
    ("place", "look"),
    [
        ("commitlog/00000000000000004096", lambda store: mqstore.inspect(store).queues()),
        ("commitlog/00000000000000004096", findings),
        ("consumequeue/T/0/00000000000000000200", lambda store: mqstore.inspect(store).get("T", 0, 0)),
        ("consumequeue/T/0", lambda store: mqstore.inspect(store).queues()),
        ("consumequeue/T", lambda store: mqstore.inspect(store).queues()),
        ("index", lambda store: mqstore.inspect(store).query("T", "k1")),
        ("config/topics.json", lambda store: mqstore.rebuild(store, store.with_name("new"))),
        ("config", lambda store: mqstore.rebuild(store, store.with_name("new"))),
    ],
)
def test_what_could_not_be_looked_at_is_neither_damaged_nor_missing(
    store: Path, monkeypatch: pytest.MonkeyPatch, place: str, look: Callable[[Path], object]
) -> None:
    path = store / place
    lead_where_nobody_may_look(max(path.iterdir()) if place == "index" else path, monkeypatch)
    with pytest.raises(StoreIOError, match="Permission denied") as caught:
        look(store)
    assert str(caught.value.path).startswith(str(store / place))
    assert "permission" in str(caught.value.hint)
    assert not store.with_name("new").exists()
