"""The Spark data source ``rocketmq``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    Filter,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema

from mqstore.errors import UsageError
from mqstore.spark.messages import MessagesView
from mqstore.spark.named import stores_to_read
from mqstore.spark.option_values import chosen, no_paths
from mqstore.spark.options import ReadOptions, parse_either
from mqstore.spark.sink import BatchWriter, SinkOptions, StreamWriter
from mqstore.spark.stream import StreamReader
from mqstore.spark.table_view import TableView
from mqstore.spark.tables import FilesView, IndexView, ProgressView, QueuesView
from mqstore.spark.telling import telling
from mqstore.spark.user_schema import check_schema
from mqstore.spark.worker import rows_of, settle

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

VIEWS: Final[Mapping[str, type[TableView]]] = {
    "messages": MessagesView,
    "queues": QueuesView,
    "index": IndexView,
    "files": FilesView,
    "progress": ProgressView,
}
"""The tables of a store, by the value of option ``view``."""


class RocketmqSource(DataSource):
    """Stores of RocketMQ brokers as tables: ``spark.read.format("rocketmq").load(path)`` (docs/spark.md)."""

    @classmethod
    def name(cls) -> str:
        """The name for ``format``."""
        settle()  # Spark asks for names in workers that do nothing else
        return "rocketmq"

    def schema(self) -> StructType:
        """The columns of the view that the options name, or those of option ``columns``."""
        settle()
        with telling():
            if {"owner", "provider"} <= self.options.keys():  # CREATE TABLE, whose options no reader will be given
                raise no_paths("store")
            options = parse_either(self.options)
            view = _view(options.view)
            known = view.schema_for(options)
            columns = chosen(known.names, options.columns)
            import pyarrow as pa

            return from_arrow_schema(pa.schema([known.field(name) for name in columns]))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the columns of ``schema``, which may be the user's own choice of them."""
        settle()
        with telling():
            options = ReadOptions.parse(self.options)
            view = _view(options.view)
            columns = _columns_of(view, options, schema)
            table = view(stores_to_read(options), options, columns)
            return PushingReader(table) if options.push_filters else Reader(table)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """A reader of a stream of messages."""
        settle()
        with telling():
            options = ReadOptions.parse(self.options, streaming=True)
            if options.view != "messages":
                raise UsageError("only messages come as a stream", found=f"view {options.view}")
            return StreamReader(options, _columns_of(MessagesView, options, schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A writer that appends a table to a store."""
        with telling():
            return BatchWriter(SinkOptions.parse(self.options, schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """A writer that appends the batches of a stream to a store, each once."""
        with telling():
            return StreamWriter(SinkOptions.parse(self.options, schema, overwrite))


class Reader(DataSourceReader):
    """Plans the parts of a view on the driver and reads them in the tasks."""

    def __init__(self, table: TableView) -> None:
        self._table = table

    def partitions(self) -> Sequence[InputPartition]:
        """The parts of the view; see there."""
        with telling():
            return [InputPartition(part) for part in self._table.plan()]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of one part as Arrow record batches."""
        return rows_of(partition, self._table.read)


class PushingReader(Reader):
    """A reader that also takes filters over from Spark: those that can be looked at before rows are made."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Take what can be looked at before rows are made; give back the rest."""
        for one in filters:
            pushed = self._table.pushed.taking(one, self._table.pushable)
            if pushed is None:
                yield one
            else:
                self._table.pushed = pushed


def _view(name: str) -> type[TableView]:
    if name not in VIEWS:
        raise UsageError("no such view", expected=", ".join(VIEWS), found=name)
    return VIEWS[name]


def _columns_of(view: type[TableView], options: ReadOptions, schema: StructType) -> list[str]:
    """The columns of a schema that may be the user's own."""
    known = view.schema_for(options)
    columns = chosen(known.names, schema.fieldNames())
    check_schema(known, schema)
    return columns
