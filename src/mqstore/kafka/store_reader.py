"""The reading half of a running store: what any number of threads may ask while others put."""

from __future__ import annotations

from mqstore import errors
from mqstore.kafka import lookup
from mqstore.kafka.arguments import check_limits, check_offset, check_offsets, check_place, check_time
from mqstore.kafka.damage import Reporter, raise_at_damage
from mqstore.kafka.lookup import OffsetTime
from mqstore.kafka.message import GetResult, Isolation
from mqstore.kafka.partition_log import PartitionLog
from mqstore.kafka.reading import get_records
from mqstore.kafka.segment import again_if_gone
from mqstore.layout.kafka.checkpoints import TopicPartition
from mqstore.layout.kafka.producer_snapshot import ProducerEntry
from mqstore.layout.kafka.txn_index import AbortedTransaction
from mqstore.status import GetMessageStatus


class StoreReader:
    """Answers from the partitions of a running store."""

    _logs: dict[TopicPartition, PartitionLog]

    def _check_open(self) -> None:
        """Raise StoreClosedError when the store is closed."""

    def topics(self) -> dict[str, list[int]]:
        """The partitions' numbers by topic, both in order."""
        found: dict[str, list[int]] = {}
        for topic, partition in sorted(self._logs):
            found.setdefault(topic, []).append(partition)
        return found

    def _find(self, topic: str, partition: int) -> PartitionLog | None:
        self._check_open()
        check_place(topic, partition)
        return self._logs.get((topic, partition))

    def partition(self, topic: str, partition: int = 0) -> PartitionLog:
        """One partition.

        Raises:
            UsageError: there is none of this name.
        """
        log = self._find(topic, partition)
        if log is None:
            raise errors.UsageError("no such partition", found=f"{topic}-{partition}", hint="see topics()")
        return log

    def get(
        self,
        topic: str,
        partition: int = 0,
        offset: int = 0,
        max_messages: int = 32,
        *,
        max_bytes: int = 1 << 20,
        isolation: str | Isolation = Isolation.READ_UNCOMMITTED,
        on_damage: Reporter = raise_at_damage,
    ) -> GetResult:
        """Records of one partition from ``offset`` on; see :meth:`mqstore.kafka.KafkaView.get`."""
        check_limits(max_messages, max_bytes)
        check_offset("offset", offset)
        level = Isolation.parse(isolation)
        log = self._find(topic, partition)
        if log is None:
            return GetResult(GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0)
        return again_if_gone(lambda: get_records(log.range(level), offset, max_messages, max_bytes, on_damage))

    def min_offset(self, topic: str, partition: int = 0) -> int:
        """The partition's log start offset; 0 when there is no such partition."""
        log = self._find(topic, partition)
        return 0 if log is None else log.log_start

    def max_offset(self, topic: str, partition: int = 0) -> int:
        """The partition's log end offset; 0 when there is no such partition."""
        log = self._find(topic, partition)
        return 0 if log is None else log.log_end

    def offset_at(self, topic: str, partition: int, timestamp_ms: int | str) -> OffsetTime | None:
        """The first record not older than a time; see :meth:`mqstore.kafka.KafkaView.offset_at`."""
        check_time(timestamp_ms)
        log = self._find(topic, partition)
        if log is None:
            return None
        return again_if_gone(lambda: lookup.offset_at(log.segments(), timestamp_ms, log.log_start, log.log_end))

    def aborted_transactions(
        self, topic: str, partition: int = 0, start: int | None = None, end: int | None = None
    ) -> list[AbortedTransaction]:
        """The aborted transactions with records from offset ``start`` to ``end`` (exclusive)."""
        check_offsets(start=start, end=end)
        log = self.partition(topic, partition)
        stop = log.log_end if end is None else end
        return again_if_gone(lambda: log.aborted_transactions(start or 0, stop))

    def producers(self, topic: str, partition: int = 0) -> list[ProducerEntry]:
        """What is known of the partition's producers."""
        return self.partition(topic, partition).producers
