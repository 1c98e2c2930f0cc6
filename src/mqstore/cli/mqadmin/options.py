"""The short options that RocketMQ's commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from mqstore import errors

Topic = Annotated[str, typer.Option("--topic", "-t", help="The topic.")]
QueueId = Annotated[int, typer.Option("--queueId", "-i", min=0, help="The queue.")]
MessageId = Annotated[str, typer.Option("--msgId", "-i", help="The message's id.")]
BeginTime = Annotated[
    str | None,
    typer.Option("--beginTimestamp", "-b", help="Stored at or after: ms, or yyyy-MM-dd#HH:mm:ss:SSS in UTC."),
]
EndTime = Annotated[str | None, typer.Option("--endTimestamp", "-e", help="Stored at or before: as -b.")]
Tags = Annotated[str | None, typer.Option("--subExpression", "-s", help='Tags to pick, as "paid || refunded".')]
InPlace = Annotated[bool, typer.Option("--in-place", help="Do it; without, only tell what would be done.")]
PrintBody = Annotated[str, typer.Option("--printBody", "-d", help="true: print their bodies.")]


def is_true(text: str) -> bool:
    """What ``true`` and ``false`` say, which RocketMQ's switches take as a word of their own.

    Raises:
        UsageError: it is neither.
    """
    if text.lower() not in ("true", "false"):
        raise errors.UsageError("neither true nor false", found=repr(text))
    return text.lower() == "true"
