"""The store measured row by row: each beside what the machine can do at best, and beside what others do.

Every round of a row does all of it one after the other, each in a process of its own, so that other load on the
machine meets everyone.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from mqstore import errors, kernels
from mqstore.bench import machine
from mqstore.bench.cells import run_cell

Options = Mapping[str, Any]
Measured = dict[str, Any]
"""A row with the figures of all rounds, as JSON holds it."""
Peer = Callable[[str, Path, int, Options], dict[str, Any]]
"""Does a kind of work in another store, on a directory that may be prepared, and gives figures by the same names."""

CELL: Final = "mqstore.bench.store_cell"


@dataclass(frozen=True)
class Row:
    """One thing to measure.

    Attributes:
        name: what the report calls it.
        work: the kind of work, see :data:`mqstore.bench.store_cell.WORKS`.
        options: its arguments.
        fill: what is done with the directory before, None for nothing: arguments of ``fill``.
        limit: work of the machine alone that bounds it, with the same size and threads.
        peer_work: what a peer does beside it, if that is something else; "" for rows without a peer.
        peer_options: its arguments, where they differ.
        share: part of the plan's messages.
        beside: the row of ours that one of another package answers to.
    """

    name: str
    work: str
    options: Options = field(default_factory=dict)
    fill: Options | None = None
    limit: str = ""
    peer_work: str | None = None
    peer_options: Options | None = None
    share: float = 1.0
    beside: str = ""

    def count(self, messages: int) -> int:
        """How many messages it has, of so many in the plan."""
        return max(64, round(messages * self.share))


def _synced(threads: int, share: float) -> Row:
    words = "1 thread" if threads == 1 else f"{threads} threads"
    options = {"threads": threads, "mode": "SYNC_FLUSH"}
    return Row(f"put, 1 KiB, SYNC_FLUSH, {words}", "put", options, limit="group_commit", share=share)


OURS: Final = (
    Row("put, 100 B, 1 thread", "put", {"size": 100}, limit="copy_into_file"),
    Row("put, 1 KiB, 1 thread", "put", limit="copy_into_file"),
    Row("put, 4 KiB, 1 thread", "put", {"size": 4096}, limit="copy_into_file"),
    Row("put, 1 KiB, 4 threads", "put", {"threads": 4}, limit="copy_into_file"),
    _synced(1, 0.02),
    _synced(8, 0.05),
    _synced(64, 0.2),
    Row("put_batch of 32, 1 KiB", "put_batch", {"batch": 32}, limit="copy_into_file"),
    Row(
        "put_table beside put_batch of 32, 1 KiB", "put_table", limit="copy_into_file",
        peer_work="put_batch", peer_options={"batch": 32},
    ),
    Row("get, 32 a time, 1 KiB, decoded", "get", fill={}, limit="read_file"),
    Row("get_table, 5 columns, beside get of 32, 1 KiB", "get_table", fill={}, limit="read_file", peer_work="get"),
    Row("query by key, 1 KiB, record checked", "query", fill={}),
    Row("open after a clean stop, 1 KiB", "open_store", fill={}),
    Row("open after a crash, 1 KiB", "open_store", fill={"end": "crash"}),
    Row("open with the log only, 1 KiB", "open_store", fill={"end": "log only"}, limit="read_file"),
)  # fmt: skip
"""What is measured of mqstore; peers do the same."""

_PUT, _SYNCED, _GET = OURS[1].name, OURS[4].name, OURS[9].name
OTHERS: Final = (
    Row("SQLite, synchronous OFF: insert", "sqlite_put", {"mode": "OFF"}, beside=_PUT),
    Row("SQLite, synchronous FULL: insert", "sqlite_put", {"mode": "FULL"}, beside=_SYNCED, share=0.02),
    Row("SQLite: select, 32 a time", "sqlite_get", beside=_GET),
    Row("persist-queue on SQLite: put", "persist_queue_put", beside=_SYNCED, share=0.02),
    Row("persist-queue on SQLite: get", "persist_queue_get", beside=_GET, share=0.02),
    Row("litequeue: put", "litequeue_put", beside=_PUT, share=0.2),
    Row("litequeue: pop and done", "litequeue_get", beside=_GET, share=0.05),
)
"""What else a Python program could use, with bodies of 1 KiB."""

ROWS: Final = (*OURS, *OTHERS)


@dataclass(frozen=True)
class Plan:
    """What to measure.

    Attributes:
        count: messages of a row; some take a part of it.
        rounds: how often each row is measured.
        only: rows whose name holds this text; empty is all.
        timeout_s: after how many seconds a process counts as not finished.
        directory: where the data goes; None is the directory for temporary files.
    """

    count: int = 100_000
    rounds: int = 5
    only: str = ""
    timeout_s: float = 300
    directory: Path | None = None

    def __post_init__(self) -> None:
        if self.count < 1 or self.rounds < 1 or self.timeout_s <= 0:
            raise errors.UsageError("a number of the benchmark is below 1", found=repr(self))
        if not self.rows():
            raise errors.UsageError("no row has this in its name", found=repr(self.only))
        if self.directory is not None and not self.directory.is_dir():
            raise errors.UsageError("no such directory", path=self.directory, hint="the data needs one that exists")

    def rows(self) -> list[Row]:
        """The rows to measure."""
        return [row for row in ROWS if self.only in row.name]


def measure_row(plan: Plan, row: Row, peers: Mapping[str, Peer]) -> Measured:
    """All rounds of a row."""
    count = row.count(plan.count)
    found: Measured = {"name": row.name, "messages": count, "ours": [], "limit": [], "peers": {}}
    if row.beside:
        found["beside"] = row.beside
    for _ in range(plan.rounds):
        with tempfile.TemporaryDirectory(prefix="mqstore-bench-", dir=plan.directory) as scratch:
            found["ours"].append(_prepared(plan, row, count, Path(scratch, "ours"), row.work, row.options, _cell))
        if row.limit:
            names = ("size", "threads") if row.limit == "group_commit" else ("size",)
            same = {name: row.options[name] for name in names if name in row.options}
            with tempfile.TemporaryDirectory(prefix="mqstore-bench-", dir=plan.directory) as scratch:
                found["limit"].append(_cell(plan, Path(scratch, "limit"), row.limit, count, same))
        if row.beside or row.peer_work == "":
            continue
        for name, peer in peers.items():

            def ask(_: Plan, directory: Path, work: str, count: int, options: Options, peer: Peer = peer) -> Measured:
                return peer(work, directory, count, options)

            with tempfile.TemporaryDirectory(prefix="mqstore-bench-", dir=plan.directory) as scratch:
                work = row.work if row.peer_work is None else row.peer_work
                options = row.options if row.peer_options is None else row.peer_options
                figures = _prepared(plan, row, count, Path(scratch, "peer"), work, options, ask)
                found["peers"].setdefault(name, []).append(figures)
    return found


def _prepared(
    plan: Plan, row: Row, count: int, directory: Path, work: str, options: Options, do: Callable[..., Measured]
) -> Measured:
    """Fill the directory if the row wants that, and do the work."""
    if row.fill is not None:
        filled = _cell(plan, directory, "fill", count, {"size": row.options.get("size", 1024), **row.fill})
        if "failed" in filled:
            return filled
    return do(plan, directory, work, count, options)


def _cell(plan: Plan, directory: Path, work: str, count: int, options: Options) -> Measured:
    task = {"work": work, "directory": str(directory), "count": count, "options": dict(options)}
    return run_cell(CELL, task, plan.timeout_s)


def run(
    plan: Plan,
    output: Path,
    *,
    peers: Mapping[str, Peer] | None = None,
    about_peers: str = "",
    add: bool = False,
    on_row: Callable[[Row, int, int], None] | None = None,
) -> dict[str, Any]:
    """Measure, and keep the results as they come in ``store.json`` of ``output``, and as a report in ``store.md``.

    Args:
        plan: what to measure.
        output: a directory, made if need be.
        peers: other stores beside, by name.
        about_peers: a sentence of the report about them.
        add: keep the rows of earlier runs that are not measured now.
        on_row: called with each row when it begins, how many are done, of how many.

    Raises:
        UsageError: a file of this name there holds no such results.
        StoreIOError, DiskFullError: the results could not be kept.
    """
    from mqstore.bench import store_report

    results: dict[str, Any] = {
        "machine": machine.machine(),
        "file_system": machine.file_system(plan.directory),
        "kernels": kernels.NAME,
        "count": plan.count,
        "rounds": plan.rounds,
        "about_peers": about_peers,
        "rows": [],
    }
    rows, kept = plan.rows(), output / "store.json"
    places = [row.name for row in ROWS]
    try:
        output.mkdir(parents=True, exist_ok=True)
        found = load(kept) if add else {}
        for number, row in enumerate(rows):
            if on_row is not None:
                on_row(row, number, len(rows))
            found[row.name] = measure_row(plan, row, peers or {})
            results["rows"] = sorted(found.values(), key=lambda one: places.index(one["name"]))
            kept.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")  # a run may be broken off
        (output / "store.md").write_text(store_report.report(results), encoding="utf-8")
    except OSError as error:
        raise errors.from_os_error(error, "keep results", output) from error
    return results


def load(path: Path) -> dict[str, Measured]:
    """The rows of an earlier run, by name; none if there was none."""
    if not path.exists():
        return {}
    try:
        rows = {row["name"]: row for row in json.loads(path.read_text("utf-8"))["rows"]}
        if rows.keys() <= {row.name for row in ROWS}:
            return rows
    except (ValueError, TypeError, KeyError):
        pass
    raise errors.UsageError("no results of this benchmark", path=path, hint="give another --output, or remove it")
