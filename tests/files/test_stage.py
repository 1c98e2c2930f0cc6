"""A directory under way: only what was put into it is in the result, and nothing is left beside it."""

from __future__ import annotations

import threading
from itertools import count
from pathlib import Path

import pytest

import mqstore
from mqstore.files import copying
from mqstore.files.stage import Stage


def test_what_is_written_too_late_is_not_in_the_result(tmp_path: Path) -> None:
    with Stage(tmp_path / "out") as stage:
        late = stage.scratch() / "late"
        late.write_bytes(b"begun")
        (stage.root / "made").write_bytes(b"made")
        stage.put_in_place()
        late.write_bytes(b"begun, and gone on with")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["made", "out"]


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
            for number in count():
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
