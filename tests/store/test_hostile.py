"""Whatever lies in a store's directory: an answer or one of our errors, with a hint; never a crash or a hang.

Nothing hostile is ever written through, either: each case also opens the store for writing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import mqstore
from mqstore import (
    CorruptFileError,
    DiskFullError,
    Message,
    MessageIllegalError,
    MqstoreError,
    NotAStoreError,
    StoreIOError,
    UsageError,
)
from mqstore.files.mapped_file import MappedFile
from mqstore.layout.record import encode_record
from mqstore.store.check import check_store
from mqstore.store.rebuild import rebuild
from store.support import SMALL, bodies, body_of, fill, findings, forget_note, log_file, open_small, overwrite

# Queue files longer than SMALL's: a hostile queue offset may make a thousand of them.
SIZES = {**SMALL, "mapped_file_size_consume_queue": 2000}
COUNT = 30

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Thirty messages of one queue in three log files and two index files; for copying."""
    store = tmp_path_factory.mktemp("original") / "store"
    fill(store, COUNT, **SIZES)
    return store


@pytest.fixture
def store(original: Path, tmp_path: Path) -> Path:
    return shutil.copytree(original, tmp_path / "store")


def look(store: Path) -> None:
    with mqstore.inspect(store) as view:
        list(view.scan(on_damage=lambda damage: True))
        list(view.blanks())
        view.queues()
        view.progress()
        view.get("T", 0, 0)
        list(view.units("T", 0))
        view.query("T", "k1")
        view.offset_at("T", 0, 1)
        _ = view.checkpoint, view.was_aborted, view.settings.topics


def check(store: Path) -> None:
    with mqstore.inspect(store) as view:
        check_store(view, lambda finding: None)


def rebuild_copy(store: Path, *, salvage: bool = False) -> None:
    output = store.parent / "rebuilt"
    shutil.rmtree(output, ignore_errors=True)
    rebuild(store, output, salvage=salvage)


def salvage(store: Path) -> None:
    rebuild_copy(store, salvage=True)


def write(store: Path) -> None:
    with open_small(store, **SIZES) as opened:
        result = opened.put(Message("T", b"one more", queue_id=0))
        assert opened.message_at(result.physical_offset).body == b"one more"
        opened.get("T", 0, result.queue_offset)


ACTIONS: list[Callable[[Path], None]] = [look, check, rebuild_copy, salvage, write]


def try_everything(store: Path) -> list[str]:
    """Do all there is to do; the names of the errors met."""
    met = []
    for action in ACTIONS:
        try:
            action(store)
        except MqstoreError as error:
            assert error.hint, f"{action.__name__}: {error!r}"  # noqa: PT017
            met.append(f"{action.__name__}: {type(error).__name__}")
    return met


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
    "newest index file",
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


INTS = [0, -1, 1, 7, 2000, 4096, 5000, (1 << 31) - 1, -(1 << 31)]
LONGS = [0, -1, 4096, 1 << 40, 1 << 62, (1 << 63) // 20 - 1, (1 << 63) - 1, -(1 << 63)]
RECORD = {4: INTS, 0: INTS, 8: INTS, 12: INTS, 20: LONGS, 28: LONGS, 36: INTS, 56: LONGS, 84: INTS}
UNIT = {0: LONGS, 8: INTS, 12: LONGS}
INDEX = {0: LONGS, 8: LONGS, 16: LONGS, 24: LONGS, 32: INTS, 36: INTS, 44: INTS, 92: INTS, 96: LONGS, 104: INTS,
         108: [*INTS, 2, 3]}  # fmt: skip
CHECKPOINT = dict.fromkeys((0, 8, 16, 24, 32), LONGS)


def fields(places: dict[int, list[int]]) -> list[tuple[int, bytes]]:
    return [
        (position, struct.pack(">i" if set(INTS) & set(values) >= {5000} else ">q", value))
        for position, values in places.items()
        for value in values
    ]


@pytest.mark.parametrize(("position", "value"), fields(RECORD), ids=str)
def test_any_value_in_a_field_of_a_record(store: Path, position: int, value: bytes) -> None:
    with mqstore.inspect(store) as view:
        third = [record.physical_offset for record in view.scan()][3]
    overwrite(log_file(store), third + position, value)
    forget_note(store)
    try_everything(store)


@pytest.mark.parametrize(("position", "value"), fields(UNIT), ids=str)
def test_any_value_in_a_field_of_a_queue_unit(store: Path, position: int, value: bytes) -> None:
    overwrite(store / "consumequeue/T/0/00000000000000000000", 5 * 20 + position, value)
    try_everything(store)  # with the note only the end of a queue is looked at
    forget_note(store)
    assert not [one for one in try_everything(store) if not one.startswith("look")]
    assert bodies(store)[:COUNT] == [body_of(number) for number in range(COUNT)]


@pytest.mark.parametrize(("position", "value"), fields(INDEX), ids=str)
def test_any_value_in_an_index_file(store: Path, position: int, value: bytes) -> None:
    overwrite(max((store / "index").iterdir()), position, value)
    met = try_everything(store)
    assert not [one for one in met if not one.startswith("look")]  # only a query may say that it could not look
    with mqstore.inspect(store) as view:  # writing has mended it
        assert [message.body for message in view.query("T", "k29").messages] == [body_of(29)]


@pytest.mark.parametrize(("position", "value"), fields(CHECKPOINT), ids=str)
def test_any_value_in_the_checkpoint(store: Path, position: int, value: bytes) -> None:
    overwrite(store / "checkpoint", position, value)
    (store / "abort").touch()
    forget_note(store)
    assert try_everything(store) == []


@pytest.mark.parametrize("length", [0, 1, 10, 24, 4095])
def test_a_short_checkpoint_does_not_keep_a_store_closed(store: Path, length: int) -> None:
    os.truncate(store / "checkpoint", length)
    write(store)
    assert findings(store) == []


SETTINGS = [
    b"", b"{", b"null", b"[]", b'""', b"0", b"[" * 100_000, b'{"a":' * 100_000, b"\xff\xfe", b"1" * 5000, b"1e999",
    b"NaN", b'{"offsetTable":5}', b'{"offsetTable":{"a":1}}', b'{"offsetTable":{"a@b":{0:"x"}}}',
    b'{"offsetTable":{"a@b":{-5:99999999999999999999999}}}', b'{"offsetTable":{"none":{0:1}}}',
    b'{"offsetTable":{"T@g":{0:1e999}}}', b'{"offsetTable":{"T@\\ud800g":{0:1}}}', b'{"topicConfigTable":{"T":null}}',
    b'{"topicConfigTable":{"T":{"writeQueueNums":1e999}}}', b'{"topicConfigTable":{"../x":{"topicName":"../x"}}}',
    b'{"dataVersion":{"counter":"x"}}', b'{"version":1,"logOffset":1e999}',
]  # fmt: skip
NAMES = ["config/topics.json", "config/consumerOffset.json", "config/subscriptionGroup.json", "config/delayOffset.json",
         "mqstore-dispatch.json"]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_any_content_of_a_settings_file(original: Path, tmp_path: Path, name: str) -> None:
    for number, content in enumerate(SETTINGS):
        store = shutil.copytree(original, tmp_path / str(number) / "store")
        (store / name).write_bytes(content)
        met = try_everything(store)
        assert name != "mqstore-dispatch.json" or met == [], content
        assert all(one.endswith("CorruptConfigError") for one in met), content


def note_values(note: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    children = note.items() if isinstance(note, dict) else enumerate(note) if isinstance(note, list) else None
    if children is None:
        yield place
        return
    for name, child in children:
        yield from note_values(child, (*place, name))


def test_any_value_in_the_note_of_dispatch(original: Path, tmp_path: Path) -> None:
    note = json.loads((original / "mqstore-dispatch.json").read_text())
    values = [None, 7, "x", (1 << 63) - 1]
    for number, place in enumerate(note_values(note)):
        store = shutil.copytree(original, tmp_path / str(number))
        for value in values:
            changed = json.loads(json.dumps(note))
            inner = changed
            for name in place[:-1]:
                inner = inner[name]
            inner[place[-1]] = value
            (store / "mqstore-dispatch.json").write_text(json.dumps(changed))
            mqstore.open(store).close()
            assert findings(store) == [], (place, value)
            assert (store / "mqstore-dispatch.json").read_bytes() == (original / "mqstore-dispatch.json").read_bytes()


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


LIMITED = """
import resource, sys
import mqstore
from mqstore import Message
path = sys.argv[1]
with mqstore.open(path, mapped_file_size_commit_log=1 << 20, max_hash_slot_num=50, max_index_num=200) as store:
    {limit}
    for round in range(3):
        store.put_batch([Message(f"T{{queue}}", b"x", keys=["k"], queue_id=0) for queue in range(500)])
    assert store.wait_dispatched(60)
    assert all(len(store.get(f"T{{queue}}", 0).messages) == 3 for queue in range(500))
    store.flush()
{limit}
with mqstore.open(path) as store:
    assert len(store.query("T7", "k").messages) == 3
with mqstore.inspect(path) as view:
    assert sum(queue.count for queue in view.queues()) == 1500
print("done")
"""


@pytest.mark.parametrize(
    "limit",
    [
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))",
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))",
    ],
    ids=["64 open files", "1 GiB of addresses"],
)  # fmt: skip
def test_five_hundred_queues_with_little(tmp_path: Path, limit: str) -> None:
    # The limit holds before the first file is opened.
    script = LIMITED.format(limit=limit).replace("path = ", f"{limit}\npath = ", 1)
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "store")], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.stdout, done.stderr) == ("done\n", "")


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A file system of two megabytes."""
    with tempfile.TemporaryDirectory() as name:
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=2m", "none", name], capture_output=True, check=False
        )
        if mounted.returncode:
            pytest.skip("may not mount a file system here")
        try:
            yield Path(name)
        finally:
            subprocess.run(["umount", "-l", name], check=True)


def put_unless_full(store: mqstore.Store) -> int | None:
    try:
        return store.put(Message("T", bytes(2000), keys=["k"], queue_id=0)).physical_offset
    except DiskFullError as error:
        assert error.retriable  # noqa: PT017
        return None


def test_a_full_disk_loses_nothing_and_ends_when_there_is_space(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(600_000))
    path = small_disk / "store"
    sizes = {**SIZES, "mapped_file_size_commit_log": 1 << 17, "mapped_file_size_consume_queue": 4000}
    with mqstore.open(path, **sizes) as store:
        stored = []
        while (offset := put_unless_full(store)) is not None:
            stored.append(offset)
        files = len(os.listdir("/proc/self/fd"))
        for _ in range(50):
            assert put_unless_full(store) is None
        assert len(os.listdir("/proc/self/fd")) <= files + 2
        assert all(store.message_at(offset) is not None for offset in stored)
        ballast.unlink()
        stored.append(store.put(Message("T", bytes(2000), keys=["k"], queue_id=0)).physical_offset)
        assert store.wait_dispatched(20)
        assert len(store.query("T", "k", max_messages=10_000).messages) == len(stored)
    with mqstore.inspect(path) as view:
        assert [record.physical_offset for record in view.scan()] == stored
    assert findings(path) == []


def test_what_is_reserved_can_be_read_and_written_when_the_disk_is_full(small_disk: Path) -> None:
    """On this file system even reading a page that was never written takes space; without it the process dies."""
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(1_900_000))
    first, second = (MappedFile(small_disk / name, 1 << 20, create=True) for name in "ab")
    first.reserve(10_000)
    subprocess.run(["dd", "if=/dev/zero", f"of={ballast}.2", "bs=4096"], capture_output=True, check=False)
    assert os.statvfs(small_disk).f_bavail == 0
    for file, end in ((first, 12_288), (second, 4096)):
        assert file.reserved_to == end
        with pytest.raises(DiskFullError):
            file.reserve(1 << 20)
        assert file.buffer[:end] == bytes(end)
        file.buffer[:end] = b"x" * end
        file.close()


def test_a_limit_on_file_sizes_is_told(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    try:
        with (
            pytest.raises(StoreIOError) as caught,
            mqstore.open(tmp_path, mapped_file_size_commit_log=1 << 20) as store,
        ):
            store.put(Message("T", b"x"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "ulimit -f" in str(caught.value.hint)


def test_files_that_may_not_be_read(original: Path) -> None:
    """Permissions do not bind root, so a child does it that is nobody."""
    with tempfile.TemporaryDirectory() as scratch:
        os.chmod(scratch, 0o755)
        for name in ("checkpoint", "commitlog/00000000000000000000", "config/topics.json", "commitlog", "."):
            store = shutil.copytree(original, Path(scratch) / name.replace("/", "-").replace(".", "root"))
            for path in [store, *store.rglob("*")]:
                path.chmod(0o755 if path.is_dir() else 0o644)
            (store / name).chmod(0)
            script = (
                "import os, sys, mqstore\nfrom mqstore.store.check import *\n''.encode('utf-16-be')\n"
                "if os.getuid() == 0: os.setuid(65534)\n"
                "for action in (lambda p: check_store(mqstore.inspect(p), lambda f: None), mqstore.open):\n"
                "    try: action(sys.argv[1])\n"
                "    except mqstore.StoreIOError as error: print(error.hint[:5])\n"
            )
            done = subprocess.run(
                [sys.executable, "-c", script, str(store)], capture_output=True, text=True, check=False, cwd="/"
            )
            (store / name).chmod(0o755)
            assert (done.stdout, done.stderr) == ("give \ngive \n", ""), name


ODD: list[Any] = [None, True, 0.5, "x", b"x", -1, 1 << 70, [], {}, float("nan"), "\ud800", ["\ud800"], [None], {1: "a"}]


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(Message)])
def test_odd_fields_of_messages_are_stored_or_refused(tmp_path: Path, name: str) -> None:
    sound = Message("T", b"sound")
    with open_small(tmp_path / "s") as running:
        stored = 0
        for value in ODD:
            odd = dataclasses.replace(sound, **{name: value})
            for put in (lambda one: [running.put(one)], lambda one: running.put_batch([sound, one])):
                with contextlib.suppress(MessageIllegalError, UsageError):
                    stored += len(put(odd))
        running.wait_dispatched()
        assert sum(queue.count for queue in running.queues()) == stored
        assert running.check() == []


def test_odd_arguments_are_refused(store: Path) -> None:
    """The numbers that lead into files: not one of the odd values passes for an offset, a queue or a time."""
    with mqstore.open(store, **SIZES) as running, mqstore.inspect(store) as view:
        calls: list[Callable[[Any], object]] = []
        for one in (running, view):
            calls += [
                lambda value, one=one: one.get("T", value),
                lambda value, one=one: one.get(value if isinstance(value, int | float) else 5, 0),
                lambda value, one=one: one.get("T", 0, value),
                lambda value, one=one: one.get("T", 0, 0, value),
                lambda value, one=one: one.offset_at("T", 0, value),
                lambda value, one=one: one.query("T", "k1", value),
                lambda value, one=one: one.query("T", "k1", 0, value),
            ]
        calls += [
            running.message_at,
            lambda value: running.max_offset("T", value),
            lambda value: running.min_offset("T", value),
            lambda value: running.commit_offset("g", "T", 0, value),
            lambda value: running.commit_offset("g", "T", value, 0),
            lambda value: running.wait_arrival(value, 0),
            lambda value: running.consumer("g", "T", timeout_s=value if value is not None else "x"),
        ]
        for call in calls:
            for value in ODD:
                if value == -1 or (value == 0.5 and call is calls[-1]):
                    continue  # a time or an offset may be before the first; half a second is a time to wait
                with pytest.raises(UsageError):
                    call(value)


def test_an_open_that_fails_lets_go_of_everything(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path, data: bytes) -> None:
        raise StoreIOError("no", path=path)

    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr("mqstore.store.engine.durable.replace_file", fail)
    for _ in range(3):
        with pytest.raises(StoreIOError):
            mqstore.open(store, **SIZES)
    monkeypatch.undo()
    assert len(os.listdir("/proc/self/fd")) == before
    with mqstore.open(store, **SIZES) as running:
        assert running.check() == []


def test_a_close_that_fails_lets_go_of_everything(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise StoreIOError("no")

    before = len(os.listdir("/proc/self/fd"))
    running = mqstore.open(store, **SIZES)
    monkeypatch.setattr(running._engine, "save_settings", fail)
    with pytest.raises(StoreIOError):
        running.close()
    assert len(os.listdir("/proc/self/fd")) == before
    with mqstore.open(store, **SIZES) as again:
        assert again.check() == []


def test_check_beside_the_writer_knows_of_queues_that_are_new(tmp_path: Path) -> None:
    """A message without keys leaves the index behind: its queue is not one of which the log holds nothing."""
    with open_small(tmp_path / "s") as running:
        running.put(Message("T", b"1", keys=["k"]))
        running.wait_dispatched()
        for number in range(5):
            running.put(Message(f"new{number}", b"2", queue_id=0))
            running.wait_dispatched()
            assert running.check() == []
