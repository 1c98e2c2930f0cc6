"""What ``load`` takes: the columns of a table of messages, brought into one form and one order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from mqstore.errors import MessageIllegalError
from mqstore.spark.message_rows import NAMES, check_columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

BODY_BYTES: Final = "bodyBytes"
"""The column that says how large a body is, for whoever must know before it is read."""

_DIGEST: Final = "bodyDigest"
_TYPES: Final = {
    "storeTimestamp": "long",
    "bornTimestamp": "long",
    "topic": "string",
    "queueId": "int",
    "delayLevel": "int",
    "tags": "string",
    "keys": "array<string>",
    "properties": "array<struct<key: string, value: string>>",
    "body": "binary",
}


def in_order(frame: DataFrame, stored_ms: int) -> DataFrame:
    """The same messages with all of :data:`NAMES` and :data:`BODY_BYTES`, in an order that follows from the rows alone.

    Args:
        frame: a table of messages.
        stored_ms: store time of all messages, in ms since 1970, when the table has no ``storeTimestamp``.

    Raises:
        UsageError: a column is missing, unknown, or of a type that cannot be meant.
    """
    from pyspark.sql import functions

    known = check_columns(frame.schema)
    columns = [
        (_converted(name, known[name]) if name in known else functions.lit(None).cast(_TYPES[name])).alias(name)
        for name in NAMES
    ]
    rows = frame.select(*columns)
    if "storeTimestamp" not in known:
        rows = rows.withColumn("storeTimestamp", functions.lit(stored_ms).cast("long"))
    rows = rows.withColumn("bornTimestamp", functions.coalesce("bornTimestamp", "storeTimestamp"))
    # By a digest of the body, not by the body: Spark takes samples of what it sorts by to the driver.
    rows = rows.withColumn(_DIGEST, functions.sha2("body", 256))
    rows = rows.orderBy(*(_DIGEST if name == "body" else name for name in NAMES)).drop(_DIGEST)
    return rows.withColumn(BODY_BYTES, functions.length("body"))


def _converted(name: str, kind: DataType) -> Column:
    """Column ``name`` as :data:`_TYPES` says, from any type that says the same."""
    from pyspark.sql import functions

    column, simple = functions.col(name), kind.simpleString()
    if simple == "timestamp":
        return functions.unix_millis(column)
    if name == "keys" and simple == "string":
        return functions.filter(functions.split(column, " "), lambda key: key != "")
    if name == "properties":
        return functions.array_sort(functions.map_entries(column))
    return column if name == "keys" else column.cast(_TYPES[name])


def store_time_of(row: Mapping[str, Any]) -> int:
    """The store time of a row in ms. Raises MessageIllegalError for none, and for 0, which stands for no message."""
    stored_ms = row["storeTimestamp"]
    if stored_ms is None or stored_ms < 1:
        raise MessageIllegalError("storeTimestamp is out of range", expected="1 or more", found=stored_ms)
    return int(stored_ms)
