"""The operations that must reach the disk, and in which order.

Every sync, creation, rename and removal that the store's promises rest on goes through this module, so that a test
can stand in here, see what had been synced at any moment and drop the rest.

A file's bytes are safe after :func:`sync_file`; its *name* is safe only after :func:`sync_directory` on the
directory that holds it. Forgetting the second is how a whole new file vanishes at a power cut.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from mqstore import errors
from mqstore.files.whole import mode_of

_ZEROS = bytes(1 << 20)
_TEMPORARY_SUFFIX = ".tmp"


def sync_file(fd: int, path: str | os.PathLike[str]) -> None:
    """Force the written bytes of ``fd`` to the device, with the metadata needed to read them back.

    The call drops the GIL while the device works, which ``mmap.flush`` does not.

    Raises:
        StoreIOError: the device reported a failure. The pages may be lost: the caller must stop acknowledging.
    """
    try:
        os.fdatasync(fd) if hasattr(os, "fdatasync") else os.fsync(fd)
    except OSError as error:
        raise errors.from_os_error(error, "sync file", path) from error


def begin_sync(fd: int, position: int, size_bytes: int) -> None:
    """Let the device begin with bytes that were written, so that :func:`sync_file` has less to wait for.

    It promises nothing. The system is told that nobody needs the pages: it writes them then, and drops none meanwhile.
    """
    if hasattr(os, "posix_fadvise"):
        with contextlib.suppress(OSError):  # what a file system may know nothing of
            os.posix_fadvise(fd, position, size_bytes, os.POSIX_FADV_DONTNEED)


def sync_path(path: Path) -> None:
    """:func:`sync_file` for a file that is not open."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise errors.from_os_error(error, "open file", path) from error
    try:
        sync_file(fd, path)
    finally:
        os.close(fd)


def sync_directory(path: str | os.PathLike[str]) -> None:
    """Force the names inside directory ``path`` (created, renamed, removed) to the device."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as error:
        raise errors.from_os_error(error, "sync directory", path) from error


def make_directories(path: Path) -> None:
    """Create directory ``path`` and its missing parents, each one's name made durable."""
    missing = []
    probe = path
    try:
        while not probe.exists():
            missing.append(probe)
            probe = probe.parent
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise errors.from_os_error(error, "create directory", path) from error
    for created in reversed(missing):
        sync_directory(created.parent)


def check_can_create(path: Path) -> None:
    """Raise StoreIOError or DiskFullError where ``path`` could not be made; nothing is left of the attempt."""
    directory = path.parent
    while not mode_of(directory):
        directory = directory.parent
    try:
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise errors.from_os_error(error, "create file", path) from error


def make_directory(path: Path) -> bool:
    """Create directory ``path`` in one that exists, and say whether it was missing; the caller syncs its parent."""
    try:
        path.mkdir()
    except FileExistsError:
        return False
    except OSError as error:
        raise errors.from_os_error(error, "create directory", path) from error
    return True


def create_file(path: Path, size_bytes: int) -> int:
    """Create ``path`` as a sparse file of ``size_bytes`` zeros and return its descriptor, open for read and write.

    The name is not durable yet: the caller syncs the directory, once for several files if it likes.
    """
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.ftruncate(fd, size_bytes)
        except BaseException:
            os.close(fd)
            path.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise errors.from_os_error(error, "create file", path) from error
    return fd


def write_new_file(path: Path, size_bytes: int, head: bytes) -> None:
    """Create ``path`` with ``head`` and zeros behind it, ``size_bytes`` in all, and sync it; not its name."""
    fd = create_file(path, size_bytes)
    try:
        write_at(fd, head, 0, path)
        sync_file(fd, path)
    finally:
        os.close(fd)


def remove_file(path: Path) -> None:
    """Remove ``path`` if it is there; the caller syncs the directory."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise errors.from_os_error(error, "remove file", path) from error


def reserve(fd: int, start: int, end: int, path: str | os.PathLike[str]) -> None:
    """Make sure that the device has room for bytes [start, end) of ``fd``, without changing what they read as.

    A page written through a map that the device cannot store kills the process with SIGBUS; asking here first turns
    that into :class:`~mqstore.errors.DiskFullError`.
    """
    if end <= start:
        return
    if not hasattr(os, "posix_fallocate"):  # macOS
        return
    try:
        os.posix_fallocate(fd, start, end - start)
    except OSError as error:
        raise errors.from_os_error(error, "reserve space", path) from error


def write_at(fd: int, data: bytes | bytearray | memoryview, position: int, path: str | os.PathLike[str]) -> None:
    """Write all of ``data`` at ``position``, however many calls the operating system needs for it."""
    view = memoryview(data)
    try:
        while view:
            written = os.pwrite(fd, view, position)
            view = view[written:]
            position += written
    except OSError as error:
        raise errors.from_os_error(error, "write", path) from error


def truncate(fd: int, size_bytes: int, path: str | os.PathLike[str]) -> None:
    """Give ``fd`` the length ``size_bytes``. The caller syncs."""
    try:
        if os.fstat(fd).st_size != size_bytes:  # the call would make even an unchanged file one to be synced
            os.ftruncate(fd, size_bytes)
    except OSError as error:
        raise errors.from_os_error(error, "resize file", path) from error


def truncate_path(path: Path, size_bytes: int) -> None:
    """Give file ``path`` the length ``size_bytes`` and sync it."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise errors.from_os_error(error, "open file", path) from error
    try:
        truncate(fd, size_bytes, path)
        sync_file(fd, path)
    finally:
        os.close(fd)


def rename(path: Path, target: Path) -> None:
    """Give the file or directory ``path`` the name ``target``, replacing a file of that name; the caller syncs the
    directory.
    """
    try:
        os.rename(path, target)
    except OSError as error:
        raise errors.from_os_error(error, "rename", path) from error


def remove_directory(path: Path) -> None:
    """Remove the empty directory ``path``; the caller syncs its parent."""
    try:
        path.rmdir()
    except OSError as error:
        raise errors.from_os_error(error, "remove directory", path) from error


def list_directory(path: Path) -> list[Path]:
    """What lies directly in directory ``path``, by name."""
    try:
        return sorted(path.iterdir())
    except OSError as error:
        raise errors.from_os_error(error, "list directory", path) from error


def set_file_end(path: Path, position: int, size_bytes: int) -> None:
    """Make everything from ``position`` on read as zeros, give the file ``size_bytes``, and make both durable."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise errors.from_os_error(error, "open file", path) from error
    try:
        length = os.fstat(fd).st_size
        changed = zero_from(fd, position, min(length, size_bytes), path)
        if length != size_bytes:
            os.ftruncate(fd, size_bytes)
        if changed or length != size_bytes:
            sync_file(fd, path)
    except OSError as error:
        raise errors.from_os_error(error, "resize file", path) from error
    finally:
        os.close(fd)


def zero_from(fd: int, start: int, size_bytes: int, path: str | os.PathLike[str]) -> bool:
    """Turn bytes [start, size_bytes) into zeros where they are not, and say whether any were not.

    Holes are skipped, so that a sparse file stays sparse. The caller syncs.
    """
    changed = False
    try:
        for begin, end in data_ranges(fd, start, size_bytes):
            position = begin
            while position < end and (chunk := os.pread(fd, min(len(_ZEROS), end - position), position)):
                if chunk != (_ZEROS if len(chunk) == len(_ZEROS) else bytes(len(chunk))):
                    write_at(fd, memoryview(_ZEROS)[: len(chunk)], position, path)
                    changed = True
                position += len(chunk)
    except OSError as error:
        raise errors.from_os_error(error, "cut the tail of file", path) from error
    return changed


def data_ranges(fd: int, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The parts of [start, end) that may hold other bytes than zeros; one part where the file system cannot tell.

    Raises OSError as the operating system does.
    """
    position = start
    while position < end:
        try:
            begin = os.lseek(fd, position, os.SEEK_DATA)
            stop = min(end, os.lseek(fd, begin, os.SEEK_HOLE))
        except (OSError, AttributeError) as error:
            if getattr(error, "errno", None) == errno.ENXIO:
                return  # nothing but hole from here on
            begin, stop = position, end
        if begin >= end:
            return
        yield begin, stop
        position = stop


def data_parts(fd: int, start: int, end: int, path: str | os.PathLike[str]) -> list[tuple[int, int]]:
    """The same as a list; StoreIOError when the file cannot be looked at."""
    try:
        return list(data_ranges(fd, start, end))
    except OSError as error:
        raise errors.from_os_error(error, "look through file", path) from error


def replace_file(path: Path, data: bytes) -> None:
    """Put ``data`` in place of file ``path`` so that a crash leaves the old content or the new, never a mix.

    The temporary file lies in the same directory: a rename does not cross devices. A failure removes it; a kill leaves
    it, as ``.NAME.XXXXXXXX.tmp``, for :func:`remove_temporaries`.

    Raises:
        DiskFullError, StoreIOError: the old content is in place.
    """
    temporary = ""
    try:
        fd, temporary = _new_temporary(path)
        try:
            write_at(fd, data, 0, temporary)
            os.fchmod(fd, 0o644)
            sync_file(fd, temporary)
            os.rename(temporary, path)
        finally:
            os.close(fd)
    except BaseException as error:
        if temporary:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        if isinstance(error, OSError) and not isinstance(error, errors.MqstoreError):
            raise errors.from_os_error(error, "replace file", path) from error
        if isinstance(error, errors.MqstoreError):
            error.path = os.fspath(path)  # the other one is gone
        raise
    sync_directory(path.parent)


def _new_temporary(path: Path) -> tuple[int, str]:
    """A new file beside ``path``, locked for as long as it is open: so it is known whether its writer lives."""
    while True:
        fd, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=_TEMPORARY_SUFFIX, dir=path.parent)
        with contextlib.suppress(OSError):  # a file system without locks: nobody removes it there
            fcntl.flock(fd, fcntl.LOCK_EX)
        if os.fstat(fd).st_nlink:
            return fd, name
        os.close(fd)  # removed before it was locked


def remove_temporaries(directory: Path) -> None:
    """Remove what killed processes have left of :func:`replace_file` in ``directory``.

    What a living one is writing stays, and all of it where the file system has no locks.
    """
    with contextlib.suppress(OSError):  # whatever cannot be removed is in nobody's way
        for path in directory.glob(f".*.*{_TEMPORARY_SUFFIX}"):
            _remove_unlocked(path)


def _remove_unlocked(path: Path) -> None:
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(fd), os.lstat(path)):
                os.unlink(path)
        finally:
            os.close(fd)
