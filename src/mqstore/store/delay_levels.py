"""Which delay levels a store has: they decide when a delayed message is due, and a queue unit holds that time.

A broker has them in its configuration only (``messageDelayLevel``), which its store does not tell. Here the store notes
those that are not RocketMQ's own in its root, so that every tool computes the same times.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mqstore.files import durable
from mqstore.files.whole import read_whole
from mqstore.layout.delay import DEFAULT_DELAY_LEVELS, parse_delay_levels
from mqstore.store.json_note import load_note
from mqstore.store.paths import StorePaths

NOTE_NAME = "mqstore-delay-levels.json"
_LEVELS = "messageDelayLevel"


def delay_levels_of(paths: StorePaths, configured: str | None = None) -> str:
    """The levels as text: those ``configured``, those noted in the store, or RocketMQ's.

    Raises:
        CorruptConfigError: the note cannot be read as one.
        StoreIOError: it could not be read.
    """
    if configured is not None:
        return configured

    def parse(content: Any) -> str:
        parse_delay_levels(content[_LEVELS])
        return str(content[_LEVELS])

    noted = load_note(
        paths.root / NOTE_NAME,
        "note of delay levels",
        parse,
        expected=f'a JSON object with {_LEVELS}, as "{DEFAULT_DELAY_LEVELS}"',
        hint="remove it, and give message_delay_level when opening the store",
    )
    return DEFAULT_DELAY_LEVELS if noted is None else noted


def save_delay_levels(root: Path, levels: str) -> None:
    """Note ``levels`` in the store at ``root``, durably; one that never had others than RocketMQ's needs no note."""
    path = root / NOTE_NAME
    known = read_whole(path, "note of delay levels")
    note = json.dumps({_LEVELS: levels}).encode() + b"\n"
    if known != note and (known is not None or levels != DEFAULT_DELAY_LEVELS):
        durable.replace_file(path, note)
