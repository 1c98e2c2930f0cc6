"""``mqstore truncate``: a copy of a store that ends earlier."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mqstore.cli.options import FormatOption, StorePath, parse_path
from mqstore.cli.output import Format, make_output, progress_bar, to_json
from mqstore.store.rebuild import truncate


def run(
    store: StorePath,
    at: Annotated[
        int, typer.Option("--at", metavar="OFFSET", help="Physical offset where the log shall end: a record's start.")
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="PATH", help="Directory of the new store.", parser=parse_path)
    ],
    format: FormatOption = Format.text,
) -> int:
    """Copy a store up to a physical offset; queues, index and progress go back with the log.

    For a store whose end should never have been written. `mqstore dump` tells the offsets of records. The store itself
    stays as it is.
    """
    with progress_bar("truncating") as on_progress:
        result = truncate(store, at, output, on_progress=on_progress)
    make_output(format).document(
        to_json(result) | {"logEnd": at},
        [f"{result.units} messages in {result.queues} queues up to offset {at}: {result.output}"],
    )
    return 0
