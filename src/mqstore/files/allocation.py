"""Making the next file of a queue of files ahead, in a thread of its own, with its pages at hand.

Writing to a page for the first time costs a fault, a block of the device and often the zeroing of both. All that is
done here before the writer comes, and so are the syncs that a new name needs.
"""

from __future__ import annotations

import ctypes
import logging
import mmap
import threading
from collections.abc import Callable

from mqstore import errors
from mqstore.files import durable
from mqstore.files.mapped_file import MappedFile

_log = logging.getLogger(__name__)
_POPULATE_WRITE = 23
"""``MADV_POPULATE_WRITE`` of Linux 5.14, which Python has no name for."""
PIECE_BYTES = 16 << 20


class Allocator:
    """The thread that makes files ahead, one at a time.

    Only the owner of the queue of files calls it, one call at a time.
    """

    def __init__(self, make: Callable[[int], MappedFile], sync_bytes: int = 0) -> None:
        """``make`` creates the file that begins at an offset; ``sync_bytes``: sync after so many, 0 is never."""
        self._make = make
        self._sync_bytes = sync_bytes
        self._changed = threading.Condition()
        self._wanted: int | None = None
        self._ready: MappedFile | None = None
        self._hurry = False
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="mqstore-allocate", daemon=True)

    def start(self) -> None:
        """Begin. StoreIOError when there is no thread to be had."""
        errors.start_thread(self._thread)

    def prepare(self, start: int) -> None:
        """Make the file that begins at ``start`` in the background."""
        with self._changed:
            self._wanted = start
            self._hurry = False
            self._changed.notify_all()

    def take(self, start: int) -> MappedFile | None:
        """The file that was prepared for ``start``, or None: then the caller makes it, and meets what is in the way."""
        with self._changed:
            self._hurry = True
            while self._wanted == start and self._thread.is_alive():
                self._changed.wait(1)
            ready, self._ready = self._ready, None
        if ready is not None and ready.start != start:
            _remove(ready)
            return None
        return ready

    def stop(self) -> None:
        """End the thread and remove the file that nobody took."""
        with self._changed:
            self._stopping = self._hurry = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()
        if self._ready is not None:
            _remove(self._ready)
            self._ready = None

    def _run(self) -> None:
        while True:
            with self._changed:
                while self._wanted is None and not self._stopping:
                    self._changed.wait()
                if self._stopping:
                    return
                start = self._wanted
            assert start is not None
            made = self._try_to_make(start)
            with self._changed:
                self._ready = made
                if self._wanted == start:
                    self._wanted = None
                self._changed.notify_all()

    def _try_to_make(self, start: int) -> MappedFile | None:
        try:
            file = self._make(start)
        except Exception as error:
            _log.info("could not make the file at %d ahead: %s", start, error)
            return None
        try:
            file.reserve(file.size_bytes)
            for position in range(0, file.size_bytes, PIECE_BYTES):
                if self._hurry:
                    break
                populate(file.buffer, position, min(PIECE_BYTES, file.size_bytes - position))
                if self._sync_bytes and (position + PIECE_BYTES) % self._sync_bytes < PIECE_BYTES:
                    file.sync()
        except errors.MqstoreError as error:
            _log.info("could not warm the file at %d: %s", start, error)  # it can be used all the same
        return file


def populate(buffer: mmap.mmap, position: int, size_bytes: int) -> None:
    """Have every page of a stretch of a map that holds nothing yet at hand for writing, without holding the GIL."""
    first = ctypes.c_char.from_buffer(buffer, position)
    try:
        address = ctypes.c_void_p(ctypes.addressof(first))
        if ctypes.CDLL(None).madvise(address, ctypes.c_size_t(size_bytes), _POPULATE_WRITE) == 0:
            return
    finally:
        del first
    for page in range(position, position + size_bytes, mmap.PAGESIZE):
        buffer[page] = 0


def _remove(file: MappedFile) -> None:
    file.close()
    durable.remove_file(file.path)
    durable.sync_directory(file.path.parent)
