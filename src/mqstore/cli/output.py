"""What a command prints: as tables for people, or as JSON for programs.

A command hands over plain values and never prints by itself. Text from a store may hold anything; on a terminal it is
shown with control characters escaped, so that a message cannot move the cursor.
"""

from __future__ import annotations

import base64
import dataclasses
import enum
import io
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import Any, Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from mqstore import errors
from mqstore.findings import Finding

_PIPE_WIDTH = 100_000
"""Columns where no terminal sets a limit: nothing is cut."""


class Format(str, enum.Enum):
    """How to print."""

    text = "text"
    json = "json"


class Output(Protocol):
    """One way of printing."""

    def document(self, value: object, lines: Iterable[str] = ()) -> None:
        """One answer: ``value``, a mapping or something with fields, as JSON, or ``lines`` as text."""

    def table(self, title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """A table; not printed as JSON, where :meth:`document` has it all."""

    def row(self, value: Mapping[str, Any], text: str) -> None:
        """One of many answers: a line of JSON, or a line of text."""

    def error(self, error: errors.MqstoreError) -> None:
        """What went wrong, with the hint."""

    def warnings(self, findings: Iterable[Finding]) -> None:
        """What figures lack; not printed as JSON, where :meth:`document` has it."""


class JsonOutput:
    """JSON on standard output, one document or one line for each row."""

    def document(self, value: object, lines: Iterable[str] = ()) -> None:
        """Print ``value``."""
        _write_json(value, indent=2)

    def table(self, title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Print nothing."""

    def row(self, value: Mapping[str, Any], text: str) -> None:
        """Print ``value`` on one line."""
        _write_json(value, separators=(",", ":"))

    def error(self, error: errors.MqstoreError) -> None:
        """Print the error as an object under ``error``."""
        kind = type(error).__name__
        details = {name: str(value) for name, value in error.details().items() if name != "offset"}
        offset = {} if error.offset is None else {"offset": error.offset}
        self.document({"error": {"type": kind, "message": error.message, **details, **offset}})

    def warnings(self, findings: Iterable[Finding]) -> None:
        """Print nothing."""


def _write_json(value: object, **style: Any) -> None:
    """Print ``value`` in the characters of the output's encoding, escaped where it lacks one."""
    plain = to_json(value)
    text = json.dumps(plain, ensure_ascii=False, **style)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(plain, **style)
    sys.stdout.write(text + "\n")


class _Console(Console):
    """A console that leaves it to the caller what a closed pipe means."""

    def on_broken_pipe(self) -> None:
        """Called inside the handling of the error: pass it on."""
        raise  # noqa: PLE0704


class TextOutput:
    """Tables and lines on standard output, errors on standard error."""

    def __init__(self) -> None:
        width = None if sys.stdout.isatty() else _PIPE_WIDTH
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")  # what this terminal cannot show
        self._console = _Console(width=width, markup=False, highlight=False, soft_wrap=not sys.stdout.isatty())

    def document(self, value: object, lines: Iterable[str] = ()) -> None:
        """Print ``lines``."""
        for line in lines:
            self._console.print(Text(printable(line)), soft_wrap=True)

    def table(self, title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Print a table without frame, numbers to the right."""
        rows = [list(row) for row in rows]
        table = Table(title=title or None, title_justify="left", box=None, pad_edge=False, title_style="bold")
        for index, name in enumerate(columns):
            numeric = bool(rows) and all(isinstance(row[index], int | float) or row[index] is None for row in rows)
            table.add_column(name, justify="right" if numeric else "left", no_wrap=True, overflow="ellipsis")
        for row in rows:
            table.add_row(*(Text("-" if cell is None else printable(str(cell))) for cell in row))
        self._console.print(table)

    def row(self, value: Mapping[str, Any], text: str) -> None:
        """Print ``text``."""
        self._console.print(Text(printable(text)), soft_wrap=True)

    def error(self, error: errors.MqstoreError) -> None:
        """Print the error and its hint."""
        console = Console(stderr=True, markup=False, highlight=False, soft_wrap=True)
        console.print(Text(f"error: {printable(str(error))}"))
        if error.hint:
            console.print(Text(f"hint: {printable(error.hint)}"))

    def warnings(self, findings: Iterable[Finding]) -> None:
        """Print a line for each on standard error."""
        console = Console(stderr=True, markup=False, highlight=False, soft_wrap=True)
        for one in findings:
            place = one.path if one.offset is None else f"{one.path} @ {one.offset}"
            text = f"warning: the figures may be too small: {one.area}: {one.message}; at {place}; repair: {one.repair}"
            console.print(Text(printable(text)))


def make_output(kind: Format) -> Output:
    """The output for ``--format``."""
    return JsonOutput() if kind is Format.json else TextOutput()


def to_json(value: Any) -> Any:
    """``value`` with bytes as base64, and everything else that JSON lacks as text.

    Fields of dataclasses and named tuples get their names by :func:`json_name`; names in a mapping stay as they are, as
    they may be those of topics. How long something took is rounded to milliseconds.
    """
    if isinstance(value, Finding):
        return value.as_dict()
    if (names := _field_names(value)) is not None:
        return {json_name(name): _rounded(name, to_json(getattr(value, name))) for name in names}
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, Mapping):
        return {str(name): to_json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    if isinstance(value, enum.Enum):
        return value.value
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return str(value)


def _field_names(value: Any) -> Sequence[str] | None:
    if dataclasses.is_dataclass(value):
        return [field.name for field in dataclasses.fields(value)]
    return value._fields if isinstance(value, tuple) and hasattr(value, "_fields") else None


def _rounded(name: str, value: Any) -> Any:
    if not name.endswith("seconds"):
        return value
    return {key: round(one, 3) for key, one in value.items()} if isinstance(value, dict) else round(value, 3)


def json_name(name: str) -> str:
    """A field's name in JSON: camelCase, as in a broker's files and in the columns on Spark; times are in ms there."""
    first, *rest = (name.removesuffix("_ms") if name.endswith("timestamp_ms") else name).split("_")
    return first + "".join(word.capitalize() for word in rest)


def printable(text: str) -> str:
    """``text`` on one line, with everything escaped that a terminal would act upon."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


def body_text(body: bytes, limit: int = 60) -> str:
    """The beginning of a message body for people: text where it is text, else escapes."""
    text = printable(body[: 4 * limit].decode("utf-8", "backslashreplace"))
    return text if len(text) <= limit and len(body) <= 4 * limit else text[: limit - 1] + "…"


def time_text(timestamp_ms: int) -> str:
    """A time in UTC to the millisecond."""
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, tz=timezone.utc)
    except (OverflowError, OSError, ValueError):
        return str(timestamp_ms)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{timestamp_ms % 1000:03d}"


def size_text(size_bytes: int) -> str:
    """A size for people."""
    size, unit = float(size_bytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size_bytes} B" if unit == "B" else f"{size:.1f} {unit}"


@contextmanager
def progress_bar(label: str) -> Iterator[Any]:
    """A function to call with (bytes done, bytes in all); it draws a bar on a terminal and nothing in a pipe."""
    with _bar(label, DownloadColumn(binary_units=True)) as update:
        yield update


@contextmanager
def step_bar(label: str) -> Iterator[Any]:
    """The same for steps: a function to call with (steps done, steps in all)."""
    with _bar(label, MofNCompleteColumn()) as update:
        yield update


@contextmanager
def _bar(label: str, figures: ProgressColumn) -> Iterator[Any]:
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), figures, TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(label, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
