"""``mqstore query``: messages by key, by id, or by place in the log."""

from __future__ import annotations

from typing import Annotated

import typer

from mqstore import errors
from mqstore.cli.messages import broker_name, message_json, print_messages
from mqstore.cli.options import (
    BeginOption,
    EndOption,
    FormatOption,
    FromLogOption,
    LimitOption,
    StorePath,
    TopicOption,
    parse_time,
)
from mqstore.cli.output import Format, make_output
from mqstore.layout.record import Record
from mqstore.store.store_reader import TIME_MAX_MS
from mqstore.store.view import StoreView


def run(
    store: StorePath,
    topic: TopicOption = None,
    key: Annotated[str | None, typer.Option("--key", "-k", help="A key or unique key; needs --topic.")] = None,
    message_id: Annotated[str | None, typer.Option("--id", "-i", help="An offset message id, 32 or 56 digits.")] = None,
    physical_offset: Annotated[
        int | None, typer.Option("--physical-offset", "-p", min=0, help="Place in the log.")
    ] = None,
    begin: BeginOption = None,
    end: EndOption = None,
    limit: LimitOption = 64,
    from_log: FromLogOption = False,
    format: FormatOption = Format.text,
) -> int:
    """Print the messages that bear a key, or the one with an id or at a place of the log."""
    if [key, message_id, physical_offset].count(None) != 2 or (key is not None) != (topic is not None):
        raise errors.UsageError("ask in one way", hint="--topic T --key K, or --id ID, or --physical-offset N")
    if key is None and (begin, end) != (None, None):
        raise errors.UsageError("times choose among messages with a key", hint="leave out --begin and --end")
    truncated = False
    with StoreView(store, from_log=from_log) as view:
        if key is not None and topic is not None:
            result = view.query(topic, key, parse_time(begin, 0), parse_time(end, TIME_MAX_MS), limit)
            records, truncated = result.messages, result.truncated
        elif message_id is not None:
            records = _one(view.message_by_id(message_id))
        else:
            records = _one(view.message_at(physical_offset or 0))
    output = make_output(format)
    print_messages(output, "", records)
    name = broker_name(store)
    found = f"{len(records)} messages" + (", and older ones: raise --max or set --end" if truncated else "")
    output.document(
        {"messages": [message_json(record, name) for record in records], "truncated": truncated},
        [found if records else "no message"],
    )
    return 0


def _one(record: Record | None) -> list[Record]:
    return [] if record is None else [record]
