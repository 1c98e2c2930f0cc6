"""``mqstore rebuild``: queues and index anew, from the commit log alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mqstore.cli.options import FormatOption, OptionalMasterOption, StorePath, parse_path
from mqstore.cli.output import Format, Output, make_output, progress_bar, step_bar, to_json
from mqstore.cli.spark_session import spark_session
from mqstore.errors import UsageError
from mqstore.files.durable import check_can_create
from mqstore.files.stage import Stage
from mqstore.store.arguments import check_store_path
from mqstore.store.rebuild import RebuildResult, check_ways, rebuild
from mqstore.store.salvage import Loss

if TYPE_CHECKING:
    from mqstore.spark.jobs.rebuilding import RebuildResult as SparkResult


def run(
    store: StorePath,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="PATH", help="Directory of the new store.", parser=parse_path),
    ] = None,
    in_place: Annotated[bool, typer.Option("--in-place", help="Change the store itself.")] = False,
    salvage: Annotated[bool, typer.Option("--salvage", help="Cover damage in the middle of the log.")] = False,
    master: OptionalMasterOption = None,
    format: FormatOption = Format.text,
) -> int:
    """Build consumequeue/ and index/ from the commit log, in a new directory or in place.

    Killed in the middle it leaves the original or the result, never a mix. With --salvage damaged records are covered
    and reported; at most they are lost. With --master the tasks of a Spark cluster do it, without --salvage.
    """
    if master is not None:
        if salvage:
            raise UsageError("Spark does not pass over damage", hint="--salvage without --master")
        return _on_spark(store, output, in_place, master, make_output(format))
    with progress_bar("rebuilding") as on_progress:
        result = rebuild(store, output, in_place=in_place, salvage=salvage, on_progress=on_progress)
    return _tell(result, result.losses, make_output(format))


def _tell(result: RebuildResult | SparkResult, losses: Sequence[Loss], out: Output) -> int:
    lines = [f"lost: offsets {loss.begin} to {loss.end} ({loss.reason})" for loss in losses]
    if result.left_out:
        lines.append(f"{result.left_out} messages are in no queue: their records claim queues or places that cannot be")
    out.document(
        to_json(result) | {"losses": losses},
        [*lines, f"{result.units} messages in {result.queues} queues, in {result.seconds:.1f} s: {result.output}"],
    )
    return 1 if losses or result.left_out else 0


def _on_spark(store: Path, output: Path | None, in_place: bool, master: str, out: Output) -> int:
    from mqstore.spark import jobs

    check_ways(output, in_place)
    if output is not None:
        Stage(check_store_path(output).absolute(), store.absolute())  # one in use is told before Spark is started
        check_can_create(output.absolute())
    with spark_session("rebuild", master, store) as session, step_bar("rebuilding") as on_progress:
        target = None if output is None else output.absolute()
        result = jobs.rebuild(session, store.absolute(), target, in_place=in_place, on_progress=on_progress)
    return _tell(result, [], out)
