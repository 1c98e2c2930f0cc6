"""What the cells of the layouts benchmark come to: a line for each, medians as tables, curves."""

from __future__ import annotations

import resource
import statistics
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

from mqstore.bench.layouts import LAYOUTS, Cell, Plan
from mqstore.bench.machine import file_system, machine, number

LEGEND: Final = {
    "rocketmq": "commit log (a barrier syncs the log)",
    "rocketmq+queues": "commit log (a barrier syncs queues and index, too)",
    "kafka": "a log for each partition",
}


def describe(cell: Cell) -> str:
    """One line on a cell."""
    rate = failure(cell) or f"{megabytes_per_second(cell):.0f} MB/s durable, {cell['write']['syncs']} syncs"
    barrier = f"{cell['barrier_bytes'] >> 20} MiB" if cell["barrier_bytes"] else "none"
    return f"{cell['layout']}, {cell['topics']} topics, batch {cell['batch']}, barrier {barrier}: {rate}"


def failure(cell: Cell) -> str | None:
    """Why a cell was not finished; None if it was."""
    found = (cell[name].get("failed") for name in ("write", "open", "cold", "warm") if name in cell)
    return next((why for why in found if why), None)


def megabytes_per_second(cell: Cell, until: str = "durable_s") -> float:
    """Payload written per second, until it was appended or durable."""
    write = cell["write"]
    return float(write["messages"] * cell["size"] / 1e6 / write[until])


FIGURES: Final[dict[str, Callable[[Cell], float]]] = {
    "durable MB/s": megabytes_per_second,
    "appended MB/s": lambda cell: megabytes_per_second(cell, "appended_s"),
    "syncs": lambda cell: cell["write"]["syncs"],
    "s in syncs": lambda cell: cell["write"]["sync_s"],
    "s elsewhere": lambda cell: cell["write"]["durable_s"] - cell["write"]["sync_s"],
    "device writes": lambda cell: cell["write"]["device_writes"]["requests"],
    "open files": lambda cell: cell["write"]["open_files"],
    "ms to create a topic": lambda cell: cell["write"]["sample_s"] / cell["write"]["sample"] * 1e3,
    "syncs to create a topic": lambda cell: cell["write"]["sample_syncs"] / cell["write"]["sample"],
    "s to recover": lambda cell: cell["open"]["recovery_s"],
    "s to open": lambda cell: cell["open"]["clean_open_s"],
    "files": lambda cell: cell["open"]["files"],
    "MB on disk": lambda cell: cell["open"]["bytes_on_disk"] / 1e6,
    "cold read, µs/message": lambda cell: cell["cold"]["seconds"] / cell["cold"]["messages"] * 1e6,
    "warm read, µs/message": lambda cell: cell["warm"]["seconds"] / cell["warm"]["messages"] * 1e6,
}
"""Every figure of the report, from one cell."""


def medians(cells: list[Cell]) -> dict[tuple[Any, ...], dict[str, tuple[float, float, float] | None]]:
    """Median, lowest and highest of each figure by (barrier, batch, topics, layout); None where a cell failed."""
    groups: dict[tuple[Any, ...], list[Cell]] = {}
    for cell in cells:
        key = (cell["barrier_bytes"], cell["batch"], cell["topics"], cell["layout"])
        groups.setdefault(key, []).append(cell)
    return {key: {name: _spread(group, figure) for name, figure in FIGURES.items()} for key, group in groups.items()}


def _spread(group: list[Cell], figure: Callable[[Cell], float]) -> tuple[float, float, float] | None:
    values = []
    for cell in group:
        try:
            values.append(float(figure(cell)))
        except (KeyError, ZeroDivisionError):
            continue
    return (statistics.median(values), min(values), max(values)) if values else None


def report(cells: list[Cell], plan: Plan) -> str:
    """The medians as Markdown, one table for each barrier and batch."""
    found = medians(cells)
    lines = [
        f"# Layouts, measured on {datetime.now(timezone.utc):%Y-%m-%d}",
        "",
        f"{machine()}; file system {file_system(plan.directory)};",
        f"ulimit -n {resource.getrlimit(resource.RLIMIT_NOFILE)[0]}. {plan.mebibytes} MiB in messages of",
        f"{plan.size_bytes} bytes, round-robin over the topics, one writer; medians of all rounds, which alternate.",
        "",
    ]
    for barrier, batch in sorted({(key[0], key[1]) for key in found}):
        said = f"a barrier every {barrier >> 20} MiB" if barrier else "no barrier, one sync of all at the end"
        lines += [f"## Batches of {batch}, {said}", "", "| topics | layout | " + " | ".join(FIGURES) + " |"]
        lines.append("|---:|---|" + "---:|" * len(FIGURES))
        for key in sorted(key for key in found if key[:2] == (barrier, batch)):
            figures = [_number(found[key][name]) for name in FIGURES]
            lines.append(f"| {key[2]:,} | {key[3]} | " + " | ".join(figures) + " |")
        lines.append("")
    failures = [f"- {describe(cell)}" for cell in cells if failure(cell)]
    if failures:
        lines += ["## Not finished", "", *failures, ""]
    return "\n".join(lines)


def _number(spread: tuple[float, float, float] | None) -> str:
    return "–" if spread is None else number(spread[0])


def draw(cells: list[Cell], path: Path) -> bool:
    """The curves, if matplotlib is there; whether it is."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot

    found = medians(cells)
    batch = max(key[1] for key in found)
    panels = [
        ("durable MB/s, no barrier", 0, "durable MB/s"),
        ("durable MB/s, with barriers", max(key[0] for key in found), "durable MB/s"),
        ("seconds to recover", 0, "s to recover"),
        ("cold read, µs a message", 0, "cold read, µs/message"),
    ]
    figure, axes = pyplot.subplots(2, 2, figsize=(11, 8))
    for axis, (title, barrier, name) in zip(axes.flat, panels, strict=True):
        for layout in LAYOUTS:
            points = [
                (key[2], spread[0])
                for key, values in sorted(found.items())
                if key[0] == barrier and key[1] == batch and key[3] == layout and (spread := values[name])
            ]
            if points:
                axis.plot(*zip(*points, strict=True), marker="o", label=LEGEND[layout])
        axis.set(title=f"{title} (batches of {batch})", xlabel="topics", xscale="log", yscale="log")
        axis.grid(visible=True, alpha=0.3)
        if axis.lines:
            axis.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    return True
