"""What ``load`` takes: the columns of a table of messages, brought into one form and one order."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, Final

from mqstore.errors import MessageIllegalError, UsageError
from mqstore.store.config import StoreConfig
from mqstore.store.message import Message
from mqstore.store.writer import check_topic

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

REQUIRED: Final = ("topic", "body")
NAMES: Final = (
    "storeTimestamp",
    "bornTimestamp",
    "topic",
    "queueId",
    "delayLevel",
    "tags",
    "keys",
    "properties",
    "body",
)
"""Every column that there may be, in the order in which rows are compared: first by time."""


def in_order(frame: DataFrame, stored_ms: int) -> DataFrame:
    """The same messages with all of :data:`NAMES`, in an order that follows from the rows alone.

    Args:
        frame: a table of messages.
        stored_ms: store time of all messages, in ms since 1970, when the table has no ``storeTimestamp``.

    Raises:
        UsageError: a column is missing, unknown, or of a type that cannot be meant.
    """
    from pyspark.sql import functions
    from pyspark.sql.types import BinaryType

    known = {field.name: field.dataType for field in frame.schema}
    for name in REQUIRED:
        if name not in known:
            raise UsageError(f"no column {name}", expected=", ".join(NAMES), found=", ".join(known))
    for name in known:
        if name not in NAMES:
            raise UsageError(f"a message has no column {name}", expected=", ".join(NAMES), hint=f"drop({name!r})")
    columns = [
        (_converted(name, known[name]) if name in known else functions.lit(None).cast(_types()[name])).alias(name)
        for name in NAMES
    ]
    rows = frame.select(*columns)
    if "storeTimestamp" not in known:
        rows = rows.withColumn("storeTimestamp", functions.lit(stored_ms).cast("long"))
    rows = rows.withColumn("bornTimestamp", functions.coalesce("bornTimestamp", "storeTimestamp"))
    # Binary is compared byte by byte; a map cannot be compared, its sorted entries can.
    keys = [functions.col(name).cast(BinaryType()) if name == "body" else functions.col(name) for name in NAMES]
    return rows.orderBy(*keys)


def _types() -> dict[str, str]:
    return {
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


def _converted(name: str, kind: DataType) -> Column:
    """Column ``name`` as :func:`_types` says, from any type that says the same."""
    from pyspark.sql import functions

    column, simple = functions.col(name), kind.simpleString()
    is_number = simple in ("tinyint", "smallint", "int", "bigint", "string")
    if name in ("storeTimestamp", "bornTimestamp"):
        if simple == "timestamp":
            return functions.unix_millis(column)
        if is_number:
            return column.cast("long")
    elif name in ("queueId", "delayLevel") and is_number:
        return column.cast("int")
    elif name == "keys" and simple == "string":
        return functions.filter(functions.split(column, " "), lambda key: key != "")
    elif name == "properties" and simple == "map<string,string>":
        return functions.array_sort(functions.map_entries(column))
    elif name == "body" and simple in ("binary", "string"):
        return column.cast("binary")
    elif (name in ("topic", "tags") and simple == "string") or (name == "keys" and simple == "array<string>"):
        return column
    expected = {"properties": "map<string,string>", "keys": "array<string> or string"}.get(name, _types()[name])
    raise UsageError(f"column {name} has a type that cannot be meant", expected=expected, found=simple)


def message_of(row: dict[str, Any], config: StoreConfig) -> tuple[Message, int, int]:
    """The message of a row, its queue, and its store time in ms.

    Without ``queueId`` a checksum of keys and body chooses one of the queues that a new topic has.

    Raises:
        MessageIllegalError: it has no topic, no body or no store time.
    """
    keys, body, stored_ms, queue_id = row["keys"] or [], row["body"], row["storeTimestamp"], row["queueId"]
    check_topic(row["topic"])
    if body is None:
        raise MessageIllegalError("a message has no body", found=f"a null in topic {row['topic']}")
    if stored_ms is None or stored_ms < 1:
        raise MessageIllegalError("storeTimestamp is out of range", expected="1 or more", found=stored_ms)
    if queue_id is None:
        seed = zlib.crc32(" ".join(map(str, keys)).encode("utf-8", "surrogatepass"))
        queue_id = zlib.crc32(body, seed) % config.default_topic_queue_nums
    message = Message(
        row["topic"],
        body,
        tags=row["tags"],
        keys=keys,
        properties={pair["key"]: pair["value"] for pair in row["properties"] or ()},
        delay_level=row["delayLevel"] or 0,
        born_timestamp_ms=row["bornTimestamp"],
    )
    return message, queue_id, stored_ms
