"""Opening a store for writing."""

from __future__ import annotations

import os
from typing import Any

from mqstore import errors
from mqstore.store.config import StoreConfig, given_config
from mqstore.store.recovery import Progress
from mqstore.store.store import Store


def open_store(
    path: str | os.PathLike[str],
    *,
    on_progress: Progress | None = None,
    config: StoreConfig | None = None,
    **settings: Any,
) -> Store:
    """Open the store in directory ``path`` for writing, creating it if need be; bring it in order after a crash.

    Args:
        path: the store's root directory.
        on_progress: called during recovery with the bytes of log walked and the bytes there are.
        config: all settings at once, or
        **settings: single settings of :class:`StoreConfig`, as ``flush_disk_type="SYNC_FLUSH"``.

    Raises:
        StoreLockedError: another process has it open for writing.
        NotAStoreError: the path is a file.
        UsageError: an unknown setting, or a value that cannot be meant; or the directory is Kafka's.
        CorruptFileError, CorruptRecordError: damage that no crash explains; the log was not changed.
        StoreIOError: no permission, the device failed, or there is no memory or no thread to be had.
    """
    if config is None:
        config = StoreConfig.from_mapping(settings)
    elif settings:
        raise errors.UsageError("give either config or single settings", found=sorted(settings))
    config = given_config(config)
    with errors.naming_the_limit("open the store", path):
        return Store(path, config, on_progress)
