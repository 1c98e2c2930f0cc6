"""One partition of a running store: appended to under its lock, read by any thread."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mqstore import errors
from mqstore.files import durable
from mqstore.files.pool import FilePool
from mqstore.kafka import lookup
from mqstore.kafka.active_segment import ActiveSegment
from mqstore.kafka.config import KafkaConfig
from mqstore.kafka.loading import LoadedLog, cut_epochs
from mqstore.kafka.markers import read_marker
from mqstore.kafka.message import Isolation
from mqstore.kafka.producer_state import Marker
from mqstore.kafka.reading import LogRange
from mqstore.kafka.segment import Segment
from mqstore.kafka.stock import take_partition_stock
from mqstore.kafka.transactions import aborted_between
from mqstore.layout.constants import LONG_MAX
from mqstore.layout.kafka import names
from mqstore.layout.kafka.batch import BatchHeader, decode_header, rebase
from mqstore.layout.kafka.checkpoints import EpochEntry, encode_leader_epochs
from mqstore.layout.kafka.names import FileKind, FileStage
from mqstore.layout.kafka.producer_snapshot import ProducerEntry, encode_producer_snapshot
from mqstore.layout.kafka.txn_index import AbortedTransaction

_log = logging.getLogger(__name__)

SEGMENT_KINDS = (FileKind.LOG, FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TXN_INDEX)


@dataclass(frozen=True)
class Appended:
    """Where a batch lies; ``is_duplicate``: it had been appended before, by the same producer."""

    base_offset: int
    last_offset: int
    max_timestamp_ms: int
    is_duplicate: bool = False


class PartitionLog:
    """A partition open for writing.

    Attributes:
        topic: the topic's name.
        partition: the partition's number.
        directory: where its files lie.
        log_start: first offset that may be read.
        log_end: the offset that the next record gets.
        recovery_point: everything below is on the device.
        failure: the error that ended the taking of records, or None.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        directory: Path,
        config: KafkaConfig,
        pools: tuple[FilePool, FilePool],
        loaded: LoadedLog,
        on_removed: Callable[[list[Path]], None],
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.directory = directory
        self._config = config
        self._pool, self._writing = pools
        self._on_removed = on_removed
        self.lock = threading.RLock()
        self._flush_lock = threading.Lock()
        self.cleaning = threading.RLock()
        self.log_start = loaded.log_start
        self.log_end = loaded.log_end
        self.recovery_point = loaded.recovery_point
        self.failure: errors.MqstoreError | None = None
        self._is_closed = False
        self._producers = loaded.producers
        self._epochs = loaded.epochs
        self._last_snapshot = loaded.last_snapshot
        self._segments: list[Segment] = loaded.segments[:-1]
        last = loaded.segments[-1]
        active = ActiveSegment(directory, last.base_offset, self._pool, self._writing, config, last.size_bytes)
        active.resume(loaded.largest, loaded.first_time_ms)
        self._segments.append(active)
        for segment in self._segments:
            segment.is_own = True
        self._unsynced = [segment for segment in loaded.unsynced if segment in self._segments]
        self.oldest_unflushed_ms: int | None = None

    # -- reading

    @property
    def active(self) -> ActiveSegment:
        """The segment that is appended to."""
        last = self._segments[-1]
        assert isinstance(last, ActiveSegment)
        return last

    def segments(self) -> list[Segment]:
        """The segments in order, as they are now."""
        with self.lock:
            return list(self._segments)

    @property
    def size_bytes(self) -> int:
        """Bytes of all its logs."""
        return sum(segment.size_bytes for segment in self.segments())

    @property
    def leader_epoch(self) -> int:
        """The epoch that new batches get: the newest noted, 0 in a new log."""
        return self._epochs[-1].epoch if self._epochs else 0

    @property
    def leader_epochs(self) -> list[EpochEntry]:
        """The leader epochs, each with its first offset."""
        with self.lock:
            return list(self._epochs)

    @property
    def last_stable_offset(self) -> int:
        """First offset of the oldest open transaction, the log end without one."""
        with self.lock:
            first_open = self._producers.first_open_offset
            return self.log_end if first_open is None else max(first_open, self.log_start)

    def range(self, isolation: Isolation) -> LogRange:
        """The log as a reader of this isolation level sees it now."""
        with self.lock:
            segments, start = list(self._segments), self.log_start
            if isolation is Isolation.READ_UNCOMMITTED:
                return LogRange(segments, start, self.log_end)
            return LogRange(segments, start, self.last_stable_offset, self.aborted_transactions)

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTransaction]:
        """The aborted transactions with records from ``start`` to ``end`` (exclusive)."""
        segments, log_end = self.segments(), self.log_end
        stock = take_partition_stock(self.directory)
        return aborted_between(stock, segments, start, end, log_end)

    @property
    def producers(self) -> list[ProducerEntry]:
        """What is known of its producers."""
        with self.lock:
            return self._producers.entries()

    def producer_entry(self, producer_id: int) -> ProducerEntry | None:
        """What is known of one producer, if anything."""
        with self.lock:
            known = self._producers.producers.get(producer_id)
            return None if known is None else known.entry()

    # -- appending

    def append(self, batch: bytes, *, leader_epoch: int | None = None, keep_offsets: bool = False) -> Appended:
        """Append one batch of the present format; its offsets and leader epoch are given here.

        Args:
            batch: a whole batch whose checksum is right.
            leader_epoch: the epoch to note; None is the newest.
            keep_offsets: take the batch's own offsets, as a follower does; they may leave a hole behind the log's end.

        Raises:
            MessageIllegalError: the batch is too large, or its offsets are taken or the last of all.
            CorruptBatchError: a control batch that cannot be read.
            OutOfOrderSequenceError, ProducerFencedError: of its producer.
            DiskFullError, StoreIOError: it could not be written; nothing of it was kept.
            NotWritableError: a sync failed before.
        """
        with self.lock:
            self._check_writable()
            header = decode_header(batch)
            self._check_size(header)
            if header.producer_id >= 0 and not header.is_control:
                repeated = self._producers.check(header)
                if repeated is not None:
                    return Appended(repeated.first_offset, repeated.last_offset, repeated.timestamp_ms, True)
            base = header.base_offset if keep_offsets else self.log_end
            if base < self.log_end:
                raise errors.MessageIllegalError(
                    "these offsets are taken", path=self.directory, expected=f">= {self.log_end}", found=base
                )
            epoch = self.leader_epoch if leader_epoch is None else leader_epoch
            placed = rebase(batch, base, epoch)
            header = decode_header(placed)
            if header.last_offset == LONG_MAX:
                raise errors.MessageIllegalError(
                    "no offset would be left behind the batch", path=self.directory, found=header.last_offset
                )
            marker = read_marker(placed, header)  # before it is written: a log must be able to bear what it holds
            if self.active.must_roll(len(placed), header.max_timestamp_ms, header.last_offset):
                self._roll(base)
            self._note_epoch(epoch, base)
            self.active.append(placed, header)
            self.log_end = header.last_offset + 1
            self._note_producer(header, marker)
            if self.oldest_unflushed_ms is None:
                self.oldest_unflushed_ms = time.monotonic_ns() // 1_000_000
            return Appended(base, header.last_offset, header.max_timestamp_ms)

    def check_epoch(self, producer_id: int, producer_epoch: int) -> None:
        """Raise ProducerFencedError when a newer epoch of the producer has been seen."""
        with self.lock:
            self._producers.check_epoch(producer_id, producer_epoch)

    def check_appendable(self, producer_id: int, producer_epoch: int) -> None:
        """Raise what :meth:`append` would raise whatever the batch of this producer: the partition takes none."""
        with self.lock:
            self._check_writable()
            self._producers.check_epoch(producer_id, producer_epoch)

    def next_sequence(self, producer_id: int, producer_epoch: int) -> int:
        """The number that the next record of a producer gets here; an epoch's first is 0."""
        with self.lock:
            return self._producers.next_sequence(producer_id, producer_epoch)

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether this epoch of a producer has begun a transaction here that has not ended."""
        with self.lock:
            known = self._producers.producers.get(producer_id)
            return known is not None and known.txn_first_offset >= 0 and known.epoch == producer_epoch

    @property
    def safe_recovery_point(self) -> int:
        """What may be noted as recovery point: all below is on the device, with the indexes of ended segments.

        Segments below a noted recovery point are not looked at after a crash.
        """
        with self.lock:
            return min([self.recovery_point, *(segment.base_offset for segment in self._unsynced)])

    def _check_writable(self) -> None:
        if self._is_closed:
            raise errors.StoreClosedError("the store is closed", path=self.directory, hint="open it again")
        if self.failure is not None:
            raise errors.NotWritableError(
                "the partition takes no more records", path=self.directory, found=str(self.failure),
                hint="look at the device, then open the store again",
            ) from self.failure  # fmt: skip

    def _check_size(self, header: BatchHeader) -> None:
        config = self._config
        limit = min(config.segment_bytes, config.max_message_bytes)
        if header.size > limit:
            name = "segment_bytes" if config.segment_bytes == limit else "max_message_bytes"
            raise errors.MessageIllegalError(
                "the batch is too large", expected=f"at most {limit} bytes ({name})", found=header.size,
                hint="send fewer records at once, or raise the limit",
            )  # fmt: skip

    def _note_epoch(self, epoch: int, base_offset: int) -> None:
        if epoch >= 0 and (not self._epochs or epoch > self._epochs[-1].epoch):
            epochs = [*self._epochs, EpochEntry(epoch, base_offset)]
            durable.replace_file(self.directory / names.LEADER_EPOCHS, encode_leader_epochs(epochs))
            self._epochs = epochs

    def _note_producer(self, header: BatchHeader, marker: Marker | None) -> None:
        if header.producer_id < 0:
            self._producers.end_offset = self.log_end
            return
        aborted = self._producers.apply(header, marker)
        if aborted is not None:
            try:
                self.active.add_aborted(aborted)
            except errors.MqstoreError as error:
                # Readers would take the aborted records for committed; the next open makes the index anew.
                self.failure = error
                raise

    # -- rolling

    def roll(self) -> bool:
        """Begin a new segment at the log's end; False when the present one is empty."""
        with self.lock:
            self._check_writable()
            if self.active.size_bytes == 0:
                return False
            self._roll(self.log_end)
            return True

    def _roll(self, first_offset: int) -> None:
        base = max(first_offset, self.log_end)
        closing = self.active
        closing.finish()
        if base == closing.base_offset:
            raise errors.MessageIllegalError(
                "the batch does not fit a segment", path=closing.path(), expected=f"a base offset above {base}",
                hint="raise segment_bytes or segment_index_bytes",
            )  # fmt: skip
        # The whole segment is on the device before the next one can be: a crash leaves no hole between the two.
        try:
            self._sync(closing, SEGMENT_KINDS)
        except errors.MqstoreError as error:
            self.failure = error
            raise
        following = ActiveSegment.create(self.directory, base, self._pool, self._writing, self._config)
        self._producers.end_offset = base
        self.write_snapshot(base)  # syncs the directory, too
        closed = Segment(self.directory, closing.base_offset, self._pool)
        closed.is_own = following.is_own = True
        self._segments[-1:] = [closed, following]
        self.recovery_point = max(self.recovery_point, self.log_end)

    def write_snapshot(self, offset: int) -> None:
        """Note the producers at ``offset``, where no newer note exists."""
        if offset > self._last_snapshot:
            path = self.directory / names.segment_file_name(offset, FileKind.SNAPSHOT)
            durable.replace_file(path, encode_producer_snapshot(self._producers.entries()))
            self._last_snapshot = offset
        else:
            durable.sync_directory(self.directory)

    # -- flushing

    def flush(self, up_to: int | None = None) -> None:
        """Make everything appended so far durable; nothing to do when that holds up to ``up_to`` already.

        Threads that wait here together share one sync.

        Raises:
            StoreIOError: the device failed. The partition takes no more records.
        """
        with self._flush_lock:
            with self.lock:
                self._check_writable()
                if up_to is not None and self.recovery_point >= up_to and not self._unsynced:
                    return
                target, active = self.log_end, self.active
                closed = list(self._unsynced)
                since, self.oldest_unflushed_ms = self.oldest_unflushed_ms, None
                is_clean = self.recovery_point >= target and not closed
            try:
                for segment in closed:
                    self._sync(segment, SEGMENT_KINDS)
                if not is_clean:
                    # The indexes of the segment that holds the recovery point are made anew after a crash.
                    self._sync(active, (FileKind.LOG,))
            except BaseException as error:  # also an interrupt, which is no failure
                if isinstance(error, errors.MqstoreError):
                    self.failure = error
                self.oldest_unflushed_ms = since
                raise
            with self.lock:
                self._unsynced = [segment for segment in self._unsynced if segment not in closed]
                self.recovery_point = max(self.recovery_point, target)

    def _sync(self, segment: Segment, kinds: tuple[FileKind, ...]) -> None:
        for kind in kinds:
            path = segment.path(kind)
            if kind is FileKind.TXN_INDEX and not path.exists():
                continue
            try:
                with self._writing.descriptor(path) as fd:
                    durable.sync_file(fd, path)
            except errors.StoreIOError as error:
                # Retention or cleaning may have taken the segment away meanwhile: then there is nothing to sync.
                if not isinstance(error.__cause__, FileNotFoundError) or segment in self.segments():
                    raise

    def close(self) -> None:
        """Finish the active segment, note the producers, make all durable."""
        with self.lock:
            if self.failure is not None or self._is_closed:
                return
            if self._last_snapshot == self.recovery_point == self.log_end and not self._unsynced:
                self._is_closed = True  # nothing was appended since the last clean stop, or the last segment ended
                return
            self.active.finish()
            self._producers.end_offset = self.log_end
            self.write_snapshot(self.log_end)
            if self.active not in self._unsynced:
                self._unsynced.append(self.active)
        self.flush()
        with self.lock:
            self._is_closed = True

    # -- removing

    def delete_records(self, before: int) -> int:
        """Let the log start at ``before``; segments wholly below go. The new start."""
        with self.lock:
            if not 0 <= before <= self.log_end:
                raise errors.UsageError(
                    "no such offset to delete up to", expected=f"0 to {self.log_end}", found=before, hint="see stats()"
                )
            if before > self.log_start:
                self._raise_start(before)
            return self.log_start

    def _raise_start(self, start: int) -> None:
        self.log_start = start
        self._epochs = cut_epochs(self._epochs, start, max(self.log_end, start + 1))
        if self._epochs:
            durable.replace_file(self.directory / names.LEADER_EPOCHS, encode_leader_epochs(self._epochs))

    def remove_below_start(self) -> int:
        """Remove the segments that lie wholly below the log start; how many. The start must be noted durably before."""
        with self.cleaning, self.lock:
            return self._remove_oldest(lookup.floor_segment(self._segments, self.log_start))

    def remove_oldest(self, should_go: Callable[[Segment, bool], bool]) -> int:
        """Remove segments from the oldest on while ``should_go`` says so of them (and whether it is the active one).

        When all go, an empty one takes their place. How many went.
        """
        with self.cleaning, self.lock:
            self._check_writable()
            count = 0
            for number, segment in enumerate(self._segments):
                is_active = number == len(self._segments) - 1
                if (is_active and segment.size_bytes == 0) or not should_go(segment, is_active):
                    break
                count += 1
            if count == len(self._segments):
                self._roll(self.log_end)
            return self._remove_oldest(count)

    def _remove_oldest(self, count: int) -> int:
        if count == 0:
            return 0
        going, self._segments = self._segments[:count], self._segments[count:]
        self._unsynced = [segment for segment in self._unsynced if segment not in going]
        if self._segments[0].base_offset > self.log_start:
            self._raise_start(self._segments[0].base_offset)
        removed = [path for segment in going for path in self.mark_deleted(segment, with_snapshot=True)]
        durable.sync_directory(self.directory)
        self.discard(removed)
        return count

    def mark_deleted(self, segment: Segment, *, with_snapshot: bool) -> list[Path]:
        """Rename a segment's files to ``.deleted``; the new names. Readers that have them open go on reading."""
        kinds = (*SEGMENT_KINDS, FileKind.SNAPSHOT) if with_snapshot else SEGMENT_KINDS
        renamed = []
        # The log last: without it, whatever a crash leaves is removed at the next start.
        for kind in (*kinds[1:], kinds[0]):
            path = segment.path(kind)
            if path.exists():
                target = self.directory / names.segment_file_name(segment.base_offset, kind, FileStage.DELETED)
                durable.rename(path, target)
                renamed.append(target)
            self._writing.forget(path)
        segment.forget()
        return renamed

    def replace_segments(self, old: list[Segment], base_offset: int) -> Segment:
        """Put the segment of this base offset, whose files are in place, where ``old`` were in the list."""
        with self.lock:
            segment = Segment(self.directory, base_offset, self._pool)
            segment.is_own = True
            first = self._segments.index(old[0])
            self._segments[first : first + len(old)] = [segment]
            self._unsynced = [one for one in self._unsynced if one not in old]
            return segment

    def discard(self, paths: list[Path]) -> None:
        """Have files that were renamed to ``.deleted`` removed when it is time."""
        self._on_removed(paths)
