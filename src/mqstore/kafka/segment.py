"""One segment read from its files, beside a writer or not.

Nothing here changes a file. Batches are found by the kernels in pieces of the ``.log`` read with ``pread``; indexes
are read up to the first entry that is none, and only ever used as hints.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from mqstore import errors, kernels
from mqstore.files.pool import FilePool
from mqstore.files.whole import read_whole
from mqstore.kafka.damage import BatchDamage, Reporter, next_batch, raise_at_damage
from mqstore.kernels.kafka_api import BatchColumns, BatchStop
from mqstore.layout.kafka.batch import BatchHeader, decode_header
from mqstore.layout.kafka.constants import PREFIX_AND_MAGIC_SIZE, PREFIX_SIZE
from mqstore.layout.kafka.names import FileKind, segment_file_name
from mqstore.layout.kafka.offset_index import ENTRY_SIZE as OFFSET_ENTRY_SIZE
from mqstore.layout.kafka.offset_index import OffsetIndex
from mqstore.layout.kafka.time_index import ENTRY_SIZE as TIME_ENTRY_SIZE
from mqstore.layout.kafka.time_index import TimeEntry, TimeIndex
from mqstore.layout.kafka.txn_index import AbortedTransaction, decode_txn_index

_log = logging.getLogger(__name__)

CHUNK_BYTES = 1 << 20
"""Bytes of a log read and scanned at a time; more only where one batch is larger."""

_SHORT_LOOK_BYTES = 16 << 10
_INDEX_CHUNK_BYTES = 48 << 10
"""Whole entries of both kinds."""

ResultT = TypeVar("ResultT")
IndexT = TypeVar("IndexT", OffsetIndex, TimeIndex)


class SegmentGoneError(errors.StoreIOError):
    """The file of a segment was removed or replaced while it was read: the reader takes the list of segments anew."""

    retriable = True


TRIES = 30
"""How often a reader looks again. A cleaner that is faster than that leaves nobody in peace."""


def again_if_gone(action: Callable[[], ResultT], refresh: Callable[[], None] = lambda: None) -> ResultT:
    """What ``action`` gives; done again, after ``refresh``, when a segment was removed or replaced meanwhile."""
    for tried in range(TRIES - 1):
        try:
            return action()
        except SegmentGoneError:
            wait_a_little(tried)
            refresh()
    return action()


def wait_a_little(tried: int) -> None:
    """Let whoever changes segments get on; longer from time to time."""
    time.sleep(min(0.05, 0.0005 * 2**tried))


@dataclass(frozen=True)
class Chunk:
    """A run of batches: ``columns`` refer to ``buffer``, whose byte 0 is at ``position`` of the ``.log``."""

    buffer: bytes
    position: int
    columns: BatchColumns

    def headers(self) -> Iterator[BatchHeader]:
        """The batches' headers, one by one; their positions are places in :attr:`buffer`."""
        for position in self.columns.position:
            yield decode_header(self.buffer, position)


class BatchScan:
    """Iterates over the batches of a part of a segment; once it has ended, the attributes tell why.

    Attributes:
        position: where in the ``.log`` the sound batches end.
        stop: why they end there: END, SHORT (a torn batch, or one being written), PADDING (zeros), or DAMAGED.
    """

    def __init__(self, segment: Segment, position: int, end: int | None, check_crc: bool, first_bytes: int) -> None:
        self._segment = segment
        self._end = segment.size_bytes if end is None else min(end, segment.size_bytes)
        self._check_crc = check_crc
        self._want = first_bytes
        self._size_bytes = 0
        self._reason = ""
        self.position = position
        self.stop = BatchStop.END

    @property
    def damage(self) -> BatchDamage | None:
        """What lies at :attr:`position` if it is a batch neither whole nor sound; None at an end and at zeros."""
        if self.stop not in (BatchStop.SHORT, BatchStop.DAMAGED):
            return None
        return BatchDamage(self._segment.path(), self.position, self._reason, self._size_bytes)

    def __iter__(self) -> Iterator[Chunk]:
        while self.position < self._end:
            start, asked = self.position, min(self._want, self._end - self.position)
            buffer = self._segment.read(start, asked)
            if not buffer:  # cut off meanwhile, between two batches
                self.stop = BatchStop.END
                return
            columns = kernels.kafka_batches(buffer, 0, len(buffer), check_crc=self._check_crc)
            self.stop = columns.stop
            self.position += columns.next_position
            if columns.count:
                yield Chunk(buffer, start, columns)
            self._want = CHUNK_BYTES
            if columns.stop is BatchStop.SHORT:
                need = max(_size_at(buffer, columns.next_position), PREFIX_AND_MAGIC_SIZE)
                # Asked before more is read: a length that no file has must not become a buffer.
                if len(buffer) < asked or self.position + need > self._end:
                    self._reason = "CUT_OFF"
                    return
                self._want = max(CHUNK_BYTES, need)
            if columns.stop in (BatchStop.DAMAGED, BatchStop.PADDING):
                self._reason = str(columns.damage)
                self._size_bytes = _size_at(buffer, columns.next_position)
                return


class Segment:
    """A segment by directory and base offset.

    Attributes:
        directory: the partition's directory.
        base_offset: what it is named after; a lower bound of the offsets in it.
        limit_bytes: where the ``.log`` ends for a reader, if not at its end: something is being written behind it.
        is_own: whether this process keeps its derived files, so that a missing one is known to have nothing to say.
    """

    def __init__(self, directory: Path, base_offset: int, pool: FilePool, limit_bytes: int | None = None) -> None:
        self.directory = directory
        self.base_offset = base_offset
        self._paths: dict[FileKind, Path] = {}
        self.limit_bytes = limit_bytes
        self.is_own = False
        self.walked_aborts: tuple[int, list[AbortedTransaction]] = (-1, [])
        self.walked_largest = (-1, TimeEntry(-1, base_offset))
        self._pool = pool
        self._identity = self.identity
        self._warned: set[FileKind] = set()
        self._indexes: dict[FileKind, tuple[tuple[int, int, int], OffsetIndex | TimeIndex]] = {}

    def path(self, kind: FileKind = FileKind.LOG) -> Path:
        """Where its file of this kind lies, or would."""
        known = self._paths.get(kind)
        if known is None:
            known = self._paths[kind] = self._make_path(kind)
        return known

    def _make_path(self, kind: FileKind) -> Path:
        return self.directory / segment_file_name(self.base_offset, kind)

    @property
    def size_bytes(self) -> int:
        """Length of the ``.log`` up to the limit.

        Raises:
            SegmentGoneError: the file is no longer there, or another has its name.
        """
        status = self._stat(FileKind.LOG)
        if status is None or status.st_ino != self._identity:
            # Another file's length must not be taken for this one's: it would seem to end early, or in a batch.
            raise SegmentGoneError("a segment was removed or replaced", path=self.path(), hint="look again")
        return status.st_size if self.limit_bytes is None else min(status.st_size, self.limit_bytes)

    @property
    def modified_ns(self) -> int:
        """Modification time of the ``.log`` in nanoseconds; 0 when it is gone."""
        status = self._stat(FileKind.LOG)
        return 0 if status is None else status.st_mtime_ns

    @property
    def modified_ms(self) -> int:
        """Modification time of the ``.log``: its age, where no record has a timestamp."""
        return self.modified_ns // 1_000_000

    def _stat(self, kind: FileKind) -> os.stat_result | None:
        try:
            return os.stat(self.path(kind))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise errors.from_os_error(error, "look at file", self.path(kind)) from error

    @property
    def identity(self) -> int:
        """Tells two files of one name apart: cleaning puts another ``.log`` in place of this."""
        status = self._stat(FileKind.LOG)
        return -1 if status is None else status.st_ino

    def was_replaced(self) -> bool:
        """Whether another ``.log`` has taken the place of the one first seen."""
        return self.identity != self._identity

    def read(self, position: int, size_bytes: int) -> bytes:
        """Bytes of the ``.log``; fewer only at its end.

        Raises:
            SegmentGoneError: the file is no longer there, or another has its name: the list of segments has changed.
        """
        try:
            with self._pool.descriptor(self.path()) as fd:
                if os.fstat(fd).st_ino != self._identity:
                    raise SegmentGoneError("a segment was replaced by another", path=self.path(), hint="look again")
                return _read_all(fd, position, size_bytes, self.path())
        except errors.StoreIOError as error:
            raise _gone_if_missing(error) from error

    def scan(
        self, position: int = 0, end: int | None = None, *, check_crc: bool = True, first_bytes: int = CHUNK_BYTES
    ) -> BatchScan:
        """The batches from ``position`` (a batch's start) on that end at or before ``end``, in chunks."""
        return BatchScan(self, position, end, check_crc, first_bytes)

    def chunks(
        self,
        position: int = 0,
        *,
        check_crc: bool = True,
        on_damage: Reporter = raise_at_damage,
        first_bytes: int = CHUNK_BYTES,
    ) -> Iterator[Chunk]:
        """The batches from ``position`` on, to the end, in chunks.

        Raises:
            CorruptBatchError: something else than a batch, unless ``on_damage`` decides to go on behind it.
        """
        while True:
            scan = self.scan(position, check_crc=check_crc, first_bytes=first_bytes)
            yield from scan
            damage = scan.damage
            if damage is None or not on_damage(damage):
                return
            following = next_batch(self, damage.position, damage.size_bytes)
            if following is None:
                return
            position = following

    def headers(
        self, position: int = 0, *, check_crc: bool = False, on_damage: Reporter = raise_at_damage
    ) -> Iterator[tuple[int, BatchHeader, bytes]]:
        """Position in the ``.log``, header and buffer of every batch from ``position`` on; raises as :meth:`chunks`.

        The first look is a short one: who looks something up seldom goes far.
        """
        for chunk in self.chunks(position, check_crc=check_crc, on_damage=on_damage, first_bytes=_SHORT_LOOK_BYTES):
            for header in chunk.headers():
                yield chunk.position + header.position, header, chunk.buffer

    def offset_index(self) -> OffsetIndex:
        """The entries of the ``.index``; none of a missing file, or one that cannot be read: the log tells as much."""
        return self._index_or_none(FileKind.OFFSET_INDEX, OFFSET_ENTRY_SIZE, OffsetIndex)

    def time_index(self) -> TimeIndex:
        """The entries of the ``.timeindex``, as :meth:`offset_index`."""
        return self._index_or_none(FileKind.TIME_INDEX, TIME_ENTRY_SIZE, TimeIndex)

    def _index_or_none(self, kind: FileKind, entry_size: int, decoder: type[IndexT]) -> IndexT:
        try:
            return self._index(kind, entry_size, decoder)
        except SegmentGoneError:
            raise
        except (errors.StoreIOError, errors.DamageError) as error:
            if kind not in self._warned:
                self._warned.add(kind)
                _log.warning("going on without an index, by walking the log: %s", error)
            return decoder(self.base_offset)

    def aborted(self) -> list[AbortedTransaction] | None:
        """The entries of the ``.txnindex``; None when there is no such file that could be trusted.

        Raises:
            CorruptFileError: it is damaged.
        """
        if self._stat(FileKind.TXN_INDEX) is None:
            return [] if self.is_own else None
        path = self.path(FileKind.TXN_INDEX)
        try:
            status = self._stat(FileKind.TXN_INDEX)
            return decode_txn_index(self._pool.read(path, 0, 0 if status is None else status.st_size))
        except errors.CorruptFileError as error:
            error.path = str(path)
            raise
        except errors.StoreIOError as error:
            raise _gone_if_missing(error) from error
        finally:
            self._pool.forget(path)

    def _index(self, kind: FileKind, entry_size: int, decoder: type[IndexT]) -> IndexT:
        status = self._stat(kind)
        if status is None:
            return decoder(self.base_offset)
        # A live writer changes the file through a map, and times of maps are noted late: a growing one is read anew.
        stamp = (status.st_ino, status.st_size, status.st_mtime_ns)
        known = self._indexes.get(kind)
        if known is not None and known[0] == stamp and isinstance(known[1], decoder):
            return known[1]
        data = self._read_index(self.path(kind), entry_size)
        index = decoder.decode(data, self.base_offset)
        if len(index) * entry_size == status.st_size:
            self._indexes[kind] = stamp, index
        return index

    def _read_index(self, path: Path, entry_size: int) -> bytes:
        """The file up to where its zeros begin: one of full length is mostly hole."""
        parts = []
        position = 0
        zeros = bytes(entry_size)
        try:
            while part := self._pool.read(path, position, _INDEX_CHUNK_BYTES):
                parts.append(part)
                position += len(part)
                if part.endswith(zeros):
                    break
        except errors.StoreIOError as error:
            raise _gone_if_missing(error) from error
        finally:
            self._pool.forget(path)
        return b"".join(parts)

    def read_file(self, kind: FileKind) -> bytes | None:
        """A derived file as a whole; None when it is missing."""
        return read_whole(self.path(kind), "index")

    def forget(self) -> None:
        """Close its files: they were removed or replaced."""
        self._pool.forget(self.path())
        self._indexes.clear()


def _gone_if_missing(error: errors.StoreIOError) -> errors.StoreIOError:
    """``error``, or that the segment is gone where its cause is a missing file."""
    if isinstance(error.__cause__, FileNotFoundError):
        return SegmentGoneError("a segment was removed", path=error.path, hint="look again")
    return error


def _read_all(fd: int, position: int, size_bytes: int, path: Path) -> bytes:
    try:
        data = os.pread(fd, size_bytes, position)
        while len(data) < size_bytes:
            more = os.pread(fd, size_bytes - len(data), position + len(data))
            if not more:
                break
            data += more
        return data
    except OSError as error:
        raise errors.from_os_error(error, "read", path) from error


def _size_at(buffer: bytes, position: int) -> int:
    """Size of the batch at ``position`` by its length field; a prefix's size where that is cut off."""
    head = buffer[position : position + PREFIX_SIZE]
    return PREFIX_SIZE + (int.from_bytes(head[8:12], "big") if len(head) == PREFIX_SIZE else 0)
