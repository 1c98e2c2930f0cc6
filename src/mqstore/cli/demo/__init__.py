"""``mqstore demo``: the whole way of a message, on real data, in about three minutes.

One module a step: ``broker_store`` shows a store that a real RocketMQ broker wrote (``broker-store.tar.xz``, made with
broker 4.9.8 and its own client), ``flights`` puts a year of departures from New York into a new store, ``pipeline``
runs it through Spark, ``questions`` asks it things, ``picture`` draws it.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Annotated

import typer

from mqstore import errors
from mqstore.cli.demo.stage import Stage
from mqstore.cli.options import FormatOption, check_master
from mqstore.cli.output import Format, make_output
from mqstore.store.arguments import check_store_path

MARK = "made-by-mqstore-demo"


def run(
    output: Annotated[Path, typer.Option("--output", "-o", help="Directory for everything the demo makes.")] = Path(
        "demo-out"
    ),
    flights: Annotated[int | None, typer.Option(min=1, help="Only so many flights; left out: all 336,776.")] = None,
    master: Annotated[str, typer.Option(help="Spark master.")] = "local[2]",
    format: FormatOption = Format.text,
) -> int:
    """Show it all: a real broker's store, a year of flights as messages, Spark, questions, a picture."""
    from mqstore.cli.demo import broker_store, picture, pipeline, questions
    from mqstore.cli.demo import flights as flights_step

    check_master(master)
    _prepare(check_store_path(output))
    stage = Stage(quiet=format is Format.json)
    started = time.monotonic()
    broker = broker_store.show(stage, output / "broker-store")
    load = flights_step.load(stage, output / "flights", flights)
    result = pipeline.run(stage, output, load, master)
    questions.ask(stage, output / "flights", load)
    chart = picture.draw(stage, result.per_day, output / "messages-per-day.png")
    seconds = time.monotonic() - started
    where = {
        "brokerStore": str(output / "broker-store"),
        "flightsStore": str(output / "flights"),
        "parquet": str(result.parquet),
        "rebuiltStore": str(result.rebuilt),
        "picture": str(chart),
    }
    make_output(format).document(
        {"brokerMessages": broker, "flightMessages": load.messages, "parquetRows": result.rows,
         "identicalFiles": result.identical_files, "seconds": round(seconds, 1), "where": where},
        ["", f"done in {seconds:.0f} s; everything lies in {output.resolve()}:",
         *(f"  {Path(path).name:<22} {name}" for name, path in where.items())],
    )  # fmt: skip
    return 0


def _prepare(output: Path) -> None:
    """Begin with an empty directory; one that the demo did not make is left alone."""
    if output.exists() and (not output.is_dir() or (any(output.iterdir()) and not (output / MARK).exists())):
        raise errors.UsageError("the directory holds other things", path=output, hint="give a new --output directory")
    shutil.rmtree(output, ignore_errors=True)
    try:
        output.mkdir(parents=True)
        (output / MARK).touch()
    except OSError as error:
        raise errors.from_os_error(error, "make the demo's directory", output) from error
