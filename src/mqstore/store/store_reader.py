"""What a store answers, whether it is running or looked at from outside: both are asked with the same words."""

from __future__ import annotations

import functools
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Final

from mqstore.layout.constants import LONG_MAX
from mqstore.layout.message_id import decode_message_id
from mqstore.layout.record import Record
from mqstore.layout.sql92 import SqlExpression
from mqstore.status import BoundaryType
from mqstore.store import reading
from mqstore.store.arguments import check_count, check_get, check_long, check_queue, check_texts, check_window
from mqstore.store.filter_bits import Prefilter
from mqstore.store.get_table import DEFAULT_ROWS, GetTableResult, Names, check_columns, get_table
from mqstore.store.key_lookup import KeyQuery
from mqstore.store.log_reader import LogReader, Reporter, stop_at_damage
from mqstore.store.message import GetResult, QueryResult, QueueInfo
from mqstore.store.settings import GroupProgress, Settings, group_progress
from mqstore.store.time_search import parse_boundary, store_time_of

TIME_MAX_MS: Final = LONG_MAX


class StoreReader(ABC):
    """The questions that :class:`mqstore.Store` and :class:`mqstore.StoreView` have in common.

    The two differ in how they know where a queue begins and ends, where keys are looked up, and where settings are.
    """

    log: LogReader
    _check_open: Callable[[], None]
    """Raises StoreClosedError when nothing may be asked any more."""
    _get_limits = reading.GetLimits()
    _most_of_a_query = 64

    @abstractmethod
    def queues(self, topic: str | None = None) -> list[QueueInfo]:
        """Every queue (of ``topic``) with its range, ordered by topic and id."""

    @abstractmethod
    def _find(self, topic: str, queue_id: int) -> reading.QueueRange | None:
        """The queue as it is at this moment, None when there is none."""

    @abstractmethod
    def _by_key(self, wanted: KeyQuery, max_messages: int) -> QueryResult:
        """The newest messages by key."""

    @abstractmethod
    def _progress(self) -> Settings:
        """The settings in which the progress of groups is."""

    @abstractmethod
    def _note_get(self, count: int, start_ns: int) -> None:
        """So many messages were given to somebody who asked at ``start_ns``."""

    def _prefilter(self, group: str, topic: str, wanted: reading.Filter) -> Prefilter | None:
        """What tells by the queue's notes that ``group`` does not want a message, None without such notes."""
        return None

    def scan(
        self, start: int | None = None, end: int | None = None, *, on_damage: Reporter = stop_at_damage
    ) -> Iterator[Record]:
        """Every record of the log in order, decoded one by one.

        Whatever expires meanwhile is left out as if it had expired before: the scan goes on where the log begins then.

        Args:
            start: physical offset to begin at, a record start; None, or one that has expired, is the log's first.
            end: records that start at or after it are left out.
            on_damage: decides at each damage whether to go on behind it (docs/operations.md).
        """
        for chunk in self.log.scan(start, end, on_damage=on_damage, pass_expired=True):
            yield from chunk.records()

    def message_at(self, physical_offset: int) -> Record | None:
        """The message whose record starts at ``physical_offset`` of the log, or None when none does."""
        self._check_open()
        check_long("physical_offset", physical_offset)
        return self.log.record_at(physical_offset)

    def message_by_id(self, message_id: str) -> Record | None:
        """The message with this offset message id (32 or 56 hexadecimal digits), or None.

        Raises:
            UsageError: the text is no offset message id.
        """
        check_texts(message_id=message_id)
        return self.message_at(decode_message_id(message_id)[1])

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
                notes of who wants what (``enable_calc_filter_bit_map``), other messages are not even read. A view has
                no such notes.

        Returns the messages with a status that says why there are no more, and the offset to go on from: it counts
        the units looked at, so that a call which finds nothing still moves on.

        Raises:
            UsageError: ``max_messages`` or ``where`` cannot be meant.
            CorruptRecordError, CorruptFileError: the next message is damaged, or the file with its unit is missing.
            StoreIOError: the files could not be read.
        """
        self._check_open()
        wanted = reading.parse_filter(where)
        check_get(topic, queue_id, offset, max_messages)
        start_ns = time.monotonic_ns()
        prefilter = self._prefilter(group, topic, wanted) if group is not None else None
        find = functools.partial(self._find, topic, queue_id)
        result = reading.get_messages(self.log, find, offset, max_messages, wanted, self._get_limits, prefilter)
        self._note_get(len(result.messages), start_ns)
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
        check_get(topic, queue_id, offset, max_messages)
        start_ns = time.monotonic_ns()
        find = functools.partial(self._find, topic, queue_id)
        result = get_table(self.log, find, offset, max_messages, names)
        self._note_get(result.table.num_rows, start_ns)
        return result

    def query(
        self,
        topic: str,
        key: str,
        begin_ms: int = 0,
        end_ms: int = TIME_MAX_MS,
        max_messages: int | None = None,
    ) -> QueryResult:
        """Messages of ``topic`` that bear ``key`` among their keys or as unique key, oldest first.

        Args:
            topic: the topic.
            key: the key, compared as text.
            begin_ms: earliest store time, inclusive.
            end_ms: latest store time, inclusive.
            max_messages: how many at most, the newest; None is ``max_msgs_num_batch``, which is 64 for a view.

        Raises:
            UsageError: the window ends before it begins, or an argument cannot be meant.
            CorruptFileError, StoreIOError: the index could not be looked at, which is not the same as "none".
        """
        self._check_open()
        check_texts(topic=topic, key=key)
        check_window(begin_ms, end_ms)
        limit = self._most_of_a_query if max_messages is None else max_messages
        check_count(limit)
        return self._by_key(KeyQuery(topic, key, begin_ms, end_ms), limit)

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
        side = parse_boundary(boundary)
        self._check_open()
        found = self._find(topic, queue_id)
        if found is None:
            return None
        queue, low, high = found
        return reading.offset_at_time(
            lambda offset: store_time_of(self.log, queue, offset), low, high, timestamp_ms, side
        )

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Offset of the first message still stored in a queue, 0 for a queue that is not there."""
        check_queue(topic, queue_id)
        self._check_open()
        found = self._find(topic, queue_id)
        return 0 if found is None else found.min_offset

    def max_offset(self, topic: str, queue_id: int) -> int:
        """One past the last message of a queue, 0 for a queue that is not there."""
        check_queue(topic, queue_id)
        self._check_open()
        found = self._find(topic, queue_id)
        return 0 if found is None else found.max_offset

    def committed_offset(self, group: str, topic: str, queue_id: int) -> int | None:
        """The offset that ``group`` goes on from, or None when it never committed one."""
        self._check_open()
        check_texts(group=group)
        check_queue(topic, queue_id)
        return self._progress().committed_offset(group, topic, queue_id)

    def progress(self) -> list[GroupProgress]:
        """How far each consumer group has come in each queue, ordered by group, topic and queue."""
        self._check_open()
        offsets = self._progress().consumer_offsets  # before the queues: a running consumer must not seem ahead of them
        return group_progress(offsets, self.queues())
