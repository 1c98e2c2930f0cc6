"""Few descriptors, few addresses, a full disk, sizes and permissions that end too early."""

from __future__ import annotations

import errno
import mmap
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import mqstore
from mqstore import (
    DiskFullError,
    Message,
    MessageIllegalError,
    StoreClosedError,
    StoreIOError,
    UsageError,
)
from mqstore.files import mapped_file
from mqstore.files.mapped_file import MappedFile
from store.hostile import SIZES
from store.support import bodies, body_of, fill, findings, open_small

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
        [sys.executable, "-c", script, str(tmp_path / "store")], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("done\n", "")


NO_ROOM = """
import resource, sys
from pathlib import Path
import mqstore
from mqstore import Message

path, hard = sys.argv[1], resource.getrlimit(resource.RLIMIT_AS)[1]
with mqstore.open(path) as store:
    store.put(Message("t", b"x", queue_id=0))
failures = 0
for mib in (0, 1, 2, 4, 6, 9, 12, 20):
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    for ask in (lambda: mqstore.open(path), lambda: mqstore.inspect(path)):
        resource.setrlimit(resource.RLIMIT_AS, (used + (mib << 20), hard))
        failure = opened = None
        try:
            opened = ask()
            opened.scan().__next__()
        except mqstore.StoreIOError as error:
            failure = error
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
        if opened is not None:
            opened.close()
        if failure is not None:
            failures += 1
            assert "ulimit -v" in str(failure.hint), (str(failure), failure.hint)
    with mqstore.open(path) as store:
        assert store.get("t").messages[0].body == b"x"
assert failures
print("done")
"""


def test_an_open_for_which_there_is_no_room_names_the_limit_and_lets_go_of_everything(tmp_path: Path) -> None:
    with open_small(tmp_path / "store"):
        pass
    done = subprocess.run(
        [sys.executable, "-c", NO_ROOM, str(tmp_path / "store")], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("done\n", "")


MANY_QUEUES = """
import os, resource, sys
import mqstore
from mqstore import Message
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
os.fsync = os.fdatasync = lambda fd: None
path, topics, queues = sys.argv[1], range(40), 250
sizes = dict(mapped_file_size_commit_log=1 << 24, mapped_file_size_consume_queue=200, max_hash_slot_num=50)
with mqstore.open(path, max_index_num=200, message_index_enable=False, **sizes) as store:
    for turn in range(2):
        for topic in topics:
            store.put_batch([Message(f"T{topic}", b"%d" % turn, queue_id=queue) for queue in range(queues)])
        assert store.wait_dispatched(120)
    for topic in topics:
        for queue in range(0, queues, 7):
            assert [one.body for one in store.get(f"T{topic}", queue).messages] == [b"0", b"1"]
    assert len(os.listdir("/proc/self/fd")) < 200
with mqstore.open(path, message_index_enable=False) as store:
    assert [one.count for one in store.queues()] == [2] * 10_000
    assert store.put(Message("T7", b"2", queue_id=249)).queue_offset == 2
with mqstore.inspect(path) as view:
    assert sum(queue.count for queue in view.queues()) == 20_001
print("done")
"""


@pytest.mark.slow
def test_ten_thousand_queues_with_256_descriptors() -> None:
    base = Path("/dev/shm")  # the files are many, and where they lie does not matter here
    with tempfile.TemporaryDirectory(dir=base if os.access(base, os.W_OK) else None) as name:
        done = subprocess.run(
            [sys.executable, "-c", MANY_QUEUES, f"{name}/store"], capture_output=True, text=True, check=False
        )
    assert (done.stdout, done.stderr) == ("done\n", "")


def test_a_file_that_cannot_be_mapped_is_told_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many maps, or no addresses left; afterwards the store goes on where it was."""
    fill(tmp_path / "s", 20)

    class Maps:
        PAGESIZE = mmap.PAGESIZE

        @staticmethod
        def mmap(*arguments: object) -> object:
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    with monkeypatch.context() as patch:
        patch.setattr(mapped_file, "mmap", Maps)
        with pytest.raises(StoreIOError) as caught:
            open_small(tmp_path / "s")
        assert str(caught.value.path).startswith(str(tmp_path / "s" / "index" / "2"))
        assert "max_map_count" in str(caught.value.hint)
        assert bodies(tmp_path / "s") == [body_of(number) for number in range(20)]
    with open_small(tmp_path / "s") as store:
        with monkeypatch.context() as patch:
            patch.setattr(mapped_file, "mmap", Maps)
            with pytest.raises(StoreIOError):
                put_many(store, 40)
        put_many(store, 40)
        assert store.wait_dispatched(60)
    assert findings(tmp_path / "s") == []


def put_many(store: mqstore.Store, count: int) -> None:
    for _ in range(count):
        store.put(Message("T", bytes(100), queue_id=0))


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
        assert store.wait_dispatched(60)
        assert len(store.query("T", "k", max_messages=10_000).messages) == len(stored)
    with mqstore.inspect(path) as view:
        assert [record.physical_offset for record in view.scan()] == stored
    assert findings(path) == []


def test_a_file_system_that_may_only_be_read(small_disk: Path) -> None:
    path = small_disk / "store"
    fill(path, 20)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    for place in (path, small_disk / "new"):
        with pytest.raises(StoreIOError) as caught:
            open_small(place)
        assert "permission" in str(caught.value) or "Read-only" in str(caught.value)
    assert bodies(path) == [body_of(number) for number in range(20)]
    assert findings(path) == []
    with mqstore.inspect(path) as view:
        assert len(view.query("T", "k7").messages) == 1
    subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    with open_small(path) as store:
        assert store.put(Message("T", b"", queue_id=0)).queue_offset == 20


def test_a_directory_that_may_only_be_read(tmp_path: Path) -> None:
    """Permissions do not bind root, so a child does it that is nobody; what it says first is the cause."""
    with tempfile.TemporaryDirectory() as scratch:
        os.chmod(scratch, 0o755)
        store = Path(scratch) / "store"
        fill(store, 20)
        for path in [store, *store.rglob("*")]:
            path.chmod(0o555 if path.is_dir() else 0o444)
        script = (
            "import os, sys, mqstore\nif os.getuid() == 0: os.setuid(65534)\n"
            "try: mqstore.open(sys.argv[1])\nexcept mqstore.StoreIOError as error: print(error, os.getuid())\n"
            "with mqstore.inspect(sys.argv[1]) as view: print(len(view.get('T').messages))\n"
        )
        command = [sys.executable, "-c", script, str(store)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
        for path in [store, *store.rglob("*")]:
            path.chmod(0o755)
        assert done.stdout.startswith(f"no write permission on the store directory; path {store}; found user ")
        assert done.stdout.endswith("\n10\n")
        assert done.stderr == ""
        with open_small(store) as opened:
            assert opened.put(Message("T", b"", queue_id=0)).queue_offset == 20


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
    assert "segment_bytes" in str(caught.value.hint)


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


def put_by(store: mqstore.Store, way: str, body: bytes) -> None:
    if way == "put":
        store.put(Message("T", body, queue_id=0))
    elif way == "put_batch":
        store.put_batch([Message("T", b"first", queue_id=0), Message("T", body, queue_id=0)])
    else:
        store.put_table(pa.table({"topic": ["T"], "body": [body], "queueId": [0]}))


@pytest.mark.parametrize("way", ["put", "put_batch", "put_table"])
def test_a_new_largest_size_holds_from_the_next_put_on(tmp_path: Path, way: str) -> None:
    with open_small(tmp_path / "s", mapped_file_size_commit_log=1 << 20, max_message_size=100) as store:
        store.put(Message("T", b"", queue_id=0))  # the topic is known: what follows may go by the compiled path
        with pytest.raises(MessageIllegalError, match="body is larger than max_message_size"):
            put_by(store, way, bytes(101))
        store.max_message_size = 101
        put_by(store, way, bytes(101))
        with pytest.raises(MessageIllegalError, match="body is larger") as caught:
            put_by(store, way, bytes(102))
        assert (caught.value.expected, caught.value.found) == ("at most 101 bytes", 102)
        store.max_message_size = 7
        with pytest.raises(MessageIllegalError, match="body is larger"):
            put_by(store, way, bytes(8))
        put_by(store, way, bytes(7))
        assert store.max_message_size == store.config.max_message_size == 7
    assert [len(body) for body in bodies(tmp_path / "s") if set(body) <= {0}] == [0, 101, 7]
    with mqstore.open(tmp_path / "s") as store:
        assert store.max_message_size == 4 << 20


@pytest.mark.parametrize("value", [0, -1, 1 << 31, True, 2.5, "100", None])
def test_a_largest_size_that_cannot_be_is_refused(tmp_path: Path, value: object) -> None:
    with open_small(tmp_path / "s", max_message_size=100) as store:
        with pytest.raises(UsageError, match="max_message_size"):
            store.max_message_size = value  # type: ignore[assignment]
        assert store.max_message_size == 100
        with pytest.raises(MessageIllegalError):
            store.put(Message("T", bytes(101)))
    with pytest.raises(StoreClosedError):
        store.max_message_size = 200
    with pytest.raises(UsageError, match="max_message_size"):
        mqstore.open(tmp_path / "new", max_message_size=value)  # type: ignore[arg-type]


def test_threads_change_the_largest_size_while_others_put(tmp_path: Path) -> None:
    """Whoever set it last is who counts, and a put never goes by another limit than one of those set."""
    with open_small(tmp_path / "s", mapped_file_size_commit_log=1 << 20, max_message_size=50) as store:
        refused: list[object] = []

        def change(own: int) -> None:
            for _ in range(200):
                store.max_message_size = own

        def put() -> None:
            for _ in range(200):
                store.put(Message("T", bytes(40), queue_id=0))
                with pytest.raises(MessageIllegalError) as caught:
                    store.put(Message("T", bytes(61), queue_id=0))
                refused.append(caught.value.expected)

        threads = [threading.Thread(target=change, args=(own,)) for own in (40, 50, 60)]
        threads += [threading.Thread(target=put) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(refused) == 400
        assert set(refused) <= {f"at most {own} bytes" for own in (40, 50, 60)}
        last = store.max_message_size
        store.put(Message("T", bytes(last), queue_id=0))
        with pytest.raises(MessageIllegalError):
            store.put(Message("T", bytes(last + 1), queue_id=0))
        store.wait_dispatched()
        assert store.max_offset("T", 0) == 401
