"""``mqstore lag``: how far behind the consumer groups of a store are."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from mqstore.cli.options import FormatOption, StorePath, TopicOption
from mqstore.cli.output import Format, make_output
from mqstore.store.view import StoreView


def run(
    store: StorePath,
    group: Annotated[str | None, typer.Option("--group", "-g", help="Only this group.")] = None,
    topic: TopicOption = None,
    most: Annotated[
        int | None,
        typer.Option("--alert", min=0, help="Exit with 1 when a group is further behind than this."),
    ] = None,
    format: FormatOption = Format.text,
) -> int:
    """Print where every group stands in every queue, and the messages it has still to consume.

    A queue of a group that is not there any more has no lag, which is not the same as none.
    """
    with StoreView(store) as view:
        rows = [row for row in view.progress() if group in (None, row.group) and topic in (None, row.topic)]
    totals: dict[str, int] = {}
    for row in rows:
        totals[row.group] = totals.get(row.group, 0) + (row.lag or 0)
    output = make_output(format)
    if rows:
        cells = [(row.group, row.topic, row.queue_id, row.consumer_offset, row.max_offset, row.lag) for row in rows]
        output.table("consumer groups", ("group", "topic", "queue", "offset", "end", "lag"), cells)
    lines = [f"{name}: {lag} messages behind" for name, lag in sorted(totals.items())] or ["no group has progress here"]
    output.document({"progress": [dataclasses.asdict(row) for row in rows], "lag": totals}, lines)
    return int(most is not None and any(lag > most for lag in totals.values()))
