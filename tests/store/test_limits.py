"""Few descriptors, few addresses, a full disk, sizes and permissions that end too early."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import mqstore
from mqstore import (
    DiskFullError,
    Message,
    StoreIOError,
)
from mqstore.files.mapped_file import MappedFile
from store.hostile import SIZES
from store.support import findings

pytestmark = pytest.mark.timeout(60)


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
