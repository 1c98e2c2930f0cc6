"""What a dry run of ``recover`` says is what the real one then does, whatever lies in the directory."""

from __future__ import annotations

import dataclasses
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mqstore.kafka as kafka
from kafka_log.support import SMALL, TOPIC, copy_of, flip, open_small, partition_of, read_all, tree
from kafka_log.test_compaction import COMPACT, NOW_MS, fill_with_keys
from mqstore.errors import MqstoreError
from mqstore.layout.kafka import names

INTERVAL = SMALL["index_interval_bytes"]


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A log before and after it is compacted."""
    before = tmp_path_factory.mktemp("logs") / "before"
    with open_small(before, **COMPACT) as store:
        fill_with_keys(store, 90, 6, seed=5, transactions=True)
    after = copy_of(before, before.with_name("after"))
    with open_small(after, **COMPACT) as store:
        store.compact(TOPIC, now_ms=NOW_MS, force=True)
    return before, after


class Vandal:
    """Damages a data directory, one thing at a time."""

    def __init__(self, path: Path, after: Path, chance: random.Random) -> None:
        self._root, self._after, self._chance = path, after, chance
        self._directory = partition_of(path)

    def _any(self, *suffixes: str) -> Path | None:
        found = sorted(path for path in self._directory.iterdir() if path.suffix in suffixes and path.is_file())
        return self._chance.choice(found) if found else None

    def flip(self) -> None:
        path = self._any(".log", ".index", ".timeindex", ".txnindex", ".snapshot")
        if path and path.stat().st_size:
            flip(path, self._chance.randrange(path.stat().st_size), self._chance.randrange(8))

    def cut(self) -> None:
        path = self._any(".log", ".log", ".index", ".timeindex", ".txnindex", ".snapshot")
        if path:
            os.truncate(path, self._chance.randrange(path.stat().st_size + 1))

    def add(self) -> None:
        path = self._any(".log", ".index", ".timeindex")
        if path:
            with path.open("ab") as file:
                file.write(self._chance.choice([bytes(50), b"noise", self._chance.randbytes(100)]))

    def remove(self) -> None:
        path = self._any(".log", ".index", ".timeindex", ".txnindex", ".snapshot")
        if path:
            path.unlink()

    def mark(self) -> None:
        path = self._any(".log", ".index", ".timeindex", ".txnindex")
        if path:
            path.rename(f"{path}{self._chance.choice(['.deleted', '.swap', '.cleaned'])}")

    def swap(self) -> None:
        """Replacements in the middle of their way, of some kinds only now and then."""
        stage = self._chance.choice([".swap", ".swap", ".cleaned"])
        stem = self._chance.choice(sorted(partition_of(self._after).glob("*.log"))).stem
        kinds = [".log", ".index", ".timeindex", ".txnindex"]
        for kind in kinds if self._chance.random() < 0.7 else self._chance.sample(kinds, 2):
            source = partition_of(self._after) / f"{stem}{kind}"
            if source.exists():
                shutil.copy(source, self._directory / f"{stem}{kind}{stage}")

    def start(self) -> None:
        offset = self._chance.choice([0, 1, 30, 60, 90, 130, 1000, 2**40])
        (self._root / names.LOG_STARTS).write_text(f"0\n1\n{TOPIC} 0 {offset}\n")

    def noise(self) -> None:
        path = self._chance.choice(
            [self._root / names.LOG_STARTS, self._directory / names.LEADER_EPOCHS, self._root / names.RECOVERY_POINTS]
        )
        path.write_text("noise")

    def odd(self) -> None:
        path = self._any(".log", ".index")
        if path and self._chance.random() < 0.3:
            path.unlink()
            path.mkdir()

    def do(self) -> None:
        verbs: list[Callable[[], None]] = [
            self.flip, self.flip, self.cut, self.cut, self.add, self.remove, self.mark, self.mark, self.swap,
            self.start, self.noise, self.odd,
        ]  # fmt: skip
        self._chance.choice(verbs)()


def outcome(path: Path, **options: Any) -> object:
    """What recovering tells, without where."""
    try:
        report = kafka.recover(path, index_interval_bytes=INTERVAL, **options)
    except MqstoreError as error:
        return type(error), error.message, Path(error.path or "").name
    told = []
    for one in report.partitions:
        damage = one.damage and dataclasses.replace(one.damage, path=Path(one.damage.path.name))
        told.append(dataclasses.replace(one, directory=Path(one.directory.name), damage=damage))
    return told


@pytest.mark.parametrize("seed", range(int(os.environ.get("MQSTORE_DAMAGES", "80"))))
def test_it_tells_what_is_done(logs: tuple[Path, Path], tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    before, after = logs
    path = copy_of(before, tmp_path / "log")
    for _ in range(chance.randrange(1, 4)):
        Vandal(path, after, chance).do()
    files = tree(path)
    told = outcome(path)
    assert tree(path) == files
    assert outcome(path, output=tmp_path / "new") == told
    assert tree(path) == files
    assert outcome(path, in_place=True) == told
    if isinstance(told, list):
        (one,) = told
        with kafka.inspect(path) as view:
            assert view.max_offset(TOPIC) == one.end_after
        left = {int(log.stem) for log in partition_of(path).glob("*.log")}
        assert not left & set(one.removed) or one.end_after in one.removed
        again = outcome(path)
        assert isinstance(again, list)
        assert again[0].damage is None
        assert (again[0].removed, again[0].rebuilt, again[0].finished) == ([], [], 0)
        assert again[0].end_after == one.end_after


def test_a_start_behind_the_end_is_told(tmp_path: Path) -> None:
    """All records go then."""
    with kafka.open(tmp_path) as store:
        for number in range(10):
            store.put(kafka.KafkaMessage("a", b"%d" % number))
    (tmp_path / names.LOG_STARTS).write_text("0\n1\na 0 50\n")
    (told,) = kafka.recover(tmp_path).partitions
    assert (told.end_before, told.end_after, told.removed) == (10, 50, [0])


def test_linked_partitions(logs: tuple[Path, Path], tmp_path: Path) -> None:
    path = copy_of(logs[0], tmp_path / "log")
    elsewhere = partition_of(path).rename(tmp_path / f"{TOPIC}-0")
    partition_of(path).symlink_to(elsewhere)
    with kafka.inspect(path) as view:
        wanted = read_all(view)
    told = outcome(path)
    assert outcome(path, output=tmp_path / "new") == told
    assert not partition_of(tmp_path / "new").is_symlink()
    with kafka.inspect(tmp_path / "new") as view:
        assert read_all(view) == wanted
    for index in elsewhere.glob("*.index"):
        index.write_bytes(b"\xff" * 8)
    assert kafka.reindex(path, output=tmp_path / "indexes", index_interval_bytes=INTERVAL)
    assert kafka.reindex(path, in_place=True, index_interval_bytes=INTERVAL)
    assert outcome(path, in_place=True) == outcome(path) == told


def test_one_segment_is_reindexed_by_itself(logs: tuple[Path, Path], tmp_path: Path) -> None:
    path = copy_of(logs[0], tmp_path / "log")
    wanted = tree(partition_of(path))
    log = sorted(partition_of(path).glob("*.log"))[1]
    made = kafka.reindex(log, output=tmp_path / "new", index_interval_bytes=INTERVAL)
    assert {one.name: one.read_bytes() for one in made} == {
        name: data for name, data in wanted.items() if name.startswith(log.stem) and "index" in name
    }
    for index in partition_of(path).glob("*.index"):
        index.write_bytes(b"\xff" * 8)
    assert [one.name for one in kafka.reindex(log, in_place=True, index_interval_bytes=INTERVAL)] == [
        f"{log.stem}.index"
    ]
    for refused in (log.with_suffix(".index"), path / names.RECOVERY_POINTS):
        with pytest.raises(MqstoreError, match="not the log of a segment"):
            kafka.reindex(refused, in_place=True)
    with pytest.raises(MqstoreError, match="a file by itself"):
        kafka.recover(log)
