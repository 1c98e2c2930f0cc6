"""Telling a broker's store what only its broker's configuration says, so that every tool finds all of it."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from mqstore import errors
from mqstore.files.whole import mode_of, read_whole
from mqstore.layout.delay import parse_delay_levels
from mqstore.store.config import parse_properties
from mqstore.store.delay_levels import delay_levels_of, save_delay_levels
from mqstore.store.log_places import LogPlaces, configured_places, save_places
from mqstore.store.multi_dispatch import MultiDispatch, find_multi_dispatch, save_multi_dispatch
from mqstore.store.paths import StorePaths
from mqstore.store.view import check_is_store


class Adopted(NamedTuple):
    """What a store is now known to be: where its log lies, whether records go to further queues, its delay levels."""

    places: LogPlaces
    multi_dispatch: MultiDispatch
    delay_levels: str


def read_broker_conf(path: Path) -> dict[str, str]:
    """The settings in a ``broker.conf``, by RocketMQ's names; most of them are not the store's business.

    Raises:
        StoreIOError: it could not be read.
    """
    data = read_whole(path, "broker configuration")
    if data is None:
        raise errors.StoreIOError(
            "no such broker configuration", path=path, expected="a file", hint="give the broker.conf it runs with"
        )
    return parse_properties(data.decode("utf-8", "replace"))


def adopt(root: Path, settings: Mapping[str, str], *, in_place: bool = True) -> Adopted:
    """Note in the store at ``root`` what ``settings`` say of it; of its files none is touched.

    Args:
        root: the store.
        settings: ``storePathCommitLog`` and ``readOnlyCommitLogStorePaths``, ``enableMultiDispatch``, ``enableLmq``
            and ``messageDelayLevel``; others are passed over, and what is missing stays as it is.
        in_place: False only tells.

    Raises:
        NotAStoreError: there is no store.
        UsageError: the settings leave out a directory that has files of the log, or cannot be meant.
        StoreIOError: a directory of the log is missing.
    """
    check_is_store(StorePaths(root))
    places = configured_places(root, settings.get("storePathCommitLog"), settings.get("readOnlyCommitLogStorePaths"))
    for path in places.all:
        if not stat.S_ISDIR(mode_of(path)):
            raise errors.StoreIOError(
                "a directory of the commit log is missing", path=path, expected="a directory",
                hint="mount its disk, or give the place where it is on this machine: --commit-log",
            )  # fmt: skip
    known = find_multi_dispatch(StorePaths(root, places))
    multi = MultiDispatch(
        _flag(settings, "enableMultiDispatch", known.enabled), _flag(settings, "enableLmq", known.lmq)
    )
    levels = delay_levels_of(StorePaths(root, places), settings.get("messageDelayLevel"))
    parse_delay_levels(levels)
    if in_place:
        save_places(root, places)
        save_multi_dispatch(root, multi)
        save_delay_levels(root, levels)
    return Adopted(places, multi, levels)


def _flag(settings: Mapping[str, str], name: str, default: bool) -> bool:
    value = settings.get(name, str(default)).lower()
    if value not in ("true", "false"):
        raise errors.UsageError(
            f"setting {name} has a value that cannot be meant", expected="true or false", found=value
        )
    return value == "true"
