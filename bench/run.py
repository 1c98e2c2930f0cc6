"""Measure mqstore beside the real RocketMQ store, on the same machine, in the same run.

    python bench/run.py [--rounds 5] [--count 100000] [--versions 4.9.8,5.5.1] [--directory DIR] [--only TEXT] [--quick]

The rows are those of ``mqstore bench store``; in each round RocketMQ does the same as mqstore has just done. Before it
puts, it puts as many messages again that are not timed, for its virtual machine to compile what is measured. Results
are medians with the lowest and highest round, and ratios of medians; they go to ``bench/results/`` as JSON and
Markdown. ``peers.py`` is what the other benchmarks here have in common with this one.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
sys.path.insert(0, str(ROOT / "bench"))

from peers import ABOUT, find_peers

from mqstore.bench import store_report, stores
from mqstore.bench.stores import Plan, Row


def main(words: list[str] | None = None) -> dict[str, Any]:
    """Measure, print and keep the report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--only", default="", help="rows with this text in their names")
    parser.add_argument("--add", action="store_true", help="keep the other rows of earlier runs")
    parser.add_argument("--versions", default="4.9.8,5.5.1", help="releases of RocketMQ to measure beside; empty: none")
    parser.add_argument("--directory", type=Path, help="where the stores go; default: the temporary directory")
    parser.add_argument("--output", type=Path, default=ROOT / "bench" / "results")
    parser.add_argument("--quick", action="store_true", help="one small round, to see that everything runs")
    arguments = parser.parse_args(words)
    if arguments.quick:
        arguments.rounds, arguments.count = 1, 1000
    with tempfile.TemporaryDirectory(prefix="mqstore-bench-", dir=arguments.directory) as scratch:
        results = stores.run(
            Plan(arguments.count, arguments.rounds, arguments.only, directory=arguments.directory),
            arguments.output,
            peers=find_peers(arguments.versions, Path(scratch)),
            about_peers=ABOUT,
            add=arguments.add,
            on_row=tell,
        )
    print(store_report.report(results))
    return results


def tell(row: Row, done: int, total: int) -> None:
    """Say on standard error what is measured now."""
    print(f"{done + 1} of {total}: {row.name}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
