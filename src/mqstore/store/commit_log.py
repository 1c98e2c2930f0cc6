"""The commit log of a running store: appending records under one lock.

Only the newest file is mapped. Positions are physical offsets of the log: ``end_offset`` is where the next record
goes, ``flushed_offset`` everything before which is on the device.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import NamedTuple

from mqstore import errors, kernels
from mqstore.files.allocation import Allocator
from mqstore.files.directories import Directories
from mqstore.files.mapped_file import MappedFile
from mqstore.files.pool import FilePool
from mqstore.files.write_buffer import BufferedFile, BufferPool
from mqstore.kernels.api import PreparedMessage
from mqstore.kernels.store_api import LogTail
from mqstore.layout.constants import BLANK_SIZE
from mqstore.layout.record import encode_blank
from mqstore.store.multi_dispatch import FurtherQueues
from mqstore.store.queue_places import QueuePlaces, Rows


class Pending(NamedTuple):
    """A record that is complete but for what only its place in the log decides."""

    fields: PreparedMessage
    size_bytes: int
    target_queue_id: int
    """The queue that the producer's topic has for it, also while it waits in the schedule topic."""
    queue_key: tuple[str, int] | None
    """Queue whose next offset the record takes; None for records that are in no queue."""
    further: FurtherQueues | None = None
    """What its place in further queues must still be written into it."""


@dataclass(frozen=True)
class WaysToWrite:
    """How new files of the log are made and written.

    Attributes:
        buffers: buffers to write them through; None is through a map.
        refuse_without_buffer: no new file while all buffers are in use, instead of one that is mapped.
        make_ahead: make each file while the one before it is written to.
        sync_warm_bytes: sync a file that is made ahead after so many bytes, 0 is not at all.
    """

    buffers: BufferPool | None = None
    refuse_without_buffer: bool = False
    make_ahead: bool = False
    sync_warm_bytes: int = 0


DIRECTLY = WaysToWrite()


@dataclass(frozen=True, slots=True)
class Appended:
    """Where a record went."""

    physical_offset: int
    size_bytes: int
    queue_offset: int
    store_timestamp_ms: int


_STRETCH_BYTES = 8 << 20
"""About so much of a table is written before others may append."""


class CommitLog:
    """Appends records to the log's newest file and rolls to the next.

    Ordinary messages do not come here: they are put through ``tail``, which writes into the file and the space that
    were made ready here. While :meth:`append` is at work the tail is closed to them.

    With ``buffers`` new files are written through a buffer, and nothing is in a file before :meth:`commit`.

    Attributes:
        tail: where the log ends. Store times in it never go back, whatever the clock does.
        flushed_offset: everything before it is on the device.
        on_commit: called when more of the log has become readable.
        failure: the error of a sync that failed. It is final: the pages it was about may be lost although a second
            sync would answer success, so nothing is appended or acknowledged any more.
    """

    def __init__(
        self,
        directories: Directories,
        file_size: int,
        tail: LogTail,
        readers: FilePool,
        on_roll: Callable[[], None],
        ways: WaysToWrite = DIRECTLY,
    ) -> None:
        self._directories = directories
        self._directory = directories.paths[0]
        self.file_size = file_size
        self.tail = tail
        self._readers = readers
        self._on_roll = on_roll
        self._lock = threading.Lock()
        self._file: MappedFile | None = None
        self._ways = ways
        self._uncommitted: list[tuple[BufferedFile, int]] = []
        self._unsynced: list[MappedFile] = []
        self._commit_lock = threading.Lock()
        self._committed_offset = 0
        self.on_commit: Callable[[], None] = lambda: None
        self._allocator = Allocator(self._make, ways.sync_warm_bytes) if ways.make_ahead else None
        self._sync_lock = threading.Lock()
        self._closed = False
        self._disk_full = False
        self.failure: errors.MqstoreError | None = None
        self.flushed_offset = 0

    @property
    def end_offset(self) -> int:
        """Physical offset at which the next record goes."""
        return self.tail.end_offset

    @property
    def readable_offset(self) -> int:
        """Everything before this physical offset is in the log's files, or in their maps, for all to read."""
        return self.tail.end_offset if self._ways.buffers is None else self._committed_offset

    @property
    def written_file_start(self) -> int:
        """Where the file that is written to begins; files from there on are in use."""
        return self.end_offset - self.end_offset % self.file_size if self._file is None else self._file.start

    def open_at(self, end_offset: int, last_timestamp_ms: int, last_record_offset: int) -> None:
        """Go on at ``end_offset``, which recovery has found to be the end of the log and made durable."""
        self.tail.end_offset = self.flushed_offset = self._committed_offset = end_offset
        self.tail.last_timestamp_ms = last_timestamp_ms
        self.tail.last_record_offset = last_record_offset
        start = end_offset - end_offset % self.file_size
        if self._allocator is not None:
            self._allocator.start()
        file = self._directories.open_file(start, self.file_size)
        if file is not None:
            self._use(file)
            file.reserve_if_possible(end_offset - start)

    def append(self, records: Sequence[Pending]) -> list[Appended]:
        """Append ``records`` one behind the other into one file and give each its place.

        Queue offsets are taken from the tail under the same lock, and only when all records are written: a failed
        append leaves no trace.

        Raises:
            DiskFullError: no space, or nearly none; nothing was appended.
            MessageIllegalError: the records do not fit into an empty file.
            NotWritableError: a sync failed before.
            StoreClosedError: :meth:`stop_appends` was called.
        """
        total = sum(record.size_bytes for record in records)
        self.check_fits(total)
        with self._lock:
            self._let_in(False)
            try:
                return self._append(records, total)
            finally:
                self._let_in()

    def check_fits(self, size_bytes: int) -> None:
        """Raise MessageIllegalError when so many bytes do not fit into an empty file."""
        if size_bytes + BLANK_SIZE > self.file_size:
            raise errors.MessageIllegalError(
                "does not fit into one commit log file",
                expected=f"at most {self.file_size - BLANK_SIZE} bytes",
                found=size_bytes,
                hint="put smaller batches, or raise mapped_file_size_commit_log",
            )

    def _append(self, records: Sequence[Pending], total: int) -> list[Appended]:
        self._check_writable()
        tail = self.tail
        records, offsets, taken = _take_offsets(records, tail.next_offsets)
        if any(record.further is not None for record in records):
            total = sum(record.size_bytes for record in records)  # their offsets have made them longer
            self.check_fits(total)
        file = self._room_for(total)
        position = tail.end_offset - file.start
        file.reserve(position + total)
        tail.allow(file.start + file.reserved_to)
        timestamp_ms = max(time.time_ns() // 1_000_000, tail.last_timestamp_ms)
        self._write(file, position, total, records, offsets, timestamp_ms)
        for (topic, queue_id), offset in taken.items():
            set_next_offset(tail.next_offsets, topic, queue_id, offset)
        results = []
        for record, queue_offset in zip(records, offsets, strict=True):
            results.append(Appended(file.start + position, record.size_bytes, queue_offset, timestamp_ms))
            position += record.size_bytes
        tail.last_timestamp_ms = timestamp_ms
        tail.last_record_offset = results[-1].physical_offset
        tail.end_offset += total
        return results

    def append_rows(self, rows: Rows, start: int) -> int:
        """Append rows of a table from number ``start`` on, as many as one stretch takes; the first that is left.

        Raises as :meth:`append`.
        """
        self.check_fits(rows.largest)
        with self._lock:
            self._let_in(False)
            try:
                self._check_writable()
                return self._append_rows(rows, start)
            finally:
                self._let_in()

    def _append_rows(self, rows: Rows, start: int) -> int:
        tail = self.tail
        file = self._room_for(1)
        position = tail.end_offset - file.start
        file.reserve(min(self.file_size, position + min(max(_STRETCH_BYTES, rows.largest), rows.left) + BLANK_SIZE))
        tail.allow(file.start + file.reserved_to)
        timestamp_ms = max(time.time_ns() // 1_000_000, tail.last_timestamp_ms)
        places = QueuePlaces(rows, tail)
        stop, end, last = kernels.put_rows(
            file.buffer, position, file.reserved_to, file.start, timestamp_ms, rows.host, rows.columns, start,
            rows.columns.size, places.base, rows.queue_counts, places.turns, places.next_offsets,
        )  # fmt: skip
        if stop > start:
            places.note(tail)
            tail.last_timestamp_ms = timestamp_ms
            tail.last_record_offset = file.start + last
            tail.end_offset = file.start + end
            rows.left -= end - position
            return stop
        self._room_for(file.start + self.file_size - tail.end_offset)  # the next row goes to the next file
        return self._append_rows(rows, start)

    def _check_writable(self) -> None:
        if self._closed:
            raise errors.StoreClosedError("the store is closed", path=self._directory, hint="open it again")
        if self.failure is not None:
            raise errors.NotWritableError(
                "the store takes no messages: syncing its log failed",
                path=self._directory,
                found=str(self.failure),
                hint="close the store, mend the device, and open it again",
            )
        if self._disk_full:
            raise errors.DiskFullError(
                "the store takes no messages while its disk is nearly full",
                path=self._directory,
                hint="make room, remove old files with Store.expire, or raise disk_space_warning_level_ratio",
            )

    def set_disk_full(self, full: bool) -> None:
        """Take no messages while the disk is nearly full, and take them again when it is not."""
        with self._lock:
            self._disk_full = full
            if full:
                self._let_in(False)  # the plain path opens it again

    def stop_appends(self) -> None:
        """Let no record in any more; what is being appended now is finished first."""
        with self._lock:
            self._closed = True
            self._let_in(False)

    def leave_to_parent(self) -> None:
        """Let nothing in: this process is a fork of the one that appends, and who held the lock there is not here."""
        self._let_in(False)

    def _let_in(self, is_free: bool = True) -> None:
        """Let ordinary messages through the tail if the log is ``is_free`` and takes any; nobody else decides that."""
        self.tail.is_open = is_free and self.failure is None and not self._closed and not self._disk_full

    def _write(
        self,
        file: MappedFile,
        position: int,
        total: int,
        records: Sequence[Pending],
        offsets: list[int],
        timestamp_ms: int,
    ) -> None:
        """Put the bytes of ``records`` at ``position``: all of them, or none."""
        messages = [record.fields for record in records]
        try:
            sizes = kernels.put_batch(
                file.buffer, position, self.file_size, file.start, timestamp_ms, offsets, messages
            )
            if sum(sizes) != total:
                raise AssertionError(f"records took {sum(sizes)} bytes, {total} were reckoned")
        except BaseException:
            file.buffer[position : position + total] = bytes(total)
            raise

    def _room_for(self, size_bytes: int) -> MappedFile:
        """The file in which ``size_bytes`` fit behind the log's end, closing the present one if they do not."""
        file = self._file
        if file is None:
            file = self._use(self._create(self.end_offset - self.end_offset % self.file_size))
        room = file.start + self.file_size - self.end_offset
        if size_bytes + BLANK_SIZE <= room:
            return file
        position = self.end_offset - file.start
        if room >= BLANK_SIZE:
            file.reserve(position + BLANK_SIZE)  # before the next file is there: a full disk must leave nothing open
        following = self._create(file.start + self.file_size)
        if room >= BLANK_SIZE:
            file.buffer[position : position + BLANK_SIZE] = encode_blank(room)
            position += BLANK_SIZE
        if isinstance(file, BufferedFile):
            self._uncommitted.append((file, position))
        self._unsynced.append(file)
        self._use(following)
        self.tail.end_offset = following.start
        self._on_roll()
        return following

    def _use(self, file: MappedFile) -> MappedFile:
        """Make ``file`` the one that is written to."""
        self.tail.detach()
        self.tail.attach(file.buffer, file.start)
        if self._file is not None:
            self._readers.take_back(self._file)
        self._file = file
        if not isinstance(file, BufferedFile):  # what is not committed yet is not for readers
            self._readers.lend(file)
        if self._allocator is not None:
            self._allocator.prepare(file.start + self.file_size)
        return file

    def _create(self, start: int) -> MappedFile:
        ready = None if self._allocator is None else self._allocator.take(start)
        return self._make(start) if ready is None else ready

    def _make(self, start: int) -> MappedFile:
        file = self._directories.open_file(start, self.file_size)
        if file is None:
            self._check_buffers()
            return self._directories.create_file(start, self.file_size, self._ways.buffers)
        self._directories.sync(file.path)  # whoever made the file may not have come to that
        if file.buffer[:BLANK_SIZE].strip(b"\0"):
            file.close()
            raise errors.CorruptFileError(
                "the next commit log file is already in use",
                path=file.path,
                expected="no file, or a blank one",
                found="data",
                hint="another process may write here; run mqstore check",
            )
        return file

    def _check_buffers(self) -> None:
        buffers = self._ways.buffers
        if buffers is not None and self._ways.refuse_without_buffer and not buffers.available:
            error = errors.NotWritableError(
                "no write buffer is free for a new commit log file",
                path=self._directory,
                found="all in use",
                hint="try again; raise transient_store_pool_size if it happens often",
            )
            error.retriable = True  # as soon as the next commit has emptied one
            raise error

    def commit(self) -> int:
        """Move everything appended so far from the buffers into the files; the offset up to which that holds.

        Raises:
            StoreIOError: it could not be written, now or before; see ``failure``.
        """
        if self._ways.buffers is None:
            return self.end_offset
        with self._commit_lock:
            if self.failure is not None:
                raise self.failure
            with self._lock:
                target = self.end_offset
                current = self._file
                closed = list(self._uncommitted)
            try:
                for file, end in closed:
                    file.commit(end)
                    with self._lock:  # not before: an interrupt in the middle must leave it to the next call
                        self._uncommitted.remove((file, end))
                    file.release()
                if isinstance(current, BufferedFile):
                    current.commit(target - current.start)
            except errors.MqstoreError as error:
                self._fail(error)
                raise
            progress = target > self._committed_offset
            self._committed_offset = target
        if progress:
            self.on_commit()
        return target

    def sync(self) -> int:
        """Force everything appended so far to the device; the offset up to which that holds.

        One call at a time: a file that another call is still syncing must not be taken for safe.

        Raises:
            StoreIOError, DiskFullError: the device failed, now or before; see ``failure``.
        """
        with self._sync_lock:
            if self.failure is not None:
                raise self.failure
            committed = self.commit()
            with self._lock:
                target = self.end_offset if self._ways.buffers is None else committed
                behind = [file for file in self._unsynced if file.start + self.file_size <= target]
                written = next(iter(self._unsynced[len(behind) :]), self._file)
            try:
                for file in behind:
                    file.sync()
                    with self._lock:  # not before: an interrupt in the middle must leave it to the next call
                        self._unsynced.remove(file)
                    file.close()
                if written is not None and target > self.flushed_offset:
                    written.sync()
            except errors.MqstoreError as error:
                self._fail(error)
                raise
            self.flushed_offset = max(self.flushed_offset, target)
            return target

    def _fail(self, error: errors.MqstoreError) -> None:
        with self._lock:
            self.failure = error
            self._let_in(False)

    def close(self) -> None:
        """Sync and unmap; raises as :meth:`sync`, unmapped all the same."""
        with ExitStack() as rest:  # each of these whatever becomes of the others, the last first
            for file in filter(None, [*self._unsynced, self._file]):
                rest.callback(file.close)
            rest.callback(self._let_go)
            if self._allocator is not None:
                rest.callback(self._allocator.stop)
            self.sync()

    def _let_go(self) -> None:
        self.tail.detach()
        if self._file is not None:
            self._readers.take_back(self._file)
        self._file = None

    def is_durable(self) -> bool:
        """Whether everything appended is on the device."""
        return self.flushed_offset >= self.end_offset


def set_next_offset(next_offsets: dict[str, list[int]], topic: str, queue_id: int, offset: int) -> None:
    """Note where a queue goes on."""
    queues = next_offsets.setdefault(topic, [])
    if queue_id >= len(queues):
        queues.extend([0] * (queue_id + 1 - len(queues)))
    queues[queue_id] = offset


def _take_offsets(
    records: Sequence[Pending], next_offsets: dict[str, list[int]]
) -> tuple[list[Pending], list[int], dict[tuple[str, int], int]]:
    """The records with nothing missing, the queue offset of each, and where each queue concerned goes on after them."""
    taken: dict[tuple[str, int], int] = {}

    def next_of(key: tuple[str, int]) -> int:
        offset = taken.get(key)
        if offset is None:
            topic, queue_id = key
            queues = next_offsets.get(topic, [])
            offset = queues[queue_id] if queue_id < len(queues) else 0
        return offset

    complete, offsets = [], []
    for record in records:
        key, further = record.queue_key, () if record.further is None else record.further.queues
        offset = 0 if key is None else next_of(key)
        places = [next_of(queue) for queue in further]
        if record.further is not None:
            fields = record.further.complete(record.fields, places)
            grown = len(fields[2]) - len(record.fields[2])
            record = record._replace(fields=fields, size_bytes=record.size_bytes + grown)
        complete.append(record)
        offsets.append(offset)
        taken.update(zip(further, (place + 1 for place in places), strict=True))
        if key is not None:
            taken[key] = offset + 1
    return complete, offsets, taken
