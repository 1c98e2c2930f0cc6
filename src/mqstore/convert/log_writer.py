"""Filling a new commit log in one go, with store times and queue offsets of the caller's choice.

A running store gives both by itself (:mod:`mqstore.store.commit_log`). Here nobody reads before the log is complete, so
nothing is locked or synced before a file is full; the store that opens the log builds queues and index.
"""

from __future__ import annotations

from pathlib import Path

from mqstore import errors, kernels
from mqstore.convert.mapping import Mapped
from mqstore.files.mapped_file import MappedFile
from mqstore.layout.constants import BLANK_SIZE
from mqstore.layout.record import encode_blank


class LogWriter:
    """Appends messages to the files of a commit log. Use as a context manager; leaving it makes the log durable.

    Attributes:
        end_offset: where the next record goes.
        last_offset: where the newest record lies, -1 before the first.
        last_timestamp_ms: store time of the newest record.
    """

    def __init__(self, directory: Path, file_size: int, start: int = 0) -> None:
        self._directory = directory
        self._file_size = file_size
        self._file: MappedFile | None = None
        self.end_offset = start
        self.last_offset = -1
        self.last_timestamp_ms = 0

    def append(self, message: Mapped, queue_offset: int, store_timestamp_ms: int) -> None:
        """Append one message.

        Raises:
            MessageIllegalError: it does not fit into one file, or one of its fields into the record.
            DiskFullError: no space.
        """
        file = self._room_for(message.size_bytes)
        position = self.end_offset - file.start
        file.reserve(position + message.size_bytes)
        sizes = kernels.put_batch(
            file.buffer, position, self._file_size, file.start, store_timestamp_ms, [queue_offset], [message.fields]
        )
        self.last_offset = self.end_offset
        self.end_offset += sizes[0]
        self.last_timestamp_ms = store_timestamp_ms

    def _room_for(self, size_bytes: int) -> MappedFile:
        if size_bytes + BLANK_SIZE > self._file_size:
            raise errors.MessageIllegalError(
                "does not fit into one commit log file",
                expected=f"at most {self._file_size - BLANK_SIZE} bytes",
                found=size_bytes,
                hint="convert with larger files: mapped_file_size_commit_log",
            )
        if self._file is not None:
            room = self._file.start + self._file_size - self.end_offset
            if size_bytes + BLANK_SIZE <= room:
                return self._file
            self.close_file()
        path = self._directory / f"{self.end_offset:020d}"
        self._file = MappedFile(path, self._file_size, start=self.end_offset, create=True)
        return self._file

    def close_file(self) -> None:
        """Put the blank record at the end of the file that is open; the next message comes into another one."""
        file = self._file
        if file is None:
            return
        position = self.end_offset - file.start
        room = self._file_size - position
        if room >= BLANK_SIZE:
            file.reserve(position + BLANK_SIZE)
            file.buffer[position : position + BLANK_SIZE] = encode_blank(room)
        self.end_offset = file.start + self._file_size
        self._sync_file()

    def _sync_file(self) -> None:
        if self._file is not None:
            self._file.sync()
            self._file.close()
            self._file = None

    def __enter__(self) -> LogWriter:
        return self

    def __exit__(self, kind: object, value: object, trace: object) -> None:
        if self._file is not None and kind is not None:
            self._file.close()
            self._file = None
        self._sync_file()
