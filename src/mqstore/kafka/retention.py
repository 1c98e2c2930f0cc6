"""Which segments of a partition are past their time or too many."""

from __future__ import annotations

import logging

from mqstore.kafka import lookup
from mqstore.kafka.config import KafkaConfig
from mqstore.kafka.partition_log import PartitionLog
from mqstore.kafka.segment import Segment

_log = logging.getLogger(__name__)


def remove_expired(log: PartitionLog, config: KafkaConfig, now_ms: int) -> int:
    """Remove the oldest segments that are past ``retention_ms``, then those beyond ``retention_bytes``; how many.

    A segment's age is that of its largest timestamp; without timestamps, of its file. A segment goes as a whole, and
    only when all before it have gone.
    """
    if "delete" not in config.policies:
        return 0
    removed = _remove_old(log, config.retention_ms, now_ms) if config.retention_ms >= 0 else 0
    if config.retention_bytes >= 0:
        removed += _remove_beyond(log, config.retention_bytes)
    if removed:
        _log.info("retention removed %d segments of %s-%d", removed, log.topic, log.partition)
    return removed


def _remove_old(log: PartitionLog, retention_ms: int, now_ms: int) -> int:
    def is_old(segment: Segment, is_active: bool) -> bool:
        largest = log.active.largest if is_active else lookup.largest_time(segment)
        stamp = largest.timestamp_ms if largest.timestamp_ms >= 0 else segment.modified_ms
        return now_ms - stamp > retention_ms

    return log.remove_oldest(is_old)


def _remove_beyond(log: PartitionLog, retention_bytes: int) -> int:
    excess = log.size_bytes - retention_bytes

    def is_beyond(segment: Segment, is_active: bool) -> bool:
        nonlocal excess
        size = segment.size_bytes
        if excess - size < 0:
            return False
        excess -= size
        return True

    return log.remove_oldest(is_beyond)
