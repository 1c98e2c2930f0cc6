"""How messages get into a running store: the tail of the log for ordinary ones, the plain path for all others."""

from __future__ import annotations

import logging
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from mqstore import errors, kernels
from mqstore.kernels.store_api import LogTail
from mqstore.layout.constants import INT_MAX, LONG_MAX, PROPERTY_INNER_MULTI_DISPATCH, QUEUE_UNIT_SIZE
from mqstore.layout.message_id import encode_message_id
from mqstore.status import PutMessageStatus
from mqstore.store.commit_log import Appended, CommitLog, Pending
from mqstore.store.config import FlushDiskType, StoreConfig
from mqstore.store.flush import FlushService
from mqstore.store.latency import PutLatency
from mqstore.store.message import Message, PutResult
from mqstore.store.multi_dispatch import MultiDispatch, further_queues, names_further_queues, no_further_queues
from mqstore.store.queue_places import Rows
from mqstore.store.settings import Settings
from mqstore.store.table import MessageTable, PutTableResult
from mqstore.store.writer import MAX_QUEUE_ID, check_topic, prepare

_log = logging.getLogger(__name__)
_LARGEST_QUEUE_OFFSET = LONG_MAX // QUEUE_UNIT_SIZE


class Putting:
    """Puts messages, wakes dispatch, and waits for the sync where that is asked for.

    ``delay_table`` gives the delay levels there are; ``on_appended`` is called after each append.

    Attributes:
        config: the settings in force; those that a put goes by may be replaced at any time.
    """

    def __init__(
        self,
        commit_log: CommitLog,
        flush: FlushService,
        settings: Settings,
        config: StoreConfig,
        delay_table: Mapping[int, int],
        on_appended: Callable[[], None],
        latency: PutLatency,
        multi: MultiDispatch,
    ) -> None:
        self._commit_log = commit_log
        self._tail: LogTail = commit_log.tail
        self._flush = flush
        self._settings = settings
        self.config = config
        self._max_delay_level = max(delay_table)
        self._on_appended = on_appended
        self._latency = latency
        self._multi = multi
        if multi.enabled:
            self._tail.plain_property = PROPERTY_INNER_MULTI_DISPATCH
        self._is_sync = config.flush_disk_type is FlushDiskType.SYNC_FLUSH

    @property
    def last_timestamp_ms(self) -> int:
        """Store time of the newest record."""
        return self._tail.last_timestamp_ms

    def put(self, message: Message) -> PutResult:
        """See :meth:`mqstore.Store.put`."""
        result: PutResult | None = self._tail.put(message)
        if result is None:
            return self._put_timed([message])[0]
        self._on_appended()
        if self._is_sync and message.wait_store_msg_ok:
            return self._wait_timed([result])[0]
        return result

    def put_batch(self, messages: list[Message]) -> list[PutResult]:
        """See :meth:`mqstore.Store.put_batch`."""
        if not messages:
            return []
        results = self._tail.put_batch(messages)
        if results is None:
            return self._put_timed(messages)
        self._on_appended()
        if self._is_sync and any(message.wait_store_msg_ok for message in messages):
            return self._wait_timed(results)
        return results

    def put_table(self, table: MessageTable) -> PutTableResult:
        """See :meth:`mqstore.Store.put_table`."""
        start_ns = time.monotonic_ns()
        try:
            result = self._put_table(table)
        except errors.MqstoreError:
            self._latency.note_failure()
            raise
        self._latency.note(time.monotonic_ns() - start_ns, table.columns.size)
        return result

    def _put_table(self, table: MessageTable) -> PutTableResult:
        config = self.config
        host = config.store_host
        bad, total, largest = kernels.measure_rows(table.columns, config.max_message_size, MAX_QUEUE_ID, 2 * len(host))
        if bad >= 0 or not table.has_good_topics:
            return self._put_rows_plainly(list(table.messages()))
        topics = table.topics
        counts = [self._settings.queue_count(topic, config) for topic in topics]
        most = max(*counts, table.most_queue_id + 1)
        rows = Rows(table.columns, topics, array("q", counts), most, host, largest, total)
        return self._put_rows(rows)

    def _put_rows(self, rows: Rows) -> PutTableResult:
        total, first, done = rows.left, self._tail.end_offset, 0
        self._make_all_known(rows)
        while done < rows.columns.size:
            try:
                done = self._commit_log.append_rows(rows, done)
            except errors.MqstoreError as error:
                error.offset = done  # rows before it are stored
                raise
            self._on_appended()
        self._make_all_known(rows)  # rows may have named queues beyond those that there were
        end = self._tail.end_offset
        is_safe = not self._is_sync or self._flush.wait_for(end)
        status = PutMessageStatus.PUT_OK if is_safe else PutMessageStatus.FLUSH_DISK_TIMEOUT
        return PutTableResult(status, done, total, first, end)

    def _make_all_known(self, rows: Rows) -> None:
        for topic, queues in zip(rows.topics, rows.queue_counts, strict=True):
            self._make_known(topic, queues)

    def _put_rows_plainly(self, messages: list[Message]) -> PutTableResult:
        """Put rows one by one; all are looked at before the first is stored."""
        first, size_bytes, status = self._tail.end_offset, 0, PutMessageStatus.PUT_OK
        pending = [self._prepare(message, number) for number, message in enumerate(messages)]
        for message, one in zip(messages, pending, strict=True):
            (result,) = self._append([message], [one])
            size_bytes += result.size_bytes
            status = result.status if result.status is not PutMessageStatus.PUT_OK else status
        return PutTableResult(status, len(messages), size_bytes, first, self._tail.end_offset)

    def put_prepared(self, records: Sequence[tuple[str, Pending]], *, wait: bool) -> list[PutResult]:
        """Append records that the store itself made up, each for its topic: all or none.

        Those that cannot go to their further queues go to their own all the same, with an error to the log: they were
        acknowledged when they came. Raises as :meth:`mqstore.Store.put`, except for limits of messages.
        """
        for topic, one in records:
            self._settings.ensure_topic(topic, one.target_queue_id + 1, self.config)
        pending, appended = self._append_own([one for _, one in records])
        self._on_appended()
        results = [_result(one, place) for one, place in zip(pending, appended, strict=True)]
        return self._when_flushed(results) if wait and self._is_sync else results

    def _append_own(self, records: list[Pending]) -> tuple[list[Pending], list[Appended]]:
        try:
            pending = [self._with_further_queues(one) for one in records]
            return pending, self._commit_log.append(pending)
        except errors.MessageIllegalError as error:
            if not any(self._names_further_queues(one) for one in records):
                raise
            pending = [
                one._replace(further=no_further_queues(one.fields)) if self._names_further_queues(one) else one
                for one in records
            ]
            appended = self._commit_log.append(pending)
            _log.error(
                "a message of %s goes to its own queue only, and to none that it names: %s", pending[0].queue_key, error
            )
            return pending, appended

    def put_again(self, message: Message) -> PutResult:
        """As :meth:`put`, for a copy of what is stored: ``max_message_size`` may have been lowered since."""
        return self._put_timed([message], is_stored=True)[0]

    def prepared(self, message: Message, *, is_stored: bool = False) -> Pending:
        """The record that ``message`` would become, or with ``is_stored`` the copy of a message that is in the store.

        Raises as :meth:`put` for one that would be refused.
        """
        _check_type(message)
        return self._prepare(message, 0, is_stored)

    def check(self, message: Message) -> None:
        """Raise as :meth:`put` for a message that would be refused; it uses up no queue's turn."""
        self.prepared(message if message.queue_id is not None else replace(message, queue_id=0))

    def check_later(self, pending: Pending, topic: str, queue_id: int, *, beside_bytes: int = 0) -> None:
        """Raise MessageIllegalError unless the record can be put into another queue later, with so much beside it.

        A message that waits must be able to go where it is meant for, whatever its numbers in further queues will be.
        """
        topic_raw = topic.encode()
        fields = (topic_raw, *pending.fields[1:3], queue_id, *pending.fields[4:])
        size_bytes = pending.size_bytes + len(topic_raw) - len(pending.fields[0]) + beside_bytes
        further = self._with_further_queues(pending._replace(fields=fields)).further
        if further is not None:
            completed = further.complete(fields, [_LARGEST_QUEUE_OFFSET] * len(further.queues))
            size_bytes += len(completed[2]) - len(fields[2])
        self._commit_log.check_fits(size_bytes)

    def _put_timed(self, messages: Sequence[Message], *, is_stored: bool = False) -> list[PutResult]:
        start_ns = time.monotonic_ns()
        try:
            results = self._put_plainly(messages, is_stored)
        except errors.MqstoreError:
            self._latency.note_failure()
            raise
        self._latency.note(time.monotonic_ns() - start_ns, len(messages))
        return results

    def _wait_timed(self, results: list[PutResult]) -> list[PutResult]:
        start_ns = time.monotonic_ns()
        try:
            return self._when_flushed(results)
        finally:
            self._latency.note(time.monotonic_ns() - start_ns, len(results))

    def _put_plainly(self, messages: Sequence[Message], is_stored: bool) -> list[PutResult]:
        """Put what the log's tail does not take by itself, or find out what is wrong with it."""
        for message in messages:
            _check_type(message)
        pending = [self._prepare(message, number, is_stored) for number, message in enumerate(messages)]
        return self._append(messages, pending)

    def _append(self, messages: Sequence[Message], pending: list[Pending]) -> list[PutResult]:
        for message, one in zip(messages, pending, strict=True):
            self._make_known(message.topic, one.target_queue_id + 1)
        appended = self._commit_log.append(pending)
        self._on_appended()
        results = [_result(one, place) for one, place in zip(pending, appended, strict=True)]
        if self._is_sync and any(message.wait_store_msg_ok for message in messages):
            return self._when_flushed(results)
        return results

    def _make_known(self, topic: str, queues: int) -> None:
        """Before the first message is stored: the queues of unknown topics may be removed at any time."""
        self._settings.ensure_topic(topic, queues, self.config)
        self._tail.queue_counts[topic] = self._settings.queue_count(topic, self.config)

    def _when_flushed(self, results: list[PutResult]) -> list[PutResult]:
        """Wait for the sync that covers the last of ``results``; another status for all when it takes too long."""
        if self._flush.wait_for(results[-1].physical_offset + results[-1].size_bytes):
            return results
        return [result._replace(status=PutMessageStatus.FLUSH_DISK_TIMEOUT) for result in results]

    def _prepare(self, message: Message, number: int, is_stored: bool = False) -> Pending:
        try:
            check_topic(message.topic)
            config = self.config
            max_body = INT_MAX if is_stored else config.max_message_size
            pending = prepare(message, self._choose_queue(message), config, self._max_delay_level, max_body)
            self._commit_log.check_fits(pending.size_bytes)
            if pending.fields[0] != message.topic.encode():
                self.check_later(pending, message.topic, pending.target_queue_id)
            return self._with_further_queues(pending)
        except errors.MessageIllegalError as error:
            if number:
                error.offset = number
            raise

    def _with_further_queues(self, pending: Pending) -> Pending:
        if not self._names_further_queues(pending):
            return pending
        return pending._replace(further=further_queues(pending.fields, self._multi))

    def _names_further_queues(self, pending: Pending) -> bool:
        return self._multi.enabled and names_further_queues(pending.fields[2])

    def _choose_queue(self, message: Message) -> int:
        """The queue asked for, or the topic's next in turn; the topic's settings change once all is checked."""
        queues = self._settings.queue_count(message.topic, self.config)
        if message.queue_id is not None:
            return message.queue_id
        turn = self._tail.turns.get(message.topic, 0)
        self._tail.turns[message.topic] = turn + 1
        return turn % queues


def _result(pending: Pending, place: Appended) -> PutResult:
    fields = pending.fields
    return PutResult(
        PutMessageStatus.PUT_OK,
        encode_message_id(fields[8], place.physical_offset),
        fields[0].decode(),
        fields[3],
        place.queue_offset,
        place.physical_offset,
        place.size_bytes,
        place.store_timestamp_ms,
    )


def _check_type(message: object) -> None:
    if not isinstance(message, Message):
        raise errors.UsageError("not a message", expected="mqstore.Message", found=type(message).__name__)
