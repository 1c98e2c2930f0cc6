"""``mqstore kafka stats``: what is in a Kafka log."""

from __future__ import annotations

from typing import Any

from mqstore.cli.kafka.options import LogPath, TopicOption
from mqstore.cli.options import FormatOption
from mqstore.cli.output import Format, make_output, size_text, time_text
from mqstore.kafka.stats import PartitionStats, partition_stats
from mqstore.kafka.view import KafkaView


def run(path: LogPath, topic: TopicOption = None, format: FormatOption = Format.text) -> int:
    """Print the partitions with their offsets, segments, batches, records, codecs and span of time."""
    with KafkaView(path) as view:
        found = [partition_stats(one) for one in view.partitions() if topic is None or one.topic == topic]
        suspended = view.suspended_partitions()
        document: dict[str, Any] = {
            "path": str(path),
            "metaProperties": view.meta_properties,
            "running": view.was_aborted,
            "partitions": found,
            "odd": [str(one) for one in view.odd_partitions().values()],
            "suspended": [{"path": str(one), "state": state.value} for one, state in suspended],
        }
    output = make_output(format)
    output.table("partitions", _COLUMNS, [_row(one) for one in found])
    codecs: dict[str, list[int]] = {}
    for one in found:
        for name, count in one.batches_by_codec.items():
            total = codecs.setdefault(name, [0, 0])
            total[0] += count
            total[1] += one.bytes_by_codec[name]
    output.table("codecs", ("codec", "batches", "bytes"), [(name, *total) for name, total in sorted(codecs.items())])
    size_bytes = sum(one.size_bytes for one in found)
    output.document(
        document,
        [
            (
                f"{sum(one.records for one in found)} records in {sum(one.batches for one in found)} batches, "
                f"{size_text(size_bytes)} in {sum(one.segments for one in found)} segments"
            ),
            *(f"{state.value}: {one}" for one, state in suspended),
            *(f"no directory: {one}" for one in document["odd"]),
            f"state: {'running, or ended without a clean close' if document['running'] else 'closed, or a copy'}",
        ],
    )
    return 0


_COLUMNS = (
    "partition",
    "start",
    "end",
    "stable",
    "segments",
    "bytes",
    "batches",
    "records",
    "control",
    "largest batch",
    "newest (UTC)",
    "damaged",
)


def _row(one: PartitionStats) -> tuple[object, ...]:
    return (
        f"{one.topic}-{one.partition}",
        one.log_start_offset,
        one.log_end_offset,
        one.last_stable_offset,
        one.segments,
        one.size_bytes,
        one.batches,
        one.records,
        one.control_batches,
        one.largest_batch_bytes,
        time_text(one.max_timestamp_ms) if one.max_timestamp_ms >= 0 else None,
        one.damaged,
    )
