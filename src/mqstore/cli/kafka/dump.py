"""``mqstore kafka dump``: the records or batches of a Kafka log, or the entries of one of its small files."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Annotated

import typer

from mqstore import errors
from mqstore.cli.kafka.filters import Damages, Wanted, parse_codec, wanted_batches, wanted_partitions
from mqstore.cli.kafka.options import (
    BeginTimeOption,
    EndOption,
    EndTimeOption,
    LogPath,
    PartitionOption,
    SkipDamageOption,
    StartOption,
    TopicOption,
    parse_key,
)
from mqstore.cli.kafka.rows import batch_json, batch_line, record_json, record_line
from mqstore.cli.kafka.small_files import rows_of
from mqstore.cli.options import FormatOption, parse_time
from mqstore.cli.output import Format, Output, make_output
from mqstore.kafka.damage import BatchDamage
from mqstore.kafka.lookup import BatchPlace
from mqstore.kafka.partition_view import PartitionView
from mqstore.kafka.records import records_of
from mqstore.kafka.view import KafkaView
from mqstore.layout.constants import LONG_MAX
from mqstore.layout.kafka.record import Record


def run(
    path: LogPath,
    topic: TopicOption = None,
    partition: PartitionOption = None,
    start: StartOption = None,
    end: EndOption = None,
    begin_time: BeginTimeOption = None,
    end_time: EndTimeOption = None,
    key: Annotated[str | None, typer.Option("--key", "-k", help="Only this key: text, or base64:BYTES.")] = None,
    producer: Annotated[int | None, typer.Option(help="Only batches of this producer id.")] = None,
    codec: Annotated[str | None, typer.Option(help="Only this codec: none, gzip, snappy, lz4, zstd.")] = None,
    control: Annotated[bool | None, typer.Option(help="Only control batches, or none of them.")] = None,
    committed: Annotated[
        bool, typer.Option("--committed", help="Only what a read_committed consumer is shown.")
    ] = False,
    batches: Annotated[bool, typer.Option("--batches", help="Print batches, not their records.")] = False,
    limit: Annotated[int | None, typer.Option("--max", "-m", min=1, help="At most this many lines.")] = None,
    skip_damage: SkipDamageOption = False,
    format: FormatOption = Format.text,
) -> int:
    """Print the records of a Kafka log, or its batches: one line, or one JSON object, for each.

    PATH may also be a single .log, .index, .timeindex, .txnindex, .snapshot or checkpoint file. Records of
    __consumer_offsets and __transaction_state are decoded. Damage is told on standard error and ends the partition's
    dump, with exit code 1.
    """
    output = make_output(format)
    rows = rows_of(path)
    if rows is not None:
        for row in rows:
            output.row(row, " ".join(f"{name}={value}" for name, value in row.items()))
        return 0
    wanted = Wanted(
        start or 0,
        LONG_MAX if end is None else end,
        parse_time(begin_time, -1),
        parse_time(end_time, LONG_MAX),
        parse_key(key),
        producer,
        None if codec is None else parse_codec(codec),
        control,
        committed,
    )
    if wanted.start > wanted.end or wanted.begin_ms > wanted.end_ms:
        raise errors.UsageError(
            "what is asked for begins behind its end",
            found=f"{start} to {end}" if wanted.start > wanted.end else f"{begin_time} to {end_time}",
        )
    damages = Damages(skip_damage)
    with KafkaView(path) as view:
        found = wanted_partitions(view, topic, partition)
        lines = _batch_lines(output, found, wanted, damages) if batches else _records(output, found, wanted, damages)
        for _ in itertools.islice(lines, limit):
            pass
    return 1 if damages.count else 0


def _batch_lines(
    output: Output, partitions: list[PartitionView], wanted: Wanted, damages: Damages
) -> Iterator[BatchPlace]:
    """Print the wanted batches, one at each step."""
    for one in partitions:
        for place in wanted_batches(one, wanted, damages):
            output.row(batch_json(one.topic, one.partition, place), batch_line(one.topic, one.partition, place))
            yield place


def _records(output: Output, partitions: list[PartitionView], wanted: Wanted, damages: Damages) -> Iterator[Record]:
    """Print the wanted records, one at each step."""
    for one in partitions:
        for place in wanted_batches(one, wanted, damages):
            try:
                records = records_of(place.segment, place.position, place.header, place.buffer)
            except errors.CorruptBatchError as error:
                damage = BatchDamage(place.segment.path(), place.position, str(error.found or error.message))
                if damages(damage):
                    continue
                break
            names = one.topic, one.partition
            for record in filter(wanted.wants_record, records):
                output.row(record_json(*names, place.header, record), record_line(*names, place.header, record))
                yield record
