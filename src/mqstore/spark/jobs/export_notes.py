"""What exports note below their output: manifests, and the plans of those that are not finished."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from mqstore import errors
from mqstore.files.whole import mode_of
from mqstore.spark.jobs import outputs

NoteT = TypeVar("NoteT")

STATE_DIRECTORY: Final = "_mqstore"
"""Below the output: manifests and unfinished work. Readers of Parquet pass over names that begin with _."""

PLAN_NAME: Final = "plan.json"


def unfinished_plans(output: Path) -> list[Path]:
    """The plans of the exports to ``output`` that were begun and not finished."""
    state = output / STATE_DIRECTORY
    names = {plan: plan.parent.name.removesuffix(".partial") for plan in plans(output)}
    return [plan for plan, name in names.items() if not mode_of(state / f"{name}.json")]


def plans(output: Path) -> list[Path]:
    """The plans of all exports to ``output`` whose unfinished work is still there."""
    state = output / STATE_DIRECTORY
    found = [state / name / PLAN_NAME for name in outputs.names(state) if name.endswith(".partial")]
    return [plan for plan in found if mode_of(plan)]


def unfinished_job(output: Path, asked: Mapping[str, Any]) -> str | None:
    """Name of the export to ``output`` that was broken off, be it at its very end, if the same was asked for.

    Raises:
        UsageError: it was asked for something else. Some of its files may be in their places.
    """
    for plan in plans(output):
        noted = read_note(plan, lambda content: dict(content["job"]), give_up_hint(plan, output))
        if {name: noted.get(name) for name in asked} == asked:
            return str(noted["job_id"])
    for plan in unfinished_plans(output):
        raise errors.UsageError(
            "the output holds an export with other arguments that was broken off",
            path=plan.parent,
            hint=give_up_hint(plan, output),
        )
    return None


def remove_leftovers(output: Path) -> None:
    """Remove what exports to ``output`` have left that were killed before they had a plan, or when all was done.

    Of the latter, what still has its plan goes when the same is asked for again: the plan tells that it is the same.
    """
    state = output / STATE_DIRECTORY
    outputs.remove_temporaries(state)
    for name in outputs.names(state):
        stage = state / name
        if not name.endswith(".partial") or mode_of(stage / PLAN_NAME):
            continue
        if mode_of(state / f"{name.removesuffix('.partial')}.json"):
            outputs.remove_tree(stage)
        else:
            outputs.remove_if_empty(stage)


def give_up_hint(plan: Path, output: Path) -> str:
    """What to do about an export that is not finished."""
    files = f"{plan.parent.name.removesuffix('.partial')}-*.parquet"
    return f"start it again as it was; or give it up: remove {plan.parent} and every {files} below {output}"


def other_jobs(output: Path, name: str) -> list[str]:
    """Names of the exports that were finished in ``output`` and wrote rows there, but for ``name``."""
    return [one.stem for one in _manifests(output) if one.stem != name and _may_have_rows(one)]


def table_formats(output: Path) -> set[str]:
    """The formats of the tables that finished exports to ``output`` have made their files part of."""
    found = set()
    for manifest in _manifests(output):
        with contextlib.suppress(errors.CorruptFileError):
            found.add(read_note(manifest, lambda content: str(content["asked"]["table_format"]), ""))
    return found


def _manifests(output: Path) -> list[Path]:
    state = output / STATE_DIRECTORY
    return [state / name for name in outputs.names(state) if name.endswith(".json")]


def _may_have_rows(manifest: Path) -> bool:
    try:
        return read_note(manifest, lambda content: int(content["rows"]), "") > 0
    except errors.CorruptFileError:
        return True


def read_note(note: Path, take: Callable[[Any], NoteT], hint: str) -> NoteT:
    """What ``take`` makes of a note in JSON; raises CorruptFileError if that cannot be."""
    try:
        return take(json.loads(note.read_bytes()))
    except OSError as error:
        raise errors.from_os_error(error, "read the note of an export", note) from error
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        found = f"{type(error).__name__}: {error}"
        raise errors.CorruptFileError(
            "the note of an export is damaged", path=note, found=found[:200], hint=hint
        ) from None
