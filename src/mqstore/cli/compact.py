"""``mqstore compact``: small Parquet files of exports into large ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mqstore.cli.options import FormatOption, MasterOption, parse_path
from mqstore.cli.output import Format, make_output, size_text, step_bar
from mqstore.cli.spark_session import spark_session


def run(
    output: Annotated[
        Path, typer.Argument(metavar="OUTPUT", help="Directory that exports have written to.", parser=parse_path)
    ],
    target_mib: Annotated[int, typer.Option(min=1, help="About how large files shall be, in MiB.")] = 128,
    master: MasterOption = "local[2]",
    format: FormatOption = Format.text,
) -> int:
    """Merge the small files of exports, directory by directory; the rows stay the same.

    Killed in the middle it leaves the old files of a directory or the new, never both or neither.
    """
    from mqstore.spark import jobs
    from mqstore.spark.jobs.compacting import check_compact

    check_compact(output, target_file_bytes=target_mib << 20)  # told before Spark is started
    with spark_session("compact", master) as session, step_bar("compacting") as on_progress:
        result = jobs.compact(session, output.absolute(), target_file_bytes=target_mib << 20, on_progress=on_progress)
    before = f"{result.files_before} files ({size_text(result.bytes_before)})"
    after = f"{result.files_after} ({size_text(result.bytes_after)})"
    line = f"{before} have become {after}, in {result.seconds:.1f} s"
    make_output(format).document(result, [line])
    return 0
