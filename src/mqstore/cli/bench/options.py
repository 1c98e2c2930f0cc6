"""Parameters that the benchmarks share, and how their texts are read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mqstore import errors
from mqstore.cli.options import parse_path

RoundsOption = Annotated[int, typer.Option(min=1, help="How often to measure each cell; medians are told.")]
AddOption = Annotated[bool, typer.Option("--add", help="Keep the cells of earlier runs in the output.")]
DirectoryOption = Annotated[
    Path | None,
    typer.Option(metavar="PATH", help="Where the data goes; default: the temporary directory.", parser=parse_path),
]
ResultsOption = Annotated[
    Path, typer.Option("--output", "-o", metavar="PATH", help="Directory for the results.", parser=parse_path)
]


def parse_numbers(text: str, option: str) -> tuple[int, ...]:
    """``1,64`` as numbers.

    Raises:
        UsageError: it is something else.
    """
    try:
        return tuple(int(one) for one in text.split(","))
    except ValueError:
        raise errors.UsageError(f"{option} wants numbers", expected="such as 1,64", found=text) from None
