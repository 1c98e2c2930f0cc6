"""``mqstore kafka compare``: whether two replicas hold the same."""

from __future__ import annotations

from typing import Annotated

import typer

from mqstore.cli.kafka.options import LogPath, PartitionOption, TopicOption
from mqstore.cli.options import FormatOption
from mqstore.cli.output import Format, make_output
from mqstore.kafka.compare import OffsetRange, PartitionComparison, compare

EXIT_COULD_NOT_LOOK = 2


def run(
    a: LogPath,
    b: LogPath,
    topic: TopicOption = None,
    partition: PartitionOption = None,
    common: Annotated[
        bool, typer.Option("--common", help="Only offsets that both have: one may lag, or have removed more.")
    ] = False,
    compacted: Annotated[
        bool | None,
        typer.Option(
            "--compacted/--strict",
            help="Compaction explains records that only one has / explains nothing. By default it does in partitions "
            "that the cleaner-offset-checkpoint beside either copy names.",
            show_default=False,
        ),
    ] = None,
    format: FormatOption = Format.text,
) -> int:
    """Compare two copies of the same partitions: whole data directories, or a partition's directory each.

    Batches of the same offsets must have the same checksum; where they were compacted differently, their records are
    compared. The first offset that differs is told for each partition, and what only one of them has. Exit codes: 0
    the same, 1 different, 2 could not look.
    """
    found = compare(a, b, topic=topic, partition=partition, compacted=compacted)
    different = [one for one in found if one.differs(common_only=common)]
    make_output(format).document(
        {
            "partitions": [one.as_dict() for one in found],
            "summary": {"partitions": len(found), "different": len(different)},
        },
        [
            *(line for one in found for line in _lines(one)),
            f"{len(different)} of {len(found)} partitions differ"
            if different
            else f"the same: {len(found)} partitions",
        ],
    )
    return 1 if different else 0


def _lines(one: PartitionComparison) -> list[str]:
    name = f"{one.topic}-{one.partition}"
    lines = []
    if one.first_difference is not None:
        lines.append(f"{name}: differs from offset {one.first_difference} on: {one.reason}")
    for side, own, ranges in (("A", one.range_a, one.only_a), ("B", one.range_b, one.only_b)):
        if own is None:
            lines.append(f"{name}: {side} has no such partition")
        lines += [f"{name}: only {side} has {_text(part)}" for part in ranges]
    if one.undecided:
        lines.append(f"{name}: {one.undecided} records that only one has: lost, or removed with their tombstones since")
    return lines


def _text(part: OffsetRange) -> str:
    return f"offsets {part.start} to {part.end - 1}"
