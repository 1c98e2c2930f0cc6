"""Parameters that several commands share, and how their texts are read."""

from __future__ import annotations

import re
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from mqstore import errors
from mqstore.cli.output import Format
from mqstore.files.remote import as_path
from mqstore.layout.constants import LONG_MAX, LONG_MIN


def parse_path(text: str) -> Path:
    """A path or URL, which must not be empty: nothing would mean the working directory."""
    if not text:
        raise typer.BadParameter("the path names nothing")
    return as_path(text)


StorePath = Annotated[
    Path,
    typer.Argument(metavar="STORE", help="Directory of the store: it holds commitlog/.", parser=parse_path),
]
FormatOption = Annotated[Format, typer.Option("--format", help="Tables for people, or JSON for programs.")]
TopicOption = Annotated[str | None, typer.Option("--topic", "-t", help="Only this topic.")]
QueueOption = Annotated[int, typer.Option("--queue", "-q", min=0, help="Queue of the topic.")]
SqlOption = Annotated[
    str | None, typer.Option("--sql", help="A condition on the properties, as \"amount > 10 AND region = 'eu'\".")
]
TagsOption = Annotated[
    str | None, typer.Option("--where", "-w", help='Tags to pick, as "paid || refunded"; conditions go to --sql.')
]
LimitOption = Annotated[int, typer.Option("--max", "-m", min=1, help="At most this many messages.")]
FromLogOption = Annotated[
    bool, typer.Option("--from-log", help="Read the log alone: for a store that has lost its queues or index.")
]
MasterOption = Annotated[str, typer.Option(help="Spark master: local[N], or the URL of a cluster.")]
OptionalMasterOption = Annotated[
    str | None, typer.Option("--master", help="Let Spark do it: local[N], or the URL of a cluster.")
]
ReportOption = Annotated[
    Path | None,
    typer.Option("--report", metavar="PATH", help="Write a page in HTML with tables and pictures.", parser=parse_path),
]
BeginOption = Annotated[
    str | None, typer.Option("--begin", "-b", help="Stored at or after: ms, or yyyy-MM-dd#HH:mm:ss[:SSS] in UTC.")
]
EndOption = Annotated[str | None, typer.Option("--end", "-e", help="Stored at or before: as --begin.")]


def standard_input() -> BinaryIO:
    """Standard input, for bytes; UsageError when whoever started us has closed it."""
    if sys.stdin is None:
        raise errors.UsageError("standard input is closed", hint="give the input in a pipe or from a file")
    return sys.stdin.buffer


_TIME = re.compile(r"(\d{4}-\d\d-\d\d)(?:[#T ](\d\d:\d\d:\d\d)(?:[:.](\d{1,3}))?)?Z?")


_MASTER = re.compile(
    r"local(\[([1-9]\d*|\*)(, *[1-9]\d*)?\])?|local-cluster\[[1-9]\d*, *[1-9]\d*, *\d+\]|yarn|(spark|k8s|mesos|sc)://.+"
)


def check_master(master: str) -> str:
    """``master``, if Spark can make sense of it; otherwise a UsageError, where Spark would print pages."""
    if _MASTER.fullmatch(master) is None:
        expected = "local[N], spark://HOST:PORT, yarn, k8s://HOST:PORT or sc://HOST:PORT"
        raise errors.UsageError("not the master of a Spark cluster", found=repr(master), expected=expected)
    return master


def parse_time(text: str | None, default: int) -> int:
    """A point in time in ms since the epoch: a number, or a date and time in UTC in one of the usual spellings.

    Raises:
        UsageError: the text is neither.
    """
    if text is None:
        return default
    if re.fullmatch(r"-?\d{1,19}", text) and LONG_MIN <= int(text) <= LONG_MAX:
        return int(text)
    match = _TIME.fullmatch(text)
    if match is not None:
        try:
            moment = datetime.fromisoformat(f"{match[1]}T{match[2] or '00:00:00'}").replace(tzinfo=timezone.utc)
        except ValueError:
            pass
        else:
            return int(moment.timestamp()) * 1000 + int((match[3] or "0").ljust(3, "0"))
    raise errors.UsageError(
        "no point in time", found=repr(text), expected="ms since 1970, or yyyy-MM-dd#HH:mm:ss:SSS",
        hint="for example 1700000000000 or 2026-01-31#08:00:00",
    )  # fmt: skip
