"""Which partitions, batches and records a command prints, and what it does about damage."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace

from mqstore import errors
from mqstore.kafka.damage import BatchDamage
from mqstore.kafka.lookup import BatchPlace
from mqstore.kafka.partition_view import PartitionView
from mqstore.kafka.transactions import CommittedFilter
from mqstore.kafka.view import KafkaView
from mqstore.layout.kafka.constants import Codec
from mqstore.layout.kafka.record import Record


@dataclass
class Wanted:
    """Which batches and records to print."""

    start: int
    end: int
    begin_ms: int
    end_ms: int
    key: bytes | None
    producer: int | None
    codec: Codec | None
    control: bool | None
    committed: bool

    def within(self, partition: PartitionView) -> Wanted:
        """The same, of what a consumer of ``partition`` can be shown: a batch may reach over either of its ends."""
        end = min(self.end, partition.last_stable_offset) if self.committed else self.end
        return replace(self, start=max(self.start, partition.log_start_offset), end=end)

    def wants_batch(self, place: BatchPlace) -> bool:
        """Whether records of the batch may be wanted."""
        header = place.header
        return (
            (self.producer is None or header.producer_id == self.producer)
            and (self.codec is None or header.codec == self.codec)
            and (self.control is None or header.is_control == self.control)
            and header.max_timestamp_ms >= self.begin_ms
        )

    def wants_record(self, record: Record) -> bool:
        """Whether a record of such a batch is."""
        return (
            self.start <= record.offset < self.end
            and self.begin_ms <= record.timestamp_ms <= self.end_ms
            and (self.key is None or record.key == self.key)
        )


class Damages:
    """Tells of damage on standard error, and whether to go on."""

    def __init__(self, skip: bool) -> None:
        self._skip = skip
        self.count = 0

    def __call__(self, damage: BatchDamage) -> bool:
        """Tell of ``damage``."""
        self.count += 1
        sys.stderr.write(f"damage in {damage.path} @ {damage.position}: {damage.reason}\n")
        return self._skip


def parse_codec(text: str) -> Codec:
    """The codec of this name; UsageError when there is none."""
    try:
        return Codec[text.upper()]
    except KeyError:
        raise errors.UsageError("no such codec", expected="none, gzip, snappy, lz4, zstd", found=text) from None


def wanted_partitions(view: KafkaView, topic: str | None, partition: int | None) -> list[PartitionView]:
    """The partitions asked for; UsageError when one is named that is not there, CorruptFileError for no directory."""
    if topic is not None or partition is not None:
        view.refuse_odd_partitions(lambda name, number: topic in (None, name) and partition in (None, number))
    found = [
        one
        for one in view.partitions()
        if (topic is None or one.topic == topic) and (partition is None or one.partition == partition)
    ]
    if not found and (topic is not None or partition is not None):
        raise errors.UsageError("no such partition", found=f"{topic or '*'}-{'*' if partition is None else partition}")
    return found


def wanted_batches(partition: PartitionView, wanted: Wanted, damages: Damages) -> Iterator[BatchPlace]:
    """The batches of a partition that may hold records that are wanted :meth:`Wanted.within` it."""
    start, end = wanted.start, wanted.end
    hidden = CommittedFilter(partition.aborted_transactions(start, end) if wanted.committed else [])
    for place in partition.batches(start, end, on_damage=damages):
        hides = hidden.hides(place.header)
        if not hides and not (wanted.committed and place.header.is_control) and wanted.wants_batch(place):
            yield place
