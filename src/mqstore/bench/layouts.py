"""Both layouts under the same messages as topics grow: one commit log against a log for each partition.

Every store is worked on by processes of its own (:mod:`mqstore.bench.layout_cell`): create the topics, append
round-robin without and with barriers, die, open again, read back cold and warm. Rounds alternate between the layouts.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mqstore import errors
from mqstore.bench.cells import run_cell

LAYOUTS: Final = ("rocketmq", "rocketmq+queues", "kafka")
Cell = dict[str, Any]
"""What was asked for and what its processes said, as JSON holds it."""
_STEPS: Final = "mqstore.bench.layout_cell"


@dataclass(frozen=True)
class Plan:
    """What to measure.

    Attributes:
        topics: numbers of topics.
        batches: messages an append, one table for each.
        mebibytes: payload of a cell.
        size_bytes: size of a message.
        barrier_mebibytes: distance of two barriers, in the cells that have any.
        read_messages: how many messages to read back at least.
        rounds: how often to measure each cell.
        timeout_s: after how many seconds a process counts as not finished.
        directory: where the data goes; None is the directory for temporary files.
    """

    topics: tuple[int, ...] = (1, 64, 1024, 10_000)
    batches: tuple[int, ...] = (4,)
    mebibytes: int = 32
    size_bytes: int = 1024
    barrier_mebibytes: int = 8
    read_messages: int = 2000
    rounds: int = 3
    timeout_s: float = 300
    directory: Path | None = None

    def __post_init__(self) -> None:
        numbers = (self.mebibytes, self.size_bytes, self.barrier_mebibytes, self.read_messages, self.rounds)
        if min((*self.topics, *self.batches, *numbers), default=0) < 1 or self.timeout_s <= 0:
            raise errors.UsageError("a number of the benchmark is below 1", found=repr(self))
        if not self.topics or not self.batches:
            raise errors.UsageError("nothing to measure", found=repr(self))
        if self.directory is not None and not self.directory.is_dir():
            raise errors.UsageError("no such directory", path=self.directory, hint="the data needs one that exists")

    def barriers(self, layout: str) -> list[int]:
        """Distances of barriers in bytes under which a layout is written, 0 for none."""
        # Without barriers the one does the same as the layout without queues.
        return [0, self.barrier_mebibytes << 20] if layout != "rocketmq+queues" else [self.barrier_mebibytes << 20]

    def stores(self) -> list[Cell]:
        """What each store is that is made, in order; there is a cell for each of its barriers."""
        return [
            {"round": number, "layout": layout, "topics": topics, "batch": batch, "size": self.size_bytes}
            for number in range(self.rounds)
            for topics in self.topics
            for batch in self.batches
            for layout in LAYOUTS
        ]

    @property
    def cell_count(self) -> int:
        """How many cells there are."""
        return sum(len(self.barriers(store["layout"])) for store in self.stores())


def measure(plan: Plan) -> Iterator[Cell]:
    """All cells of all rounds, as they are done."""
    for store in plan.stores():
        yield from measure_store(plan, store)


def measure_store(plan: Plan, store: Cell) -> list[Cell]:
    """One layout under one load: write without barriers, then with them, crash, open, read.

    Opening and reading, to which barriers make no difference, is part of the cell without any.
    """
    scratch = Path(tempfile.mkdtemp(prefix="mqstore-layouts-", dir=plan.directory))
    barriers = plan.barriers(store["layout"])
    task = {
        **store,
        "directory": str(scratch / "data"),
        "barriers": barriers,
        "messages": (plan.mebibytes << 20) // plan.size_bytes,
        "read_messages": plan.read_messages,
    }
    try:
        written = run_cell(_STEPS, {"step": "write", **task}, plan.timeout_s)
        writes = written.get("writes", [written] * len(barriers))
        cells: list[Cell] = [{**store, "barrier_bytes": one, "write": writes[n]} for n, one in enumerate(barriers)]
        if "failed" not in written and barriers[0] == 0:
            cells[0]["open"] = run_cell(_STEPS, {"step": "open", **task}, plan.timeout_s)
            for name, cold in (("cold", True), ("warm", False)):
                cells[0][name] = run_cell(_STEPS, {"step": "read", "cold": cold, **task}, plan.timeout_s)
        return cells
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def run(
    plan: Plan, output: Path, *, add: bool = False, on_cell: Callable[[Cell | None, int, int], None] | None = None
) -> list[Cell]:
    """Measure, and keep the cells as they come in ``layouts.json`` of ``output``, at the end with tables and curves.

    Args:
        plan: what to measure.
        output: a directory, made if need be.
        add: keep the cells of earlier runs that are there.
        on_cell: called with the cell measured last, None at the beginning, and how many are done, of how many.

    Raises:
        UsageError: a file of this name there holds no cells.
        StoreIOError, DiskFullError: the results could not be kept.
    """
    from mqstore.bench import layout_report

    kept = output / "layouts.json"
    count = plan.cell_count
    try:
        output.mkdir(parents=True, exist_ok=True)
        cells = load(kept) if add else []
        if on_cell is not None:
            on_cell(None, 0, count)
        for number, cell in enumerate(measure(plan), 1):
            cells.append(cell)
            kept.write_text(json.dumps(cells, indent=1) + "\n", encoding="utf-8")  # a run may be broken off
            if on_cell is not None:
                on_cell(cell, number, count)
        text = layout_report.report(cells, plan)
        (output / "layouts.md").write_text(text.rstrip() + "\n", encoding="utf-8")
        layout_report.draw(cells, output / "layouts.svg")
    except OSError as error:
        raise errors.from_os_error(error, "keep results", output) from error
    return cells


def load(path: Path) -> list[Cell]:
    """The cells of an earlier run; none if there was none."""
    if not path.exists():
        return []
    try:
        cells = json.loads(path.read_text("utf-8"))
        if isinstance(cells, list) and all("write" in cell for cell in cells):
            return cells
    except (ValueError, TypeError):
        pass
    raise errors.UsageError("no results of this benchmark", path=path, hint="give another --output, or remove it")
