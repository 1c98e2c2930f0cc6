"""The file sizes of a store: those of the files it has, those configured, RocketMQ's for a new one."""

from __future__ import annotations

import dataclasses

from mqstore import errors
from mqstore.files.inventory import take_inventory
from mqstore.files.pool import FilePool
from mqstore.store.checkpoint import FileSizes, load_dispatch_checkpoint
from mqstore.store.config import StoreConfig
from mqstore.store.index_reader import DEFAULT_GEOMETRY, Geometry, IndexFileReader, list_index_files
from mqstore.store.paths import StorePaths

DEFAULT_COMMIT_LOG_FILE_SIZE = 1 << 30
DEFAULT_CONSUME_QUEUE_FILE_SIZE = 6_000_000
_PAGE_SIZE = 4096


def resolve_sizes(paths: StorePaths, config: StoreConfig) -> FileSizes:
    """Sizes to use for the store at ``paths``.

    Raises:
        UsageError: a configured size differs from that of the files; RocketMQ would refuse to start, too.
        CorruptFileError: the only commit log file has a length that cannot be right.
    """
    known = (load_dispatch_checkpoint(one.dispatch_checkpoint) for one in (paths, paths.aside))  # a rebuild was killed
    noted = next((note.sizes for note in known if note is not None), None)
    return FileSizes(
        _commit_log(paths, config, noted), _consume_queue(paths, config, noted), _index(paths, config, noted)
    )


def with_sizes(config: StoreConfig, sizes: FileSizes) -> StoreConfig:
    """``config`` with these sizes, so that a copy of a store has files like the original's."""
    return dataclasses.replace(
        config,
        mapped_file_size_commit_log=sizes.commit_log,
        mapped_file_size_consume_queue=sizes.consume_queue,
        max_hash_slot_num=sizes.index.hash_slots,
        max_index_num=sizes.index.max_entries,
    )


def sizes_in(config: StoreConfig) -> FileSizes:
    """The sizes that ``config`` has from :func:`with_sizes`."""
    log, queue = config.mapped_file_size_commit_log, config.mapped_file_size_consume_queue
    return FileSizes(log or 0, queue or 0, Geometry(config.max_hash_slot_num or 0, config.max_index_num or 0))


def in_one_directory(config: StoreConfig) -> StoreConfig:
    """``config`` for a copy of its store, whose log lies in the copy's own ``commitlog``."""
    return dataclasses.replace(config, store_path_commit_log=None, read_only_commit_log_store_paths=None)


def _commit_log(paths: StorePaths, config: StoreConfig, noted: FileSizes | None) -> int:
    wanted = config.mapped_file_size_commit_log
    inventory = take_inventory(paths.commit_logs)
    found = inventory.size_bytes
    if not found:
        return wanted or DEFAULT_COMMIT_LOG_FILE_SIZE
    if wanted is None and noted is not None and noted.commit_log >= found:
        return noted.commit_log
    if wanted is None:
        if len(inventory.entries) == 1 and found % _PAGE_SIZE:
            raise errors.CorruptFileError(
                "the only commit log file has an odd length",
                path=inventory.entries[0].path,
                expected=f"a multiple of {_PAGE_SIZE}",
                found=found,
                hint="if it was cut short, give mapped_file_size_commit_log",
            )
        return found
    short_last = len(inventory.entries) == 1 and found < wanted
    if found != wanted and not short_last and (noted is None or noted.commit_log != wanted):
        raise _differs("mapped_file_size_commit_log", wanted, found, paths)
    return wanted


def _consume_queue(paths: StorePaths, config: StoreConfig, noted: FileSizes | None) -> int:
    wanted = config.mapped_file_size_consume_queue
    if wanted is None and noted is not None:
        return noted.consume_queue
    found = _queue_file_size(paths) or _queue_file_size(paths.aside)  # a rebuild was killed
    if wanted is None:
        return found if found and found % 20 == 0 else DEFAULT_CONSUME_QUEUE_FILE_SIZE
    return wanted


def _queue_file_size(paths: StorePaths) -> int:
    queues = (paths.queue(*key) for key in paths.list_queues())
    return max((take_inventory([directory]).size_bytes for directory in queues), default=0)


def _index(paths: StorePaths, config: StoreConfig, noted: FileSizes | None) -> Geometry:
    slots, entries = config.max_hash_slot_num, config.max_index_num
    if slots is not None and entries is not None:
        return Geometry(slots, entries)
    known = noted.index if noted is not None else _index_in_files(paths)
    return Geometry(known.hash_slots if slots is None else slots, known.max_entries if entries is None else entries)


def _index_in_files(paths: StorePaths) -> Geometry:
    """The shape of the newest index file that tells it; RocketMQ's where none does."""
    pool = FilePool(1)
    try:
        for path in (*reversed(list_index_files(paths.index)), *reversed(list_index_files(paths.aside.index))):
            try:
                return IndexFileReader(path, pool).geometry
            except errors.CorruptFileError:
                continue  # damage is recovery's business; another file may tell the shape
    finally:
        pool.close()
    return DEFAULT_GEOMETRY


def _differs(name: str, wanted: int, found: int, paths: StorePaths) -> errors.UsageError:
    return errors.UsageError(
        f"setting {name} differs from the files",
        path=paths.root,
        expected=found,
        found=wanted,
        hint="leave the setting out to take the size that the files have",
    )
