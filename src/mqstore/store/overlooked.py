"""What a look at a store does not see: files that cannot be read as what they are, and what lies behind damage.

Figures of such a store are too small, and whoever gives them should say so.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mqstore import errors
from mqstore.files.inventory import Problem, ProblemKind
from mqstore.files.lock import is_locked
from mqstore.files.remote import RemotePath
from mqstore.files.whole import mode_of
from mqstore.findings import REOPEN, Finding, Severity
from mqstore.layout.file_names import parse_queue_id
from mqstore.store.queue_states import list_states

if TYPE_CHECKING:
    from mqstore.store.view import StoreView

DERIVED: Final = "mqstore rebuild STORE --output NEW, or --in-place"
"""What mends queues and index."""
_SALVAGE: Final = "mqstore rebuild STORE --output NEW --salvage"
_LOOK_AGAIN_S: Final = (0.001, 0.01, 0.1)
"""How long a writer beside may take to complete a record."""


def log_file_finding(problem: Problem) -> Finding:
    """A fault in the list of the log's files."""
    repair = {
        ProblemKind.FOREIGN: "remove it",
        ProblemKind.MISPLACED: errors.HINT_FOREIGN,
        ProblemKind.DUPLICATE: errors.HINT_DOUBLE,
    }
    return _file_finding("log", problem, repair.get(problem.kind, "restore the file from a copy"))


def queue_file_finding(problem: Problem) -> Finding:
    """A fault in the list of a queue's files."""
    return _file_finding("queue", problem, "remove it" if problem.kind is ProblemKind.FOREIGN else DERIVED)


def _file_finding(area: str, problem: Problem, repair: str) -> Finding:
    severity = Severity.WARNING if problem.kind is ProblemKind.FOREIGN else Severity.ERROR
    return Finding(
        severity,
        area,
        errors.shown_path(problem.path),
        None,
        problem.kind.value,
        problem.expected,
        problem.found,
        repair,
    )


def log_overlooked(view: StoreView, *, beginnings: bool = True) -> list[Finding]:
    """Faults of the log's files, damage with which one begins, and damage in front of which the log ends.

    What is damaged within a file further in front is not known. In an object store each beginning would take a request:
    there none is looked at.

    Args:
        view: the store.
        beginnings: False for who goes through all of the log, and meets damage in it.

    Raises:
        StoreIOError: it could not be read.
    """
    problems = list(_hiding(view, view.log.inventory.problems))
    found = [log_file_finding(one) for one in problems]
    end = _damaged_end(view)
    if beginnings:
        found += _damaged_beginnings(view, {one.path for one in problems}, end)
    entry = None if end is None else view.log.entry_at(end)
    if end is None or entry is None:
        return found
    goes_on = not isinstance(entry.path, RemotePath) and view.log.record_behind(end + 1) is not None
    what = "sound records behind it are not looked at" if goes_on else "nothing sound lies behind it"
    message = f"a damaged record ends the log; {what}"
    repair = _SALVAGE if goes_on else REOPEN
    found.append(
        Finding(Severity.ERROR, "log", errors.shown_path(entry.path), end, message, "a sound record", repair=repair)
    )
    return found


def _damaged_end(view: StoreView) -> int | None:
    """Where the log ends if it ends with damage, and not with a record that is just being written."""
    return _if_damaged(view, None)


def _if_damaged(view: StoreView, place: int | None) -> int | None:
    """``place``, or the log's end, if damage is there, also at a second look beside a writer."""
    offset = view.log_end if place is None else place
    for wait_s in _LOOK_AGAIN_S if is_locked(view.paths.lock) else ():
        if not view.log.is_damaged_at(offset):
            return None
        time.sleep(wait_s)
        offset = view.log_end if place is None else place
    return offset if view.log.is_damaged_at(offset) else None


def _damaged_beginnings(view: StoreView, told: set[Path], end: int | None) -> Iterator[Finding]:
    """Files of which at least the first record is damaged, but for those that are ``told`` of and the newest.

    Lost extents, zeros from a disk that was away, and files under each other's names look like that.
    """
    for entry in view.log.inventory.entries[:-1]:
        if isinstance(entry.path, RemotePath):
            return
        if entry.path not in told and entry.start != end and _if_damaged(view, entry.start) is not None:
            message = "a file begins with a damaged record"
            where = str(entry.path), entry.start
            yield Finding(Severity.ERROR, "log", *where, message, "a sound record", repair=_SALVAGE)


def queues_overlooked(view: StoreView, queues: Iterable[tuple[str, int]] | None = None) -> list[Finding]:
    """Faults of the files of ``queues``, or of all: what hides messages.

    Raises:
        StoreIOError: a directory could not be read.
        StoreLockedError, CorruptFileError: a rebuild in place is going on, or was broken off, and the old queues are
            missing.
    """
    what = "something else than a directory under the name of one"
    found = [
        Finding(Severity.ERROR, "queue", errors.shown_path(path), None, what, "a directory", repair=DERIVED)
        for path in _no_directories(view, queues)
    ]
    for topic, queue_id in sorted(set(list_states(view.paths) if queues is None else queues)):
        inventory = view.queue_inventory(topic, queue_id)
        if inventory is not None:
            found += [queue_file_finding(one) for one in _hiding(view, inventory.problems)]
    return found


def _hiding(view: StoreView, problems: Iterable[Problem]) -> Iterator[Problem]:
    """The problems that may hide something: not foreign files, nor what a writer is just making."""
    for problem in problems:
        is_new = problem.kind is ProblemKind.EMPTY and is_locked(view.paths.lock)
        if problem.kind is not ProblemKind.FOREIGN and not is_new:
            yield problem


def _no_directories(view: StoreView, queues: Iterable[tuple[str, int]] | None) -> Iterator[Path]:
    """What should be the directory of a topic or a queue, and is something else."""
    root = view.paths.consume_queue
    if isinstance(root, RemotePath):
        return
    if queues is None:
        topics = _list(root)
        places = [
            *topics,
            *(path for topic in topics for path in _list(topic) if parse_queue_id(path.name) is not None),
        ]
    else:
        directories = {view.paths.queue(*one) for one in queues}
        places = [*{one.parent for one in directories}, *directories]
    for path in sorted(places):
        if os.path.lexists(path) and not stat.S_ISDIR(mode_of(path)):
            yield path


def _list(directory: Path) -> list[Path]:
    try:
        return list(directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise errors.from_os_error(error, "list directory", directory) from error
