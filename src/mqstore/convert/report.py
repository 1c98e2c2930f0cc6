"""What a conversion did, and everything that it did not carry over."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


class Loss(enum.Enum):
    """Something of the source that the result does not hold as it was; the value says what that means."""

    CONTROL_RECORDS = "control records: the ends of transactions and other marks of the broker are no messages"
    ABORTED_RECORDS = "records of aborted transactions were left out"
    UNDECIDED_RECORDS = "records of transactions that had not ended were left out"
    OFFSET_HOLES = "offsets without a record: queues have none, so records behind them are numbered anew"
    LOG_STARTS = "partitions whose queue begins at 0, unlike the log: it is empty, or beyond what a queue can hold"
    TOPIC_IDS = "topic ids are not carried over"
    PRODUCER_STATE = "records whose producer id, epoch and sequence are not carried over"
    BATCHES = "batches: where one ended, its codec and leader epoch are not carried over"
    TIMESTAMP_TYPE_NONE = "records of magic 0 have no timestamp: batches of magic 2 say CreateTime, -1"
    ENVELOPES = "messages whose body is the whole record as JSON, since its headers or key exceed a property string"
    LATER_TIMES = "messages with a store time later than the record's time: the log's times never go back"
    MISFITS = "records or messages with marks of a conversion that they did not come from, or were changed since"
    FORMER_TOPICS = "records or messages that name a former topic, which is not the one they go to"
    MOVED_IN_LOG = "messages that lie elsewhere in the log than they once did"
    UNQUEUED_MESSAGES = "prepared and rolled back messages were left out: they are in no queue"
    INFLATED_BODIES = "compressed bodies were inflated"
    UNREADABLE_MESSAGES = "units whose message is missing or damaged"
    MOVED_OFFSETS = "messages whose offset could not be kept, since it did not ascend"
    SETTINGS = "settings of topics and consumer groups, and progress of delayed messages, are not carried over"
    GROUP_OFFSETS = "consumed offsets of groups are not carried over"
    DAMAGE = "damaged batches were passed over"


@dataclass
class PartitionReport:
    """One partition or queue: where it came from, what became of it.

    Attributes:
        topic, number: where it came from.
        target_topic: the topic that it is in now.
        records: how many messages or records it has now.
        first_offset, end_offset: their range.
        losses: cases of what is not carried over.
        queue_offsets: offsets that groups have committed, and what they are in the result.
    """

    topic: str
    number: int
    target_topic: str
    records: int = 0
    first_offset: int | None = None
    end_offset: int | None = None
    losses: dict[Loss, int] = field(default_factory=dict)
    queue_offsets: dict[int, int] = field(default_factory=dict)

    def lose(self, loss: Loss, count: int = 1) -> None:
        """Note ``count`` cases of ``loss``."""
        if count:
            self.losses[loss] = self.losses.get(loss, 0) + count

    def add(self, offset: int) -> None:
        """Note one more record, at ``offset`` of the result."""
        if self.first_offset is None:
            self.first_offset = offset
        self.end_offset = offset + 1
        self.records += 1


@dataclass
class ConversionReport:
    """What a conversion did.

    Attributes:
        source, output: the two directories.
        partitions: one entry for each partition or queue of the source, by topic and number.
        losses: cases of what is not carried over that belong to no single partition.
        group_offsets: offsets committed by consumer groups that the result knows.
        seconds: how long it took.
    """

    source: Path
    output: Path
    partitions: list[PartitionReport] = field(default_factory=list)
    losses: dict[Loss, int] = field(default_factory=dict)
    group_offsets: int = 0
    seconds: float = 0.0

    @property
    def records(self) -> int:
        """Messages or records in the result."""
        return sum(one.records for one in self.partitions)

    @property
    def topics(self) -> dict[str, str]:
        """The topics of the source, with their names in the result."""
        return {one.topic: one.target_topic for one in self.partitions}

    def total_losses(self) -> dict[Loss, int]:
        """All losses of the partitions and of the whole, by kind."""
        total = dict(self.losses)
        for one in self.partitions:
            for loss, count in one.losses.items():
                total[loss] = total.get(loss, 0) + count
        return {loss: total[loss] for loss in Loss if loss in total}

    def as_dict(self) -> dict[str, Any]:
        """The report for JSON output."""
        return {
            "source": str(self.source),
            "output": str(self.output),
            "topics": self.topics,
            "partitions": [
                {
                    "topic": one.topic,
                    "partition": one.number,
                    "targetTopic": one.target_topic,
                    "records": one.records,
                    "firstOffset": one.first_offset,
                    "endOffset": one.end_offset,
                    "losses": {loss.name: count for loss, count in one.losses.items()},
                }
                for one in self.partitions
            ],
            "records": self.records,
            "groupOffsets": self.group_offsets,
            "losses": [
                {"kind": loss.name, "count": count, "meaning": loss.value}
                for loss, count in self.total_losses().items()
            ],
            "seconds": round(self.seconds, 3),
        }
