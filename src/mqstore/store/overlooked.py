"""What a look at a store does not see: files that cannot be read as what they are, and what lies behind damage.

Figures of such a store are too small, and whoever gives them should say so.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mqstore import errors
from mqstore.files.inventory import Problem, ProblemKind
from mqstore.files.lock import is_locked
from mqstore.files.remote import RemotePath
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
    return Finding(severity, area, str(problem.path), None, problem.kind.value, problem.expected, problem.found, repair)


def log_overlooked(view: StoreView) -> list[Finding]:
    """Faults of the log's files, and damage in front of which it ends; what is damaged further in front is not known.

    Raises:
        StoreIOError: it could not be read.
    """
    found = [log_file_finding(one) for one in _hiding(view, view.log.inventory.problems)]
    end = _damaged_end(view)
    entry = None if end is None else view.log.entry_at(end)
    if end is None or entry is None:
        return found
    goes_on = not isinstance(entry.path, RemotePath) and view.log.record_behind(end + 1) is not None
    what = "sound records behind it are not looked at" if goes_on else "nothing sound lies behind it"
    message = f"a damaged record ends the log; {what}"
    repair = _SALVAGE if goes_on else REOPEN
    found.append(Finding(Severity.ERROR, "log", str(entry.path), end, message, "a sound record", repair=repair))
    return found


def _damaged_end(view: StoreView) -> int | None:
    """Where the log ends if it ends with damage, and not with a record that is just being written."""
    end = view.log_end
    for wait_s in _LOOK_AGAIN_S if is_locked(view.paths.lock) else ():
        if not view.log.is_damaged_at(end):
            return None
        time.sleep(wait_s)
        end = view.log_end
    return end if view.log.is_damaged_at(end) else None


def queues_overlooked(view: StoreView, queues: Iterable[tuple[str, int]] | None = None) -> list[Finding]:
    """Faults of the files of ``queues``, or of all: what hides messages.

    Raises:
        StoreIOError: a directory could not be read.
        StoreLockedError, CorruptFileError: a rebuild in place is going on, or was broken off, and the old queues are
            missing.
    """
    what = "something else than a directory under the name of one"
    found = [
        Finding(Severity.ERROR, "queue", str(path), None, what, "a directory", repair=DERIVED)
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
        if os.path.lexists(path) and not path.is_dir():
            yield path


def _list(directory: Path) -> list[Path]:
    try:
        return list(directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise errors.from_os_error(error, "list directory", directory) from error
