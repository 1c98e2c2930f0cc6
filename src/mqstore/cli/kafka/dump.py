"""``mqstore kafka dump``: the records or batches of a Kafka log, or the entries of one of its small files."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

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
from mqstore.cli.kafka.rows import batch_json, batch_line, content_json, content_line, record_json, record_line
from mqstore.cli.kafka.small_files import Rows, rows_of
from mqstore.cli.options import FormatOption, parse_time
from mqstore.cli.output import Format, Output, make_output
from mqstore.kafka.damage import BatchDamage
from mqstore.kafka.partition_view import PartitionView
from mqstore.kafka.records import records_of
from mqstore.kafka.view import KafkaView
from mqstore.layout.constants import LONG_MAX, LONG_MIN
from mqstore.layout.kafka.batch import BatchHeader
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
    records: Annotated[
        bool, typer.Option("--records", help="With --batches: the records of each batch behind it.")
    ] = False,
    skip_record_metadata: Annotated[
        bool, typer.Option("--skip-record-metadata", help="Of records only key, value and headers.")
    ] = False,
    as_text: Annotated[
        bool, typer.Option("--as-text", help="In JSON, keys and values that are UTF-8 as text: keyText, valueText.")
    ] = False,
    limit: Annotated[int | None, typer.Option("--max", "-m", min=1, help="At most this many lines.")] = None,
    skip_damage: SkipDamageOption = False,
    format: FormatOption = Format.text,
) -> int:
    """Print the records of a Kafka log, or its batches: one line, or one JSON object, for each.

    PATH may also be a single .log, .index, .timeindex, .txnindex, .snapshot or checkpoint file. Records of
    __consumer_offsets and __transaction_state are decoded. What is said of a batch stands with --batches, once.
    Where --max cuts, standard error tells where to go on. Damage is told there, too, and ends the partition's dump,
    with exit code 1.
    """
    output = make_output(format)
    rows = rows_of(path)
    if rows is not None:
        of_logs = {
            "--topic": topic, "--partition": partition, "--start": start, "--end": end, "--begin-time": begin_time,
            "--end-time": end_time, "--key": key, "--producer": producer, "--codec": codec, "--control": control,
            "--committed": committed or None, "--batches": batches or None, "--records": records or None,
            "--skip-record-metadata": skip_record_metadata or None,
        }  # fmt: skip
        _refuse_all([name for name, value in of_logs.items() if value is not None], path)
        _print_entries(rows, limit, output)
        return 0
    wanted = Wanted(
        start or 0,
        LONG_MAX if end is None else end,
        parse_time(begin_time, LONG_MIN),
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
    style = _Style(batches, records or not batches, skip_record_metadata, as_text)
    with KafkaView(path) as view:
        _print_lines(_lines(wanted_partitions(view, topic, partition), wanted, damages, style), limit, output)
        has_odd = bool(view.odd_partitions()) and (topic, partition) == (None, None)  # the view has warned of them
    return 1 if damages.count or has_odd else 0


def _print_entries(rows: Rows, limit: int | None, output: Output) -> None:
    for row in rows[:limit]:
        output.row(row, " ".join(f"{name}={value}" for name, value in row.items()))
    if limit is not None and len(rows) > limit:
        _tell(f"cut at --max {limit}: {len(rows) - limit} more entries")


def _print_lines(lines: Iterator[_Line], limit: int | None, output: Output) -> None:
    for number, line in enumerate(lines):
        if number == limit:
            _tell(
                f"cut at --max {limit}: go on with --topic {line.topic} --partition {line.partition} "
                f"--start {line.offset}, then with the partitions behind it"
            )
            break
        output.row(line.row, line.text)


def _refuse_all(options: list[str], path: Path) -> None:
    if options:
        raise errors.UsageError(
            f"{options[0]} chooses from records, of which this file holds none", path=path,
            hint="leave it out, or give the .log or its directory",
        )  # fmt: skip


def _tell(text: str) -> None:
    sys.stdout.flush()  # what was cut comes first where both streams go to one place
    sys.stderr.write(f"{text}\n")


class _Style(NamedTuple):
    """What is printed of a log, and how."""

    batches: bool
    records: bool
    only_content: bool
    as_text: bool


class _Line(NamedTuple):
    """One line of output, and the offset of what it is about."""

    topic: str
    partition: int
    offset: int
    row: dict[str, Any]
    text: str


def _lines(partitions: list[PartitionView], wanted: Wanted, damages: Damages, style: _Style) -> Iterator[_Line]:
    """What is wanted of the partitions, in order."""
    for one in partitions:
        names = one.topic, one.partition
        wanted_here = wanted.within(one)
        for place in wanted_batches(one, wanted_here, damages):
            header = place.header
            if style.batches:
                yield _Line(*names, header.base_offset, batch_json(*names, place), batch_line(*names, place))
            if not style.records:
                continue
            try:
                records = records_of(place.segment, place.position, header, place.buffer)
            except errors.CorruptBatchError as error:
                damage = BatchDamage(place.segment.path(), place.position, str(error.found or error.message))
                if damages(damage):
                    continue
                break
            for record in filter(wanted_here.wants_record, records):
                yield _record_line(one, header, record, style)


def _record_line(partition: PartitionView, header: BatchHeader, record: Record, style: _Style) -> _Line:
    names = partition.topic, partition.partition
    if style.only_content:
        return _Line(*names, record.offset, content_json(record, as_text=style.as_text), content_line(record))
    row = record_json(*names, header, record, as_text=style.as_text)
    return _Line(*names, record.offset, row, record_line(*names, header, record))
