"""A running store: one process puts, any number of threads get."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from mqstore import errors
from mqstore.findings import Finding
from mqstore.layout.constants import INT_MAX
from mqstore.layout.record import Record
from mqstore.layout.sql92 import SqlExpression
from mqstore.store import arguments, reading
from mqstore.store.arguments import check_long, check_seconds, check_whole
from mqstore.store.check import check_store
from mqstore.store.cleaning import info_of, is_expired, is_unused, remove_queues
from mqstore.store.config import StoreConfig
from mqstore.store.consumer import Consumer
from mqstore.store.engine import Engine
from mqstore.store.expiry import ExpiryReport
from mqstore.store.filter_bits import Prefilter
from mqstore.store.groups import ConsumerGroups
from mqstore.store.key_lookup import KeyQuery, query_by_key
from mqstore.store.log_reader import Reporter, stop_at_damage
from mqstore.store.message import Message, PutResult, QueryResult, QueueInfo
from mqstore.store.recovery import Progress
from mqstore.store.runtime_info import runtime_info
from mqstore.store.settings import Settings
from mqstore.store.store_reader import StoreReader
from mqstore.store.table import MessageTable, PutTableResult
from mqstore.store.transactions import Transaction, Transactions
from mqstore.store.view import StoreView
from mqstore.store.writer import MAX_QUEUE_ID, check_topic

if TYPE_CHECKING:
    import pyarrow as pa


class Store(StoreReader):
    """A store open for writing. Make one with :func:`mqstore.open`.

    All methods may be called from any thread of the process that opened it. What ``put`` returned can be got once
    the dispatcher has passed it, some milliseconds later; :meth:`wait_dispatched` waits for that.
    """

    def __init__(self, path: str | os.PathLike[str], config: StoreConfig, on_progress: Progress | None = None) -> None:
        """Open or create the store at ``path``; see :func:`mqstore.open`."""
        self.path = arguments.check_store_path(path)
        self._engine = engine = Engine(self.path, config, on_progress)
        self._check_open = engine.check_open
        self._putting = engine.putting
        self._settings = engine.settings
        self._statistics = engine.statistics
        self.paths = engine.paths
        self.log = engine.log
        self._most_of_a_query = config.max_msgs_num_batch
        self._get_limits = reading.GetLimits(
            config.max_transfer_bytes_on_message_in_memory, config.max_filter_message_size
        )
        self.groups = ConsumerGroups(lambda topic: [(one.topic, one.queue_id) for one in engine.queues.of_topic(topic)])
        self.transactions = Transactions(self, engine)
        engine.run(self.transactions)

    @property
    def config(self) -> StoreConfig:
        """The settings in force."""
        return self._engine.config

    @property
    def max_message_size(self) -> int:
        """Largest body in bytes. A new value holds for every put that begins after it was set, on any thread.

        It is not kept: the next open goes by its own settings. Messages that are stored stay, however large.

        Raises:
            UsageError: the value set is no whole number from 1 to 2,147,483,647; nothing changed.
            StoreClosedError: the store is closed, or was opened by the parent of this process.
        """
        return self._engine.config.max_message_size

    @max_message_size.setter
    def max_message_size(self, size_bytes: int) -> None:
        self._check_open()
        self._engine.set_max_message_size(size_bytes)

    # -- writing

    def check_message(self, message: Message) -> None:
        """Raise as :meth:`put` for a message that the store would refuse; nothing is stored."""
        self._engine.check_open()
        self._engine.putting.check(message)

    def put(self, message: Message) -> PutResult:
        """Store one message.

        Under SYNC_FLUSH the call returns when the message is on the device, under ASYNC_FLUSH when it is in the page
        cache (docs/operations.md).

        Returns where it was stored; the status is FLUSH_DISK_TIMEOUT when the sync took longer than
        ``sync_flush_timeout``, PUT_OK otherwise.

        Raises:
            MessageIllegalError: the message breaks a limit. Nothing was stored.
            DiskFullError: no space left. Nothing was stored.
            NotWritableError: the store no longer takes messages, because a sync failed.
            StoreClosedError: the store is closed, or was opened by the parent of this process.
        """
        self._check_open()
        return self._putting.put(message)

    def put_batch(self, messages: Sequence[Message]) -> list[PutResult]:
        """Store ``messages`` in order, with one append and one sync: all of them or none.

        They may be of different topics and queues. Together they must fit into one commit log file. Raises as
        :meth:`put`; an error names the place of the message concerned.
        """
        self._check_open()
        return self._putting.put_batch(arguments.as_list("messages", messages))

    def put_table(self, table: pa.Table | pa.RecordBatch) -> PutTableResult:
        """Store every row of an Arrow table as a message, in order, without a Python object for each.

        Args:
            table: columns ``topic`` (string) and ``body`` (binary or string), and any of ``tags`` (string), ``keys``
                (list of strings, or one string with blanks between keys) and ``queueId`` (integer; where it is missing
                the topic's queues take turns).

        Every row is checked before the first is stored. A table may be larger than a log file; then a full disk can
        leave its first rows stored, and the error's ``offset`` says how many.

        Raises:
            UsageError: the table has other columns or types.
            MessageIllegalError, DiskFullError, StoreIOError: as :meth:`put`; ``offset`` is the row's number.
        """
        self._check_open()
        return self._putting.put_table(MessageTable(table))

    def transaction(self, producer_group: str, message: Message) -> Transaction:
        """Begin a transaction: ``message`` is stored, and becomes visible to consumers when it is committed.

        Used with ``with``, the end of the block commits and an exception rolls back. For transactions that a crash
        leaves open, ``store.transactions.set_checker`` names who decides.

        Raises as :meth:`put`, and MessageIllegalError for a message with a delay, which a transaction cannot keep.
        """
        self._check_open()
        return self.transactions.begin(producer_group, message)

    def wait_dispatched(self, timeout_s: float | None = None) -> bool:
        """Wait until everything put so far can be got and queried.

        False when that took longer than ``timeout_s``; without one, as soon as it turns out that it cannot be now, as
        on a full disk: :meth:`flush` then raises the reason.

        Raises:
            StoreClosedError: the store was closed meanwhile.
        """
        self._check_open()
        check_seconds("timeout_s", timeout_s)
        target = self._engine.commit_log.commit()
        return self._engine.dispatch.wait_for(target, timeout_s)

    def wait_arrival(self, physical_offset: int, timeout_s: float) -> bool:
        """Wait until something behind ``physical_offset`` can be got; False when nothing came in ``timeout_s``."""
        self._check_open()
        check_long("physical_offset", physical_offset)
        check_seconds("timeout_s", timeout_s)
        return self._engine.dispatch.wait_past(physical_offset, timeout_s)

    # -- consuming

    def consumer(
        self,
        group: str,
        topic: str,
        where: str | SqlExpression | None = None,
        *,
        start: str | int = "earliest",
        auto_commit: bool = True,
        broadcast: bool = False,
        timeout_s: float | None = None,
    ) -> Consumer:
        """A consumer of ``topic`` for ``group``. Several of one group share the topic's queues.

        Args:
            group: who consumes; progress is kept under this name.
            topic: the topic; it need not exist yet.
            where: tags to pick, as for :meth:`get`; other messages count as handled.
            start: where a group begins that has no progress yet: "earliest", "latest", or a store time in ms.
            auto_commit: whether acknowledging moves the group's progress at once, or ``commit`` does.
            broadcast: read every queue whatever others read, and keep no progress.
            timeout_s: iterating ends when nothing came for so many seconds; None is never.

        Raises:
            UsageError: a group's name that cannot be used, or an argument that cannot be meant.
            MessageIllegalError: no topic can have this name.
        """
        self._check_open()
        return Consumer(
            self,
            self._settings,
            self._put_again,
            group,
            topic,
            where,
            start=start,
            auto_commit=auto_commit,
            broadcast=broadcast,
            timeout_s=timeout_s,
        )

    def _put_again(self, message: Message) -> PutResult:
        self._check_open()
        return self._putting.put_again(message)

    def subscribe(self, group: str, topic: str, where: SqlExpression) -> None:
        """Register the condition by which ``group`` reads ``topic``; a consumer does that by itself.

        Nothing happens unless ``enable_consume_queue_ext`` and ``enable_calc_filter_bit_map`` are on.
        """
        self._check_open()
        bits = self._engine.filter_bits
        if bits is not None and self.config.enable_calc_filter_bit_map:
            bits.register(group, topic, where)

    def unsubscribe(self, group: str, topic: str) -> None:
        """Nobody of ``group`` reads ``topic`` by a condition any more."""
        self._check_open()
        if self._engine.filter_bits is not None:
            self._engine.filter_bits.unregister(group, topic)

    # -- reading

    def _find(self, topic: str, queue_id: int) -> reading.QueueRange | None:
        queue = self._engine.queues.find(topic, queue_id)
        return None if queue is None else reading.QueueRange(queue, queue.min_offset, queue.max_offset)

    def _by_key(self, wanted: KeyQuery, max_messages: int) -> QueryResult:
        return query_by_key(self.log, self._engine.index_files(), wanted, max_messages)

    def _progress(self) -> Settings:
        return self._settings

    def _prefilter(self, group: str, topic: str, wanted: reading.Filter) -> Prefilter | None:
        bits = self._engine.filter_bits
        if bits is None or not isinstance(wanted, SqlExpression):
            return None
        return bits.prefilter(group, topic, wanted)

    def _note_get(self, count: int, start_ns: int) -> None:
        self._statistics.note_get(count, time.monotonic_ns() - start_ns)

    def message_at(self, physical_offset: int) -> Record | None:
        """The message whose record starts at ``physical_offset`` of the log, or None."""
        self._check_open()
        check_long("physical_offset", physical_offset)
        commit_log = self._engine.commit_log
        if commit_log.readable_offset <= physical_offset < commit_log.end_offset:
            commit_log.commit()
        return self.log.record_at(physical_offset) if physical_offset < commit_log.end_offset else None

    def scan(
        self, start: int | None = None, end: int | None = None, *, on_damage: Reporter = stop_at_damage
    ) -> Iterator[Record]:
        """As :meth:`mqstore.StoreView.scan`, up to where the log ends now."""
        self._check_open()
        now = self._engine.commit_log.commit()
        return super().scan(start, now if end is None else min(end, now), on_damage=on_damage)

    def queues(self, topic: str | None = None) -> list[QueueInfo]:
        """Every queue (of ``topic``) with its range, ordered by topic and id."""
        self._check_open()
        found = self._engine.queues.all() if topic is None else self._engine.queues.of_topic(topic)
        return [info_of(one) for one in found]

    def topics(self) -> list[str]:
        """Names of all topics that are known or have a queue."""
        self._check_open()
        return sorted({*self._settings.topics, *(one.topic for one in self._engine.queues.all())})

    def stats(self) -> list[QueueInfo]:
        """The same as :meth:`queues`: what both layouts call it (:mod:`mqstore.log_protocol`)."""
        return self.queues()

    # -- progress of groups

    def commit_offset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Note that ``group`` has consumed the queue up to, not including, ``offset``; saved within seconds.

        Raises:
            UsageError: the offset lies outside the queue, or a group's name cannot be used.
            MessageIllegalError: no topic can have this name.
        """
        check_topic(topic)
        check_whole("queue", queue_id, 0, MAX_QUEUE_ID)
        queue = self._engine.find_queue(topic, queue_id)
        high = 0 if queue is None else queue.max_offset
        if type(offset) is not int or not 0 <= offset <= high:
            raise errors.UsageError(
                f"offset outside queue {topic}/{queue_id}",
                expected=f"0 to {high}",
                found=offset,
                hint="wait_dispatched() makes everything put so far part of its queue",
            )
        self._settings.commit_offset(group, topic, queue_id, offset)

    def set_retry_max_times(self, group: str, times: int) -> None:
        """How often a message is given to ``group`` again before it goes to the dead letters, for consumers made later.

        Raises:
            UsageError: the group's name cannot be used, or no such number.
        """
        self._check_open()
        check_whole("number of attempts", times, 0, INT_MAX)
        self._settings.set_retry_max_times(group, times)

    def save_progress(self) -> None:
        """Make all progress of groups durable, after the log that it speaks of."""
        self._check_open()
        self._engine.save_settings()

    # -- upkeep

    def create_topic(self, topic: str, queues: int | None = None) -> int:
        """Make a topic known before its first message; how many queues it has now. It is saved when this returns.

        Args:
            topic: its name.
            queues: how many queues it shall have; None is ``default_topic_queue_nums``. A topic that is known gets
                as many if it has fewer. Queues are never taken away: messages may be in them.

        Raises:
            MessageIllegalError: no topic can have this name.
            UsageError: no such number of queues.
            StoreIOError, DiskFullError: it could not be saved; it is known to this open store all the same.
        """
        self._check_open()
        check_topic(topic)
        number = self.config.default_topic_queue_nums if queues is None else queues
        check_whole("number of queues", number, 1, MAX_QUEUE_ID + 1)
        count = self._settings.create_topic(topic, number)
        self._engine.save_settings()
        return count

    def deliver_due(self, now_ms: int | None = None) -> int:
        """Deliver the delayed messages that are due now, without waiting for the service; how many there were.

        Args:
            now_ms: the time to go by, in ms; None is now.

        Raises as :meth:`put`.
        """
        self._check_open()
        return self._engine.schedule.deliver_due(_now_ms(now_ms))

    def expire(self, now_ms: int | None = None) -> ExpiryReport:
        """Remove log files older than ``file_reserved_time``, and what points into them, whatever hour it is.

        Args:
            now_ms: the time to reckon ages by, in ms; None is now.

        Raises:
            StoreIOError: a file could not be removed.
        """
        self._check_open()
        return self._engine.expiry.run(_now_ms(now_ms), by_hand=True)

    def clean_expired_queues(self) -> list[QueueInfo]:
        """Remove the files of queues whose messages have all expired, and say which; raises as :meth:`expire`."""
        self._check_open()
        return remove_queues(self._engine, is_expired)

    def clean_unused_topics(self) -> list[QueueInfo]:
        """Remove the queues of topics that are not in ``topics.json``, and say which; raises as :meth:`expire`."""
        self._check_open()
        return remove_queues(self._engine, lambda queue: is_unused(queue, self._settings.topics))

    def flush(self) -> None:
        """Force everything to the device now: log, queues, index, checkpoint and settings.

        Raises:
            StoreIOError, DiskFullError: something could not be written; the log has been synced if that was possible.
        """
        self._check_open()
        self._engine.flush()

    @property
    def min_physical_offset(self) -> int:
        """Physical offset at which the log begins."""
        return self.log.min_offset

    @property
    def log_end(self) -> int:
        """Physical offset at which the next record goes."""
        return self._engine.commit_log.end_offset

    @property
    def flushed_offset(self) -> int:
        """Everything before this physical offset is on the device."""
        return self._engine.commit_log.flushed_offset

    @property
    def dispatched_offset(self) -> int:
        """Records before this physical offset can be got and queried."""
        return self._engine.dispatcher.offset

    @property
    def dispatch_behind_bytes(self) -> int:
        """Bytes of log that are not yet in queues and index."""
        return max(0, self._engine.commit_log.end_offset - self._engine.dispatcher.offset)

    def runtime_info(self) -> dict[str, Any]:
        """What the store has done since it was opened and how it is, by the names of RocketMQ's ``brokerStatus``.

        Rates (``putTps`` and its like) are tuples for the last 10, 60 and 600 seconds. Messages put count once they
        are dispatched. ``putMessageDistributeTime``: how many messages took how long to put; those whose put neither
        waited nor made room count as no millisecond. ``putLatency99`` and ``putLatency999`` are of the last whole
        minute, as RocketMQ's are. Ratios are 0 to 1, times in ms, sizes in bytes.
        """
        self._check_open()
        return runtime_info(self._statistics, self._engine)

    def check(self) -> list[Finding]:
        """Everything that is wrong with the store's files, as ``mqstore check`` tells it; nothing is changed."""
        self._check_open()
        self._engine.dispatch.wait_for(self._engine.commit_log.readable_offset)  # what is only late is not missing
        found: list[Finding] = []
        with StoreView(self.path) as outside:
            check_store(outside, found.append, delay_levels=self._engine.delay_table)
        return found

    def close(self) -> None:
        """Dispatch and sync everything, note a clean end and give up the lock.

        A second call does nothing; in another thread it waits until the first has ended.

        Raises:
            UsageError: called by a checker of transactions, which is waited for; the store stays open.
            StoreIOError, DiskFullError: something could not be synced. The store is closed all the same, and the next
                open recovers as after a crash.
        """
        self.transactions.refuse_checker("close the store")
        self._engine.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _now_ms(now_ms: int | None) -> int:
    if now_ms is None:
        return time.time_ns() // 1_000_000
    check_long("now_ms", now_ms)
    return now_ms
