"""``mqstore tail``: the newest messages, and those that come."""

from __future__ import annotations

import sys
import time
from collections import deque
from typing import Annotated

import typer

from mqstore.cli.messages import broker_name, message_json
from mqstore.cli.options import FormatOption, StorePath, TopicOption
from mqstore.cli.output import Format, Output, body_text, make_output, time_text
from mqstore.layout.constants import INT_MAX
from mqstore.layout.record import Record
from mqstore.store.following import Follower
from mqstore.store.view import StoreView


def run(
    store: StorePath,
    topic: TopicOption = None,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, max=INT_MAX, help="Messages to print at first.")] = 10,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with messages as they come.")] = False,
    interval_ms: Annotated[int, typer.Option(min=10, max=INT_MAX, help="With --follow: how often to look.")] = 500,
    format: FormatOption = Format.text,
) -> int:
    """Print the newest messages of the log; with --follow also those that are written from now on."""
    output = make_output(format)
    name = broker_name(store)
    with StoreView(store) as view:
        end = view.log_end
        for record in _newest(view, topic, lines, end):
            _print(output, record, name)
        if view.log.is_damaged_at(end):
            sys.stderr.write(f"the log ends at {end} with damage: what may lie behind is not shown\n")
        follower = Follower(view, end) if follow else None
        while follower is not None:
            time.sleep(interval_ms / 1000)
            for record in follower.new():
                if topic is None or record.topic == topic:
                    _print(output, record, name)
    return 0


def _newest(view: StoreView, topic: str | None, lines: int, end: int) -> list[Record]:
    """The last ``lines`` messages before ``end``, in log order: read file by file from the newest."""
    found: list[Record] = []
    for entry in reversed(view.log.inventory.entries):
        if len(found) >= lines:
            break
        stop = min(end, entry.start + entry.length)
        wanted = (record for record in view.scan(entry.start, stop) if topic is None or record.topic == topic)
        found = [*deque(wanted, maxlen=lines - len(found)), *found]  # never all of a file at once
    return found


def _print(output: Output, record: Record, name: str) -> None:
    text = (
        f"{time_text(record.store_timestamp_ms)} {record.topic}/{record.queue_id} #{record.queue_offset} "
        f"{record.tags or '-'} {body_text(record.body)}"
    )
    output.row(message_json(record, name), text)
