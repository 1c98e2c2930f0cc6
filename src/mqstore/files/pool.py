"""Reading many files by position with few descriptors.

A store with ten thousand queues has more files than a process may hold open. The pool opens files when they are
first read and closes the one that has not been used for longest. Reads use ``pread``: the pages are the same that a
live writer's maps show, no map can be cut away under the reader (SIGBUS), and a file that somebody shortens gives a
short read.

Only what this process writes through a map of its own is read there, too, while it is lent to the pool: a short read
then costs no system call.
"""

from __future__ import annotations

import contextlib
import os
import resource
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from mqstore import errors
from mqstore.files import durable
from mqstore.files.inventory import FileEntry, Identity
from mqstore.files.mapped_file import MappedFile
from mqstore.files.remote import RemoteFiles, RemotePath

_T = TypeVar("_T")

_MOST_IDLE = 64
_SHORT_BYTES = 64 << 10
"""More than this is worth a system call, during which other threads run."""
_NO_END = (1 << 63) - 1


def default_capacity() -> int:
    """How many idle files a pool keeps open: an eighth of what the process may have, 64 at most."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _MOST_IDLE if limit == resource.RLIM_INFINITY else min(_MOST_IDLE, max(1, limit // 8))


@dataclass(eq=False)
class _Slot:
    """One open file and how many readers are inside it."""

    fd: int
    users: int = 0

    @property
    def identity(self) -> Identity:
        """As in a list of files. A file that is open keeps its number, and no other gets that."""
        status = os.fstat(self.fd)
        return status.st_dev, status.st_ino


class FilePool:
    """Open files for reading (or for reading and writing), at most ``capacity`` idle ones at a time.

    Safe for use by several threads: a descriptor in use is never closed.
    """

    def __init__(self, capacity: int | None = None, *, writable: bool = False) -> None:
        """``capacity`` left out: what suits the limit of open files, of which a pool is not the only user."""
        self._capacity = max(1, capacity if capacity is not None else default_capacity())
        self._flags = (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC | os.O_NONBLOCK
        self._lock = threading.Lock()
        self._open: OrderedDict[Path, _Slot] = OrderedDict()
        self._doomed: list[_Slot] = []
        self._lent: dict[str, MappedFile] = {}  # by the path's text: two paths are compared in Python, texts are not
        self._remote = RemoteFiles()
        self._closed = False

    @contextlib.contextmanager
    def descriptor(self, path: Path) -> Iterator[int]:
        """Give a descriptor of ``path``, valid inside the ``with`` block only.

        Raises:
            StoreIOError: the file could not be opened.
        """
        slot = self._take(path)
        try:
            yield slot.fd
        finally:
            self._give_back(slot)

    @contextlib.contextmanager
    def created(self, path: Path, size_bytes: int) -> Iterator[int]:
        """Create ``path`` with ``size_bytes`` zeros and give its descriptor; the file stays in the pool after."""
        fd = durable.create_file(path, size_bytes)
        with self._lock:
            slot = self._open[path] = _Slot(fd, users=1)
            self._evict()
        try:
            yield fd
        finally:
            self._give_back(slot)

    def read(self, path: Path, position: int, size_bytes: int) -> bytes:
        """Read up to ``size_bytes`` bytes at ``position``; fewer only at the end of the file."""
        if size_bytes <= _SHORT_BYTES and (lent := self._lent.get(str(path))) is not None:
            end = position + size_bytes
            if position >= 0 and end <= lent.reserved_to:
                with contextlib.suppress(ValueError):  # its owner has just closed it
                    return lent.buffer[position:end]
        if isinstance(path, RemotePath):
            return self._remote.read(path, position, size_bytes)
        slot = self._take(path)  # as descriptor does, which costs more than the reading itself
        try:
            data = os.pread(slot.fd, size_bytes, position)
            while len(data) < size_bytes:
                more = os.pread(slot.fd, size_bytes - len(data), position + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            raise errors.from_os_error(error, "read", path) from error
        finally:
            self._give_back(slot)
        return data

    def read_parts(self, path: Path, parts: Iterable[tuple[int, int]], target: memoryview) -> list[int]:
        """Read parts of a file, each its position and its size, into ``target``, one behind the other.

        Returns how many bytes of each are there: fewer than asked for where the file ends before.

        Raises:
            StoreIOError: the file could not be read.
        """
        there, begin = [], 0
        if isinstance(path, RemotePath):
            for position, size_bytes in parts:
                data = self._remote.read(path, position, size_bytes)
                target[begin : begin + len(data)] = data
                there.append(len(data))
                begin += size_bytes
            return there
        with self.descriptor(path) as fd:
            try:
                for position, size_bytes in parts:
                    part = target[begin : begin + size_bytes]
                    count = os.preadv(fd, [part], position)
                    there.append(count if count == size_bytes else _fill(fd, position, part))
                    begin += size_bytes
            except OSError as error:
                raise errors.from_os_error(error, "read", path) from error
        return there

    def call(self, path: Path, function: Callable[..., _T], *args: object) -> _T | None:
        """``function(source, end, *args)``: the source is a descriptor of the file, or its map, good as far as ``end``.

        A function that gives None for the map is called for the descriptor as well.

        None for a file that has neither, in an object store.

        Raises:
            StoreIOError: the file could not be opened.
        """
        lent = self._lent.get(str(path))
        if lent is not None:
            try:
                result = function(lent.buffer, lent.reserved_to, *args)
            except ValueError:  # its owner has just closed it
                result = None
            if result is not None:
                return result
        if isinstance(path, RemotePath):
            return None
        slot = self._take(path)
        try:
            return function(slot.fd, _NO_END, *args)
        finally:
            self._give_back(slot)

    def in_map(self, path: Path, end: int, function: Callable[[memoryview], _T]) -> _T | None:
        """``function(map)`` for a file that is lent and good as far as position ``end``; None for any other.

        The function sees what of the map is safe to touch, and nothing behind it: on a full device that would end the
        process (SIGBUS).
        """
        lent = self._lent.get(str(path))
        if lent is None or end > lent.reserved_to:
            return None
        try:
            with memoryview(lent.buffer) as whole, whole[: lent.reserved_to] as safe:
                return function(safe)
        except ValueError:  # its owner has just closed it
            return None

    def lend(self, file: MappedFile) -> None:
        """Read ``file`` where its owner has mapped it, until :meth:`take_back`.

        Its owner may close it before that; no map is in use while other code of this process runs.
        """
        self._lent[str(file.path)] = file

    def take_back(self, file: MappedFile) -> None:
        """Read ``file`` by descriptor again."""
        self._lent.pop(str(file.path), None)

    def forget(self, path: Path) -> None:
        """Close ``path`` as soon as nobody uses it: it was removed, or replaced by another file."""
        if isinstance(path, RemotePath):
            self._remote.forget(path)
        with self._lock:
            slot = self._open.pop(path, None)
            if slot is not None:
                self._retire(slot)

    def note_listed(self, entries: Iterable[FileEntry]) -> None:
        """Let go of the files that are no longer those of their names, by a list that was made just now.

        A rebuild in place, or a copy that is made again, puts other files in their places.
        """
        for entry in entries:
            if entry.identity is None:
                continue
            if isinstance(entry.path, RemotePath):
                self._remote.note(entry.path, entry.identity)
                continue
            with self._lock:
                slot = self._open.get(entry.path)
                if slot is not None and slot.identity != entry.identity:
                    self._retire(self._open.pop(entry.path))

    def close(self) -> None:
        """Close every file that is not in use, and the others when their user is done; nothing is opened any more."""
        self._remote.close()
        with self._lock:
            self._closed = True
            slots = list(self._open.values())
            self._open.clear()
            for slot in slots:
                self._retire(slot)

    def _take(self, path: Path) -> _Slot:
        with self._lock:
            slot = self._open.get(path)
            if slot is None:
                self._check_open(path)
                slot = _Slot(self._open_file(path))
                self._open[path] = slot
                self._evict()
            else:
                self._open.move_to_end(path)
            slot.users += 1
            return slot

    def _check_open(self, path: Path) -> None:
        if self._closed:
            raise errors.StoreClosedError("read after closing", path=path, hint="open the store again")

    def _open_file(self, path: Path) -> int:
        try:
            return os.open(path, self._flags)
        except OSError as error:
            raise errors.from_os_error(error, "open file", path) from error

    def _give_back(self, slot: _Slot) -> None:
        with self._lock:
            slot.users -= 1
            if slot.users == 0 and slot in self._doomed:
                self._doomed.remove(slot)
                os.close(slot.fd)

    def _evict(self) -> None:
        """Close idle files that are too many, those first that have not been used for longest; never the newest."""
        newest = next(reversed(self._open))
        while len(self._open) > self._capacity:
            idle = next((path for path, slot in self._open.items() if slot.users == 0), newest)
            if idle is newest:
                return
            os.close(self._open.pop(idle).fd)

    def _retire(self, slot: _Slot) -> None:
        if slot.users == 0:
            os.close(slot.fd)
        else:
            self._doomed.append(slot)


def _fill(fd: int, position: int, target: memoryview) -> int:
    """Read from ``position`` on until ``target`` is full, however often it takes, or the file ends: how many bytes."""
    done = 0
    while done < len(target) and (count := os.preadv(fd, [target[done:]], position + done)):
        done += count
    return done
