"""``mqstore check``: everything that is wrong with a store."""

from __future__ import annotations

from typing import Annotated

import typer

from mqstore.cli.options import FormatOption, StorePath
from mqstore.cli.output import Format, make_output, progress_bar
from mqstore.findings import Finding
from mqstore.layout import delay
from mqstore.store.check import CheckSummary, check_store
from mqstore.store.view import StoreView

EXIT_COULD_NOT_LOOK = 2


def run(
    store: StorePath,
    delay_levels: Annotated[
        str | None,
        typer.Option(help="messageDelayLevel of the store's broker, if it is neither the default nor noted."),
    ] = None,
    format: FormatOption = Format.text,
) -> int:
    """Read the whole store and list every finding, with place, what was expected, what was found and what mends it.

    Exit codes: 0 nothing found, 1 findings, 2 could not look. Notes are listed and do not count.
    """
    table = None if delay_levels is None else delay.parse_delay_levels(delay_levels)
    findings: list[Finding] = []
    with StoreView(store) as view, progress_bar("checking") as on_progress:
        summary = check_store(view, findings.append, delay_levels=table, on_progress=on_progress)
    output = make_output(format)
    output.document(
        {"findings": findings, "summary": summary},
        [
            *(line for finding in findings for line in finding_lines(finding)),
            summary_line(summary),
        ],
    )
    return 1 if summary.findings else 0


def finding_lines(finding: Finding) -> list[str]:
    """A finding for people."""
    place = finding.path if finding.offset is None else f"{finding.path} @ {finding.offset}"
    lines = [f"{finding.severity.value}: {finding.area}: {finding.message}", f"    at       {place}"]
    if finding.expected is not None:
        lines.append(f"    expected {finding.expected}")
    if finding.found is not None:
        lines.append(f"    found    {finding.found}")
    return [*lines, f"    repair   {finding.repair}"]


def summary_line(summary: CheckSummary) -> str:
    """The last line for people: how much is wrong, in how much."""
    looked_at = f"{summary.records} records, {summary.units} queue units, {summary.index_entries} index entries"
    return f"{summary.findings} findings in {looked_at}" if summary.findings else f"nothing wrong: {looked_at}"
