"""What a partition knows of its producers: sequence numbers, epochs, open transactions.

The same rules serve appending (where a producer's mistakes are refused), recovery and reading (where what is in the log
is taken as it is). See docs/format/kafka-producer-snapshot.md.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from mqstore import errors
from mqstore.layout.constants import INT_MAX
from mqstore.layout.kafka.batch import BatchHeader
from mqstore.layout.kafka.producer_snapshot import ProducerEntry
from mqstore.layout.kafka.txn_index import AbortedTransaction

_log = logging.getLogger(__name__)

KEPT_BATCHES: Final = 5
"""How many of a producer's last batches are remembered, to answer those that are sent twice."""


class Marker(NamedTuple):
    """An end of a transaction as its control record tells it."""

    commit: bool
    coordinator_epoch: int
    timestamp_ms: int


class CompletedTransaction(NamedTuple):
    """A transaction that a marker has just ended; ``last_offset`` is the marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    commit: bool


class BatchMemory(NamedTuple):
    """A batch that was appended: its last sequence number and offset, its span of offsets and its timestamp."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @property
    def first_sequence(self) -> int:
        """Sequence number of its first record; numbers wrap to 0 behind 2**31 - 1."""
        return add_sequence(self.last_sequence, -self.offset_delta)

    @property
    def first_offset(self) -> int:
        """Offset of its first record."""
        return self.last_offset - self.offset_delta


@dataclass
class Producer:
    """One producer; batches of its current epoch only, the newest last."""

    producer_id: int
    epoch: int = -1
    batches: deque[BatchMemory] = field(default_factory=lambda: deque(maxlen=KEPT_BATCHES))
    coordinator_epoch: int = -1
    timestamp_ms: int = -1
    txn_first_offset: int = -1

    def entry(self) -> ProducerEntry:
        """The same as a snapshot's entry."""
        last = self.batches[-1] if self.batches else BatchMemory(-1, -1, 0, -1)
        return ProducerEntry(
            self.producer_id,
            self.epoch,
            last.last_sequence,
            last.last_offset,
            last.offset_delta,
            self.timestamp_ms,
            self.coordinator_epoch,
            self.txn_first_offset,
        )

    @classmethod
    def from_entry(cls, entry: ProducerEntry) -> Producer:
        """The producer that a snapshot's entry describes."""
        producer = cls(
            entry.producer_id,
            entry.producer_epoch,
            coordinator_epoch=entry.coordinator_epoch,
            timestamp_ms=entry.timestamp_ms,
            txn_first_offset=entry.current_txn_first_offset,
        )
        if entry.last_offset >= 0:
            producer.batches.append(
                BatchMemory(entry.last_sequence, entry.last_offset, entry.offset_delta, entry.timestamp_ms)
            )
        return producer

    def set_epoch(self, epoch: int) -> None:
        """Note a batch or marker of ``epoch``; another epoch begins without batches."""
        if epoch != self.epoch:
            self.batches.clear()
            self.epoch = epoch

    def find_batch(self, header: BatchHeader, last_sequence: int) -> BatchMemory | None:
        """The remembered batch that ``header`` repeats, if any."""
        if header.producer_epoch != self.epoch:
            return None
        for batch in self.batches:
            if batch.last_sequence == last_sequence and batch.first_sequence == header.base_sequence:
                return batch
        return None


class ProducerStates:
    """All producers of a partition up to :attr:`end_offset`, exclusive."""

    def __init__(self, entries: Iterable[ProducerEntry] = (), end_offset: int = 0) -> None:
        self.producers = {entry.producer_id: Producer.from_entry(entry) for entry in entries}
        self.end_offset = end_offset

    def entries(self) -> list[ProducerEntry]:
        """The state as a snapshot's entries."""
        return [producer.entry() for producer in self.producers.values()]

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forget producers that have been silent for ``expiration_ms`` and have no open transaction."""
        for producer in list(self.producers.values()):
            if producer.txn_first_offset < 0 and now_ms - producer.timestamp_ms >= expiration_ms:
                del self.producers[producer.producer_id]

    @property
    def first_open_offset(self) -> int | None:
        """First offset of the oldest open transaction; None without one."""
        return self._first_open(None)

    def _first_open(self, but: int | None) -> int | None:
        open_since = [
            producer.txn_first_offset
            for producer in self.producers.values()
            if producer.txn_first_offset >= 0 and producer.producer_id != but
        ]
        return min(open_since, default=None)

    def apply(self, header: BatchHeader, marker: Marker | None) -> AbortedTransaction | None:
        """Note a batch of the log; what it aborted, if it is the marker that aborted a transaction."""
        if header.producer_id >= 0:
            if header.is_control:
                ended = None if marker is None else self._end(header, marker)
            else:
                ended = None
                self._add(header)
            self.end_offset = header.last_offset + 1
            if ended is not None and not ended.commit:
                first_open = self._first_open(ended.producer_id)
                stable = ended.last_offset + 1 if first_open is None else first_open
                return AbortedTransaction(ended.producer_id, ended.first_offset, ended.last_offset, stable)
        self.end_offset = header.last_offset + 1
        return None

    def _add(self, header: BatchHeader) -> None:
        producer = self.producers.setdefault(header.producer_id, Producer(header.producer_id))
        producer.set_epoch(header.producer_epoch)
        delta = header.last_offset - header.base_offset
        last = add_sequence(header.base_sequence, delta)
        producer.batches.append(BatchMemory(last, header.last_offset, delta, header.max_timestamp_ms))
        producer.timestamp_ms = header.max_timestamp_ms
        if header.is_transactional and producer.txn_first_offset < 0:
            producer.txn_first_offset = header.base_offset

    def _end(self, header: BatchHeader, marker: Marker) -> CompletedTransaction | None:
        producer = self.producers.setdefault(header.producer_id, Producer(header.producer_id))
        producer.set_epoch(header.producer_epoch)
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.timestamp_ms = marker.timestamp_ms
        first_offset, producer.txn_first_offset = producer.txn_first_offset, -1
        if first_offset < 0:
            return None  # a marker without a transaction ends nothing
        return CompletedTransaction(header.producer_id, first_offset, header.base_offset, marker.commit)

    def check(self, header: BatchHeader) -> BatchMemory | None:
        """Judge a batch that is to be appended: the batch it repeats, or None when it may go on.

        Raises:
            ProducerFencedError: a newer epoch of the producer has been seen.
            OutOfOrderSequenceError: its sequence numbers leave a gap, or go back further than is remembered.
            MessageIllegalError: a batch outside a transaction while one of its producer is open.
        """
        known = self.producers.get(header.producer_id)
        if known is None:
            return None
        self.check_epoch(header.producer_id, header.producer_epoch)
        last_sequence = add_sequence(header.base_sequence, header.last_offset - header.base_offset)
        repeated = known.find_batch(header, last_sequence)
        if repeated is not None:
            return repeated
        self._check_sequence(header, known)
        if known.txn_first_offset >= 0 and not header.is_transactional:
            raise errors.MessageIllegalError(
                "a batch outside a transaction, while one of its producer is open",
                found=f"producer {header.producer_id}",
                hint="commit or abort the transaction first",
            )
        return None

    def check_epoch(self, producer_id: int, producer_epoch: int) -> None:
        """Raise ProducerFencedError when a newer epoch of the producer has been seen."""
        known = self.producers.get(producer_id)
        if known is not None and producer_epoch < known.epoch:
            raise fenced(producer_id, producer_epoch, known.epoch)

    def next_sequence(self, producer_id: int, producer_epoch: int) -> int:
        """The number that the next record of a producer gets; an epoch's first is 0."""
        known = self.producers.get(producer_id)
        if known is None or known.epoch != producer_epoch or not known.batches:
            return 0
        return add_sequence(known.batches[-1].last_sequence, 1)

    @staticmethod
    def _check_sequence(header: BatchHeader, known: Producer) -> None:
        if header.producer_epoch != known.epoch:
            expected = 0 if known.epoch >= 0 else header.base_sequence
        elif known.batches:
            expected = add_sequence(known.batches[-1].last_sequence, 1)
        else:
            expected = 0
        if header.base_sequence != expected:
            raise errors.OutOfOrderSequenceError(
                "sequence numbers of a producer are out of order",
                expected=expected,
                found=f"{header.base_sequence} of producer {header.producer_id}, epoch {header.producer_epoch}",
                hint="send what lies between first; what was stored long ago must not be sent again",
            )


def fenced(producer_id: int, producer_epoch: int, newest_epoch: int) -> errors.ProducerFencedError:
    """The error for a producer that one of a newer epoch has replaced."""
    return errors.ProducerFencedError(
        "a newer epoch of this producer has been seen",
        expected=f"epoch {newest_epoch}",
        found=f"epoch {producer_epoch} of producer {producer_id}",
        hint="the producer was replaced: it must stop",
    )


def add_sequence(sequence: int, delta: int) -> int:
    """``sequence + delta`` as sequence numbers go: behind 2**31 - 1 comes 0. -1 (none) stays as it is."""
    return sequence if sequence < 0 else (sequence + delta) & INT_MAX
