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
    SqlOption,
    StorePath,
    TopicOption,
    parse_path,
    parse_time,
)
from mqstore.cli.output import Format, make_output, size_text, step_bar
from mqstore.cli.spark_session import spark_session
from mqstore.errors import UsageError
from mqstore.layout.constants import LONG_MAX
from mqstore.layout.sql92 import SqlExpression
from mqstore.store.arguments import check_window


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
    sql: SqlOption = None,
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

    if where is not None and sql is not None:
        raise UsageError("give either --where or --sql")
    if sql is not None:
        SqlExpression.parse(sql)
        where = f"({sql})"  # no tag, even if it is one word
    begin_ms, end_ms = parse_time(begin, 0), parse_time(end, LONG_MAX - 1)
    check_window(begin_ms, end_ms)
    options = {
        "subscribe": topic,
        "where": where,
        "startingTimestamp": None if begin is None else begin_ms,
        "endingTimestamp": None if end is None else end_ms + 1,
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
