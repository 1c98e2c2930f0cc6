"""Which transactions were aborted, which are open, and what a reader of committed records must not see.

Producer state at an offset comes from the newest usable snapshot at or before it and the batches behind that.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from mqstore import errors
from mqstore.files.whole import read_whole
from mqstore.kafka.damage import BatchDamage
from mqstore.kafka.markers import marker_in_log
from mqstore.kafka.producer_state import ProducerStates
from mqstore.kafka.segment import Segment, SegmentGoneError
from mqstore.kafka.stock import PartitionStock
from mqstore.layout.kafka.batch import BatchHeader
from mqstore.layout.kafka.names import FileKind
from mqstore.layout.kafka.producer_snapshot import ProducerEntry, decode_producer_snapshot
from mqstore.layout.kafka.txn_index import AbortedTransaction

_log = logging.getLogger(__name__)


def load_snapshot(stock: PartitionStock, most: int, least: int = 0) -> ProducerStates:
    """The state of the newest usable snapshot for an offset from ``least`` to ``most``; an empty one without any.

    A snapshot that cannot be read is passed over with a warning: it is derived from the log.
    """
    for offset in reversed(stock.files[FileKind.SNAPSHOT]):
        if least <= offset <= most:
            entries = read_snapshot(stock.path(offset, FileKind.SNAPSHOT))
            if entries is not None:
                return ProducerStates(entries, offset)
    return ProducerStates(end_offset=least)


def read_snapshot(path: Path) -> list[ProducerEntry] | None:
    """The producers of a snapshot; None, with a warning, when it cannot be read."""
    try:
        data = read_whole(path, "producer snapshot")
        return None if data is None else decode_producer_snapshot(data)
    except errors.MqstoreError as error:
        _log.warning("passing over a producer snapshot, %s: %s", path, error)
        return None


def replay(
    states: ProducerStates,
    segments: Iterable[Segment],
    end: int,
    on_abort: Callable[[AbortedTransaction], None] = lambda aborted: None,
) -> None:
    """Bring ``states`` from their end offset up to ``end`` by the batches of ``segments``, in order.

    Damaged batches are passed over: what they told is lost, and a transaction whose end they were stays open.
    """
    begin = states.end_offset
    for segment in segments:
        start = segment.offset_index().floor(begin).position if segment.base_offset < begin else 0
        for _, header, buffer in segment.headers(start, on_damage=_pass_over):
            if header.last_offset < begin:
                continue
            if header.base_offset >= end:
                return
            aborted = states.apply(header, marker_in_log(buffer, header))
            if aborted is not None:
                on_abort(aborted)


def _pass_over(damage: BatchDamage) -> bool:
    _log.warning("what a damaged batch told of its producer is lost: %s", damage.to_error())
    return True


def producers_at(stock: PartitionStock, segments: Sequence[Segment], end: int) -> ProducerStates:
    """What the partition knew of its producers before offset ``end``."""
    first = segments[0].base_offset if segments else 0
    states = load_snapshot(stock, end, first)
    ends = [segment.base_offset for segment in segments[1:]] + [end + 1]
    behind = [segment for segment, its_end in zip(segments, ends, strict=False) if its_end > states.end_offset]
    replay(states, behind, end)
    return states


def aborted_between(
    stock: PartitionStock, segments: Sequence[Segment], start: int, end: int, log_end: int
) -> list[AbortedTransaction]:
    """The aborted transactions that have records in [``start``, ``end``), by their markers' offsets.

    A segment's ``.txnindex`` is taken at its word; where it is missing or damaged, the markers in the log are walked.
    """
    found: list[AbortedTransaction] = []
    for number, segment in enumerate(segments):
        following = segments[number + 1].base_offset if number + 1 < len(segments) else log_end
        if following <= start:
            continue
        entries = aborted_of(stock, segments, segment, following)
        found += [entry for entry in entries if entry.last_offset >= start and entry.first_offset < end]
        if any(entry.last_stable_offset >= end for entry in entries):
            break
    return found


def aborted_of(
    stock: PartitionStock, segments: Sequence[Segment], segment: Segment, end: int
) -> list[AbortedTransaction]:
    """The aborted transactions whose marker lies in ``segment``, whose records end before offset ``end``."""
    try:
        listed = segment.aborted()
        if listed is not None:
            return listed
    except SegmentGoneError:
        raise
    except (errors.StoreIOError, errors.DamageError) as error:
        _log.warning("walking the markers of a segment, its transaction index cannot be read: %s", error)
    size = segment.size_bytes
    if segment.walked_aborts[0] == size:
        return segment.walked_aborts[1]
    walked: list[AbortedTransaction] = []
    states = producers_at(stock, segments, segment.base_offset)
    replay(states, [segment], end, walked.append)
    segment.walked_aborts = size, walked
    return walked


class CommittedFilter:
    """Tells, batch by batch in log order, what a reader of committed records is not shown."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._waiting = sorted(aborted, key=lambda entry: entry.first_offset, reverse=True)
        self._open: dict[int, int] = {}

    def hides(self, header: BatchHeader) -> bool:
        """Whether the batch's records belong to an aborted transaction."""
        while self._waiting and self._waiting[-1].first_offset <= header.last_offset:
            entry = self._waiting.pop()
            self._open[entry.producer_id] = max(entry.last_offset, self._open.get(entry.producer_id, -1))
        if not header.is_transactional or header.is_control:
            return False
        return self._open.get(header.producer_id, -1) >= header.base_offset
