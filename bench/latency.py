"""How long single puts take beside RocketMQ, and what four producer threads put against one.

    python bench/latency.py [--rounds 5] [--count 200000] [--versions 4.9.8] [--directory DIR]

Files of the log are small enough that several are begun in a round, the log is synced in the background, queues and
index are built, and consumers get everything meanwhile. Times are those of the caller of ``put``. The results go to
``bench/results/latency.json`` and ``latency.md``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
sys.path.insert(0, str(ROOT / "bench"))

from peers import ABOUT, find_peers

from mqstore.bench import machine, store_report, stores
from mqstore.bench.cells import run_cell

FILE_BYTES = 32 << 20
CONSUMERS = 2
PERCENTILES = {"p50_us": "p50", "p99_us": "p99", "p999_us": "p99.9", "max_us": "longest"}
CASES = (
    {"threads": 1, "mode": "ASYNC_FLUSH"},
    {"threads": 4, "mode": "ASYNC_FLUSH"},
    {"threads": 1, "mode": "SYNC_FLUSH"},
    {"threads": 8, "mode": "SYNC_FLUSH"},
)


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """All rounds of all cases, everyone in each."""
    results: dict[str, Any] = {"machine": machine.machine(), "file_system": machine.file_system(arguments.directory)}
    results |= {"rounds": arguments.rounds, "count": arguments.count, "cases": []}
    with tempfile.TemporaryDirectory(prefix="mqstore-bench-", dir=arguments.directory) as scratch:
        peers = find_peers(arguments.versions, Path(scratch))
        for case in CASES:
            count = arguments.count if case["mode"] == "ASYNC_FLUSH" else max(64, arguments.count // 50)
            options = {**case, "consumers": CONSUMERS, "file_bytes": FILE_BYTES, "time_each": True}
            cells: dict[str, list[dict[str, Any]]] = {}
            for _ in range(arguments.rounds):
                for name in ("mqstore", *peers):
                    with tempfile.TemporaryDirectory(dir=scratch) as place:
                        cells.setdefault(name, []).append(one(name, peers, Path(place, "store"), count, options))
            results["cases"].append({**options, "count": count, "cells": cells})
            print(f"{case}: {results['rounds']} rounds", file=sys.stderr, flush=True)
    return results


def one(name: str, peers: dict[str, Any], directory: Path, count: int, options: dict[str, Any]) -> dict[str, Any]:
    """One round of ours or of a peer's."""
    if name in peers:
        figures: dict[str, Any] = peers[name]("put", directory, count, options)
        return figures
    return run_cell(stores.CELL, {"work": "put", "directory": str(directory), "count": count, "options": options}, 300)


def report(results: dict[str, Any]) -> str:
    """The results as Markdown."""
    lines = [
        "# Latency of puts",
        "",
        f"{results['machine']}; stores on {results['file_system']}; log files of {FILE_BYTES >> 20} MiB.",
        ABOUT,
        f"1 KiB bodies, {CONSUMERS} threads that consume meanwhile; {results['rounds']} rounds, in each of them",
        "everyone once, one after the other. Medians over the rounds (lowest to highest), µs.",
        "",
        "| | messages | " + " | ".join(PERCENTILES.values()) + " | puts a second |",
        "|---|---:|" + "---:|" * (len(PERCENTILES) + 1),
    ]
    for case in results["cases"]:
        for name, cells in case["cells"].items():
            good = [cell for cell in cells if "failed" not in cell]
            threads = f"{case['threads']} thread{'s' if case['threads'] > 1 else ''}"
            names = (*PERCENTILES, "per_second")
            figures = [machine.spread([cell[figure] for cell in good]) if good else "–" for figure in names]
            lines.append(f"| {case['mode']}, {threads}: {name} | {case['count']:,} | " + " | ".join(figures) + " |")
    lines += ["", "Four producers against one, puts a second under ASYNC_FLUSH (medians):", ""]
    lines += ["| | ratio |", "|---|---:|"]
    one_thread, four = (case["cells"] for case in results["cases"][:2])
    for name in one_thread:
        alone, together = store_report.rates(one_thread[name]), store_report.rates(four[name])
        if alone and together:
            lines.append(f"| {name} | {statistics.median(together) / statistics.median(alone):.2f} |")
    return "\n".join(lines) + "\n"


def main(words: list[str] | None = None) -> dict[str, Any]:
    """Measure, print and keep the report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", type=int, default=200_000)
    parser.add_argument("--versions", default="4.9.8", help="releases of RocketMQ to measure beside; empty: none")
    parser.add_argument("--directory", type=Path, help="where the stores go; default: the temporary directory")
    parser.add_argument("--output", type=Path, default=ROOT / "bench" / "results")
    arguments = parser.parse_args(words)
    results = measure(arguments)
    text = report(results)
    print(text)
    arguments.output.mkdir(parents=True, exist_ok=True)
    (arguments.output / "latency.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    (arguments.output / "latency.md").write_text(text, encoding="utf-8")
    return results


if __name__ == "__main__":
    main()
