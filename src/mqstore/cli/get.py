"""``mqstore get``: messages of one queue from an offset on."""

from __future__ import annotations

import re
import sys
from typing import Annotated

import typer

from mqstore import errors
from mqstore.cli.messages import broker_name, message_json, print_messages
from mqstore.cli.options import FormatOption, FromLogOption, LimitOption, QueueOption, SqlOption, StorePath, TagsOption
from mqstore.cli.output import Format, make_output, printable
from mqstore.layout.sql92 import SqlExpression
from mqstore.store.view import StoreView


def run(
    store: StorePath,
    topic: Annotated[str, typer.Argument(help="The topic.")],
    queue: QueueOption = 0,
    offset: Annotated[
        int | None, typer.Option("--offset", "-o", help="Queue offset; left out: the first stored.")
    ] = None,
    limit: LimitOption = 32,
    where: TagsOption = None,
    sql: SqlOption = None,
    from_log: FromLogOption = False,
    format: FormatOption = Format.text,
) -> int:
    """Print messages of one queue, in queue order, and where to go on."""
    if where is not None and sql is not None:
        raise errors.UsageError("give either --where or --sql")
    if where is not None and _is_condition(where):
        # A tag may be any text without "||" in it, so this is no error.
        sys.stderr.write(f"warning: {printable(where)} is taken as a tag; a condition on properties goes to --sql\n")
    with StoreView(store, from_log=from_log) as view:
        if offset is None:
            found = [info for info in view.queues(topic) if info.queue_id == queue]
            offset = found[0].min_offset if found else 0
        result = view.get(topic, queue, offset, limit, where if sql is None else SqlExpression.parse(sql))
    output = make_output(format)
    print_messages(output, f"{topic}/{queue}", result.messages)
    name = broker_name(store)
    output.document(
        {
            "status": result.status.value,
            "nextOffset": result.next_offset,
            "minOffset": result.min_offset,
            "maxOffset": result.max_offset,
            "messages": [message_json(record, name) for record in result.messages],
        },
        [f"{result.status.value}: go on at {result.next_offset}; stored {result.min_offset} to {result.max_offset}"],
    )
    return 0


def _is_condition(text: str) -> bool:
    """Whether ``text`` is a condition in SQL92, and more than a word that might be one."""
    if re.search(r"[\s=<>]", text) is None:
        return False
    try:
        SqlExpression.parse(text)
    except errors.UsageError:
        return False
    return True
