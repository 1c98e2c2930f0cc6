"""``mqstore dump``: every record of a commit log, in log order."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from mqstore import errors
from mqstore.cli.messages import broker_name, message_json
from mqstore.cli.options import FormatOption, StorePath, TopicOption
from mqstore.cli.output import Format, body_text, make_output, time_text
from mqstore.store.log_reader import LogDamage
from mqstore.store.view import StoreView


def run(
    store: StorePath,
    topic: TopicOption = None,
    start: Annotated[int | None, typer.Option(min=0, help="Physical offset of the first record.")] = None,
    end: Annotated[int | None, typer.Option(min=0, help="Physical offset to stop at.")] = None,
    limit: Annotated[int | None, typer.Option("--max", "-m", min=1, help="At most this many records.")] = None,
    skip_damage: Annotated[bool, typer.Option("--skip-damage", help="Go on behind damaged records.")] = False,
    format: FormatOption = Format.text,
) -> int:
    """Print the records of the commit log in log order: one line, or one JSON object, for each.

    JSON objects have the columns of the Spark source's messages view: times in ms, the body as base64. Damage is told
    on standard error and in the exit code 1; what lies in front of it is always printed.
    """
    output = make_output(format)
    damages: list[LogDamage] = []

    def on_damage(damage: LogDamage) -> bool:
        damages.append(damage)
        sys.stderr.write(f"damaged record at offset {damage.physical_offset} of {damage.path}: {damage.damage.name}\n")
        return skip_damage

    with StoreView(store) as view:
        if start is not None and view.message_at(start) is None and start < view.log_end:
            raise errors.UsageError(
                "no record starts at this offset", offset=start, hint="leave --start out, or take an offset from a dump"
            )
        name = broker_name(store)
        printed = 0
        # A log that is being written to is printed as it is now; `tail --follow` goes after the writer.
        stop = view.log.inventory.end if view.log.is_damaged_at(view.log_end) else view.log_end
        for record in view.scan(start, stop if end is None else min(end, stop), on_damage=on_damage):
            if topic is not None and record.topic != topic:
                continue
            if printed == limit:
                break
            printed += 1
            row = message_json(record, name) if format is Format.json else {}
            text = (
                f"{record.physical_offset:>12} {time_text(record.store_timestamp_ms)} "
                f"{record.topic}/{record.queue_id} #{record.queue_offset} {record.tags or '-'} {body_text(record.body)}"
            )
            output.row(row, text)
    return 1 if damages else 0
