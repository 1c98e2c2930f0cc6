"""Stores as DataFrames whose rows Java makes once."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from mqstore.spark.tasks import cores

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import DataSourceReader

    from mqstore.spark.options import Source

_MAY_BE_NULL: Final = ("tags", "corruptReason")
"""The only columns of messages of which Spark must ask, value by value, whether one is there."""


def read(
    spark: SparkSession,
    source: Source,
    *,
    options: Mapping[str, object] | None = None,
    columns: str | Sequence[str] | None = None,
) -> DataFrame:
    """The rows of ``spark.read.format("rocketmq")``, sooner where all columns are read.

    Spark copies every row of a data source in Python once more before a query gets it. These rows come to it as those
    of a function over Arrow do, which are not copied. The columns that a message always has are declared so, and the
    last tasks share what is left of the log, so that cores end together. The read is planned here and now, by this
    process.

    Args:
        spark: the session; its workers must see ``source`` under the same path as this process.
        source: a store, a glob, or several.
        options: options of the source ``rocketmq``, but for ``path`` and ``pushFilters``.
        columns: the columns, in the order wanted, also as "topic,body"; None is all.

    Raises:
        UsageError: an option or a column that there is not, or that makes no sense here.
        MqstoreError: what planning the read raises.
    """
    from pyspark.sql.types import StructField, StructType

    from mqstore.spark.options import ReadOptions, from_arguments
    from mqstore.spark.pieces import levelled
    from mqstore.spark.source import RocketmqSource

    asked: Any = from_arguments(source, options, columns)  # numbers and truth values are taken, too
    rocketmq = RocketmqSource(asked)
    schema = rocketmq.schema()
    reader = rocketmq.reader(schema)
    parts = [one.value for one in reader.partitions()]
    parsed = ReadOptions.parse(asked)
    if parsed.view == "messages":
        schema = StructType([StructField(one.name, one.dataType, one.name in _MAY_BE_NULL) for one in schema])
        if parsed.max_partitions is None:
            parts = levelled(parts, cores(spark) or 1)  # a source in Python is not told how many there are
    return spark.range(0, len(parts), 1, max(1, len(parts))).mapInArrow(_Tasks(reader, parts), schema)


class _Tasks:
    """Reads the parts whose numbers a task is given. It is pickled into every task, and makes no other parts there."""

    def __init__(self, reader: DataSourceReader, parts: Sequence[Any]) -> None:
        self._reader = reader
        self._parts = [pickle.dumps(part) for part in parts]

    def __call__(self, numbers: Iterable[Any]) -> Iterator[Any]:
        from pyspark.sql.datasource import InputPartition

        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from self._reader.read(InputPartition(pickle.loads(self._parts[number])))
