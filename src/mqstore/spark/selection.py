"""Which rows a read wants: by topic, queue, offset, time, tags and keys."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mqstore.layout import properties
from mqstore.layout.constants import PROPERTY_KEYS, PROPERTY_UNIQ_KEY, SysFlag
from mqstore.spark.condition import Condition
from mqstore.spark.options import ReadOptions
from mqstore.spark.pushed import LONG_MAX, Pushed, is_bounded
from mqstore.store.columns import TIMESTAMP


@dataclass(frozen=True)
class Selection:
    """The wanted rows of one store; everything by default. Times in milliseconds, ends exclusive."""

    topics: frozenset[str] | None = None
    topic_pattern: str | None = None
    queues: frozenset[tuple[str, int]] | None = None
    offsets: Mapping[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    starting_timestamp_ms: int | None = None
    ending_timestamp_ms: int | None = None
    where: str | None = None
    keys: frozenset[str] | None = None
    pushed: Pushed = field(default_factory=Pushed)

    @classmethod
    def of(cls, options: ReadOptions, broker_name: str) -> Selection:
        """What the options ask of the store of one broker."""
        starting, ending = options.starting.of(broker_name), options.ending.of(broker_name)
        offsets = {key: (starting.get(key, 0), ending.get(key, LONG_MAX)) for key in {*starting, *ending}}
        return cls(
            options.topics,
            options.topic_pattern,
            options.queues,
            offsets,
            options.starting_timestamp_ms,
            options.ending_timestamp_ms,
            options.where,
            options.keys,
        )

    def narrowed(self, pushed: Pushed) -> Selection:
        """The same rows, less those that filters of Spark leave out."""
        topics = self.topics if pushed.topics is None else pushed.topics
        if self.topics is not None and topics is not None:
            topics &= self.topics
        return replace(self, topics=topics, pushed=pushed)

    @property
    def chooses_queues(self) -> bool:
        """Whether rows are wanted of some queues only."""
        chosen = (self.topics, self.topic_pattern, self.queues, self.pushed.queue_ids)
        return any(one is not None for one in chosen)

    @property
    def store_times_ms(self) -> tuple[int, int]:
        """When the wanted rows were stored, at the earliest and at the latest."""
        low, high = (time_us // 1000 for time_us in self.pushed.store_times_us)
        starting, ending = self.starting_timestamp_ms, self.ending_timestamp_ms
        return max(low, starting or low), min(high, high if ending is None else ending)

    def offset_range(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Between which offsets rows of a queue are wanted, the end exclusive."""
        low, high = self.offsets.get((topic, queue_id), (0, LONG_MAX))
        return max(low, self.pushed.queue_offsets[0]), min(high, self.pushed.queue_offsets[1])

    @property
    def columns(self) -> list[str]:
        """The columns that :meth:`apply` looks at."""
        needed = []
        by_queue = bool(self.offsets) or self.queues is not None
        if by_queue or self.topics is not None or self.topic_pattern is not None:
            needed.append("topic")
        if by_queue or self.pushed.queue_ids is not None:
            needed.append("queueId")
        if self.offsets:
            needed.append("queueOffset")
        if self.starting_timestamp_ms is not None or self.ending_timestamp_ms is not None:
            needed.append("storeTimestamp")
        if self.keys is not None:
            needed += ["propertiesString", "sysFlag"]
        needed += [name for name, _ in self._ranges] + (["tags"] if self.pushed.tags is not None else [])
        return list(dict.fromkeys(needed + Condition.parse(self.where).columns))

    @property
    def _ranges(self) -> list[tuple[str, tuple[int, int]]]:
        """The columns that filters of Spark leave a range of."""
        pushed = self.pushed
        ranges = [
            ("queueOffset", pushed.queue_offsets),
            ("physicalOffset", pushed.physical_offsets),
            ("storeTimestamp", pushed.store_times_us),
        ]
        return [one for one in ranges if is_bounded(one[1])]

    def wants_queue(self, topic: str, queue_id: int) -> bool:
        """Whether any row of this queue may be wanted."""
        return (
            (self.topics is None or topic in self.topics)
            and (self.topic_pattern is None or re.fullmatch(self.topic_pattern, topic) is not None)
            and (self.queues is None or (topic, queue_id) in self.queues)
            and (self.pushed.queue_ids is None or queue_id in self.pushed.queue_ids)
        )

    def apply(self, batch: Any) -> Any:
        """The wanted rows of a record batch that has the columns :attr:`columns`."""
        masks = self._masks(batch)
        if masks and batch.num_rows:
            mask = reduce(pc.and_, masks)
            if pc.all(mask, skip_nulls=False).as_py() is not True:  # else all that a filter does is to copy
                batch = batch.filter(mask)
        if self.keys is not None and batch.num_rows:
            batch = batch.filter(_key_mask(batch, self.keys))
        condition = Condition.parse(self.where)
        # Last, because a condition may be slow to look at.
        return batch.filter(condition.mask(batch)) if condition.columns and batch.num_rows else batch

    def _masks(self, batch: Any) -> list[Any]:
        masks = []
        if self.topics is not None or self.topic_pattern is not None or self.queues is not None or self.offsets:
            masks.append(self._topic_mask(batch))
        if self.pushed.queue_ids is not None:
            masks.append(pc.is_in(batch["queueId"].cast(pa.int64()), pa.array(self.pushed.queue_ids, pa.int64())))
        if self.pushed.tags is not None:
            masks.append(pc.is_in(batch["tags"], pa.array(self.pushed.tags, pa.string())))
        for name, (low, high) in self._ranges:
            numbers = batch[name].cast(pa.int64())
            masks.append(pc.and_(pc.greater_equal(numbers, low), pc.less(numbers, high)))
        if self.starting_timestamp_ms is not None:
            masks.append(pc.greater_equal(batch["storeTimestamp"], _moment(self.starting_timestamp_ms)))
        if self.ending_timestamp_ms is not None:
            masks.append(pc.less(batch["storeTimestamp"], _moment(self.ending_timestamp_ms)))
        return masks

    def _topic_mask(self, batch: Any) -> Any:
        """One look at each topic of the batch, one more at each of its queues where queues are told apart."""
        topics = batch["topic"].dictionary_encode()
        mask = pc.is_in(batch["topic"], pa.array([], pa.string()))
        for topic in topics.dictionary.to_pylist():
            if self.topics is not None and topic not in self.topics:
                continue
            if self.topic_pattern is not None and not re.fullmatch(self.topic_pattern, topic):
                continue
            mask = pc.or_(mask, pc.and_(pc.equal(batch["topic"], topic), self._queue_mask(batch, topic)))
        return mask

    def _queue_mask(self, batch: Any, topic: str) -> Any:
        mask = pa.scalar(True)
        if self.queues is not None:
            ids = pa.array([queue_id for name, queue_id in self.queues if name == topic], pa.int32())
            mask = pc.is_in(batch["queueId"], ids)
        for (name, queue_id), (low, high) in self.offsets.items():
            if name == topic:
                inside = pc.and_(pc.greater_equal(batch["queueOffset"], low), pc.less(batch["queueOffset"], high))
                mask = pc.and_(mask, pc.or_(pc.not_equal(batch["queueId"], queue_id), inside))
        return mask


def _moment(timestamp_ms: int) -> Any:
    return pa.scalar(min(timestamp_ms * 1000, LONG_MAX), pa.int64()).cast(TIMESTAMP)


def _key_mask(batch: Any, keys: frozenset[str]) -> Any:
    """Which messages bear one of the keys, as their unique key or among their keys, as a query by key finds them."""
    texts, flags = batch["propertiesString"], batch["sysFlag"]
    near = reduce(pc.or_, (pc.match_substring(texts, key) for key in sorted(keys)))
    found = [False] * batch.num_rows
    for row in pc.indices_nonzero(near).to_pylist():
        pairs = properties.parse(texts[row].as_py())
        borne = {pairs.get(PROPERTY_UNIQ_KEY), *properties.split_keys(pairs.get(PROPERTY_KEYS))}
        rolled_back = flags[row].as_py() & SysFlag.TRANSACTION_MASK == SysFlag.TRANSACTION_ROLLBACK
        found[row] = not rolled_back and not keys.isdisjoint(borne)
    return pa.array(found, pa.bool_())
