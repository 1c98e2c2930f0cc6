"""How the demo talks: headings, lines, tables, and bars for what takes time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from mqstore.cli.output import TextOutput


class Stage:
    """Where the demo's text goes: standard output, or nowhere when the answer is asked for as JSON."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._output = TextOutput()

    def heading(self, text: str) -> None:
        """Begin a step."""
        if not self._quiet:
            self._output.document({}, ["", f"== {text}"])

    def say(self, *lines: str) -> None:
        """Tell something."""
        if not self._quiet:
            self._output.document({}, lines)

    def table(self, title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Show a table."""
        if not self._quiet:
            self._output.table(title, columns, rows)

    @contextmanager
    def progress(self, label: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
        """A bar on a terminal, one line elsewhere; gives a function to call with what is done so far."""
        if self._quiet or not sys.stderr.isatty():
            self.say(f"{label} ...")
            yield lambda done: None
            return
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(label, total=total)
            yield lambda done: bar.update(task, completed=done)
