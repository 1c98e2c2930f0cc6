"""One export: what its tasks need to know, the name it goes by, and the parts of the stores that are noted for it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mqstore import errors
from mqstore.files.remote import as_path
from mqstore.files.whole import mode_of
from mqstore.spark.jobs import export_notes, outputs
from mqstore.spark.options import ReadOptions
from mqstore.spark.stores import StoreRef

if TYPE_CHECKING:
    from mqstore.spark.pieces import Piece

PARTITIONS: Final = ("topic", "date")
"""What an output can be divided by, in this order."""


@dataclass(frozen=True)
class ExportJob:
    """Everything a task needs to know, and what makes one job differ from another."""

    output: str = field(repr=False)
    job_id: str
    options: ReadOptions
    columns: tuple[str, ...]
    target_file_bytes: int
    compression: str
    partition_by: tuple[str, ...] = PARTITIONS
    table_format: str = "parquet"
    table: str | None = None

    @property
    def asked(self) -> dict[str, Any]:
        """What was asked for, as JSON, without secrets: all but the name and the directory, which may be moved."""
        content = _json(dataclasses.asdict(self))
        content["options"]["paths"] = [_noted(path) for path in self.options.paths]
        return {name: value for name, value in content.items() if name not in ("output", "job_id")}

    @property
    def manifest(self) -> Path:
        """The file that tells what was written, once all is."""
        return as_path(self.output) / export_notes.STATE_DIRECTORY / f"{self.job_id}.json"

    @property
    def stage(self) -> Path:
        """The directory of what is not finished."""
        return as_path(self.output) / export_notes.STATE_DIRECTORY / f"{self.job_id}.partial"


def with_name(job: ExportJob, job_id: str | None, parts: list[list[Piece]]) -> ExportJob:
    """The job under the name given, or one that is made from all that makes it differ from another.

    Without a name, a job that was broken off goes on, also when the stores have grown since.

    Raises:
        UsageError: the output holds another export, finished or not.
        CorruptFileError, StoreIOError: what earlier exports have noted there is damaged, or could not be read.
    """
    output = as_path(job.output)
    unfinished = export_notes.unfinished_job(output, job.asked) if job_id is None else None
    made = hashlib.sha256(json.dumps([job.asked, _plain_parts(parts)]).encode()).hexdigest()[:16]
    name = job_id if job_id is not None else unfinished or made
    if job_id is None and (others := export_notes.other_jobs(output, name)):
        raise errors.UsageError(
            "the output holds another export, whose messages would be there twice",
            path=output,
            found=f"job {others[0]}",
            hint="give a new directory; or a job_id of its own, to add messages that are not there yet",
        )
    return dataclasses.replace(job, job_id=name)


def noted_parts(job: ExportJob, parts: list[list[Piece]], stores: Sequence[StoreRef]) -> list[list[Piece]]:
    """Note the parts, or take those noted when the job was first begun: what is in each must never change.

    Raises:
        UsageError: the job was begun with other arguments.
        CorruptFileError: the note is damaged.
        StoreIOError, DiskFullError: it could not be read, or written.
    """
    note = job.stage / export_notes.PLAN_NAME
    asked = {"job_id": job.job_id, **job.asked}
    if not mode_of(note):
        outputs.put(note, json.dumps({"job": asked, "parts": _plain_parts(parts)}).encode())
        return parts
    from mqstore.spark.pieces import from_plain

    known = {_shown(store): store for store in stores}

    def take(content: Any) -> tuple[Any, list[list[Piece]]]:
        parts = [[from_plain(piece) for piece in part] for part in content["parts"]]
        return content["job"], [[one._replace(store=known.get(one.store, one.store)) for one in part] for part in parts]

    begun, parts = export_notes.read_note(note, take, export_notes.give_up_hint(note, as_path(job.output)))
    if begun != asked:
        raise asked_otherwise(note, "begun", "finish it with its own arguments, or choose another job_id")
    return parts


def asked_otherwise(note: Path, state: str, hint: str) -> errors.UsageError:
    """What to raise where ``note`` says that the job of this id was asked for otherwise."""
    return errors.UsageError(f"a job of this id was {state} with other arguments", path=note, hint=hint)


def _plain_parts(parts: list[list[Piece]]) -> Any:
    from mqstore.spark.pieces import to_plain

    return [[to_plain(one._replace(store=_shown(one.store))) for one in part] for part in parts]


def _shown(store: StoreRef) -> StoreRef:
    """The store as it may be noted: secrets of its URL come from whoever goes on with the job."""
    return store._replace(path=errors.shown_path(store.path))


def _noted(path: str) -> str:
    """A path without secrets that still is no other's: another endpoint or container makes another job."""
    shown = errors.shown_path(path)
    return shown if shown == path else f"{shown} {hashlib.sha256(os.fsencode(path)).hexdigest()[:16]}"


def _json(value: Any) -> Any:
    return json.loads(json.dumps(value, default=_plain))


def _plain(value: Any) -> Any:
    if isinstance(value, frozenset):
        return sorted(value)
    raise TypeError(value)
