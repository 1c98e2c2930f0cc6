"""The lock that keeps a second writer out of a store.

It is the same lock the Java store takes: an exclusive POSIX lock on byte 0 of the file ``lock``
(docs/format/directory.md), so that each keeps the other out. POSIX locks do not see a second open in the same
process and are dropped when any descriptor of the file closes; a table of held paths covers the first, and nothing
else in this package may open the file, which covers the second.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
import threading
import weakref
from pathlib import Path

from mqstore import errors

_CONTENT = b"lock"
_FLOCK = struct.Struct("hhqqi4x")  # short l_type, l_whence; off_t l_start, l_len; pid_t l_pid (Linux, 64 bit)

_held: set[Path] = set()
_held_guard = threading.RLock()  # an abandoned lock may be thrown away at any moment, also in here
_all: weakref.WeakSet[StoreLock] = weakref.WeakSet()


class StoreLock:
    """An exclusive lock on a store directory, held from construction until :meth:`release`."""

    def __init__(self, path: Path) -> None:
        """Take the lock at once or fail at once.

        Raises:
            StoreLockedError: this or another process holds it; ``found`` names the holder where that can be known.
            StoreIOError: the lock file could not be opened or the file system has no locks.
        """
        self._fd = -1
        _all.add(self)
        self._path = Path(os.path.realpath(path))
        with _held_guard:
            if self._path in _held:
                raise _locked(path, f"process {os.getpid()} (this one)")
            self._fd = self._acquire(path)
            _held.add(self._path)

    @staticmethod
    def _acquire(path: Path) -> int:
        try:
            # Not through a link: taking the lock writes into the file, and that must be one of the store.
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        except OSError as error:
            raise errors.from_os_error(error, "open the lock file", path) from error
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
            os.pwrite(fd, _CONTENT, 0)
        except OSError as error:
            holder = _holder(fd)
            os.close(fd)
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise _locked(path, holder) from None
            raise errors.from_os_error(error, "lock the store", path) from error
        return fd

    def release(self) -> None:
        """Give the lock up. The file stays, as the Java store leaves it."""
        with _held_guard:
            if self._fd >= 0:
                _held.discard(self._path)
                fd, self._fd = self._fd, -1
                os.close(fd)

    def __del__(self) -> None:
        """Nobody has it any more, as when Ctrl-C came before its owner could note that it has it."""
        if self._fd >= 0:
            self.release()

    def leave_to_parent(self) -> None:
        """In a fork, which has no lock: let go of the descriptor. Closed later, it would take along one of our own."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _after_fork_in_child() -> None:
    global _held_guard  # noqa: PLW0603
    _held_guard = threading.RLock()  # whoever held it does not exist here
    _held.clear()
    for lock in list(_all):
        lock.leave_to_parent()


os.register_at_fork(after_in_child=_after_fork_in_child)


def is_locked(path: Path) -> bool:
    """Whether some process holds the lock on ``path`` now, told from the system's table of locks.

    The file is not opened: closing it again would drop a lock that this very process holds. False where the system
    has no such table.
    """
    try:
        status = path.stat()
        table = Path("/proc/locks").read_text(encoding="utf-8")
    except OSError:
        return False
    place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    return any(place in line.split() for line in table.splitlines())


def _holder(fd: int) -> str:
    """Who holds the lock on byte 0, in words."""
    with contextlib.suppress(OSError, struct.error):
        query = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
        pid = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, query))[4]
        if pid > 0:
            return f"process {pid}"
    return "another process"


def _locked(path: Path, holder: str) -> errors.StoreLockedError:
    return errors.StoreLockedError(
        "the store is open for writing elsewhere",
        path=path,
        found=f"locked by {holder}",
        hint="close it there, or read it beside the writer with mqstore.inspect",
    )
