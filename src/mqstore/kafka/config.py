"""The settings of a Kafka log, under Kafka's names in snake_case and with Kafka's defaults."""

from __future__ import annotations

import dataclasses
import difflib
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from mqstore import errors
from mqstore.layout.constants import INT_MAX, LONG_MAX

DAY_MS: Final = 86_400_000
_CODECS: Final = ("producer", "uncompressed", "none", "gzip", "snappy", "lz4", "zstd")
_POLICIES: Final = frozenset({"delete", "compact"})
_TIMESTAMP_TYPES: Final = ("CreateTime", "LogAppendTime")


@dataclass(frozen=True, kw_only=True)
class KafkaConfig:
    """Settings of one data directory. Sizes in bytes, times in milliseconds; -1 means no limit where it is the default.

    The names are those of a topic's settings (``segment.bytes`` is ``segment_bytes``); ``log_...`` and what follows
    are a broker's, ``batch_size`` a producer's.
    """

    segment_bytes: int = 1 << 30
    """Largest length of a ``.log``; a batch that is larger is refused."""
    segment_ms: int = 7 * DAY_MS
    """Span of timestamps (of time, without timestamps) after which a new segment begins."""
    segment_jitter_ms: int = 0
    """Up to this much is taken off ``segment_ms``, drawn anew for each segment."""
    segment_index_bytes: int = 10 << 20
    """Length at which an index counts as full, which begins a new segment. The files grow as they are filled."""
    index_interval_bytes: int = 4096
    """Bytes of log between two index entries."""
    max_message_bytes: int = 1_048_588
    """Largest batch, after compression."""
    compression_type: str = "producer"
    """Codec of the batches that ``put`` makes: none, gzip, snappy, lz4, zstd; ``producer`` is none."""
    message_timestamp_type: str = "CreateTime"
    """CreateTime keeps the timestamps of messages, LogAppendTime replaces them by the time of the append."""

    flush_messages: int = LONG_MAX
    """Records after which the log is synced before ``put`` returns; 1 makes every put survive a power cut."""
    flush_ms: int = LONG_MAX
    """Milliseconds after which appended records are synced in the background."""

    cleanup_policy: str = "delete"
    """``delete``, ``compact`` or ``compact,delete``; compacted partitions refuse messages without a key."""
    retention_ms: int = 7 * DAY_MS
    """Age at which ``enforce_retention`` removes a segment, by its largest timestamp."""
    retention_bytes: int = -1
    """Size of a partition beyond which ``enforce_retention`` removes its oldest segments."""
    file_delete_delay_ms: int = 60_000
    """How long removed segments stay as ``.deleted`` for those who are reading them."""
    min_cleanable_dirty_ratio: float = 0.5
    """Share of uncleaned bytes below which ``compact`` leaves a partition alone, unless it is forced."""
    delete_retention_ms: int = DAY_MS
    """How long tombstones and transaction markers stay after the cleaning that could remove them."""
    min_compaction_lag_ms: int = 0
    """Records younger than this are not compacted."""
    max_compaction_lag_ms: int = LONG_MAX
    """A partition with uncleaned records older than this is cleaned whatever its dirty ratio."""

    log_flush_offset_checkpoint_interval_ms: int = 60_000
    """Milliseconds between two writings of the recovery points."""
    producer_id_expiration_ms: int = DAY_MS
    """A producer that is silent for so long is forgotten."""
    num_partitions: int = 1
    """Partitions of a topic that is first seen in a put."""
    auto_create_topics_enable: bool = True
    node_id: int = 0
    """For ``meta.properties`` of a new data directory."""
    batch_size: int = 16_384
    """Bytes of records that ``put_batch`` gathers into one batch."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            self._check_number(field.name, str(field.type), getattr(self, field.name))
        if self.compression_type not in _CODECS:
            raise _bad_value("compression_type", ", ".join(_CODECS), self.compression_type)
        if self.message_timestamp_type not in _TIMESTAMP_TYPES:
            raise _bad_value("message_timestamp_type", " or ".join(_TIMESTAMP_TYPES), self.message_timestamp_type)
        policy: object = self.cleanup_policy
        if not isinstance(policy, str) or not self.policies or not self.policies <= _POLICIES:
            raise _bad_value("cleanup_policy", "delete, compact or both", self.cleanup_policy)

    @staticmethod
    def _check_number(name: str, kind: str, value: object) -> None:
        if kind == "bool" and not isinstance(value, bool):
            raise _bad_value(name, "True or False", value)
        if kind == "float" and (isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1):
            raise _bad_value(name, "a number from 0 to 1", value)
        if kind == "int":
            low, high = _RANGES.get(name, (0, LONG_MAX))
            if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
                raise _bad_value(name, f"{low} to {high}", value)

    @cached_property
    def policies(self) -> frozenset[str]:
        """The words of ``cleanup_policy``."""
        return frozenset(word.strip() for word in self.cleanup_policy.split(",") if word.strip())

    @property
    def is_compacted(self) -> bool:
        """Whether partitions are compacted, so that every message needs a key."""
        return "compact" in self.policies

    @property
    def index_entries(self) -> int:
        """Entries of a full offset index."""
        return self.segment_index_bytes // 8

    @property
    def time_index_entries(self) -> int:
        """Entries of a full time index: one less than it has room for, which is kept for the last."""
        return self.segment_index_bytes // 12 - 1

    @classmethod
    def from_mapping(cls, settings: dict[str, Any]) -> KafkaConfig:
        """Make a configuration from keyword settings; an unknown name is an error, not ignored.

        Raises:
            UsageError: unknown name (``hint`` gives the nearest one) or a value out of range.
        """
        known = {field.name for field in dataclasses.fields(cls)}
        for name in settings:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f"did you mean {near[0]}?" if near else "see docs/kafka.md for the settings"
                raise errors.UsageError("unknown setting", found=name, hint=hint)
        return cls(**settings)


_RANGES: Final = {
    "segment_bytes": (61, INT_MAX),
    "segment_ms": (1, LONG_MAX),
    "segment_index_bytes": (24, INT_MAX),
    "index_interval_bytes": (0, INT_MAX),
    "max_message_bytes": (0, INT_MAX),
    "flush_messages": (1, LONG_MAX),
    "retention_ms": (-1, LONG_MAX),
    "retention_bytes": (-1, LONG_MAX),
    "producer_id_expiration_ms": (1, LONG_MAX),
    "num_partitions": (1, INT_MAX),
    "node_id": (0, INT_MAX),
    "batch_size": (0, INT_MAX),
    "log_flush_offset_checkpoint_interval_ms": (1, LONG_MAX),
}


def _bad_value(name: str, expected: str, found: object) -> errors.UsageError:
    return errors.UsageError(f"setting {name} has a value that cannot be meant", expected=expected, found=repr(found))
