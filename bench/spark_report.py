"""What the benchmark of Spark tells: its rows, as JSON and as a table."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Row:
    """One comparison: seconds of every round."""

    name: str
    what: str
    ours: list[float] = field(default_factory=list)
    peer: list[float] = field(default_factory=list)
    per_core: bool = False
    worker_peak_bytes: int = 0
    messages: int = 0

    def ratio(self, cores: int) -> float:
        """How many times the peer's rate is reached."""
        ratio = statistics.median(self.peer) / statistics.median(self.ours)
        return ratio / cores if self.per_core else ratio


def write(results: Path, rows: Sequence[Row], facts: dict[str, Any], cores: int) -> None:
    """The results as JSON and Markdown."""
    results.parent.mkdir(exist_ok=True)
    document = {**facts, "rows": [told(row, cores) for row in rows]}
    results.with_suffix(".json").write_text(json.dumps(document, indent=1) + "\n")
    size = f"{facts['logBytes'] / 2**30:.2f} GiB"
    data = f"{facts['messages']:,} messages with bodies of {facts['bodyBytes']:,} bytes, {size}"
    how = f"files on {facts['files']}; {cores} cores; medians of {facts['rounds']}, with the lowest and the highest"
    lines = [
        "# The Spark pipeline, measured",
        "",
        f"{data} of log; {how}; {facts['machine']}, {facts['when']}.",
        "",
        "| work | seconds | messages a second | beside | seconds | ratio | largest worker, MiB |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        rate = (row.messages or facts["messages"]) / statistics.median(row.ours)
        peak = f"{row.worker_peak_bytes / 2**20:.0f}" if row.worker_peak_bytes else ""
        lines.append(
            f"| {row.name} | {spread(row.ours)} | {rate:,.0f} | {row.what} | {spread(row.peer)} | "
            f"{row.ratio(cores):.2f}× | {peak} |"
        )
    lines += ["", f"The driver's largest resident memory was {facts['driverPeakMib']} MiB.", ""]
    results.with_suffix(".md").write_text("\n".join(lines))
    print("\n".join(lines))


def told(row: Row, cores: int) -> dict[str, Any]:
    """A row of the table as JSON."""

    def seconds(rounds: list[float]) -> dict[str, float]:
        return {"median": round(statistics.median(rounds), 2), "lowest": round(min(rounds), 2),
                "highest": round(max(rounds), 2)}  # fmt: skip

    return {
        "name": row.name,
        "seconds": seconds(row.ours),
        "beside": row.what,
        "besideSeconds": seconds(row.peer),
        "ratio": round(row.ratio(cores), 2),
        "perCore": row.per_core,
        "messages": row.messages or None,
        "largestWorkerMib": row.worker_peak_bytes >> 20 or None,
    }


def spread(seconds: list[float]) -> str:
    """Median, lowest and highest."""
    return f"{statistics.median(seconds):.2f} ({min(seconds):.2f}–{max(seconds):.2f})"
