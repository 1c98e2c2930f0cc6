"""The writing half of a running store: what is put, by plain and by numbering producers, and how transactions end."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterable, Sequence

from mqstore import errors, kernels
from mqstore.kafka.arguments import SHORT_MAX, check_number, check_numbers, check_place
from mqstore.kafka.batching import PLAIN, Sender
from mqstore.kafka.config import KafkaConfig
from mqstore.kafka.message import KafkaMessage, PutResult
from mqstore.kafka.partition_log import Appended, PartitionLog
from mqstore.kafka.producer import Producer, name_not_ended
from mqstore.kafka.producer_state import fenced
from mqstore.kafka.putting import PreparedBatch, numbered, prepare, take_messages
from mqstore.kafka.store_reader import StoreReader
from mqstore.layout.constants import INT_MAX, LONG_MAX
from mqstore.layout.kafka.batch import decode_header, decode_records
from mqstore.layout.kafka.checkpoints import TopicPartition
from mqstore.layout.kafka.control import encode_end_transaction_marker


class StoreWriter(StoreReader):
    """Appends to the partitions of a running store."""

    config: KafkaConfig
    _initialising: threading.RLock
    """One producer at a time is made. Not held by what puts, as making one waits for its predecessor's put."""
    _newest_producer: int
    _producers: dict[int, Producer]
    """The newest of each number, kept whether the caller keeps it or not: it knows what of a put was stored."""

    def _log_for_put(self, topic: str, partition: int) -> PartitionLog:
        """The partition to put into, made if need be and allowed."""
        raise errors.UsageError("no such partition")

    def put(self, message: KafkaMessage | object) -> PutResult:
        """Store one message, as a batch of its own, and return where.

        The call returns when the message is in the page cache; with ``flush_messages=1`` when it is on the device.
        A :class:`mqstore.Message` is taken as well (see :func:`mqstore.kafka.batching.as_kafka_message`).

        Raises:
            MessageIllegalError: the message breaks a limit. Nothing was stored.
            DiskFullError: no space left. Nothing was stored.
            NotWritableError: the partition no longer takes messages, because a sync failed.
            StoreClosedError: the store is closed, or was opened by the parent of this process.
        """
        return self.put_batch([message])[0]

    def put_batch(self, messages: Iterable[KafkaMessage | object]) -> list[PutResult]:
        """Store ``messages`` in order; neighbours of one partition share batches of up to ``batch_size`` bytes.

        All are checked before the first is stored. Raises as :meth:`put`; when the device fails in the middle, the
        batches before that have been stored, and the error's ``found`` tells how many messages.
        """
        return self.put_as(messages, PLAIN)

    def put_as(self, messages: Iterable[KafkaMessage | object], sender: Sender) -> list[PutResult]:
        """:meth:`put_batch` on behalf of ``sender``; all messages of one partition where it numbers its records."""
        self._check_open()
        results: list[PutResult] = []
        taken = take_messages(messages, self.config)
        self.put_prepared(prepare(taken, self.config, numbered(sender)), results)
        return results

    def put_prepared(self, batches: Sequence[PreparedBatch], results: list[PutResult]) -> None:
        """Append batches, and to ``results`` where each record of them is: as far as that went, if one fails.

        Raises as :meth:`put`. What can be refused is refused before the first is appended.
        """
        self._check_open()
        logs = {one.where: self._log_for_put(*one.where) for one in batches}
        for one in batches:
            logs[one.where].check_appendable(one.sender.producer_id, one.sender.producer_epoch)
        known = len(results)
        for one in batches:
            try:
                place = self._append(logs[one.where], one.batch)
            except errors.MqstoreError as error:
                if len(results) > known:
                    total = known + sum(len(batch.times_ms) for batch in batches)
                    count = f"{len(results)} of {total} messages stored"
                    error.found = count if error.found is None else f"{count}; {error.found}"
                raise
            for number, time_ms in enumerate(one.times_ms):
                stamp = place.max_timestamp_ms if place.is_duplicate else time_ms
                results.append(PutResult(*one.where, place.base_offset + number, stamp, place.is_duplicate))

    def _append(self, log: PartitionLog, batch: bytes) -> Appended:
        return self._flush_if_due(log, log.append(batch))

    def _flush_if_due(self, log: PartitionLog, place: Appended) -> Appended:
        if place.last_offset + 1 - log.recovery_point >= self.config.flush_messages:
            log.flush(place.last_offset + 1)
        return place

    def append_batch(
        self,
        topic: str,
        partition: int,
        batch: bytes,
        *,
        keep_offsets: bool = False,
        leader_epoch: int | None = None,
    ) -> Appended:
        """Append one batch of the present format as it is: compressed, numbered or transactional.

        Offsets and leader epoch are given here, unless ``keep_offsets`` and ``leader_epoch`` say otherwise. A
        producer's batch is held against what was seen of it: a repeated one is answered with its first place.

        Raises:
            CorruptBatchError: its checksum, length or records are wrong. Nothing was stored.
            MessageIllegalError: it breaks a limit, or its sequence numbers are out of order. Nothing was stored.
            DiskFullError, NotWritableError, StoreClosedError: as :meth:`put`.
        """
        self._check_open()
        if not isinstance(batch, bytes | bytearray | memoryview):
            raise errors.UsageError("a batch is bytes", found=type(batch).__name__)
        batch = bytes(batch)
        check_place(topic, partition)
        check_numbers(-1, INT_MAX, leader_epoch=leader_epoch)
        header = decode_header(batch)
        if header.size != len(batch) or header.magic != 2:
            raise errors.MessageIllegalError(
                "not one batch of the present format", expected=f"{len(batch)} bytes, magic 2",
                found=f"{header.size} bytes, magic {header.magic}",
            )  # fmt: skip
        records = decode_records(batch, header, checksum=kernels.crc32c)
        if self.config.is_compacted and not header.is_control and any(record.key is None for record in records):
            raise errors.MessageIllegalError("a record without a key cannot be put into a compacted topic", found=topic)
        log = self._log_for_put(topic, partition)
        return self._flush_if_due(log, log.append(batch, keep_offsets=keep_offsets, leader_epoch=leader_epoch))

    def producer(self, producer_id: int | None = None, epoch: int = 0) -> Producer:
        """A producer that numbers its records and can send in transactions.

        The same number and epoch give the same producer as long as the store is open, in whatever state it is. Any
        other takes over from its predecessors, of an older epoch or from before the store was opened: a transaction
        that they left open is aborted in all its partitions, and those that are still held here are fenced. One whose
        commit has ended in some partitions has it ended in the others first; that is not known after opening anew.

        Args:
            producer_id: its number; None is one that no partition knows yet.
            epoch: one more than that of the producer it replaces.

        Raises:
            UsageError: a number below 0, or too large.
            ProducerFencedError: a newer epoch of the producer has been seen.
            NotWritableError, DiskFullError, StoreIOError: what ``found`` names has not ended; call again.
        """
        self._check_open()
        check_number("epoch", epoch, 0, SHORT_MAX)
        with self._initialising:
            if producer_id is None:
                producer_id = self._free_producer_id()
            check_number("producer_id", producer_id)
            newest = self.newest_epoch(producer_id)
            if epoch < newest:
                raise fenced(producer_id, epoch, newest)
            found = self._producers.get(producer_id)
            # One object each: two that number the records of one producer would take each other's for repeated ones.
            if found is not None and found.epoch == epoch:
                return found
            if found is not None:
                found.fence(epoch)
            self._abort_left_open(producer_id, epoch)
            self._newest_producer = max(self._newest_producer, producer_id)
            made = self._producers[producer_id] = Producer(self, producer_id, epoch)
            return made

    def _free_producer_id(self) -> int:
        known = {entry.producer_id for log in list(self._logs.values()) for entry in log.producers}
        newest = max(known | {self._newest_producer})
        if newest < LONG_MAX:
            return newest + 1
        return next(number for number in itertools.count() if number not in known and number not in self._producers)

    def newest_epoch(self, producer_id: int, places: Iterable[TopicPartition] | None = None) -> int:
        """The newest epoch of a producer that was made here or that one of these partitions knows; None is all.

        -1 when there is none.
        """
        found = self._producers.get(producer_id)
        known = [
            self._logs[where].producer_entry(producer_id) for where in list(self._logs if places is None else places)
        ]
        epochs = [entry.producer_epoch for entry in known if entry is not None]
        return max(epochs, default=-1) if found is None else max([found.epoch, *epochs])

    def _abort_left_open(self, producer_id: int, epoch: int) -> None:
        """Abort what is open of a producer, in the name of ``epoch``; every partition is tried."""
        failed: list[tuple[TopicPartition, errors.MqstoreError]] = []
        for where in sorted(self._logs):
            entry = self._logs[where].producer_entry(producer_id)
            if entry is None or entry.current_txn_first_offset < 0:
                continue
            coordinator_epoch = max(0, entry.coordinator_epoch)
            try:
                self.end_transaction(*where, producer_id, epoch, commit=False, coordinator_epoch=coordinator_epoch)
            except errors.MqstoreError as error:
                failed.append((where, error))
        if failed:
            raise name_not_ended(failed)

    def end_transaction(
        self,
        topic: str,
        partition: int,
        producer_id: int,
        producer_epoch: int,
        *,
        commit: bool,
        coordinator_epoch: int = 0,
        timestamp_ms: int | None = None,
    ) -> int:
        """Append the marker that commits or aborts a producer's open transaction in a partition; the marker's offset.

        Raises:
            ProducerFencedError: a newer epoch of the producer has been seen.
            UsageError: no such partition, or a number that cannot be meant.
        """
        check_number("producer_id", producer_id)
        check_number("producer_epoch", producer_epoch, 0, SHORT_MAX)
        check_number("coordinator_epoch", coordinator_epoch, -1, INT_MAX)
        check_numbers(0, LONG_MAX, timestamp_ms=timestamp_ms)
        log = self.partition(topic, partition)
        with log.lock:
            log.check_epoch(producer_id, producer_epoch)
            marker = encode_end_transaction_marker(
                commit=commit,
                offset=log.log_end,
                leader_epoch=log.leader_epoch,
                timestamp_ms=time.time_ns() // 1_000_000 if timestamp_ms is None else timestamp_ms,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                coordinator_epoch=coordinator_epoch,
                checksum=kernels.crc32c,
            )
            place = log.append(marker)
        return self._flush_if_due(log, place).base_offset

    def next_sequence(self, topic: str, partition: int, producer_id: int, producer_epoch: int) -> int:
        """The sequence number that a producer's next record gets in a partition, which need not be there yet."""
        log = self._find(topic, partition)
        return 0 if log is None else log.next_sequence(producer_id, producer_epoch)

    def has_open_transaction(self, topic: str, partition: int, producer_id: int, producer_epoch: int) -> bool:
        """Whether this epoch of a producer has begun a transaction in a partition that has not ended."""
        log = self._logs.get((topic, partition))
        return log is not None and log.has_open_transaction(producer_id, producer_epoch)
