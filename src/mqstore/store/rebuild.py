"""Building queues and index anew from the commit log, whole or cut off, into a new directory or in place.

Whatever is killed in the middle leaves the original or the result. A new directory is made under another name and
renamed when it is complete. In place, the old queues and index are moved aside first; from then on, until the new ones
are complete, opening the store builds them again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from mqstore import errors
from mqstore.files import copying, durable
from mqstore.files.directory_lock import DirectoryLocks
from mqstore.files.inventory import Inventory, ProblemKind, take_inventory
from mqstore.files.lock import StoreLock, is_locked
from mqstore.files.stage import Stage
from mqstore.files.whole import mode_of, read_whole
from mqstore.store import delay_levels, log_places, multi_dispatch
from mqstore.store.arguments import check_path
from mqstore.store.aside import move_aside, put_back
from mqstore.store.config import StoreConfig, given_config
from mqstore.store.cutting import check_cut, cut_log
from mqstore.store.delay_levels import delay_levels_of
from mqstore.store.engine import put_in_order
from mqstore.store.log_places import given_places
from mqstore.store.log_reader import LogReader
from mqstore.store.multi_dispatch import find_multi_dispatch, save_multi_dispatch
from mqstore.store.paths import StorePaths
from mqstore.store.recovery import Progress
from mqstore.store.salvage import Loss, salvage_log
from mqstore.store.sizes import in_one_directory, resolve_sizes, with_sizes
from mqstore.store.view import StoreView, check_is_store

_log = logging.getLogger(__name__)


@dataclass
class RebuildResult:
    """What a rebuild or a truncation made.

    Attributes:
        output: the store.
        queues, units: what its queues hold.
        log_bytes: what its log holds.
        seconds: how long it took.
        losses: what was covered in the log.
        left_out: messages of the log that are in no queue, as their records claim queues or places that cannot be.
    """

    output: Path
    queues: int
    units: int
    log_bytes: int
    seconds: float
    losses: list[Loss] = field(default_factory=list)
    left_out: int = 0


def rebuild(
    source: str | os.PathLike[str],
    output: str | os.PathLike[str] | None,
    *,
    in_place: bool = False,
    salvage: bool = False,
    config: StoreConfig | None = None,
    on_progress: Progress | None = None,
) -> RebuildResult:
    """Build the queues and the index of the store at ``source`` from its log.

    Args:
        source: the store; untouched unless ``in_place``. A running one is copied as it is at the moment.
        output: the new store's directory, which must not exist or be empty.
        in_place: change ``source`` itself; give no ``output`` then.
        salvage: go on behind damage in the middle of the log, covering it, instead of refusing; not in place.
        config: file sizes and delay levels, where they are not those of ``source``.
        on_progress: called with the bytes of log walked and the bytes there are.

    Raises:
        UsageError: both or neither of ``output`` and ``in_place``, or ``output`` is in use.
        NotAStoreError, StoreLockedError, CorruptFileError, CorruptRecordError, StoreIOError, DiskFullError.
    """
    root = check_path(source)
    check_is_store(StorePaths(root))
    check_ways(output, in_place)
    if in_place and salvage:
        raise errors.UsageError("salvage works on a copy only", hint="give --output NEW")
    started = time.monotonic()
    config = given_config(config)
    paths = StorePaths(root, given_places(root, config.store_path_commit_log, config.read_only_commit_log_store_paths))
    config = as_it_is(paths, config)
    losses: list[Loss] = []
    if output is None:
        target = paths.root
        left_out = _rebuild_in_place(paths, config, on_progress)
    else:
        target = check_path(output)
        final = StorePaths(target).commit_log

        def note(loss: Loss) -> None:
            losses.append(dataclasses.replace(loss, path=final / loss.path.name))

        def mend(log: Path) -> None:
            if salvage:
                salvage_log(log, note)

        left_out = _rebuild_copy(paths, target, config, mend, on_progress)
    return dataclasses.replace(_result(target, losses, started), left_out=left_out)


def check_ways(output: str | os.PathLike[str] | None, in_place: bool) -> None:
    """Raise UsageError for both or neither of ``output`` and ``in_place``."""
    if (output is None) != in_place:
        raise errors.UsageError("give either an output directory or in_place", hint="--output NEW, or --in-place")


def truncate(
    source: str | os.PathLike[str], end: int, output: str | os.PathLike[str], *, on_progress: Progress | None = None
) -> RebuildResult:
    """A copy of the store at ``source`` whose log ends at ``end``: as it was before what came later.

    Args:
        source: the store; untouched. A running one is copied as it is at the moment.
        end: physical offset at which the log shall end: where a record starts, or ends.
        output: the new store's directory, which must not exist or be empty.
        on_progress: called with the bytes of log walked and the bytes there are.

    Queues, index and progress go back with the log: a delayed message whose delivery is cut off is delivered again, and
    a transaction whose end is cut off is open again. Groups that stand behind a queue's end are brought back to it.

    Raises:
        UsageError: no record starts or ends at ``end``, or ``output`` is in use.
        NotAStoreError, CorruptFileError, CorruptRecordError, StoreIOError, DiskFullError.
    """
    paths, target = StorePaths(check_path(source)), check_path(output)
    check_is_store(paths)
    started = time.monotonic()
    cut_at = check_cut(paths.commit_logs, end)
    config = as_it_is(paths, StoreConfig())

    def cut(log: Path) -> None:
        cut_log(log, cut_at)
        durable.replace_file(StorePaths(log.parent).progress_in_doubt, b"")

    left_out = _rebuild_copy(paths, target, config, cut, on_progress)
    return dataclasses.replace(_result(target, [], started), left_out=left_out)


def as_it_is(paths: StorePaths, config: StoreConfig) -> StoreConfig:
    """``config`` with what the store is known to have where nothing else is configured: file sizes and delay levels."""
    levels = delay_levels_of(paths, config.message_delay_level)
    return dataclasses.replace(with_sizes(config, resolve_sizes(paths, config)), message_delay_level=levels)


def _rebuild_copy(
    paths: StorePaths,
    output: Path,
    config: StoreConfig,
    mend: Callable[[Path], None],
    on_progress: Progress | None,
) -> int:
    with Stage(output, paths.root, {paths.commit_log.name: paths.commit_logs}) as staging:
        stage = StorePaths(staging.root)
        durable.make_directories(stage.commit_log)
        end = end_while_running(paths)
        for entry in inventory_to_copy(paths).entries:
            copying.copy_file(entry.path, stage.commit_log / entry.path.name)
        durable.sync_directory(stage.commit_log)
        if end is not None:
            cut_log(stage.commit_log, end)
        copy_beside_log(paths, stage)
        mend(stage.commit_log)
        left_out = put_in_order(stage.root, in_one_directory(config), on_progress)
        staging.put_in_place()
    return left_out


def end_while_running(paths: StorePaths) -> int | None:
    """Where the log of a running store ends at the moment, at which a copy that is begun now is to be cut.

    What comes later may be copied half: a batch is made known by its first record, the last to be written, and without
    that what follows looks like damage. None for a store that does not run; and for a log that is damaged, where more
    may follow than is being written.
    """
    if not is_locked(paths.lock):
        return None
    log = LogReader(paths.commit_logs)
    try:
        end = log.end_offset()
        return None if log.is_damaged_at(end) else log.end_of_closed_file(end) or end
    finally:
        log.close()


def inventory_to_copy(paths: StorePaths) -> Inventory:
    """The files of the log at ``paths``, where a copy can have all of them.

    What has no name of a log file is none of them: the copy is without it, and a broker can start with it.

    Raises:
        CorruptFileError: two have one name, or one is no file or begins where none can, which a copy would be without.
    """
    inventory = take_inventory(paths.commit_logs)
    for problem in inventory.problems:
        if problem.kind is ProblemKind.FOREIGN:
            _log.warning("not copied: %s: %s", problem.path, problem.kind.value)
        if problem.kind in (ProblemKind.NOT_A_FILE, ProblemKind.MISPLACED, ProblemKind.DUPLICATE):
            raise problem.to_error()
    return inventory


def copy_beside_log(paths: StorePaths, stage: StorePaths) -> None:
    """Copy to ``stage`` what no log tells: settings, how the store was left, and what it knows of its progress.

    Of a store that died, notes of progress may claim more than its log holds. A rebuild notes the new queues as
    complete, which a start takes for a sign that all is well; so the doubt is noted here.
    """
    copying.copy_tree(paths.config, stage.config)
    save_multi_dispatch(stage.root, find_multi_dispatch(paths))
    # The note of progress behind the progress: it may be of later then, and not of before.
    for path in (paths.checkpoint, paths.abort, paths.progress_in_doubt, paths.progress_note):
        if mode_of(path):
            copying.copy_file_if_there(path, stage.root / path.name)
    if mode_of(stage.abort):
        durable.replace_file(stage.progress_in_doubt, b"")


def _rebuild_in_place(paths: StorePaths, config: StoreConfig, on_progress: Progress | None) -> int:
    with taken_in_place(paths):
        move_aside(paths)
    return build_or_put_back(paths, config, on_progress)


@contextlib.contextmanager
def taken_in_place(paths: StorePaths) -> Iterator[None]:
    """Keep every other writer out of a store and its log, and bring back what a killed rebuild has left aside.

    Raises:
        UsageError: queues or index are a link: what is built would not lie where it leads.
        StoreLockedError.
    """
    with _locked(paths):
        for directory, _ in paths.before_rebuild:
            if directory.is_symlink():
                raise errors.UsageError("a link cannot be rebuilt in place", found=directory, hint="--output NEW")
        put_back(paths)
        yield


@contextlib.contextmanager
def _locked(paths: StorePaths) -> Iterator[None]:
    lock, log_locks = StoreLock(paths.lock), DirectoryLocks()
    try:
        paths.log_places.lock(log_locks)
        yield
    finally:
        log_locks.release()
        lock.release()


def build_or_put_back(paths: StorePaths, config: StoreConfig, on_progress: Progress | None = None) -> int:
    """Build queues and index of a store whose old ones are aside; those are gone then, or back if it fails.

    Returns as :func:`~mqstore.store.engine.put_in_order`.
    """
    noted = _settings_noted(paths)
    try:
        return put_in_order(paths.root, config, on_progress)
    except errors.StoreLockedError:
        raise  # a writer came in between: it builds the queues now, and they are its own
    except BaseException:
        with contextlib.suppress(errors.StoreLockedError), _locked(paths):  # the same here
            put_back(paths)
            _note_again(noted)
        raise


@contextlib.contextmanager
def settings_kept(paths: StorePaths) -> Iterator[None]:
    """In a locked store, take back what was noted of given settings if what they were given for fails."""
    noted = _settings_noted(paths)
    try:
        yield
    except BaseException:
        _note_again(noted)
        raise


def _settings_noted(paths: StorePaths) -> dict[Path, bytes | None]:
    names = (log_places.NOTE_NAME, multi_dispatch.NOTE_NAME, delay_levels.NOTE_NAME)
    return {paths.root / name: read_whole(paths.root / name, "note") for name in names}


def _note_again(noted: dict[Path, bytes | None]) -> None:
    for path, content in noted.items():
        if read_whole(path, "note") != content:
            if content is None:
                durable.remove_file(path)
            else:
                durable.replace_file(path, content)


def _result(target: Path, losses: list[Loss], started: float) -> RebuildResult:
    with StoreView(target) as view:
        queues = view.queues()
        log_bytes = view.log_end - view.min_physical_offset
    units = sum(queue.count for queue in queues)
    return RebuildResult(target, len(queues), units, log_bytes, time.monotonic() - started, losses)
