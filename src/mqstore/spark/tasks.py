"""Running a function over many items, one Spark task each, and getting the results in order."""

from __future__ import annotations

import functools
import pickle
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from mqstore.errors import MqstoreError
from mqstore.spark.worker import settle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")

Progress = Callable[[int, int], None]
"""Called with (tasks done, tasks in all)."""

_LOOK_EVERY_S = 0.2
_GROUP = "spark.jobGroup.id"


def cores(spark: SparkSession) -> int | None:
    """How many tasks run at the same time; None where nobody says, as with Spark Connect."""
    return spark.sparkContext.defaultParallelism if hasattr(spark, "_jsc") else None


def run_tasks(
    spark: SparkSession,
    function: Callable[[ItemT], ResultT],
    items: Sequence[ItemT],
    on_progress: Progress | None = None,
    on_result: Callable[[ResultT], None] | None = None,
) -> list[ResultT]:
    """``[function(item) for item in items]``, each call in a task of its own.

    Function, items and results are pickled, so results should be small. ``on_result`` gets each in its order, when all
    are there, and may take out of it what would be too much for all of them. A task may run twice, also at the same
    time.

    Raises:
        MqstoreError: as a task raised it, when all have ended. Such a task is not tried again, which would not help.
    """
    if not items:
        return []
    with watched(spark, len(items), on_progress):
        found = _collect(spark, function, items) if hasattr(spark, "_jsc") else _collect_rows(spark, function, items)
    results: list[Any] = []
    found.reverse()
    while found:
        result = pickle.loads(found.pop())
        if isinstance(result, MqstoreError):
            raise result
        if on_result is not None:
            on_result(result)
        results.append(result)
    return results


def _collect(spark: SparkSession, function: Callable[[Any], Any], items: Sequence[Any]) -> list[bytes]:
    """The results, pickled. Each task is sent its own item alone, and nothing is planned: half the time of rows."""
    rdd = spark.sparkContext.parallelize(items, len(items))
    return rdd.map(functools.partial(_do, function)).collect()


def _collect_rows(spark: SparkSession, function: Callable[[Any], Any], items: Sequence[Any]) -> list[bytes]:
    """The same by rows, which is all that Spark Connect has."""
    from pyspark.sql.types import BinaryType, LongType, StructType

    number = len(items)
    columns = StructType().add("id", LongType()).add("result", BinaryType())  # as text, Java would be asked for them
    rows = spark.range(0, number, 1, number).mapInArrow(_Mapper(function, items), columns)
    return [row["result"] for row in sorted(rows.collect(), key=lambda row: row["id"])]


@contextmanager
def watched(spark: SparkSession, total: int | None, on_progress: Progress | None) -> Iterator[None]:
    """Tell how many tasks are done while the block runs. Spark Connect does not say, so there only the end is told.

    Without ``total`` it is that of the stages which Spark has begun, and grows with them.
    """
    if on_progress is None:
        yield
        return
    on_progress(0, total or 1)
    if hasattr(spark, "_jsc"):
        context = spark.sparkContext
        group = f"mqstore-{uuid.uuid4().hex}"
        before = context.getLocalProperty(_GROUP)
        context.setLocalProperty(_GROUP, group)
        over = threading.Event()
        watcher = threading.Thread(target=_watch, args=(context, group, total, on_progress, over), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()
            context.setLocalProperty(_GROUP, before)  # type: ignore[arg-type]
    else:
        yield
    on_progress(total or 1, total or 1)


def _watch(context: Any, group: str, total: int | None, on_progress: Progress, over: threading.Event) -> None:
    tracker = context.statusTracker()
    while not over.wait(_LOOK_EVERY_S):
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
        stages = {stage for job in jobs if job is not None for stage in job.stageIds}
        infos = [info for stage in stages if (info := tracker.getStageInfo(stage)) is not None]
        number = total or max(1, sum(info.numTasks for info in infos))
        on_progress(min(number, sum(info.numCompletedTasks for info in infos)), number)


class _Mapper:
    """What a task runs: the function on the items whose numbers it is given. It makes no others, which may be large."""

    def __init__(self, function: Callable[[Any], Any], items: Sequence[Any]) -> None:
        self._function = function
        self._items = [pickle.dumps(item) for item in items]

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for batch in batches:
            for number in batch["id"].to_pylist():
                result = _do(self._function, pickle.loads(self._items[number]))
                yield pa.RecordBatch.from_arrays(
                    [pa.array([number], pa.int64()), pa.array([result], pa.binary())], ["id", "result"]
                )


def _do(function: Callable[[Any], Any], item: Any) -> bytes:
    """Runs in a task: the function on one item; what it returns, or the error it raises, pickled."""
    settle()
    if arrow := sys.modules.get("pyarrow"):
        arrow.default_memory_pool().release_unused()  # what the tasks before left, which Arrow keeps for the next
    try:
        return pickle.dumps(function(item))
    except MqstoreError as error:
        return pickle.dumps(error)
