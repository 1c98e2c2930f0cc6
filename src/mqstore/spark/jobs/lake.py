"""Finished Parquet files as commits of a Delta or an Iceberg table, each once."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from mqstore import errors
from mqstore.files.remote import RemotePath

if TYPE_CHECKING:
    from mqstore.spark.jobs.parquet import WrittenFile

TABLE_FORMATS: Final = ("parquet", "delta", "iceberg")
_PACKAGES: Final = {"delta": "deltalake", "iceberg": "pyiceberg"}
_JOB: Final = "mqstore.job-id"


def check_format(name: str) -> None:
    """Raise UsageError for a table format that there is not, or whose package is missing."""
    if name not in TABLE_FORMATS:
        raise errors.UsageError("no such table format", expected=", ".join(TABLE_FORMATS), found=name)
    package = _PACKAGES.get(name)
    if package is not None and find_spec(package) is None:
        raise errors.UsageError(f"package {package} is not installed", hint=errors.hint_extra("lake", package))


@contextlib.contextmanager
def saying(action: str, output: Path, catalog: Mapping[str, str]) -> Iterator[None]:
    """Whatever the tables' packages raise within this block is an error of ours: they have none in common.

    What the catalog's properties say is not told, as there may be secrets among them.

    Raises:
        UsageError: a value that cannot be meant.
        StoreIOError: anything else.
    """
    try:
        yield
    except errors.MqstoreError:
        raise
    except Exception as error:
        told = errors.without_queries(f"{type(error).__name__}: {error}")
        values = [str(value) for name, value in catalog.items() if name not in ("type", "name")]
        for secret in sorted([*values, *(value.partition("?")[2] for value in values)], key=len, reverse=True):
            told = told.replace(secret, "…") if secret else told
        kind = errors.UsageError if isinstance(error, ValueError) else errors.StoreIOError
        raise kind(
            f"could not {action}: {told}", path=output,
            hint="see to the table and its catalog, then start the same export again: it goes on where it was",
        ) from None  # fmt: skip


def look_at_table(table_format: str, output: Path, table: str | None, catalog: Mapping[str, str]) -> None:
    """Ask for the table, so that one that cannot be reached is told before any file is written."""
    if table_format == "delta":
        from deltalake import DeltaTable

        DeltaTable.is_deltatable(str(output))
    elif table_format == "iceberg":
        _load_catalog(catalog).table_exists(str(table))


def _load_catalog(properties: Mapping[str, str]) -> Any:
    """The catalog of the name that its properties say, or pyiceberg's own: a catalog of SQL keeps its tables by it."""
    from pyiceberg.catalog import load_catalog

    others = {key: properties[key] for key in properties if key != "name"}
    return load_catalog(properties.get("name"), **others)


def commit_delta(
    output: Path, job_id: str, schema: Any, partition_by: Sequence[str], files: Sequence[WrittenFile]
) -> None:
    """Add files to the Delta table at ``output``, which is made if there is none.

    The commit carries the job's id as an application transaction: a job that has been committed is not again.
    """
    from deltalake import CommitProperties, DeltaTable, Schema, Transaction
    from deltalake.transaction import AddAction, create_table_with_add_actions

    where = str(output)
    now_ms = time.time_ns() // 1_000_000
    actions = [
        AddAction(
            path=file.path, size=file.size_bytes, partition_values=_partition_values(file.path),
            modification_time=now_ms, data_change=True, stats=json.dumps({"numRecords": file.rows}),
        )
        for file in files
    ]  # fmt: skip
    properties = CommitProperties({_JOB: job_id}, app_transactions=[Transaction(job_id, 1)])
    delta_schema = Schema.from_arrow(schema)
    names = list(partition_by)
    if not DeltaTable.is_deltatable(where):
        create_table_with_add_actions(
            where, delta_schema, actions, mode="error", partition_by=names, commit_properties=properties
        )
        return
    table = DeltaTable(where)
    if table.transaction_version(job_id) is None:
        table.create_write_transaction(
            [*actions], mode="append", schema=delta_schema, partition_by=names, commit_properties=properties
        )


def _partition_values(path: str) -> dict[str, str | None]:
    """What the directories of a file say: ``topic=T/date=D/file``."""
    pairs = (part.partition("=") for part in path.split("/")[:-1])
    return {name: unquote(value) for name, _, value in pairs}


def commit_iceberg(
    output: Path, job_id: str, schema: Any, table: str, catalog: Mapping[str, str], files: Sequence[WrittenFile]
) -> None:
    """Add files to an Iceberg table, which is made if there is none.

    The snapshot carries the job's id; a job that has a snapshot is not committed again.
    """
    from pyiceberg.exceptions import NamespaceAlreadyExistsError, NoSuchTableError

    known = _load_catalog(catalog)
    try:
        found = known.load_table(table)
    except NoSuchTableError:
        namespace = table.rpartition(".")[0]
        with contextlib.suppress(NamespaceAlreadyExistsError):
            known.create_namespace(namespace)
        found = known.create_table(table, schema)
    snapshots = found.metadata.snapshots
    if any(one.summary is not None and one.summary.get(_JOB) == job_id for one in snapshots):
        return
    # Neither pyiceberg nor Hadoop take escapes for what they stand for.
    root = str(output) if isinstance(output, RemotePath) else f"file://{output}"
    paths = [f"{root}/{file.path}" for file in files]
    if paths:
        found.add_files(paths, snapshot_properties={_JOB: job_id})
