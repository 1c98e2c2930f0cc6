"""One file of fixed size, mapped for writing, with its space reserved ahead of the writer.

The file is sparse until used. Before a page is touched through the map, :meth:`MappedFile.reserve` asks the device
for it, a window at a time: a full disk is an error there and never a SIGBUS later. That holds for reading, too: on
some file systems (tmpfs) a page that was never written takes space when it is read through a map.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from pathlib import Path

from mqstore import errors
from mqstore.files import durable

RESERVE_WINDOW_BYTES = 16 << 20
_PAGE_BYTES = mmap.PAGESIZE


class MappedFile:
    """A mapped file open for reading and writing.

    Attributes:
        path: where it lies.
        size_bytes: its fixed length.
        start: offset of its first byte in the queue of files it belongs to; 0 for a file that stands alone.
        buffer: the map; valid until :meth:`close`.
        reserved_to: bytes before this position are safe to read and write; those of the first page always are.
    """

    def __init__(self, path: Path, size_bytes: int, *, start: int = 0, create: bool = False) -> None:
        """Open ``path``, or create it with ``create`` and make it and its name durable.

        Raises:
            CorruptFileError: the file exists with another length.
            DiskFullError, StoreIOError: it could not be created, opened or mapped.
        """
        self.path = path
        self.size_bytes = size_bytes
        self.start = start
        self._fd = durable.create_file(path, size_bytes) if create else self._open(path)
        try:
            length = os.fstat(self._fd).st_size
            if length != size_bytes:
                raise errors.CorruptFileError(
                    "file has the wrong length",
                    path=path,
                    expected=size_bytes,
                    found=length,
                    hint="check the configured file sizes, or run mqstore check",
                )
            self.reserved_to = min(size_bytes, _PAGE_BYTES)
            durable.reserve(self._fd, 0, self.reserved_to, path)
            self.buffer = self._map(path)
            if create:
                durable.sync_file(self._fd, path)
                durable.sync_directory(path.parent)
        except BaseException:
            os.close(self._fd)
            if create:
                with contextlib.suppress(errors.StoreIOError):  # the first failure is the one to tell of
                    durable.remove_file(path)
            raise

    @staticmethod
    def _open(path: Path) -> int:
        try:
            return os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise errors.from_os_error(error, "open file", path) from error

    def _map(self, path: Path) -> mmap.mmap:
        try:
            return mmap.mmap(self._fd, self.size_bytes)
        except OSError as error:
            raise errors.from_os_error(error, "map file", path) from error

    def reserve(self, end: int) -> None:
        """Make bytes up to ``end`` (file position) safe to write through :attr:`buffer`.

        Raises:
            DiskFullError: the device has no room for them. Nothing was written.
        """
        if end <= self.reserved_to:
            return
        end = min(
            self.size_bytes, -(-end // _PAGE_BYTES) * _PAGE_BYTES
        )  # a failed call may give up a page begun before
        target = min(self.size_bytes, end + RESERVE_WINDOW_BYTES)
        try:
            durable.reserve(self._fd, self.reserved_to, target, self.path)
        except errors.DiskFullError:
            # The window may be more than what is left although the message itself still fits.
            target = end
            durable.reserve(self._fd, self.reserved_to, target, self.path)
        self.reserved_to = target

    def reserve_if_possible(self, end: int) -> None:
        """The same for bytes that were written before, so that they can be read here; not when there is no room."""
        with contextlib.suppress(errors.DiskFullError):
            self.reserve(end)

    def sync(self) -> None:
        """Force everything written so far to the device."""
        durable.sync_file(self._fd, self.path)

    def zero_from(self, position: int) -> bool:
        """Clear everything from ``position`` to the end; True if anything was there. The caller syncs."""
        return durable.zero_from(self._fd, position, self.size_bytes, self.path)

    def holds(self, position: int, data: bytes) -> bool:
        """Whether the file holds ``data`` at ``position``; read past the map, whose pages would stay in memory.

        Raises:
            StoreIOError: the file could not be read.
        """
        try:
            return os.pread(self._fd, len(data), position) == data
        except OSError as error:
            raise errors.from_os_error(error, "read", self.path) from error

    def close(self) -> None:
        """Unmap and close. Whatever was written stays in the page cache; it is not forced to the device."""
        if self._fd < 0:
            return
        self._unmap()
        os.close(self._fd)
        self._fd = -1

    def _unmap(self) -> None:
        with contextlib.suppress(BufferError):  # a reader is inside: the map goes when it has let go
            self.buffer.close()
