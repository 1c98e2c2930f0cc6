"""The directories that the files of one queue of files are spread over, and where a new file goes.

RocketMQ's rule: a new file goes to the directory whose place, in order of the paths' text, is the file's number modulo
the number of directories. Directories that take no new files and those that are nearly full are passed over; if that
leaves none, the full ones count again (docs/format/directory.md).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from mqstore import errors
from mqstore.files import durable
from mqstore.files.mapped_file import MappedFile
from mqstore.files.write_buffer import BufferedFile, BufferPool


def used_ratio(path: Path) -> float:
    """The used part of the file system that ``path`` is on, 0 to 1, in whole hundredths rounded up.

    Raises:
        StoreIOError: it could not be found out.
    """
    try:
        usage = shutil.disk_usage(path)
    except OSError as error:
        raise errors.from_os_error(error, "look at the disk of", path) from error
    usable = usage.used + usage.free
    return -(-usage.used * 100 // usable) / 100 if usable else 0.0


class Directories:
    """Where the files of a queue of files lie.

    Attributes:
        paths: all directories, those that take no new files behind the others.
        full_ratio: a directory whose disk is used beyond this, 0 to 1, gets no new file while another one can.
        measure: finds out how much of a directory's disk is used.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        read_only: Sequence[Path] = (),
        *,
        full_ratio: float = 1.0,
        measure: Callable[[Path], float] = used_ratio,
    ) -> None:
        self.paths = [*paths, *(path for path in read_only if path not in paths)]
        self._writable = sorted((path for path in paths if path not in read_only), key=str)
        self.full_ratio = full_ratio
        self.measure = measure

    def open_file(self, start: int, size_bytes: int) -> MappedFile | None:
        """The file that begins at ``start``, or None when no directory has it.

        Raises:
            CorruptFileError, StoreIOError: it is there and cannot be used.
        """
        for directory in self.paths:
            path = directory / f"{start:020d}"
            if path.exists():
                return MappedFile(path, size_bytes, start=start)
        return None

    def create_file(self, start: int, size_bytes: int, buffers: BufferPool | None = None) -> MappedFile:
        """Create the file that begins at ``start``, its name made durable; what could not be made leaves nothing.

        It is written through one of ``buffers`` if there is an idle one, otherwise through a map.

        Raises:
            DiskFullError: no directory has room for it.
            StoreIOError: it could not be created.
            UsageError: no directory takes new files.
        """
        failure: errors.MqstoreError | None = None
        for directory in self.places_for(start // size_bytes):
            path = directory / f"{start:020d}"
            try:
                buffer = None if buffers is None else buffers.borrow()
                if buffers is None or buffer is None:
                    return MappedFile(path, size_bytes, start=start, create=True)
                return BufferedFile(path, size_bytes, start=start, pool=buffers, buffer=buffer)
            except errors.DiskFullError as error:
                failure = failure or error
        raise failure or errors.UsageError(
            "no directory of the commit log takes new files",
            path=self.paths[0],
            expected="a directory that is not read-only",
            found=[str(path) for path in self.paths],
            hint="name another one in store_path_commit_log",
        )

    def places_for(self, number: int) -> list[Path]:
        """The directories to try for a new file that is the ``number``-th of its size, best first."""
        roomy = [path for path in self._writable if len(self._writable) == 1 or not self._is_full(path)]
        chosen = roomy or self._writable
        turn = number % len(chosen) if chosen else 0
        return chosen[turn:] + chosen[:turn]

    def _is_full(self, path: Path) -> bool:
        return self.measure(path) > self.full_ratio

    def make(self) -> None:
        """Create the directories that are missing; one that takes no new files must be there.

        Raises:
            StoreIOError: one could not be made.
        """
        for path in self._writable:
            durable.make_directories(path)

    def sync(self, path: Path) -> None:
        """Make the names in the directory of ``path`` durable."""
        durable.sync_directory(path.parent)
