"""``mqstore expire``: remove old files of the log, and what points into them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from mqstore import errors
from mqstore.cli.options import FormatOption, StorePath
from mqstore.cli.output import Format, make_output
from mqstore.store.config import StoreConfig
from mqstore.store.opening import open_store
from mqstore.store.view import StoreView

_HOUR_S = 3600


def run(
    store: StorePath,
    hours: Annotated[int, typer.Option("--hours", min=0, help="Keep files written to within so many hours.")] = 72,
    in_place: Annotated[bool, typer.Option("--in-place", help="Do it; without, only tell what would go.")] = False,
    format: FormatOption = Format.text,
) -> int:
    """Remove log files whose last write is older than --hours, oldest first, never the newest.

    Whether anybody has read the messages is not asked: see what `mqstore lag` says before.
    """
    removed = _remove(store, hours) if in_place else _candidates(store, hours)
    verb = "removed" if in_place else "would go"
    make_output(format).document(
        {"removed": [str(path) for path in removed] if in_place else [], "files": [str(path) for path in removed]},
        [*(f"{verb}: {path}" for path in removed), f"{len(removed)} files {verb}"],
    )
    return 0


def _candidates(store: Path, hours: int) -> list[Path]:
    with StoreView(store) as view:
        entries = view.log.inventory.entries
    old = []
    for entry in entries[:-1]:
        try:
            age_s = time.time() - entry.path.stat().st_mtime
        except OSError as error:
            raise errors.from_os_error(error, "look at file", entry.path) from error
        if age_s < hours * _HOUR_S:
            break
        old.append(entry.path)
    return old


def _remove(store: Path, hours: int) -> list[Path]:
    StoreView(store).close()  # what is no store is not made one
    removed: list[Path] = []
    with open_store(store, config=StoreConfig(file_reserved_time=hours, schedule_message_enable=False)) as opened:
        while found := opened.expire().removed:
            removed += found
    return removed
