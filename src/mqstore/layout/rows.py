"""Records as rows of the ``messages`` table, under the column names that the Spark source uses."""

from __future__ import annotations

from typing import Any, Final

from mqstore.layout.constants import PROPERTY_KEYS, PROPERTY_TAGS
from mqstore.layout.properties import split_keys
from mqstore.layout.record import Record

MESSAGE_COLUMNS: Final = (
    "topic",
    "queueId",
    "queueOffset",
    "physicalOffset",
    "msgId",
    "keys",
    "tags",
    "body",
    "properties",
    "propertiesString",
    "flag",
    "sysFlag",
    "bornTimestamp",
    "bornHost",
    "storeTimestamp",
    "storeHost",
    "reconsumeTimes",
    "preparedTransactionOffset",
    "bodyCRC",
    "storeSize",
)
"""Columns of one message in their order; the column ``brokerName`` is the reader's to add."""


def record_row(record: Record) -> dict[str, Any]:
    """The columns of ``record``: timestamps as integer milliseconds, the body as stored bytes, no tags as
    None.
    """
    properties = record.properties
    values = (
        record.topic,
        record.queue_id,
        record.queue_offset,
        record.physical_offset,
        record.msg_id,
        split_keys(properties.get(PROPERTY_KEYS)),
        properties.get(PROPERTY_TAGS),
        record.body,
        properties,
        record.properties_string,
        record.flag,
        record.sys_flag,
        record.born_timestamp_ms,
        record.born_host,
        record.store_timestamp_ms,
        record.store_host,
        record.reconsume_times,
        record.prepared_transaction_offset,
        record.body_crc,
        record.total_size,
    )
    return dict(zip(MESSAGE_COLUMNS, values, strict=True))
