"""``mqstore bench layouts``: one log for all topics against a log for each, as topics grow."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from mqstore import errors
from mqstore.bench import layout_report
from mqstore.bench.layouts import Cell, Plan
from mqstore.bench.layouts import run as measure
from mqstore.cli.bench.options import AddOption, DirectoryOption, ResultsOption, RoundsOption, parse_numbers
from mqstore.cli.options import FormatOption
from mqstore.cli.output import Format, make_output, step_bar


def run(
    topics: Annotated[str, typer.Option(help="Numbers of topics.")] = "1,64,1024,10000",
    batches: Annotated[str, typer.Option(help="Messages an append.")] = "4",
    mebibytes: Annotated[int, typer.Option(min=1, help="Payload of a cell.")] = 32,
    size: Annotated[int, typer.Option(min=1, help="Bytes of a message.")] = 1024,
    barrier: Annotated[int, typer.Option(min=1, help="MiB between two barriers, where there are any.")] = 8,
    read_messages: Annotated[int, typer.Option(min=1, help="How many messages to read back at least.")] = 2000,
    rounds: RoundsOption = 3,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds after which a step counts as not finished.")] = 300,
    add: AddOption = False,
    directory: DirectoryOption = None,
    output: ResultsOption = Path("bench-results"),
    format: FormatOption = Format.text,
) -> int:
    """Measure both layouts under the same messages: write with and without barriers, crash, recover, read.

    The results are layouts.json, layouts.md and, with matplotlib, layouts.svg in the output directory; what they mean
    is in docs/layouts.md. The machine should have nothing else to do. Exit code 1: a cell was not finished.
    """
    if size > mebibytes << 20:
        raise errors.UsageError("a message is larger than the payload", expected=f"{mebibytes} MiB at most", found=size)
    plan = Plan(
        parse_numbers(topics, "--topics"), parse_numbers(batches, "--batches"), mebibytes, size, barrier,
        read_messages, rounds, timeout, directory,
    )  # fmt: skip
    with step_bar("measuring") as on_step:

        def on_cell(cell: Cell | None, done: int, total: int) -> None:
            on_step(done, total)
            if cell is not None and not sys.stderr.isatty():
                sys.stderr.write(f"{done} of {total}: {layout_report.describe(cell)}\n")

        cells = measure(plan, output, add=add, on_cell=on_cell)
    failures = [layout_report.describe(cell) for cell in cells if layout_report.failure(cell)]
    make_output(format).document(
        {"output": str(output), "cells": cells, "failures": failures},
        [
            *layout_report.report(cells, plan).splitlines(),
            f"results in {output}{'' if (output / 'layouts.svg').exists() else '; for curves, install matplotlib'}",
        ],
    )
    return 1 if failures else 0
