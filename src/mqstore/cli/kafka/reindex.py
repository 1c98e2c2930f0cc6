"""``mqstore kafka reindex``: offset, time and transaction indexes anew, from the segments alone."""

from __future__ import annotations

from mqstore import errors
from mqstore.cli.kafka.options import DirectoryPath, InPlaceOption, IntervalOption, OutputOption
from mqstore.cli.options import FormatOption
from mqstore.cli.output import Format, make_output
from mqstore.kafka.damage import BatchDamage
from mqstore.kafka.repair import reindex


def run(
    path: DirectoryPath,
    output: OutputOption = None,
    in_place: InPlaceOption = False,
    index_interval_bytes: IntervalOption = 4096,
    format: FormatOption = Format.text,
) -> int:
    """Build the index files of every segment from its batches, into a new directory or in place; logs stay as they are.

    With --output only index files are written there. In place those that differ are replaced; not while a broker runs.
    The indexes of a damaged segment end at the damage, which is told, with exit code 1: recover is what cuts it off.
    """
    if (output is None) != in_place:
        raise errors.UsageError("give either an output directory or in_place", hint="--output NEW, or --in-place")
    damages: list[BatchDamage] = []

    def note(damage: BatchDamage) -> bool:
        damages.append(damage)
        return True

    written = reindex(path, output=output, in_place=in_place, index_interval_bytes=index_interval_bytes, on_damage=note)
    make_output(format).document(
        {
            "output": str(output or path),
            "written": [str(one) for one in written],
            "damages": [{"path": str(one.path), "position": one.position, "reason": one.reason} for one in damages],
        },
        [
            *map(str, written),
            *(f"damage in {one.path} @ {one.position}: {one.reason}; its indexes end there" for one in damages),
            f"{len(written)} index files written",
        ],
    )
    return 1 if damages else 0
