"""How costs grow with the work: mqstore and RocketMQ beside it, point by point.

    python bench/curves.py [--series queues,bodies] [--rounds 3] [--versions 4.9.8] [--directory DIR] [--largest 5]
                           [--scale 1]

Series: queues, bodies, threads, synced, messages, opening, crashed, rebuild, index, scan. Each is kept in
``bench/results/curves.json`` when it is done, in place of what was there of it, and ``curves.md`` and ``curves.svg``
are made anew of all of them. ``--largest`` is the size of the largest store in GiB; the disk needs as much room.
``--scale 0.01`` takes a hundredth of the messages, to see that everything runs.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
sys.path.insert(0, str(ROOT / "bench"))

import curves_report
from peers import find_peers

from mqstore.bench import machine, stores
from mqstore.bench.cells import run_cell
from mqstore.bench.stores import Peer

TIMEOUT_S = 900.0
GIB = 1 << 30
LARGE_BODY = 4096
PER_GIB = GIB // (LARGE_BODY + 128)
"""Messages of such bodies that a GiB of log holds."""


@dataclass(frozen=True)
class Point:
    """One place of a curve.

    Attributes:
        x: where on the axis.
        count: messages.
        work: what is done, as in :mod:`mqstore.bench.store_cell`.
        options: its arguments.
        fill: what is done once with a directory that all rounds then share; None gives each a fresh one.
        before: work that is done before each, on that directory.
    """

    x: float
    count: int
    work: str
    options: Mapping[str, Any] = field(default_factory=dict)
    fill: Mapping[str, Any] | None = None
    before: tuple[str, int, Mapping[str, Any]] | None = None


def series(largest_gib: float) -> dict[str, Callable[[], list[Point]]]:
    """Every series by its name."""
    sizes = [one for one in (1.0, 5.0, 10.0, 20.0) if one <= largest_gib] or [largest_gib]

    def opening(before: tuple[str, int, Mapping[str, Any]] | None) -> list[Point]:
        fill = {"size": LARGE_BODY}
        return [Point(one, int(one * PER_GIB), "open_store", fill=fill, before=before) for one in sizes]

    def synced() -> list[Point]:
        counts = {1: 2000, 2: 3000, 4: 6000, 8: 8000, 16: 16_000, 64: 32_000}
        return [Point(x, n, "put", {"threads": x, "mode": "SYNC_FLUSH"}) for x, n in counts.items()]

    return {
        "queues": lambda: [
            Point(x, 100_000, "put", {"topics": x, "size": 100}) for x in (1, 100, 1000, 10_000, 40_000)
        ],
        "bodies": lambda: [
            Point(x, min(100_000, (400 << 20) // x), "put", {"size": x})
            for x in (100, 1024, 16 << 10, 128 << 10, 1 << 20)
        ],
        "threads": lambda: [Point(x, 100_000, "put", {"threads": x}) for x in (1, 2, 4, 8, 16, 64)],
        "synced": synced,
        "messages": lambda: [Point(x, x, "put", {"size": 100}) for x in (100_000, 500_000, 2_000_000)],
        "opening": lambda: opening(None),
        "crashed": lambda: opening(("fill", 1000, {"size": LARGE_BODY, "end": "crash"})),
        "rebuild": lambda: [
            Point(x, x, "open_store", fill={"size": 1024}, before=("leave_log_only", 0, {}))
            for x in (100_000, 1_000_000)
        ],
        "index": lambda: [
            Point(x, x, "query", {"lookups": 50_000}, fill={"size": 16}) for x in (1_000_000, 5_000_000, 20_000_000)
        ],
        "scan": lambda: [Point(one, int(one * PER_GIB), "get", fill={"size": LARGE_BODY}) for one in sizes],
    }


def measure(point: Point, peers: Mapping[str, Peer], rounds: int, directory: Path | None) -> dict[str, Any]:
    """All rounds of a point: everyone in each, one after the other."""
    cells: dict[str, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory(prefix="mqstore-bench-", dir=directory) as scratch:
        shared = Path(scratch, "shared")
        if point.fill is not None:
            ours(shared, "fill", point.count, point.fill)
        for number in range(rounds):
            for name in ("mqstore", *peers):
                with tempfile.TemporaryDirectory(dir=scratch) as fresh:
                    place = Path(fresh, "store") if point.fill is None else shared
                    if point.before is not None:
                        ours(place, *point.before)
                    do = peers.get(name)
                    found = (
                        ours(place, point.work, point.count, point.options)
                        if do is None
                        else do(point.work, place, point.count, point.options)
                    )
                cells.setdefault(name, []).append(found)
                print(f"  {point.x:g}, round {number + 1}: {name}: {told(found)}", file=sys.stderr, flush=True)
    return {"x": point.x, "messages": point.count, "options": dict(point.options), "cells": cells}


def ours(directory: Path, work: str, count: int, options: Mapping[str, Any]) -> dict[str, Any]:
    """Work of mqstore's, in a process of its own."""
    task = {"work": work, "directory": str(directory), "count": count, "options": dict(options)}
    return run_cell(stores.CELL, task, TIMEOUT_S)


def told(figures: Mapping[str, Any]) -> str:
    """A figure for whoever looks on."""
    return str(figures.get("failed") or f"{figures.get('per_second', 0):,.0f} a second")


def main(words: list[str] | None = None) -> dict[str, Any]:
    """Measure the series asked for and write the report of all there are."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--series", default="", help="names with commas between; default: all")
    parser.add_argument("--points", default="", help="only these places of them; those kept of the others stay")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="part of the messages of each point")
    parser.add_argument("--largest", type=float, default=5.0, help="GiB of the largest store")
    parser.add_argument("--versions", default="4.9.8", help="releases of RocketMQ to measure beside; empty: none")
    parser.add_argument("--directory", type=Path, help="where the stores go; default: the temporary directory")
    parser.add_argument("--output", type=Path, default=ROOT / "bench" / "results")
    arguments = parser.parse_args(words)
    kept = arguments.output / "curves.json"
    results: dict[str, Any] = json.loads(kept.read_text("utf-8")) if kept.exists() else {"series": {}}
    results |= {"machine": machine.machine(), "file_system": machine.file_system(arguments.directory)}
    known = series(arguments.largest)
    wanted = {float(x) for x in filter(None, arguments.points.split(","))}
    with tempfile.TemporaryDirectory(prefix="mqstore-bench-", dir=arguments.directory) as scratch:
        peers = find_peers(arguments.versions, Path(scratch))
        for name in arguments.series.split(",") if arguments.series else known:
            print(name, file=sys.stderr, flush=True)
            for point in known[name]():
                if not wanted or point.x in wanted:
                    point = replace(point, count=max(64, int(point.count * arguments.scale)))
                    found = measure(point, peers, arguments.rounds, arguments.directory)
                    points = [one for one in results["series"].get(name, []) if one["x"] != point.x]
                    results["series"][name] = sorted([*points, found], key=lambda one: one["x"])
                    arguments.output.mkdir(parents=True, exist_ok=True)
                    kept.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    (arguments.output / "curves.md").write_text(curves_report.report(results), encoding="utf-8")
    curves_report.draw(results, arguments.output / "curves.svg")
    return results


if __name__ == "__main__":
    main()
