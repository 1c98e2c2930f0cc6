"""The curves as tables and as a drawing, with what memory each point took."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from peers import ABOUT

from mqstore.bench.machine import number, spread

#: Series -> title, what x is, figures shown: (key, heading). The first figure is drawn.
SHOWN: dict[str, tuple[str, str, tuple[tuple[str, str], ...]]] = {
    "queues": (
        "Puts to many topics of one queue, 100 B",
        "topics",
        (("per_second", "puts a second"), ("dispatched_per_second", "with queues and index a second")),
    ),
    "bodies": ("Puts of larger bodies", "bytes", (("per_second", "puts a second"),)),
    "threads": ("Puts from many threads, 1 KiB, ASYNC_FLUSH", "threads", (("per_second", "puts a second"),)),
    "synced": ("Puts from many threads, 1 KiB, SYNC_FLUSH", "threads", (("per_second", "puts a second"),)),
    "messages": (
        "Many puts, 100 B",
        "messages",
        (("per_second", "puts a second"), ("dispatched_per_second", "with queues and index a second")),
    ),
    "opening": ("Opening after a clean stop, 4 KiB bodies", "GiB", (("seconds", "seconds"),)),
    "crashed": ("Opening after a crash, 4 KiB bodies", "GiB", (("seconds", "seconds"),)),
    "rebuild": ("Building queues and index from the log, 1 KiB", "messages", (("seconds", "seconds"),)),
    "index": (
        "Look-up by key, record checked",
        "messages with a key",
        (("p50_us", "p50, µs"), ("p99_us", "p99, µs")),
    ),
    "scan": ("Reading a queue through, 32 a time, 4 KiB bodies", "GiB", (("per_second", "messages a second"),)),
}
FEWER_IS_BETTER = {"seconds", "p50_us", "p99_us"}
MEMORY_OF = ("queues", "messages", "rebuild", "opening", "crashed")
"""The series whose work could make a store take more memory."""
MARKS = "osv^"


def report(results: dict[str, Any]) -> str:
    """All series that have been measured, a table each, and the memory that the processes held at their end."""
    lines = [
        "# How costs grow",
        "",
        f"{results['machine']}; stores on {results['file_system']}.",
        ABOUT,
        "Medians over the rounds of a point (lowest to highest), in each of which everyone is measured once, one after",
        "the other. Ratios of medians; above 1 mqstore is better.",
    ]
    for name, (title, axis, figures) in SHOWN.items():
        if points := results["series"].get(name):
            lines += ["", f"## {title}", "", *_table(points, axis, figures)]
    memory = _memory_table(results["series"])
    if len(memory) > 2:
        lines += ["", "## Memory", "", "MiB while the store is open, medians: of the process, and of mapped files."]
        lines += ["", *memory]
    failures = {
        f"- {name}, {point['x']:g}: {who}: {cell['failed']}"
        for name, points in results["series"].items()
        for point in points
        for who, cells in point["cells"].items()
        for cell in cells
        if "failed" in cell
    }
    if failures:
        lines += ["", "## Not finished", "", *sorted(failures)]
    return "\n".join(lines) + "\n"


def values(point: dict[str, Any], who: str, key: str) -> list[float]:
    """A figure of all rounds that were finished."""
    return [cell[key] for cell in point["cells"].get(who, []) if key in cell]


def _table(points: list[dict[str, Any]], axis: str, figures: tuple[tuple[str, str], ...]) -> list[str]:
    names = list(dict.fromkeys(who for point in points for who in point["cells"]))
    others = [who for who in names if who != "mqstore"]
    heads = [axis, "rounds"]
    for _, heading in figures:
        heads += [f"mqstore, {heading}", *(head for who in others for head in (f"{who}, {heading}", "ratio"))]
    lines = ["| " + " | ".join(heads) + " |", "|---:|" + "---:|" * (len(heads) - 1)]
    for point in points:
        cells = [f"{point['x']:,g}" if point["x"] < 1e6 else f"{point['x']:,.0f}", str(len(point["cells"]["mqstore"]))]
        for key, _ in figures:
            own = values(point, "mqstore", key)
            cells.append(spread(own) if own else "–")
            for who in others:
                theirs = values(point, who, key)
                cells.append(spread(theirs) if theirs else "–")
                cells.append(_ratio(own, theirs, key))
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _ratio(own: list[float], theirs: list[float], key: str) -> str:
    if not own or not theirs:
        return ""
    ratio = statistics.median(own) / statistics.median(theirs)
    return f"{1 / ratio if key in FEWER_IS_BETTER else ratio:.2f}"


def _memory_table(series: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Of points at which both were looked at while their stores were open."""
    lines = ["| | who | own at the start | own | of files |", "|---|---|---:|---:|---:|"]
    for name in MEMORY_OF:
        for point in series.get(name, []):
            for who, cells in point["cells"].items():
                key = "open_kib" if who == "mqstore" else "resident_kib"
                held = [cell[key] for cell in cells if cell.get(key)]
                if not held or not values(point, "mqstore", "open_kib"):
                    continue
                start = [cell["resident_kib"]["before"]["RssAnon"] for cell in cells if who == "mqstore"]
                figures = [_mib(start), *(_mib([one[kind] for one in held]) for kind in ("RssAnon", "RssFile"))]
                where = f"{name}: {number(point['x'])} {SHOWN[name][1]}"
                lines.append(f"| {where} | {who} | " + " | ".join(figures) + " |")
    return lines


def _mib(kib: list[int]) -> str:
    return f"{statistics.median(kib) / 1024:,.0f}" if kib else ""


def draw(results: dict[str, Any], path: Path) -> bool:
    """The first figure of each series, if matplotlib is there; whether it is."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "mqstore"  # the same curves give the same file
    from matplotlib import pyplot

    names = [name for name in SHOWN if results["series"].get(name)]
    rows = max(1, (len(names) + 2) // 3)
    figure, axes = pyplot.subplots(rows, 3, figsize=(13, 3.6 * rows), squeeze=False)
    for axis in axes.flat[len(names) :]:
        axis.set_visible(False)
    for axis, name in zip(axes.flat, names, strict=False):
        title, what, ((key, heading), *_) = SHOWN[name]
        points = results["series"][name]
        for who, mark in zip(dict.fromkeys(who for point in points for who in point["cells"]), MARKS, strict=False):
            found = [(point["x"], values(point, who, key)) for point in points]
            places = [(x, statistics.median(some), min(some), max(some)) for x, some in found if some]
            if places:
                xs, medians, low, high = zip(*places, strict=True)
                (line,) = axis.plot(xs, medians, marker=mark, label=who)
                axis.fill_between(xs, low, high, alpha=0.2, color=line.get_color())
        axis.set(xlabel=what, ylabel=heading, xscale="log", yscale="log")
        axis.set_title(title, fontsize=9)
        axis.grid(visible=True, alpha=0.3)
        axis.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    path.write_text("\n".join(line.rstrip() for line in path.read_text("utf-8").splitlines()) + "\n", "utf-8")
    return True
