"""Copying files and trees of a store: holes stay holes, times stay, and everything copied is on the device after."""

from __future__ import annotations

import errno
import filecmp
import logging
import os
import shutil
import stat
from collections.abc import Iterable
from pathlib import Path

from mqstore import errors
from mqstore.files import durable
from mqstore.files.whole import kind_of

_log = logging.getLogger(__name__)

_CHUNK_BYTES = 8 << 20
_REMOVE_ATTEMPTS = 100


def copy_file(source: Path, target: Path) -> None:
    """Copy ``source`` to the new file ``target``: content, length and modification time.

    Space that ``source`` never used takes none in the copy. The copy is synced, its name is not.

    Raises:
        DiskFullError, StoreIOError: the copy could not be made; ``target`` may be left incomplete.
    """
    try:
        # Without O_NONBLOCK a pipe in place of the file would hold us for ever.
        with open(os.open(source, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as reader:
            status = os.fstat(reader.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise errors.CorruptFileError(
                    "no regular file", path=source, found=kind_of(status.st_mode), hint=errors.HINT_FOREIGN
                )
            fd = durable.create_file(target, status.st_size)
            try:
                _copy_data(reader.fileno(), fd, status.st_size, target)
                durable.sync_file(fd, target)
            finally:
                os.close(fd)
        os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
    except OSError as error:
        if isinstance(error, errors.MqstoreError):
            raise
        raise errors.from_os_error(error, "copy file", source) from error


def _copy_data(source_fd: int, target_fd: int, size_bytes: int, target: Path) -> None:
    for start, end in durable.data_ranges(source_fd, 0, size_bytes):
        position = start
        while position < end:
            chunk = os.pread(source_fd, min(_CHUNK_BYTES, end - position), position)
            if not chunk:
                return
            if chunk.strip(b"\0"):
                durable.write_at(target_fd, chunk, position, target)
            position += len(chunk)


def holds_copies(directory: Path, files: Iterable[Path]) -> bool:
    """Whether all of ``files`` have copies of the same content and name in ``directory``.

    Raises:
        StoreIOError: a file could not be read.
    """
    filecmp.clear_cache()  # it goes by times, which writing through a map does not change at once
    for path in files:
        try:
            if not filecmp.cmp(path, directory / path.name, shallow=False):
                return False
        except FileNotFoundError:
            return False
        except OSError as error:
            raise errors.from_os_error(error, "compare file", path) from error
    return True


def copy_tree(source: Path, target: Path) -> None:
    """Copy all regular files below ``source`` to the new directory ``target``; nothing if ``source`` is missing.

    Links to directories below ``source`` are not followed. What is neither a file nor a directory, as a pipe or a link
    that leads nowhere, is left out with a warning.
    """
    if not source.is_dir():
        return
    durable.make_directories(target)
    for path in durable.list_directory(source):
        if path.is_dir():
            if path.is_symlink():
                continue  # it may lead back to where we come from
            copy_tree(path, target / path.name)
        elif path.is_file():
            copy_file(path, target / path.name)
        else:
            _log.warning("not copied, as it is neither a file nor a directory: %s", path)
    durable.sync_directory(target)


def remove_tree(path: Path) -> None:
    """Remove directory ``path`` and what is below it, if it is there; again, when another process changes it."""
    for attempt in range(_REMOVE_ATTEMPTS):
        try:
            shutil.rmtree(path)
            return  # what has this name from now on is another's
        except FileNotFoundError:
            pass
        except OSError as error:
            if error.errno != errno.ENOTEMPTY or attempt == _REMOVE_ATTEMPTS - 1:
                raise errors.from_os_error(error, "remove directory", path) from error
        if not os.path.lexists(path):
            return


def remove_below(path: Path) -> None:
    """Remove what is in directory ``path``, which stays."""
    for one in durable.list_directory(path):
        if one.is_dir() and not one.is_symlink():
            remove_tree(one)
        else:
            durable.remove_file(one)
