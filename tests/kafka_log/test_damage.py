"""Damage to a log, bit by bit and file by file: it is named, and costs nothing that lies before it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import mqstore.kafka as kafka
from kafka_log.support import (
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
    partition_of,
    read_all,
    value_of,
)
from mqstore.errors import CorruptBatchError, DiskFullError, MqstoreError, NotAStoreError, StoreIOError
from mqstore.findings import Severity
from mqstore.kafka import BatchDamage
from mqstore.layout.kafka import names
from mqstore.status import GetMessageStatus

COUNT = 12


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few messages in one segment, stopped cleanly; for copying."""
    path = tmp_path_factory.mktemp("original") / "log"
    fill(path, COUNT)
    assert len(log_files(path)) == 1
    return path


@pytest.fixture
def log(original: Path, tmp_path: Path) -> Path:
    return copy_of(original, tmp_path / "log")


def go_on(damage: BatchDamage) -> bool:
    return True


def test_every_bit_of_a_batch(log: Path) -> None:
    """Flipped alone: recovery keeps everything before it, check names it, and skipping loses that batch at most."""
    file = log_files(log)[0]
    positions = [*batch_positions(file), file.stat().st_size]
    number = 5
    start, end = positions[number], positions[number + 1]
    clean = file.read_bytes()
    sound = [value_of(one) for one in range(COUNT)]
    for position in range(start, end):
        for bit in range(8) if position - start < 61 else (position % 8,):
            where = position - start, bit
            flip(file, position, bit)
            findings = kafka.check(log)
            covered = not (
                position - start < 8 or 12 <= position - start < 16
            )  # by checksum, or by the length's meaning
            if covered:
                assert any(one.severity is Severity.ERROR and one.offset == start for one in findings), where
            elif position - start >= 8:
                assert any("leader epoch" in one.message for one in findings), where
            else:
                assert bad(findings) != [], where
            with kafka.inspect(log) as view:
                read = [record.value for record in view.partition(TOPIC).records(on_damage=go_on)]
                assert [value for value in read if value in sound] == read
                if covered:
                    assert read == sound[:number] + sound[number + 1 :], where
                    with pytest.raises(CorruptBatchError):
                        list(view.partition(TOPIC).records())
            if bit == position % 8:
                report = kafka.recover(log).partitions[0]
                assert report.end_after >= number, where
                if covered:
                    assert report.end_after == number, where
            file.write_bytes(clean)
    assert bad(kafka.check(log)) == []


def test_stop_or_skip(log: Path) -> None:
    file = log_files(log)[0]
    start = batch_positions(file)[3]
    flip(file, start + 70)
    with kafka.inspect(log) as view:
        with pytest.raises(CorruptBatchError) as caught:
            view.get(TOPIC, 0, 0)
        assert (caught.value.path, caught.value.offset) == (str(file), start)
        assert "offsets 3 to 3" in str(caught.value)
        assert str(caught.value.found) == "CRC"
        met: list[BatchDamage] = []
        result = view.get(TOPIC, 0, 0, on_damage=lambda damage: bool(met.append(damage)) or True)
        assert [one.offset for one in result.messages] == [0, 1, 2, *range(4, COUNT)]
        assert (result.skipped, len(met)) == (1, 1)
        assert (met[0].position, met[0].reason) == (start, "CRC")
        result = view.get(TOPIC, 0, 0, on_damage=lambda damage: False)
        assert [one.offset for one in result.messages] == [0, 1, 2]
        assert result.next_offset == 3
        assert view.get(TOPIC, 0, 4).status is GetMessageStatus.FOUND
    with open_small(log) as store:
        with pytest.raises(CorruptBatchError):
            read_all(store)
        assert len(read_all(store, on_damage=go_on)) == COUNT - 1


@pytest.mark.parametrize("length", [0, 10, 100, 1 << 30, (1 << 31) - 13])
def test_a_length_that_lies(log: Path, length: int) -> None:
    """Nothing is taken at its word: no buffer of that size, and what follows is found."""
    file = log_files(log)[0]
    start = batch_positions(file)[3]
    data = bytearray(file.read_bytes())
    data[start + 8 : start + 12] = length.to_bytes(4, "big")
    file.write_bytes(data)
    with kafka.inspect(log) as view:
        assert [one.offset for one in view.partition(TOPIC).records(on_damage=go_on)] == [0, 1, 2, *range(4, COUNT)]
        with pytest.raises(CorruptBatchError):
            list(view.partition(TOPIC).records())
    assert any(one.severity is Severity.ERROR for one in kafka.check(log))


def test_many_damages_are_all_named(tmp_path: Path) -> None:
    fill(tmp_path, 100)
    wanted = []
    for file in log_files(tmp_path)[:3]:
        for start in batch_positions(file)[2:9:3]:
            wanted.append((str(file), start))
            flip(file, start + 66)
    found = [(one.path, one.offset) for one in kafka.check(tmp_path) if one.severity is Severity.ERROR]
    assert found == wanted


def lost(path: Path) -> None:
    path.unlink()


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def shortened(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def foreign(path: Path) -> None:
    path.write_bytes(bytes(range(7, 250)) * 12)


def a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def a_loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def a_device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


KINDS = [lost, emptied, shortened, foreign, a_pipe, a_directory, a_loop, a_device]


def places(log: Path) -> Iterator[Path]:
    yield from sorted(path for path in log.iterdir() if path.is_file())
    logs = log_files(log)
    stems = {logs[0].stem, logs[-1].stem, names.LEADER_EPOCHS, "partition"}
    yield from (path for path in sorted(partition_of(log).iterdir()) if path.stem in stems)


def look(log: Path) -> None:
    with kafka.inspect(log) as view:
        view.topics()
        view.get(TOPIC)
        list(view.partition(TOPIC).records(on_damage=go_on, isolation="read_committed"))
        view.offset_at(TOPIC, 0, 1_000_050)
        view.producers(TOPIC)
        view.stats()


ACTIONS: list[Callable[[Path], object]] = [
    kafka.check,
    look,
    kafka.recover,
    lambda log: kafka.reindex(log, in_place=True),
    lambda log: open_small(log).close(),
]


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("several") / "log"
    fill(path, 60)
    return path


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_something_else_in_place_of_a_file(several: Path, tmp_path: Path, kind: Callable[[Path], None]) -> None:
    """An answer or one of our errors with a hint; never a crash, a hang, or silence about a log that suffered."""
    count = len(list(places(several)))
    assert count > 12
    for number in range(count):
        log = copy_of(several, tmp_path / f"{kind.__name__}{number}")
        path = list(places(log))[number]
        if path.name not in (names.CLEAN_SHUTDOWN, names.RECOVERY_POINTS):
            mark_crashed(log)
        kind(path)
        hurts_log = path.suffix == ".log" and kind not in (lost, emptied)
        if hurts_log:
            assert any(one.severity is Severity.ERROR for one in kafka.check(log)), path.name
        for action in ACTIONS:
            try:
                action(log)
            except MqstoreError as error:
                assert error.hint, f"{path.name}: {error!r}"  # noqa: PT017


@pytest.mark.skipif(os.getuid() == 0, reason="root may read everything")
def test_files_without_permission(several: Path, tmp_path: Path) -> None:
    log = copy_of(several, tmp_path / "log")
    first = log_files(log)[0]
    first.chmod(0)
    with kafka.inspect(log) as view, pytest.raises(StoreIOError) as caught:
        view.get(TOPIC)
    assert caught.value.hint
    assert any("could not be read" in one.message for one in kafka.check(log))


def test_permission_denied_is_told_apart_from_absent(
    several: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = copy_of(several, tmp_path / "log")
    first = log_files(log)[0]
    real_open = os.open

    def refuse(path: object, flags: int, *rest: int, **options: int) -> int:
        if str(path) == str(first):
            raise PermissionError(13, "Permission denied")
        return real_open(path, flags, *rest, **options)

    monkeypatch.setattr(os, "open", refuse)
    with kafka.inspect(log) as view, pytest.raises(StoreIOError) as caught:
        view.get(TOPIC)
    assert "permission" in str(caught.value.hint)
    assert any("could not be read" in one.message for one in kafka.check(log))


def test_what_is_no_log(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "none", tmp_path / "file", tmp_path / "empty"):
        with pytest.raises(NotAStoreError) as caught:
            kafka.inspect(path)
        assert caught.value.hint
    with pytest.raises(MqstoreError):
        kafka.inspect("a\0b")
    with pytest.raises(MqstoreError):
        kafka.inspect("")


def test_foreign_names_are_passed_over_with_a_word(log: Path, caplog: pytest.LogCaptureFixture) -> None:
    (partition_of(log) / "notes.txt").write_text("x")
    (log / "lost+found").mkdir()
    with kafka.inspect(log) as view:
        assert view.topics() == {TOPIC: [0]}
        assert len(read_all(view)) == COUNT
    assert "lost+found" in caplog.text
    assert "notes.txt" in caplog.text
    with open_small(log) as store:
        assert len(read_all(store)) == COUNT
    assert (partition_of(log) / "notes.txt").exists()


@pytest.mark.parametrize("give", ["partition", "segment", "index"])
def test_parts_of_a_log_given_alone(several: Path, give: str) -> None:
    second = log_files(several)[1]
    path = {"partition": partition_of(several), "segment": second, "index": second.with_suffix(".index")}[give]
    with kafka.inspect(path) as view:
        assert view.topics() == {TOPIC: [0]}
        records = list(view.partition(TOPIC).records())
    following = int(log_files(several)[2].stem)
    assert [one.offset for one in records] == list(
        range(60) if give == "partition" else range(int(second.stem), following)
    )


FULL = """
import sys
import mqstore
import mqstore.kafka as kafka
from mqstore.kafka import KafkaMessage
path = sys.argv[1]
store = kafka.open(path, segment_bytes=200_000, index_interval_bytes=500)
kept = 0
try:
    while True:
        assert store.put(KafkaMessage("t", b"%d" % kept + b"x" * 900)).offset == kept
        kept += 1
except mqstore.DiskFullError as error:
    assert error.hint and error.retriable
assert kept > 100
got = store.get("t", 0, kept - 1)
assert [one.offset for one in got.messages] == [kept - 1]
for _ in range(3):
    try:
        store.put(KafkaMessage("t", b"y" * 2000))
    except mqstore.DiskFullError:
        pass
    else:
        kept += 1
try:
    store.close()
except mqstore.MqstoreError:
    pass
print(kept)
"""


def test_a_full_disk(tmp_path: Path) -> None:
    """On a small file system of its own, where that may be mounted."""
    script = (
        'set -e; mkdir -p "$1"; mount -t tmpfs -o size=1m tmpfs "$1"; "$2" -W ignore -c "$3" "$1/log"; '
        'cp -r "$1/log" "$4"; umount "$1"'
    )
    mount, copy = tmp_path / "mount", tmp_path / "copy"
    command = ["unshare", "-rm", "sh", "-c", script, "sh", str(mount), sys.executable, FULL, str(copy)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("no unshare command")
    if "mount" in done.stderr or "unshare" in done.stderr:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    kept = int(done.stdout)
    with kafka.open(copy, segment_bytes=200_000, index_interval_bytes=500) as store:
        assert store.max_offset("t") == kept
        assert [one.offset for one in read_all(store, "t")] == list(range(kept))
    assert bad(kafka.check(copy)) == []


def test_a_write_that_fails_in_the_middle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a batch on the disk is cut off at once: the next put goes where it should."""
    with open_small(tmp_path) as store:
        for number in range(5):
            store.put(message(number))
        real = os.pwrite
        calls = [0]

        def half(fd: int, data: memoryview, position: int) -> int:
            calls[0] += 1
            if calls[0] == 1:
                return real(fd, data[:30], position)
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", half)
            with pytest.raises(DiskFullError):
                store.put(message(5))
        assert store.put(message(5)).offset == 5
        assert [one.value for one in read_all(store)] == [value_of(number) for number in range(6)]
    assert bad(kafka.check(tmp_path)) == []


def test_a_sync_that_fails_ends_the_taking_of_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_small(tmp_path, flush_messages=1)
    store.put(message(0))

    def fail(fd: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", fail)
        with pytest.raises(StoreIOError):
            store.put(message(1))
    with pytest.raises(kafka.store.errors.NotWritableError):
        store.put(message(2))
    assert len(read_all(store)) == 2  # what is there can be read
    store.close()
    assert not (tmp_path / names.CLEAN_SHUTDOWN).exists()
    with open_small(tmp_path) as again:
        assert [one.value for one in read_all(again)][:1] == [value_of(0)]


@pytest.mark.timeout(60)
def test_a_segment_that_is_cut_while_it_is_scanned(tmp_path: Path) -> None:
    fill(tmp_path / "log", 40)
    with kafka.inspect(tmp_path / "log") as view:
        segment = view.partition(TOPIC).segments()[0]
        starts = [position for position, _, _ in segment.headers()]
        scan = segment.scan(first_bytes=starts[2])
        chunks = [next(iter(scan))]
        os.truncate(segment.path(), starts[2])
        chunks += scan
    assert sum(chunk.columns.count for chunk in chunks) == 2
    assert (scan.position, scan.damage) == (starts[2], None)
