"""``mqstore export``: messages as Parquet files, written by Spark tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from mqstore.cli.options import (
    BeginOption,
    EndOption,
    FormatOption,
    MasterOption,
    StorePath,
    TopicOption,
    parse_path,
    parse_time,
)
from mqstore.cli.output import Format, make_output, size_text, step_bar
from mqstore.cli.spark_session import spark_session


def run(
    store: StorePath,
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="PATH", help="Directory or URL for the Parquet files.", parser=parse_path
        ),
    ],
    topic: TopicOption = None,
    where: Annotated[
        str | None,
        typer.Option(
            "--where",
            "-w",
            help='Tags to pick, as "paid || refunded", or a condition: "amount > 10".',
        ),
    ] = None,
    begin: BeginOption = None,
    end: EndOption = None,
    columns: Annotated[
        str | None, typer.Option(help="Columns to write, with commas; left out: all but propertiesString.")
    ] = None,
    partition_by: Annotated[
        str, typer.Option(help="Directories to divide the files among: topic,date or one of these or nothing.")
    ] = "topic,date",
    delta: Annotated[bool, typer.Option("--delta", help="Commit the files to a Delta table there.")] = False,
    job_id: Annotated[
        str | None,
        typer.Option(help="Name of the job, to add to an output that holds another; left out: by what is asked for."),
    ] = None,
    master: MasterOption = "local[2]",
    format: FormatOption = Format.text,
) -> int:
    """Export messages to Parquet, in directories topic=T/date=YYYY-MM-DD (UTC); the same export again does nothing."""
    from mqstore.spark import jobs
    from mqstore.spark.jobs.exporting import check_export

    options = {
        "subscribe": topic,
        "where": where,
        "startingTimestamp": None if begin is None else str(parse_time(begin, 0)),
        "endingTimestamp": None if end is None else str(parse_time(end, 0) + 1),
    }
    asked: dict[str, Any] = {
        "job_id": job_id,
        "options": {name: value for name, value in options.items() if value is not None},
        "columns": columns,
        "partition_by": partition_by,
        "table_format": "delta" if delta else "parquet",
    }
    check_export(store, output, **asked)  # what cannot be meant is told before Spark is started
    with spark_session("export", master, store) as session, step_bar("exporting") as on_progress:
        result = jobs.export(session, store.absolute(), output.absolute(), **asked, on_progress=on_progress)
    done = "done before" if result.replayed else f"in {result.seconds:.1f} s"
    make_output(format).document(
        result,
        [f"{result.rows} messages in {result.files} files ({size_text(result.bytes)}), {done}: {result.output}"],
    )
    return 0
