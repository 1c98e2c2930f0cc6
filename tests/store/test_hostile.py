"""Whatever lies in a store's directory: an answer or one of our errors, with a hint; never a crash or a hang.

Nothing hostile is ever written through, either: each case also opens the store for writing.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import mqstore
from mqstore import (
    CorruptFileError,
    NotAStoreError,
    StoreIOError,
    UsageError,
)
from mqstore.layout.record import encode_record
from mqstore.store.rebuild import rebuild
from store.hostile import COUNT, SIZES, rebuild_copy, try_everything
from store.support import bodies, body_of, findings, log_file, open_small, overwrite


def write_pipe(path: Path) -> None:
    os.mkfifo(path)


def write_directory(path: Path) -> None:
    path.mkdir()


def write_loop(path: Path) -> None:
    path.symlink_to(path.name)


def write_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def write_null_device(path: Path) -> None:
    path.symlink_to("/dev/null")


def write_nothing(path: Path) -> None:
    path.touch()


def write_noise(path: Path) -> None:
    path.write_bytes(bytes(range(7, 250)) * 12)


def leave_out(path: Path) -> None:
    pass


PLACES = [
    "checkpoint", "mqstore-dispatch.json", "abort", "lock", "commitlog/00000000000000000000",
    "commitlog/00000000000000004096", "consumequeue/T/0/00000000000000000000", "config/topics.json",
    "config/consumerOffset.json", "index", "commitlog", "consumequeue", "config", "consumequeue/T", "consumequeue/T/0",
    "newest index file", "mqstore-progress.json",
]  # fmt: skip
KINDS = [
    write_pipe,
    write_directory,
    write_loop,
    write_device,
    write_null_device,
    write_nothing,
    write_noise,
    leave_out,
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("place", PLACES)
def test_something_else_in_place_of(store: Path, place: str, kind: Callable[[Path], None]) -> None:
    path = max((store / "index").iterdir()) if place == "newest index file" else store / place
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    kind(path)
    try_everything(store)


@pytest.mark.parametrize("kind", [write_pipe, write_directory, write_loop], ids=lambda kind: kind.__name__)
def test_a_log_file_that_is_no_file_is_not_passed_over(store: Path, kind: Callable[[Path], None]) -> None:
    log_file(store).unlink()
    kind(log_file(store))
    assert "something else than a file under the name of one" in [finding.message for finding in findings(store)]
    with pytest.raises(CorruptFileError):
        open_small(store, **SIZES)
    with pytest.raises(CorruptFileError):
        rebuild_copy(store)


def test_the_lock_is_not_taken_through_a_link(store: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("0123456789")
    (store / "lock").unlink()
    (store / "lock").symlink_to(precious)
    with pytest.raises(StoreIOError):
        open_small(store, **SIZES)
    assert precious.read_text() == "0123456789"


TOPICS = [b"../../x", b"a/b", b"a\0b", b".", b"..", b"\xff\xfe", b"/etc/x", b"x" * 127]
QUEUES = [(0, 0), (-1, 0), ((1 << 31) - 1, 1 << 62), (-(1 << 31), -1), (0, (1 << 63) // 20 - 1), (0, 100_000)]


@pytest.mark.parametrize("topic", TOPICS, ids=str)
def test_a_record_leads_nowhere_outside_the_store(store: Path, tmp_path: Path, topic: bytes) -> None:
    with mqstore.inspect(store) as view:
        end = view.log_end
        newest = list(view.scan())[-1].store_timestamp_ms
    for queue_id, queue_offset in QUEUES:
        raw = encode_record(
            topic=topic, body=b"b", properties=b"KEYS\x01a b", queue_id=queue_id, flag=0, queue_offset=queue_offset,
            physical_offset=end, sys_flag=0, born_timestamp_ms=1, born_host=bytes(8), store_timestamp_ms=newest,
            store_host=bytes(8),
        )  # fmt: skip
        overwrite(log_file(store, end - end % 4096), end % 4096, raw)
        end += len(raw)
    try_everything(store)
    assert {path.name for path in tmp_path.iterdir()} <= {"store", "rebuilt"}
    assert {path.name for path in store.iterdir()} == {
        "commitlog", "consumequeue", "index", "config", "checkpoint", "lock", "mqstore-dispatch.json",
        "mqstore-progress.json",
    }  # fmt: skip
    assert bodies(store)[:COUNT] == [body_of(number) for number in range(COUNT)]


def test_names_that_are_no_store(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    names = ["missing", "file", "empty", "file/below", "loop"]
    for name in names:
        with pytest.raises(NotAStoreError) as caught:
            mqstore.inspect(tmp_path / name)
        assert caught.value.hint
        with pytest.raises(NotAStoreError):
            rebuild(tmp_path / name, tmp_path / "out")
    for name in ("file", "file/below", "loop", "x" * 5000, "nul\0"):
        with pytest.raises((NotAStoreError, StoreIOError, UsageError)):
            mqstore.open(tmp_path / name)
    for name in ("x" * 5000, "nul\0"):
        with pytest.raises((StoreIOError, UsageError)):
            mqstore.inspect(tmp_path / name)


def test_a_file_of_another_store_far_away(store: Path) -> None:
    log_file(store, (1 << 40) * 4096).write_bytes(log_file(store).read_bytes())
    met = try_everything(store)
    assert "salvage: CorruptFileError" in met  # and not four terabytes of files
    (store / "commitlog" / ("9" * 20)).write_bytes(b"no offset is that large")
    try_everything(store)


def test_a_rebuild_into_the_store_itself_is_refused(store: Path) -> None:
    for place in ("x", "commitlog/x", "."):
        with pytest.raises(UsageError):
            rebuild(store, store / place)
    (store / "commitlog" / "loop").symlink_to(".")
    rebuild_copy(store)
    assert not (store.parent / "rebuilt" / "commitlog" / "loop").exists()
