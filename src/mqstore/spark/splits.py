"""Byte ranges of commit logs, and reading exactly the records that start in one.

A record names its own place in the log, so a reader can find one anywhere. That alone is not proof: a file may hold
sound records of an earlier life behind its end, and a message's body may hold a copy of anything. A split that starts
inside a file therefore looks back first: it finds a record up to :data:`LOOK_BACK_BYTES` earlier and walks from there,
and when that walk meets anything odd, it walks from the start of the file, which is always a record. At its own end
each split checks that the next one could not be led astray.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from mqstore import errors, kernels
from mqstore.files.inventory import FileEntry, ProblemKind
from mqstore.files.pool import FilePool
from mqstore.layout.constants import BLANK_SIZE, MAGIC_BLANK
from mqstore.layout.record import Damage
from mqstore.spark.log_end import LOOK_BACK_BYTES
from mqstore.spark.option_values import HINT_LOST, LEAST_SPLIT_BYTES, MOST_SPLITS
from mqstore.spark.options import OnCorruptRecord, ReadOptions
from mqstore.spark.stores import StoreRef
from mqstore.store.log_reader import Chunk, LogDamage, LogReader

_log = logging.getLogger(__name__)

CHUNK_BYTES = 8 << 20
_HEAD_BYTES = 64
_BLANK_MAGIC = MAGIC_BLANK.to_bytes(4, "big", signed=True)


class Split(NamedTuple):
    """The records of one store that start in [begin, end); both lie in one file."""

    store: StoreRef
    begin: int
    end: int


class SplitPolicy(NamedTuple):
    """How splits are read."""

    on_corrupt_record: OnCorruptRecord = OnCorruptRecord.FAIL
    check_crc: bool = True
    fail_on_data_loss: bool = True
    hint_gone: str = "failOnDataLoss=false passes over what is gone"

    @classmethod
    def of(cls, options: ReadOptions) -> SplitPolicy:
        """The policy that a read's options ask for."""
        return cls(options.on_corrupt_record, options.check_crc, options.fail_on_data_loss)


def open_log(store: StoreRef) -> LogReader:
    """The commit log of a store; close it after use."""
    return LogReader(store.paths.commit_logs, pool=FilePool())


def split_ranges(store: StoreRef, log: LogReader, ranges: Sequence[tuple[int, int]], split_bytes: int) -> list[Split]:
    """Splits of at most ``split_bytes`` that together hold the records that start in ``ranges``.

    Raises:
        UsageError: they would be too many.
    """
    if sum(end - begin for begin, end in ranges) // split_bytes > MOST_SPLITS:
        raise errors.UsageError(
            f"more than {MOST_SPLITS} splits", path=store.path, found=f"splitBytes {split_bytes}",
            hint="give a larger splitBytes",
        )  # fmt: skip
    found = []
    for low, high in ranges:
        for entry in log.inventory.entries:
            first, last = max(low, entry.start), min(high, log.inventory.end_of(entry))
            found += [Split(store, begin, min(begin + split_bytes, last)) for begin in range(first, last, split_bytes)]
    return found


def split_bytes_for(log_bytes: int, split_bytes: int, min_partitions: int) -> int:
    """``split_bytes``, or less if that takes to make about ``min_partitions`` splits of ``log_bytes``."""
    return min(split_bytes, max(LEAST_SPLIT_BYTES, -(-log_bytes // min_partitions)))


def check_files(log: LogReader, fail_on_data_loss: bool) -> None:
    """Raise CorruptFileError for files that overlap or lie astray, and under ``fail_on_data_loss`` for missing ones."""
    for problem in log.inventory.problems:
        if problem.kind in (ProblemKind.DUPLICATE, ProblemKind.OVERLAP, ProblemKind.MISPLACED):
            raise problem.to_error("mqstore check lists everything wrong with the store")
        is_gone = problem.kind is ProblemKind.HOLE or (
            problem.kind is ProblemKind.EMPTY and problem.path != log.inventory.entries[-1].path
        )
        if is_gone and fail_on_data_loss:
            raise problem.to_error(HINT_LOST)


def read_split(log: LogReader, split: Split, policy: SplitPolicy, chunk_bytes: int = CHUNK_BYTES) -> Iterator[Chunk]:
    """The records of ``split`` as columns, in log order, read ``chunk_bytes`` at a time.

    Raises:
        CorruptRecordError: damage, unless the policy says otherwise; or what starts in the next split cannot be told.
        CorruptFileError: the file is gone, or has become shorter than the split, under ``fail_on_data_loss``.
    """
    entry = log.entry_at(split.begin)
    if entry is None or entry.start + entry.length < split.end:
        if policy.fail_on_data_loss:
            raise errors.CorruptFileError(
                f"a commit log file was {'removed' if entry is None else 'cut off'} before it was read",
                path=split.store.path if entry is None else entry.path,
                offset=split.begin,
                expected=f"records up to {split.end}",
                hint=policy.hint_gone,
            )
        if entry is None:
            return
    damaged = False

    def on_damage(damage: LogDamage) -> bool:
        nonlocal damaged
        damaged = True
        if policy.on_corrupt_record is OnCorruptRecord.FAIL:
            raise with_hint(damage.to_error(), "onCorruptRecord=skip passes over damage")
        _log.warning(
            "passing over damage at %d of %s: %s", damage.physical_offset, errors.shown_path(damage.path), damage.damage
        )
        return True

    last_end = first_record(log, entry, split.begin, policy)
    for chunk in log.scan(
        last_end, split.end, on_damage=on_damage, check_crc=policy.check_crc, chunk_bytes=chunk_bytes
    ):
        last_end = chunk.end_offset
        yield chunk
    if not damaged and last_end == entry.start + entry.length and log.ends_short(entry):
        on_damage(LogDamage(entry.path, last_end, Damage.SHORT))
    if not damaged:
        # A walk that ended early met the blank record, behind which the file holds nothing.
        _check_next(log, entry, split.end, last_end if last_end >= split.end else log.inventory.end_of(entry), policy)


def with_hint(error: errors.CorruptRecordError, hint: str) -> errors.CorruptRecordError:
    """``error`` with another hint."""
    error.hint = hint
    return error


def first_record(log: LogReader, entry: FileEntry, begin: int, policy: SplitPolicy) -> int:
    """Offset of the first record of file ``entry`` that starts at or behind ``begin``; its end if there is none."""
    if begin <= entry.start:
        return entry.start
    anchor = max(entry.start, begin - LOOK_BACK_BYTES)
    if anchor > entry.start:
        found = log.resync(entry, anchor)
        if found is not None and found <= begin:
            position, damaged = _walk(log, entry, found, begin, policy)
            if not damaged and (position >= entry.start + entry.length or _goes_on(log, position)):
                return position
    return _walk(log, entry, entry.start, begin, policy)[0]


def _goes_on(log: LogReader, position: int) -> bool:
    """Whether a record or a blank record starts at ``position``, as it does behind every record but the last."""
    head = log.read(position, BLANK_SIZE)
    return (head is not None and head[4:] == _BLANK_MAGIC) or log.record_at(position) is not None


def _walk(log: LogReader, entry: FileEntry, start: int, begin: int, policy: SplitPolicy) -> tuple[int, bool]:
    """Go from the record at ``start`` to the first at or behind ``begin``: where that is, and whether anything on the
    way was no record.
    """
    file_end = entry.start + entry.length
    damages = []

    def on_damage(damage: LogDamage) -> bool:
        damages.append(damage.physical_offset)
        return True

    position = start
    for chunk in log.scan(start, begin, on_damage=on_damage, check_crc=policy.check_crc, chunk_bytes=CHUNK_BYTES):
        position = chunk.end_offset
    if position < begin:
        # Behind the last record lies damage, which may reach past ``begin``, or the blank record that ends the file.
        in_damage = bool(damages) and damages[-1] >= position
        position = log.resync(entry, begin) or file_end if in_damage else file_end
    return position, bool(damages)


def _check_next(log: LogReader, entry: FileEntry, begin: int, following: int, policy: SplitPolicy) -> None:
    """Make sure that the split that starts at ``begin`` finds the record at ``following`` as its first.

    The bytes between are the inside of a record, or lie behind the last one. As the first split of a file is certain
    where it begins, each that passes makes the next one certain.
    """
    file_end = log.inventory.end_of(entry)
    if begin >= min(following, file_end) or not _holds_record(log, entry, begin, following):
        return
    found = first_record(log, entry, begin, policy)
    if found != following:
        raise errors.CorruptRecordError(
            "a message's body holds a whole record made for its place in the log",
            path=entry.path,
            offset=found,
            expected=f"the next record at {following}",
            hint="a splitBytes as large as the log's files reads each from its start and cannot be misled",
        )


def _holds_record(log: LogReader, entry: FileEntry, begin: int, end: int) -> bool:
    """Whether anything in [begin, end) could be taken for the start of a record."""
    position = begin
    while position < end:
        data = log.read_file(entry, position, min(CHUNK_BYTES, end - position) + _HEAD_BYTES)
        if kernels.resync(data, 0, len(data), position) >= 0:
            return True
        position += CHUNK_BYTES
    return False
