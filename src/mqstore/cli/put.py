"""``mqstore put``: messages into a store, from the command line or from a pipe."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Annotated

import typer

from mqstore import errors
from mqstore.cli.options import FormatOption, StorePath, standard_input
from mqstore.cli.output import Format, make_output
from mqstore.store.config import FlushDiskType, StoreConfig
from mqstore.store.message import Message
from mqstore.store.opening import open_store

_AT_A_TIME = 500


def run(
    store: StorePath,
    topic: Annotated[str, typer.Argument(help="The topic.")],
    body: Annotated[str | None, typer.Argument(help="The body; left out: one message for each line of input.")] = None,
    tags: Annotated[str | None, typer.Option("--tags", help="The tag.")] = None,
    key: Annotated[list[str] | None, typer.Option("--key", "-k", help="A key; may be given several times.")] = None,
    property_: Annotated[
        list[str] | None, typer.Option("--property", "-p", help="NAME=VALUE; may be given several times.")
    ] = None,
    queue: Annotated[int | None, typer.Option("--queue", "-q", help="Queue; left out: in turn.")] = None,
    delay_level: Annotated[int, typer.Option("--delay-level", help="1 to 18: wait 1 s to 2 h.")] = 0,
    format: FormatOption = Format.text,
) -> int:
    """Put messages, making the store if it is not there, and return when they are on the device.

    No other process may have the store open for writing. Delayed messages are delivered while one has.
    """
    properties = dict(_pair(text) for text in property_ or ())
    lines = (line.rstrip(b"\r\n") for line in (standard_input() if body is None else ()))
    # The bytes of the command line, whether they are text or not.
    bodies: Iterable[bytes] = lines if body is None else [os.fsencode(body)]
    messages = (Message(topic, one, tags, tuple(key or ()), dict(properties), queue, delay_level) for one in bodies)
    config = StoreConfig(flush_disk_type=FlushDiskType.SYNC_FLUSH, schedule_message_enable=False)
    count = 0
    last = None
    with open_store(store, config=config) as opened:
        for chunk in _chunks(messages):
            last = opened.put_batch(chunk)[-1]
            count += len(chunk)
    document = {
        "messages": count,
        "lastMsgId": last.msg_id if last else None,
        "lastQueue": last.queue_id if last else None,
        "lastQueueOffset": last.queue_offset if last else None,
    }
    where = f"; the last is {last.msg_id}, at {last.queue_offset} of {last.topic}/{last.queue_id}" if last else ""
    make_output(format).document(document, [f"{count} messages put{where}"])
    return 0


def _pair(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator:
        raise errors.UsageError("not a property", expected="NAME=VALUE", found=repr(text))
    return name, value


def _chunks(messages: Iterator[Message]) -> Iterator[list[Message]]:
    while chunk := list(islice(messages, _AT_A_TIME)):
        yield chunk
