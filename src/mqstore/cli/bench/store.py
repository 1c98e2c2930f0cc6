"""``mqstore bench store``: how fast a store is on this machine, beside its limits and what else there is."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from mqstore.bench import store_report
from mqstore.bench.stores import Plan, Row
from mqstore.bench.stores import run as measure
from mqstore.cli.bench.options import AddOption, DirectoryOption, ResultsOption, RoundsOption
from mqstore.cli.options import FormatOption
from mqstore.cli.output import Format, make_output, step_bar


def run(
    count: Annotated[int, typer.Option(min=1, help="Messages of a row; some take a part of it.")] = 100_000,
    rounds: RoundsOption = 5,
    only: Annotated[str, typer.Option(metavar="TEXT", help="Only rows with this in their name.")] = "",
    timeout: Annotated[float, typer.Option(min=1, help="Seconds after which a row counts as not finished.")] = 300,
    add: AddOption = False,
    directory: DirectoryOption = None,
    output: ResultsOption = Path("bench-results"),
    format: FormatOption = Format.text,
) -> int:
    """Measure put, batch, table, get, query and open, beside what the machine can do and what SQLite would.

    persist-queue and litequeue are measured, too, if they are installed (the extra bench brings them). The results
    are store.json and store.md in the output directory. With MQSTORE_PURE=1 in the environment the kernels in plain
    Python are measured. The machine should have nothing else to do. Exit code 1: a row was not finished.
    """
    plan = Plan(count, rounds, only, timeout, directory)
    with step_bar("measuring") as on_step:

        def on_row(row: Row, done: int, total: int) -> None:
            on_step(done, total)
            if not sys.stderr.isatty():
                sys.stderr.write(f"{done + 1} of {total}: {row.name}\n")

        results = measure(plan, output, add=add, on_row=on_row)
    failures = [f"{row['name']}: {why}" for row in results["rows"] for why in store_report.failed(row)]
    make_output(format).document(
        {"output": str(output), "results": results, "failures": failures},
        [*store_report.report(results).splitlines(), f"results in {output}"],
    )
    is_whole = all("failed" not in cell for row in results["rows"] for cell in (*row["ours"], *row["limit"]))
    return 0 if is_whole else 1
