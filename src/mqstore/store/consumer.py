"""A consumer: messages of a topic for a group, taken one by one and acknowledged.

Progress counts per queue: the group goes on from the first message that is not yet acknowledged. A message that could
not be handled is put once more, delayed, into ``%RETRY%group``, and after too many attempts into ``%DLQ%group``, as
RocketMQ's brokers do (docs/consuming.md).
"""

from __future__ import annotations

import logging
import queue as stdlib_queue
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING

from mqstore import errors
from mqstore.layout import constants as c
from mqstore.layout.constants import INT_MAX
from mqstore.layout.multi_dispatch import offset_in
from mqstore.layout.queue_unit import QueueKey
from mqstore.layout.record import Record
from mqstore.layout.sql92 import SqlExpression
from mqstore.status import GetMessageStatus
from mqstore.store.arguments import INT_MIN, check_queue, check_seconds, check_whole
from mqstore.store.message import Message, PutResult, once_more
from mqstore.store.reading import parse_filter
from mqstore.store.settings import Settings
from mqstore.store.writer import check_topic

if TYPE_CHECKING:
    from mqstore.store.store import Store

_log = logging.getLogger(__name__)
_FETCH = 32
_MOST_UNACKED = 1000
"""A queue with this many messages handed out and not acknowledged waits for its consumer."""
_WAKE_S = 0.1
_FIRST_RETRY_LEVEL = 3


@dataclass
class _Progress:
    """Where one queue stands: what was read, and which of that is not acknowledged yet, in queue order."""

    position: int
    unacked: OrderedDict[int, int] = field(default_factory=OrderedDict)
    committed: int = -1

    @property
    def committable(self) -> int:
        return next(iter(self.unacked), self.position)


class Consumer:
    """Made by :meth:`mqstore.Store.consumer`; may be used by several threads.

    Iterating gives messages for ever, or until nothing came for ``timeout_s``. Every message must be passed to
    :meth:`ack` or :meth:`nack`; what was not is given again to the next consumer of the group.

    Attributes:
        group: the group.
        topic: the topic.
        retry_topic: the topic through which the group gets messages again.
        timeout_s: iterating ends when nothing came for so many seconds; None is never.
        lost: messages that expired before this consumer came to them.
    """

    def __init__(
        self,
        store: Store,
        settings: Settings,
        put_again: Callable[[Message], PutResult],
        group: str,
        topic: str,
        where: str | SqlExpression | None = None,
        *,
        start: str | int = "earliest",
        auto_commit: bool = True,
        broadcast: bool = False,
        timeout_s: float | None = None,
    ) -> None:
        """See :meth:`mqstore.Store.consumer`; ``put_again`` stores the copy of a message."""
        if start not in ("earliest", "latest") and (isinstance(start, bool) or not isinstance(start, int)):
            raise errors.UsageError("no such start", expected='"earliest", "latest" or a time in ms', found=repr(start))
        parse_filter(where)
        check_topic(topic)
        check_seconds("timeout_s", timeout_s)
        self._store = store
        self._put_again = put_again
        self.group = group
        self.topic = topic
        self._where = where
        self._start = start
        self._auto_commit = auto_commit
        self._broadcast = broadcast
        self.timeout_s = timeout_s
        self._settings = settings.ensure_group(group)
        if isinstance(where, SqlExpression) and not broadcast:
            store.subscribe(group, topic, where)
        # Queues that come later begin after this consumer: it reads them whole.
        self._first_ends = {(one.topic, one.queue_id): one.max_offset for one in store.queues(topic)}
        self.retry_topic = c.RETRY_PREFIX + group
        self._topics = [topic] if broadcast else [topic, self.retry_topic]
        self._member = None if broadcast else store.groups.join(group, self._topics)
        self._guard = threading.RLock()
        self._queues: OrderedDict[QueueKey, _Progress] = OrderedDict()
        self._buffer: deque[tuple[QueueKey, Record]] = deque()
        self._taken: dict[int, tuple[QueueKey, int]] = {}
        self._moved: set[int] = set()
        self._generation = -1
        self._closed = False
        self.lost = 0

    # -- taking messages

    def get(self, block: bool = True, timeout_s: float | None = None) -> Record:
        """The next message, as :meth:`queue.Queue.get` gives one.

        Args:
            block: whether to wait for one to arrive.
            timeout_s: for how long at most, in seconds; None is for ever.

        Raises:
            queue.Empty: none is there, or none came in time.
            StoreClosedError: the consumer or its store is closed.
            CorruptRecordError, CorruptFileError: the next message cannot be read; :meth:`seek` goes on behind it.
        """
        check_seconds("timeout_s", timeout_s)
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            seen = self._store.dispatched_offset
            record = self._take()
            if record is not None:
                return record
            remaining = None if deadline is None else deadline - time.monotonic()
            if not block or (remaining is not None and remaining <= 0):
                raise stdlib_queue.Empty
            self._store.wait_arrival(seen, _WAKE_S if remaining is None else min(_WAKE_S, remaining))

    def __iter__(self) -> Iterator[Record]:
        while True:
            try:
                yield self.get(timeout_s=self.timeout_s)
            except stdlib_queue.Empty:
                return
            except errors.StoreClosedError:
                if self._closed:
                    return
                raise

    def run(self, handle: Callable[[Record], object]) -> int:
        """Pass each message to ``handle``: acknowledged when it returns, retried later when it raises.

        Ends as iterating does; the number of messages that were handled. A message that failed and whose copy for
        the retry would break a limit (its properties are full) stays unacknowledged: the group's next consumer gets
        it again.
        """
        handled = 0
        for message in self:
            try:
                handle(message)
            except Exception:  # whatever the application did not expect is what retries are for
                self._retry_later(message)
            else:
                self.ack(message)
                handled += 1
        return handled

    def _retry_later(self, message: Record) -> None:
        try:
            self.nack(message)
        except errors.MessageIllegalError as error:
            _log.error("message %s cannot be put again and stays unacknowledged: %s", message.msg_id, error)

    def _take(self) -> Record | None:
        with self._guard:
            self._check_open()
            self._assign_anew_if_others_changed()
            if not self._buffer:
                self._assign()
                self._fetch()
            if not self._buffer:
                return None
            key, record = self._buffer.popleft()
            self._taken[record.physical_offset] = (key, _offset(record, key))
            self._moved.discard(record.physical_offset)  # its queue may have gone and come back
            return record

    def _assign_anew_if_others_changed(self) -> None:
        generation = self._store.groups.generation
        if self._member is not None and generation != self._generation:
            self._generation = generation
            self._assign()

    def _assign(self) -> None:
        """Take on queues that are newly this consumer's and let go of those that are no more."""
        if self._member is None:
            mine = {(one.topic, one.queue_id) for one in self._store.queues(self.topic)}
        else:
            mine = self._store.groups.assigned(self.group, self._member)
        for key in list(self._queues):
            if key not in mine:
                self._drop(key)
        for key in sorted(mine - self._queues.keys()):
            self._queues[key] = _Progress(self._first_offset(*key))

    def _drop(self, key: QueueKey) -> None:
        del self._queues[key]
        self._buffer = deque(one for one in self._buffer if one[0] != key)
        self._moved.update(place for place, one in self._taken.items() if one[0] == key)
        self._taken = {place: one for place, one in self._taken.items() if one[0] != key}

    def _first_offset(self, topic: str, queue_id: int) -> int:
        saved = None if self._broadcast else self._store.committed_offset(self.group, topic, queue_id)
        if saved is not None:
            return saved
        if topic == self.retry_topic or self._start == "earliest":
            return self._store.min_offset(topic, queue_id)
        if self._start == "latest":
            offset = self._first_ends.get((topic, queue_id), 0)
        else:
            offset = self._store.offset_at(topic, queue_id, int(self._start)) or 0
        if not self._broadcast:  # or whoever comes next would begin somewhere else
            self._store.commit_offset(self.group, topic, queue_id, offset)
        return offset

    def _fetch(self) -> None:
        """Read ahead in the queues by turns, until one of them has something."""
        for key in list(self._queues):
            progress = self._queues[key]
            self._queues.move_to_end(key)
            if len(progress.unacked) >= _MOST_UNACKED:
                continue
            if self._fetch_from(key, progress):
                return

    def _fetch_from(self, key: QueueKey, progress: _Progress) -> bool:
        topic, queue_id = key
        where = None if topic == self.retry_topic else self._where
        while True:
            result = self._store.get(topic, queue_id, progress.position, _FETCH, where, group=self.group)
            if result.status is GetMessageStatus.OFFSET_TOO_SMALL:
                self.lost += result.next_offset - progress.position
            moved = result.next_offset != progress.position
            progress.position = result.next_offset
            for record in result.messages:
                progress.unacked[_offset(record, key)] = record.physical_offset
                self._buffer.append((key, record))
            if result.messages:
                return True
            if not moved:
                return False
            self._note(key, progress)

    def seek(self, queue_id: int, offset: int, *, topic: str | None = None) -> None:
        """Go on reading a queue at ``offset``: behind a damaged message, or again from an earlier one.

        What lies before ``offset`` and was not given out counts as handled, and is never given to the group. What was
        given out before stays to be acknowledged, unless it comes again: until it does, acknowledging it has no effect,
        and from then on it is the one that came again, to be acknowledged once.

        Args:
            queue_id: a queue that this consumer reads now.
            offset: queue offset of the next message to give out, up to the queue's end.
            topic: whose queue; None is the consumer's topic, the other is its ``retry_topic``.

        Raises:
            UsageError: the queue is not this consumer's, or ``offset`` lies outside it.
        """
        key = (self.topic if topic is None else topic, queue_id)
        check_queue(*key)
        with self._guard:
            self._check_open()
            self._assign()
            progress = self._queues.get(key)
            if progress is None:
                raise errors.UsageError(
                    f"queue {key[0]}/{queue_id} is not this consumer's",
                    found=repr(key),
                    expected=f"one of {sorted(self._queues)}",
                    hint="queues are shared among the consumers of a group, and a queue begins with its first message",
                )
            check_whole("offset", offset, 0, self._store.max_offset(*key))
            self._buffer = deque(one for one in self._buffer if one[0] != key)
            again = [place for place, (of, number) in self._taken.items() if of == key and number >= offset]
            for place in again:
                del self._taken[place]
            self._moved.update(again)
            given = {number for of, number in self._taken.values() if of == key}
            progress.unacked = OrderedDict(one for one in progress.unacked.items() if one[0] in given)
            progress.position = offset
            self._note(key, progress)

    # -- giving them back

    def ack(self, message: Record) -> bool:
        """The message was handled.

        False when its queue has gone to another consumer of the group in the meantime, which will get it again.
        Raises UsageError for a message that this consumer did not give out.
        """
        with self._guard:
            place = self._place(message)
            if place is not None:
                self._finish(message, *place)
            return place is not None

    def nack(self, message: Record, delay_level: int | None = None) -> PutResult | None:
        """The message could not be handled: give it again later, or give it up after too many attempts.

        Args:
            message: a message that this consumer gave out.
            delay_level: when; None is 10 s after the first attempt and later after each further one. A negative level
                gives it up at once.

        Returns where the copy was put: in the schedule topic on its way to ``%RETRY%group``, or in ``%DLQ%group``;
        None when its queue has gone to another consumer, which will get it again, and for a broadcast consumer, which
        gets nothing twice: others may have handled the message. Raises as :meth:`mqstore.Store.put`; the message then
        counts as neither handled nor given back.
        """
        if delay_level is not None:
            check_whole("delay level", delay_level, INT_MIN, INT_MAX)
        with self._guard:
            place = self._place(message)
            if place is None:
                return None
            if self._broadcast:
                _log.warning("message %s failed; it was broadcast and does not come again", message.msg_id)
                self._finish(message, *place)
                return None
            result = self._put_again(self._copy(message, delay_level))
            self._finish(message, *place)
            return result

    def _copy(self, message: Record, delay_level: int | None) -> Message:
        """The message as a broker writes it for a retry."""
        properties = message.properties
        for name in (c.PROPERTY_DELAY, c.PROPERTY_REAL_TOPIC, c.PROPERTY_REAL_QID):
            properties.pop(name, None)
        properties.setdefault(c.PROPERTY_RETRY_TOPIC, message.topic)
        properties.setdefault(c.PROPERTY_ORIGIN_MESSAGE_ID, message.msg_id)
        properties[c.PROPERTY_WAIT] = "false"
        gives_up = message.reconsume_times >= self._settings.retry_max_times
        level = delay_level or _FIRST_RETRY_LEVEL + message.reconsume_times
        if gives_up or level < 0:
            topic, level = c.DLQ_PREFIX + self.group, 0
        else:
            topic = self.retry_topic
        return once_more(message, topic, properties, message.reconsume_times + 1, level)

    def _place(self, message: Record) -> tuple[QueueKey, int] | None:
        """Where a message that was given out belongs; None when that queue is no more this consumer's."""
        self._check_open()
        given: object = message
        if not isinstance(given, Record):
            raise errors.UsageError("not a message", expected="what get gave", found=type(message).__name__)
        self._assign_anew_if_others_changed()
        if message.physical_offset in self._moved:
            self._moved.discard(message.physical_offset)
            return None
        place = self._taken.get(message.physical_offset)
        if place is None:
            raise errors.UsageError(
                "this consumer did not give out the message, or it was acknowledged before",
                offset=message.physical_offset,
            )
        return place

    def _finish(self, message: Record, key: QueueKey, offset: int) -> None:
        del self._taken[message.physical_offset]
        progress = self._queues[key]
        del progress.unacked[offset]
        self._note(key, progress)

    def _note(self, key: QueueKey, progress: _Progress) -> None:
        if self._auto_commit:
            self._commit_one(key, progress)

    def _commit_one(self, key: QueueKey, progress: _Progress) -> None:
        offset = progress.committable
        if not self._broadcast and offset != progress.committed:
            self._store.commit_offset(self.group, key[0], key[1], offset)
            progress.committed = offset

    def commit(self) -> None:
        """Make the acknowledged progress of this consumer the group's, and durable.

        Needed with ``auto_commit=False`` only; otherwise it is saved within seconds and on closing.
        """
        with self._guard:
            self._check_open()
            self._assign_anew_if_others_changed()
            for key, progress in self._queues.items():
                self._commit_one(key, progress)
        self._store.save_progress()

    def close(self) -> None:
        """Leave the group. What was handed out and not acknowledged is given again to the next consumer."""
        with self._guard:
            if self._closed:
                return
            self._closed = True
            if self._member is not None:
                self._store.groups.leave(self.group, self._member)
                if isinstance(self._where, SqlExpression) and self.group not in self._store.groups.names():
                    self._store.unsubscribe(self.group, self.topic)

    def _check_open(self) -> None:
        if self._closed:
            raise errors.StoreClosedError("the consumer is closed", hint="make another one with store.consumer")

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _offset(record: Record, key: QueueKey) -> int:
    """Which message of the queue ``record`` is; it was got from there."""
    offset = offset_in(record, *key)
    return record.queue_offset if offset is None else offset
