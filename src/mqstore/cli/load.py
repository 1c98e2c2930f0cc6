"""``mqstore load``: a table of messages into a new store, by Spark tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mqstore.cli.options import FormatOption, MasterOption, parse_path, parse_time
from mqstore.cli.output import Format, make_output, size_text, step_bar
from mqstore.cli.spark_session import spark_session
from mqstore.errors import UsageError
from mqstore.files.durable import check_can_create
from mqstore.files.stage import Stage
from mqstore.layout.constants import LONG_MAX
from mqstore.store.arguments import check_store_path, check_whole


def run(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="Files of a table: whatever Spark can load.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="PATH", help="Directory of the new store.", parser=parse_path)
    ],
    table_format: Annotated[str, typer.Option("--from", help="Spark's name of the table's format.")] = "parquet",
    option: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Option of that format, as header=true; repeatable.")
    ] = None,
    stored: Annotated[
        str | None, typer.Option(help="Store time of messages where the table has none; left out: now.")
    ] = None,
    master: MasterOption = "local[2]",
    format: FormatOption = Format.text,
) -> int:
    """Make a new store of a table with columns topic and body.

    It may also have tags, keys, properties, delayLevel, queueId, bornTimestamp and storeTimestamp. Messages are stored
    in the order of their times; the same table and store time give the same bytes.
    """
    from mqstore.spark import jobs
    from mqstore.spark.telling import refusing

    options = dict(_option(one) for one in option or ())
    stored_ms = None if stored is None else parse_time(stored, 0)
    check_whole("store time", 1 if stored_ms is None else stored_ms, 1, LONG_MAX)
    Stage(check_store_path(output).absolute())  # an output in use is told before Spark is started
    check_can_create(output.absolute())
    with spark_session("load", master) as session:
        with refusing(f"Spark cannot read {table} as {table_format}"):
            frame = session.read.format(table_format).options(**options).load(table)
        with step_bar("loading") as on_progress:
            result = jobs.load(session, frame, output.absolute(), store_timestamp_ms=stored_ms, on_progress=on_progress)
    make_output(format).document(
        result,
        [f"{result.records} messages ({size_text(result.log_bytes)}), in {result.seconds:.1f} s: {result.output}"],
    )
    return 0


def _option(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise UsageError("not an option of a format", expected="NAME=VALUE", found=repr(text))
    return name, value
