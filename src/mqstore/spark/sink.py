"""The sink ``rocketmq``: tasks check messages and put them aside, and one writer appends them to the store."""

from __future__ import annotations

import contextlib
import functools
import glob
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from mqstore.errors import MessageIllegalError, UsageError
from mqstore.files import copying, durable
from mqstore.files.whole import mode_of
from mqstore.spark import message_rows
from mqstore.spark import option_values as values
from mqstore.spark.sink_ledger import Batch, append
from mqstore.spark.telling import telling
from mqstore.store.arguments import check_store_path
from mqstore.store.config import StoreConfig
from mqstore.store.writer import prepare

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

NAMES: Final = ("path", "jobId")
_OF_THE_QUERY: Final = ("checkpointLocation", "queryName", "asyncProgressTrackingEnabled",
                        "asyncProgressTrackingCheckpointIntervalMs")  # fmt: skip
"""What Spark's ``writeStream`` takes as options and hands on to the sink."""
_MAX_DELAY_LEVEL: Final = 18
_LIMITS: Final = StoreConfig()


class SinkOptions(NamedTuple):
    """Where to, and under which name a batch is noted so that it is not written twice."""

    store: Path
    job_id: str | None

    @classmethod
    def parse(cls, given: Mapping[str, object], schema: StructType, overwrite: bool) -> SinkOptions:
        """Check options and columns.

        Raises:
            UsageError: no path, a misspelt option, mode ``overwrite``, or a column that a message does not have.
        """
        options = values.by_name(given, NAMES, others=_OF_THE_QUERY)
        if not options.get("path"):
            raise UsageError(
                "no store to write to",
                hint='save("DIRECTORY"), start("DIRECTORY"), or option path; Spark hands on options of CREATE '
                "TEMPORARY VIEW, and not those of CREATE TABLE",
            )
        store = check_store_path(options["path"]).absolute()
        if not mode_of(store) and ("," in options["path"] or glob.has_magic(options["path"])):  # as load takes them
            raise UsageError("this writes to one store", path=store, hint="name its directory, no pattern and no list")
        if overwrite:
            raise UsageError("a store is not written over", hint='mode("append"), or mqstore.spark.jobs.load')
        if "storeTimestamp" in schema.fieldNames():
            raise UsageError("a store gives its messages their times itself", hint='drop("storeTimestamp")')
        message_rows.check_columns(schema, message_rows.NAMES[1:])
        if "jobId" in options:
            values.check_job_id(options["jobId"])
        return cls(store, options.get("jobId"))

    @property
    def staging(self) -> Path:
        """Where messages are put aside: beside the store."""
        return self.store.with_name(f".{self.store.name}.sink")


@dataclass
class Written(WriterCommitMessage):
    """What one task put aside: a file, or nothing; the batch's name, and the most that one of its records takes."""

    name: str
    path: str | None
    largest_bytes: int = 0


class BatchWriter(DataSourceArrowWriter):
    """Appends a table once all tasks are done."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._name = options.job_id or uuid.uuid4().hex

    def write(self, iterator: Iterator[Any]) -> Written:
        """Put the rows of one partition aside."""
        return _put_aside(self._options, self._name, iterator)

    def commit(self, messages: list[Written | None]) -> None:  # type: ignore[override]
        """Append what all tasks put aside, in the order of the partitions."""
        _append(self._options, self._name, 0, messages, noted=self._options.job_id is not None)

    def abort(self, messages: list[Written | None]) -> None:  # type: ignore[override]
        """Drop what was put aside, unless the store may have a note of it."""
        if self._options.job_id is None:
            _clean(self._options, self._name)


class StreamWriter(DataSourceStreamArrowWriter):
    """Appends every batch of a query once; a batch that comes again is known by query and number."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> Written:
        """Put the rows of one partition of a batch aside."""
        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty("sql.streaming.queryId")
        if not query:  # under a name that queries share, the batch of one would be taken for done by another
            raise UsageError(
                "Spark tells no id of the query", hint="write with writeStream, or in foreachBatch with jobId"
            )
        return _put_aside(self._options, query, iterator)

    def commit(self, messages: list[Written | None], batchId: int) -> None:  # type: ignore[override]  # noqa: N803
        """Append a batch, unless it has been."""
        names = [one.name for one in messages if one is not None]
        if names:
            _append(self._options, names[0], batchId, messages, noted=True)

    def abort(self, messages: list[Written | None], batchId: int) -> None:  # type: ignore[override]  # noqa: N803
        """Leave what was put aside to the next commit: the store may have a note of it."""


def _put_aside(options: SinkOptions, name: str, batches: Iterable[Any]) -> Written:
    """Write rows, checked and in one form, to a file of the attempt's own."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = options.staging / name / f"{uuid.uuid4().hex}.parquet"
    writer, largest_bytes = None, 0
    with telling(), contextlib.ExitStack() as opened:
        for batch in batches:
            checked = [_checked(row) for row in _with_plain_times(batch).to_pylist()]
            if not checked:
                continue
            rows = [row for row, _ in checked]
            largest_bytes = max(largest_bytes, *(size_bytes for _, size_bytes in checked))
            if writer is None:
                durable.make_directories(path.parent)
                writer = opened.enter_context(pq.ParquetWriter(path, _schema()))
            writer.write_table(pa.Table.from_pylist(rows, _schema()))
    if writer is None:
        return Written(name, None)
    durable.sync_path(path)
    return Written(name, str(path), largest_bytes)


def _append(options: SinkOptions, name: str, number: int, messages: Iterable[Written | None], noted: bool) -> None:
    written = [one for one in messages if one is not None]
    paths = [one.path for one in written if one.path is not None]
    with telling():
        largest_bytes = max((one.largest_bytes for one in written), default=0)
        # While others wait: another of the same name may have put files aside there, and must not lose them half-way.
        clean = functools.partial(_clean, options, name)
        append(options.store, Batch(name, number, paths), noted, largest_bytes, clean)


def _clean(options: SinkOptions, name: str) -> None:
    """Remove what was put aside, by attempts that failed as well."""
    copying.remove_tree(options.staging / name)
    with contextlib.suppress(OSError):  # others are at work
        options.staging.rmdir()


@functools.cache
def _schema() -> Any:
    import pyarrow as pa

    pair = pa.struct([("key", pa.string()), ("value", pa.string())])
    kinds = {
        "bornTimestamp": pa.int64(), "topic": pa.string(), "queueId": pa.int32(), "delayLevel": pa.int32(),
        "tags": pa.string(), "keys": pa.list_(pa.string()), "properties": pa.list_(pair), "body": pa.binary(),
    }  # fmt: skip
    return pa.schema(list(kinds.items()))


def _checked(row: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
    """A row with all columns, from whatever types there are, and the bytes of its record.

    What any store would refuse is refused here.
    """
    found: dict[str, Any] = {name: row.get(name) for name in _schema().names}
    if isinstance(found["body"], str):
        found["body"] = found["body"].encode()
    if isinstance(found["keys"], str):
        found["keys"] = found["keys"].split()
    for name in ("queueId", "delayLevel"):
        found[name] = None if found[name] is None else _whole(name, found[name])
    found["properties"] = [{"key": key, "value": value} for key, value in found["properties"] or ()]
    found["bornTimestamp"] = _milliseconds(found["bornTimestamp"])
    message, found["queueId"] = message_rows.message_of(found, _LIMITS)
    return found, prepare(message, found["queueId"], _LIMITS, _MAX_DELAY_LEVEL).size_bytes


def _with_plain_times(batch: Any) -> Any:
    """The rows with their born times in ms: times have years that Python's own have not."""
    import pyarrow as pa

    place = batch.schema.get_field_index("bornTimestamp")
    if place < 0 or not pa.types.is_timestamp(batch.schema.field(place).type):
        return batch
    moments = batch.column(place).cast(pa.timestamp("us")).cast(pa.int64()).to_pylist()
    born = [None if moment is None else moment // 1000 for moment in moments]
    return batch.set_column(place, "bornTimestamp", pa.array(born, pa.int64()))


def _milliseconds(born: Any) -> int:
    return time.time_ns() // 1_000_000 if born is None else _whole("bornTimestamp", born)


def _whole(name: str, value: Any) -> int:
    """A number, which may come as text."""
    try:
        return int(value)
    except ValueError:
        raise MessageIllegalError(f"column {name} is no whole number", found=repr(value)[:80]) from None
