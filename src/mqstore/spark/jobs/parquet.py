"""Record batches into Parquet files by topic and date, with bounded memory and few open files."""

from __future__ import annotations

import contextlib
import itertools
from collections import OrderedDict, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mqstore.spark.jobs import outputs

# A worker takes about 150 MiB before it does anything, and writing as much again as is pending.
_PENDING_BYTES: Final = 16 << 20
_OPEN_FILES: Final = 64
_AHEAD_BYTES: Final = 4 << 20

_NEVER_TWICE: Final = ("queueOffset", "physicalOffset", "msgId")
_SELDOM_TWICE: Final = ("body", "keys", "bodyCRC")
_LEAVES: Final = {"keys": "keys.list.element", "properties": "properties.key_value.key"}
_LOOKED_AT_ROWS: Final = 4096
_LOOKED_AT_BYTES: Final = 4 << 20


class WrittenFile(NamedTuple):
    """A finished file: where it lies beside the other attempts, where it goes below the output, what is in it."""

    staged: str
    path: str
    rows: int
    size_bytes: int


class WrittenPart(NamedTuple):
    """What one task wrote, and how many bytes of records it went through for it."""

    files: list[WrittenFile]
    log_bytes: int


@dataclass
class _OpenFile:
    path: Path
    final: str
    sink: Any
    writer: Any
    rows: int = 0
    on_its_way: int = 0
    """Bytes that the device was told to begin with."""


class PartitionedWriter:
    """Writes to ``topic=T/date=D/STEM-N.parquet`` below ``directory``. Dates are those of storeTimestamp, UTC.

    Use as a context manager: on leaving no file is open, whatever has failed.
    """

    def __init__(
        self,
        directory: Path,
        stem: str,
        columns: list[str],
        target_bytes: int,
        compression: str,
        partition_by: Sequence[str] = ("topic", "date"),
    ) -> None:
        self._partition_by = partition_by
        self._directory = directory
        self._stem = stem
        self._columns = columns
        self._target_bytes = target_bytes
        self._compression = compression
        self._pending: dict[str, list[Any]] = defaultdict(list)
        self._pending_bytes = 0
        self._open: OrderedDict[str, _OpenFile] = OrderedDict()
        self._numbers: dict[str, int] = defaultdict(int)
        self._written: list[WrittenFile] = []

    def __enter__(self) -> PartitionedWriter:
        return self

    def __exit__(self, kind: object, value: object, trace: object) -> None:
        for file in self._open.values():  # there are such after an error only, which is the one to be told
            with contextlib.suppress(OSError, pa.ArrowException), contextlib.closing(file.sink):
                file.writer.close()
        self._open.clear()

    def write(self, batch: Any) -> None:
        """Add a batch that has the columns to write, ``topic`` and ``storeTimestamp``."""
        for partition, part in _by_partition(batch, self._partition_by, self._columns):
            self._pending[partition].append(part)
            self._pending_bytes += part.nbytes
        if self._pending_bytes > _PENDING_BYTES:
            self._flush(_PENDING_BYTES // 2)

    def close(self) -> list[WrittenFile]:
        """Write what is pending; all files that were made."""
        self._flush(0)
        for partition in list(self._open):
            self._finish(partition)
        return self._written

    def _flush(self, leave_bytes: int) -> None:
        """Write pending rows, largest partitions first, until no more than ``leave_bytes`` are pending."""
        sizes = {partition: sum(part.nbytes for part in parts) for partition, parts in self._pending.items()}
        for partition in sorted(sizes, key=lambda one: (-sizes[one], one)):
            if self._pending_bytes <= leave_bytes and leave_bytes:
                break
            self._write_rows(partition, pa.Table.from_batches(self._pending.pop(partition)))
            self._pending_bytes -= sizes[partition]

    def _write_rows(self, partition: str, table: Any) -> None:
        file = self._open.get(partition) or self._begin(partition, table)
        self._open.move_to_end(partition)
        file.writer.write_table(table)
        file.rows += table.num_rows
        end = file.sink.tell()
        if end >= self._target_bytes:
            self._finish(partition)
        elif end - file.on_its_way >= _AHEAD_BYTES:
            outputs.begin_sync(file.path, file.sink, file.on_its_way, end)
            file.on_its_way = end

    def _begin(self, partition: str, first: Any) -> _OpenFile:
        if len(self._open) >= _OPEN_FILES:
            self._finish(next(iter(self._open)))
        number = self._numbers[partition]
        self._numbers[partition] += 1
        final = f"{partition}{self._stem}-{number:03d}.parquet"
        path = self._directory / final
        sink = outputs.open_sink(path)
        try:
            writer = open_writer(sink, first, self._compression)
        except BaseException:
            sink.close()
            raise
        file = self._open[partition] = _OpenFile(path, final, sink, writer)
        return file

    def _finish(self, partition: str) -> None:
        file = self._open.pop(partition)
        with contextlib.closing(file.sink):
            file.writer.close()
        self._written.append(
            WrittenFile(f"{self._directory.name}/{file.final}", file.final, file.rows, outputs.finish(file.path))
        )


def open_writer(sink: Any, first: Any, compression: str) -> Any:
    """A writer of tables like ``first``, with dictionaries for the columns whose values come again.

    A dictionary of values that all differ takes time and makes the file larger. Bodies that do come again are kept once
    in one, however far apart, where a codec sees no further than a page of 1 MiB; so the first rows of a file decide
    about them.
    """
    sample = first.slice(0, min(_LOOKED_AT_ROWS, 2 + _LOOKED_AT_BYTES * first.num_rows // max(1, first.nbytes)))
    once = [*_NEVER_TWICE, *(name for name in _SELDOM_TWICE if name in first.column_names and _differ(sample[name]))]
    again = [_LEAVES.get(name, name) for name in first.column_names if name not in once]
    return pq.ParquetWriter(sink, first.schema, compression=compression, use_dictionary=again)


def _differ(column: Any) -> bool:
    """Whether no value of a column, or of the lists in it, comes twice."""
    values = pc.list_flatten(column) if pa.types.is_list(column.type) else column
    return bool(pc.count_distinct(values).as_py() == len(values) - values.null_count)


def _by_partition(batch: Any, partition_by: Sequence[str], columns: list[str]) -> Iterator[tuple[str, Any]]:
    """``columns`` of the rows of each topic and date, or of one of these alone, in their order.

    Rows of a batch that has others as well are copied: a slice that waits for more of its kind would hold all of it.
    """
    topics = (batch["topic"] if "topic" in partition_by else pa.repeat("", batch.num_rows)).dictionary_encode()
    days = batch["storeTimestamp"].cast(pa.int64()).to_numpy(zero_copy_only=False) // 86_400_000_000
    if "date" not in partition_by:
        days = np.zeros_like(days)
    day_numbers, day_codes = np.unique(days, return_inverse=True)
    codes = topics.indices.to_numpy(zero_copy_only=False).astype(np.int64) * len(day_numbers) + day_codes
    chosen = batch.select(columns)
    order = np.argsort(codes, kind="stable")
    codes = codes[order]
    borders = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), len(codes)]
    for start, stop in itertools.pairwise(borders):
        if stop > start:
            topic, day = divmod(int(codes[start]), len(day_numbers))
            directories = partition_name(topics.dictionary[topic].as_py(), int(day_numbers[day])).split("/")
            name = "".join(f"{one}/" for one in directories if one.partition("=")[0] in partition_by)
            yield name, chosen if stop - start == len(codes) else chosen.take(pa.array(order[start:stop]))


def partition_name(topic: str, day: int) -> str:
    """Directory of a topic and a day (counted from 1970-01-01) as Hive and Spark name it."""
    return f"topic={quote(topic, safe='') or '__HIVE_DEFAULT_PARTITION__'}/date={np.datetime64(day, 'D')}"
