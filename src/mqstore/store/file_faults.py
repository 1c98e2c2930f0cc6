"""Faults of files that a start meets: which of them it mends, and which it refuses."""

from __future__ import annotations

import logging
from typing import Final

from mqstore import errors
from mqstore.files import durable
from mqstore.files.inventory import Inventory, Problem, ProblemKind
from mqstore.layout.constants import QUEUE_UNIT_SIZE
from mqstore.store.consume_queue import ConsumeQueue
from mqstore.store.log_reader import LogReader

_log = logging.getLogger(__name__)

_SALVAGE_HINT: Final = (
    "restore the file from a copy, or make a sound store of what is left: mqstore rebuild STORE --output NEW --salvage"
)


def refuse_log_files(inventory: Inventory) -> None:
    """Refuse a commit log whose files do not follow each other; nothing is changed.

    Raises:
        CorruptFileError: the first hole, double, overlap, or wrong length anywhere but in the last file.
    """
    for problem in inventory.problems:
        if problem.kind is not ProblemKind.FOREIGN and not _is_of_last_length(inventory, problem):
            raise problem.to_error(_SALVAGE_HINT)
    if inventory.size_bytes and inventory.start % inventory.size_bytes:  # an only file without content has no size
        raise errors.CorruptFileError(
            "commit log files do not start at multiples of their size",
            path=inventory.entries[0].path,
            expected=f"a multiple of {inventory.size_bytes}",
            found=inventory.start,
            hint=_SALVAGE_HINT,
        )


def _is_of_last_length(inventory: Inventory, problem: Problem) -> bool:
    """Whether it is the last file that has another length, as a crash at its creation leaves it."""
    is_length = problem.kind in (ProblemKind.EMPTY, ProblemKind.WRONG_SIZE)
    return is_length and bool(inventory.entries) and problem.path == inventory.entries[-1].path


def check_log_files(log: LogReader) -> None:
    """:func:`refuse_log_files`; and mend what a crash at creation leaves."""
    refuse_log_files(log.inventory)
    for problem in log.inventory.problems:
        if problem.kind is ProblemKind.FOREIGN:
            _log.warning("passing over %s: %s", problem.path, problem.kind.value)
        elif problem.kind is ProblemKind.EMPTY:
            _log.warning("removing %s: a crash left it without content", problem.path)
            log.remove_file(problem.path)
        else:
            _log.warning("%s has %s bytes instead of %s", problem.path, problem.found, problem.expected)
    log.refresh()


def mend_queue_files(queue: ConsumeQueue) -> bool:
    """Bring a queue's files to a form that units can be written to; True if that was needed.

    What they held is then to be built again from the log.
    """
    size = queue.inventory.size_bytes
    broken = [one for one in queue.inventory.problems if one.kind is not ProblemKind.FOREIGN]
    if not broken:
        return False
    for problem in broken:
        if problem.kind is ProblemKind.NOT_A_FILE:
            raise problem.to_error()  # no file of ours: not ours to remove
    _log.warning("queue %s/%d: %s; mending its files", queue.topic, queue.queue_id, broken[0].kind.value)
    only_short = all(one.kind in (ProblemKind.WRONG_SIZE, ProblemKind.EMPTY) for one in broken)
    for entry in queue.inventory.entries:
        if only_short and entry.length < size:
            durable.set_file_end(entry.path, entry.length - entry.length % QUEUE_UNIT_SIZE, size)
        elif not only_short or entry.length > size:
            queue.remove_file(entry)
    for path in (one.path for one in broken if one.kind is ProblemKind.MISPLACED):
        durable.remove_file(path)
    durable.sync_directory(queue.directory)
    queue.list_anew()
    return True
