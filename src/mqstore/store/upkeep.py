"""The side of a running store that its owner looks at and looks after: positions, counts, upkeep."""

from __future__ import annotations

import time
from typing import Any

from mqstore.store.arguments import check_long, check_seconds, check_whole
from mqstore.store.cleaning import info_of, is_expired, is_unused, remove_queues
from mqstore.store.config import StoreConfig
from mqstore.store.engine import Engine
from mqstore.store.expiry import ExpiryReport
from mqstore.store.message import QueueInfo
from mqstore.store.runtime_info import runtime_info
from mqstore.store.writer import MAX_QUEUE_ID, check_topic


class Upkeep:
    """What :class:`mqstore.Store` tells of itself, and what is done to it besides putting and getting."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._check_open = engine.check_open
        self._statistics = engine.statistics
        self.log = engine.log
        self.settings = engine.settings

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

    def create_topic(self, topic: str, queues: int | None = None) -> int:
        """Make a topic known before its first message; how many queues it has now. Saved within seconds.

        Args:
            topic: its name.
            queues: how many queues it shall have; None is ``default_topic_queue_nums``. A topic that is known gets
                as many if it has fewer. Queues are never taken away: messages may be in them.

        Raises:
            MessageIllegalError: no topic can have this name.
            UsageError: no such number of queues.
        """
        self._check_open()
        check_topic(topic)
        number = self.config.default_topic_queue_nums if queues is None else queues
        check_whole("number of queues", number, 1, MAX_QUEUE_ID + 1)
        return self.settings.create_topic(topic, number)

    def topics(self) -> list[str]:
        """Names of all topics that are known or have a queue."""
        self._check_open()
        return sorted({*self.settings.topics, *(one.topic for one in self._engine.queues.all())})

    def queues(self, topic: str | None = None) -> list[QueueInfo]:
        """Every queue (of ``topic``) with its range, ordered by topic and id."""
        self._check_open()
        found = self._engine.queues.all() if topic is None else self._engine.queues.of_topic(topic)
        return [info_of(one) for one in found]

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
        return remove_queues(self._engine, lambda queue: is_unused(queue, self.settings.topics))

    def flush(self) -> None:
        """Force everything to the device now: log, queues, index, checkpoint and settings.

        Raises:
            StoreIOError, DiskFullError: something could not be written; the log has been synced if that was possible.
        """
        self._check_open()
        self._engine.flush()


def _now_ms(now_ms: int | None) -> int:
    if now_ms is None:
        return time.time_ns() // 1_000_000
    check_long("now_ms", now_ms)
    return now_ms
