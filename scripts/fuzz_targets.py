"""The decoders that ``fuzz.py`` gives bytes to, by name. Imported late, so that coverage can be traced."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from kernels.support import contents, lists, maps, texts
from mqstore.errors import MqstoreError
from mqstore.kernels import PLACE, pure
from mqstore.layout import (
    batch,
    batch_queue_unit,
    checkpoint,
    config_files,
    delay,
    fastjson,
    file_names,
    hosts,
    index,
    message_id,
    properties,
    properties_crc,
    queue_ext,
    queue_unit,
    record,
    sql92,
    tags,
    text,
)  # fmt: skip
from mqstore.layout.kafka import batch as kafka_batch
from mqstore.layout.kafka import (
    checkpoints,
    control,
    header,
    internal_topics,
    names,
    offset_index,
    producer_snapshot,
    time_index,
    txn_index,
)  # fmt: skip

INFLATED_BYTES = 1 << 20

native: Any = importlib.import_module("mqstore.kernels._native")


def allowed(work: Callable[[], object]) -> object:
    """Do the work; an error of the package is an answer like any other."""
    try:
        return work()
    except MqstoreError:
        return None


def whole_record(data: bytes) -> None:
    """A record, and everything that is derived from it."""
    found = record.decode_record(data)
    if isinstance(found, record.Record):
        assert found.encode() == data[: found.total_size], "a record reads back as other bytes"
        assert (found.topic, found.born_host, found.msg_id, found.keys, found.tags_code()) is not None
        properties_crc.is_intact(data[: found.total_size])


def every_property(data: bytes) -> None:
    """A properties string."""
    found = properties.parse(data)
    if properties.defect(data) is None:
        assert all(found.values()), "a property without a value"


def config(data: bytes) -> None:
    """The files of the folder config."""
    for kind in (config_files.TopicConfigs, config_files.SubscriptionGroups, config_files.ConsumerOffsets,
                 config_files.DelayOffsets, config_files.ConsumerFilters):  # fmt: skip
        allowed(lambda one=kind: one.decode(data).encode())  # type: ignore[misc]


def condition(data: bytes) -> None:
    """An SQL92 condition."""
    sql92.sql(text.decode_text(data)).matches({"a": "1", "b": "x"})


def tag_expression(data: bytes) -> None:
    """A tag expression."""
    tags.TagExpression.parse(text.decode_text(data)).matches("a")


def index_file(data: bytes) -> None:
    """Header, slot and entry of an index file."""
    index.decode_header(data)
    allowed(lambda: index.decode_slot(data, 3, 5))
    allowed(lambda: index.decode_entry(data, 2, 5))


def units(data: bytes) -> None:
    """Units of all kinds of queues."""
    allowed(lambda: list(queue_unit.iter_units(data)))
    allowed(lambda: queue_ext.decode_ext_unit(data))
    allowed(lambda: batch_queue_unit.decode_batch_unit(data))


def names_of_files(data: bytes) -> None:
    """Names of files and folders, ids and delay levels."""
    name = text.decode_text(data)
    for parse in (file_names.parse_queue_id, names.parse_partition_directory,
                  names.parse_segment_file, names.parse_metadata_snapshot, message_id.decode_message_id,
                  delay.parse_delay_levels, checkpoints.parse_uuid):  # fmt: skip
        allowed(lambda one=parse: one(name))  # type: ignore[misc]


def kafka_batches(data: bytes) -> None:
    """A batch of Kafka's, of any version and codec."""
    head = header.decode_header(data)
    kafka_batch.decode_records(data, head, check_crc=False, max_inflated_bytes=INFLATED_BYTES)


def kafka_small(data: bytes) -> None:
    """The small files beside a log of Kafka's."""
    for decode in (txn_index.decode_txn_index, producer_snapshot.decode_producer_snapshot,
                   checkpoints.decode_leader_epochs, checkpoints.decode_offsets, checkpoints.decode_topic_id,
                   checkpoints.decode_clean_shutdown, checkpoints.decode_meta_properties,
                   control.decode_control_key, control.decode_end_transaction):  # fmt: skip
        allowed(lambda one=decode: one(data))  # type: ignore[misc]
    allowed(lambda: offset_index.OffsetIndex.decode(data, 0))
    allowed(lambda: time_index.TimeIndex.decode(data, 0))


def kafka_internal(data: bytes) -> None:
    """Records of Kafka's own topics."""
    half = len(data) // 2
    for topic in ("__consumer_offsets", "__transaction_state"):
        allowed(lambda one=topic: internal_topics.decode_internal(one, data[:half], data[half:]))  # type: ignore[misc]


def _read(kernels: Any, data: bytes, base: int) -> list[Any]:
    columns = kernels.scan(data, 0, len(data), base, check_crc=bool(base & 8))
    rows = (data, columns, 0, columns.count)
    file, head = bytearray(40 + 4 * 5 + 20 * 9), bytearray(40 + 4 * 5)
    keys = kernels.index_keys(*rows)
    return [
        contents(columns),
        kernels.resync(data, 1 if data else 0, len(data), base),
        kernels.queue_runs(*rows, [0, 1000, 5000]),
        lists(kernels.split_keys(*rows)),
        maps(kernels.properties_map(*rows)),
        texts(kernels.host_text(*rows)),
        texts(kernels.msg_id_text(*rows)),
        texts(kernels.gather(data, columns.topic_position, columns.topic_size, 0, columns.count, utf8=True)),
        kernels.index_put(file, 5, 9, data, columns, 0, 0, columns.count),
        bytes(file),
        keys,
        kernels.index_entries(head, 5, keys),
        bytes(head),
        kernels.select_units(data, [5, 7], 0).tolist(),
        *_records_at(kernels, data, base),
        kernels.unit_span(data, 0, 9, None, 1 << 14, 1 << 20),
        kernels.index_find(data, len(data), 5, max(0, (len(data) - 60) // 20), 7, 0, 64, 0, 1 << 62),
        kernels.record_with_key(
            data, len(data), 0, len(data), base, b"TopicTest", b"k", 0, 1 << 62, record.Record
        ),
    ]  # fmt: skip


def _records_at(kernels: Any, data: bytes, base: int) -> list[Any]:
    """The records at places that these bytes name, and at the place where one may begin."""
    topic = data[89 : 89 + (data[88] & 127)] if len(data) > 88 else b""
    queue_id = int.from_bytes(data[12:16], "big", signed=True)
    numbers = int.from_bytes(data[:4], "big", signed=True), int.from_bytes(data[20:28], "big", signed=True)
    columns, found = kernels.scan_at(
        data, PLACE.pack(base, *numbers, 0, 0) + data, [(topic, queue_id), (b"TopicTest", 1)]
    )
    return [contents(columns), bytes(found)]


def both_kernels(data: bytes) -> None:
    """All that the kernels do with a piece of a log, a queue or an index; both must say the same."""
    base = int.from_bytes(data[28:36], "big") & (1 << 61) - 1 if len(data) > 36 else 0
    assert _read(native, data, base) == _read(pure, data, base), "the kernels differ"


TARGETS: dict[str, Callable[[bytes], object]] = {
    "record": whole_record,
    "properties": every_property,
    "config": config,
    "json": fastjson.loads,
    "sql": condition,
    "tags": tag_expression,
    "index": index_file,
    "units": units,
    "checkpoint": checkpoint.decode_checkpoint,
    "batch": batch.decode_batch,
    "hosts": hosts.decode_host,
    "names": names_of_files,
    "kafka-batch": kafka_batches,
    "kafka-small": kafka_small,
    "kafka-internal": kafka_internal,
    "kernels": both_kernels,
}
