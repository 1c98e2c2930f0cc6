"""The keys of the log on their way to the index: a file for each split, in the order of the log.

They are what a pass over the log takes along, so that the index files, which depend on the order of the whole log, can
be filled without another one. Nothing here outlives the job, so nothing is synced.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from mqstore import errors, kernels
from mqstore.files import durable
from mqstore.store.log_reader import Chunk

KEYS_AT_A_TIME: Final = 1 << 16
KEY_SIZE: Final = kernels.INDEX_KEY.size
KEY: Final = np.dtype([("keyHash", ">i4"), ("physicalOffset", ">i8"), ("storeTimestamp", ">i8")])
"""As :data:`mqstore.kernels.INDEX_KEY`."""


class Key(NamedTuple):
    """A key that is to be filed: its hash, and where and when its record was stored."""

    key_hash: int
    physical_offset: int
    store_timestamp_ms: int


class KeyRange(NamedTuple):
    """Keys number ``begin`` up to ``end`` of a file."""

    path: Path
    begin: int
    end: int


class KeyWriter:
    """Writes the keys of chunks to a file of its own, which is made with the first key.

    Attributes:
        path: the file, None without keys.
        count: how many keys it holds.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._fd = -1
        self.path: Path | None = None
        self.count = 0

    def put(self, chunk: Chunk) -> None:
        """Write the keys of a chunk behind those before.

        Raises:
            DiskFullError, StoreIOError.
        """
        keys = kernels.index_keys(chunk.buffer, chunk.columns, 0, chunk.columns.count)
        if not keys:
            return
        if self.path is None:
            self.path = self._directory / f"keys-{uuid.uuid4().hex}"  # a task may run twice
            self._fd = durable.create_file(self.path, 0)
        durable.write_at(self._fd, keys, self.count * KEY_SIZE, self.path)
        self.count += len(keys) // KEY_SIZE

    def close(self) -> None:
        """Close the file; on some file systems only this tells that there was no room.

        Raises:
            DiskFullError, StoreIOError.
        """
        fd, self._fd = self._fd, -1
        if self.path is not None and fd >= 0:
            try:
                os.close(fd)
            except OSError as error:
                raise errors.from_os_error(error, "write keys", self.path) from error


def read_keys(ranges: Sequence[KeyRange]) -> Iterator[bytes]:
    """The keys of ``ranges``, some at a time, each as :data:`mqstore.kernels.INDEX_KEY`.

    Raises:
        StoreIOError: a file could not be read, or holds fewer than that.
    """
    for path, begin, end in ranges:
        try:
            with path.open("rb", buffering=0) as file:
                for first in range(begin, end, KEYS_AT_A_TIME):
                    size = (min(end, first + KEYS_AT_A_TIME) - first) * KEY_SIZE
                    keys = os.pread(file.fileno(), size, first * KEY_SIZE)
                    if len(keys) != size:
                        raise errors.StoreIOError("keys are missing", path=path, expected=size, found=len(keys))
                    yield keys
        except OSError as error:
            raise errors.from_os_error(error, "read keys", path) from error
