"""What a store keeps in ``config/``: its topics, its consumer groups, and how far each has come."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from mqstore import errors
from mqstore.layout.config_beans import ConsumerFilterData, SubscriptionGroupConfig
from mqstore.layout.config_files import (
    CONSUMER_FILTER_FILE,
    ConsumerFilters,
    ConsumerOffsets,
    DelayOffsets,
    SubscriptionGroups,
    TopicConfig,
    TopicConfigs,
    offset_key,
    split_offset_key,
)
from mqstore.layout.constants import (
    DLQ_PREFIX,
    HALF_TOPIC,
    MAX_QUEUES,
    OP_HALF_TOPIC,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
)
from mqstore.store import settings_file
from mqstore.store.config import StoreConfig
from mqstore.store.message import QueueInfo
from mqstore.store.paths import is_legal_topic

_log = logging.getLogger(__name__)

MAX_GROUP_SIZE = 119
"""So that ``%RETRY%`` and the group's name are together a legal topic."""


_OF_TRANSACTIONS = (HALF_TOPIC, OP_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC)


def has_one_queue(topic: str) -> bool:
    """Whether the store itself keeps ``topic``, for retries, dead letters or transactions: those have one queue."""
    return topic.startswith((RETRY_PREFIX, DLQ_PREFIX)) or topic in _OF_TRANSACTIONS


def check_group(group: object) -> None:
    """Raise UsageError unless ``group`` can be a consumer's: its name stands in those of topics and files."""
    if not isinstance(group, str) or not group or not is_legal_topic(group) or len(group) > MAX_GROUP_SIZE:
        raise errors.UsageError(
            "not a name for a group", expected=f"1 to {MAX_GROUP_SIZE} of A-Z a-z 0-9 _ - % |", found=repr(group)
        )


class _Content(Protocol):
    def encode(self) -> bytes: ...


ContentT = TypeVar("ContentT", bound=_Content)


class _File(Generic[ContentT]):
    """One settings file: its content, loaded at first use, and whether that was changed since.

    ``is_hint`` says that nothing is lost with it but time, so that a damaged one counts as a missing one.
    """

    def __init__(
        self,
        path: Path,
        decode: Callable[[bytes], ContentT],
        empty: Callable[[], ContentT],
        *,
        is_hint: bool = False,
    ) -> None:
        self._path = path
        self._decode = decode
        self._empty = empty
        self._is_hint = is_hint
        self._content: ContentT | None = None
        self._changed = False

    def get(self) -> ContentT:
        if self._content is None:
            loaded = self._load()
            self._content = self._empty() if loaded is None else loaded
        return self._content

    def _load(self) -> ContentT | None:
        try:
            return settings_file.load(self._path, self._decode)
        except errors.CorruptConfigError as error:
            if not self._is_hint:
                raise
            _log.warning("going on without: %s", error)
            return None

    def put(self, content: ContentT) -> None:
        self._content = content
        self._changed = True

    def is_changed(self) -> bool:
        return self._changed

    def take(self) -> ContentT:
        """What :meth:`get` gives, to be saved: it counts as saved from now on, what is put later does not."""
        self._changed = False
        return self.get()

    def keep(self) -> None:
        """What was taken could not be saved."""
        self._changed = True

    def save(self, content: ContentT) -> None:
        settings_file.save(self._path, content.encode(), self._decode)


class Settings:
    """Topics, groups and offsets of one store. Safe for several threads; saved by :meth:`save`."""

    def __init__(self, directory: Path) -> None:
        self._guard = threading.RLock()
        self._saving = threading.Lock()
        self._topics = _File(directory / "topics.json", TopicConfigs.decode, TopicConfigs)
        self._groups = _File(directory / "subscriptionGroup.json", SubscriptionGroups.decode, SubscriptionGroups)
        self._offsets = _File(directory / "consumerOffset.json", ConsumerOffsets.decode, ConsumerOffsets)
        self._delays = _File(directory / "delayOffset.json", DelayOffsets.decode, DelayOffsets)
        filters = directory / CONSUMER_FILTER_FILE
        self._filters = _File(filters, ConsumerFilters.decode, ConsumerFilters, is_hint=True)

    @property
    def _files(self) -> tuple[_File[Any], ...]:
        return self._topics, self._groups, self._offsets, self._delays, self._filters

    def load(self) -> None:
        """Read all files now, so that damage is met at open and not later.

        Raises:
            CorruptConfigError: a file and its backup are both damaged.
        """
        for file in self._files:
            file.get()

    def save(self, before: Callable[[], object] = lambda: None) -> None:
        """Write the files that were changed.

        Args:
            before: called once when there is anything to write, between taking the contents and writing them. Saved
                progress must never be ahead of the log it speaks of, so the store syncs its log here.
        """
        with self._saving:
            with self._guard:
                unsaved = [(file, file.take()) for file in self._files if file.is_changed()]
            try:
                if unsaved:
                    before()
                while unsaved:
                    file, content = unsaved[0]
                    file.save(content)
                    del unsaved[0]
            except BaseException:
                with self._guard:
                    for file, _ in unsaved:
                        file.keep()
                raise

    @property
    def topics(self) -> Mapping[str, TopicConfig]:
        """The topics by name, as in ``topics.json``."""
        return self._topics.get().topics

    @property
    def groups(self) -> list[str]:
        """Names of the consumer groups in ``subscriptionGroup.json`` and of those with saved offsets."""
        known = set(self._groups.get().groups) | {group for _, group in self.consumer_offsets}
        return sorted(known)

    @property
    def subscription_groups(self) -> Mapping[str, SubscriptionGroupConfig]:
        """The consumer groups by name, as in ``subscriptionGroup.json``."""
        return self._groups.get().groups

    @property
    def consumer_offsets(self) -> Mapping[tuple[str, str], Mapping[int, int]]:
        """Saved offsets: (topic, group) to queue id to next offset."""
        return {split_offset_key(key): queues for key, queues in self._offsets.get().offsets.items()}

    @property
    def delay_offsets(self) -> Mapping[int, int]:
        """Progress of delayed messages: level to next offset in the schedule topic's queue of that level."""
        return self._delays.get().offsets

    @property
    def consumer_filters(self) -> Mapping[str, Mapping[str, ConsumerFilterData]]:
        """Conditions of consumer groups that are more than tags, by topic and group."""
        return self._filters.get().filters

    def set_consumer_filters(self, filters: dict[str, dict[str, ConsumerFilterData]]) -> None:
        """Put others in their place."""
        with self._guard:
            self._filters.put(replace(self._filters.get(), filters=filters))

    def queue_count(self, topic: str, config: StoreConfig) -> int:
        """Queues of ``topic``, those it would be given if it is new.

        Raises:
            MessageIllegalError: it is unknown and topics are not created by themselves.
        """
        known = self._topics.get().topics.get(topic)
        if known is not None:
            return max(1, known.write_queue_nums)
        if not config.auto_create_topic_enable and not has_one_queue(topic):
            raise errors.MessageIllegalError(
                "unknown topic, and topics are not created by themselves",
                found=topic,
                hint="Store.create_topic makes it known, or set auto_create_topic_enable",
            )
        return 1 if has_one_queue(topic) else config.default_topic_queue_nums

    def ensure_topic(self, topic: str, queues: int, config: StoreConfig) -> None:
        """Make sure that ``topic`` is known and has at least ``queues`` queues."""
        known = self._topics.get().topics.get(topic)
        if known is None:
            self.create_topic(topic, max(queues, 1 if has_one_queue(topic) else config.default_topic_queue_nums))
        elif known.write_queue_nums < queues:
            self.create_topic(topic, queues)

    def create_topic(self, topic: str, queues: int) -> int:
        """Make ``topic`` known with ``queues`` queues; one that is known gets as many if it has fewer.

        Returns how many it has now. A log made from a table or from Kafka may number its queues higher than the
        settings can tell: such queues are read, and nothing is put into them in turn.
        """
        queues = min(queues, MAX_QUEUES)
        with self._guard:
            file = self._topics.get()
            known = file.topics.get(topic) or TopicConfig(topic_name=topic, read_queue_nums=0, write_queue_nums=0)
            if known.write_queue_nums < queues:
                known = replace(known, write_queue_nums=queues, read_queue_nums=max(queues, known.read_queue_nums))
                version = file.data_version.next(time.time_ns() // 1_000_000)
                self._topics.put(replace(file, topics={**file.topics, topic: known}, data_version=version))
            return known.write_queue_nums

    def set_retry_max_times(self, group: str, times: int) -> None:
        """How often a message is given to ``group`` again before it goes to the dead letters."""
        with self._guard:
            known = self.ensure_group(group)
            file = self._groups.get()
            self._groups.put(replace(file, groups={**file.groups, group: replace(known, retry_max_times=times)}))

    def commit_offset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Note the next offset of ``group`` in a queue.

        Raises:
            UsageError: the group's name is empty or holds an ``@``, which separates it from the topic.
        """
        given: object = group
        if not isinstance(given, str) or not given or "@" in given or not given.isprintable():
            raise errors.UsageError("a group's name is empty, or holds an @ or what cannot be saved", found=repr(given))
        with self._guard:
            file = self._offsets.get()
            key = offset_key(topic, group)
            queues = {**file.offsets.get(key, {}), queue_id: offset}
            self._offsets.put(replace(file, offsets={**file.offsets, key: queues}))

    def committed_offset(self, group: str, topic: str, queue_id: int) -> int | None:
        """The next offset of ``group`` in a queue, None when it has none."""
        return self._offsets.get().offsets.get(offset_key(topic, group), {}).get(queue_id)

    def set_delay_offset(self, level: int, offset: int) -> None:
        """Note up to where messages of a delay level have been delivered."""
        with self._guard:
            file = self._delays.get()
            self._delays.put(replace(file, offsets={**file.offsets, level: offset}))

    def clamp(self, queue_end: Callable[[str, int], int]) -> None:
        """Bring saved progress back to the ends of the queues, which a crash may have left shorter than it was.

        Otherwise the messages that take the lost offsets would be passed over. ``queue_end`` gives the end of a
        queue, 0 for one that is not there.
        """
        for (topic, group), queues in self.consumer_offsets.items():
            for queue_id, offset in queues.items():
                end = queue_end(topic, queue_id)
                if offset > end:
                    _log.warning("group %s is ahead of queue %s/%d: %d back to %d", group, topic, queue_id, offset, end)
                    self.commit_offset(group, topic, queue_id, end)
        for level, offset in self.delay_offsets.items():
            end = queue_end(SCHEDULE_TOPIC, level - 1)
            if offset > end:
                _log.warning("delivery of delay level %d is ahead of its queue: %d back to %d", level, offset, end)
                self.set_delay_offset(level, end)

    def ensure_group(self, group: str) -> SubscriptionGroupConfig:
        """The settings of a consumer group, which is made known if it is not.

        Raises:
            UsageError: the name is empty or cannot stand in the names of topics and files.
        """
        check_group(group)
        with self._guard:
            file = self._groups.get()
            known = file.groups.get(group)
            if known is None:
                known = SubscriptionGroupConfig(group_name=group)
                version = file.data_version.next(time.time_ns() // 1_000_000)
                self._groups.put(replace(file, groups={**file.groups, group: known}, data_version=version))
            return known


@dataclass(frozen=True, slots=True)
class GroupProgress:
    """How far a group has come in one queue.

    ``lag`` counts the messages it has still to consume; None when the queue does not exist, so that nothing can be
    said. It is never negative, also when the group's offset lies beyond the queue's end.
    """

    group: str
    topic: str
    queue_id: int
    consumer_offset: int
    max_offset: int | None
    lag: int | None


def group_progress(
    offsets: Mapping[tuple[str, str], Mapping[int, int]], queues: Iterable[QueueInfo]
) -> list[GroupProgress]:
    """Progress of every group in every queue it has an offset for, ordered by group, topic and queue."""
    ends = {(queue.topic, queue.queue_id): queue.max_offset for queue in queues}
    rows = []
    for (topic, group), of_queues in offsets.items():
        for queue_id, offset in of_queues.items():
            end = ends.get((topic, queue_id))
            rows.append(
                GroupProgress(group, topic, queue_id, offset, end, None if end is None else max(0, end - offset))
            )
    return sorted(rows, key=lambda row: (row.group, row.topic, row.queue_id))
