"""Measure the Spark pipeline beside Spark's own Parquet reader and beside the same work in one process.

    python bench/spark.py [--messages 1000000] [--large 10000000] [--body 1024] [--rounds 5] [--cores 2]
                          [--directory DIR] [--only PATTERN] [--quick] [--results NAME] [--output DIR]

One store is made: `orders` in four queues, and `rare`, which is 1 % of the log. The equivalent Parquet holds the same
rows with all columns. What is over in a second or two is measured in a store of ``--large`` messages as well. Every row
of the table is measured in each round, ours and its peer by turns, so that other load on the machine meets both. Where
cores are compared, all of Spark is held to as many. Results are medians, with the lowest and highest round, and go to
``bench/results/spark.md`` and ``spark.json``. Rows that say "a core" compare with one process that is held to one core,
divided by the cores that Spark has. In front of each, what was put out before is removed and the rest sent to the disk,
so that none pays for another's; and each is done some times without a clock whenever Spark was started. A rebuild into
a new store copies the log, which takes most of its time; one in place does not. The largest resident memory of any
Python worker is noted for each row, and that of the driver at the end.

What writes much is as fast as the disk allows, however many cores there are, and a disk is not the same from one minute
to the next. How much the cores do is seen where files lie in memory (all that is needed are 14 GiB of it for them):

    python bench/spark.py --directory /dev/shm --only "export|rebuild|audit" --results spark-in-memory
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from spark_processes import high_water_bytes, processes, reset_high_water
from spark_report import Row, write

import mqstore
import mqstore.spark
from mqstore import Message
from mqstore.bench.machine import file_system, machine
from mqstore.spark.jobs import auditing, derived, exporting, rebuilding
from mqstore.store.columns import SCHEMA

RESULTS = Path(__file__).resolve().parent / "results"
TWO_COLUMNS = ("topic", "storeSize")
RARE_EVERY = 100
WARM_UPS = 3  # Java translates what it runs often, while it runs it
_NOISE_BYTES = 16 << 20
_STEP = 7919  # a prime, so that places repeat as late as can be
ALL_CORES = os.sched_getaffinity(0)
MODULES: Any = (auditing, derived, exporting, rebuilding)


Work = Callable[[], None]


class Group(NamedTuple):
    """Rows that have the same beside them, each with what it measures; and that."""

    rows: list[tuple[Row, Work]]
    peer: Work


class WorkerMemory:
    """The largest resident memory of Spark's Python workers while the block runs, by the system's own count.

    Looking again and again meanwhile would take time from work that keeps all cores busy, and none from other work.
    """

    def __init__(self) -> None:
        self.peak_bytes = 0

    def __enter__(self) -> WorkerMemory:
        for worker in _workers():
            reset_high_water(worker)
        return self

    def __exit__(self, *_: object) -> None:
        for worker in _workers():
            with contextlib.suppress(OSError, StopIteration):
                self.peak_bytes = max(self.peak_bytes, high_water_bytes(worker))


def _workers() -> list[Path]:
    return [process for kind, process in processes() if kind == "worker"]


def make_store(path: Path, messages: int, body_bytes: int) -> None:
    """Fill a store with messages of one body size, no two alike: Parquet would keep a repeated one once."""
    noise = os.urandom(_NOISE_BYTES + body_bytes)
    with mqstore.open(path) as store:
        for first in range(0, messages, 1000):
            store.put_batch(
                [
                    Message(
                        "rare" if number % RARE_EVERY == 0 else "orders",
                        noise[(place := number * _STEP % _NOISE_BYTES) : place + body_bytes],
                        tags="even" if number % 2 == 0 else "odd",
                        keys=[f"k-{number}"],
                        properties={"amount": str(number % 1000), "region": "eu"},
                        queue_id=number % 4,
                    )
                    for number in range(first, min(messages, first + 1000))
                ]
            )
            if first % 10_000 == 0:
                store.wait_dispatched()


def run_in_turn(
    spark: object, function: Callable[[Any], Any], items: Sequence[Any], on_progress: Any = None, on_result: Any = None
) -> list[Any]:
    """Stands in for ``run_tasks``."""
    results = [function(item) for item in items]
    for result in results if on_result is not None else ():
        on_result(result)
    return results


@contextlib.contextmanager
def in_this_process() -> Iterator[None]:
    """Let jobs run their tasks one after the other, without Spark, on one core."""
    real = [module.run_tasks for module in MODULES]
    pa.set_cpu_count(1)
    for module in MODULES:
        module.run_tasks = run_in_turn
    try:
        yield
    finally:
        for module, function in zip(MODULES, real, strict=True):
            module.run_tasks = function


class Bench:
    """The store, its Parquet, and a session."""

    def __init__(self, work: Path, store: Path, cores: int) -> None:
        self.work = work
        self.store = store
        self.parquet = work / "equivalent.parquet"
        self.cores = cores
        self.spark: Any = None
        self._outputs = 0

    def start(self, cores: int) -> None:
        """A new session on so many cores, warmed up. Everything that Spark consists of keeps to as many of them."""
        if self.spark is not None:
            self.spark.stop()
        keep_to(cores)
        self.spark = mqstore.spark.session(f"local[{cores}]", "bench", **{"spark.driver.memory": "2g"})
        mqstore.spark.register(self.spark)
        self.scan_two()

    def export_equivalent(self) -> None:
        """All columns as Parquet, as Spark would write them: snappy, files of a split each."""
        mqstore.spark.jobs.export(
            self.spark, self.store, self.parquet, columns=SCHEMA.names, partition_by=["date"], compression="snappy"
        )

    def _read(self, **options: object) -> Any:
        texts = {name: str(value) for name, value in options.items()}
        return self.spark.read.format("rocketmq").options(**texts).load(str(self.store))

    def scan_two(self) -> None:
        """Two columns, a sum by topic."""
        self._read(columns=",".join(TWO_COLUMNS)).groupBy("topic").sum("storeSize").collect()

    def scan_two_parquet(self) -> None:
        """The same of Parquet."""
        self.spark.read.parquet(str(self.parquet)).select(*TWO_COLUMNS).groupBy("topic").sum("storeSize").collect()

    def scan_all(self) -> None:
        """Every column into the sink that does nothing."""
        self._read().write.format("noop").mode("overwrite").save()

    def whole_rows(self) -> None:
        """The same by the reading whose rows Java makes once."""
        mqstore.spark.read(self.spark, self.store).write.format("noop").mode("overwrite").save()

    def scan_all_parquet(self) -> None:
        """The same of Parquet."""
        frame = self.spark.read.parquet(str(self.parquet)).select(*SCHEMA.names)
        frame.write.format("noop").mode("overwrite").save()

    def rare(self, plan: str) -> None:
        """The messages that are 1 % of the log, with all columns."""
        self._read(subscribe="rare", plan=plan).write.format("noop").mode("overwrite").save()

    def export(self) -> None:
        """To Parquet by topic and day."""
        mqstore.spark.jobs.export(self.spark, self.store, self._fresh("exported"))

    def rebuild(self) -> None:
        """Queues and index anew."""
        mqstore.spark.jobs.rebuild(self.spark, self.store, self._fresh("rebuilt"))

    def rebuild_peer(self) -> None:
        """The same by the compiled rebuild of one process."""
        mqstore.rebuild(self.store, self._fresh("rebuilt"))

    def rebuild_in_place(self) -> None:
        """Queues and index anew, beside the log that stays."""
        mqstore.spark.jobs.rebuild(self.spark, self.store, in_place=True)

    def rebuild_in_place_peer(self) -> None:
        """The same by the compiled rebuild of one process."""
        mqstore.rebuild(self.store, None, in_place=True)

    def audit(self) -> None:
        """Every record and unit."""
        mqstore.spark.jobs.audit(self.spark, self.store)

    def _fresh(self, name: str) -> Path:
        self._outputs += 1
        return self.work / f"{name}-{self._outputs}"

    def clear(self) -> None:
        """Remove what was put out so far, which no work should pay for, and let the device come to rest."""
        for number in range(1, self._outputs + 1):
            for path in self.work.glob(f"*-{number}"):
                shutil.rmtree(path)
        self._outputs = 0
        os.sync()


def keep_to(cores: int) -> None:
    """Let this process, its children and all their threads run on so many cores only.

    Spark's ``local[1]`` would keep more than one core at work: rows are made by Java while Python makes the next
    batch, and both leave work to the system.
    """
    chosen = set(sorted(ALL_CORES)[:cores])
    for process in [os.getpid(), *children_of(os.getpid())]:
        for thread in Path(f"/proc/{process}/task").glob("[0-9]*"):
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(int(thread.name), chosen)


def children_of(process: int) -> list[int]:
    """The processes that ``process`` has started, and theirs."""
    parents: dict[int, int] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(status.parent.name)] = int(status.read_text().rpartition(")")[2].split()[1])
    found = [process]
    for parent in found:
        found += [child for child, its_parent in parents.items() if its_parent == parent]
    return found[1:]


def here(work: Callable[[], None]) -> Callable[[], None]:
    """``work`` without Spark, on one core."""

    def run() -> None:
        with in_this_process():
            work()

    return run


def compare(bench: Bench, group: Group, rounds: int) -> list[Row]:
    """Measure all of a group by turns, after some times without a clock."""
    for work in [*(work for _, work in group.rows), group.peer] * WARM_UPS:
        work()
    beside: list[float] = []
    turns: list[tuple[Row | None, Work, list[float]]] = [(row, work, row.ours) for row, work in group.rows]
    turns.append((None, group.peer, beside))
    per_core = any(row.per_core for row, _ in group.rows)
    for number in range(rounds):
        for row, work, seconds in turns if number % 2 == 0 else turns[::-1]:
            keep_to(1 if per_core and row is None else bench.cores)
            bench.clear()
            with WorkerMemory() as memory:
                started = time.perf_counter()
                work()
                seconds.append(time.perf_counter() - started)
            keep_to(bench.cores)
            if row is not None:
                row.worker_peak_bytes = max(row.worker_peak_bytes, memory.peak_bytes)
    for row, _ in group.rows:
        row.peer = beside
        print(f"{row.name}: {row.ratio(bench.cores):.2f}x", flush=True)
    return [row for row, _ in group.rows]


def rebuild_and_audit(bench: Bench) -> list[Group]:
    """Rows of the jobs whose tasks go through the log without handing it on."""
    rebuild = Row("rebuild in place, a core", "the compiled rebuild", per_core=True)
    audit = Row("audit, a core", "the same in process", per_core=True)
    return [
        Group([(rebuild, bench.rebuild_in_place)], bench.rebuild_in_place_peer),
        Group([(audit, bench.audit)], here(bench.audit)),
    ]


def measure(bench: Bench, rounds: int, only: str) -> list[Row]:
    """All rows but those on one core, as far as ``only`` is found in their names."""
    parquet, scan = "Spark reading the Parquet", "the same by a scan"
    export = Row("export, a core", "scan and pyarrow write in process", per_core=True)
    rebuild = Row("rebuild to a new store, a core", "the compiled rebuild", per_core=True)
    groups = [
        Group([(Row("scan, two columns", parquet), bench.scan_two)], bench.scan_two_parquet),
        Group(
            [
                (Row("scan, all columns", parquet), bench.scan_all),
                (Row("scan, all columns by mqstore.spark.read", parquet), bench.whole_rows),
            ],
            bench.scan_all_parquet,
        ),
        Group([(Row("1 % of the log by queues", scan), lambda: bench.rare("auto"))], lambda: bench.rare("scan")),
        Group([(export, bench.export)], here(bench.export)),
        Group([(rebuild, bench.rebuild)], bench.rebuild_peer),
        *rebuild_and_audit(bench),
    ]
    groups = chosen(groups, only)
    if any(row.name.startswith("scan") for group in groups for row, _ in group.rows):
        bench.export_equivalent()
    return [row for group in groups for row in compare(bench, group, rounds)]


def chosen(groups: Sequence[Group], only: str) -> list[Group]:
    """The groups with those rows alone in whose names ``only`` is found."""
    left = [group._replace(rows=[one for one in group.rows if re.search(only, one[0].name)]) for group in groups]
    return [group for group in left if group.rows]


def measure_large(large: Bench, messages: int, rounds: int, only: str) -> list[Row]:
    """What is over soon, where the log is large: in a small one most of it is what Spark takes for anything."""
    rare = Row("1 % of the log by queues", "the same by a scan")
    groups = [Group([(rare, lambda: large.rare("auto"))], lambda: large.rare("scan")), *rebuild_and_audit(large)]
    for row, _ in (one for group in groups for one in group.rows):
        row.name, row.messages = f"large log: {row.name}", messages
    return [row for group in chosen(groups, only) for row in compare(large, group, rounds)]


def measure_cores(bench: Bench, large: Bench, messages: int, rounds: int, only: str) -> list[Row]:
    """What all cores do beside one; in the large log where a small one is over soon."""
    works = {"scan, all columns": bench.scan_all, "export": bench.export}
    works |= {
        "large log: scan, two columns": large.scan_two, "large log: rebuild in place": large.rebuild_in_place,
        "large log: audit": large.audit,
    }  # fmt: skip
    works = {name: work for name, work in works.items() if re.search(only, name)}
    rows = {name: Row(f"{name}, {bench.cores} cores", "one core") for name in works}
    for name, row in rows.items():
        row.messages = messages if name.startswith("large") else 0
    for _ in range(rounds if works else 0):
        for cores in (bench.cores, 1):
            bench.start(cores)  # in the same Java, which is warm after the first round
            large.spark = bench.spark
            for name, work in works.items():
                work()  # a new session has new workers, which know nothing of it yet
                bench.clear()
                started = time.perf_counter()
                work()
                (rows[name].ours if cores == bench.cores else rows[name].peer).append(time.perf_counter() - started)
    for row in rows.values():
        print(f"{row.name}: {row.ratio(1):.2f}x", flush=True)
    return list(rows.values())


def own_peak_bytes() -> int:
    """The largest resident memory that this process has had."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) << 10


def main() -> None:
    """Make the data, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--large", type=int, default=10_000_000, help="messages of the large store; 0 for none")
    parser.add_argument("--body", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--directory", type=Path, help="where to put the data; left out: a temporary directory")
    parser.add_argument("--only", default="", help="rows in whose names this pattern is found")
    parser.add_argument("--results", help="name of the results; left out: spark, or none if not all is measured")
    parser.add_argument("--output", type=Path, default=RESULTS, help="where the results go")
    parser.add_argument("--quick", action="store_true", help="a small store and one round, to see that it works")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.messages, arguments.large, arguments.rounds = 20_000, 40_000, 1
    with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
        work = Path(directory)
        make_store(work / "store", arguments.messages, arguments.body)
        bench = Bench(work, work / "store", arguments.cores)
        bench.start(arguments.cores)
        rows = measure(bench, arguments.rounds, arguments.only)
        if arguments.large:
            large = Bench(work, work / "large", arguments.cores)
            large.spark = bench.spark
            make_store(large.store, arguments.large, arguments.body)
            rows += measure_large(large, arguments.large, arguments.rounds, arguments.only)
            if arguments.cores > 1:
                rows += measure_cores(bench, large, arguments.large, arguments.rounds, arguments.only)
        bench.spark.stop()
        with mqstore.inspect(work / "store") as view:
            log_bytes = view.log_end
        facts = {
            "messages": arguments.messages,
            "bodyBytes": arguments.body,
            "logBytes": log_bytes,
            "rounds": arguments.rounds,
            "cores": arguments.cores,
            "machine": machine(),
            "files": file_system(work),
            "when": datetime.now(timezone.utc).date().isoformat(),
            "driverPeakMib": own_peak_bytes() >> 20,
        }
        partial = arguments.quick or arguments.only
        results = work if partial and arguments.results is None else arguments.output
        write(results / (arguments.results or "spark"), rows, facts, arguments.cores)


if __name__ == "__main__":
    sys.exit(main())
