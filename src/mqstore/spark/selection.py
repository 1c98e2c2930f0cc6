"""Which rows a read wants: by topic, queue, offset, time and tags."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from mqstore.spark.columns import TIMESTAMP
from mqstore.spark.condition import Condition
from mqstore.spark.options import ReadOptions

_LONG_MAX: Final = (1 << 63) - 1


@dataclass(frozen=True)
class Selection:
    """The wanted rows of one store; everything by default. Times in milliseconds, ends exclusive."""

    topics: frozenset[str] | None = None
    topic_pattern: str | None = None
    queues: frozenset[tuple[str, int]] | None = None
    queue_ids: frozenset[int] | None = None
    offsets: Mapping[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    starting_timestamp_ms: int | None = None
    ending_timestamp_ms: int | None = None
    where: str | None = None

    @classmethod
    def of(cls, options: ReadOptions, broker_name: str) -> Selection:
        """What the options ask of the store of one broker."""
        starting, ending = options.starting.of(broker_name), options.ending.of(broker_name)
        offsets = {key: (starting.get(key, 0), ending.get(key, _LONG_MAX)) for key in {*starting, *ending}}
        return cls(
            options.topics,
            options.topic_pattern,
            options.queues,
            None,
            offsets,
            options.starting_timestamp_ms,
            options.ending_timestamp_ms,
            options.where,
        )

    def narrowed(self, topics: frozenset[str] | None, queue_ids: frozenset[int] | None) -> Selection:
        """The same rows, less those of other topics or queue ids; None leaves all."""
        if topics is not None and self.topics is not None:
            topics &= self.topics
        return replace(self, topics=self.topics if topics is None else topics, queue_ids=queue_ids)

    @property
    def columns(self) -> list[str]:
        """The columns that :meth:`apply` looks at."""
        needed = []
        by_queue = bool(self.offsets) or self.queues is not None
        if by_queue or self.topics is not None or self.topic_pattern is not None:
            needed.append("topic")
        if by_queue or self.queue_ids is not None:
            needed.append("queueId")
        if self.offsets:
            needed.append("queueOffset")
        if self.starting_timestamp_ms is not None or self.ending_timestamp_ms is not None:
            needed.append("storeTimestamp")
        return needed + Condition.parse(self.where).columns

    def wants_queue(self, topic: str, queue_id: int) -> bool:
        """Whether any row of this queue may be wanted."""
        return (
            (self.topics is None or topic in self.topics)
            and (self.topic_pattern is None or re.fullmatch(self.topic_pattern, topic) is not None)
            and (self.queues is None or (topic, queue_id) in self.queues)
            and (self.queue_ids is None or queue_id in self.queue_ids)
        )

    def apply(self, batch: Any) -> Any:
        """The wanted rows of a record batch that has the columns :attr:`columns`."""
        masks = self._masks(batch)
        if masks and batch.num_rows:
            batch = batch.filter(reduce(pc.and_, masks))
        condition = Condition.parse(self.where)
        # Last, because a condition may be slow to look at.
        return batch.filter(condition.mask(batch)) if condition.columns and batch.num_rows else batch

    def _masks(self, batch: Any) -> list[Any]:
        masks = []
        if "topic" in self.columns:
            masks.append(self._topic_mask(batch))
        if self.queue_ids is not None:
            masks.append(pc.is_in(batch["queueId"], pa.array(self.queue_ids, pa.int32())))
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
    return pa.scalar(min(timestamp_ms * 1000, _LONG_MAX), pa.int64()).cast(TIMESTAMP)
