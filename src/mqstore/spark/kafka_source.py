"""The Spark data source ``kafkalog``: Kafka's segments read from their files, in batches and as a stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from mqstore.spark import kafka_offsets
from mqstore.spark.kafka_columns import arrow_schema
from mqstore.spark.kafka_offsets import KafkaLogs, from_json, to_json
from mqstore.spark.kafka_options import KafkaReadOptions
from mqstore.spark.kafka_reading import read_split
from mqstore.spark.kafka_splits import plan
from mqstore.spark.stream_ends import Losses
from mqstore.spark.telling import telling
from mqstore.spark.user_schema import check_schema
from mqstore.spark.worker import rows_of, settle

StreamOffsets = dict[str, dict[str, int]]
"""By topic and number of the partition, as Spark's own Kafka source notes them in a checkpoint."""


class KafkaLogSource(DataSource):
    """Kafka logs as tables: ``spark.read.format("kafkalog").load(path)``, and ``readStream`` (docs/kafka.md)."""

    @classmethod
    def name(cls) -> str:
        """The name for ``format``."""
        settle()  # Spark asks for names in workers that do nothing else
        return "kafkalog"

    def schema(self) -> StructType:
        """The columns of Spark's own Kafka source; headers with ``includeHeaders``."""
        settle()
        with telling():
            # Whether it is going to be a stream is not known yet, nor does the schema depend on it.
            header = self.options.get("includeHeaders", "false").strip().lower() == "true"
            return from_arrow_schema(arrow_schema(header))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of one batch."""
        settle()
        with telling():
            return BatchReader(KafkaReadOptions.parse(self.options), _columns(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """A reader of a stream."""
        settle()
        with telling():
            return StreamReader(KafkaReadOptions.parse(self.options, streaming=True), _columns(schema))


class _TaskReader:
    """What both readers do in a task."""

    def __init__(self, options: KafkaReadOptions, columns: Sequence[str]) -> None:
        self.options = options
        self.columns = list(columns)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The records of one split as Arrow record batches."""
        return rows_of(partition, lambda split: read_split(split, self.options, self.columns))


class BatchReader(_TaskReader, DataSourceReader):
    """Plans splits between two offsets of every partition on the driver, and reads them in the tasks."""

    def partitions(self) -> Sequence[InputPartition]:
        """The splits."""
        with telling():
            logs = KafkaLogs(self.options)
            try:
                start = kafka_offsets.starting_offsets(logs, self.options)
                end = kafka_offsets.ending_offsets(logs, self.options)
                return [InputPartition(split) for split in plan(logs.partitions(), start, end, self.options)]
            finally:
                logs.close()


class StreamReader(_TaskReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The same at every trigger; offsets are those of the last batch, kept in the query's checkpoint."""

    def __init__(self, options: KafkaReadOptions, columns: Sequence[str]) -> None:
        super().__init__(options, columns)
        self._logs: KafkaLogs | None = None
        self._ceiling: kafka_offsets.Offsets | None = None
        self._losses = Losses(options.fail_on_data_loss)

    @property
    def _open(self) -> KafkaLogs:
        # Made where it is used: the reader itself may be sent elsewhere.
        if self._logs is None:
            self._logs = KafkaLogs(self.options)
        return self._logs

    def initialOffset(self) -> StreamOffsets:  # noqa: N802
        """Where a new query begins."""
        with telling():
            return to_json(kafka_offsets.starting_offsets(self._open, self.options))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """How many records a batch may have."""
        limit = self.options.max_offsets_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end: what comes later is for another run."""
        with telling():
            self._ceiling = kafka_offsets.latest_offsets(self._open)

    def latestOffset(self, start: StreamOffsets, limit: ReadLimit) -> StreamOffsets:  # noqa: N802
        """Where the batch ends that begins at ``start``."""
        with telling():
            most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
            begins = from_json(start)
            # Not asked for any more, and not lost: should they be asked for again, the stream goes on where it was.
            left_out = {key: offset for key, offset in begins.items() if not self.options.wants(*key)}
            asked = {key: offset for key, offset in begins.items() if key not in left_out}
            return to_json(left_out | kafka_offsets.next_offsets(self._open, asked, self._losses, most, self._ceiling))

    def reportLatestOffset(self) -> StreamOffsets:  # noqa: N802
        """Where the partitions end now, for the query's progress."""
        with telling():
            return to_json(kafka_offsets.latest_offsets(self._open))

    def partitions(self, start: StreamOffsets, end: StreamOffsets) -> Sequence[InputPartition]:
        """The splits of one batch."""
        with telling():
            ends = from_json(end)
            begins = kafka_offsets.stream_start(self._open, from_json(start), ends, self.options)
            found = self._open.partitions(begins)
            return [InputPartition(split) for split in plan(found, begins, ends, self.options)]

    def stop(self) -> None:
        """Close the files."""
        if self._logs is not None:
            self._logs.close()
            self._logs = None


def _columns(schema: StructType) -> list[str]:
    """The columns of a schema, which may be the user's own choice of them."""
    check_schema(arrow_schema(True), schema)
    return list(schema.fieldNames())
