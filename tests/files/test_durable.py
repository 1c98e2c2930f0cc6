"""A file replaced as a whole: what a kill leaves of it goes, what is being written stays."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import mqstore
from mqstore.files import durable

KILLED = """
import os, sys
from pathlib import Path
from mqstore.files import durable
os.rename = lambda *names: os._exit(9)
durable.replace_file(Path(sys.argv[1]), b"half")
"""


def test_what_a_killed_writer_left_is_removed(tmp_path: Path) -> None:
    assert subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "note.json")], check=False).returncode == 9
    (left,) = tmp_path.iterdir()
    for name in ("note.json", ".hidden.tmp", "other.tmp"):
        (tmp_path / name).touch()
    durable.remove_temporaries(tmp_path)
    assert not left.exists()
    assert len(list(tmp_path.iterdir())) == 3
    durable.remove_temporaries(tmp_path / "none")


def test_what_is_being_written_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def rename(*names: str) -> None:
        durable.remove_temporaries(tmp_path)
        real(*names)

    real = os.rename
    monkeypatch.setattr(os, "rename", rename)
    durable.replace_file(tmp_path / "note.json", b"whole")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"whole"]


def test_writing_and_removing_at_once(tmp_path: Path) -> None:
    over = threading.Event()

    def remove() -> None:
        while not over.is_set():
            durable.remove_temporaries(tmp_path)

    removing = threading.Thread(target=remove)
    removing.start()
    try:
        for number in range(300):
            durable.replace_file(tmp_path / "note.json", b"%d" % number)
    finally:
        over.set()
        removing.join()
    assert [path.name for path in tmp_path.iterdir()] == ["note.json"]


@pytest.mark.parametrize("failing", ["pwrite", "rename"])
def test_a_failure_names_the_file_and_not_what_was_to_take_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    def fail(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, failing, fail)
    with pytest.raises(mqstore.DiskFullError) as caught:
        durable.replace_file(tmp_path / "note.json", b"half")
    assert caught.value.path == str(tmp_path / "note.json")
    assert list(tmp_path.iterdir()) == []
