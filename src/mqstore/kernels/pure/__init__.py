"""The kernels in plain Python: the readable definition, and what runs where nothing was compiled."""

from mqstore.kernels.pure.arrow import (
    find_property,
    gather,
    host_text,
    ms_to_us,
    msg_id_text,
    properties_map,
    split_keys,
)
from mqstore.kernels.pure.crc import crc32
from mqstore.kernels.pure.dispatch import queue_runs, select_units
from mqstore.kernels.pure.get import scan_at, scan_units, take_messages, unit_span
from mqstore.kernels.pure.index import index_entries, index_keys, index_put, index_slots
from mqstore.kernels.pure.kafka_read import kafka_batch_records, kafka_batches, kafka_headers, kafka_records
from mqstore.kernels.pure.kafka_write import crc32c, kafka_encode, kafka_index
from mqstore.kernels.pure.lookup import index_find, key_hash, record_with_key
from mqstore.kernels.pure.message import MessageFields
from mqstore.kernels.pure.put import put_batch, put_message
from mqstore.kernels.pure.put_rows import measure_rows, put_rows
from mqstore.kernels.pure.scan import resync, scan
from mqstore.kernels.pure.tail import log_tail

NAME = "pure"

__all__ = [
    "NAME",
    "MessageFields",
    "crc32",
    "crc32c",
    "find_property",
    "gather",
    "host_text",
    "index_entries",
    "index_find",
    "index_keys",
    "index_put",
    "index_slots",
    "kafka_batch_records",
    "kafka_batches",
    "kafka_encode",
    "kafka_headers",
    "kafka_index",
    "kafka_records",
    "key_hash",
    "log_tail",
    "measure_rows",
    "ms_to_us",
    "msg_id_text",
    "properties_map",
    "put_batch",
    "put_message",
    "put_rows",
    "queue_runs",
    "record_with_key",
    "resync",
    "scan",
    "scan_at",
    "scan_units",
    "select_units",
    "split_keys",
    "take_messages",
    "unit_span",
]
