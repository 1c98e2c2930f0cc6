"""A directory under way: only what was put into it is in the result, and nothing is left beside it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import mqstore
from mqstore.files import copying, durable
from mqstore.files.directory_lock import DirectoryLocks
from mqstore.files.stage import Stage


def test_what_is_written_too_late_is_not_in_the_result(tmp_path: Path) -> None:
    with Stage(tmp_path / "out") as stage, (stage.scratch() / "late").open("wb") as late:
        late.write(b"begun")
        (stage.root / "made").write_bytes(b"made")
        stage.put_in_place()
        late.write(b", and gone on with")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["made", "out"]


def test_a_kill_behind_the_last_step_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []

    def sync_directory(path: Path) -> None:
        found.extend(sorted(one.name for one in path.iterdir()))

    with Stage(tmp_path / "out") as stage:
        (stage.scratch() / "beside").touch()
        monkeypatch.setattr(durable, "sync_directory", sync_directory)
        stage.put_in_place()
    assert found == ["out"]


def test_what_is_not_put_in_place_is_gone(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), Stage(tmp_path / "out") as stage:
        (stage.scratch() / "late" / "no").touch()
    with Stage(tmp_path / "out"):  # leaves of one that was killed are gone, too
        assert sorted(path.name for path in tmp_path.iterdir()) == [".out.partial"]
    assert list(tmp_path.iterdir()) == []


def test_a_directory_is_removed_while_another_process_adds_to_it(tmp_path: Path) -> None:
    directory = tmp_path / "busy"
    directory.mkdir()

    def add() -> None:
        try:
            for number in range(5_000):  # an end: who adds without one may win, and would go on for ever
                (directory / str(number)).touch()
        except FileNotFoundError:
            pass

    adding = threading.Thread(target=add)
    adding.start()
    copying.remove_tree(directory)
    adding.join()
    assert not directory.exists()


def test_a_directory_that_cannot_be_removed_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(13, "no", str(path))

    monkeypatch.setattr(copying.shutil, "rmtree", refuse)
    with pytest.raises(mqstore.StoreIOError, match="remove directory"):
        copying.remove_tree(tmp_path)


def test_a_second_build_into_one_output_is_refused(tmp_path: Path) -> None:
    with Stage(tmp_path / "out") as first:
        (first.root / "half").touch()
        (first.scratch() / "part").touch()
        with pytest.raises(mqstore.StoreLockedError, match="under way") as caught, Stage(tmp_path / "out"):
            pass
        assert caught.value.hint
        assert (first.scratch() / "part").exists()
        (first.root / "rest").touch()
        late = Stage(tmp_path / "out")
        first.put_in_place()
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["half", "rest"]
    with pytest.raises(mqstore.UsageError, match="in use"), late:
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_failed_build_leaves_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OSError, match="no more"), Stage(tmp_path / "out"):
        raise OSError("no more")
    with monkeypatch.context() as patch:
        patch.setattr(copying, "remove_below", lambda path: 1 // 0)
        with pytest.raises(ZeroDivisionError), Stage(tmp_path / "out"):
            pass
    with Stage(tmp_path / "out") as stage:
        stage.put_in_place()
    with Stage(tmp_path / "out") as stage:  # an empty directory is as good as none
        stage.put_in_place()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_killed_build_leaves_no_lock(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from mqstore.files.stage import Stage\n"
        "with Stage(Path(sys.argv[1])) as stage:\n"
        "    (stage.root / 'd').mkdir(); (stage.root / 'd' / 'half').touch(); (stage.root / 'half').touch()\n"
        "    (stage.scratch() / 'half').touch(); print('go', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "out")], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        with pytest.raises(mqstore.StoreLockedError, match=f"process {child.pid}"), Stage(tmp_path / "out"):
            pass
        child.kill()
    with Stage(tmp_path / "out") as stage:
        assert sorted(path.name for path in tmp_path.iterdir()) == [".out.partial"]
        assert list(stage.root.iterdir()) == []
        stage.put_in_place()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("ends_by", ["removing", "renaming"])
def test_a_build_that_ends_while_another_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends_by: str) -> None:
    """The second one has opened the directory, and locks it when the first is done with it."""
    root = tmp_path / ".out.partial"
    acquire = DirectoryLocks.acquire

    def acquire_late(locks: DirectoryLocks, path: Path) -> None:
        monkeypatch.undo()
        acquire(locks, path)
        shutil.rmtree(path) if ends_by == "removing" else path.rename(tmp_path / "out")
        if ends_by == "renaming":
            (tmp_path / "out" / "made").touch()

    monkeypatch.setattr(DirectoryLocks, "acquire", acquire_late)
    if ends_by == "renaming":
        with pytest.raises(mqstore.UsageError, match="in use"), Stage(tmp_path / "out"):
            pass
        assert [path.name for path in tmp_path.iterdir()] == ["out"]
    else:
        with Stage(tmp_path / "out"), pytest.raises(mqstore.StoreLockedError), Stage(tmp_path / "out"):
            pass
        assert not root.exists()


@pytest.mark.parametrize("relative", [False, True])
def test_errors_name_what_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, relative: bool) -> None:
    monkeypatch.chdir(tmp_path)
    base = Path() if relative else tmp_path
    source, output, logs = base / "source", base / "out", base / "logs"
    for directory in (source / "config", logs):
        directory.mkdir(parents=True)
        (directory / "file").touch()

    def told(kind: type[mqstore.MqstoreError], place: str, found: object = None) -> mqstore.MqstoreError:
        def fail() -> None:
            with Stage(output, source, {"commitlog": [logs]}) as stage:
                top = stage.scratch() if place == "scratch" else stage.root
                beside = f"beside {stage.root / 'config'}"
                raise kind("wrong", path=top / place, found=beside if found is None else found)

        with pytest.raises(kind) as caught:
            fail()
        assert ".out." not in str(caught.value)
        return caught.value

    damage = told(mqstore.CorruptFileError, "config/file")
    assert (damage.path, damage.found) == (str(source / "config/file"), f"beside {source / 'config'}")
    assert told(mqstore.CorruptFileError, "commitlog/file").path == str(logs / "file")
    assert told(mqstore.CorruptFileError, "consumequeue/new").path == str(output / "consumequeue/new")
    full = told(mqstore.DiskFullError, "config/file")
    assert (full.path, full.found) == (str(output / "config/file"), f"beside {output / 'config'}")
    assert told(mqstore.StoreIOError, "scratch").path == str(output)
    assert told(mqstore.StoreIOError, "config/file", 7).found == 7
    with Stage(output), pytest.raises(mqstore.StoreLockedError) as caught, Stage(output):
        pass
    assert caught.value.path == str(output)
