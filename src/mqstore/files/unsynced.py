"""What was written to the files of one directory and is not on the device yet."""

from __future__ import annotations

import threading
from pathlib import Path

from mqstore import errors
from mqstore.files import durable
from mqstore.files.pool import FilePool


class UnsyncedPaths:
    """Files of ``directory``, and the directory itself when names in it changed. Safe for several threads.

    A round of syncs that has ended covers all that was added before it began, also what another round had taken up
    that was still on its way then.
    """

    def __init__(self, directory: Path, pool: FilePool) -> None:
        """``pool`` is writable and knows when one of the files is removed."""
        self._directory = directory
        self._pool = pool
        self._guard = threading.Lock()
        self._round = threading.Lock()
        self._paths: set[Path] = set()
        self._is_gone = False

    def add(self, path: Path) -> None:
        """``path`` was changed."""
        with self._guard:
            if not self._is_gone:
                self._paths.add(path)

    def give_up(self) -> None:
        """The directory is about to be removed with all that is in it: there is nothing to sync from now on."""
        with self._guard:
            self._is_gone = True
            self._paths.clear()

    def sync(self) -> None:
        """Force what was added to the device; files that were removed since have no need of it.

        Raises:
            StoreIOError: a path could not be synced. It and those behind it are tried again by the next call, but that
                this succeeds then proves nothing: the device may have dropped what it could not write.
        """
        with self._round:
            with self._guard:
                paths, self._paths = self._paths, set()
            try:
                for path in sorted(paths, reverse=True):  # files before the directory that names them
                    self._sync(path)
                    paths.discard(path)
            finally:
                with self._guard:
                    if not self._is_gone:
                        self._paths |= paths

    def _sync(self, path: Path) -> None:
        try:
            if path == self._directory:
                durable.sync_directory(path)
            else:
                with self._pool.descriptor(path) as fd:
                    durable.sync_file(fd, path)
        except errors.StoreIOError as error:
            was_removed = isinstance(error.__cause__, FileNotFoundError)
            if not was_removed or (path == self._directory and not self._is_gone):
                raise
