"""Reading a small file as a whole, whatever may lie under its name.

A store directory can hold anything: a pipe in place of a file makes a plain read wait for ever, a link to a device
makes it never end.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from mqstore import errors
from mqstore.files.remote import RemotePath

MAX_BYTES = 256 << 20
"""More than any settings file has; what is longer is no such file."""
_STEP_BYTES = 1 << 20


def read_whole(path: Path, what: str) -> bytes | None:
    """The content of ``path``, or None when there is no such file; ``what`` names it in errors.

    Raises:
        CorruptFileError: something else than a regular file lies there, or one beyond all measure.
        StoreIOError: it could not be read.
    """
    if isinstance(path, RemotePath):
        return _read_object(path, what)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise errors.from_os_error(error, f"open {what}", path) from error
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise errors.CorruptFileError(
                f"{what} is no regular file", path=path, found=kind_of(status.st_mode), hint=errors.HINT_FOREIGN
            )
        if status.st_size > MAX_BYTES:
            raise errors.CorruptFileError(
                f"{what} is too long", path=path, expected=f"at most {MAX_BYTES}", found=status.st_size,
                hint=errors.HINT_FOREIGN,
            )  # fmt: skip
        parts = []
        # As much is taken from the allocator as is asked for, however short the file.
        while part := os.read(fd, min(status.st_size + 1, _STEP_BYTES)):
            parts.append(part)
        return b"".join(parts)
    except OSError as error:
        raise errors.from_os_error(error, f"read {what}", path) from error
    finally:
        os.close(fd)


def _read_object(path: RemotePath, what: str) -> bytes | None:
    try:
        return path.read_bytes() if path.is_file() else None
    except OSError as error:
        raise errors.from_os_error(error, f"read {what}", path) from error


def mode_of(path: Path) -> int:
    """The mode of what ``path`` leads to, 0 when it leads to nothing.

    Raises:
        UsageError: no file can have this name.
        StoreIOError: it could not be looked at, which is not the same as nothing.
    """
    try:
        return path.stat().st_mode
    except errors.UsageError:  # of a URL
        raise
    except ValueError:
        raise errors.UsageError("a path holds a NUL character", found=repr(str(path))) from None
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return 0
        raise errors.from_os_error(error, "look at path", path) from error


def kind_of(mode: int) -> str:
    """What a file of ``mode`` is, in words."""
    kinds = {
        stat.S_IFDIR: "a directory",
        stat.S_IFIFO: "a pipe",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
        stat.S_IFLNK: "a link that leads nowhere",
        stat.S_IFREG: "a file",
    }
    return kinds.get(stat.S_IFMT(mode), "something unknown")
