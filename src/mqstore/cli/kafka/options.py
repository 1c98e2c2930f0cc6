"""Parameters that the commands for Kafka logs share, and how their texts are read."""

from __future__ import annotations

import base64
import binascii
from pathlib import Path
from typing import Annotated

import typer

from mqstore import errors
from mqstore.cli.options import parse_path

LogPath = Annotated[
    Path,
    typer.Argument(
        metavar="PATH",
        help="Data directory, partition directory (topic-0), or one of their files.",
        parser=parse_path,
    ),
]
DirectoryPath = Annotated[
    Path,
    typer.Argument(metavar="PATH", help="Data directory, or partition directory (topic-0).", parser=parse_path),
]
TopicOption = Annotated[str | None, typer.Option("--topic", "-t", help="Only this topic.")]
PartitionOption = Annotated[int | None, typer.Option("--partition", "-p", min=0, help="Only this partition.")]
StartOption = Annotated[int | None, typer.Option(min=0, help="Offset of the first record.")]
EndOption = Annotated[int | None, typer.Option(min=0, help="Offset to stop at.")]
BeginTimeOption = Annotated[
    str | None, typer.Option("--begin-time", "-b", help="Not older than: ms, or yyyy-MM-dd#HH:mm:ss[:SSS] in UTC.")
]
EndTimeOption = Annotated[str | None, typer.Option("--end-time", "-e", help="Not newer than: as --begin-time.")]
SkipDamageOption = Annotated[bool, typer.Option("--skip-damage", help="Go on behind damaged batches.")]
OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", metavar="PATH", help="New directory for the result; PATH stays as it is.", parser=parse_path
    ),
]
InPlaceOption = Annotated[bool, typer.Option("--in-place", help="Change the directory itself.")]
IntervalOption = Annotated[
    int, typer.Option("--index-interval-bytes", min=0, help="Bytes between index entries, which no file tells.")
]

_BASE64 = "base64:"


def parse_key(text: str | None) -> bytes | None:
    """A key as bytes: text as UTF-8, or ``base64:`` and its bytes.

    Raises:
        UsageError: no base64 follows.
    """
    if text is None:
        return None
    if not text.startswith(_BASE64):
        return text.encode("utf-8", "surrogateescape")
    try:
        return base64.b64decode(text[len(_BASE64) :], validate=True)
    except binascii.Error:
        raise errors.UsageError("no base64 follows", found=text, expected="base64:a2V5") from None
