"""What the rows of the store's benchmark come to, as Markdown: medians with the extremes, ratios of medians."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

from mqstore.bench.machine import number, spread


def rates(cells: Sequence[dict[str, Any]]) -> list[float]:
    """The rates of the rounds that were finished."""
    return [cell["per_second"] for cell in cells if "per_second" in cell]


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> str:
    """Ours by theirs; nothing where either is missing."""
    return f"{statistics.median(ours) / statistics.median(theirs):.2f}" if ours and theirs else ""


def report(results: dict[str, Any]) -> str:
    """The whole report."""
    rows = results["rows"]
    lines = [
        f"# The store, measured on {datetime.now(timezone.utc):%Y-%m-%d}",
        "",
        f"{results['machine']}; kernels {results['kernels']}; stores on {results['file_system']}.",
        *([results["about_peers"]] if results["about_peers"] else []),
        f"{results['rounds']} rounds of {results['count']:,} messages, or as many as a row says; in each of them",
        "everyone once, one after the other, in a process of its own. Medians, messages a second (lowest to highest);",
        "ratios of medians, ours by theirs.",
        "",
        *_our_table([row for row in rows if "beside" not in row]),
    ]
    others = [row for row in rows if "beside" in row]
    if others:
        lines += ["", "## Instead of mqstore", "", *_other_table(others, rows)]
    failures = [f"- {row['name']}: {why}" for row in rows for why in failed(row)]
    if failures:
        lines += ["", "## Not finished", "", *failures]
    return "\n".join(lines) + "\n"


def _our_table(rows: list[dict[str, Any]]) -> list[str]:
    peers = sorted({name for row in rows for name in row["peers"]})
    heads = ["", "messages", "mqstore", "of the limit", *(head for name in peers for head in (name, "ratio"))]
    lines = ["| " + " | ".join(heads) + " |", "|---|" + "---:|" * (len(heads) - 1)]
    for row in rows:
        ours = rates(row["ours"])
        cells = [row["name"], f"{row['messages']:,}", spread(ours) if ours else "–", ratio(ours, rates(row["limit"]))]
        for name in peers:
            theirs = rates(row["peers"].get(name, []))
            cells += [spread(theirs) if theirs else "–", ratio(ours, theirs)]
        lines.append("| " + " | ".join(cells) + " |")
    return [
        *lines,
        "",
        "The limits, in the same rounds: for puts, copying the same bytes into a new mapped file; for synced ones,",
        "as many threads that append and share syncs without a store; for reading, the same bytes 1 MiB a call.",
        "",
        *_limit_table(rows),
    ]


def _limit_table(rows: list[dict[str, Any]]) -> list[str]:
    found = {row["name"]: rates(row["limit"]) for row in rows}
    lines = [f"| {name} | {spread(values)} |" for name, values in found.items() if values]
    return ["| beside | messages a second at best |", "|---|---:|", *lines]


def _other_table(others: list[dict[str, Any]], rows: list[dict[str, Any]]) -> list[str]:
    by_name = {row["name"]: rates(row["ours"]) for row in rows}
    lines = ["| 1 KiB bodies | messages a second | mqstore's | times as many |", "|---|---:|---|---:|"]
    for row in others:
        theirs, ours = rates(row["ours"]), by_name.get(row["beside"], [])
        said = f"{row['beside']}: {number(statistics.median(ours))}" if ours else "–"
        lines.append(f"| {row['name']} | {spread(theirs) if theirs else '–'} | {said} | {ratio(ours, theirs)} |")
    return lines


def failed(row: dict[str, Any]) -> list[str]:
    """Why rounds of a row have no figures: each reason once."""
    cells = [*row["ours"], *row["limit"], *(cell for found in row["peers"].values() for cell in found)]
    return list(dict.fromkeys(why for cell in cells if (why := cell.get("failed") or cell.get("skipped"))))
