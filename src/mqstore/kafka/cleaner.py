"""Log compaction: of each key the newest record stays, at its offset; see docs/kafka.md.

The rules are Kafka's. A first pass over what has come since the last cleaning notes the newest offset of each key; a
second one writes all segments up to there anew without the records that a newer one stands for. Tombstones and the
markers of transactions stay for ``delete_retention_ms`` after the cleaning that could have removed them, so that slow
readers get to see them. A producer's last batch stays, if need be without records, for its sequence numbers.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import md5

from mqstore.kafka import lookup
from mqstore.kafka.clean_filter import BatchFilter, TransactionTracker
from mqstore.kafka.clean_segment import write_cleaned
from mqstore.kafka.config import KafkaConfig
from mqstore.kafka.partition_log import PartitionLog
from mqstore.kafka.records import records_of
from mqstore.kafka.segment import Segment
from mqstore.kafka.swapping import remove_broken_off, swap_in
from mqstore.kafka.transactions import CommittedFilter
from mqstore.layout.constants import INT_MAX, LONG_MAX

_log = logging.getLogger(__name__)


@dataclass
class CleanResult:
    """What a cleaning did. ``clean_up_to`` is where the next one begins to look for newer keys."""

    clean_up_to: int
    segments_before: int
    segments_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    records_before: int = 0
    records_after: int = 0


class KeyMap:
    """The newest offset of each key, by the key's MD5 as in Kafka: 16 bytes however long the keys are."""

    def __init__(self) -> None:
        self._offsets: dict[bytes, int] = {}
        self.end_offset = 0

    def put(self, key: bytes, offset: int) -> None:
        """Note a record."""
        self._offsets[_digest(key)] = offset

    def is_newest(self, key: bytes, offset: int) -> bool:
        """Whether no newer record of ``key`` was noted than the one at ``offset``."""
        return self._offsets.get(_digest(key), -1) <= offset


def clean(log: PartitionLog, config: KafkaConfig, first_dirty: int, now_ms: int, *, force: bool) -> CleanResult | None:
    """Clean a partition from ``first_dirty`` (where the last cleaning ended) on; None when it is not due.

    Raises:
        CorruptBatchError: a damaged batch; nothing was changed.
        DiskFullError, StoreIOError: a segment could not be written, or an earlier cleaning broke off while it put one
            in place; what was replaced before stays replaced.
    """
    with log.cleaning:
        segments = log.segments()[:-1]
        first_dirty = max(first_dirty, log.log_start, segments[0].base_offset if segments else 0)
        segments = segments[: _uncleanable(segments, log.last_stable_offset, config, now_ms)]
        if not segments or not (force or _is_due(segments, first_dirty, config, now_ms)):
            return None
        end = log.segments()[len(segments)].base_offset
        remove_broken_off(log.directory)
        # What takes the place of older records must be on the device before those go.
        log.flush()
        keys = _map_keys(log, segments, first_dirty, end)
        batches = BatchFilter(
            keys,
            TransactionTracker(log.aborted_transactions(0, end)),
            {entry.producer_id: entry for entry in log.producers},
            now_ms,
            config.delete_retention_ms,
        )
        old_horizon_ms = _old_horizon(segments, first_dirty, config)
        done = CleanResult(end, len(segments), bytes_before=sum(segment.size_bytes for segment in segments))
        for group in group_segments(segments, config, end):
            cleaned = write_cleaned(group, batches, old_horizon_ms, config.index_interval_bytes)
            segment, removed = swap_in(log, group, cleaned)
            log.discard(removed)
            done.segments_after += 1
            done.bytes_after += segment.size_bytes
            done.records_before += cleaned.records_before
            done.records_after += cleaned.records_after
        _log.info("cleaned %s-%d up to offset %d: %s", log.topic, log.partition, end, done)
        return done


def _uncleanable(segments: Sequence[Segment], stable: int, config: KafkaConfig, now_ms: int) -> int:
    """Number of the first segment that must not be cleaned: undecided transactions, or records that are too young."""
    for number, segment in enumerate(segments):
        end = segments[number + 1].base_offset if number + 1 < len(segments) else stable
        if end > stable or _end_of(segment) > stable:
            return number
        is_young = segment.size_bytes and _newest_ms(segment) > now_ms - config.min_compaction_lag_ms
        if config.min_compaction_lag_ms and is_young:
            return number
    return len(segments)


def _end_of(segment: Segment) -> int:
    last = segment.base_offset - 1
    for _, header, _ in segment.headers(lookup.start_position(segment, LONG_MAX)):
        last = header.last_offset
    return last + 1


def _newest_ms(segment: Segment) -> int:
    largest = lookup.largest_time(segment).timestamp_ms
    return largest if largest >= 0 else segment.modified_ms


def _is_due(segments: Sequence[Segment], first_dirty: int, config: KafkaConfig, now_ms: int) -> bool:
    dirty = [segment for segment in segments if segment.base_offset >= first_dirty]
    dirty_bytes = sum(segment.size_bytes for segment in dirty)
    total = sum(segment.size_bytes for segment in segments)
    if not dirty_bytes:
        return False
    if min(_newest_ms(segment) for segment in dirty) < now_ms - config.max_compaction_lag_ms:
        return True
    return dirty_bytes / total >= config.min_cleanable_dirty_ratio


def _old_horizon(segments: Sequence[Segment], first_dirty: int, config: KafkaConfig) -> int:
    """Modification time below which tombstones of the old formats have been kept long enough: they note no horizon."""
    clean_before = [segment for segment in segments if segment.base_offset < first_dirty]
    return clean_before[-1].modified_ms - config.delete_retention_ms if clean_before else 0


def _map_keys(log: PartitionLog, segments: Sequence[Segment], start: int, end: int) -> KeyMap:
    """The newest offset of each key from ``start`` on; aborted records are as good as not there."""
    keys = KeyMap()
    hidden = CommittedFilter(log.aborted_transactions(start, end))
    for segment in segments[lookup.floor_segment(segments, start) :]:
        for position, header, buffer in segment.headers():
            if header.last_offset < start or header.is_control or hidden.hides(header):
                continue
            for record in records_of(segment, position, header, buffer):
                if record.key is not None and record.offset >= start:
                    keys.put(record.key, record.offset)
    keys.end_offset = end
    return keys


def group_segments(segments: Sequence[Segment], config: KafkaConfig, end: int) -> list[list[Segment]]:
    """Neighbours that fit one segment together: its size, its indexes and its span of offsets."""
    groups: list[list[Segment]] = []
    size = index = times = 0
    for number, segment in enumerate(segments):
        following = segments[number + 1].base_offset if number + 1 < len(segments) else end
        own = (segment.size_bytes, len(segment.offset_index()), len(segment.time_index()))
        if groups and (
            size + own[0] <= config.segment_bytes
            and index + own[1] <= config.index_entries
            and times + own[2] <= config.time_index_entries
            and following - 1 - groups[-1][0].base_offset <= INT_MAX
        ):
            groups[-1].append(segment)
            size, index, times = size + own[0], index + own[1], times + own[2]
        else:
            groups.append([segment])
            size, index, times = own
    return groups


def _digest(key: bytes) -> bytes:
    return md5(key, usedforsecurity=False).digest()
