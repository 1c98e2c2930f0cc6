"""``mqstore tail --follow`` beside recoveries that cut off the log's end: all that comes is shown, each once."""

from __future__ import annotations

import itertools
import shutil
from collections import deque
from pathlib import Path

import pytest

import mqstore
from mqstore import Message
from mqstore.store import following
from mqstore.store.following import Follower
from mqstore.store.log_reader import LogReader
from store.support import fill, forget_note, log_file, mark_crashed, open_small, record_starts

COUNT = 60


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("original") / "store"
    fill(store, COUNT)
    return store


@pytest.fixture
def store(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "store"))


def tear(store: Path, number: int) -> None:
    """Lose the log from record ``number`` on, as a power cut does, and recover."""
    cut_at = record_starts(store)[number]
    for path in sorted((store / "commitlog").iterdir()):
        data = path.read_bytes()
        kept = data[: max(0, cut_at - int(path.name))]
        path.write_bytes(kept.ljust(len(data), b"\0"))
    shutil.rmtree(store / "consumequeue")
    shutil.rmtree(store / "index")
    mark_crashed(store)
    forget_note(store)
    open_small(store).close()
    assert len(record_starts(store)) == number


def put(store: Path, word: str, count: int, size: int = 100) -> list[bytes]:
    """Messages as long as those that were there, or not."""
    bodies = [f"{word}{number}:".encode().ljust(size, b"y") for number in range(count)]
    with open_small(store) as opened:
        for body in bodies:
            opened.put(Message("T", body, keys=["k10"], queue_id=0))
    return bodies


@pytest.mark.parametrize("size", [100, 90])
@pytest.mark.parametrize("count", [0, 1, 3, 10, 50])
@pytest.mark.parametrize("lost", [1, 5, 30, COUNT])
def test_what_takes_the_place_of_what_was_cut_off(store: Path, lost: int, count: int, size: int) -> None:
    with mqstore.inspect(store) as view:
        follower = Follower(view, view.log_end)
        assert list(follower.new()) == []
        tear(store, COUNT - lost)
        expected = put(store, "a", count, size)
        assert [record.body for record in follower.new()] == expected
        assert list(follower.new()) == []
        expected = put(store, "b", 3)
        assert [record.body for record in follower.new()] == expected


@pytest.mark.parametrize("looked", [False, True])
def test_messages_that_were_shown_and_cut_off(store: Path, looked: bool) -> None:
    """Torn twice, of which the first time may not have been noticed."""
    with mqstore.inspect(store) as view:
        follower = Follower(view, view.log_end)
        shown = put(store, "a", 40)
        assert [record.body for record in follower.new()] == shown
        tear(store, COUNT + 10)
        first = put(store, "b", 20)
        if looked:
            assert [record.body for record in follower.new()] == first
        tear(store, COUNT + 15)
        expected = [*([] if looked else first[:5]), *put(store, "c", 35)]
        assert [record.body for record in follower.new()] == expected


@pytest.mark.parametrize("size", [100, 90])
def test_more_cut_off_than_is_remembered(store: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Of what was not remembered, nothing is shown again."""
    monkeypatch.setattr(following, "_MARKS", 8)
    with mqstore.inspect(store) as view:
        oldest = record_starts(store)[-8]
        follower = Follower(view, view.log_end)
        assert len(follower._marks) == 8
        tear(store, COUNT - 10)
        put(store, "a", 20, size)
        expected = [record for record in view.scan() if record.physical_offset >= oldest]
        assert len(expected) >= 17
        assert list(follower.new()) == expected
        assert list(follower.new()) == []


def test_marks_of_several_files(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    starts = record_starts(store)
    for count in (1, 7, 30, COUNT, COUNT + 1):
        monkeypatch.setattr(following, "_MARKS", count)
        with mqstore.inspect(store) as view:
            marks = Follower(view, view.log_end)._marks
            assert [one.physical_offset for one in marks] == starts[-count:]
            assert marks == deque((one for chunk in view.scan_columns() for one in following._marks_of(chunk)), count)


def test_torn_while_it_is_looked(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read behind the newest message may be of a log that was cut in front of it."""
    with mqstore.inspect(store) as view:
        follower = Follower(view, view.log_end)
        real, calls, expected = LogReader.end_offset, itertools.count(), list[bytes]()

        def end_offset(self: LogReader) -> int:
            if self is view.log and next(calls) == 0:
                tear(store, COUNT - 5)
                expected.extend(put(store, "a", 12))
            return real(self)

        monkeypatch.setattr(LogReader, "end_offset", end_offset)
        seen = [record.body for record in itertools.chain(follower.new(), follower.new(), follower.new())]
        assert seen == expected


def test_expired_meanwhile(store: Path) -> None:
    with mqstore.inspect(store) as view:
        follower = Follower(view, view.log_end)
        expected = put(store, "a", 90)
        last = max(path for path in (store / "commitlog").iterdir() if path.stat().st_size)
        for path in (store / "commitlog").iterdir():
            if path < last:
                path.unlink()
        left = [record.body for record in follower.new()]
        assert left == expected[-len(left) :] != []
        assert log_file(store) != last
