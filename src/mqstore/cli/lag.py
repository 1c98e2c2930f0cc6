"""``mqstore lag``: how far behind the consumer groups of a store are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from mqstore.cli.messages import broker_name
from mqstore.cli.options import FormatOption, OptionalMasterOption, ReportOption, StorePath, TopicOption
from mqstore.cli.output import Format, Output, make_output, step_bar, time_text, to_json
from mqstore.cli.spark_session import check_report, spark_session
from mqstore.errors import UsageError
from mqstore.store.settings import GroupProgress
from mqstore.store.view import StoreView

_COLUMNS = ("group", "topic", "queue", "offset", "end", "lag")


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
    with StoreView(store) as view:
        progress = view.progress()
    if most is not None and not _of(progress, group, topic):
        raise _nothing_to_watch(group, topic, progress)
    output = make_output(format)
    if master is None and report is None:
        found = _here(store, group, topic, output)
    else:
        found = _on_spark(store, group, topic, report, master or "local[2]", output)
    lag: dict[str, int] = found["lag"]
    lines = [f"{name}: {behind} messages behind" for name, behind in sorted(lag.items())]
    lines = lines or ["no group has progress here"]
    if found.get("report") is not None:
        lines.append(f"report: {found['report']}")
    output.document(found, lines)
    output.warnings(found["warnings"])
    return int(most is not None and any(behind > most for behind in lag.values()))


def _of(progress: list[GroupProgress], group: str | None, topic: str | None) -> list[GroupProgress]:
    return [row for row in progress if group in (None, row.group) and topic in (None, row.topic)]


def _nothing_to_watch(group: str | None, topic: str | None, progress: list[GroupProgress]) -> UsageError:
    """The error for a name that no progress is of: whoever waits for an alert would wait for ever."""
    asked = [f"{kind} {name!r}" for kind, name in (("group", group), ("topic", topic)) if name is not None]
    known = sorted({f"{row.group} in {row.topic}" for row in progress})
    more = f" and {len(known) - 5} more" if len(known) > 5 else ""
    if not known:
        return UsageError("no group has progress here", hint="is it the store that the groups consume from?")
    return UsageError(
        f"no progress is here of {' in '.join(asked)}", hint=f"there is that of {', '.join(known[:5])}{more}"
    )


def _here(store: Path, group: str | None, topic: str | None, output: Output) -> dict[str, Any]:
    with StoreView(store) as view:
        rows = _of(view.progress(), group, topic)
        overlooked = view.overlooked({(row.topic, row.queue_id) for row in rows})
    totals: dict[str, int] = {}
    for row in rows:
        totals[row.group] = totals.get(row.group, 0) + (row.lag or 0)
    if rows:
        cells = [(row.group, row.topic, row.queue_id, row.consumer_offset, row.max_offset, row.lag) for row in rows]
        output.table("consumer groups", _COLUMNS, cells)
    name = broker_name(store)
    return {
        "progress": [{"brokerName": name, **to_json(row)} for row in rows],
        "lag": totals,
        "warnings": overlooked,
    }


def _on_spark(
    store: Path, group: str | None, topic: str | None, report: Path | None, master: str, output: Output
) -> dict[str, Any]:
    from mqstore.spark import jobs

    check_report(report, store)
    with spark_session("lag", master) as session, step_bar("reading what waits") as on_progress:
        result = jobs.lag(session, store.absolute(), group=group, topic=topic, report=report, on_progress=on_progress)
    cells = [(*row[1:7], None if row.oldest_ms is None else time_text(row.oldest_ms)) for row in result.rows]
    output.table("consumer groups", (*_COLUMNS, "oldest waiting"), cells)
    found: dict[str, Any] = to_json(result)
    return {"progress": found.pop("rows"), "lag": result.lag, **found, "warnings": result.warnings}
