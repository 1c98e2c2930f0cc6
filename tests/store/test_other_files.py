"""A view that stays open while other files come to bear the names of those it knew."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import mqstore
from mqstore import Message
from mqstore.files.inventory import take_inventory
from mqstore.files.pool import FilePool
from mqstore.kafka import KafkaView
from store.support import open_small


def put(path: Path, count: int, word: str) -> None:
    with open_small(path) as store:
        for number in range(count):
            store.put(Message("t", f"{word} {number}".encode(), queue_id=0, keys=[f"{word}-{number}"]))


def get_all(view: mqstore.StoreView) -> list[bytes]:
    return [view.get("t", 0, unit, max_messages=1).messages[0].body for unit in range(view.queues()[0].max_offset)]


def test_a_view_goes_on_after_a_rebuild_in_place(tmp_path: Path) -> None:
    path = tmp_path / "store"
    put(path, 50, "old")
    with mqstore.inspect(path) as view:
        before = get_all(view)
        assert len(view.query("t", "old-3").messages) == 1
        mqstore.rebuild(path, None, in_place=True)
        put(path, 50, "new")
        assert get_all(view) == before + [b"new %d" % number for number in range(50)]
        assert len(view.query("t", "new-3").messages) == 1


@pytest.mark.parametrize("count", [20, 50, 80])
def test_a_view_of_a_store_that_was_made_anew(tmp_path: Path, count: int) -> None:
    path = tmp_path / "store"
    put(path, 50, "old")
    with mqstore.inspect(path) as view:
        get_all(view)
        view.query("t", "old-3")
        names = [one.path.name for one in view.index_files()]
        shutil.rmtree(path)
        put(path, count, "new")
        for one, name in zip(sorted((path / "index").iterdir()), names, strict=False):
            one.rename(one.with_name(name))  # as when both were made in the same millisecond
        assert get_all(view) == [b"new %d" % number for number in range(count)]
        with mqstore.inspect(path) as fresh:
            assert view.log_end == fresh.log_end
        assert not view.query("t", "old-3").messages
        assert len(view.query("t", "new-3").messages) == 1


def test_a_pool_lets_go_of_what_has_another_name(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}"
    path.write_bytes(b"old")
    pool = FilePool()
    with pool.descriptor(path) as fd:
        path.unlink()
        path.write_bytes(b"new")
        assert pool.read(path, 0, 3) == b"old"
        pool.note_listed(take_inventory([tmp_path]).entries)
        assert pool.read(path, 0, 3) == b"new"
        assert os.pread(fd, 3, 0) == b"old"
        pool.note_listed(take_inventory([tmp_path]).entries)
    with pytest.raises(OSError, match="Bad file"):
        os.pread(fd, 3, 0)
    pool.close()


def test_a_kafka_partition_that_was_away(golden_kafka: Path, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.mkdir()
    shutil.copy(golden_kafka / "meta.properties", path)
    shutil.copytree(golden_kafka / "plain-0", path / "plain-0")
    with KafkaView(path) as view:

        def look() -> int:
            (found,) = view.partitions()
            return sum(1 for _ in found.records())

        count = look()
        (path / "plain-0").rename(tmp_path / "away")
        assert view.partitions() == []
        shutil.copytree(tmp_path / "away", path / "plain-0")
        assert look() == count
