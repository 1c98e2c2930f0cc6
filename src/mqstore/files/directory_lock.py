"""Locks on directories whose every file name means something, so that no lock file can lie in them.

A commit log may lie outside of its store, and two stores, as a store and its copy, can be led to the same one. The lock
is taken on the directory itself (``flock``): it also keeps out a second opener in this process, goes with the directory
under whatever path it is reached, and leaves nothing behind. RocketMQ takes no such lock.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import threading
import weakref
from pathlib import Path

from mqstore import errors

_log = logging.getLogger(__name__)
_NOT_HERE = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EBADF}
"""What file systems answer that cannot lock a directory; NFS wants a descriptor that can be written to."""

_all: weakref.WeakSet[DirectoryLocks] = weakref.WeakSet()


class DirectoryLocks:
    """Locks on several directories, held until :meth:`release`. A fork does not take them along."""

    def __init__(self) -> None:
        self._fds: list[int] = []
        self._guard = threading.Lock()
        self._pid = os.getpid()
        _all.add(self)

    def acquire(self, path: Path, *, shared: bool = False) -> None:
        """Lock directory ``path`` at once or fail at once.

        Args:
            path: a directory that is there.
            shared: let others have it so, too, but nobody alone.

        Where the file system has no locks for directories, that is told to the log, and no lock is held.

        Raises:
            StoreLockedError: this or another process holds it; ``found`` names the holder where that can be known.
            StoreIOError: the directory could not be opened.
        """
        with self._guard:
            try:
                self._fds.append(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
                fcntl.flock(self._fds[-1], (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno in (errno.EAGAIN, errno.EWOULDBLOCK):
                    raise _locked(path) from None
                if error.errno not in _NOT_HERE:
                    raise errors.from_os_error(error, "lock directory", path) from error
                _log.warning("%s cannot be locked, so no second writer is kept out of it: %s", path, error)

    def holds(self, path: Path) -> bool:
        """Whether a directory that was given to :meth:`acquire` is what lies at ``path`` now."""
        with self._guard, contextlib.suppress(FileNotFoundError):
            here = os.lstat(path)
            return any(os.path.samestat(os.fstat(fd), here) for fd in self._fds)
        return False

    def release(self) -> None:
        """Give all locks up."""
        with self._guard:
            while self._fds:
                if self._pid == os.getpid():  # a child that has not closed its copy yet would keep the lock alive
                    with contextlib.suppress(OSError):
                        fcntl.flock(self._fds[-1], fcntl.LOCK_UN)
                os.close(self._fds.pop())

    def leave_to_parent(self) -> None:
        """In a fork: let go of the descriptors, or the locks would outlive the parent."""
        self._guard = threading.Lock()  # whoever held it does not exist here
        self.release()

    def __del__(self) -> None:
        """Nobody has them any more, as when Ctrl-C came before their owner could note that it has them."""
        if self._fds:
            self.release()


def _after_fork_in_child() -> None:
    for locks in list(_all):
        locks.leave_to_parent()


os.register_at_fork(after_in_child=_after_fork_in_child)


def _locked(path: Path) -> errors.StoreLockedError:
    return errors.StoreLockedError(
        "another store has this directory of the commit log open for writing",
        path=path,
        found=f"locked by {_holder(path)}",
        hint="close it there; a copy of a store needs a log of its own: name its directories in store_path_commit_log",
    )


def _holder(path: Path) -> str:
    """Who holds the lock, in words, from the system's table of locks where there is one."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        status = path.stat()
        place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
        for line in Path("/proc/locks").read_text(encoding="utf-8").splitlines():
            fields = line.split()
            if place in fields and fields[1] == "FLOCK":
                pid = int(fields[4])
                return f"process {pid} (this one)" if pid == os.getpid() else f"process {pid}"
    return "another process"
