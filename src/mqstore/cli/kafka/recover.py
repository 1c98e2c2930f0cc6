"""``mqstore kafka recover``: what a broker would do to a log after a crash, told or done."""

from __future__ import annotations

from typing import Any

from mqstore.cli.kafka.options import DirectoryPath, InPlaceOption, IntervalOption, OutputOption
from mqstore.cli.options import FormatOption
from mqstore.cli.output import Format, make_output
from mqstore.kafka.loading import LoadReport
from mqstore.kafka.repair import recover


def run(
    path: DirectoryPath,
    output: OutputOption = None,
    in_place: InPlaceOption = False,
    index_interval_bytes: IntervalOption = 4096,
    format: FormatOption = Format.text,
) -> int:
    """Cut every partition's log at its first damage and make its derived files right, as a broker does after a crash.

    That removes all segments behind the damage, although they may be sound: so without --output or --in-place it is
    only told what would be done. Exit code 1: records are lost, or would be.
    """
    report = recover(path, output=output, in_place=in_place, index_interval_bytes=index_interval_bytes)
    lossy = [one for one in report.partitions if one.damage is not None or one.removed]
    done = "done" if report.was_done else "nothing was changed: give --output NEW, or --in-place"
    make_output(format).document(
        {
            "done": report.was_done,
            "output": None if report.output is None else str(report.output),
            "partitions": [_row(one) for one in report.partitions],
        },
        [
            *(line for one in report.partitions for line in _lines(one)),
            f"{len(lossy)} of {len(report.partitions)} partitions lose records; {done}",
        ],
    )
    return 1 if lossy else 0


def _row(one: LoadReport) -> dict[str, Any]:
    damage = one.damage
    return {
        "directory": str(one.directory),
        "logEndBefore": one.end_before,
        "logEndAfter": one.end_after,
        "cutBytes": one.cut_bytes,
        "removedSegments": one.removed,
        "rebuilt": one.rebuilt,
        "finishedLeftovers": one.finished,
        "damage": None
        if damage is None
        else {"path": str(damage.path), "position": damage.position, "reason": damage.reason},
    }


def _lines(one: LoadReport) -> list[str]:
    lines = []
    if one.damage is not None:
        lines.append(f"{one.directory}: {one.damage.reason} at {one.damage.position} of {one.damage.path.name}")
        lines.append(f"    log end {one.end_before} becomes {one.end_after}, {one.cut_bytes} bytes are cut off")
    if one.removed:
        lines.append(f"    segments removed: {', '.join(map(str, one.removed))}")
    if one.rebuilt:
        lines.append(f"{one.directory}: rebuilt {', '.join(one.rebuilt)}")
    return lines
