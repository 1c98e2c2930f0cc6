"""Many small Parquet files of several exports into few large ones.

Each directory of an export gets a new one made beside it, with the small files merged and links to the large ones, and
the two change places in one step. So a directory holds the old files or the new, whenever the job is killed, and
starting it again does what is left to do.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import json
import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mqstore import errors
from mqstore.files import copying, durable
from mqstore.files.directory_lock import DirectoryLocks
from mqstore.files.remote import RemotePath, as_path
from mqstore.files.whole import mode_of
from mqstore.spark.jobs import outputs
from mqstore.spark.jobs.exporting import (
    DEFAULT_TARGET_FILE_BYTES,
    STATE_DIRECTORY,
    give_up_hint,
    remove_leftovers,
    unfinished_plans,
)
from mqstore.spark.jobs.tasks import Progress, run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_STAGE_NAME: Final = ".compact"
_NOTE: Final = Path(STATE_DIRECTORY, "compacted", "files.json")
_ROW_GROUP_BYTES: Final = 32 << 20
_EXCHANGE: Final = 2
_ASIDE: Final = "%old"
"""Ends the name of a directory that was put aside. No partition's name does, as these are percent-encoded."""
_AT_WORKING_DIRECTORY: Final = -100


@dataclass(frozen=True)
class CompactResult:
    """What a compaction did.

    Attributes:
        directories: how many directories had small files to merge.
        files_before, files_after: Parquet files of the whole output.
        bytes_before, bytes_after: their lengths together.
        rows: messages in the files that were merged; none was changed.
        seconds: how long it took.
    """

    directories: int
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    rows: int
    seconds: float


class _Merge(NamedTuple):
    """One directory: its place below the output, the files to merge, those that stay, and the new directory."""

    directory: str
    small: list[str]
    large: list[str]
    new: str


def compact(
    spark: SparkSession,
    output: str | os.PathLike[str],
    *,
    target_file_bytes: int = DEFAULT_TARGET_FILE_BYTES,
    on_progress: Progress | None = None,
) -> CompactResult:
    """Merge the small files of exports to ``output``. Rows stay what they were, and in their directories.

    ``_mqstore/compacted/files.json`` tells which files hold the rows of those that were merged.

    Let no export to the same output run meanwhile: a directory that gets new files is left as it is.

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
    started = time.monotonic()
    root = _checked(as_path(output).absolute(), target_file_bytes)
    with _alone(root):
        merges, before, after, rows = _compact(spark, root, target_file_bytes, on_progress)
    seconds = time.monotonic() - started
    return CompactResult(merges, len(before), len(after), sum(before), sum(after), sum(rows), seconds)


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
    spark: SparkSession, root: Path, target_file_bytes: int, on_progress: Progress | None
) -> tuple[int, list[int], list[int], list[int]]:
    """The directories that were changed, the lengths of all files before and after, and the rows of each directory."""
    stage = root / STATE_DIRECTORY / _STAGE_NAME
    _restore(root, stage)
    remove_leftovers(root)
    copying.remove_tree(stage)
    before = [_size(path) for path in _files(root)]
    merges = _plan(root, stage, target_file_bytes)
    durable.make_directories(stage)
    rows = run_tasks(spark, functools.partial(_merge, target_file_bytes), merges, on_progress)
    _check_finished(root)  # one may have begun meanwhile
    _note(root, merges)
    for one in merges:
        _swap(Path(one.directory), Path(one.new), [*one.small, *one.large])
    copying.remove_tree(stage)
    return len(merges), before, [_size(path) for path in _files(root)], rows


def _checked(root: Path, target_file_bytes: int) -> Path:
    if target_file_bytes < 1:
        raise errors.UsageError("target_file_bytes is below 1", found=target_file_bytes)
    if isinstance(root, RemotePath):
        raise errors.UsageError(
            "an object store cannot change a directory in one step", found=root.url,
            hint="export to a Delta or Iceberg table, and use its own compaction",
        )  # fmt: skip
    if not stat.S_ISDIR(mode_of(root / STATE_DIRECTORY)):
        raise errors.UsageError("nothing was exported to this directory", path=root)
    if mode_of(root / "_delta_log"):
        raise errors.UsageError("a Delta table is compacted by its own means", path=root, hint="OPTIMIZE")
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


def _plan(root: Path, stage: Path, target_file_bytes: int) -> list[_Merge]:
    by_directory: dict[Path, list[Path]] = {}
    for path in _files(root):
        if path.parent != root:  # the root itself holds more than files
            by_directory.setdefault(path.parent, []).append(path)
    merges = []
    for directory, paths in by_directory.items():
        small = [path.name for path in paths if _size(path) < target_file_bytes / 2]
        if len(small) > 1:
            large = [path.name for path in paths if path.name not in small]
            merges.append(_Merge(str(directory), small, large, str(stage / directory.relative_to(root))))
    return merges


def _merge(target_file_bytes: int, merge: _Merge) -> int:
    """Runs in a task: make the new directory, and give the rows of the files that were merged."""
    import pyarrow as pa

    own = Path(f"{merge.new}.{os.getpid()}-{time.monotonic_ns()}")
    own.mkdir(parents=True)
    try:
        for name in merge.large:
            os.link(Path(merge.directory, name), own / name)
        rows = _write(merge, own, target_file_bytes)
    except (OSError, pa.ArrowException) as error:
        if isinstance(error, OSError):
            raise errors.from_os_error(error, "merge files", merge.directory) from error
        raise errors.CorruptFileError(f"files cannot be merged: {error}", path=merge.directory) from error
    durable.sync_directory(own)
    try:
        own.rename(merge.new)
    except OSError:  # another attempt was faster
        copying.remove_tree(own)
    return rows


def _write(merge: _Merge, own: Path, target_file_bytes: int) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = 0
    stem = hashlib.sha256("/".join(merge.small).encode()).hexdigest()[:16]
    with _MergedFiles(own, stem, target_file_bytes) as merged:
        for name in merge.small:
            # Given the path, a ParquetFile that refuses the file leaves it open.
            with pa.OSFile(os.path.join(merge.directory, name)) as source, pq.ParquetFile(source) as file:
                rows += file.metadata.num_rows
                for number in range(file.metadata.num_row_groups):
                    merged.add(file.read_row_group(number), file.metadata.row_group(number).column(0).compression)
        kept = sum(pq.read_metadata(path).num_rows for path in merged.close())
    if kept != rows:
        raise errors.CorruptFileError("merged files lack rows", path=merge.directory, expected=rows, found=kept)
    return rows


class _MergedFiles:
    """Rows of many files into files of about a size, their small row groups merged into large ones.

    Use as a context manager: on leaving no file is open, whatever has failed.
    """

    def __init__(self, directory: Path, stem: str, target_file_bytes: int) -> None:
        self._directory = directory
        self._stem = stem
        self._target_bytes = target_file_bytes
        self._compression = "zstd"
        self._pending: list[Any] = []
        self._pending_bytes = 0
        self._writer: Any = None
        self._sink: Any = None
        self._written: list[Path] = []

    def __enter__(self) -> _MergedFiles:
        return self

    def __exit__(self, kind: object, value: object, trace: object) -> None:
        import pyarrow as pa

        if self._writer is not None:  # after an error only, which is the one to be told
            with contextlib.suppress(OSError, pa.ArrowException), contextlib.closing(self._sink):
                self._writer.close()

    def add(self, rows: Any, compression: str) -> None:
        """Add a table, to be compressed as it was if it begins a file."""
        self._compression = "none" if compression == "UNCOMPRESSED" else compression
        self._pending.append(rows)
        self._pending_bytes += rows.nbytes
        if self._pending_bytes >= min(_ROW_GROUP_BYTES, self._target_bytes):
            self._flush()

    def close(self) -> list[Path]:
        """Write what is pending; all files that were made."""
        if self._pending:
            self._flush()
        self._finish()
        for path in self._written:
            durable.sync_path(path)
        return self._written

    def _flush(self) -> None:
        import pyarrow as pa

        from mqstore.spark.jobs.parquet import open_writer

        table = pa.concat_tables(self._pending)
        self._pending, self._pending_bytes = [], 0
        if self._writer is None:
            self._written.append(self._directory / f"compacted-{self._stem}-{len(self._written):03d}.parquet")
            self._sink = self._written[-1].open("wb")
            try:
                self._writer = open_writer(self._sink, table, self._compression)
            except BaseException:
                self._sink.close()
                raise
        self._writer.write_table(table)
        if self._sink.tell() >= self._target_bytes:
            self._finish()

    def _finish(self) -> None:
        if self._writer is not None:
            writer, self._writer = self._writer, None
            with contextlib.closing(self._sink):
                writer.close()


def _note(root: Path, merges: list[_Merge]) -> None:
    """Note which files take the place of which, as exports' manifests go on naming the old ones.

    That is before any do, so whoever misses a file finds its place, whenever this process is killed; a file that is
    still there was not replaced yet, whatever the note says.
    """
    if not merges:
        return
    path = root / _NOTE
    merged: dict[str, list[str]] = json.loads(path.read_bytes())["merged"] if path.exists() else {}
    for one in merges:
        place = Path(one.directory).relative_to(root)
        new = [str(place / name) for name in sorted(set(os.listdir(one.new)) - set(one.large))]
        merged.update({str(place / name): new for name in one.small})
    outputs.put(path, json.dumps({"merged": merged}, indent=1).encode())


def _swap(directory: Path, new: Path, planned: list[str]) -> None:
    """Let the new directory take the place of the old one, unless something has come since."""
    if sorted(os.listdir(directory)) != sorted(planned):
        return
    old = new
    if not _exchange(directory, new):
        # Two steps where the file system knows no better; _restore does the second if this process cannot.
        old = new.with_name(f"{new.name}{_ASIDE}")
        os.rename(directory, old)
        os.rename(new, directory)
    for name in set(os.listdir(old)).difference(planned):  # it came between the look and the change
        os.rename(old / name, directory / name)
    durable.sync_directory(directory.parent)


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
