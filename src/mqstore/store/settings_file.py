"""Loading and saving one settings file of ``config/`` with its ``.bak`` (docs/format/config-json.md).

RocketMQ replaces these files in place and without a sync; a power cut leaves them empty, mixed or as noise. Here a
save goes through a temporary file in the same directory, a sync and a rename, and only content that reads back right
ever becomes the ``.bak``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from mqstore import errors
from mqstore.files import durable
from mqstore.files.whole import read_whole

_log = logging.getLogger(__name__)
T = TypeVar("T")


def load(path: Path, parse: Callable[[bytes], T]) -> T | None:
    """The parsed content of ``path``, or of its ``.bak`` when it is missing, empty or damaged; None if neither exists.

    Raises:
        CorruptConfigError: a file is there and neither it nor its ``.bak`` can be read: starting empty would make
            consumers read everything again.
        StoreIOError: a file is there and may not be read.
    """
    damaged: list[errors.DamageError] = []
    for candidate in (path, backup_path(path)):
        try:
            data = _read(candidate)
            if data is None:
                continue
            if not data.strip():
                raise errors.CorruptConfigError("settings file is empty", path=candidate)
            loaded = parse(data)
        except errors.DamageError as error:
            damaged.append(error)
            continue
        if damaged:
            _log.warning("%s is damaged, using %s", path, candidate)
        return loaded
    if damaged:
        raise errors.CorruptConfigError(
            "settings file is damaged and so is its backup, or there is none",
            path=path,
            found=str(damaged[0]),
            expected=f"readable JSON here or in {backup_path(path)}",
            hint="restore one of the two files, or remove both to start with nothing",
        )
    return None


def save(path: Path, content: bytes, parse: Callable[[bytes], object]) -> None:
    """Put ``content`` in place of ``path``; what was there before becomes the ``.bak`` if it is sound."""
    durable.make_directories(path.parent)
    try:
        previous = _read(path)
    except errors.DamageError:
        previous = None
    if previous is not None and previous != content and _is_sound(previous, parse):
        durable.replace_file(backup_path(path), previous)
    if previous != content:
        durable.replace_file(path, content)


def backup_path(path: Path) -> Path:
    """Where the previous version of ``path`` is kept."""
    return path.with_name(path.name + ".bak")


def _is_sound(content: bytes, parse: Callable[[bytes], object]) -> bool:
    try:
        parse(content)
    except errors.DamageError:
        return False
    return bool(content.strip())


def _read(path: Path) -> bytes | None:
    return read_whole(path, "settings file")
