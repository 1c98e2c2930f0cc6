"""Files beside those of the log, and of queues, whose names no store gives."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import mqstore
from mqstore import CorruptFileError
from mqstore.files.inventory import ProblemKind, take_inventory
from mqstore.store.rebuild import rebuild
from store.support import bodies, fill, findings, forget_note, open_small, queue_file, tree

COUNT = 60
FOREIGN = {"notes.txt": b"backup of monday", "9" * 20: b"x"}
ASTRAY = {f"{1:020d}": b"x" * 100, f"{99_999:020d}": bytes(4096), f"{2:020d}": b""}


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("original") / "store"
    fill(store, COUNT)
    return store


@pytest.mark.parametrize("name", FOREIGN)
@pytest.mark.parametrize("salvage", [False, True])
def test_a_copy_is_without_foreign_files(
    store: Path, tmp_path: Path, name: str, salvage: bool, caplog: pytest.LogCaptureFixture
) -> None:
    path = store / "commitlog" / name
    path.write_bytes(FOREIGN[name])
    log = tree(store / "commitlog")
    (finding,) = findings(store)
    assert (finding.path, finding.found) == (str(path), name)
    assert finding.expected == "20 digits, at most 09223372036854775807"
    rebuild(store, tmp_path / "new", salvage=salvage)
    assert str(path) in caplog.text
    assert tree(store / "commitlog") == log
    assert log.pop(name)
    assert tree(tmp_path / "new" / "commitlog") == log
    assert findings(tmp_path / "new") == []


def copied(store: Path) -> None:
    rebuild(store, store.parent / "new")


def salvaged(store: Path) -> None:
    rebuild(store, store.parent / "new", salvage=True)


def opened(store: Path) -> None:
    open_small(store).close()


def opened_without_note(store: Path) -> None:
    forget_note(store)
    mqstore.open(store).close()


@pytest.mark.parametrize("name", ASTRAY)
@pytest.mark.parametrize(
    "use", [copied, salvaged, opened, opened_without_note, lambda store: rebuild(store, None, in_place=True)]
)
def test_a_file_at_no_start_of_files_is_told(store: Path, name: str, use: Callable[[Path], None]) -> None:
    """And not a fault of all others, nor of settings."""
    path = store / "commitlog" / name
    path.write_bytes(ASTRAY[name])
    queues = tree(store / "consumequeue")
    (finding,) = findings(store)
    assert finding.path == str(path)
    assert len(bodies(store)) == COUNT
    with pytest.raises(CorruptFileError) as caught:
        use(store)
    assert (caught.value.path, caught.value.found) == (str(path), int(name))
    assert "move it away" in str(caught.value.hint)
    assert tree(store / "consumequeue") == queues
    path.unlink()
    use(store)


def test_a_log_of_one_file_and_another_astray(tmp_path: Path) -> None:
    fill(tmp_path / "store", 3)
    (tmp_path / "store" / "commitlog" / f"{1:020d}").write_bytes(b"x" * 100)
    with pytest.raises(CorruptFileError, match="at which no file begins"):
        rebuild(tmp_path / "store", tmp_path / "new")


def test_a_queue_gets_rid_of_it(store: Path) -> None:
    """Its files are made anew in any case."""
    expected = tree(store / "consumequeue")
    queue_file(store, start=30).write_bytes(b"x" * 100)
    assert len(findings(store)) == 1
    open_small(store).close()
    assert findings(store) == []
    assert tree(store / "consumequeue") == expected


@pytest.mark.parametrize(
    ("files", "size", "astray"),
    [
        ({0: 4096, 4096: 4096, 8192: 100}, 4096, []),
        ({0: 8192, 4096: 8192, 8192: 8192}, 4096, []),  # all too long
        ({0: 8192, 4096: 8192}, 4096, []),
        ({0: 4096, 8192: 4096}, 4096, []),
        ({100: 4096, 4196: 4096}, 4096, []),  # nothing tells which of them would be right
        ({0: 4096, 1: 4096, 4096: 4096}, 4096, [1]),
        ({8192: 4096, 12_288: 4096, 15_000: 77}, 4096, [15_000]),
        ({1: 100}, 100, []),
        ({0: 4000, 4096: 500}, 4000, []),  # both cut short, so that nothing tells what they should be
        ({0: 3000, 8192: 3000, 12_288: 2000}, 3000, []),
        ({0: 4096, 1: 100}, 4096, [1]),
    ],
)
def test_the_size_of_files_and_what_is_astray(
    tmp_path: Path, files: dict[int, int], size: int, astray: list[int]
) -> None:
    for start, length in files.items():
        (tmp_path / f"{start:020d}").write_bytes(bytes(length))
    inventory = take_inventory([tmp_path])
    assert inventory.size_bytes == size
    found = [int(one.path.name) for one in inventory.problems if one.kind is ProblemKind.MISPLACED]
    assert found == astray
    assert [one.start for one in inventory.entries] == sorted(set(files) - set(astray))
    shutil.rmtree(tmp_path)
