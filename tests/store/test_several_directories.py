"""A commit log spread over several directories is one log, for whoever writes, reads, checks, copies or removes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import mqstore
from mqstore import CorruptFileError, DiskFullError, Message, StoreIOError, UsageError
from mqstore.files import durable
from mqstore.files.directories import Directories
from mqstore.store.config import StoreConfig
from store.support import bodies, body_of, fill, findings, forget_note, open_small, tree

FAR_MS = 9_000_000_000_000


def put_many(store: mqstore.Store, count: int) -> None:
    for _ in range(count):
        store.put(Message("T", bytes(100), queue_id=0))


@pytest.fixture
def places(tmp_path: Path) -> str:
    return f"{tmp_path / 'a'},{tmp_path / 'b'}, {tmp_path / 'c'}"


def names(directory: Path) -> list[int]:
    return sorted(int(path.name) for path in directory.iterdir())


def test_new_files_take_turns_by_their_number(tmp_path: Path, places: str) -> None:
    fill(tmp_path / "s", 120, store_path_commit_log=places)
    for turn, name in enumerate("abc"):
        assert names(tmp_path / name)[:2] == [turn * 4096, (turn + 3) * 4096]
    assert not (tmp_path / "s" / "commitlog").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "c", "s"]  # none bears the unsplit setting
    assert bodies(tmp_path / "s") == [body_of(number) for number in range(120)]
    assert findings(tmp_path / "s") == []
    with open_small(tmp_path / "s") as store:  # the store has noted where its log is
        assert store.put(Message("T", b"goes on", queue_id=0)).queue_offset == 120


def test_a_single_log_may_be_spread_later_and_its_old_directory_kept(tmp_path: Path) -> None:
    fill(tmp_path / "s", 50)
    old = names(tmp_path / "s" / "commitlog")
    with pytest.raises(UsageError, match="left out"):
        open_small(tmp_path / "s", store_path_commit_log=f"{tmp_path / 'a'},{tmp_path / 'b'}")
    settings = {
        "store_path_commit_log": f"{tmp_path / 'a'},{tmp_path / 'b'}",
        "read_only_commit_log_store_paths": str(tmp_path / "s" / "commitlog"),
    }
    fill(tmp_path / "s", 50, **settings)
    assert names(tmp_path / "s" / "commitlog") == old
    assert names(tmp_path / "a")
    assert names(tmp_path / "b")
    assert len(bodies(tmp_path / "s")) == 100
    with open_small(tmp_path / "s") as store:
        store.flush()
        store.wait_dispatched()
        while store.expire(FAR_MS).removed:
            pass
        assert names(tmp_path / "s" / "commitlog") == []
    assert findings(tmp_path / "s") == []
    open_small(tmp_path / "s", **{**settings, "read_only_commit_log_store_paths": str(tmp_path / "a")}).close()


def test_a_store_that_is_moved_finds_the_directories_below_it(tmp_path: Path) -> None:
    root = tmp_path / "s"
    fill(root, 50, store_path_commit_log=f"{root / 'commitlog'},{root / 'second'}")
    assert json.loads((root / "mqstore-commitlog.json").read_text())["storePathCommitLog"] == ["commitlog", "second"]
    root.rename(tmp_path / "moved")
    assert bodies(tmp_path / "moved") == [body_of(number) for number in range(50)]
    fill(tmp_path / "moved", 1)
    open_small(tmp_path / "plain", store_path_commit_log=str(tmp_path / "plain" / "commitlog")).close()
    assert not (tmp_path / "plain" / "mqstore-commitlog.json").exists()


def test_a_full_directory_is_passed_over_while_another_has_room(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in "abc"]
    used = dict.fromkeys(paths, 0.5)
    directories = Directories(paths[::-1], [tmp_path / "old"], full_ratio=0.85, measure=lambda path: used[path])
    assert [directories.places_for(number)[0].name for number in range(4)] == ["a", "b", "c", "a"]
    used[tmp_path / "b"] = 0.86
    assert [directories.places_for(number)[0].name for number in range(4)] == ["a", "c", "a", "c"]
    used.update(dict.fromkeys(paths, 0.9))
    assert [directories.places_for(number)[0].name for number in range(4)] == ["a", "b", "c", "a"]
    assert Directories(paths, paths[:2]).places_for(7) == [tmp_path / "c"]
    with pytest.raises(UsageError, match="takes new files"):
        Directories(paths, paths).create_file(0, 4096)


def test_a_directory_that_turns_out_full_leaves_nothing_behind(
    tmp_path: Path, places: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserve = durable.reserve
    full = {tmp_path / "b"}

    def limited(fd: int, start: int, end: int, path: Path) -> None:
        if Path(path).parent in full:
            raise DiskFullError("no space", path=path)
        reserve(fd, start, end, path)

    monkeypatch.setattr(durable, "reserve", limited)
    fill(tmp_path / "s", 70, store_path_commit_log=places)
    assert names(tmp_path / "b") == []
    assert len(bodies(tmp_path / "s")) == 70
    with open_small(tmp_path / "s") as store:
        full.update({tmp_path / "a", tmp_path / "c"})
        with pytest.raises(DiskFullError):
            put_many(store, 60)
        full.clear()
        assert store.put(Message("T", bytes(100), queue_id=0)).queue_offset >= 70
    assert findings(tmp_path / "s") == []


@pytest.mark.parametrize("blank", [True, False])
def test_a_file_that_is_in_two_directories_is_refused_by_both_names(tmp_path: Path, places: str, blank: bool) -> None:
    fill(tmp_path / "s", 70, store_path_commit_log=places)
    double = tmp_path / "b" / f"{0:020d}"
    double.write_bytes(bytes(4096) if blank else (tmp_path / "a" / double.name).read_bytes())
    before = tree(tmp_path)
    both = [str(double), str(tmp_path / "a" / double.name)]
    with pytest.raises(CorruptFileError, match="two directories") as caught:
        open_small(tmp_path / "s")
    assert all(path in str(caught.value) for path in both)
    for salvage in (False, True):
        with pytest.raises(CorruptFileError, match="two directories"):
            mqstore.rebuild(tmp_path / "s", tmp_path / "new", salvage=salvage)
    assert {(found.path, str(found.found)) for found in findings(tmp_path / "s") if "two" in found.message} == {
        (both[0], both[1])
    }
    assert tree(tmp_path) == {**before, **{name: b"lock" for name in tree(tmp_path) if name.endswith("lock")}}
    double.unlink()
    open_small(tmp_path / "s").close()


def test_a_hole_names_both_files_and_a_stray_itself(tmp_path: Path, places: str) -> None:
    fill(tmp_path / "s", 90, store_path_commit_log=places)
    gone = tmp_path / "b" / f"{4096:020d}"
    content = gone.read_bytes()
    gone.unlink()
    before, after = tmp_path / "a" / f"{0:020d}", tmp_path / "c" / f"{8192:020d}"
    with pytest.raises(CorruptFileError, match="hole") as caught:
        open_small(tmp_path / "s")
    assert str(before) in str(caught.value)
    assert str(after) in str(caught.value)
    gone.write_bytes(content)
    stray = tmp_path / "b" / f"{6000:020d}"
    stray.write_bytes(bytes(4096))
    with pytest.raises(CorruptFileError, match="at which no file begins") as caught:
        open_small(tmp_path / "s")
    assert caught.value.path == str(stray)


def test_what_cannot_be_meant_is_refused(tmp_path: Path, places: str) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    for setting in (f"{tmp_path / 'a'},{tmp_path / 'link'}", f"{tmp_path / 'a'},{tmp_path / 'a'}", ",", ""):
        with pytest.raises(UsageError):
            open_small(tmp_path / "s", store_path_commit_log=setting)
    with pytest.raises(StoreIOError, match="missing"):
        open_small(tmp_path / "s", read_only_commit_log_store_paths=str(tmp_path / "nowhere"))
    assert not (tmp_path / "nowhere").exists()
    fill(tmp_path / "s", 50, store_path_commit_log=places)
    (tmp_path / "b").rename(tmp_path / "unmounted")
    for look in (open_small, mqstore.inspect):
        with pytest.raises(StoreIOError, match="missing"):
            look(tmp_path / "s")
    (tmp_path / "unmounted").rename(tmp_path / "b")
    (tmp_path / "s" / "mqstore-commitlog.json").write_text("[]")
    with pytest.raises(mqstore.CorruptConfigError, match="cannot be read"):
        mqstore.inspect(tmp_path / "s")


def test_copies_have_their_log_in_one_place(tmp_path: Path, places: str) -> None:
    fill(tmp_path / "s", 90, store_path_commit_log=places)
    mqstore.rebuild(tmp_path / "s", tmp_path / "new")
    assert tree(tmp_path / "new" / "consumequeue") == tree(tmp_path / "s" / "consumequeue")
    assert len(names(tmp_path / "new" / "commitlog")) == sum(len(names(tmp_path / name)) for name in "abc")
    config = StoreConfig(store_path_commit_log=places)
    mqstore.rebuild(tmp_path / "s", tmp_path / "again", config=config)
    assert tree(tmp_path / "again" / "commitlog") == tree(tmp_path / "new" / "commitlog")
    mqstore.truncate(tmp_path / "s", 8192, tmp_path / "short")
    assert bodies(tmp_path / "short") == bodies(tmp_path / "s")[: len(bodies(tmp_path / "short"))]
    mqstore.rebuild(tmp_path / "s", None, in_place=True)
    assert findings(tmp_path / "s") == []


def test_a_lost_file_is_made_up_for_in_a_copy(tmp_path: Path, places: str) -> None:
    fill(tmp_path / "s", 90, store_path_commit_log=places)
    (tmp_path / "b" / f"{4096:020d}").unlink()
    result = mqstore.rebuild(tmp_path / "s", tmp_path / "new", salvage=True)
    assert [(loss.begin, loss.end) for loss in result.losses] == [(4096, 8192)]


def test_after_a_crash_the_log_is_walked_over_all_directories(tmp_path: Path, places: str) -> None:
    fill(tmp_path / "s", 90, store_path_commit_log=places)
    forget_note(tmp_path / "s")
    (tmp_path / "s" / "abort").touch()
    for name in ("consumequeue", "index"):
        shutil.rmtree(tmp_path / "s" / name)
    with open_small(tmp_path / "s") as store:
        assert store.put(Message("T", b"", queue_id=0)).queue_offset == 90
    assert findings(tmp_path / "s") == []


def test_a_brokers_store_is_looked_at_where_its_configuration_says(tmp_path: Path, places: str) -> None:
    fill(tmp_path / "s", 70, store_path_commit_log=places)
    (tmp_path / "s" / "mqstore-commitlog.json").unlink()
    with mqstore.inspect(tmp_path / "s") as view:
        assert list(view.scan()) == []
    with mqstore.inspect(tmp_path / "s", store_path_commit_log=places) as view:
        assert len(list(view.scan())) == 70
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storePathCommitLog={places}\nreadOnlyCommitLogStorePaths={tmp_path / 'a'}\n")
    config = StoreConfig.from_broker_conf(conf)
    assert (config.store_path_commit_log, config.read_only_commit_log_store_paths) == (places, str(tmp_path / "a"))


def test_the_emptiest_of_the_disks_says_whether_messages_are_taken(tmp_path: Path, places: str) -> None:
    used = {tmp_path / "a": 0.95, tmp_path / "b": 0.95, tmp_path / "c": 0.2, tmp_path / "s": 0.1}
    with open_small(tmp_path / "s", store_path_commit_log=places) as store:
        expiry = store._engine.expiry
        expiry._measure = used.__getitem__
        assert expiry.band() is mqstore.DiskBand.CALM
        used[tmp_path / "s"] = 0.8
        assert expiry.band() is mqstore.DiskBand.CLEANING
        used[tmp_path / "c"] = 0.91
        assert expiry.band() is mqstore.DiskBand.FULL
        with pytest.raises(DiskFullError):
            store.put(Message("T", b""))
