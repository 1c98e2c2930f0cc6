"""Bringing one partition into the state in which it can be appended to, after a clean stop or a crash.

The steps are a broker's: finish what was being renamed; after a crash walk every segment from the one that holds the
recovery point on, cut the log at the first damage and remove what follows; make derived files anew where they are
missing or wrong; drop what lies below the log start. Derived files never count as evidence about the log. Each step can
be broken off and done again: the damage itself is cut off last of all, so that whoever comes next finds it and tells
the same.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from pathlib import Path

from mqstore import errors
from mqstore.files import durable
from mqstore.files.pool import FilePool
from mqstore.files.whole import read_whole
from mqstore.kafka import lookup
from mqstore.kafka.damage import BatchDamage, stop_at_damage
from mqstore.kafka.leftovers import Leftovers, find_leftovers
from mqstore.kafka.producer_state import ProducerStates
from mqstore.kafka.segment import Segment
from mqstore.kafka.segment_recovery import SegmentWalk, walk_segment, write_derived
from mqstore.kafka.stock import PartitionStock, odd_file_error, take_partition_stock
from mqstore.kafka.transactions import producers_at, read_snapshot
from mqstore.layout.constants import LONG_MAX
from mqstore.layout.kafka import names
from mqstore.layout.kafka.checkpoints import EpochEntry, decode_leader_epochs, encode_leader_epochs
from mqstore.layout.kafka.names import FileKind, FileStage
from mqstore.layout.kafka.offset_index import ENTRY_SIZE as OFFSET_ENTRY_SIZE
from mqstore.layout.kafka.producer_snapshot import encode_producer_snapshot
from mqstore.layout.kafka.time_index import ENTRY_SIZE as TIME_ENTRY_SIZE
from mqstore.layout.kafka.time_index import TimeEntry

_log = logging.getLogger(__name__)

_SEGMENT_KINDS = (FileKind.LOG, FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TXN_INDEX)


@dataclass
class LoadReport:
    """What loading a partition found and did.

    Attributes:
        directory: the partition's.
        end_before: log end offset by the headers alone, before anything was changed.
        end_after: log end offset now.
        damage: the first damage, at which the log was cut; None without.
        cut_bytes: bytes removed from the segment that holds it.
        removed: base offsets of segments removed behind it, or below the log start.
        rebuilt: names of derived files made anew.
        finished: files removed or renamed because a crash had broken something off.
    """

    directory: Path
    end_before: int = 0
    end_after: int = 0
    damage: BatchDamage | None = None
    cut_bytes: int = 0
    removed: list[int] = field(default_factory=list)
    rebuilt: list[str] = field(default_factory=list)
    finished: int = 0


@dataclass
class LoadedLog:
    """A partition ready to be appended to: its segments in order (at least one), ends, producers and epochs.

    ``unsynced`` are the segments that may be in the page cache only, and ``recovery_point`` is what is known to be on
    the device.
    """

    segments: list[Segment]
    log_start: int
    log_end: int
    producers: ProducerStates
    epochs: list[EpochEntry]
    largest: TimeEntry
    first_time_ms: int | None
    last_snapshot: int
    recovery_point: int
    unsynced: list[Segment]
    report: LoadReport


def new_log(directory: Path, pool: FilePool) -> LoadedLog:
    """A partition that was just made, in whose directory is nothing to be looked at: one empty segment."""
    return LoadedLog(
        segments=[Segment(directory, 0, pool)],
        log_start=0,
        log_end=0,
        producers=ProducerStates(),
        epochs=[],
        largest=TimeEntry(-1, 0),
        first_time_ms=None,
        last_snapshot=-1,
        recovery_point=0,
        unsynced=[],
        report=LoadReport(directory),
    )


class PartitionLoader:
    """One loading of one partition; :meth:`run` does it."""

    def __init__(
        self,
        directory: Path,
        pool: FilePool,
        *,
        interval_bytes: int = 4096,
        log_start: int = 0,
        recovery_point: int = 0,
        is_clean: bool = False,
        producer_expiration_ms: int | None = None,
        stock: PartitionStock | None = None,
    ) -> None:
        """``stock``: the directory's files, if they have been listed (and judged by :func:`refuse_odd`) just now."""
        self._stock = stock
        self._directory = directory
        self._pool = pool
        self._interval = interval_bytes
        self._log_start = log_start
        self._recovery_point = recovery_point
        self._is_clean = is_clean
        self._expiration_ms = producer_expiration_ms
        self._walks: dict[int, SegmentWalk] = {}
        self._has_new_names = False
        self.cuts: list[Segment] = []
        """Segments that :func:`cut_off` is yet to cut at their limits, after :meth:`prepare`."""
        self.report = LoadReport(directory)

    def run(self) -> LoadedLog:
        """Do it.

        Raises:
            CorruptFileError: something else than a file lies under a segment's name. Nothing was changed.
            StoreIOError, DiskFullError: a file could not be read or written.
        """
        loaded = self.prepare()
        cut_off(self.cuts)
        return loaded

    def prepare(self) -> LoadedLog:
        """:meth:`run` up to the last step, :func:`cut_off` of :attr:`cuts`; raises as it does."""
        segments, log_end = self._bring_in_order()
        log_start = max(self._log_start, segments[0].base_offset)
        producers, snapshot = self._load_producers(segments, log_end)
        epochs = self._load_epochs(segments, log_start, log_end)
        largest, first_time = self._times_of(segments[-1])
        is_flushed = self._is_clean and not self._walks
        if not is_flushed or self.report.rebuilt or self._has_new_names:
            durable.sync_directory(self._directory)
        return LoadedLog(
            segments,
            log_start,
            log_end,
            producers,
            epochs,
            largest,
            first_time,
            snapshot,
            recovery_point=log_end if is_flushed else min(self._recovery_point, log_end),
            unsynced=[segment for segment in segments if segment.base_offset in self._walks],
            report=self.report,
        )

    def _bring_in_order(self) -> tuple[list[Segment], int]:
        """Everything but producers and epochs: the segments, at least one, and where the log ends."""
        stock = refuse_odd(take_partition_stock(self._directory)) if self._stock is None else self._stock
        stock, segments = self._finish_leftovers(stock, find_leftovers(stock, self._pool))
        if not self._is_clean:
            self.report.end_before = _end_by_headers(segments)
            segments = self._recover(stock, segments)
        self._mend_derived(stock, segments)
        log_end = self._end_of(segments)
        if self._is_clean:
            self.report.end_before = log_end
        segments, log_end = self._apply_log_start(segments, log_end)
        if not segments:
            log_end = max(self._log_start, 0)
            segments = self._create(log_end)
        self.report.end_after = log_end
        return segments, log_end

    def _finish_leftovers(self, stock: PartitionStock, leftovers: Leftovers) -> tuple[PartitionStock, list[Segment]]:
        for path in stock.temporaries:
            _log.info("removing what a stopped writer left: %s", path)
            durable.remove_file(path)
            self._has_new_names = True
        self.report.finished = leftovers.count
        if leftovers.count:
            self._has_new_names = True
            leftovers.remove()
            self._mend_replacements(stock, leftovers)
            find_leftovers(take_partition_stock(self._directory), self._pool).rename()
            stock = take_partition_stock(self._directory)
            _log.info("finished what a crash had broken off in %s: %d files", self._directory, leftovers.count)
        self._remove_orphans(stock)
        return stock, [Segment(self._directory, base, self._pool) for base in stock.logs]

    def _mend_replacements(self, stock: PartitionStock, leftovers: Leftovers) -> None:
        """Make the indexes of logs that are about to get their own names right, before they do.

        A power cut may have let an index have its name before its log: then it went with those of the old segments. And
        a transaction index that is missing is missed by nobody.
        """
        stock = leftovers.live_after(stock)
        for base in leftovers.replacements:
            before = [leftovers.segment(one, self._pool) for one in stock.logs if one < base]
            walk = walk_segment(leftovers.segment(base, self._pool), producers_at(stock, before, base), self._interval)
            self._mend_indexes(walk)

    def _remove_orphans(self, stock: PartitionStock) -> None:
        """Indexes without a log describe nothing."""
        for kind in _SEGMENT_KINDS[1:]:
            for base in stock.files[kind]:
                if not stock.has(base, FileKind.LOG):
                    self._has_new_names = True
                    _log.warning("removing an index without a log: %s", stock.path(base, kind))
                    durable.remove_file(stock.path(base, kind))

    # -- the log

    def _recover(self, stock: PartitionStock, segments: list[Segment]) -> list[Segment]:
        """Walk the segments that may have suffered; those that are left."""
        if not segments:
            return []
        # A segment that ends just where the recovery point lies was the last one when that was noted: what was written
        # into its indexes when it ended may be lost.
        first = lookup.floor_segment(segments, max(0, self._recovery_point - 1))
        states = producers_at(stock, segments[:first], segments[first].base_offset)
        states.end_offset = max(states.end_offset, segments[first].base_offset)
        for number in range(first, len(segments)):
            segment = segments[number]
            walk = self._walks[segment.base_offset] = walk_segment(segment, states, self._interval)
            following = segments[number + 1] if number + 1 < len(segments) else None
            size = segment.size_bytes
            is_cut = walk.valid_bytes < size
            if is_cut:
                self._cut(walk, size)
            if is_cut or (following is not None and following.base_offset < walk.end_offset):
                self.report.damage = walk.damage
                if following is not None and walk.damage is None:
                    self.report.damage = BatchDamage(segment.path(), walk.valid_bytes, "NOT_FOLLOWED")
                self._remove(segments[number + 1 :], "it lies behind damage")
                segments = segments[: number + 1]
                break
            if following is not None:
                self._write_snapshot(states, following.base_offset)
        return segments

    def _cut(self, walk: SegmentWalk, size: int) -> None:
        """Let the segment end where its sound batches do: for every later step now, on the device last."""
        if walk.damage is not None:
            self.report.cut_bytes = size - walk.valid_bytes
        walk.segment.limit_bytes = walk.valid_bytes
        self.cuts.append(walk.segment)
        path = walk.segment.path()
        _log.info("%s is to be cut from %d to %d bytes: %s", path, size, walk.valid_bytes, walk.damage or "zeros")

    def _remove(self, segments: list[Segment], why: str) -> None:
        # The newest first: whatever a crash leaves is then a log without a hole.
        for segment in reversed(segments):
            self.report.removed.insert(0, segment.base_offset)
            self._remove_files(segment, why)
        self.cuts = [one for one in self.cuts if one not in segments]

    def _remove_files(self, segment: Segment, why: str) -> None:
        _log.warning("removing segment %s: %s", segment.path(), why)
        for kind in _SEGMENT_KINDS:
            durable.remove_file(segment.path(kind))
        segment.forget()
        durable.sync_directory(self._directory)

    def _end_of(self, segments: list[Segment]) -> int:
        if not segments:
            return 0
        last = segments[-1]
        walk = self._walks.get(last.base_offset)
        if walk is not None:
            return walk.end_offset
        end = last.base_offset
        scan = last.scan(lookup.start_position(last, LONG_MAX), check_crc=False)
        for chunk in scan:
            end = chunk.columns.last_offset[chunk.columns.count - 1] + 1
        if scan.position < last.size_bytes or end > LONG_MAX:
            # A clean stop leaves no torn tail: whatever the marker says, this was none.
            _log.warning("the end of %s is torn in spite of a clean stop, recovering it", last.path())
            return self._recover_last(last)
        return end

    def _recover_last(self, last: Segment) -> int:
        stock = take_partition_stock(self._directory)
        logs = [Segment(self._directory, base, self._pool) for base in stock.logs]
        states = producers_at(stock, logs[:-1], last.base_offset)
        walk = self._walks[last.base_offset] = walk_segment(last, states, self._interval)
        self.report.damage = walk.damage
        self._cut(walk, last.size_bytes)
        self._mend_indexes(walk)
        return walk.end_offset

    def _apply_log_start(self, segments: list[Segment], log_end: int) -> tuple[list[Segment], int]:
        """Drop a log that ends before it may start, and segments wholly below the start."""
        if segments and log_end < self._log_start:
            self._remove(segments, "the log ends before its start offset")
            return [], self._log_start
        return segments, log_end

    def _create(self, base_offset: int) -> list[Segment]:
        self._has_new_names = True
        for kind in (FileKind.LOG, FileKind.OFFSET_INDEX, FileKind.TIME_INDEX):
            durable.write_new_file(self._directory / names.segment_file_name(base_offset, kind), 0, b"")
        return [Segment(self._directory, base_offset, self._pool)]

    # -- what is derived

    def _mend_derived(self, stock: PartitionStock, segments: list[Segment]) -> None:
        """Make indexes anew: of walked segments where they differ, of others where they cannot be used."""
        for segment in segments:
            walk = self._walks.get(segment.base_offset)
            if walk is None:
                if self._indexes_are_usable(stock, segment):
                    continue
                states = producers_at(
                    stock, [one for one in segments if one.base_offset < segment.base_offset], segment.base_offset
                )
                walk = walk_segment(segment, states, self._interval)
            self._mend_indexes(walk)

    def _mend_indexes(self, walk: SegmentWalk) -> None:
        self.report.rebuilt += [name for name in self._write_indexes(walk) if name not in self.report.rebuilt]

    def _write_indexes(self, walk: SegmentWalk) -> list[str]:
        """Make the indexes of a walked segment anew where they differ; their names."""
        made = [path.name.removesuffix(FileStage.SWAP.value) for path in write_derived(walk)]
        if made:
            _log.info("made anew from the log in %s: %s", self._directory, ", ".join(made))
        return made

    def _indexes_are_usable(self, stock: PartitionStock, segment: Segment) -> bool:
        """Whether both indexes are there, whole, and end in entries that the log bears out."""
        if not all(stock.has(segment.base_offset, kind) for kind in (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX)):
            return False
        try:
            offsets, times = segment.offset_index(), segment.time_index()
            segment.aborted()
            for kind, used in (
                (FileKind.OFFSET_INDEX, len(offsets) * OFFSET_ENTRY_SIZE),
                (FileKind.TIME_INDEX, len(times) * TIME_ENTRY_SIZE),
            ):
                if (segment.read_file(kind) or b"")[used:].strip(b"\0"):
                    return False
        except errors.MqstoreError:
            return False
        size = segment.size_bytes
        last = offsets.floor(LONG_MAX)
        first = next(segment.headers(last.position, on_damage=stop_at_damage), None)
        if first is None:
            return size == 0
        if last.position and not segment.base_offset <= first[1].base_offset <= last.offset:
            return False
        # A long stretch without an entry, or records with times and no time entry: the index was lost.
        if size - last.position > 4 * (self._interval + first[1].size) + (1 << 14) and not len(offsets):
            return False
        return not (times.last.timestamp_ms < 0 <= first[1].max_timestamp_ms)

    def _load_producers(self, segments: list[Segment], log_end: int) -> tuple[ProducerStates, int]:
        stock = take_partition_stock(self._directory)
        bases = {segment.base_offset for segment in segments}
        for offset in stock.files[FileKind.SNAPSHOT]:
            is_stray = (offset not in bases and offset != log_end) or offset > log_end
            if is_stray or read_snapshot(stock.path(offset, FileKind.SNAPSHOT)) is None:
                durable.remove_file(stock.path(offset, FileKind.SNAPSHOT))
        stock = take_partition_stock(self._directory)
        states = producers_at(stock, segments, log_end)
        states.end_offset = log_end
        if self._expiration_ms is not None:
            states.expire(time.time_ns() // 1_000_000, self._expiration_ms)
        elif not self._is_clean or self.report.damage is not None:
            self._write_snapshot(states, log_end)
        newest = max(take_partition_stock(self._directory).files[FileKind.SNAPSHOT], default=-1)
        return states, newest

    def _write_snapshot(self, states: ProducerStates, offset: int) -> None:
        """Note the producers at ``offset``, unless the file is there and right."""
        path = self._directory / names.segment_file_name(offset, FileKind.SNAPSHOT)
        data = encode_producer_snapshot(states.entries())
        try:
            if read_whole(path, "producer snapshot") == data:
                return
        except errors.MqstoreError as error:
            _log.warning("making a producer snapshot anew: %s", error)
        durable.replace_file(path, data)

    def _load_epochs(self, segments: list[Segment], log_start: int, log_end: int) -> list[EpochEntry]:
        """The leader epochs: those noted, and those of walked segments; what lies outside the log is cut off."""
        path = self._directory / names.LEADER_EPOCHS
        try:
            data = read_whole(path, "leader epoch checkpoint")
            noted = [] if data is None else decode_leader_epochs(data)
        except errors.DamageError as error:
            _log.warning("leaving the leader epochs out, their file is damaged: %s", error)
            data, noted = b"", self._epochs_from_log(segments)  # to be replaced, even if there are none
        for walk in self._walks.values():
            for entry in walk.epochs:
                if not noted or entry.epoch > noted[-1].epoch:
                    noted.append(entry)
        epochs = cut_epochs(noted, log_start, log_end)
        wanted = encode_leader_epochs(epochs)
        if data != wanted and (data is not None or epochs):
            durable.replace_file(path, wanted)
        return epochs

    def _epochs_from_log(self, segments: list[Segment]) -> list[EpochEntry]:
        found: list[EpochEntry] = []
        for segment in segments:
            walk = self._walks.get(segment.base_offset)
            if walk is None:
                walk = walk_segment(segment, ProducerStates(), self._interval)
            found += [entry for entry in walk.epochs if not found or entry.epoch > found[-1].epoch]
        return found

    def _times_of(self, last: Segment) -> tuple[TimeEntry, int | None]:
        walk = self._walks.get(last.base_offset)
        if walk is not None:
            return walk.builder.largest, walk.first_time_ms
        first = next(last.headers(0), None)
        return lookup.largest_time(last), None if first is None else first[1].max_timestamp_ms


def cut_off(segments: list[Segment]) -> None:
    """Cut segments at their limits, durably.

    Raises:
        StoreIOError: that failed.
    """
    for segment in segments:
        if segment.limit_bytes is not None:
            _log.warning("cutting %s at byte %d", segment.path(), segment.limit_bytes)
            durable.truncate_path(segment.path(), segment.limit_bytes)
            segment.limit_bytes = None


def refuse_odd(stock: PartitionStock) -> PartitionStock:
    """The same, unless something else than a file lies under a segment's name: CorruptFileError."""
    if stock.odd:
        raise odd_file_error(stock.odd[0])
    return stock


def _end_by_headers(segments: list[Segment]) -> int:
    """Where the last segment says that the log ends, sound or not."""
    if not segments:
        return 0
    end = segments[-1].base_offset
    for chunk in segments[-1].scan(check_crc=False):
        end = max(end, chunk.columns.last_offset[chunk.columns.count - 1] + 1)
    return end


def cut_epochs(epochs: list[EpochEntry], log_start: int, log_end: int) -> list[EpochEntry]:
    """The epochs of a log from ``log_start`` to ``log_end``: the one that holds its start begins there."""
    inside = [entry for entry in epochs if entry.start_offset < log_end or (entry.start_offset == log_start == log_end)]
    before = [entry for entry in inside if entry.start_offset <= log_start]
    kept = [entry for entry in inside if entry.start_offset > log_start]
    if before:
        kept.insert(0, EpochEntry(before[-1].epoch, max(log_start, before[-1].start_offset)))
    return kept
