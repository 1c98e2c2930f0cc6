"""Measure both layouts under the same messages as topics grow: one commit log against a log for each partition.

    python bench/layouts.py [--topics 1,64,1024,10000] [--mebibytes 64] [--batches 1,16] [--barrier 16] [--rounds 3]

Every cell runs in processes of its own (``layout_cell.py``): create the topics, append round-robin, die, open again,
read back cold and warm. Rounds alternate between the layouts. Results go to ``bench/results/`` as JSON, Markdown and
curves; docs/layouts.md says how to read them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CELL = Path(__file__).with_name("layout_cell.py")
LAYOUTS = ("rocketmq", "rocketmq+queues", "kafka")
LEGEND = {
    "rocketmq": "commit log (a barrier syncs the log)",
    "rocketmq+queues": "commit log (a barrier syncs queues and index, too)",
    "kafka": "a log for each partition",
}
Cell = dict[str, Any]


def run_cell(task: dict[str, Any], timeout_s: float) -> dict[str, Any]:
    """What the cell's process says; ``{"failed": why}`` if it took too long or went wrong."""
    command = [sys.executable, str(CELL), json.dumps(task)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        return {"failed": f"took more than {timeout_s:.0f} s"}
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or ["no word"])[-1]}
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def measure(arguments: argparse.Namespace) -> Iterator[Cell]:
    """All cells of all rounds, as they are done."""
    for round_number in range(arguments.rounds):
        for topics in arguments.topics:
            for batch in arguments.batches:
                for barrier in (0, arguments.barrier << 20):
                    for layout in LAYOUTS:
                        if layout == "rocketmq+queues" and not barrier:
                            continue  # without barriers it does the same as the other
                        cell = measure_one(arguments, layout, topics, batch, barrier)
                        print(f"round {round_number + 1}: {describe(cell)}", file=sys.stderr)
                        yield {"round": round_number, **cell}


def measure_one(arguments: argparse.Namespace, layout: str, topics: int, batch: int, barrier: int) -> Cell:
    """One layout under one load: write, crash, open, read."""
    scratch = Path(tempfile.mkdtemp(prefix="mqstore-layouts-", dir=arguments.directory))
    task = {
        "layout": layout,
        "directory": str(scratch / "data"),
        "topics": topics,
        "batch": batch,
        "size": arguments.size,
        "messages": (arguments.mebibytes << 20) // arguments.size,
        "barrier_bytes": barrier,
        "read_messages": arguments.read_messages,
    }
    cell: Cell = {name: task[name] for name in ("layout", "topics", "batch", "size", "barrier_bytes")}
    try:
        cell["write"] = run_cell({"step": "write", **task}, arguments.timeout)
        if "failed" not in cell["write"]:
            cell["open"] = run_cell({"step": "open", **task}, arguments.timeout)
            for name, cold in (("cold", True), ("warm", False)):
                cell[name] = run_cell({"step": "read", "cold": cold, **task}, arguments.timeout)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return cell


def describe(cell: Cell) -> str:
    """One line on a cell."""
    write = cell["write"]
    rate = write.get("failed") or f"{megabytes_per_second(cell):.0f} MB/s durable, {write['syncs']} syncs"
    barrier = f"{cell['barrier_bytes'] >> 20} MiB" if cell["barrier_bytes"] else "none"
    return f"{cell['layout']}, {cell['topics']} topics, batch {cell['batch']}, barrier {barrier}: {rate}"


def megabytes_per_second(cell: Cell, until: str = "durable_s") -> float:
    """Payload written per second, until it was appended or durable."""
    write = cell["write"]
    return float(write["messages"] * cell["size"] / 1e6 / write[until])


FIGURES = {
    "durable MB/s": megabytes_per_second,
    "appended MB/s": lambda cell: megabytes_per_second(cell, "appended_s"),
    "syncs": lambda cell: cell["write"]["syncs"],
    "s in syncs": lambda cell: cell["write"]["sync_s"],
    "s elsewhere": lambda cell: cell["write"]["durable_s"] - cell["write"]["sync_s"],
    "device writes": lambda cell: cell["write"]["device_writes"]["requests"],
    "open files": lambda cell: cell["write"]["open_files"],
    "s to create topics": lambda cell: cell["write"]["created_s"],
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


def _spread(group: list[Cell], figure: Any) -> tuple[float, float, float] | None:
    values = []
    for cell in group:
        try:
            values.append(float(figure(cell)))
        except (KeyError, ZeroDivisionError):
            continue
    return (statistics.median(values), min(values), max(values)) if values else None


def report(cells: list[Cell], arguments: argparse.Namespace) -> str:
    """The medians as Markdown, one table for each barrier and batch."""
    found = medians(cells)
    lines = [
        f"# Layouts, measured on {datetime.now(timezone.utc):%Y-%m-%d}",
        "",
        f"{machine()}; file system {file_system(arguments.directory)};",
        f"ulimit -n {resource.getrlimit(resource.RLIMIT_NOFILE)[0]}. {arguments.mebibytes} MiB in messages of",
        f"{arguments.size} bytes, round-robin over the topics, one writer; medians of all rounds, which alternate.",
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
    failures = [f"- {describe(cell)}" for cell in cells if "failed" in cell["write"]]
    if failures:
        lines += ["## Not finished", "", *failures, ""]
    return "\n".join(lines)


def _number(spread: tuple[float, float, float] | None) -> str:
    if spread is None:
        return "–"
    return f"{spread[0]:,.0f}" if spread[0] >= 100 else f"{spread[0]:.3g}"


def machine() -> str:
    """Processor, cores and Python."""
    model = platform.machine()
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        model = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), model)
    return f"{model}, {os.cpu_count()} cores, Python {platform.python_version()}"


def file_system(directory: str | None) -> str:
    """Type of the file system that the data lies on."""
    place = os.path.realpath(directory or tempfile.gettempdir())
    with open("/proc/self/mounts", encoding="utf-8") as lines:
        mounts = [line.split()[1:3] for line in lines]
    inside = [one for one in mounts if os.path.commonpath([one[0], place]) == one[0]]
    return max(inside, key=lambda one: len(one[0]))[1] if inside else "unknown"


def draw(cells: list[Cell], path: Path) -> bool:
    """The curves, if matplotlib is there."""
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
                (key[2], values[name][0])
                for key, values in sorted(found.items())
                if key[0] == barrier and key[1] == batch and key[3] == layout and values[name]
            ]
            if points:
                axis.plot(*zip(*points, strict=True), marker="o", label=LEGEND[layout])
        axis.set(title=f"{title} (batches of {batch})", xlabel="topics", xscale="log", yscale="log")
        axis.grid(visible=True, alpha=0.3)
        axis.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    return True


def numbers(text: str) -> list[int]:
    """``1,64`` as a list."""
    return [int(one) for one in text.split(",")]


def main(words: list[str] | None = None) -> list[Cell]:
    """Measure, print and keep the report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--topics", type=numbers, default=[1, 64, 1024, 10_000])
    parser.add_argument("--batches", type=numbers, default=[1, 16], help="messages an append")
    parser.add_argument("--mebibytes", type=int, default=64, help="payload of a cell")
    parser.add_argument("--size", type=int, default=1024, help="bytes of a message")
    parser.add_argument("--barrier", type=int, default=16, help="MiB between two barriers, where there are any")
    parser.add_argument("--read-messages", type=int, default=2000, help="how many messages to read back at least")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--timeout", type=float, default=300, help="seconds after which a cell counts as not finished")
    parser.add_argument("--add", action="store_true", help="keep the cells of earlier runs in the output")
    parser.add_argument("--directory", default=None, help="where the data goes; default: the temporary directory")
    parser.add_argument("--output", type=Path, default=ROOT / "bench" / "results")
    arguments = parser.parse_args(words)
    arguments.output.mkdir(parents=True, exist_ok=True)
    kept = arguments.output / "layouts.json"
    cells: list[Cell] = json.loads(kept.read_text("utf-8")) if arguments.add and kept.exists() else []
    for cell in measure(arguments):
        cells.append(cell)
        kept.write_text(json.dumps(cells, indent=1) + "\n", encoding="utf-8")  # a run may be broken off
    text = report(cells, arguments).rstrip() + "\n"
    (arguments.output / "layouts.md").write_text(text, encoding="utf-8")
    draw(cells, arguments.output / "layouts.svg")
    print(text)
    return cells


if __name__ == "__main__":
    main()
