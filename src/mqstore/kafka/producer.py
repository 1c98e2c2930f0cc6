"""A producer that numbers its records, so that what is sent twice is stored once, and that can send in transactions."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mqstore import errors
from mqstore.kafka.batching import Sender
from mqstore.kafka.message import KafkaMessage, PutResult
from mqstore.kafka.producer_state import add_sequence
from mqstore.layout.kafka.checkpoints import TopicPartition

if TYPE_CHECKING:
    from mqstore.kafka.store import KafkaStore


class Producer:
    """An idempotent producer of one store, made by :meth:`mqstore.kafka.KafkaStore.producer`. Safe for several threads.

    After a put that failed the same messages can be put again: what had been stored is answered, not stored twice.

    Attributes:
        producer_id: its number.
        epoch: of several producers with one number only the one with the newest epoch may go on.
    """

    def __init__(self, store: KafkaStore, producer_id: int, epoch: int) -> None:
        self._store = store
        self.producer_id = producer_id
        self.epoch = epoch
        self._next: dict[TopicPartition, int] = {}
        self._touched: set[TopicPartition] | None = None
        self._guard = threading.RLock()

    def put(self, message: KafkaMessage) -> PutResult:
        """Store one message; see :meth:`put_batch`."""
        return self.put_batch([message])[0]

    def put_batch(self, messages: Sequence[KafkaMessage]) -> list[PutResult]:
        """Store messages as :meth:`mqstore.kafka.KafkaStore.put_batch` does; within a transaction as part of it.

        Raises:
            ProducerFencedError: a producer with this number and a newer epoch has written.
            OutOfOrderSequenceError: something it put before has been lost.
        """
        with self._guard:
            results = []
            for where, run in _by_partition(messages):
                if self._touched is not None:
                    self._touched.add(where)
                sender = Sender(self.producer_id, self.epoch, self._next.get(where, 0), self._touched is not None)
                results += self._store.put_as(run, sender)
                self._next[where] = add_sequence(sender.base_sequence, len(run))
            return results

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return self._touched is not None

    def begin(self) -> None:
        """Open a transaction: what is put from here on is seen by readers of committed records only after commit."""
        with self._guard:
            if self._touched is not None:
                raise errors.UsageError("a transaction is open already", hint="commit or abort it first")
            self._touched = set()

    def commit(self) -> None:
        """End the transaction so that its records count."""
        self._end(commit=True)

    def abort(self) -> None:
        """End the transaction so that its records count as never sent."""
        self._end(commit=False)

    def _end(self, commit: bool) -> None:
        with self._guard:
            if self._touched is None:
                raise errors.UsageError("no transaction is open", hint="begin one first")
            for topic, partition in sorted(self._touched):
                self._store.end_transaction(topic, partition, self.producer_id, self.epoch, commit=commit)
            self._touched = None

    @contextmanager
    def transaction(self) -> Iterator[Producer]:
        """``with producer.transaction():`` commits at the end of the block and aborts when it is left by an error."""
        self.begin()
        try:
            yield self
        except BaseException:
            self.abort()
            raise
        self.commit()


def _by_partition(messages: Sequence[KafkaMessage]) -> Iterator[tuple[TopicPartition, list[KafkaMessage]]]:
    """Runs of neighbours of one partition."""
    run: list[KafkaMessage] = []
    for message in messages:
        if run and (run[-1].topic, run[-1].partition) != (message.topic, message.partition):
            yield (run[0].topic, run[0].partition), run
            run = []
        run.append(message)
    if run:
        yield (run[0].topic, run[0].partition), run
