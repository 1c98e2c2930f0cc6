"""Copying files and trees of a store: holes stay holes, times stay, and everything copied is on the device after."""

from __future__ import annotations

import contextlib
import errno
import filecmp
import logging
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from mqstore import errors
from mqstore.files import durable
from mqstore.files.whole import kind_of, mode_of

_log = logging.getLogger(__name__)

_CHUNK_BYTES = 8 << 20
_REMOVE_ATTEMPTS = 100


def copy_file(source: Path, target: Path) -> None:
    """Copy ``source`` to the new file ``target``: content, length and modification time.

    Space that ``source`` never used takes none in the copy. The copy is synced, its name is not.

    Raises:
        CorruptFileError: ``source`` is no regular file.
        DiskFullError, StoreIOError: the copy could not be made; ``target`` may be left incomplete.
    """
    with _opened(source) as reader:  # once: another file may be given its name at any moment
        status = os.fstat(reader.fileno())
        fd = durable.create_file(target, status.st_size)
        try:
            _copy_data(reader.fileno(), fd, 0, status.st_size, target)
        finally:
            os.close(fd)
        durable.sync_path(target)
        _give_times(target, status)


def copy_file_if_there(source: Path, target: Path) -> bool:
    """As :func:`copy_file`; False, and no copy, when ``source`` is gone, as one that a running store has just removed.

    Raises:
        CorruptFileError, DiskFullError, StoreIOError: as :func:`copy_file`.
    """
    try:
        copy_file(source, target)
    except errors.StoreIOError as error:
        if not isinstance(error.__cause__, FileNotFoundError) or os.path.lexists(source):
            raise
        return False
    return True


def begin_copy(source: Path, target: Path) -> None:
    """Make the new file ``target`` of the length of ``source``, with nothing in it; raises as :func:`copy_file`."""
    with _opened(source) as reader:
        os.close(durable.create_file(target, os.fstat(reader.fileno()).st_size))


def copy_range(source: Path, target: Path, begin: int, end: int | None) -> None:
    """Copy bytes [begin, end) of ``source`` to their place in ``target``, which is there; None is all to the end.

    The device begins with them, and the caller syncs. Raises as :func:`copy_file`.
    """
    with _opened(source) as reader:
        try:
            fd = os.open(target, os.O_WRONLY | os.O_CLOEXEC)
        except OSError as error:
            raise errors.from_os_error(error, "copy to file", target) from error
        try:
            size_bytes = os.fstat(reader.fileno()).st_size
            _copy_data(reader.fileno(), fd, begin, size_bytes if end is None else min(end, size_bytes), target)
        finally:
            os.close(fd)


def copy_times(source: Path, target: Path) -> None:
    """Give ``target`` the times of ``source``; raises as :func:`copy_file`."""
    with _opened(source) as reader:
        _give_times(target, os.fstat(reader.fileno()))


def _give_times(target: Path, status: os.stat_result) -> None:
    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))


@contextlib.contextmanager
def _opened(source: Path) -> Iterator[BinaryIO]:
    """``source``, which is a regular file, for the length of the block."""
    try:
        # Without O_NONBLOCK a pipe in place of the file would hold us for ever.
        with open(os.open(source, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as reader:
            mode = os.fstat(reader.fileno()).st_mode
            if not stat.S_ISREG(mode):
                raise errors.CorruptFileError(
                    "no regular file", path=source, found=kind_of(mode), hint=errors.HINT_FOREIGN
                )
            yield reader
    except OSError as error:
        if isinstance(error, errors.MqstoreError):
            raise
        raise errors.from_os_error(error, "copy file", source) from error


def _copy_data(source_fd: int, target_fd: int, begin: int, stop: int, target: Path) -> None:
    for start, end in durable.data_ranges(source_fd, begin, stop):
        position = start
        while position < end:
            chunk = os.pread(source_fd, min(_CHUNK_BYTES, end - position), position)
            if not chunk:
                return
            if chunk.strip(b"\0"):
                durable.write_at(target_fd, chunk, position, target)
                durable.begin_sync(target_fd, position, len(chunk))
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
    that leads nowhere, is left out with a warning. A file that goes meanwhile is left out.

    Raises:
        StoreIOError: something could not be looked at or copied, and is not left out for that.
    """
    if not stat.S_ISDIR(mode_of(source)):
        return
    durable.make_directories(target)
    for path in durable.list_directory(source):
        mode = mode_of(path)
        if stat.S_ISDIR(mode):
            if path.is_symlink():
                continue  # it may lead back to where we come from
            copy_tree(path, target / path.name)
        elif stat.S_ISREG(mode):
            copy_file_if_there(path, target / path.name)
        elif os.path.lexists(path):
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
