"""Pages in HTML about what jobs have counted: one file each, pictures included."""

from __future__ import annotations

import html
import io
import time
from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mqstore.errors import shown_path
from mqstore.files import durable
from mqstore.findings import Finding

if TYPE_CHECKING:
    from mqstore.spark.jobs.counting import StatsResult
    from mqstore.spark.jobs.lagging import LagResult

HOUR_MS: Final = 3_600_000
"""Messages are counted by the hour that they were stored in."""

_MOST_ROWS: Final = 200
_MOST_LINES: Final = 6
_COLOURS: Final = ("#1b6ca8", "#d1495b", "#66a182", "#edae49", "#8d6a9f", "#2e4057", "#b8b8b8")

_PAGE: Final = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{title}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; color: #222; }}
table {{ border-collapse: collapse; margin: 0.5rem 0 1.5rem; }}
th, td {{ padding: 0.2rem 0.9rem 0.2rem 0; text-align: left; border-bottom: 1px solid #ddd; }}
td.number, th.number {{ text-align: right; font-variant-numeric: tabular-nums; }}
svg {{ max-width: 100%; height: auto; }}
</style>
</head>
<body>
<h1>{title}</h1>
{body}
</body>
</html>
"""


def write_stats(result: StatsResult, sources: Sequence[str], target: Path) -> None:
    """The page of ``stats``."""
    biggest = [one.topic for one in result.topics]
    per_hour: dict[str, dict[int, int]] = {}
    for one in result.hours:
        per_hour.setdefault(one.topic, {})[one.begin_ms] = one.messages
    body = [
        _paragraph(f"{_shown(sources)}: {result.messages:,} messages in {result.bytes:,} bytes of records; at most "
                   f"{result.peak_per_second:,.1f} messages a second over an hour."),
        _overlooked(result.warnings),
        _picture(lambda axes: _draw_hours(axes, per_hour, biggest, "messages an hour"), result.messages > 0),
        _heading("Topics"),
        _table(("topic", "messages", "bytes", "first stored", "last stored"),
               ((one.topic, one.messages, one.bytes, _moment(one.first_ms), _moment(one.last_ms))
                for one in result.topics)),
        _heading("Days"),
        _table(("day (UTC)", "messages", "bytes"), result.days),
        _heading("Sizes of records"),
        _picture(lambda axes: _draw_sizes(axes, result.sizes), result.messages > 0),
        _table(("up to bytes", "messages"), result.sizes),
        _heading("Tags"),
        _table(("topic", "tag", "messages"), result.tags),
        _heading("Producers' hosts"),
        _table(("host", "messages"), ((one.name, one.messages) for one in result.hosts)),
    ]  # fmt: skip
    _write(target, "What is in the stores", body)


def write_lag(result: LagResult, sources: Sequence[str], target: Path) -> None:
    """The page of ``lag``."""
    grown: dict[str, dict[int, int]] = {}
    for one in result.waiting:
        grown.setdefault(one.group, {}).setdefault(one.begin_ms, 0)
        grown[one.group][one.begin_ms] += one.messages
    for counts in grown.values():
        total = 0
        for hour in sorted(counts):
            total += counts[hour]
            counts[hour] = total
    groups = sorted(result.lag, key=lambda name: -result.lag[name])
    body = [
        _paragraph(f"{_shown(sources)}: {sum(result.lag.values()):,} messages wait for {len(groups)} groups."),
        _overlooked(result.warnings),
        _picture(lambda axes: _draw_lines(axes, grown, groups, "messages that wait"), bool(grown)),
        _heading("Groups"),
        _table(("group", "behind"), ((name, result.lag[name]) for name in groups)),
        _heading("Queues"),
        _table(("broker", "group", "topic", "queue", "offset", "end", "behind", "oldest waiting"),
               ((*row[:7], "" if row.oldest_ms is None else _moment(row.oldest_ms)) for row in result.rows)),
    ]  # fmt: skip
    _write(target, "How far behind consumer groups are", body)


def _write(target: Path, title: str, body: Iterable[str]) -> None:
    durable.make_directories(target.parent)
    durable.replace_file(target, _PAGE.format(title=html.escape(title), body="\n".join(body)).encode())


def _shown(sources: Sequence[str]) -> str:
    return ", ".join(map(shown_path, sources))


def _heading(text: str) -> str:
    return f"<h2>{html.escape(text)}</h2>"


def _paragraph(text: str) -> str:
    return f"<p>{html.escape(text)}</p>"


def _table(names: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    shown = list(rows)
    lines = ["<table>", _row("th", names)]
    lines += [_row("td", row) for row in shown[:_MOST_ROWS]]
    lines.append("</table>")
    if len(shown) > _MOST_ROWS:
        lines.append(_paragraph(f"and {len(shown) - _MOST_ROWS:,} more"))
    return "\n".join(lines)


def _row(kind: str, cells: Sequence[object]) -> str:
    texts = []
    for cell in cells:
        number = isinstance(cell, int)
        text = f"{cell:,}" if isinstance(cell, int) else "–" if cell is None else str(cell)
        texts.append(f"<{kind}{' class=number' if number else ''}>{html.escape(text)}</{kind}>")
    return f"<tr>{''.join(texts)}</tr>"


def _moment(timestamp_ms: int) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(timestamp_ms / 1000))
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)


def _overlooked(warnings: Sequence[Finding]) -> str:
    """What the figures lack, nothing where they lack nothing."""
    if not warnings:
        return ""
    rows = [(one.message, one.path, one.offset, one.repair) for one in warnings]
    return "\n".join(
        [_heading("Not looked at: the figures may be too small"), _table(("what", "where", "offset", "repair"), rows)]
    )


def _picture(draw: Callable[[Any], None], wanted: bool) -> str:
    """A picture as SVG in the page; a word instead where it cannot be drawn."""
    if not wanted:
        return ""
    if find_spec("matplotlib") is None:
        return _paragraph("No picture: matplotlib is not installed.")
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(11, 3.6))
    draw(axes)
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(x=0)
    figure.tight_layout()
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    pyplot.close(figure)
    return text.getvalue()[text.getvalue().index("<svg") :]


def _draw_hours(axes: Any, counts: dict[str, dict[int, int]], order: Sequence[str], label: str) -> None:
    """Bars of every hour, the biggest series one upon the other, the rest as one."""
    hours = sorted({hour for series in counts.values() for hour in series})
    layers = {name: [counts[name].get(hour, 0) for hour in hours] for name in order[:_MOST_LINES]}
    if order[_MOST_LINES:]:
        others = [sum(counts[name].get(hour, 0) for name in order[_MOST_LINES:]) for hour in hours]
        layers[f"{len(order) - _MOST_LINES} others"] = others
    floor = [0] * len(hours)
    for colour, (name, heights) in zip(_COLOURS, layers.items(), strict=False):
        axes.bar(_days(hours), heights, bottom=floor, width=1 / 24, label=_plain(name), color=colour)
        floor = [low + height for low, height in zip(floor, heights, strict=True)]
    _finish_times(axes, label)


def _draw_lines(axes: Any, counts: dict[str, dict[int, int]], order: Sequence[str], label: str) -> None:
    for colour, name in zip(_COLOURS, [one for one in order if one in counts], strict=False):
        hours = sorted(counts[name])
        heights = [counts[name][hour] for hour in hours]
        axes.step(_days(hours), heights, where="post", label=_plain(name), color=colour, marker=".")
    _finish_times(axes, label)


def _draw_sizes(axes: Any, sizes: Sequence[tuple[int, int]]) -> None:
    axes.bar([f"{size:,}" for size, _ in sizes], [count for _, count in sizes], color=_COLOURS[0])
    axes.set_ylabel("messages")
    axes.set_xlabel("bytes of the record, at most")


def _days(hours_ms: Sequence[int]) -> list[float]:
    return [hour / (24 * HOUR_MS) for hour in hours_ms]


def _finish_times(axes: Any, label: str) -> None:
    axes.xaxis_date()
    axes.set_ylabel(label)
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize="small")


def _plain(name: str) -> str:
    """A label as it is: matplotlib leaves out those that begin with _, and takes $ for formulas."""
    text = name.replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text
