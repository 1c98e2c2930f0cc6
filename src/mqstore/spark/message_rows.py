"""Messages as rows of a table, as the sink and ``load`` take them: which columns there may be, and what a row says."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from mqstore.errors import MessageIllegalError, UsageError
from mqstore.store.config import StoreConfig
from mqstore.store.message import Message
from mqstore.store.writer import check_topic

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

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
"""Every column, in the order in which rows are compared: by time first, by a digest of the body last."""

_NUMBERS: Final = ("int", "bigint", "smallint", "tinyint", "string")
_ALLOWED: Final[Mapping[str, tuple[str, ...]]] = {
    "storeTimestamp": ("timestamp", *_NUMBERS),
    "bornTimestamp": ("timestamp", *_NUMBERS),
    "topic": ("string",),
    "queueId": _NUMBERS,
    "delayLevel": _NUMBERS,
    "tags": ("string",),
    "keys": ("array<string>", "string"),
    "properties": ("map<string,string>",),
    "body": ("binary", "string"),
}


def check_columns(schema: StructType, names: Sequence[str] = NAMES) -> dict[str, DataType]:
    """The columns of a table of messages, with their types.

    Raises:
        UsageError: one of ``names`` that must be there is missing, or a column is unknown, or of a type that cannot be
            meant.
    """
    known = {field.name: field.dataType for field in schema}
    if len(known) < len(schema):
        raise UsageError("a column is there twice", found=", ".join(field.name for field in schema))
    for name in known:
        if name not in names:
            raise UsageError(f"a message has no column {name}", expected=", ".join(names), hint=_other_name(name))
    for name in REQUIRED:
        if name not in known:
            raise UsageError(f"no column {name}", expected=", ".join(names), found=", ".join(known))
    for name, kind in known.items():
        if kind.simpleString() not in _ALLOWED[name]:
            raise UsageError(
                f"column {name} has a type that cannot be meant",
                expected=" or ".join(_ALLOWED[name]),
                found=kind.simpleString(),
            )
    return known


def _other_name(name: str) -> str:
    """What to do about an unknown column. Spark's own look-ups overlook case, so a name may be meant and not ours."""
    meant = next((one for one in NAMES if one.lower() == name.lower()), None)
    return f"drop({name!r})" if meant is None else f"withColumnRenamed({name!r}, {meant!r})"


def message_of(row: Mapping[str, Any], config: StoreConfig) -> tuple[Message, int]:
    """The message of a row, and its queue.

    Without ``queueId`` a checksum of keys and body chooses one of the queues that a new topic has.

    Raises:
        MessageIllegalError: it has no topic or no body.
    """
    keys, body, queue_id = row["keys"] or [], row["body"], row["queueId"]
    if row["topic"] is None:
        found = "a row of nulls" if body is None else f"a null in column topic, beside body {bytes(body[:40])!r}"
        raise MessageIllegalError("a message has no topic", found=found)
    check_topic(row["topic"])
    if body is None:
        raise MessageIllegalError("a message has no body", found=f"a null in column body, beside topic {row['topic']}")
    if queue_id is None:
        seed = zlib.crc32(" ".join(map(str, keys)).encode("utf-8", "surrogatepass"))
        queue_id = zlib.crc32(body, seed) % config.default_topic_queue_nums
    message = Message(
        row["topic"],
        body,
        tags=row["tags"],
        keys=keys,
        properties={pair["key"]: pair["value"] for pair in row["properties"] or ()},
        queue_id=queue_id,
        delay_level=row["delayLevel"] or 0,
        born_timestamp_ms=row["bornTimestamp"],
    )
    return message, queue_id
