"""A Kafka data directory open for writing: one process puts, any number of threads read."""

from __future__ import annotations

import logging
import os
import stat
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from mqstore import errors
from mqstore.files import durable
from mqstore.files.held import Held
from mqstore.files.layout_of import refuse_for_kafka
from mqstore.files.lock import StoreLock
from mqstore.files.pool import FilePool
from mqstore.files.whole import mode_of
from mqstore.findings import Finding
from mqstore.kafka import data_directory
from mqstore.kafka.arguments import check_new_partitions, check_number, check_numbers, check_path
from mqstore.kafka.cleaner import CleanResult, clean
from mqstore.kafka.config import KafkaConfig
from mqstore.kafka.data_directory import DataDirectory
from mqstore.kafka.loading import LoadedLog, LoadReport, PartitionLoader, new_log, refuse_odd
from mqstore.kafka.maintenance import Maintenance
from mqstore.kafka.partition_log import PartitionLog
from mqstore.kafka.producer import Producer
from mqstore.kafka.retention import remove_expired
from mqstore.kafka.stats import PartitionStats
from mqstore.kafka.stock import PartitionStock, odd_partition_error, take_data_directory_stock, take_partition_stock
from mqstore.kafka.store_writer import StoreWriter
from mqstore.kafka.view import KafkaView
from mqstore.layout.constants import LONG_MAX
from mqstore.layout.kafka import names
from mqstore.layout.kafka.checkpoints import TopicPartition
from mqstore.layout.kafka.names import PartitionState

_log = logging.getLogger(__name__)


class KafkaStore(StoreWriter):
    """A data directory open for writing. Make one with :func:`mqstore.kafka.open`.

    All methods may be called from any thread of the process that opened it. What ``put`` returned can be read at once.
    """

    def __init__(self, path: str | os.PathLike[str], config: KafkaConfig) -> None:
        """Open or create the data directory at ``path``; see :func:`mqstore.kafka.open`."""
        self.path = check_path(path)
        self.config = config
        self._pid = os.getpid()
        self._closed = False
        self._guard = threading.RLock()
        self._initialising = threading.RLock()
        self._newest_producer = -1
        self._producers: dict[int, Producer] = {}
        self._files = DataDirectory(self.path)
        self._prepare_directory()
        with Held() as held:
            self._lock = StoreLock(self._files.lock_path)
            held.callback(self._lock.release)
            held.callback(self._lock.release)  # twice: an interrupt may come where the first is about to be called
            self._start(held)
            self._held = held.pop_all()  # open: from here on closing lets go of it, and no longer this block

    def _prepare_directory(self) -> None:
        mode = mode_of(self.path)
        if mode and not stat.S_ISDIR(mode):
            raise errors.NotAStoreError("not a directory", path=self.path, hint="give a directory for partitions")
        refuse_for_kafka(self.path)
        durable.make_directories(self.path)
        if not os.access(self.path, os.W_OK):
            raise errors.StoreIOError(
                "no write permission on the data directory",
                path=self.path,
                found=f"user {os.getuid()}",
                hint="give this user permission, or read the log with mqstore.kafka.inspect",
            )

    def _start(self, held: ExitStack) -> None:
        self._pool, self._writing = FilePool(), FilePool(writable=True)
        held.callback(self._pool.close)
        held.callback(self._writing.close)
        self.reports: list[LoadReport] = []
        """What loading each partition found and did."""
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._topic_ids: dict[str, uuid.UUID | None] = {}
        self._log_starts = self._files.load_log_starts()
        self._cleaned = self._files.load_checkpoint(names.CLEANER_OFFSETS)
        recovery_points = self._files.load_checkpoint(names.RECOVERY_POINTS)
        has_meta_properties = self._files.has_meta_properties()
        found = take_data_directory_stock(self.path)
        for foreign in found.foreign:
            _log.warning("leaving a directory alone that is no partition's: %s", foreign)
        for path in found.odd.values():
            raise odd_partition_error(path)
        # All that may refuse the directory comes before the first change of it.
        stocks = {where: refuse_odd(take_partition_stock(path)) for where, path in found.partitions.items()}
        is_clean = self._files.has_clean_marker()
        self._maintenance = Maintenance(self._round, self.config)
        for where, stock in stocks.items():
            self._load(*where, stock, is_clean, recovery_points.get(where, 0))
        if not has_meta_properties:
            self._files.save_meta_properties(self.config.node_id)
        self._files.remove_temporaries()
        self._files.remove_clean_marker()  # loading can be broken off and done again
        for path, name in found.others:
            if name.state is PartitionState.DELETE:
                self._maintenance.remove_later([path])
        # Before it starts, so that nothing leaves a thread that goes on when the lock is given up.
        held.callback(self._maintenance.stop)
        self._maintenance.start()
        if not is_clean:
            self.flush()

    def _load(self, topic: str, partition: int, stock: PartitionStock, is_clean: bool, recovery_point: int) -> None:
        loader = PartitionLoader(
            stock.directory,
            self._pool,
            interval_bytes=self.config.index_interval_bytes,
            log_start=self._log_starts.get((topic, partition), 0),
            recovery_point=recovery_point,
            is_clean=is_clean,
            producer_expiration_ms=self.config.producer_id_expiration_ms,
            stock=stock,
        )
        self._add(topic, partition, stock.directory, loader.run())

    def _add(self, topic: str, partition: int, directory: Path, loaded: LoadedLog) -> None:
        self.reports.append(loaded.report)
        log = PartitionLog(
            topic, partition, directory, self.config, (self._pool, self._writing), loaded,
            self._maintenance.remove_later,
        )  # fmt: skip
        self._logs[topic, partition] = log
        self._topic_ids.setdefault(topic, None)

    # -- topics

    def create_topic(self, topic: str, partitions: int | None = None) -> None:
        """Make the partitions of ``topic`` from 0 to ``partitions`` - 1 that are missing; None is ``num_partitions``.

        Raises:
            UsageError: the name or the number cannot be.
        """
        self.create_topics({topic: partitions})

    def create_topics(self, topics: Mapping[str, int | None]) -> None:
        """:meth:`create_topic` for many, by name; the fastest way to thousands, as the device is waited for less often.

        Raises:
            UsageError: a name or a number cannot be, or ``topics`` is no mapping. Nothing was made.
        """
        self._check_open()
        given: object = topics
        if not isinstance(given, Mapping):
            raise errors.UsageError(
                "topics are given with their numbers of partitions", expected="{'name': number or None}",
                found=repr(topics)[:80],
            )  # fmt: skip
        wanted = []
        for topic, partitions in topics.items():
            count = self.config.num_partitions if partitions is None else partitions
            check_new_partitions(topic, count)
            wanted += [(topic, partition) for partition in range(count)]
        self._create(wanted)

    def _create(self, wanted: list[TopicPartition]) -> None:
        """Make the partitions that are missing; when this returns, all are durable."""
        with self._guard:
            self._check_open()
            missing = {
                where: self.path / names.partition_directory_name(*where) for where in wanted if where not in self._logs
            }
            made = data_directory.make_partitions(
                {directory: self._topic_id(topic) for (topic, _), directory in missing.items()}
            )
            for where, directory in missing.items():
                if directory in made and self._log_starts.get(where, 0) == 0:
                    self._add(*where, directory, new_log(directory, self._pool))
                else:
                    self._load(*where, refuse_odd(take_partition_stock(directory)), True, 0)

    def _topic_id(self, topic: str) -> uuid.UUID:
        """The topic's id: that of the partitions it has, or a new one."""
        found = self._topic_ids.get(topic)
        if found is None and topic in self._topic_ids:  # it is known, and its id was not asked for yet
            siblings = [log.directory for (name, _), log in self._logs.items() if name == topic]
            found = next((known for one in siblings if (known := data_directory.load_topic_id(one))), None)
        self._topic_ids[topic] = topic_id = found or uuid.uuid4()
        return topic_id

    def _log_for_put(self, topic: str, partition: int) -> PartitionLog:
        log = self._logs.get((topic, partition))
        if log is not None:
            return log
        if not self.config.auto_create_topics_enable:
            raise errors.MessageIllegalError(
                "unknown partition, and topics are not created by themselves",
                found=names.partition_directory_name(topic, partition),
                hint="call create_topic, or set auto_create_topics_enable",
            )
        if topic not in self._topic_ids:
            self.create_topic(topic)
        self._create([(topic, partition)])
        return self._logs[topic, partition]

    # -- keeping the log in bounds

    def roll(self, topic: str, partition: int = 0) -> bool:
        """Begin a new segment; False when the present one is empty."""
        return self.partition(topic, partition).roll()

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        """Delete the records below offset ``before``; the partition's new log start offset.

        They are out of reach at once and for ever; their segments are removed as far as they hold nothing else.
        """
        check_number("before", before)
        log = self.partition(topic, partition)
        start = log.delete_records(before)
        self._save_log_starts()
        log.remove_below_start()
        return start

    def enforce_retention(self, now_ms: int | None = None) -> int:
        """Remove segments past ``retention_ms`` or beyond ``retention_bytes``, of every partition; how many.

        Nothing does this by itself: call it as often as it should happen.
        """
        self._check_open()
        check_numbers(0, LONG_MAX, now_ms=now_ms)
        now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
        removed = sum(remove_expired(log, self.config, now) for log in list(self._logs.values()))
        if removed:
            self._save_log_starts()
        return removed

    def compact(
        self, topic: str, partition: int = 0, *, now_ms: int | None = None, force: bool = False
    ) -> CleanResult | None:
        """Clean a partition by key; see docs/kafka.md. Returns what was done, None when it is not dirty enough.

        ``force`` cleans whatever ``min_cleanable_dirty_ratio`` says. Nothing does this by itself.
        """
        check_numbers(0, LONG_MAX, now_ms=now_ms)
        log = self.partition(topic, partition)
        now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
        done = clean(log, self.config, self._cleaned.get((topic, partition), 0), now, force=force)
        if done is not None:
            with self._guard:
                self._cleaned[topic, partition] = done.clean_up_to
                self._files.save_checkpoint(names.CLEANER_OFFSETS, self._cleaned)
        return done

    # -- state

    def flush(self) -> None:
        """Make everything appended so far durable and note how far that goes.

        Raises:
            StoreIOError, DiskFullError: something could not be written.
        """
        self._check_open()
        failure = _each(list(self._logs.values()), PartitionLog.flush)
        self._save_checkpoints()
        if failure is not None:
            raise failure

    def _save_checkpoints(self) -> None:
        with self._guard:
            logs = dict(self._logs)
            self._files.save_checkpoint(
                names.RECOVERY_POINTS, {where: log.safe_recovery_point for where, log in logs.items()}
            )
            self._files.save_checkpoint(names.HIGH_WATERMARKS, {where: log.log_end for where, log in logs.items()})
            if mode_of(self.path / names.CLEANER_OFFSETS):
                self._files.save_checkpoint(names.CLEANER_OFFSETS, self._cleaned)
            self._save_log_starts()

    def _save_log_starts(self) -> None:
        with self._guard:
            self._log_starts = {
                where: log.log_start
                for where, log in self._logs.items()
                if log.log_start > log.segments()[0].base_offset
            }
            self._files.save_checkpoint(names.LOG_STARTS, self._log_starts)

    def _round(self) -> None:
        """What is due now and then: flushes of ``flush_ms``, and the checkpoints."""
        now_ms = time.monotonic_ns() // 1_000_000
        due = [
            log
            for log in list(self._logs.values())
            if (since := log.oldest_unflushed_ms) is not None and now_ms - since >= self.config.flush_ms
        ]
        failure = _each(due, PartitionLog.flush)
        if self._maintenance.checkpoint_is_due(now_ms):
            self._save_checkpoints()
        if failure is not None:
            raise failure

    def view(self) -> KafkaView:
        """The same directory looked at from outside, for what only a view can tell."""
        self._check_open()
        return KafkaView(self.path)

    def stats(self) -> list[PartitionStats]:
        """Figures of every partition, ordered by topic and number. Reads every batch's header."""
        with self.view() as view:
            return view.stats()

    def check(self) -> list[Finding]:
        """Everything that is wrong in the directory; nothing is changed."""
        with self.view() as view:
            return view.check()

    def close(self) -> None:
        """Make everything durable, note a clean stop and give up the lock. A second call does nothing.

        Raises:
            StoreIOError, DiskFullError: something could not be written. The store is closed all the same, and the next
                open recovers as after a crash.
        """
        with self._guard:
            if self._closed or self._pid != os.getpid():
                return
            self._closed = True
        with self._held:  # which ends the thread once more: an interrupt may break off the waiting for its end
            self._maintenance.stop()
            failure = _each(self._logs.values(), PartitionLog.close)
            self._save_checkpoints()
            if failure is not None:
                raise failure
            if all(log.failure is None for log in self._logs.values()):
                self._files.set_clean_marker()

    def _check_open(self) -> None:
        if self._closed:
            raise errors.StoreClosedError("the store is closed", path=self.path, hint="open it again")
        if self._pid != os.getpid():
            raise errors.StoreClosedError(
                "the store was opened before a fork",
                path=self.path,
                found=f"process {os.getpid()}",
                hint="only the process that opened it may use it; read it here with mqstore.kafka.inspect",
            )

    def __enter__(self) -> KafkaStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_store(path: str | os.PathLike[str], *, config: KafkaConfig | None = None, **settings: Any) -> KafkaStore:
    """Open the data directory ``path`` for writing, creating it if need be; bring it in order after a crash.

    Args:
        path: the data directory, in which partitions lie.
        config: all settings at once, or
        **settings: single settings of :class:`KafkaConfig`, as ``flush_messages=1``.

    Raises:
        StoreLockedError: another process has it open for writing.
        NotAStoreError: the path is a file.
        UsageError: an unknown setting, or a value that cannot be meant; or the directory is a partition's, or a
            RocketMQ store.
        CorruptFileError: something that no crash explains; nothing was changed.
        StoreIOError: no permission, the device failed, or there is no memory or no thread to be had.
    """
    given: object = config
    if given is not None and not isinstance(given, KafkaConfig):
        raise errors.UsageError("not a configuration", expected="KafkaConfig", found=type(given).__name__)
    if config is None:
        config = KafkaConfig.from_mapping(settings)
    elif settings:
        raise errors.UsageError("give either config or single settings", found=sorted(settings))
    with errors.naming_the_limit("open the store", path):
        return KafkaStore(path, config)


def _each(logs: Iterable[PartitionLog], action: Callable[[PartitionLog], object]) -> errors.MqstoreError | None:
    """Do ``action`` to all of ``logs``, also behind one that fails: each is its own matter. The first failure."""
    failure: errors.MqstoreError | None = None
    for log in logs:
        try:
            action(log)
        except errors.MqstoreError as error:
            failure = failure or error
    return failure
