"""What of one batch survives compaction."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from mqstore.kafka.markers import marker_in_log
from mqstore.layout.kafka.batch import BatchHeader
from mqstore.layout.kafka.constants import MAGIC_V2
from mqstore.layout.kafka.producer_snapshot import ProducerEntry
from mqstore.layout.kafka.record import Record
from mqstore.layout.kafka.txn_index import AbortedTransaction


class Keys(Protocol):
    """The newest offset of each key, of records before ``end_offset``."""

    end_offset: int

    def is_newest(self, key: bytes, offset: int) -> bool:
        """Whether no newer record of ``key`` is known than the one at ``offset``."""


class Fate(enum.Enum):
    """What becomes of a batch."""

    KEPT = "as it is"
    REWRITTEN = "with fewer records, or with a delete horizon"
    EMPTIED = "without records, for its producer's sequence numbers"
    REMOVED = "not at all"


class Verdict(NamedTuple):
    """The fate of a batch, the records it keeps, and the delete horizon it bears from now on, if any."""

    fate: Fate
    records: list[Record]
    delete_horizon_ms: int | None = None


class TransactionTracker:
    """Follows the transactions of the segments being cleaned: which batches were aborted, which markers are idle.

    Attributes:
        kept_aborts: aborted transactions that still had records in this cleaning, so that readers need to know.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._waiting = sorted(aborted, key=lambda entry: entry.first_offset, reverse=True)
        self._aborting: dict[int, tuple[AbortedTransaction, bool]] = {}
        self._committing: set[int] = set()
        self.kept_aborts: list[AbortedTransaction] = []

    def _begin(self, up_to: int) -> None:
        while self._waiting and self._waiting[-1].first_offset <= up_to:
            entry = self._waiting.pop()
            self._aborting.setdefault(entry.producer_id, (entry, False))

    def is_aborted(self, header: BatchHeader) -> bool:
        """Note a batch of records; whether its transaction was aborted."""
        self._begin(header.last_offset)
        if not header.is_transactional:
            return False
        if header.producer_id in self._aborting:
            self._aborting[header.producer_id] = self._aborting[header.producer_id][0], True
            return True
        self._committing.add(header.producer_id)
        return False

    def is_idle_marker(self, header: BatchHeader, commit: bool) -> bool:
        """Note a marker; whether nothing of its transaction was left, so that it may go in time."""
        self._begin(header.last_offset)
        if commit:
            had_records = header.producer_id in self._committing
            self._committing.discard(header.producer_id)
            return not had_records
        entry, had_records = self._aborting.pop(header.producer_id, (None, False))
        if entry is not None and had_records:
            self.kept_aborts.append(entry)
        return not had_records


@dataclass
class BatchFilter:
    """Judges batches by Kafka's rules.

    Attributes:
        keys: the newest offset of each key.
        transactions: the transactions of the log.
        producers: what the log knows of its producers: the last batch of each stays.
        now_ms: the time of this cleaning.
        delete_retention_ms: how long tombstones and idle markers stay.
    """

    keys: Keys
    transactions: TransactionTracker
    producers: dict[int, ProducerEntry]
    now_ms: int
    delete_retention_ms: int

    def judge(
        self, buffer: bytes, header: BatchHeader, read: Callable[[], list[Record]], keeps_old_tombstones: bool
    ) -> Verdict:
        """The fate of a batch; ``read`` gives its records, which are not always needed."""
        if header.is_control:
            return self._judge_control(buffer, header, read)
        if self.transactions.is_aborted(header):
            return self._without_records(header)
        records = read()
        kept = [record for record in records if self._stays(header, record, keeps_old_tombstones)]
        if not kept:
            return self._without_records(header)
        if header.magic < MAGIC_V2:
            return Verdict(Fate.KEPT, records)  # a compressed message stays whole while one of its records does
        horizon = header.delete_horizon_ms
        if horizon is None and any(record.value is None for record in kept):
            horizon = self.now_ms + self.delete_retention_ms
        if len(kept) == len(records) and horizon == header.delete_horizon_ms:
            return Verdict(Fate.KEPT, kept)
        return Verdict(Fate.REWRITTEN, kept, horizon)

    def _judge_control(self, buffer: bytes, header: BatchHeader, read: Callable[[], list[Record]]) -> Verdict:
        marker = marker_in_log(buffer, header)
        if marker is None:
            return Verdict(Fate.KEPT if header.record_count else self._without_records(header).fate, [])
        is_idle = self.transactions.is_idle_marker(header, marker.commit)
        horizon = header.delete_horizon_ms
        if not is_idle or (horizon is not None and self.now_ms < horizon):
            return Verdict(Fate.KEPT, [])
        if horizon is None:
            return Verdict(Fate.REWRITTEN, read(), self.now_ms + self.delete_retention_ms)
        return self._without_records(header)

    def _stays(self, header: BatchHeader, record: Record, keeps_old_tombstones: bool) -> bool:
        if record.offset >= self.keys.end_offset:
            return True
        if record.key is None or not self.keys.is_newest(record.key, record.offset):
            return False
        if record.value is not None:
            return True
        if header.magic < MAGIC_V2:
            return keeps_old_tombstones
        return header.delete_horizon_ms is None or self.now_ms < header.delete_horizon_ms

    def _without_records(self, header: BatchHeader) -> Verdict:
        """Removed, or emptied if it is the last its producer wrote."""
        return Verdict(Fate.EMPTIED if self._is_last_of_producer(header) else Fate.REMOVED, [])

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        producer = self.producers.get(header.producer_id) if header.producer_id >= 0 else None
        if producer is None:
            return False
        if producer.last_offset >= 0:
            return header.last_offset == producer.last_offset
        return header.is_control and header.producer_epoch == producer.producer_epoch
