"""The demo's picture: messages per day and topic."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

from mqstore.cli.demo.stage import Stage

_BIGGEST = 6
_COLOURS = ("#1b6ca8", "#d1495b", "#66a182", "#edae49", "#8d6a9f", "#2e4057", "#b8b8b8")


def draw(stage: Stage, per_day: dict[str, dict[date, int]], target: Path) -> Path:
    """Draw the messages of each day, stacked by topic (the biggest six, the rest as one), as a PNG at ``target``."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import dates, pyplot

    days = sorted({day for counts in per_day.values() for day in counts})
    biggest = sorted(per_day, key=lambda topic: -sum(per_day[topic].values()))
    layers = {topic: [per_day[topic].get(day, 0) for day in days] for topic in biggest[:_BIGGEST]}
    others = [sum(per_day[topic].get(day, 0) for topic in biggest[_BIGGEST:]) for day in days]
    if biggest[_BIGGEST:]:
        layers[f"{len(biggest) - _BIGGEST} others"] = others
    x: Any = dates.date2num(days)  # type: ignore[no-untyped-call]
    figure, axes = pyplot.subplots(figsize=(11, 5), dpi=120)
    axes.stackplot(x, *layers.values(), labels=list(layers), colors=_COLOURS[: len(layers)])
    axes.set_title("Messages per day of departure and topic", loc="left")
    axes.set_ylabel("messages")
    axes.xaxis_date()
    axes.margins(x=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.08), ncols=len(layers), frameon=False)
    figure.tight_layout()
    figure.savefig(target)
    pyplot.close(figure)
    stage.heading("5. The picture")
    stage.say(f"{sum(map(sum, layers.values()))} messages on {len(days)} days: {target}")
    return target
