"""The segment that is being appended to."""

from __future__ import annotations

import logging
import random
import time
from pathlib import Path

from mqstore import errors
from mqstore.files import durable
from mqstore.files.pool import FilePool
from mqstore.kafka.config import KafkaConfig
from mqstore.kafka.index_builder import IndexBuilder
from mqstore.kafka.segment import Segment
from mqstore.layout.constants import INT_MAX
from mqstore.layout.kafka.batch import BatchHeader
from mqstore.layout.kafka.names import FileKind
from mqstore.layout.kafka.offset_index import ENTRY_SIZE as OFFSET_ENTRY_SIZE
from mqstore.layout.kafka.offset_index import OffsetIndex
from mqstore.layout.kafka.time_index import ENTRY_SIZE as TIME_ENTRY_SIZE
from mqstore.layout.kafka.time_index import TimeEntry, TimeIndex
from mqstore.layout.kafka.txn_index import AbortedTransaction, encode_txn_index

_log = logging.getLogger(__name__)


class ActiveSegment(Segment):
    """The last segment of a running partition. The caller's lock orders all changes; readers need none.

    Its files grow as they are filled: there is nothing to trim at its end, and after a crash no zeros.
    """

    def __init__(
        self, directory: Path, base_offset: int, pool: FilePool, writing: FilePool, config: KafkaConfig, size_bytes: int
    ) -> None:
        super().__init__(directory, base_offset, pool, limit_bytes=size_bytes)
        self._writing = writing
        self._config = config
        self._end = size_bytes
        self._builder = IndexBuilder(base_offset, config.index_interval_bytes)
        self._written = {FileKind.OFFSET_INDEX: 0, FileKind.TIME_INDEX: 0}
        self._first_time_ms: int | None = None
        self._created_ms = time.time_ns() // 1_000_000
        self._roll_ms = config.segment_ms - random.randint(0, min(config.segment_jitter_ms, config.segment_ms - 1))

    @classmethod
    def create(
        cls, directory: Path, base_offset: int, pool: FilePool, writing: FilePool, config: KafkaConfig
    ) -> ActiveSegment:
        """Make the empty files of a new segment. The caller syncs the directory."""
        segment = cls(directory, base_offset, pool, writing, config, 0)
        for kind in (FileKind.LOG, FileKind.OFFSET_INDEX, FileKind.TIME_INDEX):
            with writing.created(segment.path(kind), 0):
                pass
        segment._identity = segment.identity
        return segment

    def resume(self, largest: TimeEntry, first_time_ms: int | None) -> None:
        """Go on with a segment that was there: its indexes are read from its files, cut to their entries.

        Args:
            largest: its largest timestamp and the last offset of the batch that has it.
            first_time_ms: largest timestamp of its first batch; None when it is empty.
        """
        offsets, times = super().offset_index(), super().time_index()
        self._builder.resume(offsets, times, largest)
        self._first_time_ms = first_time_ms
        for kind, length in (
            (FileKind.OFFSET_INDEX, len(offsets) * OFFSET_ENTRY_SIZE),
            (FileKind.TIME_INDEX, len(times) * TIME_ENTRY_SIZE),
        ):
            self._cut(kind, length)
        self._written = {FileKind.OFFSET_INDEX: len(offsets), FileKind.TIME_INDEX: len(times)}

    # -- what readers ask

    @property
    def size_bytes(self) -> int:
        """Length of what has been appended completely."""
        return self._end

    def offset_index(self) -> OffsetIndex:
        """The entries so far."""
        return self._builder.offsets

    def time_index(self) -> TimeIndex:
        """The entries so far."""
        return self._builder.times

    @property
    def largest(self) -> TimeEntry:
        """The largest timestamp so far, with the last offset of its batch; time -1 without timestamps."""
        return self._builder.largest

    # -- changing it

    def must_roll(self, size_bytes: int, max_timestamp_ms: int, last_offset: int) -> bool:
        """Whether a batch of this size, largest timestamp and last offset belongs into the next segment."""
        config = self._config
        if self._end > config.segment_bytes - size_bytes:
            return True
        if self._end > 0 and self._age_ms(max_timestamp_ms) > self._roll_ms:
            return True
        return (
            len(self._builder.offsets) >= config.index_entries
            or len(self._builder.times) >= config.time_index_entries
            or last_offset - self.base_offset > INT_MAX
        )

    def _age_ms(self, max_timestamp_ms: int) -> int:
        if self._first_time_ms is not None and self._first_time_ms >= 0:
            return max_timestamp_ms - self._first_time_ms
        return time.time_ns() // 1_000_000 - self._created_ms

    def append(self, batch: bytes, header: BatchHeader) -> None:
        """Write a batch and the index entries it gets. Readers see it when this has returned.

        Raises:
            DiskFullError, StoreIOError: it could not be written; nothing of it is left in the log.
        """
        position = self._end
        try:
            with self._writing.descriptor(self.path()) as fd:
                durable.write_at(fd, batch, position, self.path())
        except errors.MqstoreError:
            self._cut(FileKind.LOG, position)
            raise
        if self._first_time_ms is None:
            self._first_time_ms = header.max_timestamp_ms
        self._builder.add(position, len(batch), header.last_offset, header.max_timestamp_ms)
        self._end = self.limit_bytes = position + len(batch)
        try:
            self._write_entries()
        except errors.MqstoreError as error:  # only an index, and the entries stay in memory for another try
            _log.warning("an index entry could not be written yet: %s", error)

    def _write_entries(self) -> None:
        """Put the entries that are not in the files yet into them."""
        builder = self._builder
        for kind, index, entry_size in (
            (FileKind.OFFSET_INDEX, builder.offsets, OFFSET_ENTRY_SIZE),
            (FileKind.TIME_INDEX, builder.times, TIME_ENTRY_SIZE),
        ):
            written = self._written[kind]
            if written < len(index):
                with self._writing.descriptor(self.path(kind)) as fd:
                    durable.write_at(fd, index.encode(written), written * entry_size, self.path(kind))
                self._written[kind] = len(index)

    def _cut(self, kind: FileKind, length: int) -> None:
        with self._writing.descriptor(self.path(kind)) as fd:
            durable.truncate(fd, length, self.path(kind))

    def add_aborted(self, aborted: AbortedTransaction) -> None:
        """Add an entry to the transaction index, made when the first is added."""
        path = self.path(FileKind.TXN_INDEX)
        known = encode_txn_index(self.aborted() or [])
        if not known:
            with self._writing.created(path, 0):
                pass
        with self._writing.descriptor(path) as fd:
            durable.write_at(fd, encode_txn_index([aborted]), len(known), path)

    def finish(self) -> None:
        """Write the last time entry, and whatever could not be written before.

        Raises:
            DiskFullError, StoreIOError: it could not be written this time either.
        """
        self._builder.finish()
        self._write_entries()
