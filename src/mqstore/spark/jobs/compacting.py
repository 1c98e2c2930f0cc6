"""Many small Parquet files of several exports into few large ones.

Each directory of an export gets a new one made beside it, with the small files merged and links to the large ones, and
the two change places in one step. So a directory holds the old files or the new, whenever the job is killed, and
starting it again does what is left to do.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import logging
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mqstore import errors
from mqstore.files import copying, durable
from mqstore.files.directory_lock import DirectoryLocks
from mqstore.files.remote import RemotePath
from mqstore.files.whole import mode_of
from mqstore.layout.constants import LONG_MAX
from mqstore.spark.jobs import outputs
from mqstore.spark.jobs.clock import Clock
from mqstore.spark.jobs.export_notes import (
    STATE_DIRECTORY,
    give_up_hint,
    read_note,
    remove_leftovers,
    table_formats,
    unfinished_plans,
)
from mqstore.spark.jobs.merging import Merge, Merged, merge_files
from mqstore.spark.jobs.outputs import DEFAULT_TARGET_FILE_BYTES
from mqstore.spark.tasks import Progress, run_tasks
from mqstore.store.arguments import check_path, check_whole

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

_STAGE_NAME: Final = ".compact"
_NOTE: Final = Path(STATE_DIRECTORY, "compacted", "files.json")
_EXCHANGE: Final = 2
_ASIDE: Final = "%old"
"""Ends the name of a directory that was put aside. No partition's name does, as these are percent-encoded."""
_AT_WORKING_DIRECTORY: Final = -100


@dataclass(frozen=True)
class CompactResult:
    """What a compaction did.

    Attributes:
        directories: how many directories had small files that were merged.
        files_before, files_after: Parquet files of the whole output.
        bytes_before, bytes_after: their lengths together.
        rows: messages in the files that were merged; none was changed.
        seconds: how long it took.
        stage_seconds: the same by stage: plan, merge, replace.
    """

    directories: int
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    rows: int
    seconds: float
    stage_seconds: dict[str, float] = field(default_factory=dict)


def compact(
    spark: SparkSession,
    output: str | os.PathLike[str],
    *,
    target_file_bytes: int = DEFAULT_TARGET_FILE_BYTES,
    on_progress: Progress | None = None,
) -> CompactResult:
    """Merge the small files of exports to ``output``. Rows stay what they were, and in their directories.

    ``_mqstore/compacted/files.json`` tells which files hold the rows of those that were merged.

    Let no export to the same output run meanwhile: a directory that gets new files is left as it is. So is one in which
    other things than Parquet files lie, such as further directories, with a warning in the log.

    Args:
        spark: the session; its workers must see ``output``.
        output: a directory that :func:`export` wrote to as plain Parquet.
        target_file_bytes: files below half of this are merged, into files of about this size.
        on_progress: called with (tasks done, tasks in all).

    Raises:
        UsageError: ``output`` is no such directory, is a table of Delta or Iceberg, which have ways of their own, or
            holds an export that is not finished.
        StoreLockedError: another compaction of ``output`` is under way.
        CorruptFileError: a file cannot be read.
        StoreIOError, DiskFullError.
    """
    clock = Clock()
    root = check_compact(output, target_file_bytes=target_file_bytes)
    with _alone(root):
        merges, before, after, rows = _compact(spark, root, target_file_bytes, on_progress, clock)
    return CompactResult(merges, len(before), len(after), sum(before), sum(after), rows, clock.seconds, clock.stages)


@contextlib.contextmanager
def _alone(root: Path) -> Iterator[None]:
    """Keep other compactions out, which would remove the new directories of this one, or put half of one in place."""
    locks = DirectoryLocks()
    try:
        try:
            locks.acquire(root / STATE_DIRECTORY)
        except errors.StoreLockedError as error:
            raise errors.StoreLockedError(
                "another compaction of this output is under way", path=root, found=error.found,
                hint="wait until it has ended",
            ) from None  # fmt: skip
        yield
    finally:
        locks.release()


def _compact(
    spark: SparkSession, root: Path, target_file_bytes: int, on_progress: Progress | None, clock: Clock
) -> tuple[int, list[int], list[int], int]:
    """The directories that were changed, the lengths of all files before and after, and the rows that were merged."""
    stage = root / STATE_DIRECTORY / _STAGE_NAME
    _restore(root, stage)
    remove_leftovers(root)
    copying.remove_tree(stage)
    known = _noted(root)  # before the work, not after it: the note may be damaged
    before = [_size(path) for path in _files(root)]
    merges = _plan(root, stage, target_file_bytes)
    durable.make_directories(stage)
    clock.note("plan")
    done = run_tasks(spark, functools.partial(merge_files, target_file_bytes), merges, on_progress)
    clock.note("merge")
    _check_finished(root)  # one may have begun meanwhile
    changed = [(one, merged) for one, merged in zip(merges, done, strict=True) if merged.files]
    _note(root, known, changed)
    swapped = [merged.rows for one, merged in changed if _swap(Path(one.directory), Path(one.new), one.names)]
    copying.remove_tree(stage)
    clock.note("replace")
    return len(swapped), before, [_size(path) for path in _files(root)], sum(swapped)


def check_compact(output: object, *, target_file_bytes: int = DEFAULT_TARGET_FILE_BYTES) -> Path:
    """The directory to compact; raises what :func:`compact` would about it before Spark is there."""
    check_whole("target_file_bytes", target_file_bytes, 1, LONG_MAX)
    root = check_path(output).absolute()
    if isinstance(root, RemotePath):
        raise errors.UsageError(
            "an object store cannot change a directory in one step", found=root,
            hint="export to a Delta or Iceberg table, and use its own compaction",
        )  # fmt: skip
    if not stat.S_ISDIR(mode_of(root / STATE_DIRECTORY)):
        raise errors.UsageError("nothing was exported to this directory", path=root)
    if mode_of(root / "_delta_log"):
        raise errors.UsageError("a Delta table is compacted by its own means", path=root, hint="OPTIMIZE")
    if "iceberg" in table_formats(root):
        raise errors.UsageError(
            "the files of an Iceberg table are merged by its own means", path=root, hint="rewrite_data_files"
        )
    _check_finished(root)
    return root


def _check_finished(root: Path) -> None:
    for plan in unfinished_plans(root):
        raise errors.UsageError(
            "an export to this directory is not finished, and must find its files as they are",
            path=plan.parent,
            hint=give_up_hint(plan, root),
        )


def _files(root: Path) -> Iterator[Path]:
    """The Parquet files that readers see.

    Raises:
        StoreIOError: a directory could not be looked into, which is not passed over.
    """

    def refuse(error: OSError) -> None:
        if isinstance(error, FileNotFoundError):
            return  # gone since it was listed
        raise errors.from_os_error(error, "list directory", error.filename or root) from error

    for directory, names, files in os.walk(root, onerror=refuse):
        names[:] = sorted(name for name in names if name[:1] not in "_.")
        yield from (
            Path(directory, name) for name in sorted(files) if name.endswith(".parquet") and name[0] not in "_."
        )


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise errors.from_os_error(error, "look at file", path) from error


def _plan(root: Path, stage: Path, target_file_bytes: int) -> list[Merge]:
    by_directory: dict[Path, list[Path]] = {}
    for path in _files(root):
        by_directory.setdefault(path.parent, []).append(path)
    merges = []
    for directory, paths in by_directory.items():
        small = [path.name for path in paths if _size(path) < target_file_bytes / 2]
        if len(small) < 2:
            continue
        large = [path.name for path in paths if path.name not in small]
        merge = Merge(str(directory), small, large, str(stage / directory.relative_to(root)))
        if others := set(outputs.names(directory)).difference(merge.names):  # which its new directory would not have
            _log.warning("%s is left as it is, as there is more than Parquet files in it: %s", directory, min(others))
        else:
            merges.append(merge)
    return merges


def _noted(root: Path) -> dict[str, list[str]]:
    """Which files took the place of which in earlier compactions."""

    def take(content: Any) -> dict[str, list[str]]:
        return {str(old): [str(one) for one in new] for old, new in content["merged"].items()}

    path = root / _NOTE
    hint = f"remove {path}: it only tells which files have taken the place of those that manifests name"
    return read_note(path, take, hint) if mode_of(path) else {}


def _note(root: Path, known: dict[str, list[str]], changed: list[tuple[Merge, Merged]]) -> None:
    """Note which files take the place of which, as exports' manifests go on naming the old ones.

    That is before any do, so whoever misses a file finds its place, whenever this process is killed; a file that is
    still there was not replaced yet, whatever the note says.
    """
    if not changed:
        return
    merged = dict(known)
    for one, found in changed:
        place = Path(one.directory).relative_to(root)
        merged.update({str(place / old): [str(place / name) for name in new] for old, new in found.files.items()})
    outputs.put(root / _NOTE, json.dumps({"merged": merged}, indent=1).encode())


def _swap(directory: Path, new: Path, planned: list[str]) -> bool:
    """Let the new directory take the place of the old one, unless something has come since: whether it has."""
    try:
        if sorted(os.listdir(directory)) != sorted(planned):
            return False
        old = new
        if not _exchange(directory, new):
            # Two steps where the file system knows no better; _restore does the second if this process cannot.
            old = new.with_name(f"{new.name}{_ASIDE}")
            os.rename(directory, old)
            os.rename(new, directory)
        for name in set(os.listdir(old)).difference(planned):  # it came between the look and the change
            os.rename(old / name, directory / name)
    except OSError as error:
        raise errors.from_os_error(error, "put merged files in place", directory) from error
    durable.sync_directory(directory.parent)
    return True


def _exchange(one: Path, other: Path) -> bool:
    """Let two directories change names in one step; False where that cannot be done."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    here = _AT_WORKING_DIRECTORY
    return bool(rename(here, os.fsencode(one), here, os.fsencode(other), _EXCHANGE) == 0)


def _restore(root: Path, stage: Path) -> None:
    """Finish a swap that was killed between its two steps."""
    for aside in sorted(stage.rglob(f"*{_ASIDE}")) if stage.is_dir() else ():
        directory = root / aside.relative_to(stage).with_name(aside.name.removesuffix(_ASIDE))
        if not directory.exists():
            aside.rename(directory)
            durable.sync_directory(directory.parent)
