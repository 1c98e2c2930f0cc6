"""``mqstore rebuild``: queues and index anew, from the commit log alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mqstore.cli.options import FormatOption, StorePath, parse_path
from mqstore.cli.output import Format, make_output, progress_bar
from mqstore.store.rebuild import rebuild


def run(
    store: StorePath,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="PATH", help="Directory of the new store.", parser=parse_path),
    ] = None,
    in_place: Annotated[bool, typer.Option("--in-place", help="Change the store itself.")] = False,
    salvage: Annotated[bool, typer.Option("--salvage", help="Cover damage in the middle of the log.")] = False,
    format: FormatOption = Format.text,
) -> int:
    """Build consumequeue/ and index/ from the commit log, in a new directory or in place.

    Killed in the middle it leaves the original or the result, never a mix. With --salvage damaged records are covered
    and reported; at most they are lost.
    """
    with progress_bar("rebuilding") as on_progress:
        result = rebuild(store, output, in_place=in_place, salvage=salvage, on_progress=on_progress)
    losses = [
        {"path": str(loss.path), "begin": loss.begin, "end": loss.end, "reason": loss.reason} for loss in result.losses
    ]
    lines = [f"lost: offsets {loss.begin} to {loss.end} ({loss.reason})" for loss in result.losses]
    make_output(format).document(
        {
            "output": str(result.output),
            "queues": result.queues,
            "units": result.units,
            "logBytes": result.log_bytes,
            "seconds": round(result.seconds, 3),
            "losses": losses,
        },
        [*lines, f"{result.units} messages in {result.queues} queues, in {result.seconds:.1f} s: {result.output}"],
    )
    return 1 if result.losses else 0
