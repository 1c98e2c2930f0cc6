"""A running store: one process puts, any number of threads get."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from mqstore import errors
from mqstore.findings import Finding
from mqstore.layout.message_id import decode_message_id
from mqstore.layout.record import Record
from mqstore.layout.sql92 import SqlExpression
from mqstore.status import BoundaryType
from mqstore.store import arguments, reading, view
from mqstore.store.arguments import check_count, check_long, check_queue, check_texts, check_whole, check_window
from mqstore.store.check import check_store
from mqstore.store.commit_log import Pending
from mqstore.store.config import StoreConfig
from mqstore.store.consumer import Consumer
from mqstore.store.engine import Engine
from mqstore.store.filter_bits import Prefilter
from mqstore.store.groups import ConsumerGroups
from mqstore.store.key_lookup import KeyQuery, query_by_key
from mqstore.store.message import GetResult, Message, PutResult, QueryResult, QueueInfo
from mqstore.store.queue_table import DEFAULT_ROWS, GetTableResult, Names, check_columns, get_table
from mqstore.store.recovery import Progress
from mqstore.store.settings import GroupProgress, group_progress
from mqstore.store.table import MessageTable, PutTableResult
from mqstore.store.transactions import Transaction, Transactions
from mqstore.store.upkeep import Upkeep
from mqstore.store.view import TIME_MAX_MS
from mqstore.store.writer import MAX_QUEUE_ID, check_topic

if TYPE_CHECKING:
    import pyarrow as pa


class Store(Upkeep):
    """A store open for writing. Make one with :func:`mqstore.open`.

    All methods may be called from any thread of the process that opened it. What ``put`` returned can be got once
    the dispatcher has passed it, some milliseconds later; :meth:`wait_dispatched` waits for that.
    """

    def __init__(self, path: str | os.PathLike[str], config: StoreConfig, on_progress: Progress | None = None) -> None:
        """Open or create the store at ``path``; see :func:`mqstore.open`."""
        self.path = arguments.check_store_path(path)
        super().__init__(Engine(self.path, config, on_progress))
        self._putting = self._engine.putting
        self.paths = self._engine.paths
        self._get_limits = reading.GetLimits(
            config.max_transfer_bytes_on_message_in_memory, config.max_filter_message_size
        )
        self.groups = ConsumerGroups(
            lambda topic: [(one.topic, one.queue_id) for one in self._engine.queues.of_topic(topic)]
        )
        self.transactions = Transactions(self)
        self._engine.run(self.transactions)

    # -- writing

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

    def put_prepared(self, topic: str, pending: Pending) -> PutResult:
        """Append a record that a service of this store made up; see :class:`mqstore.store.putting.Putting`."""
        self._check_open()
        return self._putting.put_prepared(topic, pending)

    def checked_queue(self, message: Message) -> int:
        """The queue that ``message`` would go to. Raises as :meth:`put` for a message that would be refused."""
        self._check_open()
        return self._putting.checked_queue(message)

    def transaction(self, producer_group: str, message: Message) -> Transaction:
        """Begin a transaction: ``message`` is stored, and becomes visible to consumers when it is committed.

        Used with ``with``, the end of the block commits and an exception rolls back. For transactions that a crash
        leaves open, ``store.transactions.set_checker`` names who decides.

        Raises as :meth:`put`.
        """
        self._check_open()
        return self.transactions.begin(producer_group, message)

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
            group,
            topic,
            where,
            start=start,
            auto_commit=auto_commit,
            broadcast=broadcast,
            timeout_s=timeout_s,
        )

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

    def get(
        self,
        topic: str,
        queue_id: int = 0,
        offset: int = 0,
        max_messages: int = 32,
        where: str | SqlExpression | None = None,
        *,
        group: str | None = None,
    ) -> GetResult:
        """Messages of one queue from ``offset`` on, in queue order.

        Args:
            topic: the topic.
            queue_id: the queue.
            offset: queue offset of the first message wanted.
            max_messages: how many at most; a byte limit and a limit on the units looked at apply as well.
            where: tags to pick, as ``"paid || refunded"``, compared as text; None and ``"*"`` pick all. Or a condition
                on the properties: ``mqstore.sql("amount > 10")``.
            group: the consumer group that asks. If it is registered with this very condition, and the queue keeps
                notes of who wants what (``enable_calc_filter_bit_map``), other messages are not even read.

        Returns the messages with a status that says why there are no more, and the offset to go on from: it counts
        the units looked at, so that a call which finds nothing still moves on.

        Raises:
            UsageError: ``max_messages`` or ``where`` cannot be meant.
            CorruptRecordError, CorruptFileError: the next message is damaged, or the file with its unit is missing.
            StoreIOError: the files could not be read.
        """
        self._check_open()
        expression = reading.parse_filter(where)
        arguments.check_get(topic, queue_id, offset, max_messages)
        start_ns = time.monotonic_ns()
        prefilter = self._prefilter(group, topic, expression) if group is not None else None
        find = functools.partial(self._find, topic, queue_id)
        result = reading.get_messages(self.log, find, offset, max_messages, expression, self._get_limits, prefilter)
        self._statistics.note_get(len(result.messages), time.monotonic_ns() - start_ns)
        return result

    def get_table(
        self, topic: str, queue_id: int = 0, offset: int = 0, max_messages: int = DEFAULT_ROWS, columns: Names = None
    ) -> GetTableResult:
        """As :meth:`get`, with the messages as rows of an Arrow table, without a Python object for each.

        ``columns`` are some of those of Spark's view (docs/spark.md), None is all but ``brokerName``. Fewer rows than
        asked for come where something is special about a message; go on from ``next_offset``. Raises as :meth:`get`.
        """
        self._check_open()
        names = check_columns(columns)
        arguments.check_get(topic, queue_id, offset, max_messages)
        start_ns = time.monotonic_ns()
        find = functools.partial(self._find, topic, queue_id)
        result = get_table(self.log, find, offset, max_messages, names)
        self._statistics.note_get(result.table.num_rows, time.monotonic_ns() - start_ns)
        return result

    def _find(self, topic: str, queue_id: int) -> reading.QueueRange | None:
        queue = self._engine.queues.find(topic, queue_id)
        return None if queue is None else reading.QueueRange(queue, queue.min_offset, queue.max_offset)

    def _prefilter(self, group: str, topic: str, expression: reading.Filter) -> Prefilter | None:
        bits = self._engine.filter_bits
        if bits is None or not isinstance(expression, SqlExpression):
            return None
        return bits.prefilter(group, topic, expression)

    def query(
        self, topic: str, key: str, begin: int = 0, end: int = TIME_MAX_MS, max_messages: int | None = None
    ) -> QueryResult:
        """Messages of ``topic`` that bear ``key`` among their keys or as unique key, oldest first.

        Args:
            topic: the topic.
            key: the key, compared as text.
            begin: earliest store time in ms, inclusive.
            end: latest store time in ms, inclusive.
            max_messages: how many at most, the newest; None is ``max_msgs_num_batch``.

        Raises:
            UsageError: the window ends before it begins, or an argument cannot be meant.
            CorruptFileError, StoreIOError: the index could not be looked at, which is not the same as "none".
        """
        self._check_open()
        check_texts(topic=topic, key=key)
        check_window(begin, end)
        limit = self.config.max_msgs_num_batch if max_messages is None else max_messages
        check_count(limit)
        return query_by_key(self.log, self._engine.index_files(), KeyQuery(topic, key, begin, end), limit)

    def offset_at(
        self, topic: str, queue_id: int, timestamp_ms: int, boundary: str | BoundaryType = BoundaryType.LOWER
    ) -> int | None:
        """Queue offset at a store time, by the times in the records.

        ``"lower"`` gives the first message stored at or after ``timestamp_ms``, the queue's end if none was;
        ``"upper"`` the last one stored at or before it, one less than the queue's minimum if none was. Between the
        two answers for a window lie exactly its messages. None means that there is no such queue.
        """
        check_queue(topic, queue_id)
        check_long("timestamp_ms", timestamp_ms)
        where = view.parse_boundary(boundary)
        queue = self._engine.find_queue(topic, queue_id)
        if queue is None:
            return None
        return reading.offset_at_time(
            lambda offset: view.store_time_of(self.log, queue, offset),
            queue.min_offset,
            queue.max_offset,
            timestamp_ms,
            where,
        )

    def message_at(self, physical_offset: int) -> Record | None:
        """The message whose record starts at ``physical_offset`` of the log, or None."""
        self._check_open()
        check_long("physical_offset", physical_offset)
        commit_log = self._engine.commit_log
        if commit_log.readable_offset <= physical_offset < commit_log.end_offset:
            commit_log.commit()
        return self.log.record_at(physical_offset) if physical_offset < commit_log.end_offset else None

    def message_by_id(self, message_id: str) -> Record | None:
        """The message with this offset message id, or None; UsageError for text that is no such id."""
        check_texts(message_id=message_id)
        return self.message_at(decode_message_id(message_id)[1])

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Offset of the first message still stored in a queue, 0 for a queue that is not there."""
        check_queue(topic, queue_id)
        queue = self._engine.find_queue(topic, queue_id)
        return 0 if queue is None else queue.min_offset

    def max_offset(self, topic: str, queue_id: int) -> int:
        """One past the last message of a queue, 0 for a queue that is not there."""
        check_queue(topic, queue_id)
        queue = self._engine.find_queue(topic, queue_id)
        return 0 if queue is None else queue.max_offset

    def stats(self) -> list[QueueInfo]:
        """The same as :meth:`queues`: what both layouts call it (:mod:`mqstore.log_protocol`)."""
        return self.queues()

    def check(self) -> list[Finding]:
        """Everything that is wrong with the store's files, as ``mqstore check`` tells it; nothing is changed."""
        self._check_open()
        self._engine.dispatch.wait_for(self._engine.commit_log.readable_offset)  # what is only late is not missing
        found: list[Finding] = []
        with view.StoreView(self.path) as outside:
            check_store(outside, found.append, delay_levels=self._engine.delay_table)
        return found

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
        self.settings.commit_offset(group, topic, queue_id, offset)

    def committed_offset(self, group: str, topic: str, queue_id: int) -> int | None:
        """The offset that ``group`` goes on from, or None when it never committed one."""
        self._check_open()
        check_texts(group=group)
        check_queue(topic, queue_id)
        return self.settings.committed_offset(group, topic, queue_id)

    def save_progress(self) -> None:
        """Make all progress of groups durable, after the log that it speaks of."""
        self._check_open()
        self._engine.save_settings()

    def progress(self) -> list[GroupProgress]:
        """How far each consumer group has come in each queue, ordered by group, topic and queue."""
        offsets = self.settings.consumer_offsets  # before the queues: a running consumer must not seem ahead of them
        return group_progress(offsets, self.queues())

    def close(self) -> None:
        """Dispatch and sync everything, note a clean end and give up the lock. A second call does nothing.

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
