"""What a crash leaves, put in order: at open, and offline."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import mqstore.kafka as kafka
from kafka_log.support import (
    SMALL,
    TOPIC,
    bad,
    batch_positions,
    copy_of,
    fill,
    flip,
    log_files,
    mark_crashed,
    message,
    open_small,
    overwrite,
    partition_of,
    read_all,
    tree,
    value_of,
    values,
)
from mqstore.errors import CorruptFileError, NotAStoreError, StoreLockedError, UsageError
from mqstore.kafka.segment import Segment
from mqstore.layout.kafka import names

COUNT = 100


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A hundred messages in several segments, stopped cleanly; for copying."""
    path = tmp_path_factory.mktemp("original") / "log"
    fill(path, COUNT)
    return path


@pytest.fixture
def log(original: Path, tmp_path: Path) -> Path:
    return copy_of(original, tmp_path / "log")


def offset_of(file: Path, number: int) -> tuple[int, int]:
    """Position and offset of a segment's batch number ``number``; every batch holds one record."""
    return batch_positions(file)[number], int(file.stem) + number


def reopened(log: Path) -> list[bytes | None]:
    """Values after a writer has opened and closed it, every derived file then being as a rebuild makes it."""
    with open_small(log) as store:
        found = [record.value for record in read_all(store)]
    assert bad(kafka.check(log)) == []
    return found


class TestCrash:
    def test_nothing_happened(self, log: Path) -> None:
        before = tree(partition_of(log))
        mark_crashed(log)
        with open_small(log) as store:
            (report,) = store.reports
            assert (report.damage, report.rebuilt, report.removed) == (None, [], [])
        assert tree(partition_of(log)) == before

    @pytest.mark.parametrize("torn", [1, 16, 17, 60, 61, 80])
    def test_a_torn_batch_is_cut_off(self, log: Path, torn: int) -> None:
        last = log_files(log)[-1]
        size = last.stat().st_size
        with last.open("ab") as file:
            file.write(log_files(log)[0].read_bytes()[:torn])
        mark_crashed(log)
        assert reopened(log) == [value_of(number) for number in range(COUNT)]
        assert last.stat().st_size == size

    @pytest.mark.parametrize("fill_byte", [b"\0", b"\xff", b"x"])
    def test_noise_behind_the_end(self, log: Path, fill_byte: bytes) -> None:
        with log_files(log)[-1].open("ab") as file:
            file.write(fill_byte * 300)
        mark_crashed(log)
        assert reopened(log) == [value_of(number) for number in range(COUNT)]

    def test_a_damaged_batch_ends_the_log_and_later_segments_go(self, log: Path) -> None:
        second = log_files(log)[1]
        position, offset = offset_of(second, 4)
        flip(second, position + 65)
        mark_crashed(log)
        gone = [int(path.stem) for path in log_files(log)[2:]]
        with open_small(log) as store:
            (report,) = store.reports
            assert report.damage is not None
            assert (report.damage.position, report.damage.reason) == (position, "CRC")
            assert report.removed == gone
            assert store.max_offset(TOPIC) == offset
            assert store.put(message(0)).offset == offset
            assert len(read_all(store)) == offset + 1
        assert bad(kafka.check(log)) == []

    def test_damage_below_the_recovery_point_is_not_looked_for(self, log: Path) -> None:
        flip(log_files(log)[0], 65)
        mark_crashed(log, forget_recovery_points=False)
        with open_small(log) as store:
            assert store.max_offset(TOPIC) == COUNT
            assert store.reports[0].damage is None

    def test_only_segments_from_the_recovery_point_are_read(self, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        read: dict[str, int] = {}
        original_read = Segment.read

        def counted(self: Segment, position: int, size_bytes: int) -> bytes:
            data = original_read(self, position, size_bytes)
            read[self.path().name] = read.get(self.path().name, 0) + len(data)
            return data

        monkeypatch.setattr(Segment, "read", counted)
        damaged = log_files(log)[1].with_suffix(".index")
        damaged.write_bytes(b"\xff" * 8)
        for _ in range(2):
            read.clear()
            mark_crashed(log, forget_recovery_points=False)
            with open_small(log) as store:
                rebuilt = store.reports[0].rebuilt
            whole = {name for name, count in read.items() if count >= (partition_of(log) / name).stat().st_size > 1500}
            # Once the damaged one is made anew, and only that; then nothing but the last is walked.
            assert whole - {log_files(log)[-1].name} == ({log_files(log)[1].name} if rebuilt else set())
        assert rebuilt == []

    def test_pre_sized_indexes(self, log: Path) -> None:
        before = tree(partition_of(log))
        for kind, size in (("index", 400), ("timeindex", 396)):
            path = log_files(log)[-1].with_suffix(f".{kind}")
            path.write_bytes(path.read_bytes().ljust(size, b"\0"))
        mark_crashed(log)
        assert len(reopened(log)) == COUNT
        assert tree(partition_of(log)) == before

    def test_a_view_reads_a_crash_image_as_it_is(self, log: Path) -> None:
        last = log_files(log)[-1]
        with last.open("ab") as file:
            file.write(last.read_bytes()[:50])
        for kind, size in (("index", 400), ("timeindex", 396)):
            path = last.with_suffix(f".{kind}")
            path.write_bytes(path.read_bytes().ljust(size, b"\0"))
        mark_crashed(log)
        before = tree(log)
        assert values(log) == [value_of(number) for number in range(COUNT)]
        with kafka.inspect(log) as view:
            assert view.max_offset(TOPIC) == COUNT
            assert view.offset_at(TOPIC, 0, 1_000_099) == (99, 1_000_099)
        assert tree(log) == before

    def test_a_clean_marker_that_lies(self, log: Path) -> None:
        with log_files(log)[-1].open("ab") as file:
            file.write(b"torn")
        assert len(reopened(log)) == COUNT

    def test_the_log_is_shorter_than_its_start(self, log: Path) -> None:
        (log / names.LOG_STARTS).write_text(f"0\n1\n{TOPIC} 0 500\n")
        assert reopened(log) == []
        with open_small(log) as store:
            assert store.put(message(0)).offset == 500

    def test_indexes_ahead_of_the_log(self, log: Path) -> None:
        last = log_files(log)[-1]
        position, offset = offset_of(last, len(batch_positions(last)) - 2)
        os.truncate(last, position)
        for is_clean in (True, False):
            if not is_clean:
                mark_crashed(log)
            assert len(reopened(log)) == offset


class TestDerivedFiles:
    @pytest.mark.parametrize("kind", ["index", "timeindex", "txnindex", "snapshot"])
    @pytest.mark.parametrize("damage", ["missing", "empty", "short", "zeros", "noise", "foreign"])
    @pytest.mark.parametrize("which", [0, 1, -1])
    def test_are_made_anew(self, log: Path, kind: str, damage: str, which: int) -> None:
        before = tree(partition_of(log))
        paths = sorted(partition_of(log).glob(f"*.{kind}")) or [log_files(log)[which].with_suffix(f".{kind}")]
        path = paths[which % len(paths)]
        content = path.read_bytes() if path.exists() else b""
        path.unlink(missing_ok=True)
        if damage != "missing":
            path.write_bytes({
                "empty": b"", "short": content[: len(content) // 2 + 1], "zeros": bytes(len(content)),
                "noise": bytes(range(1, 200)), "foreign": b"\x7fELF" * 10,
            }[damage])  # fmt: skip
        mark_crashed(log)
        with open_small(log) as store:
            assert len(read_all(store)) == COUNT
            # Only what is damaged is made anew.
            assert [name for name in store.reports[0].rebuilt if not name.startswith(path.stem)] == []
        after = tree(partition_of(log))
        if kind == "txnindex":
            after = {name: data for name, data in after.items() if data or not name.endswith(".txnindex")}
        assert after.keys() <= before.keys()
        assert all(after[name] == before[name] for name in after)

    @pytest.mark.parametrize("kind", ["index", "timeindex"])
    def test_of_the_newest_segment_after_a_clean_stop(self, log: Path, kind: str) -> None:
        before = tree(partition_of(log))
        log_files(log)[-1].with_suffix(f".{kind}").unlink()
        assert len(reopened(log)) == COUNT
        assert tree(partition_of(log)) == before

    def test_an_index_with_a_length_and_no_entry(self, tmp_path: Path) -> None:
        with kafka.open(tmp_path) as store:
            store.put_batch([message(number, size=1000) for number in range(300)])
        before = tree(partition_of(tmp_path))
        index = log_files(tmp_path)[0].with_suffix(".index")
        index.write_bytes(bytes(len(index.read_bytes())))
        assert "no entries for a long log" in bad(kafka.check(tmp_path))
        with kafka.open(tmp_path) as store:
            assert store.reports[0].rebuilt == [index.name]
            assert len(read_all(store)) == 300
        assert tree(partition_of(tmp_path)) == before

    def test_indexes_without_a_log_go(self, log: Path) -> None:
        orphan = partition_of(log) / "00000000000000005000.index"
        orphan.write_bytes(b"")
        assert "an index without a log" in bad(kafka.check(log))
        assert len(reopened(log)) == COUNT
        assert not orphan.exists()

    @pytest.mark.parametrize("is_offline", [True, False])
    def test_damaged_leader_epochs_of_a_log_that_becomes_empty(self, log: Path, is_offline: bool) -> None:
        path = partition_of(log) / names.LEADER_EPOCHS
        path.write_text("0\n1\n0")
        flip(log_files(log)[0], 20)
        mark_crashed(log)
        if is_offline:
            kafka.recover(log, in_place=True)
        else:
            open_small(log).close()
        assert path.read_text() == "0\n0\n"
        assert values(log) == []
        assert bad(kafka.check(log)) == []

    def test_damaged_epochs_come_back_from_the_log(self, log: Path) -> None:
        path = partition_of(log) / names.LEADER_EPOCHS
        before = path.read_bytes()
        for content in (b"noise", b"\xff\xfe"):
            path.write_bytes(content)
            mark_crashed(log)
            assert len(reopened(log)) == COUNT
            assert path.read_bytes() == before


class TestLeftovers:
    def test_deleted_and_cleaned_are_removed(self, log: Path) -> None:
        first = log_files(log)[0]
        for suffix in (".deleted", ".cleaned"):
            shutil.copy(first, first.with_name(first.name + suffix))
        assert values(log) == [value_of(number) for number in range(COUNT)]  # a view passes over them
        assert len(reopened(log)) == COUNT
        assert not list(partition_of(log).glob("*.cleaned")) + list(partition_of(log).glob("*.deleted"))

    def test_a_complete_swap_takes_the_place_of_the_old(self, log: Path) -> None:
        """As when the process ended between the two renamings: one file for the first two segments."""
        first, second = log_files(log)[:2]
        swap = first.with_name(first.name + ".swap")
        swap.write_bytes(first.read_bytes() + second.read_bytes())
        mark_crashed(log)
        assert reopened(log) == [value_of(number) for number in range(COUNT)]
        assert not second.exists()
        assert not swap.exists()

    def test_a_broken_off_swap_is_undone(self, log: Path) -> None:
        first, second = log_files(log)[:2]
        first.with_name(first.name + ".swap").write_bytes(first.read_bytes()[:200])
        first.with_suffix(".index").with_name(first.stem + ".index.cleaned").write_bytes(b"")
        assert reopened(log) == [value_of(number) for number in range(COUNT)]
        assert first.exists()
        assert second.exists()

    def test_the_rest_of_a_renaming(self, log: Path) -> None:
        index = log_files(log)[0].with_suffix(".index")
        index.rename(index.with_name(index.name + ".swap"))
        assert reopened(log) == [value_of(number) for number in range(COUNT)]


class TestOffline:
    def test_a_dry_run_changes_nothing(self, log: Path) -> None:
        position, offset = offset_of(log_files(log)[1], 3)
        flip(log_files(log)[1], position + 70)
        before = tree(log)
        report = kafka.recover(log)
        assert tree(log) == before
        assert not report.was_done
        (one,) = report.partitions
        assert (one.end_before, one.end_after) == (COUNT, offset)
        assert one.removed == [int(path.stem) for path in log_files(log)[2:]]

    def test_to_an_output(self, log: Path, tmp_path: Path) -> None:
        position, offset = offset_of(log_files(log)[1], 3)
        flip(log_files(log)[1], position + 70)
        before = tree(log)
        report = kafka.recover(log, output=tmp_path / "new", index_interval_bytes=SMALL["index_interval_bytes"])
        assert report.was_done
        assert tree(log) == before
        assert values(tmp_path / "new") == [value_of(number) for number in range(offset)]
        assert bad(kafka.check(tmp_path / "new")) == []

    def test_in_place(self, log: Path) -> None:
        os.truncate(log_files(log)[-1], log_files(log)[-1].stat().st_size - 1)
        kafka.recover(log, in_place=True, index_interval_bytes=SMALL["index_interval_bytes"])
        assert values(log) == [value_of(number) for number in range(COUNT - 1)]
        with open_small(log), pytest.raises(StoreLockedError):
            kafka.recover(log, in_place=True)
        with open_small(log), pytest.raises(StoreLockedError):
            kafka.recover(partition_of(log), in_place=True)

    def test_misuse(self, log: Path, tmp_path: Path) -> None:
        for options in (
            {"output": tmp_path, "in_place": True}, {"output": log}, {"dry_run": False}, {"output": log / "inside"},
        ):  # fmt: skip
            with pytest.raises(UsageError):
                kafka.recover(log, **options)
        with pytest.raises(UsageError):
            kafka.reindex(log)
        for path in (tmp_path / "nothing", tmp_path):
            with pytest.raises(NotAStoreError):
                kafka.recover(path)

    def test_reindex(self, log: Path, tmp_path: Path) -> None:
        before = tree(partition_of(log))
        interval = SMALL["index_interval_bytes"]
        written = kafka.reindex(log, output=tmp_path / "new", index_interval_bytes=interval)
        assert all(before[path.name] == path.read_bytes() for path in written)
        for path in partition_of(log).glob("*index"):
            overwrite(path, 0, b"\xff" * 8)
        assert kafka.reindex(log, in_place=True, index_interval_bytes=interval)
        assert tree(partition_of(log)) == before
        assert kafka.reindex(log, in_place=True, index_interval_bytes=interval) == []


class TestRefused:
    @pytest.mark.parametrize("kind", ["directory", "pipe", "loop"])
    def test_no_file_under_the_name_of_a_log(self, log: Path, kind: str) -> None:
        path = log_files(log)[1]
        path.unlink()
        {"directory": path.mkdir, "pipe": lambda: os.mkfifo(path), "loop": lambda: path.symlink_to(path.name)}[kind]()
        before = sorted(one.name for one in partition_of(log).iterdir())
        with pytest.raises(CorruptFileError):
            open_small(log)
        assert sorted(one.name for one in partition_of(log).iterdir()) == before
        assert "something else than a file under the name of one" in bad(kafka.check(log))

    def test_a_damaged_log_start_checkpoint(self, log: Path) -> None:
        (log / names.LOG_STARTS).write_text("noise")
        with pytest.raises(CorruptFileError) as caught:
            open_small(log)
        assert caught.value.hint
        (log / names.LOG_STARTS).unlink()
        assert len(reopened(log)) == COUNT

    @pytest.mark.parametrize("name", [names.RECOVERY_POINTS, names.CLEANER_OFFSETS, names.HIGH_WATERMARKS])
    def test_other_damaged_checkpoints_do_no_harm(self, log: Path, name: str) -> None:
        (log / name).write_text("noise")
        assert len(reopened(log)) == COUNT

    def test_damaged_meta_properties(self, log: Path) -> None:
        (log / names.META_PROPERTIES).write_text("x")
        with pytest.raises(CorruptFileError):
            open_small(log)
