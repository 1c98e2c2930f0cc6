"""What a reader asks of a store: messages of a queue, the offset at a time; messages by key are in ``key_lookup``.

The same code serves a running store and a directory looked at from outside; they differ only in who knows where a
queue begins and ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from mqstore import errors, kernels
from mqstore.layout.buffers import Buffer
from mqstore.layout.constants import QUEUE_UNIT_SIZE, RETRY_PREFIX
from mqstore.layout.multi_dispatch import offset_in
from mqstore.layout.queue_unit import QueueUnit, decode_unit
from mqstore.layout.record import Record, decode_record
from mqstore.layout.sql92 import SqlExpression
from mqstore.layout.tags import TagExpression
from mqstore.status import BoundaryType, GetMessageStatus
from mqstore.store.filter_bits import Prefilter
from mqstore.store.log_reader import LogReader
from mqstore.store.message import GetResult, QueryResult
from mqstore.store.queue_ext import QueueExt, has_address

_READ_SPAN_BYTES = 1 << 20
_READ_GAP_BYTES = 16 << 10
_ADDRESS = 0x80
"""First byte of the address of an ext unit, and of no tags code."""


Filter = TagExpression | SqlExpression
"""What picks messages: their tags, of which the queue knows the hashes, or any of their properties."""

_ALL = TagExpression.parse(None)


def parse_filter(where: str | SqlExpression | None) -> Filter:
    """The filter that a caller asked for. Raises UsageError for what cannot be meant."""
    if where is None:
        return _ALL
    return where if isinstance(where, SqlExpression) else TagExpression.parse(where)


class UnitSource(Protocol):
    """What a queue must offer to be read: its files, or its units in memory."""

    topic: str
    queue_id: int
    ext: QueueExt | None

    @property
    def units_per_file(self) -> int:
        """Units that one of its files holds; behind a missing file the queue goes on at a multiple of this."""

    def units(self, offset: int, count: int) -> bytes:
        """Up to ``count`` raw units from ``offset`` on; fewer at the end of a file, empty where none is."""

    def stored_units(self, offset: int, count: int) -> bytes:
        """The same with addresses of ext units, where the queue has such."""

    def unit(self, offset: int) -> QueueUnit | None:
        """The unit at ``offset``, written or not; None where no file is."""


class QueueRange(NamedTuple):
    """A queue to read from and where it begins and ends at this moment."""

    queue: UnitSource
    min_offset: int
    max_offset: int


Finder = Callable[[], QueueRange | None]
"""Looks for a queue as it is when this is called; None when there is no such queue."""


class GetLimits(NamedTuple):
    """How much one get may look at and give; the first message found is always given."""

    max_bytes: int = 262_144
    max_unit_bytes: int = 16_000


def get_messages(
    log: LogReader,
    find: Finder,
    offset: int,
    max_messages: int,
    wanted: Filter,
    limits: GetLimits,
    prefilter: Prefilter | None = None,
) -> GetResult:
    """Messages of one queue from ``offset`` on, at most ``max_messages`` that pass ``wanted``.

    ``prefilter`` tells by a message's ext unit when that cannot be.

    Raises:
        CorruptFileError: the file that holds ``offset`` is missing, and expiry has not removed it.
        CorruptRecordError, StoreIOError: a record cannot be read; the call before gave all that lie before it.
    """
    most = max(limits.max_unit_bytes // QUEUE_UNIT_SIZE, max_messages)
    # Where every message is wanted, as many units will do, unless some turn out to be fillers.
    asked = max_messages if wanted is _ALL else most
    begun = _begin(find, offset, asked)
    if isinstance(begun, GetResult):
        return begun
    place, units = begun
    queue, low, high = place
    count = min(high - offset, most)
    first = min(count, asked)
    ext = queue.ext
    if wanted is _ALL and ext is None and first == max_messages:
        messages = _take_all(log, queue, offset, units, max_messages, limits.max_bytes)
        if len(messages) == max_messages:
            return GetResult(GetMessageStatus.FOUND, offset + max_messages, low, high, messages)
    found = _Collector(log, place, max_messages, limits.max_bytes, wanted)
    if ext is not None or (
        isinstance(wanted, TagExpression) and wanted.codes and _ADDRESS in units[12::QUEUE_UNIT_SIZE]
    ):
        stored = b"" if prefilter is None else queue.stored_units(offset, first)
        found.use_ext(units, stored, ext, prefilter if len(stored) == len(units) else None)
    looked_at = found.collect(offset, units)
    if looked_at == first < count and len(found.messages) < max_messages:
        looked_at += found.collect(offset + first, queue.units(offset + first, count - first))
    return GetResult(found.status, offset + looked_at, low, high, found.messages)


def _take_all(log: LogReader, queue: UnitSource, offset: int, units: bytes, count: int, max_bytes: int) -> list[Record]:
    """All ``count`` messages at once where nothing about them is special: fewer mean that somebody must look closer."""
    span = kernels.unit_span(units, 0, count, None, _READ_GAP_BYTES, _READ_SPAN_BYTES)
    if span is None or span[1] - span[0] > max_bytes:
        return []
    topic, queue_id = queue.topic.encode("utf-8", "surrogateescape"), queue.queue_id

    def take(data: Buffer, data_offset: int) -> list[Record]:
        messages: list[Record] = []
        kernels.take_messages(
            units, 0, offset, data, data_offset, topic, queue_id, None, (), count, max_bytes, messages, Record
        )
        return messages

    return log.take(*span, take) or []


def _begin(find: Finder, offset: int, count: int) -> GetResult | tuple[QueueRange, bytes]:
    """The queue with up to ``count`` units from ``offset`` on, or the answer when no message can be there."""
    missed_from = -1
    while (found := find()) is not None:
        beyond = outside(offset, found.min_offset, found.max_offset)
        if beyond is not None:
            return GetResult(*beyond, found.min_offset, found.max_offset)
        if found.min_offset == missed_from:
            raise missing_file(found.queue, offset)
        units = found.queue.units(offset, min(found.max_offset - offset, count))
        if units:
            return found, units
        missed_from = found.min_offset  # expiry moves a queue's beginning before it removes a file
    return GetResult(GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0)


def missing_file(queue: UnitSource, offset: int) -> errors.CorruptFileError:
    """The error for a queue whose file with ``offset`` is gone although its messages have not expired."""
    following = offset + queue.units_per_file - offset % queue.units_per_file
    return errors.CorruptFileError(
        f"message {offset} of queue {queue.topic}/{queue.queue_id} has no unit: a consume queue file is missing",
        path=getattr(queue, "directory", None),
        offset=offset,
        hint="opening the store anew, or mqstore rebuild, builds the queue from the log; " + _way_on(queue, following),
    )


def _way_on(queue: UnitSource, offset: int) -> str:
    """How to go on behind damage without mending it."""
    topic = f", topic={queue.topic!r}" if queue.topic.startswith(RETRY_PREFIX) else ""
    return f"go on at offset {offset}, which a consumer does after seek({queue.queue_id}, {offset}{topic})"


def outside(offset: int, low: int, high: int) -> tuple[GetMessageStatus, int] | None:
    """What is told of an offset at which a queue holds nothing, and where to go on; None for one of its messages."""
    if high == 0:
        return GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0
    if offset < low:
        return GetMessageStatus.OFFSET_TOO_SMALL, low
    if offset == high:
        return GetMessageStatus.OFFSET_OVERFLOW_ONE, offset
    if offset > high:
        return GetMessageStatus.OFFSET_OVERFLOW_BADLY, high
    return None


class _Collector:
    """Goes through units and gathers the messages that pass, until one of the limits is reached."""

    def __init__(self, log: LogReader, place: QueueRange, max_messages: int, max_bytes: int, wanted: Filter) -> None:
        self._log = log
        self._queue = queue = place.queue
        self._min_offset = place.min_offset
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._wanted = _ALL if isinstance(wanted, SqlExpression) else wanted
        self._bytes = 0
        self._gone_below = 0  # log offset below which messages have expired, while no others were met
        self._topic = queue.topic.encode("utf-8", "surrogateescape")
        self._codes = self._wanted.codes or None
        self._tags = (
            frozenset(tag.encode("utf-8", "surrogatepass") for tag in self._wanted.tags) if self._wanted.tags else None
        )
        self._ahead = _ReadAhead(log)
        self._passes: Callable[[Record], bool] | None = None
        if isinstance(wanted, SqlExpression):
            self._passes = lambda record: wanted.matches(record.properties)
        self._skipped: list[bool] | None = None
        self.messages: list[Record] = []
        self.status = GetMessageStatus.NO_MATCHED_MESSAGE

    def use_ext(self, units: bytes, stored: bytes, ext: QueueExt | None, prefilter: Prefilter | None) -> None:
        """Take account of ext units: of those that tell more than the units, and of those that are lost."""
        if prefilter is not None and ext is not None:
            self._skipped = [not prefilter(unit) for unit in ext.units_of(stored)]
        if self._codes is not None and has_address(units):
            tags = self._wanted
            self._passes = lambda record: tags.matches(record.tags)
            self._wanted, self._codes, self._tags = _ALL, None, None

    def _run_end(self, number: int, count: int) -> int:
        """The number of the next unit that need not be looked at, ``count`` if none is."""
        if self._skipped is None:
            return count
        return next((place for place in range(number, count) if self._skipped[place]), count)

    def collect(self, offset: int, units: bytes) -> int:
        """Look at ``units``, the first of which is at queue ``offset``; the number of them that are dealt with."""
        count = len(units) // QUEUE_UNIT_SIZE
        looked_at = 0
        while looked_at < count:
            end = self._run_end(looked_at, count)
            if end == looked_at:
                looked_at += 1
                continue
            run = units if end == count else units[: end * QUEUE_UNIT_SIZE]
            self._read_ahead(run, looked_at)
            taken = self._take_ordinary(run, looked_at, offset + looked_at)
            looked_at += taken
            if taken:
                self._gone_below = 0
            if looked_at == end:
                continue
            unit = decode_unit(units, looked_at * QUEUE_UNIT_SIZE)
            if self._is_full(unit):
                break
            is_gone = 0 <= unit.physical_offset < self._gone_below
            if not is_gone and self._wanted.matches_code(unit.tags_code):
                try:
                    self._take(unit, offset + looked_at)
                except errors.DamageError:
                    if not self.messages:
                        raise
                    break  # what lies before it is given first; the next call begins with the damage
            looked_at += 1
        return looked_at

    def _read_ahead(self, units: bytes, number: int) -> None:
        """Have the records of the next units at hand, neighbours with one read."""
        missing = self._max_messages - len(self.messages)
        span = kernels.unit_span(units, number, missing, self._codes, _READ_GAP_BYTES, _READ_SPAN_BYTES)
        if span is not None and not self._ahead.covers(*span):
            self._ahead.load(*span)

    def _take_ordinary(self, units: bytes, number: int, offset: int) -> int:
        """Take the messages in which nothing is special; how many units that were."""
        found = self.messages if self._passes is None else []
        taken, size_bytes = kernels.take_messages(
            units,
            number,
            offset,
            self._ahead.data,
            self._ahead.start,
            self._topic,
            self._queue.queue_id,
            self._tags,
            self._wanted.codes,
            self._max_messages if self._passes is None else self._max_messages - len(self.messages),
            self._max_bytes - self._bytes,
            found,
            Record,
        )
        if self._passes is not None:
            passed = [record for record in found if self._passes(record)]
            self.messages += passed
            size_bytes = sum(record.total_size for record in passed)
        self._bytes += size_bytes
        if self.messages:
            self.status = GetMessageStatus.FOUND
        return taken

    def _is_full(self, unit: QueueUnit) -> bool:
        if not self.messages:
            return False
        return len(self.messages) >= self._max_messages or self._bytes + unit.size_bytes > self._max_bytes

    def _take(self, unit: QueueUnit, offset: int) -> None:
        record = self._ahead.record(unit)
        if record is not None and not self._belongs(record, offset):
            if not self._repeats(unit, offset):
                raise self._unreadable(unit, offset, "a message of another place")
            return
        if record is None:
            self._check_gone(unit, offset)
            if not self.messages:
                self.status = GetMessageStatus.MESSAGE_WAS_REMOVING
            # The whole file is gone: crawling over its units one by one would take for ever.
            self._gone_below = self._log.min_offset
        elif self._passes(record) if self._passes is not None else self._wanted.matches(record.tags):
            self.messages.append(record)
            self._bytes += unit.size_bytes
            self.status = GetMessageStatus.FOUND

    def _check_gone(self, unit: QueueUnit, offset: int) -> None:
        """A record before the log's beginning has expired; anything else is damage and must not be passed over."""
        if unit.is_pre_blank:
            return
        if not unit.is_written:
            raise errors.CorruptFileError(
                f"{self._here(offset)} has no unit in its consume queue",
                found=tuple(unit),
                hint=f"mqstore rebuild builds the queues from the log; {_way_on(self._queue, offset + 1)}",
            )
        entry = self._log.entry_at(unit.physical_offset)  # which lists the files anew where none is known
        is_below = 0 <= unit.physical_offset < self._log.min_offset
        if entry is not None or not is_below or self._goes_back(unit, offset):
            raise self._unreadable(unit, offset, "no record")

    def _unreadable(self, unit: QueueUnit, offset: int, what: str) -> errors.CorruptRecordError:
        entry = self._log.entry_at(unit.physical_offset)
        return errors.CorruptRecordError(
            f"{self._here(offset)} cannot be read: {what} where its unit points",
            path=None if entry is None else entry.path,
            offset=unit.physical_offset,
            found=tuple(unit),
            hint=f"mqstore check tells what is damaged; {_way_on(self._queue, offset + 1)}",
        )

    def _here(self, offset: int) -> str:
        return f"message {offset} of queue {self._queue.topic}/{self._queue.queue_id}"

    def _goes_back(self, unit: QueueUnit, offset: int) -> bool:
        """Whether the unit before this one points further on in the log, as none does unless one of them is damaged."""
        before = self._queue.unit(offset - 1) if offset > self._min_offset else None
        return before is not None and before.is_written and before.physical_offset > unit.physical_offset

    def _belongs(self, record: Record, offset: int) -> bool:
        """Whether the unit at ``offset`` was made for ``record``."""
        return offset_in(record, self._queue.topic, self._queue.queue_id) == offset

    def _repeats(self, unit: QueueUnit, offset: int) -> bool:
        """Whether a unit fills a gap: it repeats the one before it, which may have gone with its file."""
        before = self._queue.unit(offset - 1) if offset > 0 else None
        return before is None or before == unit


class _ReadAhead:
    """A stretch of the log in memory: ``data``, whose byte 0 is at ``start``."""

    def __init__(self, log: LogReader) -> None:
        self._log = log
        self.start = 0
        self.data = b""

    def covers(self, start: int, end: int) -> bool:
        """Whether [start, end) is at hand."""
        return self.start <= start and end <= self.start + len(self.data)

    def load(self, start: int, end: int) -> None:
        """Read [start, end), or nothing when not all of it is there."""
        self.start = start
        self.data = self._log.read(start, end - start) or b""

    def record(self, unit: QueueUnit) -> Record | None:
        """The record behind ``unit``; None when it is gone or is not the one the unit was made for."""
        if unit.size_bytes <= 0:
            return None
        if not self.covers(unit.physical_offset, unit.end_offset):
            self.load(unit.physical_offset, unit.end_offset)
        if not self.data:
            return None
        at = unit.physical_offset - self.start
        try:
            record = decode_record(
                self.data, at, physical_offset=unit.physical_offset, end=at + unit.size_bytes, check_crc=False
            )
        except errors.CorruptRecordError:
            return None
        return record if isinstance(record, Record) and record.total_size == unit.size_bytes else None


def newest(records: Iterable[Record], max_messages: int, begin_ms: int, end_ms: int) -> QueryResult:
    """The newest ``max_messages`` of ``records``, given in log order, that were stored in [begin_ms, end_ms]."""
    kept: deque[Record] = deque(maxlen=max_messages + 1)
    kept.extend(record for record in records if begin_ms <= record.store_timestamp_ms <= end_ms)
    return QueryResult(list(kept)[-max_messages:], len(kept) > max_messages)


def offset_at_time(
    time_of: Callable[[int], int | None],
    min_offset: int,
    max_offset: int,
    timestamp_ms: int,
    boundary: BoundaryType,
) -> int:
    """Queue offset at a store time, for times that do not decrease along the queue.

    Args:
        time_of: store time in ms of the message at an offset, None when its record cannot be read.
        min_offset: first offset to consider.
        max_offset: one past the last.
        timestamp_ms: the time asked for.
        boundary: LOWER gives the first offset stored at or after it (``max_offset`` when none is); UPPER the last
            stored at or before it (``min_offset - 1`` when none is).
    """
    low, high = min_offset, max_offset
    while low < high:
        middle = (low + high) // 2
        stored = _readable_time(time_of, middle, high)
        # Where nothing readable lies between middle and high, the answer is not to their right.
        beyond = stored is None or (stored >= timestamp_ms if boundary is BoundaryType.LOWER else stored > timestamp_ms)
        if beyond:
            high = middle
        else:
            low = middle + 1
    return low if boundary is BoundaryType.LOWER else low - 1


def _readable_time(time_of: Callable[[int], int | None], offset: int, end: int) -> int | None:
    """Store time of the first readable message in [offset, end)."""
    return next((stored for one in range(offset, end) if (stored := time_of(one)) is not None), None)
