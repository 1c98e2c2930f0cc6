"""``mqstore kafka import``: records from JSON lines into a Kafka log; the other way round of ``dump``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mqstore import errors
from mqstore.cli.kafka.filters import parse_codec
from mqstore.cli.options import FormatOption, parse_path, standard_input
from mqstore.cli.output import Format, make_output


def run(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="Lines of mqstore kafka dump --format json; - is standard input.", parser=parse_path
        ),
    ],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="PATH", help="Data directory; new or empty.", parser=parse_path),
    ],
    topic: Annotated[str | None, typer.Option("--topic", "-t", help="The topic of all records.")] = None,
    append: Annotated[
        bool, typer.Option("--append", help="Append to the log at --output; offsets are those that come next there.")
    ] = False,
    codec: Annotated[str, typer.Option(help="Codec of the batches written: none, gzip, snappy, lz4, zstd.")] = "none",
    format: FormatOption = Format.text,
) -> int:
    """Write records that were dumped as JSON lines, and edited since, into a Kafka log.

    Keys, values and headers are base64, or text as keyText and valueText. In a new directory records keep their
    offsets; a line without one gets the next. With --append they get those that come next in the log; what lines say
    of their time holds, and a line that says nothing gets the time of the import. A bad line is told by its number, and
    nothing is made or appended.
    """
    from mqstore.convert.from_lines import from_lines

    settings = {"compression_type": parse_codec(codec).name.lower()}
    try:
        file = standard_input() if str(source) == "-" else source.open("rb")
    except OSError as error:
        raise errors.from_os_error(error, "open", source) from error
    with file:
        report = from_lines(file, output, topic=topic, append=append, settings=settings)
    control = report.control_records
    make_output(format).document(
        {
            "output": str(report.output),
            "records": report.records,
            "partitions": [
                {"topic": name, "partition": number, "records": count}
                for (name, number), count in sorted(report.partitions.items())
            ],
            "controlRecords": control,
        },
        [
            *([f"{control} control records were left out"] if control else []),
            f"{report.records} records in {len(report.partitions)} partitions: {report.output}",
        ],
    )
    return 0
