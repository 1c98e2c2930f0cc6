"""Running a function over many items, one Spark task each, and getting the results in order."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from mqstore.errors import MqstoreError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


def run_tasks(spark: SparkSession, function: Callable[[ItemT], ResultT], items: Sequence[ItemT]) -> list[ResultT]:
    """``[function(item) for item in items]``, each call in a task of its own.

    Function, items and results are pickled, so results should be small. A task may run twice, also at the same time.

    Raises:
        MqstoreError: as a task raised it. It ends the job at once: trying again would not help.
    """
    if not items:
        return []
    number = len(items)
    rows = spark.range(0, number, 1, number).mapInArrow(_Mapper(function, list(items)), "id long, result binary")
    results: list[Any] = [None] * number
    for row in rows.collect():
        result = pickle.loads(row["result"])
        if isinstance(result, MqstoreError):
            raise result
        results[row["id"]] = result
    return results


class _Mapper:
    """What a task runs: the function on the items whose numbers it is given."""

    def __init__(self, function: Callable[[Any], Any], items: list[Any]) -> None:
        self._function = function
        self._items = items

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for batch in batches:
            for number in batch["id"].to_pylist():
                result = pickle.dumps(self._call(self._items[number]))
                yield pa.RecordBatch.from_arrays(
                    [pa.array([number], pa.int64()), pa.array([result], pa.binary())], ["id", "result"]
                )

    def _call(self, item: Any) -> Any:
        try:
            return self._function(item)
        except MqstoreError as error:
            return error
