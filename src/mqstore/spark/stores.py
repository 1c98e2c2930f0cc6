"""The stores that one read goes over: their directories and the names of their brokers."""

from __future__ import annotations

import fnmatch
import glob
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from mqstore.errors import NotAStoreError, UsageError, from_os_error, shown_path
from mqstore.files.remote import RemotePath, as_path
from mqstore.files.whole import mode_of
from mqstore.spark.options import ReadOptions
from mqstore.store.arguments import check_store_path
from mqstore.store.paths import StorePaths
from mqstore.store.view import check_is_store

_OF_THE_FILE_SYSTEM: Final = "lost+found"


class StoreRef(NamedTuple):
    """One store: its root directory and the name of the broker whose it is."""

    path: str
    broker_name: str

    def __repr__(self) -> str:
        return f"StoreRef(path={shown_path(self.path)!r}, broker_name={self.broker_name!r})"

    @property
    def paths(self) -> StorePaths:
        """Where its parts lie."""
        return StorePaths(as_path(self.path))


def find_stores(options: ReadOptions) -> list[StoreRef]:
    """The stores that the options name, each once, in their order.

    Raises:
        NotAStoreError: one of them is no store, or a glob matches none.
        UsageError: the number of broker names is not that of the stores.
    """
    found: dict[Path, str] = {}
    known: set[Path] = set()
    for path, name in (one for text in options.paths for one in _expand(text)):
        place = path if isinstance(path, RemotePath) else path.resolve()
        if place not in known:  # or its rows would come twice where a link leads to it as well
            known.add(place)
            found[path] = name
    paths = list(found)
    names = list(options.broker_names) or _names(found)
    if len(names) != len(paths):
        raise UsageError(
            "option brokerName does not fit the stores", expected=f"{len(paths)} names", found=",".join(names)
        )
    if len(set(names)) < len(names):
        raise UsageError("option brokerName gives two stores the same name", found=",".join(names))
    return [StoreRef(os.fspath(path), name) for path, name in zip(paths, names, strict=True)]


def one_store(source: object) -> StorePaths:
    """The one store that a job is for.

    Raises:
        UsageError: that is no path on this machine, or a pattern.
        NotAStoreError: there is no store.
    """
    paths = StorePaths(check_store_path(source).absolute())
    check_is_store(paths)
    return paths


def check_outside(stores: Iterable[StoreRef], target: Path, what: str) -> None:
    """Raise UsageError when ``target``, where ``what`` is to be written, lies in one of the stores."""
    for store in stores:
        if _place(target).is_relative_to(_place(as_path(store.path))):
            raise UsageError(f"the {what} lies in the store", path=target, hint="give a place of its own")


def _place(path: Path) -> Path:
    """Where a path leads, to be compared with where others lead."""
    return Path(str(path)) if isinstance(path, RemotePath) else path.resolve()


def _expand(text: str) -> list[tuple[Path, str]]:
    """Stores with their names; those of a glob begin where it does, so that they stay when it finds more stores."""
    path = as_path(text).absolute()
    if glob.has_magic(path.name if isinstance(path, RemotePath) else text) and not mode_of(path):
        found = [one for one in matching(path) if StorePaths(one).looks_like_store()]
        if not found:
            raise NotAStoreError("no store matches", path=text, hint="give directories that hold commitlog/")
        parts = path.parts[-1:] if isinstance(path, RemotePath) else path.parts
        fixed = len(path.parts) - len(parts) + next(place for place, part in enumerate(parts) if glob.has_magic(part))
        return [(one, "/".join(one.parts[fixed:])) for one in found]
    if isinstance(path, RemotePath) and glob.has_magic(str(path)) and not mode_of(path):
        raise UsageError("in a URL only the last name may be a pattern", path=path)
    check_is_store(StorePaths(path))
    return [(path, Path(str(path)).name)]


def matching(path: Path) -> list[Path]:
    """What a glob matches; in a URL only the last name may be one.

    Raises:
        StoreIOError: something that may match could not be looked at, which is not the same as nothing.
    """
    if isinstance(path, RemotePath):
        return [one for one in path.parent.iterdir() if fnmatch.fnmatchcase(one.name, path.name)]
    found = [Path(path.anchor)]
    for part in path.parts[1:]:
        found = [one for directory in found for one in _named(directory, part)]
    return sorted(found)


def _named(directory: Path, part: str) -> list[Path]:
    """What has the name ``part``, or matches it, in ``directory``."""
    if not glob.has_magic(part):
        return [directory / part] if mode_of(directory / part) else []
    try:
        names = os.listdir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise from_os_error(error, "list directory", directory) from error
    shown = [name for name in names if part.startswith(".") or not name.startswith(".")]
    shown = [name for name in shown if name != _OF_THE_FILE_SYSTEM]  # root alone may enter it
    return [directory / name for name in fnmatch.filter(shown, part)]


def _names(found: dict[Path, str]) -> list[str]:
    """Names of stores, with as many of their parents as it takes to tell them apart."""
    paths = list(found)
    if len(set(found.values())) == len(paths):
        return list(found.values())
    for parts in range(1, max((len(path.parts) for path in paths), default=1) + 1):
        names = ["/".join(Path(str(path)).parts[-parts:]) for path in paths]
        if len(set(names)) == len(paths):
            return names
    return [str(path) for path in paths]
