"""``mqstore lag``: how far behind the consumer groups of a store are."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from mqstore.cli.options import (
    FormatOption,
    OptionalMasterOption,
    ReportOption,
    StorePath,
    TopicOption,
    check_master,
)
from mqstore.cli.output import Format, Output, make_output, step_bar, time_text
from mqstore.errors import UsageError
from mqstore.store.settings import GroupProgress
from mqstore.store.view import StoreView


def run(
    store: StorePath,
    group: Annotated[str | None, typer.Option("--group", "-g", help="Only this group.")] = None,
    topic: TopicOption = None,
    most: Annotated[
        int | None,
        typer.Option("--alert", min=0, help="Exit with 1 when a group is further behind; with 2 when none is there."),
    ] = None,
    report: ReportOption = None,
    master: OptionalMasterOption = None,
    format: FormatOption = Format.text,
) -> int:
    """Print where every group stands in every queue, and the messages it has still to consume.

    A queue of a group that is not there any more has no lag, which is not the same as none.

    With --master or --report Spark reads what waits, and tells since when it does.
    """
    on_spark = master is not None or report is not None
    with StoreView(store) as view:
        progress = view.progress()
        rows = [row for row in progress if group in (None, row.group) and topic in (None, row.topic)]
        overlooked = [] if on_spark else view.overlooked({(row.topic, row.queue_id) for row in rows})
    if most is not None and not rows and (group is not None or topic is not None):
        raise _nothing_to_watch(group, topic, progress)
    if on_spark:
        return _on_spark(store, group, topic, most, report, master or "local[2]", make_output(format))
    totals: dict[str, int] = {}
    for row in rows:
        totals[row.group] = totals.get(row.group, 0) + (row.lag or 0)
    output = make_output(format)
    if rows:
        cells = [(row.group, row.topic, row.queue_id, row.consumer_offset, row.max_offset, row.lag) for row in rows]
        output.table("consumer groups", ("group", "topic", "queue", "offset", "end", "lag"), cells)
    lines = [f"{name}: {lag} messages behind" for name, lag in sorted(totals.items())] or ["no group has progress here"]
    warnings = [finding.as_dict() for finding in overlooked]
    output.document({"progress": [dataclasses.asdict(row) for row in rows], "lag": totals, "warnings": warnings}, lines)
    output.warnings(overlooked)
    return _alert(most, totals)


def _nothing_to_watch(group: str | None, topic: str | None, progress: list[GroupProgress]) -> UsageError:
    """The error for a name that no progress is of: whoever waits for an alert would wait for ever."""
    asked = [f"{kind} {name!r}" for kind, name in (("group", group), ("topic", topic)) if name is not None]
    known = sorted({f"{row.group} in {row.topic}" for row in progress})
    more = f" and {len(known) - 5} more" if len(known) > 5 else ""
    hint = f"there is that of {', '.join(known[:5])}{more}" if known else "no group has progress here"
    return UsageError(f"no progress is here of {' in '.join(asked)}", hint=hint)


def _alert(most: int | None, totals: dict[str, int]) -> int:
    return int(most is not None and any(lag > most for lag in totals.values()))


def _on_spark(
    store: Path,
    group: str | None,
    topic: str | None,
    most: int | None,
    report: Path | None,
    master: str,
    output: Output,
) -> int:
    from mqstore import spark as mqspark

    session = mqspark.session(check_master(master), "mqstore lag")
    try:
        with step_bar("reading what waits") as on_progress:
            result = mqspark.jobs.lag(
                session, store.absolute(), group=group, topic=topic, report=report, on_progress=on_progress
            )
    finally:
        session.stop()
    cells = [(*row[1:7], None if row.oldest_ms is None else time_text(row.oldest_ms)) for row in result.rows]
    output.table("consumer groups", ("group", "topic", "queue", "offset", "end", "lag", "oldest waiting"), cells)
    lines = [f"{name}: {lag} messages behind" for name, lag in sorted(result.lag.items())]
    if result.report is not None:
        lines.append(f"report: {result.report}")
    output.document(
        {
            "progress": [row._asdict() for row in result.rows],
            "lag": result.lag,
            "waiting": [one._asdict() for one in result.waiting],
            "seconds": round(result.seconds, 3),
            "stageSeconds": {name: round(seconds, 3) for name, seconds in result.stage_seconds.items()},
            "report": None if result.report is None else str(result.report),
            "warnings": [finding.as_dict() for finding in result.warnings],
        },
        lines or ["no group has progress here"],
    )
    output.warnings(result.warnings)
    return _alert(most, result.lag)
