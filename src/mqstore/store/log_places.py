"""Which directories a store's commit log lies in.

``commitlog/`` in the store's root, unless the setting ``store_path_commit_log`` says otherwise. A broker has that in
its ``broker.conf`` only; here the store notes it in its root, so that every tool finds all of the log.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mqstore import errors
from mqstore.files import durable
from mqstore.files.directory_lock import DirectoryLocks
from mqstore.files.inventory import take_inventory
from mqstore.files.whole import mode_of, read_whole
from mqstore.store.json_note import load_note

NOTE_NAME = "mqstore-commitlog.json"
SEPARATOR = ","
_DEFAULT_NAME = "commitlog"
_WRITABLE, _READ_ONLY = "storePathCommitLog", "readOnlyCommitLogStorePaths"


@dataclass(frozen=True)
class LogPlaces:
    """Directories of a log: those that new files go to, and those that only hold old ones."""

    paths: tuple[Path, ...]
    read_only: tuple[Path, ...] = ()

    @property
    def all(self) -> list[Path]:
        """Every directory once."""
        return [*self.paths, *(path for path in self.read_only if path not in self.paths)]

    def lock(self, locks: DirectoryLocks) -> None:
        """Keep other stores from writing there; those that only hold old files may belong to several stores.

        Raises:
            StoreLockedError, StoreIOError: as :meth:`DirectoryLocks.acquire`.
        """
        for path in filter(mode_of, self.all):
            locks.acquire(path, shared=path not in self.paths)


def default_places(root: Path) -> LogPlaces:
    """Where the log lies when nothing was said."""
    return LogPlaces((root / _DEFAULT_NAME,))


def split_paths(text: str, setting: str) -> tuple[Path, ...]:
    """The directories that a setting names, divided by commas as RocketMQ does.

    Raises:
        UsageError: one is named twice, also through a link: every file in it would be there twice.
    """
    if "\0" in text:
        raise errors.UsageError(f"setting {setting} holds a NUL character", found=repr(text)[:80])
    names = [name.strip() for name in text.split(SEPARATOR)]
    paths = tuple(Path(name).absolute() for name in names if name)
    if not paths:
        raise errors.UsageError(f"setting {setting} names no directory", expected="paths divided by commas", found=text)
    check_distinct(paths, setting)
    return paths


def check_distinct(paths: Sequence[Path], setting: str) -> None:
    """Raise UsageError if two of ``paths`` are one directory."""
    seen: dict[str, Path] = {}
    for path in paths:
        real = os.path.realpath(path)
        if real in seen:
            raise errors.UsageError(
                f"setting {setting} names one directory twice", path=path, expected="each once", found=str(seen[real])
            )
        seen[real] = path


def given_places(root: Path, writable: str | None, read_only: str | None) -> LogPlaces | None:
    """:func:`configured_places` when one of the settings is given, else None: the store's note says it."""
    return None if writable is None and read_only is None else configured_places(root, writable, read_only)


def configured_places(root: Path, writable: str | None, read_only: str | None) -> LogPlaces:
    """The places that the settings give for the store at ``root``; what they leave open is as it was noted.

    Raises:
        UsageError: the settings leave out a directory that holds files of the log, or cannot be meant.
        CorruptConfigError: the note cannot be read as one.
        StoreIOError: a directory of the log is missing.
    """
    noted = _read_note(root)
    paths = noted.paths if writable is None else split_paths(writable, "store_path_commit_log")
    old = noted.read_only if read_only is None else split_paths(read_only, "read_only_commit_log_store_paths")
    places = LogPlaces(paths, old)
    check_distinct(places.all, "store_path_commit_log with read_only_commit_log_store_paths")
    known = {os.path.realpath(path) for path in places.all}
    for path in [*noted.all, *default_places(root).all]:
        if os.path.realpath(path) not in known and take_inventory([path]).entries:
            raise errors.UsageError(
                "a directory with files of this store's log is left out",
                path=path,
                expected="every directory that has files",
                found=[str(one) for one in places.all],
                hint="name it in read_only_commit_log_store_paths, or move its files to one of the others",
            )
    new = set(places.paths) - set(noted.all) - set(default_places(root).all)
    _check_present(path for path in places.all if path not in new and path != root / _DEFAULT_NAME)
    return places


def load_places(root: Path) -> LogPlaces:
    """The places noted in the store at ``root``; the default ones without a note.

    Raises:
        CorruptConfigError: the note cannot be read as one.
        StoreIOError: it could not be read, or a directory in it is missing, as when its disk is not mounted.
    """
    places = _read_note(root)
    _check_present(path for path in places.all if path != root / _DEFAULT_NAME)
    return places


def _check_present(paths: Iterable[Path]) -> None:
    for path in paths:
        if not stat.S_ISDIR(mode_of(path)):
            raise errors.StoreIOError(
                "a directory of the commit log is missing",
                path=path,
                expected="a directory",
                hint="mount its disk; if it is gone for good, name the others in store_path_commit_log",
            )


def _read_note(root: Path) -> LogPlaces:
    def parse(content: Any) -> LogPlaces:
        writable, read_only = (_directories(root, content[key]) for key in (_WRITABLE, _READ_ONLY))
        if not writable:
            raise ValueError(f"{_WRITABLE} names no directory")
        return LogPlaces(writable, read_only)

    noted = load_note(
        root / NOTE_NAME,
        "note of the log's directories",
        parse,
        expected=f"a JSON object with the lists {_WRITABLE} and {_READ_ONLY}",
        hint="remove it, and give store_path_commit_log when opening the store",
    )
    return default_places(root) if noted is None else noted


def _directories(root: Path, names: Any) -> tuple[Path, ...]:
    if not isinstance(names, list):
        raise TypeError(f"no list of directories: {names!r}"[:80])
    if any("\0" in name for name in names):
        raise ValueError("a directory's name holds a NUL character")
    return tuple(root / name for name in names)


def save_places(root: Path, places: LogPlaces) -> None:
    """Note ``places`` in the store at ``root``, durably; no note is needed for the default ones."""
    path = root / NOTE_NAME
    content = {_WRITABLE: _names(root, places.paths), _READ_ONLY: _names(root, places.read_only)}
    note = json.dumps(content, indent=1).encode() + b"\n"
    if content == {_WRITABLE: [_DEFAULT_NAME], _READ_ONLY: []}:
        if mode_of(path):
            durable.remove_file(path)
            durable.sync_directory(root)
    elif read_whole(path, "note of the log's directories") != note:
        durable.replace_file(path, note)


def _names(root: Path, paths: Sequence[Path]) -> list[str]:
    """``paths`` as text; those below ``root`` from there, so that a store that is moved finds them."""
    base = root.absolute()
    return [str(path.absolute().relative_to(base) if base in path.absolute().parents else path) for path in paths]
