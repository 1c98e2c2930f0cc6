"""A producer that numbers its records, so that what is sent twice is stored once, and that can send in transactions."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

from mqstore import errors
from mqstore.kafka.batching import Sender
from mqstore.kafka.message import KafkaMessage, PutResult
from mqstore.kafka.producer_state import add_sequence, fenced
from mqstore.kafka.putting import PreparedBatch, prepare, take_messages
from mqstore.layout.kafka.checkpoints import TopicPartition

if TYPE_CHECKING:
    from mqstore.kafka.store_writer import StoreWriter

_Failure = tuple[TopicPartition, errors.MqstoreError]


class _Unfinished(NamedTuple):
    """A call that failed in the middle: which messages it was given, and where those of them are that were stored."""

    digest: bytes
    stored: list[PutResult]


class Producer:
    """An idempotent producer of one store, made by :meth:`mqstore.kafka.KafkaStore.producer`. Safe for several threads.

    A put that failed in the middle can be made again: with the same messages, as the next call of this producer, it
    stores the rest, and answers what had been stored, however much that was, instead of storing it twice. It is a new
    call, which stores all of them, when this producer put other messages or began or ended a transaction in between;
    when some of what had been stored lies below the log start by now; and after the store was opened anew, for then
    nobody knows any more what the call was. So the same messages put on purpose right behind a put of them that failed
    count as put again.

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
        self._unfinished: _Unfinished | None = None
        self._newer_epoch: int | None = None
        """The epoch of the producer that has taken this one's place."""
        self._guard = threading.RLock()

    def put(self, message: KafkaMessage | object) -> PutResult:
        """Store one message; see :meth:`put_batch`."""
        return self.put_batch([message])[0]

    def put_batch(self, messages: Iterable[KafkaMessage | object]) -> list[PutResult]:
        """Store messages as :meth:`mqstore.kafka.KafkaStore.put_batch` does; within a transaction as part of it.

        Raises:
            ProducerFencedError: a producer with this number and a newer epoch has taken over.
            UsageError: the transaction is being ended.
        """
        taken = take_messages(messages, self._store.config)  # not guarded: a generator may do anything
        with self._guard:
            self._refuse_if_fenced()
            if self._commits is not None:
                raise errors.UsageError("the transaction is being ended", hint=f"call {self._way} again first")
            results = self._stored_before(taken)
            self._unfinished = None
            batches = prepare(taken[len(results) :], self._store.config, self._numbering())
            try:
                self._store.put_prepared(batches, results)
            except errors.MqstoreError as error:
                if results:
                    self._unfinished = _Unfinished(_digest(taken), results)
                if isinstance(error, errors.ProducerFencedError):
                    self._newer_epoch = self._store.newest_epoch(self.producer_id)
                raise
            finally:
                self._note_touched(batches)
            return results

    def _stored_before(self, messages: Sequence[KafkaMessage]) -> list[PutResult]:
        """What of these messages the call before has stored, if that was with the same and all of it is still there."""
        unfinished = self._unfinished
        if unfinished is None or unfinished.digest != _digest(messages):
            return []
        starts = {where: self._store.min_offset(*where) for where in {_place(one) for one in unfinished.stored}}
        if any(one.offset < starts[_place(one)] for one in unfinished.stored):
            return []
        return [replace(result, is_duplicate=True) for result in unfinished.stored]

    def _numbering(self) -> _Numbering:
        return _Numbering(self._store, self.producer_id, self.epoch, self._touched is not None)

    def _note_touched(self, batches: Sequence[PreparedBatch]) -> None:
        """Note the partitions of which something belongs to the transaction now: what was refused does not."""
        if self._touched is not None:
            self._touched.update(where for where in {one.where for one in batches} if self._is_open_in(where))

    def _is_open_in(self, where: TopicPartition) -> bool:
        return self._store.has_open_transaction(*where, self.producer_id, self.epoch)

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open. That of a fenced producer is not: who took its place has aborted it."""
        return self._touched is not None and self._newer_epoch is None

    def fence(self, newer_epoch: int) -> None:
        """Let one of a newer epoch take over, when what is being put has been put; a commit under way is ended first.

        Raises as :meth:`commit` when that fails: nobody takes over then.
        """
        with self._guard:
            if self._commits:
                self._end(commit=True)
            self._newer_epoch = newer_epoch

    def _refuse_if_fenced(self) -> None:
        if self._newer_epoch is not None:
            raise fenced(self.producer_id, self.epoch, self._newer_epoch)

    def begin(self) -> None:
        """Open a transaction: what is put from here on is seen by readers of committed records only after commit."""
        with self._guard:
            self._refuse_if_fenced()
            if self._touched is not None:
                raise errors.UsageError("a transaction is open already", hint="commit or abort it first")
            self._unfinished = None  # what was stored outside is no part of it
            self._touched = set()

    def commit(self) -> None:
        """End the transaction so that its records count.

        Every partition of it is tried. When one fails, the same call can be made again, and ends what is left; once a
        partition has ended, the others can end in no other way.

        Raises:
            UsageError: no transaction is open, or it is being aborted.
            ProducerFencedError: one of a newer epoch has taken over. The transaction is aborted, and no longer open.
            NotWritableError, DiskFullError, StoreIOError: what ``found`` names has not ended.
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
            was_fenced = self._is_fenced(self._touched)
            if was_fenced:
                commit = bool(self._commits)
            elif self._commits not in (None, commit):
                raise errors.UsageError("the transaction is ending in the other way", hint=f"call {self._way} again")
            failed = self._end_partitions(self._touched, commit)
            if failed:
                raise name_not_ended(failed)
            self._touched = self._commits = None
            self._unfinished = None  # aborted records count as not stored, and what is put anew is new
            if was_fenced:
                self._refuse_if_fenced()

    def _is_fenced(self, touched: set[TopicPartition]) -> bool:
        """Whether another has taken over, as far as is known here or to these partitions."""
        if self._newer_epoch is None:
            newest = self._store.newest_epoch(self.producer_id, touched)
            self._newer_epoch = newest if newest > self.epoch else None
        return self._newer_epoch is not None

    def _end_partitions(self, touched: set[TopicPartition], commit: bool) -> list[_Failure]:
        """End the transaction in the partitions ``touched``, and take out of them those it has ended in."""
        failed = []
        for where in sorted(touched):
            if self._newer_epoch is not None and not self._is_open_in(where):
                touched.discard(where)  # whoever took over has ended it there
                continue
            try:
                self._store.end_transaction(*where, self.producer_id, self.epoch, commit=commit)
                touched.discard(where)
            except errors.MqstoreError as error:
                failed.append((where, error))
                if isinstance(error, errors.ProducerFencedError) or self._is_open_in(where):
                    continue
            self._commits = commit  # the marker is written, if perhaps not on the device
        return failed

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


def name_not_ended(failed: Sequence[_Failure]) -> errors.MqstoreError:
    """The first of these errors, with all partitions named in which a transaction could not be ended."""
    first = failed[0][1]
    names = ", ".join(f"{topic}-{partition}" for (topic, partition), _ in failed)
    not_ended = f"not ended in {names}"
    first.found = not_ended if first.found is None else f"{not_ended}; {first.found}"
    return first


def _place(result: PutResult) -> TopicPartition:
    return result.topic, result.partition


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
