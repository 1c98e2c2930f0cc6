"""What is no directory in place of a partition, no file in place of a replacement, and damage that reindex meets."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

import mqstore.kafka as kafka
from kafka_log.support import TOPIC, bad, copy_of, fill, flip, log_files, mark_crashed, open_small, partition_of, tree
from mqstore import convert
from mqstore.cli.app import build_app
from mqstore.errors import CorruptBatchError, CorruptFileError, UsageError
from mqstore.findings import Severity
from mqstore.kafka.compare import compare
from mqstore.kafka.damage import BatchDamage

APP = build_app()


def dangling(path: Path) -> None:
    path.symlink_to(path.with_name("unmounted"))


def a_loop(path: Path) -> None:
    path.symlink_to(path.name)


def a_file(path: Path) -> None:
    path.touch()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    fill(tmp_path / "log", 30)
    return tmp_path / "log"


@pytest.mark.parametrize("kind", [dangling, a_loop, a_file])
class TestNoDirectory:
    """A partition that cannot be looked at is not one that is not there."""

    def test_readers(self, log: Path, kind: Callable[[Path], None], caplog: pytest.LogCaptureFixture) -> None:
        kind(log / "lost-0")
        with kafka.inspect(log) as view:
            with caplog.at_level(logging.WARNING):
                assert view.topics() == {TOPIC: [0]}
            assert "lost-0" in caplog.text
            assert view.odd_partitions() == {("lost", 0): log / "lost-0"}
            for look in (view.partition, view.get, view.max_offset):
                with pytest.raises(CorruptFileError, match="lost-0"):
                    look("lost", 0)
            with pytest.raises(CorruptFileError):
                view.offset_at("lost", 0, 5)
            with pytest.raises(UsageError):
                view.partition("lost", 1)
            assert len(list(view.partition(TOPIC).records())) == 30

    def test_check(self, log: Path, kind: Callable[[Path], None]) -> None:
        assert bad(kafka.check(log)) == []
        kind(log / "lost-0")
        (found,) = [one for one in kafka.check(log) if one.severity is not Severity.NOTE]
        assert (found.severity, found.path) == (Severity.ERROR, str(log / "lost-0"))
        assert "link" in str(found.found) or kind is a_file

    def test_what_needs_all_refuses(self, log: Path, kind: Callable[[Path], None], tmp_path: Path) -> None:
        other = copy_of(log, tmp_path / "other")
        kind(log / "lost-0")
        before = tree(log / f"{TOPIC}-0")
        for action in (
            lambda: open_small(log).close(),
            lambda: kafka.recover(log),
            lambda: kafka.recover(log, output=tmp_path / "new"),
            lambda: kafka.reindex(log, in_place=True),
            lambda: compare(log, other),
            lambda: convert.to_rocketmq(log, tmp_path / "new"),
        ):
            with pytest.raises(CorruptFileError, match="lost-0"):
                action()
        assert tree(log / f"{TOPIC}-0") == before
        assert not (tmp_path / "new").exists()
        assert not compare(log, other, topic=TOPIC)[0].differs()
        convert.to_rocketmq(log, tmp_path / "new", convert.ConvertOptions(topics=TOPIC))

    def test_commands(self, log: Path, kind: Callable[[Path], None]) -> None:
        kind(log / "lost-0")
        for words, code in (
            (["dump", str(log)], 1), (["dump", str(log), "--topic", TOPIC], 0),
            (["dump", str(log), "--topic", "lost"], 1), (["check", str(log)], 1), (["stats", str(log)], 0),
        ):  # fmt: skip
            result = CliRunner().invoke(APP, ["kafka", *words])
            assert result.exit_code == code, words
        assert f"no directory: {log / 'lost-0'}" in result.output

    def test_alone_in_its_directory(self, tmp_path: Path, kind: Callable[[Path], None]) -> None:
        (tmp_path / "data").mkdir()
        kind(tmp_path / "data" / "lost-0")
        with kafka.inspect(tmp_path / "data") as view:
            assert view.topics() == {}
            assert [one.severity for one in view.check()].count(Severity.ERROR) == 1


@pytest.mark.parametrize("kind", [dangling, a_loop, Path.mkdir])
def test_no_file_in_place_of_a_replacement(tmp_path: Path, kind: Callable[[Path], None]) -> None:
    """A ``.log.swap`` may be all there is of its records, so that nobody passes over it in silence."""
    log = tmp_path / "log"
    fill(log, 60)
    second = log_files(log)[1]
    base = int(second.stem)
    # What it was to replace is there yet: readers have all they need.
    kind(second.with_name(f"{second.name}.swap"))
    with kafka.inspect(log) as view:
        assert len(list(view.partition(TOPIC).records())) == 60
    assert any(one.severity is Severity.ERROR and one.path.endswith(".swap") for one in kafka.check(log))
    # It is gone: records before it can be read, and the others not.
    for path in partition_of(log).glob(f"{second.stem}.*"):
        if not path.name.endswith(".swap"):
            path.unlink()
    with kafka.inspect(log) as view:
        partition = view.partition(TOPIC)
        assert [one.offset for one in partition.records(end=base)] == list(range(base))
        with pytest.raises(CorruptFileError, match="swap"):
            list(partition.records())
        with pytest.raises(CorruptFileError, match="swap"):
            view.get(TOPIC, 0, base)
    with pytest.raises(CorruptFileError, match="swap"):
        open_small(log)


class TestReindexMeetsDamage:
    @pytest.fixture
    def damaged(self, log: Path) -> Path:
        flip(log_files(log)[0], 600)
        return log

    def test_it_is_told(self, damaged: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        told: list[BatchDamage] = []
        kafka.reindex(damaged, output=tmp_path / "new", on_damage=lambda one: bool(told.append(one)) or True)
        assert [(one.path, one.reason) for one in told] == [(log_files(damaged)[0], "CRC")]
        assert 500 < told[0].position <= 600
        with caplog.at_level(logging.WARNING):
            kafka.reindex(damaged, in_place=True)
        assert str(log_files(damaged)[0]) in caplog.text

    def test_the_other_segments_have_their_indexes(self, damaged: Path, tmp_path: Path) -> None:
        kafka.reindex(damaged, output=tmp_path / "new", index_interval_bytes=150)
        first, *others = sorted((tmp_path / "new" / f"{TOPIC}-0").glob("*.index"))
        assert others
        for path in others:
            assert path.read_bytes() == (partition_of(damaged) / path.name).read_bytes()
        whole = (partition_of(damaged) / first.name).read_bytes()
        assert 0 < first.stat().st_size < len(whole)
        assert whole.startswith(first.read_bytes())

    def test_stopping_there(self, damaged: Path, tmp_path: Path) -> None:
        with pytest.raises(CorruptBatchError):
            kafka.reindex(damaged, output=tmp_path / "new", on_damage=lambda damage: False)
        assert not (tmp_path / "new").exists()

    def test_the_command(self, damaged: Path, tmp_path: Path) -> None:
        words = ["kafka", "reindex", str(damaged), "--format", "json", "--output", str(tmp_path / "new")]
        result = CliRunner().invoke(APP, words)
        assert result.exit_code == 1
        (found,) = json.loads(result.stdout)["damages"]
        assert (found["path"], found["reason"]) == (str(log_files(damaged)[0]), "CRC")

    def test_a_torn_end_is_none(self, log: Path, tmp_path: Path) -> None:
        """As for readers: it is where the log ends."""
        last = log_files(log)[-1]
        last.write_bytes(last.read_bytes()[:-5])
        mark_crashed(log)
        told: list[BatchDamage] = []
        kafka.reindex(log, output=tmp_path / "new", on_damage=lambda one: bool(told.append(one)) or True)
        assert told == []
        first = log_files(log)[0]  # but not before another segment
        first.write_bytes(first.read_bytes()[:-5])
        kafka.reindex(log, output=tmp_path / "newer", on_damage=lambda one: bool(told.append(one)) or True)
        assert [one.path for one in told] == [first]
        shutil.rmtree(tmp_path / "newer")
