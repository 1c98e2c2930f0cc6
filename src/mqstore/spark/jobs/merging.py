"""Small Parquet files of a directory into large ones, in a new directory: what a task of ``compact`` does."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from mqstore import errors
from mqstore.files import copying, durable

_ROW_GROUP_BYTES: Final = 32 << 20


class Merge(NamedTuple):
    """One directory: its place below the output, the files to merge, those that stay, and the new directory."""

    directory: str
    small: list[str]
    large: list[str]
    new: str

    @property
    def names(self) -> list[str]:
        """All that lies in the directory."""
        return [*self.small, *self.large]


class Merged(NamedTuple):
    """What was merged of a directory: how many rows, and the new files of each small one that is there no more."""

    rows: int
    files: dict[str, list[str]]


def merge_files(target_file_bytes: int, merge: Merge) -> Merged:
    """Runs in a task: make the new directory."""
    own = Path(f"{merge.new}.{os.getpid()}-{time.monotonic_ns()}")
    own.mkdir(parents=True)
    try:
        for name in merge.large:
            os.link(Path(merge.directory, name), own / name)
        merged = _write(merge, own, target_file_bytes)
    except OSError as error:
        raise errors.from_os_error(error, "merge files", merge.directory) from error
    durable.sync_directory(own)
    try:
        own.rename(merge.new)
    except OSError:  # another attempt was faster
        copying.remove_tree(own)
    return merged


def _write(merge: Merge, own: Path, target_file_bytes: int) -> Merged:
    """Merge the small files that have the same columns; one that has no other like it, or none at all, stays."""
    alike: dict[str, list[str]] = {}
    for name in merge.small:
        with _opened(Path(merge.directory, name)) as file:
            columns = file.schema_arrow.to_string(show_field_metadata=False, show_schema_metadata=False)
        alike.setdefault(columns, []).append(name)
    rows, files = 0, {}
    for columns, names in alike.items():
        if len(names) == 1 or not columns:
            for name in names:
                os.link(Path(merge.directory, name), own / name)
            continue
        count, new = _write_alike(Path(merge.directory), names, own, target_file_bytes)
        rows += count
        files.update(dict.fromkeys(names, new))
    return Merged(rows, files)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """A Parquet file; raises CorruptFileError, with its path, for what is none, also when its rows are read inside."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # Given the path, a ParquetFile that refuses the file leaves it open.
        with pa.OSFile(str(path)) as source, pq.ParquetFile(source) as file:
            yield file
    except OSError as error:  # among them damaged pages
        if error.errno is not None:
            raise
        raise _damaged(path, error) from error
    except pa.ArrowException as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> errors.CorruptFileError:
    return errors.CorruptFileError(
        f"a Parquet file cannot be read: {error}", path=path,
        hint="the manifests below _mqstore tell which export wrote it; remove what that wrote, and export it again",
    )  # fmt: skip


def _write_alike(directory: Path, names: list[str], own: Path, target_file_bytes: int) -> tuple[int, list[str]]:
    """Merge files of the same columns; their rows, and the names of the new files."""
    import pyarrow.parquet as pq

    rows = 0
    stem = hashlib.sha256("/".join(names).encode()).hexdigest()[:16]
    with _MergedFiles(own, stem, target_file_bytes) as merged:
        for name in names:
            with _opened(directory / name) as file:
                rows += file.metadata.num_rows
                for number in range(file.metadata.num_row_groups):
                    merged.add(file.read_row_group(number), file.metadata.row_group(number).column(0).compression)
        written = merged.close()
        kept = sum(pq.read_metadata(path).num_rows for path in written)
    if kept != rows:
        raise errors.CorruptFileError("merged files lack rows", path=directory, expected=rows, found=kept)
    return rows, [path.name for path in written]


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
