"""A disk that forgets: what a directory may look like after the power failed at this moment.

The store runs on a real directory. Every sync it makes goes through :mod:`mqstore.files.durable`, where this layer
notes what is safe from then on: the bytes of a file after its sync, the names of a directory after its sync. All else
is at the mercy of a seeded random choice: a sector that was written and not synced may be there or not, alone or in
part; a file that was created or removed may have its name or not.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from mqstore.files import durable

SECTOR = 512


class ForgetfulDisk:
    """Watches the syncs below ``root`` and makes states of it that a power failure could leave."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.guard = threading.RLock()
        self._contents: dict[int, bytes] = {}
        self._names: dict[Path, dict[str, int]] = {root: {}}
        self.at_sync: Callable[[], None] = lambda: None
        """Called before and after every sync, with no other sync going on."""
        self._watch(monkeypatch)

    def _watch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        sync_file, sync_directory, create_file = durable.sync_file, durable.sync_directory, durable.create_file

        def watched_sync_file(fd: int, path: str | os.PathLike[str]) -> None:
            if not self._is_mine(path):
                sync_file(fd, path)
                return
            with self.guard:
                self.at_sync()
                status = os.fstat(fd)
                content = os.pread(fd, status.st_size, 0)  # before the sync: what comes later is not covered by it
                sync_file(fd, path)
                self._contents[status.st_ino] = content
                self.at_sync()

        def watched_sync_directory(path: str | os.PathLike[str]) -> None:
            if not self._is_mine(path):
                sync_directory(path)
                return
            with self.guard:
                self.at_sync()
                names = _listing(Path(path))
                sync_directory(path)
                if self.is_safe_directory(Path(path)):
                    self._names[Path(path)] = names
                self.at_sync()

        def watched_create_file(path: Path, size_bytes: int) -> int:
            fd = create_file(path, size_bytes)
            with self.guard:
                self._contents.pop(os.fstat(fd).st_ino, None)  # a number that another file had before
            return fd

        monkeypatch.setattr(durable, "sync_file", watched_sync_file)
        monkeypatch.setattr(durable, "sync_directory", watched_sync_directory)
        monkeypatch.setattr(durable, "create_file", watched_create_file)

    def is_safe_directory(self, path: Path) -> bool:
        """Whether syncing this directory does any good; for trying what happens when it does not."""
        return True

    def _is_mine(self, path: str | os.PathLike[str]) -> bool:
        place = Path(path)
        return place == self.root or self.root in place.parents

    def fail(self, target: Path, rng: random.Random) -> None:
        """Make ``target`` one of the directories that a failure at this moment could leave."""
        with self.guard:
            self._make(self.root, target, rng)

    def _make(self, source: Path, target: Path, rng: random.Random) -> None:
        target.mkdir()
        safe, now = self._names.get(source, {}), _listing(source)
        for name, chosen in _choose_names(safe, now, rng).items():
            if chosen is None:
                continue
            here = source / name
            if chosen == now.get(name) and here.is_dir():
                self._make(here, target / name, rng)
                continue
            current = _read(here) if chosen == now.get(name) else None
            if current is None:
                current = self._contents.get(chosen)
            if current is not None:  # else a directory that is gone, or a file that was never synced
                (target / name).write_bytes(_mix(self._contents.get(chosen, b""), current, rng))


def _choose_names(safe: dict[str, int], now: dict[str, int], rng: random.Random) -> dict[str, int | None]:
    """For each name what it leads to: what it did when last synced, or what it does now.

    A file that was renamed has its old name or its new one, and never none or both: file systems do that at once.
    """
    chosen = {name: rng.choice([safe.get(name), now.get(name)]) for name in sorted(safe.keys() | now.keys())}
    new_names = {inode: name for name, inode in now.items()}
    for old, inode in sorted(safe.items()):
        new = new_names.get(inode, old)
        if new != old:
            is_new = rng.random() < 0.5
            chosen[old], chosen[new] = (now.get(old), inode) if is_new else (inode, safe.get(new))
    return chosen


def _listing(directory: Path) -> dict[str, int]:
    try:
        with os.scandir(directory) as entries:
            return {entry.name: entry.inode() for entry in entries}
    except FileNotFoundError:
        return {}


def _read(path: Path) -> bytes | None:
    """The bytes of a file; None when another thread has renamed or removed it since it was listed."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _mix(safe: bytes, current: bytes, rng: random.Random) -> bytes:
    """What a file may hold whose safe bytes are ``safe`` and whose bytes in memory are ``current``."""
    if safe == current:
        return safe
    length = rng.choice([len(safe), len(current)])
    safe, current = safe[:length].ljust(length, b"\0"), current[:length].ljust(length, b"\0")
    way = rng.randrange(4)
    if way == 0:
        return safe
    if way == 1:
        return current
    parts = []
    border = rng.randrange(length + 1) if length else 0
    for start in range(0, length, SECTOR):
        stop = min(length, start + SECTOR)
        if way == 2:  # written in order up to some byte
            cut = min(max(border, start), stop)
            parts.append(current[start:cut] + safe[cut:stop])
        else:
            parts.append((current if rng.random() < 0.5 else safe)[start:stop])
    return b"".join(parts)
