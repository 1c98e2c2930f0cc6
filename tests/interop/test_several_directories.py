"""A log over several directories goes from mqstore to the real store and back."""

from __future__ import annotations

from pathlib import Path

import mqstore
from interop.dumps import Dump, differences
from interop.ours import MANY, comparable, dump_of, questions_about
from interop.real_store import RealStore
from interop.writer import JAVA_SIZES, SIZES, put

FILE_SIZE = JAVA_SIZES["mappedFileSizeCommitLog"]


def places(store: Path) -> str:
    return f"{store / 'second'},{store / 'commitlog'},{store / 'third'}"


def read(real_store: RealStore, store: Path, copy: Path) -> Dump:
    with mqstore.inspect(store, store_path_commit_log=places(store)) as view:
        questions = questions_about(view)
    settings = {**JAVA_SIZES, "maxMsgsNumBatch": MANY, "storePathCommitLog": places(copy)}
    return comparable(real_store.read(store, questions, keep=copy, **settings))


def assert_same(real: Dump, store: Path) -> None:
    with mqstore.inspect(store, store_path_commit_log=places(store)) as view:
        ours = dump_of(view, real)
    assert real.whole["problems"] == []
    assert differences(ours, real) == []
    assert differences(real, ours) == []


def assert_spread(store: Path) -> None:
    """Every file is where the rule puts it, so that whichever of the two made it, the other would have done alike."""
    ordered = sorted(places(store).split(","))
    where = {int(path.name): str(path.parent) for name in ordered for path in Path(name).iterdir()}
    assert len(where) >= 4
    assert where == {start: ordered[start // FILE_SIZE % 3] for start in where}


def test_ours_is_read_by_the_real_store(real_store: RealStore, tmp_path: Path) -> None:
    store = tmp_path / "store"
    with mqstore.open(store, store_path_commit_log=places(store), **SIZES) as opened:
        put(opened, 1, 1200)
    assert_spread(store)
    assert_same(read(real_store, store, tmp_path / "copy"), store)


def test_theirs_is_read_here_and_goes_on_in_both(real_store: RealStore, tmp_path: Path) -> None:
    store = tmp_path / "store"
    real_store.write(store, seed=5, count=1000, **JAVA_SIZES, storePathCommitLog=places(store))
    assert_same(read(real_store, store, tmp_path / "copy"), store)
    with mqstore.open(store, store_path_commit_log=places(store), **SIZES) as opened:
        put(opened, 6, 300)
    real_store.write(store, seed=7, count=300, **JAVA_SIZES, storePathCommitLog=places(store))
    real = read(real_store, store, tmp_path / "again")
    assert len(real.records) >= 1600
    assert_same(real, store)
    assert_spread(store)
    with mqstore.open(store) as opened:
        put(opened, 8, 100)
        assert opened.check() == []
