"""Delayed messages: from the schedule topic to the topic they were meant for, when they are due.

Level L waits in queue L - 1 of ``SCHEDULE_TOPIC_XXXX``. The unit of a waiting message holds its delivery time where
others have their tags code, so that the queue alone tells what is due (docs/format/consume-queue.md). Progress is
kept per level in ``delayOffset.json`` and saved only after the log that holds the delivered messages: after a power
cut a message may be delivered twice, and none is passed over.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping

from mqstore import errors
from mqstore.layout import constants as c
from mqstore.layout.delay import delay_level, deliver_timestamp
from mqstore.layout.queue_unit import QueueUnit
from mqstore.layout.record import Record, record_size
from mqstore.layout.text import whole
from mqstore.periodic import PeriodicThread
from mqstore.store.commit_log import Pending
from mqstore.store.consume_queue import ConsumeQueue
from mqstore.store.log_units import LogUnits
from mqstore.store.paths import is_legal_topic
from mqstore.store.putting import Putting
from mqstore.store.queue_table import QueueTable
from mqstore.store.reading import missing_file
from mqstore.store.settings import Settings
from mqstore.store.writer import MAX_QUEUE_ID

_log = logging.getLogger(__name__)
_TICK_S = 0.1
_RETRY_S = 1.0


class ScheduleService(PeriodicThread):
    """The thread that delivers delayed messages; it ends when the message at hand is delivered."""

    def __init__(
        self,
        units: LogUnits,
        queues: QueueTable,
        settings: Settings,
        putting: Putting,
        store_host: bytes,
        delay_table: Mapping[int, int],
    ) -> None:
        failing = "delivering delayed messages failed, trying again"
        super().__init__("mqstore-schedule", _TICK_S, self._deliver_what_is_due, _log, failing, retry_s=_RETRY_S)
        self._units = units
        self._queues = queues
        self._settings = settings
        self._putting = putting
        self._store_host = store_host
        self._delay_table = delay_table
        self._guard = threading.Lock()
        self._waiting: dict[int, tuple[int, QueueUnit, int]] = {}  # by level: its next message, and when that is due

    def _deliver_what_is_due(self) -> None:
        self.deliver_due(time.time_ns() // 1_000_000)

    def deliver_due(self, now_ms: int) -> int:
        """Deliver everything that is due at ``now_ms``; the number of messages delivered.

        Raises:
            DiskFullError, NotWritableError: the log took no message; what was delivered before is noted.
            CorruptFileError, StoreIOError: a level could not be read; the others were delivered all the same.

        A damaged unit loses no message: its record is looked for in the log. One whose record is damaged or gone is
        passed over, with a warning to the log: no attempt can deliver it.
        """
        delivered, failure = 0, None
        with self._guard:
            for level, delay_ms in self._levels().items():
                try:
                    delivered += self._deliver_level(level, delay_ms, now_ms)
                except errors.MqstoreError as error:
                    failure = error
        if failure is not None:
            raise failure
        return delivered

    def _levels(self) -> Mapping[int, int | None]:
        """The delay of each level; None for one that the store no more has, whose messages wait as their units say."""
        waiting = self._queues.of_topic(c.SCHEDULE_TOPIC)
        return {**{queue.queue_id + 1: None for queue in waiting}, **self._delay_table}

    def _deliver_level(self, level: int, delay_ms: int | None, now_ms: int) -> int:
        queue = self._queues.find(c.SCHEDULE_TOPIC, level - 1)
        if queue is None:
            return 0
        saved = self._settings.delay_offsets.get(level, 0)
        offset = min(max(saved, queue.min_offset), queue.max_offset)
        delivered = 0
        while offset < queue.max_offset and not self._stop.is_set():
            unit = queue.unit(offset)
            if unit is None:
                if offset < queue.min_offset:
                    break  # expired just now
                raise missing_file(queue, offset)
            if self._waiting.get(level, ())[:2] == (offset, unit) and self._waiting[level][2] > now_ms:
                break
            record = self._units.record_of(queue, offset)
            # A due time further away than the whole delay comes from another table of levels, or from another clock
            # than the one by which the newest record was stored, which never goes back.
            furthest_ms = c.LONG_MAX
            if delay_ms is not None:
                furthest_ms = max(now_ms, self._putting.last_timestamp_ms) + delay_ms
            due_ms = now_ms if record is None else self._due_ms(record, unit)
            if now_ms < due_ms <= furthest_ms:
                self._waiting[level] = (offset, unit, due_ms)
                break
            delivered += self._deliver(queue, offset, record)
            offset += 1
            self._settings.set_delay_offset(level, offset)
        if offset != saved and not delivered:
            self._settings.set_delay_offset(level, offset)
        return delivered

    def _due_ms(self, record: Record, unit: QueueUnit) -> int:
        """When ``record`` is due by its unit, which no checksum covers; by the record itself if that cannot be.

        Whatever the table of levels was, a delay is whole seconds, and no flipped bit makes it whole seconds again.
        """
        level = delay_level(record.properties.get(c.PROPERTY_DELAY), self._delay_table)
        waits_ms = unit.tags_code - record.store_timestamp_ms
        if level and (waits_ms < 0 or waits_ms % 1000):
            return deliver_timestamp(level, record.store_timestamp_ms, self._delay_table)
        return unit.tags_code

    def _deliver(self, queue: ConsumeQueue, offset: int, record: Record | None) -> bool:
        """Put the message at ``offset`` into its real queue; False for what cannot be delivered by anybody."""
        if record is None and self._units.is_filler(queue, offset):
            return False
        target = None if record is None else real_target(record)
        if record is None or target is None:
            _log.warning(
                "delayed message %d of level %d cannot be delivered: %s",
                offset,
                queue.queue_id + 1,
                "its record is damaged or gone" if record is None else "it does not say where to",
            )
            return False
        topic, queue_id = target
        if topic == c.HALF_TOPIC:
            return False  # a half message is never delayed; as the broker does
        try:
            self._putting.put_prepared([(topic, copy_for(record, topic, queue_id, self._store_host))], wait=False)
        except errors.MessageIllegalError as error:  # no later attempt can do better, and the level must go on
            _log.error("delayed message %d of level %d cannot be delivered: %s", offset, queue.queue_id + 1, error)
            return False
        return True


def real_target(record: Record) -> tuple[str, int] | None:
    """The topic and queue that a waiting message is meant for, or None when it does not say."""
    properties = record.properties
    topic, queue_id = properties.get(c.PROPERTY_REAL_TOPIC), whole(properties.get(c.PROPERTY_REAL_QID, ""))
    if topic is None or not is_legal_topic(topic) or queue_id is None or queue_id > MAX_QUEUE_ID:
        return None
    return topic, queue_id


def copy_for(record: Record, topic: str, queue_id: int, store_host: bytes, sys_flag: int | None = None) -> Pending:
    """``record`` once more, with all its properties, for another queue.

    Raises:
        MessageIllegalError: the topic is too long for a record.
    """
    topic_raw = topic.encode()
    if len(topic_raw) > c.MAX_TOPIC_SIZE_V1:
        raise errors.MessageIllegalError(
            "topic has an illegal length", expected=f"1 to {c.MAX_TOPIC_SIZE_V1} bytes", found=len(topic_raw)
        )
    fields = (
        topic_raw,
        record.body,
        record.properties_raw,
        queue_id,
        record.flag,
        record.sys_flag if sys_flag is None else sys_flag,
        record.born_timestamp_ms,
        record.born_host_raw,
        store_host,
        record.reconsume_times,
        record.prepared_transaction_offset,
        c.MAGIC_V1,
    )
    size = record_size(
        len(record.body),
        len(topic_raw),
        len(record.properties_raw),
        born_host_size=len(record.born_host_raw),
        store_host_size=len(store_host),
    )
    return Pending(fields, size, queue_id, (topic, queue_id))
