"""What every view of a store is: a table that is planned in parts on the driver and read in tasks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import pyarrow as pa

from mqstore.spark.options import ReadOptions
from mqstore.spark.pushed import Pushed
from mqstore.spark.selection import Selection
from mqstore.spark.stores import StoreRef


class TableView(ABC):
    """One view of the stores of a read. It is pickled into every task, the parts it plans one by one.

    Attributes:
        schema: all its columns.
        columns: those asked for.
        pushable: the columns of which filters of Spark are taken over; :meth:`read` must keep to what they leave.
        pushed: what those taken leave.
    """

    schema: ClassVar[Any]
    pushable: ClassVar[tuple[str, ...]] = ()

    def __init__(self, stores: Sequence[StoreRef], options: ReadOptions, columns: Sequence[str]) -> None:
        self.stores = list(stores)
        self.options = options
        self.columns = list(columns)
        self.pushed = Pushed()

    @classmethod
    def schema_for(cls, options: ReadOptions) -> Any:
        """The columns that there are under these options."""
        return cls.schema

    def selection(self, store: StoreRef) -> Selection:
        """The rows wanted of one store."""
        return Selection.of(self.options, store.broker_name).narrowed(self.pushed)

    def plan(self) -> list[Any]:
        """The parts that together are the table; here one a store."""
        return list(self.stores)

    @abstractmethod
    def read(self, part: Any) -> Iterator[Any]:
        """The rows of one part as Arrow record batches."""

    def batches(self, rows: Sequence[tuple[Any, ...]]) -> Iterator[Any]:
        """Rows with all columns as record batches of the columns asked for."""
        columns = list(zip(*rows, strict=True))
        if rows:
            arrays = [pa.array(column, field.type) for column, field in zip(columns, self.schema, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=self.schema).select(self.columns)
