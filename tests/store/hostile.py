"""What is tried with a store in whose directory anything may lie."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import mqstore
from mqstore import (
    Message,
    MqstoreError,
)
from mqstore.store.check import check_store
from mqstore.store.rebuild import rebuild
from store.support import SMALL, open_small

# Queue files longer than SMALL's: a hostile queue offset may make a thousand of them.
SIZES = {**SMALL, "mapped_file_size_consume_queue": 2000}
COUNT = 30


def look(store: Path) -> None:
    with mqstore.inspect(store) as view:
        list(view.scan(on_damage=lambda damage: True))
        list(view.blanks())
        view.queues()
        view.progress()
        view.get("T", 0, 0)
        list(view.units("T", 0))
        view.query("T", "k1")
        view.offset_at("T", 0, 1)
        _ = view.checkpoint, view.was_aborted, view.settings.topics


def check(store: Path) -> None:
    with mqstore.inspect(store) as view:
        check_store(view, lambda finding: None)


def rebuild_copy(store: Path, *, salvage: bool = False) -> None:
    output = store.parent / "rebuilt"
    shutil.rmtree(output, ignore_errors=True)
    rebuild(store, output, salvage=salvage)


def salvage(store: Path) -> None:
    rebuild_copy(store, salvage=True)


def write(store: Path) -> None:
    with open_small(store, **SIZES) as opened:
        result = opened.put(Message("T", b"one more", queue_id=0))
        assert opened.message_at(result.physical_offset).body == b"one more"
        opened.get("T", 0, result.queue_offset)


ACTIONS: list[Callable[[Path], None]] = [look, check, rebuild_copy, salvage, write]


def try_everything(store: Path) -> list[str]:
    """Do all there is to do; the names of the errors met."""
    met = []
    for action in ACTIONS:
        try:
            action(store)
        except MqstoreError as error:
            assert error.hint, f"{action.__name__}: {error!r}"  # noqa: PT017
            met.append(f"{action.__name__}: {type(error).__name__}")
    return met
