"""Stores into Parquet files, by topic and date, once and only once."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import stat
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mqstore import errors
from mqstore.files.remote import as_path
from mqstore.files.whole import mode_of
from mqstore.layout.constants import LONG_MAX
from mqstore.spark.installed import require_pyspark
from mqstore.spark.jobs import export_notes, lake, outputs
from mqstore.spark.jobs.clock import Clock
from mqstore.spark.jobs.export_job import PARTITIONS, ExportJob, asked_otherwise, noted_parts, with_name
from mqstore.spark.jobs.outputs import DEFAULT_TARGET_FILE_BYTES
from mqstore.spark.named import check_names
from mqstore.spark.option_values import check_job_id, chosen, listed
from mqstore.spark.options import ReadOptions, Source
from mqstore.spark.stores import StoreRef, check_outside, find_stores
from mqstore.spark.tasks import Progress, cores, run_tasks
from mqstore.store.arguments import check_path, check_texts, check_whole

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mqstore.spark.jobs.parquet import WrittenFile, WrittenPart
    from mqstore.spark.pieces import Piece

CODECS: Final = ("zstd", "snappy", "lz4", "gzip", "brotli", "none")

_LEFT_OUT: Final = ("topic", "propertiesString")


@dataclass(frozen=True)
class ExportResult:
    """What an export wrote.

    Attributes:
        output: the directory.
        job_id: the name under which a repetition is recognised.
        rows, files, bytes: what there is of the job's output now.
        log_bytes: bytes of log that were read for it.
        seconds: how long the job took when it ran.
        stage_seconds: the same by stage: plan, write, publish.
        manifest: JSON file that lists every file with its rows and bytes.
        replayed: True when the job had been done before and nothing was written now.
    """

    output: Path
    job_id: str
    rows: int
    files: int
    bytes: int
    log_bytes: int
    seconds: float
    manifest: Path
    replayed: bool = False
    stage_seconds: dict[str, float] = field(default_factory=dict)


def export(
    spark: SparkSession,
    source: Source,
    output: str | os.PathLike[str],
    *,
    job_id: str | None = None,
    options: Mapping[str, object] | None = None,
    columns: str | Sequence[str] | None = None,
    target_file_bytes: int = DEFAULT_TARGET_FILE_BYTES,
    compression: str = "zstd",
    partition_by: str | Sequence[str] = PARTITIONS,
    table_format: str = "parquet",
    table: str | None = None,
    catalog: Mapping[str, str] | None = None,
    on_progress: Progress | None = None,
) -> ExportResult:
    """Write the messages of ``source`` as Parquet below ``output``: ``topic=T/date=YYYY-MM-DD/*.parquet``.

    The topic is in the directory's name, the other columns are in the files. A job that was broken off goes on where
    it was when it is started again with the same arguments; one that was finished is not done again.

    Args:
        spark: the session; its workers must see ``source`` and ``output`` under the same paths.
        source: a store, a glob, or several.
        output: a directory, new or with earlier exports.
        job_id: names the job: letters, digits, ``. _ -``. None goes on with the job of these arguments that was broken
            off, or makes a name from the stores, the bytes they hold now and the arguments, so that only the very same
            export is taken for a repetition. Give one to add messages to an output that holds another export.
        options: options of the source ``rocketmq`` that choose messages, such as ``{"subscribe": "orders"}``, but for
            ``path`` and ``pushFilters``.
        columns: columns of the view ``messages``, also as "body,keys"; None is all but ``propertiesString``.
        target_file_bytes: a file that has reached this size is closed and another begun.
        compression: a Parquet codec: one of :data:`CODECS`.
        partition_by: ``("topic", "date")``, also as "topic,date", or less: the directories that files are divided
            among. A topic that is in no directory's name is in the files.
        table_format: ``parquet``; or ``delta``, then ``output`` is a Delta table that the files are committed to; or
            ``iceberg``.
        table: name of the Iceberg table, as ``lake.messages``. Its files hold the topic as well.
        catalog: properties of the Iceberg catalog, as pyiceberg takes them: ``{"type": "rest", "uri": …}``. ``name``
            among them is the catalog's; left out, it is pyiceberg's default one.
        on_progress: called with (tasks done, tasks in all).

    Raises:
        UsageError: an argument that cannot be meant; ``output`` is no directory; the job id stands for another job.
        StoreIOError: ``output``, the table or its catalog could not be written to, or looked at.
        MqstoreError: what reading the stores raises; nothing was added to ``output`` then.
    """
    from mqstore.spark.pieces import levelled

    clock = Clock()
    given = isinstance(table, str) and isinstance(catalog, Mapping)
    if given != (table_format == "iceberg") or (not given and (table, catalog) != (None, None)):
        raise errors.UsageError("an Iceberg table has a name and a catalog, and nothing else has", found=table_format)
    job, stores = _asked(
        source, output, job_id, options, columns, target_file_bytes, compression, partition_by, table_format, table
    )
    parts = _parts(job, stores)
    job = with_name(job, job_id, parts)
    export_notes.remove_leftovers(as_path(job.output))
    if mode_of(job.manifest):
        done = _from_manifest(job)
        outputs.remove_tree(job.stage)  # of one that was killed when all was done
        return done
    with lake.saying("look for the table", as_path(job.output), catalog or {}):
        lake.look_at_table(job.table_format, as_path(job.output), table, catalog or {})
    if job.options.max_partitions is None:
        parts = levelled(parts, cores(spark) or 1)  # behind the job's id, which must not hang on the number of cores
    parts = noted_parts(job, parts, stores)
    clock.note("plan")
    written = run_tasks(spark, functools.partial(_export_part, job), list(enumerate(parts)), on_progress)
    clock.note("write")
    files = [file for one in written for file in one.files]
    _publish(job, files)
    with lake.saying("commit to the table", as_path(job.output), catalog or {}):
        _commit(job, files, catalog or {})
    clock.note("publish")
    return _finish(job, files, sum(one.log_bytes for one in written), clock)


def check_export(
    source: Source,
    output: str | os.PathLike[str],
    *,
    job_id: str | None = None,
    options: Mapping[str, object] | None = None,
    columns: str | Sequence[str] | None = None,
    partition_by: str | Sequence[str] = PARTITIONS,
    table_format: str = "parquet",
) -> None:
    """Raise what :func:`export` would about these arguments, as far as that can be told before Spark is there."""
    require_pyspark()
    _asked(source, output, job_id, options, columns, DEFAULT_TARGET_FILE_BYTES, CODECS[0], partition_by, table_format)


def _asked(
    source: Source,
    output: str | os.PathLike[str],
    job_id: str | None,
    options: Mapping[str, object] | None,
    columns: str | Sequence[str] | None,
    target_file_bytes: int,
    compression: str,
    partition_by: str | Sequence[str],
    table_format: str,
    table: str | None = None,
) -> tuple[ExportJob, list[StoreRef]]:
    """The job, still without its name, and the stores that it reads, once all that it is asked for can be meant."""
    lake.check_format(table_format)
    if job_id is not None:
        check_job_id(job_id)
    where = check_path(output).absolute()
    mode = mode_of(where)
    if mode and not stat.S_ISDIR(mode):
        raise errors.UsageError("the output is no directory", path=where)
    check_whole("target_file_bytes", target_file_bytes, 1, LONG_MAX)
    check_texts(compression=compression)
    if compression.lower() not in CODECS:
        raise errors.UsageError("no such compression", expected=", ".join(CODECS), found=compression)
    by = tuple(listed("partition_by", partition_by))
    if [one for one in PARTITIONS if one in by] != list(by):
        raise errors.UsageError("no such partitioning", expected=", ".join(PARTITIONS), found=", ".join(by))
    parsed = ReadOptions.of(source, options, columns)
    if parsed.view != "messages":
        raise errors.UsageError("only messages are exported", found=f"view {parsed.view}")
    in_files = _columns(parsed, by, table_format)
    stores = find_stores(parsed)
    check_outside(stores, where, "output")
    state = where / export_notes.STATE_DIRECTORY
    if not mode_of(state):  # else it may be all there
        outputs.check_can_create(state)
    parsed = dataclasses.replace(parsed, columns=None)  # the job's own tell
    job = ExportJob(
        os.fspath(where), "", parsed, in_files, target_file_bytes, compression.lower(), by, table_format, table
    )
    return job, stores


def _columns(options: ReadOptions, partition_by: Sequence[str], table_format: str) -> tuple[str, ...]:
    """The columns that files get."""
    from mqstore.spark.messages import MessagesView

    known = MessagesView.schema_for(options).names
    wanted = [name for name in known if name not in _LEFT_OUT] if options.columns is None else options.columns
    in_files = [name for name in chosen(known, wanted) if name != "topic"]
    if "topic" not in partition_by or table_format == "iceberg":
        in_files = ["topic", *in_files]
    if not in_files:
        raise errors.UsageError(
            "files without a column have no rows", found=", ".join(wanted),
            hint="a further column; the topic alone is in files only if partition_by is without it",
        )  # fmt: skip
    return tuple(in_files)


def _parts(job: ExportJob, stores: list[StoreRef]) -> list[list[Piece]]:
    from mqstore.spark.messages import MessagesView

    check_names(stores, job.options)
    return MessagesView(stores, job.options, list(job.columns)).plan()


def _commit(job: ExportJob, files: Sequence[WrittenFile], catalog: Mapping[str, str]) -> None:
    """Make the files part of the table, if there is one."""
    import pyarrow as pa

    from mqstore.store.columns import KEEPING_SCHEMA

    fields = [KEEPING_SCHEMA.field(name) for name in job.columns]
    output = as_path(job.output)
    if job.table_format == "delta":
        fields += [pa.field(name, pa.string()) for name in job.partition_by if name not in job.columns]
        lake.commit_delta(output, job.job_id, pa.schema(fields), job.partition_by, files)
    elif job.table_format == "iceberg":
        lake.commit_iceberg(output, job.job_id, pa.schema(fields), str(job.table), catalog, files)


def _export_part(job: ExportJob, item: tuple[int, list[Piece]]) -> WrittenPart:
    """Runs in a task. Each attempt writes into a directory of its own; the first to finish counts."""
    from mqstore.spark.jobs.parquet import PartitionedWriter, WrittenFile, WrittenPart
    from mqstore.spark.messages import MessagesView

    number, part = item
    done = job.stage / f"{number:06d}.json"
    if not mode_of(done):
        attempt = job.stage / f"{number:06d}-{uuid.uuid4().hex}"
        needed = list(dict.fromkeys([*job.columns, "topic", "storeTimestamp"]))
        try:
            with PartitionedWriter(
                attempt, f"{job.job_id}-{number:06d}", list(job.columns), job.target_file_bytes, job.compression,
                job.partition_by,
            ) as writer:  # fmt: skip
                view = MessagesView([], job.options, needed)
                for batch in view.read(part):
                    writer.write(batch)
                outputs.put_once(done, json.dumps([writer.close(), view.bytes_read]).encode())
        except OSError as error:
            if isinstance(error, errors.MqstoreError):
                raise
            raise errors.from_os_error(error, "write Parquet", attempt) from error

    def take(content: Any) -> WrittenPart:
        files, log_bytes = content
        return WrittenPart([WrittenFile(*fields) for fields in files], int(log_bytes))

    return export_notes.read_note(done, take, f"remove {done}, and its part is written again")


def _publish(job: ExportJob, files: Sequence[WrittenFile]) -> None:
    """Move the files to their places; those moved before a crash are there already."""
    output = as_path(job.output)
    for file in files:
        target = output / file.path
        try:
            outputs.move(job.stage / file.staged, target)
        except FileNotFoundError:
            if not target.exists():
                raise errors.CorruptFileError(
                    "a file of an unfinished export is gone", path=job.stage / file.staged,
                    hint=f"remove {job.stage} and every {job.job_id}-*.parquet below {output}, and start the job again",
                ) from None  # fmt: skip
    outputs.sync_names(output / file.path for file in files)


def _finish(job: ExportJob, files: Sequence[WrittenFile], log_bytes: int, clock: Clock) -> ExportResult:
    content = {
        "jobId": job.job_id,
        "asked": job.asked,
        "sources": [errors.shown_path(path) for path in job.options.paths],
        "columns": list(job.columns),
        "rows": sum(file.rows for file in files),
        "bytes": sum(file.size_bytes for file in files),
        "logBytes": log_bytes,
        "seconds": round(clock.seconds, 3),
        "stageSeconds": {name: round(seconds, 3) for name, seconds in clock.stages.items()},
        "files": [{"path": file.path, "rows": file.rows, "bytes": file.size_bytes} for file in files],
    }
    outputs.put(job.manifest, json.dumps(content, indent=1).encode())
    outputs.remove_tree(job.stage)
    return dataclasses.replace(_from_manifest(job), replayed=False)


def _from_manifest(job: ExportJob) -> ExportResult:
    def take(content: Any) -> tuple[Any, ExportResult]:
        return content.get("asked", job.asked), ExportResult(
            as_path(job.output),
            job.job_id,
            content["rows"],
            len(content["files"]),
            content["bytes"],
            content["logBytes"],
            content["seconds"],
            job.manifest,
            replayed=True,
            stage_seconds=content.get("stageSeconds", {}),
        )

    files = f"{job.job_id}-*.parquet below {as_path(job.output)}"
    asked, result = export_notes.read_note(
        job.manifest, take, f"the job was finished; it starts anew without this and every {files}"
    )
    if asked != job.asked:
        raise asked_otherwise(job.manifest, "finished", "choose another job_id")
    return result
