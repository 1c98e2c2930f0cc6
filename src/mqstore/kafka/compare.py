"""Comparing replicas: whether two copies of a partition hold the same records at the same offsets.

Batches of the same offsets and the same checksum are the same; where they are not, records are compared one by one, as
replicas are compacted each by itself. A record that only one copy has is no difference if compaction explains it: a
later record has its key, or it is a tombstone, a marker of the broker's or one of a batch kept for its producer alone.
Where the copy that lacks it has holes behind the end of the other, the
tombstone may have been there and be gone as well: nobody can decide that, and it is counted apart.
That counts only where the partition is compacted, which the ``cleaner-offset-checkpoint`` of a data directory tells:
cleaners name there what they have compacted.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from mqstore import errors
from mqstore.files.whole import read_whole
from mqstore.kafka.arguments import check_flags, check_named
from mqstore.kafka.damage import BatchDamage
from mqstore.kafka.lookup import BatchPlace
from mqstore.kafka.partition_view import PartitionView
from mqstore.kafka.records import records_of
from mqstore.kafka.view import KafkaView
from mqstore.layout.constants import LONG_MAX
from mqstore.layout.kafka import names
from mqstore.layout.kafka.batch import BatchHeader
from mqstore.layout.kafka.checkpoints import decode_offsets
from mqstore.layout.kafka.record import Record

_log = logging.getLogger(__name__)

_MAX_WAITING: Final = 1 << 20
"""Keys of records that one copy lacks, for which a later record is still to come."""


class OffsetRange(NamedTuple):
    """The offsets from ``start`` to ``end``, exclusive."""

    start: int
    end: int


@dataclass
class PartitionComparison:
    """What two copies of a partition, A and B, have in common.

    Attributes:
        topic, partition: which partition.
        range_a, range_b: the offsets that each has; None where there is no copy.
        first_difference: the lowest offset at which they differ, of those that both ranges hold; None if they do not.
        reason: what differs there.
        batches: batches that are the same in both.
        records: records that were compared one by one, and are the same.
        compacted_a, compacted_b: records that are only in the other copy, since this one was compacted further.
        undecided: those of them for which no newer record is there, but a hole behind the end of the other copy: lost,
            or removed by a tombstone that was removed since.
    """

    topic: str
    partition: int
    range_a: OffsetRange | None
    range_b: OffsetRange | None
    first_difference: int | None = None
    reason: str | None = None
    batches: int = 0
    records: int = 0
    compacted_a: int = 0
    compacted_b: int = 0
    undecided: int = 0

    @property
    def common(self) -> OffsetRange | None:
        """The offsets that both ranges hold; None if there are none."""
        if self.range_a is None or self.range_b is None:
            return None
        start, end = max(self.range_a.start, self.range_b.start), min(self.range_a.end, self.range_b.end)
        return OffsetRange(start, end) if start < end else None

    @property
    def only_a(self) -> list[OffsetRange]:
        """The offsets that only the range of A holds."""
        return _without(self.range_a, self.range_b)

    @property
    def only_b(self) -> list[OffsetRange]:
        """The offsets that only the range of B holds."""
        return _without(self.range_b, self.range_a)

    def differs(self, *, common_only: bool = False) -> bool:
        """Whether the copies differ; with ``common_only`` in what both ranges hold."""
        if common_only:
            return self.first_difference is not None
        return self.first_difference is not None or self.range_a != self.range_b

    def as_dict(self) -> dict[str, Any]:
        """The comparison for JSON output."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "rangeA": self.range_a,
            "rangeB": self.range_b,
            "firstDifference": self.first_difference,
            "reason": self.reason,
            "onlyA": self.only_a,
            "onlyB": self.only_b,
            "batches": self.batches,
            "records": self.records,
            "compactedA": self.compacted_a,
            "compactedB": self.compacted_b,
            "undecided": self.undecided,
        }


def _without(one: OffsetRange | None, other: OffsetRange | None) -> list[OffsetRange]:
    if one is None:
        return []
    if other is None:
        return [one]
    parts = (OffsetRange(one.start, min(one.end, other.start)), OffsetRange(max(one.start, other.end), one.end))
    return [part for part in parts if part.start < part.end]


def compare(
    a: str | os.PathLike[str],
    b: str | os.PathLike[str],
    *,
    topic: str | None = None,
    partition: int | None = None,
    compacted: bool | None = None,
) -> list[PartitionComparison]:
    """Compare two data directories, or two directories of one partition, as replicas of each other.

    Args:
        a, b: the two; neither is changed, and brokers may be running on them. Partitions are matched by name, but for
            two directories of single partitions, which are compared whatever they are called.
        topic: only this topic.
        partition: only partitions of this number.
        compacted: whether compaction may explain records that only one has; None: in partitions that the
            ``cleaner-offset-checkpoint`` beside either copy names.

    Returns every partition that either has, by topic and number.

    Raises:
        NotAStoreError: nothing of Kafka's at one of the paths.
        UsageError: no partition is wanted that either has.
        CorruptFileError: something else than a directory bears the name of one of them.
        StoreIOError: a file could not be read.
    """
    if compacted is not None:
        check_flags(compacted=compacted)
    check_named(topic, partition)
    with KafkaView(a) as view_a, KafkaView(b) as view_b:
        for view in (view_a, view_b):
            view.refuse_odd_partitions(lambda name, number: topic in (None, name) and partition in (None, number))
        pairs = _pairs(view_a, view_b)
        wanted = [
            (one, other)
            for (name, number), (one, other) in sorted(pairs.items())
            if topic in (None, name) and partition in (None, number)
        ]
        if not wanted and (topic, partition) != (None, None):
            raise errors.UsageError(
                "no such partition", found=f"{topic or '*'}-{'*' if partition is None else partition}"
            )
        return [compare_partitions(one, other, compacted) for one, other in wanted]


_Pair = tuple[PartitionView | None, PartitionView | None]


def _pairs(a: KafkaView, b: KafkaView) -> dict[tuple[str, int], _Pair]:
    found_a = {(one.topic, one.partition): one for one in a.partitions()}
    found_b = {(one.topic, one.partition): one for one in b.partitions()}
    if not a.is_data_directory and not b.is_data_directory:
        (where, one), (other,) = next(iter(found_a.items())), found_b.values()
        return {where: (one, other)}
    names = found_a.keys() | found_b.keys()
    if not a.is_data_directory:
        names = set(found_a)
    elif not b.is_data_directory:
        names = set(found_b)
    return {where: (found_a.get(where), found_b.get(where)) for where in names}


def compare_partitions(
    a: PartitionView | None, b: PartitionView | None, compacted: bool | None = None
) -> PartitionComparison:
    """Compare two copies of one partition, of which one may be missing; ``compacted`` as in :func:`compare`."""
    named = a or b
    assert named is not None
    found = PartitionComparison(named.topic, named.partition, _range(a), _range(b))
    if a is not None and b is not None and found.common is not None:
        if compacted is None:
            why = f", and no {names.CLEANER_OFFSETS} says that the partition is compacted"
            unexplained = None if _is_compacted(a) or _is_compacted(b) else why
        else:
            unexplained = None if compacted else ""
        _Walk(a, b, found.common, found, unexplained).run()
    return found


def _is_compacted(partition: PartitionView) -> bool:
    """Whether a cleaner has noted how far it compacted the partition."""
    path = partition.directory.absolute().parent / names.CLEANER_OFFSETS
    try:
        data = read_whole(path, names.CLEANER_OFFSETS)
        return data is not None and (partition.topic, partition.partition) in decode_offsets(data)
    except errors.DamageError as error:
        _log.warning("going on without %s, which is damaged: %s", path, error)
        return False


def _range(partition: PartitionView | None) -> OffsetRange | None:
    return None if partition is None else OffsetRange(partition.log_start_offset, partition.log_end_offset)


class _Side:
    """One copy, read in order: batches that nobody has looked into, or the records of one that somebody has."""

    def __init__(self, name: str, partition: PartitionView, common: OffsetRange) -> None:
        self.name = name
        self.partition = partition
        self._common = common
        # One offset more than is compared: damage right behind is told, too.
        end = min(common.end + 1, LONG_MAX)
        self._batches: Iterator[BatchPlace] = partition.batches(common.start, end, on_damage=self._note)
        self.damage: BatchDamage | None = None
        self.batch: BatchPlace | None = None
        self.records: list[Record] = []
        self.header: BatchHeader | None = None
        self.next_batch()

    def _note(self, damage: BatchDamage) -> bool:
        self.damage = damage
        return False

    def next_batch(self) -> None:
        """Go to the next batch, behind the present one."""
        self.batch = next(self._batches, None)
        header = None if self.batch is None else self.batch.header
        if header is not None and header.base_offset >= self._common.end and not header.is_wrapper:
            self.batch = None

    def open_batch(self) -> None:
        """Look into the present batch."""
        place = self.batch
        assert place is not None
        self.header = place.header
        try:
            records = records_of(place.segment, place.position, place.header, place.buffer)
        except errors.CorruptBatchError as error:
            self.damage = BatchDamage(place.segment.path(), place.position, str(error.found or error.message))
            self.batch = None
            return
        start, end = self._common
        self.records = [record for record in reversed(records) if start <= record.offset < end]
        self.next_batch()

    @property
    def is_at_batch(self) -> bool:
        """Whether the next thing is a batch that nobody has looked into."""
        return not self.records and self.batch is not None

    @property
    def at_end(self) -> bool:
        """Whether nothing comes any more."""
        return not self.records and self.batch is None


class _Walk:
    """One walk through two copies, to the first difference."""

    def __init__(
        self,
        a: PartitionView,
        b: PartitionView,
        common: OffsetRange,
        found: PartitionComparison,
        unexplained: str | None,
    ) -> None:
        """``unexplained`` says why compaction explains nothing; None if it does."""
        self._sides = _Side("A", a, common), _Side("B", b, common)
        self._found = found
        self._unexplained = unexplained
        self._offset = common.start
        self._common_end = common.end
        self._waiting: dict[bytes, tuple[int, _Side]] = {}

    def run(self) -> None:
        """Walk."""
        a, b = self._sides
        while self._found.first_difference is None:
            if a.is_at_batch and b.is_at_batch and self._is_same_batch():
                continue
            if (damaged := next((side for side in self._sides if side.damage and side.at_end), None)) is not None:
                assert damaged.damage is not None
                self._differ(self._offset, f"{damaged.name} is damaged: {damaged.damage.reason}")
            elif a.at_end and b.at_end:
                break
            elif a.is_at_batch or b.is_at_batch:
                self._open_lower()
            else:
                self._step()
        self._look_behind()
        if self._waiting:
            offset, side = min(self._waiting.values(), key=lambda waiting: waiting[0])
            if self._found.first_difference is None or offset < self._found.first_difference:
                self._differ(offset, f"{side.name} has no such record")

    def _look_behind(self) -> None:
        """Look for the keys that are still to come where the walk did not: behind the offsets that both have, too.

        Only records that a copy has itself explain what it lacks there.
        """
        for side in self._sides:
            keys = {key for key, (_, lacking) in self._waiting.items() if lacking is side}
            if not keys:
                continue
            has_hole = False
            expected = max(self._offset, self._common_end)
            for place in side.partition.batches(self._offset, on_damage=lambda damage: True):
                for record in _records_of(place):
                    has_hole = has_hole or record.offset > expected
                    expected = max(expected, record.offset + 1)
                    if record.key in keys and not place.header.is_control and record.offset >= self._offset:
                        self._seen(record.key, record.offset)
                        keys.discard(record.key)
                if not keys:
                    break
            end = side.partition.log_end_offset
            if has_hole or expected < end:
                self._found.undecided += len(keys)
                for key in keys:
                    del self._waiting[key]

    def _is_same_batch(self) -> bool:
        a, b = self._sides
        assert a.batch is not None
        assert b.batch is not None
        if _identity(a.batch.header) != _identity(b.batch.header):
            return False
        if self._waiting:  # its records may be what the other copy was compacted for
            return False
        self._offset = a.batch.header.last_offset + 1
        self._found.batches += 1
        a.next_batch()
        b.next_batch()
        return True

    def _open_lower(self) -> None:
        """Look into the batch that comes first, of those that nobody has looked into."""
        closed = [side for side in self._sides if side.is_at_batch]
        min(closed, key=lambda side: side.batch.header.base_offset if side.batch else 0).open_batch()

    def _step(self) -> None:
        """Compare the next record of both, or pass over one that only one copy has."""
        a, b = self._sides
        offset_a = a.records[-1].offset if a.records else None
        offset_b = b.records[-1].offset if b.records else None
        if offset_a == offset_b:
            self._compare(a, b)
        elif offset_b is None or (offset_a is not None and offset_a < offset_b):
            self._found.compacted_b += self._lacks(a, b)
        else:
            self._found.compacted_a += self._lacks(b, a)

    def _compare(self, a: _Side, b: _Side) -> None:
        one, other = a.records.pop(), b.records.pop()
        assert a.header is not None
        assert b.header is not None
        self._seen(one.key, one.offset)
        self._offset = one.offset + 1
        different = [
            name
            for name, (left, right) in {
                "key": (one.key, other.key),
                "value": (one.value, other.value),
                "headers": (one.headers, other.headers),
                "timestamp": (one[1:3], other[1:3]),
                "leader epoch": (a.header.leader_epoch, b.header.leader_epoch),
                "producer": (_producer(a.header, one), _producer(b.header, other)),
            }.items()
            if left != right
        ]
        if different:
            self._differ(one.offset, f"another {' and '.join(different)}")
        else:
            self._found.records += 1

    def _lacks(self, side: _Side, other: _Side) -> bool:
        """``other`` has no record where ``side`` has one: whether it may have been compacted further."""
        record = side.records.pop()
        assert side.header is not None
        self._offset = record.offset + 1
        self._seen(record.key, record.offset)
        if self._unexplained is not None:
            self._differ(record.offset, f"{other.name} has no such record{self._unexplained}")
            return False
        if side.header.is_control or (record.key is not None and record.value is None):
            return True
        if record.key is None or len(self._waiting) >= _MAX_WAITING:
            self._differ(record.offset, f"{other.name} has no such record")
            return False
        self._waiting[record.key] = record.offset, other
        return True

    def _seen(self, key: bytes | None, offset: int) -> None:
        """A record of this key came: it explains why an older one of that key is gone."""
        waiting = self._waiting.get(key) if key is not None else None
        if waiting is not None and waiting[0] < offset and key is not None:
            del self._waiting[key]

    def _differ(self, offset: int, reason: str) -> None:
        self._found.first_difference, self._found.reason = offset, reason


def _records_of(place: BatchPlace) -> list[Record]:
    """The records of a batch; none of a damaged one, which was told where both are compared."""
    try:
        return records_of(place.segment, place.position, place.header, place.buffer)
    except errors.CorruptBatchError:
        return []


def _identity(header: BatchHeader) -> tuple[int, ...]:
    """What batches have in common that are the same; the checksum covers neither offset nor leader epoch."""
    return header.base_offset, header.last_offset, header.magic, header.crc, header.size, header.leader_epoch


def _producer(header: BatchHeader, record: Record) -> tuple[int | bool, ...]:
    return header.producer_id, header.producer_epoch, record.sequence, header.is_transactional, header.is_control
