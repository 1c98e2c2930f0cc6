"""Files that are written through a buffer of their own size: readers of such a file see what was committed to it.

RocketMQ calls the buffers the transient store pool. A put then touches memory of the process only, and one thread moves
what has gathered into the page cache. Space on the device is still reserved at the put, so that moving cannot fail for
want of it.
"""

from __future__ import annotations

import mmap
import threading
from pathlib import Path

from mqstore import errors
from mqstore.files import durable
from mqstore.files.mapped_file import MappedFile


class BufferPool:
    """So many buffers of ``size_bytes``, each made when it is first needed and used again and again."""

    def __init__(self, count: int, size_bytes: int) -> None:
        self._size_bytes = size_bytes
        self._lock = threading.Lock()
        self._unmade = count
        self._idle: list[mmap.mmap] = []

    @property
    def available(self) -> int:
        """How many buffers nobody has."""
        return len(self._idle) + self._unmade

    def borrow(self) -> mmap.mmap | None:
        """A buffer with anything in it, or None when all are in use.

        Raises:
            StoreIOError: there is no memory for it.
        """
        with self._lock:
            if self._idle:
                return self._idle.pop()
            if not self._unmade:
                return None
            try:
                made = mmap.mmap(-1, self._size_bytes)
            except OSError as error:
                raise errors.StoreIOError(
                    f"no memory for a write buffer: {error.strerror}",
                    expected=f"{self._size_bytes} bytes",
                    hint="lower transient_store_pool_size, or raise the limit of memory (ulimit -v)",
                ) from error
            self._unmade -= 1
            return made

    def give_back(self, buffer: mmap.mmap) -> None:
        """The buffer is not used any more."""
        with self._lock:
            self._idle.append(buffer)

    def close(self) -> None:
        """Free the buffers that nobody has."""
        with self._lock:
            for buffer in self._idle:
                buffer.close()
            self._idle.clear()


class BufferedFile(MappedFile):
    """A new file whose :attr:`buffer` is one of a pool's; :meth:`commit` moves bytes from there into the file.

    Attributes:
        committed_to: bytes before this position are in the file.
    """

    def __init__(self, path: Path, size_bytes: int, *, start: int, pool: BufferPool, buffer: mmap.mmap) -> None:
        """Create ``path``; ``buffer`` goes back to ``pool`` with :meth:`release`, also when this fails."""
        self._pool = pool
        self._borrowed: mmap.mmap | None = buffer
        self.committed_to = 0
        try:
            super().__init__(path, size_bytes, start=start, create=True)
        except BaseException:
            self.release()
            raise

    def _map(self, path: Path) -> mmap.mmap:
        assert self._borrowed is not None
        return self._borrowed

    def commit(self, end: int) -> None:
        """Move everything before position ``end`` that is not there yet into the file.

        Raises:
            StoreIOError: it could not be written.
        """
        if end > self.committed_to:
            with memoryview(self.buffer) as view, view[self.committed_to : end] as data:
                durable.write_at(self._fd, data, self.committed_to, self.path)
            self.committed_to = end

    def release(self) -> None:
        """Give the buffer back; nothing is written to this file any more."""
        if self._borrowed is not None:
            self._pool.give_back(self._borrowed)
            self._borrowed = None

    def _unmap(self) -> None:
        self.release()
