"""One piece of work of the store's benchmarks, in a process of its own.

    python -m mqstore.bench.store_cell '{"work": "put", "directory": ..., "count": 1000, "options": {"size": 100}}'

It prints the figures as one JSON object, with the memory that the process holds at its end.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from mqstore.bench import limits, other_queues, store_work
from mqstore.bench.machine import resident_kib
from mqstore.bench.store_work import Figures

WORKS: Final[dict[str, Callable[..., Figures]]] = {
    function.__name__: function
    for function in (
        store_work.put, store_work.put_batch, store_work.put_table, store_work.fill, store_work.leave_log_only,
        store_work.get, store_work.get_table, store_work.query, store_work.open_store,
        limits.copy_in_memory, limits.copy_into_file, limits.read_file, limits.group_commit,
        other_queues.sqlite_put, other_queues.sqlite_get, other_queues.persist_queue_put,
        other_queues.persist_queue_get, other_queues.litequeue_put, other_queues.litequeue_get,
    )
}  # fmt: skip
"""Every kind of work, by its name."""


def do(task: dict[str, Any]) -> Figures:
    """Do a task; ``{"skipped": why}`` when a package that it needs is not installed."""
    before = resident_kib()
    try:
        figures = WORKS[task["work"]](Path(task["directory"]), task["count"], **task.get("options", {}))
    except other_queues.Missing as error:
        return {"skipped": str(error)}
    return {**figures, "resident_kib": {"before": before, "after": resident_kib()}}


def main() -> None:
    """Do the task given as JSON."""
    figures = do(json.loads(sys.argv[1]))
    sys.stdout.write(json.dumps(figures) + "\n")
    sys.stdout.flush()
    if figures.get("exit"):
        os._exit(0)


if __name__ == "__main__":
    main()
