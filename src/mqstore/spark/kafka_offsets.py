"""Where a read of Kafka logs begins and ends in each partition (docs/kafka.md).

A batch asks once. A stream asks at every trigger: what has come, what has gone, and how much of it one batch may take.
"""

from __future__ import annotations

import glob
from collections.abc import Collection, Mapping
from pathlib import Path

from mqstore.errors import NotAStoreError, UsageError
from mqstore.files.whole import mode_of
from mqstore.kafka.partition_view import PartitionView
from mqstore.kafka.view import KafkaView
from mqstore.spark.kafka_options import Bound, KafkaReadOptions, Partition
from mqstore.spark.option_values import EARLIEST
from mqstore.spark.stores import matching
from mqstore.spark.stream_ends import Losses, lost, noted_offset, noted_offsets, reachable, share_out

Offsets = dict[Partition, int]


class KafkaLogs:
    """The partitions that a read is for, in all of its data directories."""

    def __init__(self, options: KafkaReadOptions) -> None:
        self._options = options
        self._views = [KafkaView(path) for path in data_directories(options.paths)]

    def partitions(self, also: Collection[Partition] = ()) -> dict[Partition, PartitionView]:
        """Every wanted partition that is there now, by topic and number, and those of ``also``.

        Raises:
            UsageError: two directories hold one partition.
            CorruptFileError: something else than a directory bears the name of one.
        """
        found: dict[Partition, PartitionView] = {}
        for view in self._views:
            view.refuse_odd_partitions(self._options.wants)
            for one in view.partitions():
                key = (one.topic, one.partition)
                if not self._options.wants(*key) and key not in also:
                    continue
                if key in found:
                    raise UsageError(
                        f"partition {one.topic}-{one.partition} is in two directories", path=one.directory,
                        found=found[key].directory, hint="give the directories of one broker",
                    )  # fmt: skip
                found[key] = one
        return dict(sorted(found.items()))

    def check_assigned(self, found: Mapping[Partition, PartitionView]) -> None:
        """Raise UsageError for a partition or topic that was asked for and is not there."""
        missing = sorted((self._options.partitions or frozenset()) - found.keys())
        topics = sorted((self._options.topics or frozenset()) - {topic for topic, _ in found})
        if missing or topics:
            names = [f"{topic}-{number}" for topic, number in missing] or topics
            raise UsageError("no such partition or topic", found=", ".join(names))

    def end(self, partition: PartitionView) -> int:
        """Where a partition ends for this reader."""
        return partition.last_stable_offset if self._options.read_committed else partition.log_end_offset

    def close(self) -> None:
        """Close the files."""
        for view in self._views:
            view.close()


def data_directories(paths: tuple[str, ...]) -> list[Path]:
    """The directories that paths and patterns name, each once.

    Raises:
        NotAStoreError: a pattern matches none.
        StoreIOError: something that may match one could not be looked at.
    """
    found: list[Path] = []
    for text in paths:
        path = Path(text.removeprefix("file://").removeprefix("file:")).absolute()
        if glob.has_magic(text) and not mode_of(path):
            matches = matching(path)
            if not matches:
                raise NotAStoreError("no Kafka log matches", path=text, hint="give data directories")
            found += matches
        else:
            found.append(path)
    return list(dict.fromkeys(found))


def starting_offsets(logs: KafkaLogs, options: KafkaReadOptions) -> Offsets:
    """Where a new read begins."""
    found = logs.partitions()
    if not options.streaming:
        logs.check_assigned(found)
    _check_named(options.starting, found, "startingOffsets")
    return {key: _resolve(logs, key, one, options.starting, options, True) for key, one in found.items()}


def ending_offsets(logs: KafkaLogs, options: KafkaReadOptions) -> Offsets:
    """Where a batch ends."""
    found = logs.partitions()
    _check_named(options.ending, found, "endingOffsets")
    return {key: _resolve(logs, key, one, options.ending, options, False) for key, one in found.items()}


def latest_offsets(logs: KafkaLogs) -> Offsets:
    """Where the partitions end now."""
    return {key: logs.end(one) for key, one in logs.partitions().items()}


def _check_named(bound: Bound, found: Mapping[Partition, PartitionView], name: str) -> None:
    """As in Spark's own source, offsets of single partitions must be those of all and of no others."""
    named = bound.named()
    if named is None or named.keys() == found.keys():
        return
    wrong = sorted(named.keys() ^ found.keys())
    option = name if bound.by_timestamp is None else f"{name}ByTimestamp"
    raise UsageError(
        f"{option} must name every partition that is read, and no other",
        found=", ".join(f"{topic}-{number}" for topic, number in wrong),
        hint="choose partitions with assign, or give -2 (earliest) or -1 (latest) for the rest",
    )


def _resolve(
    logs: KafkaLogs,
    key: Partition,
    partition: PartitionView,
    bound: Bound,
    options: KafkaReadOptions,
    starting: bool,
) -> int:
    start, end = partition.log_start_offset, logs.end(partition)
    timestamp_ms = bound.timestamp_ms
    if timestamp_ms is None and bound.by_timestamp is not None:
        timestamp_ms = bound.by_timestamp[key]
    if timestamp_ms is not None:
        place = partition.offset_at(timestamp_ms)
        if place is not None:
            return min(place.offset, end)
        if starting and not options.latest_if_no_match:
            raise UsageError(
                f"no record of {key[0]}-{key[1]} is as new as the starting timestamp", found=timestamp_ms,
                hint="startingOffsetsByTimestampStrategy=latest begins at the end of such partitions",
            )  # fmt: skip
        return end
    wanted = bound.default if bound.by_offset is None else bound.by_offset[key]
    if wanted < 0:
        return start if wanted == EARLIEST else end
    if not start <= wanted <= end:
        what = f"offset {wanted} of {key[0]}-{key[1]} is not there"
        lost(what, f"{start} to {end}", options.fail_on_data_loss)
    return max(start, min(wanted, end))


def _name(key: Partition) -> str:
    return f"partition {key[0]}-{key[1]}"


def stream_start(logs: KafkaLogs, start: Offsets, end: Offsets, options: KafkaReadOptions) -> Offsets:
    """Where the partitions of ``end`` begin in a batch that begins at ``start``: the new ones at their first record.

    A batch that is done again has the same records, also of partitions that are asked for no more; what has gone of
    these is no error.
    """
    found = logs.partitions({key for key in end if start.get(key, 0) < end[key]})
    begins: Offsets = {}
    for key in end:
        partition, begin = found.get(key), start.get(key, 0)
        fails = options.fail_on_data_loss and options.wants(*key)
        if partition is None:
            if begin < end[key]:
                lost(f"{_name(key)} is gone", "the partition", fails)
            continue
        first = partition.log_start_offset
        if begin < first and key not in start:
            lost(f"new {_name(key)} begins at {first}", "0", fails)
        elif begin < first:
            lost(f"offsets {begin} to {first} of {key[0]}-{key[1]} were removed", f"offset {begin}", fails)
        begins[key] = min(max(begin, first), end[key])
    return begins


def next_offsets(
    logs: KafkaLogs, start: Offsets, losses: Losses, limit: int | None, ceiling: Offsets | None
) -> Offsets:
    """Where the batch ends that begins at ``start``.

    Args:
        logs: what there is.
        start: where the last batch ended.
        losses: what is to be done about lost data.
        limit: how many offsets the batch may have, shared in proportion to what waits in each partition.
        ceiling: an end that was fixed before, if the stream ends there.
    """
    losses.look_again()
    latest = reachable(latest_offsets(logs), start, ceiling, losses.report, _name)
    if limit is None:
        return latest
    found = logs.partitions()
    begins = {key: start.get(key, one.log_start_offset) for key, one in found.items() if key in latest}
    waiting = {key: max(0, latest[key] - begin) for key, begin in begins.items()}
    shares = share_out(waiting, limit, turn=sum(begins.values()))
    return latest | {key: min(latest[key], begin + shares[key]) for key, begin in begins.items()}


def to_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    """Offsets as Spark's own source writes them: by topic, then by number."""
    found: dict[str, dict[str, int]] = {}
    for (topic, number), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(number)] = offset
    return found


def from_json(offsets: Mapping[str, Mapping[str, int]]) -> Offsets:
    """The other way round; raises CorruptFileError for what is no such note."""
    with noted_offsets(offsets, '{"orders": {"0": 23}}'):
        return {
            (topic, int(number)): noted_offset(offset)
            for topic, inner in offsets.items()
            for number, offset in inner.items()
        }
