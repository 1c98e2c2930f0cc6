"""A producer that numbers its records, so that what is sent twice is stored once, and that can send in transactions."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from mqstore import errors
from mqstore.kafka.batching import Sender
from mqstore.kafka.message import KafkaMessage, PutResult
from mqstore.kafka.producer_state import add_sequence
from mqstore.kafka.putting import PreparedBatch, prepare, take_messages
from mqstore.layout.kafka.checkpoints import TopicPartition

if TYPE_CHECKING:
    from mqstore.kafka.store_writer import StoreWriter

UNFINISHED_CALLS: Final = 256
"""How many calls that failed in the middle are remembered, for being made again."""


class Producer:
    """An idempotent producer of one store, made by :meth:`mqstore.kafka.KafkaStore.producer`. Safe for several threads.

    A put that failed in the middle can be made again with the same messages: what had been stored is answered, not
    stored twice, however much that was. Another put may come between.

    Attributes:
        producer_id: its number.
        epoch: of several producers with one number only the one with the newest epoch may go on.
    """

    def __init__(self, store: StoreWriter, producer_id: int, epoch: int) -> None:
        self._store = store
        self.producer_id = producer_id
        self.epoch = epoch
        self._touched: set[TopicPartition] | None = None
        self._commits: bool | None = None
        """Which way the transaction is ending, once a partition of it has ended."""
        self._unfinished: OrderedDict[bytes, list[PutResult]] = OrderedDict()
        self._guard = threading.RLock()

    def put(self, message: KafkaMessage | object) -> PutResult:
        """Store one message; see :meth:`put_batch`."""
        return self.put_batch([message])[0]

    def put_batch(self, messages: Iterable[KafkaMessage | object]) -> list[PutResult]:
        """Store messages as :meth:`mqstore.kafka.KafkaStore.put_batch` does; within a transaction as part of it.

        Raises:
            ProducerFencedError: a producer with this number and a newer epoch has written.
            UsageError: the transaction is being ended.
        """
        with self._guard:
            if self._commits is not None:
                raise errors.UsageError("the transaction is being ended", hint=f"call {self._way} again first")
            taken = take_messages(messages, self._store.config)
            stored = self._unfinished.get(_digest(taken), []) if self._unfinished else []
            results = [replace(result, is_duplicate=True) for result in stored]
            batches = prepare(taken[len(results) :], self._store.config, self._numbering())
            try:
                self._store.put_prepared(batches, results)
            except errors.MqstoreError:
                self._remember(taken, results)
                raise
            finally:
                self._note_touched(batches)
            if stored:
                del self._unfinished[_digest(taken)]
            return results

    def _numbering(self) -> _Numbering:
        return _Numbering(self._store, self.producer_id, self.epoch, self._touched is not None)

    def _remember(self, messages: Sequence[KafkaMessage], results: list[PutResult]) -> None:
        if results:
            self._unfinished[_digest(messages)] = results
            if len(self._unfinished) > UNFINISHED_CALLS:
                self._unfinished.popitem(last=False)

    def _note_touched(self, batches: Sequence[PreparedBatch]) -> None:
        """Note the partitions of which something belongs to the transaction now: what was refused does not."""
        if self._touched is not None:
            self._touched.update(where for where in {one.where for one in batches} if self._is_open_in(where))

    def _is_open_in(self, where: TopicPartition) -> bool:
        return self._store.has_open_transaction(*where, self.producer_id, self.epoch)

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return self._touched is not None

    def begin(self) -> None:
        """Open a transaction: what is put from here on is seen by readers of committed records only after commit."""
        with self._guard:
            if self._touched is not None:
                raise errors.UsageError("a transaction is open already", hint="commit or abort it first")
            self._unfinished.clear()  # what was stored outside is no part of it
            self._touched = set()

    def commit(self) -> None:
        """End the transaction so that its records count.

        Every partition of it is tried. When one fails, the same call can be made again, and ends what is left; once a
        partition has ended, the others can end in no other way.

        Raises:
            UsageError: no transaction is open, or it is being aborted.
            ProducerFencedError, NotWritableError, DiskFullError, StoreIOError: what ``found`` names has not ended.
        """
        self._end(commit=True)

    def abort(self) -> None:
        """End the transaction so that its records count as never sent; fails as :meth:`commit` does."""
        self._end(commit=False)

    @property
    def _way(self) -> str:
        return "commit" if self._commits else "abort"

    def _end(self, commit: bool) -> None:
        with self._guard:
            if self._touched is None:
                raise errors.UsageError("no transaction is open", hint="begin one first")
            if self._commits not in (None, commit):
                raise errors.UsageError("the transaction is ending in the other way", hint=f"call {self._way} again")
            failed: list[tuple[TopicPartition, errors.MqstoreError]] = []
            for where in sorted(self._touched):
                try:
                    self._store.end_transaction(*where, self.producer_id, self.epoch, commit=commit)
                    self._touched.discard(where)
                except errors.MqstoreError as error:
                    failed.append((where, error))
                    if isinstance(error, errors.ProducerFencedError) or self._is_open_in(where):
                        continue
                self._commits = commit  # the marker is written, if perhaps not on the device
            if failed:
                first = failed[0][1]
                names = ", ".join(f"{topic}-{partition}" for (topic, partition), _ in failed)
                not_ended = f"not ended in {names}"
                first.found = not_ended if first.found is None else f"{not_ended}; {first.found}"
                raise first
            self._touched = self._commits = None
            self._unfinished.clear()  # aborted records count as not stored, and what is put anew is new

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


class _Numbering:
    """Gives the batches of one call their sequence numbers: in each partition they go on where the log is."""

    def __init__(self, store: StoreWriter, producer_id: int, epoch: int, is_transactional: bool) -> None:
        self._store = store
        self._sender = Sender(producer_id, epoch, 0, is_transactional)
        self._next: dict[TopicPartition, int] = {}

    def __call__(self, where: TopicPartition, count: int) -> Sender:
        if where not in self._next:
            self._next[where] = self._store.next_sequence(*where, self._sender.producer_id, self._sender.producer_epoch)
        sender = replace(self._sender, base_sequence=self._next[where])
        self._next[where] = add_sequence(sender.base_sequence, count)
        return sender


def _digest(messages: Sequence[KafkaMessage]) -> bytes:
    """Tells calls with the same messages from others."""
    digest = blake2b(digest_size=16)
    for message in messages:
        contents = [message.key, message.value]
        for name, content in message.headers:
            contents += name.encode(), content
        sizes = [None if content is None else len(content) for content in contents]
        digest.update(repr((message.topic, message.partition, message.timestamp_ms, sizes)).encode())
        for content in contents:
            digest.update(content or b"")
    return digest.digest()
