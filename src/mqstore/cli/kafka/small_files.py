"""The content of a data directory's small files: indexes, snapshots, checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from mqstore import errors
from mqstore.cli.output import to_json
from mqstore.files.whole import read_whole
from mqstore.layout.kafka import checkpoints, names
from mqstore.layout.kafka.names import FileKind
from mqstore.layout.kafka.offset_index import OffsetIndex
from mqstore.layout.kafka.producer_snapshot import decode_producer_snapshot
from mqstore.layout.kafka.time_index import TimeIndex
from mqstore.layout.kafka.txn_index import decode_txn_index

Rows = list[dict[str, Any]]


def rows_of(path: Path) -> Rows | None:
    """The entries of one of Kafka's small files, with JSON's names; None if the path is none.

    Raises:
        CorruptFileError: it is damaged.
        StoreIOError: it could not be read.
    """
    decoder = _decoder(path.name)
    if decoder is None or not path.is_file():
        return None
    try:
        return decoder(read_whole(path, path.name) or b"")
    except errors.MqstoreError as error:
        error.path = error.path or str(path)
        raise


def _decoder(name: str) -> Callable[[bytes], Rows] | None:
    segment = names.parse_segment_file(name)
    if segment is None:
        return _BY_NAME.get(name)
    base = segment.offset
    by_kind: dict[FileKind, Callable[[bytes], Rows]] = {
        FileKind.OFFSET_INDEX: lambda data: [
            {"offset": one.offset, "position": one.position} for one in OffsetIndex.decode(data, base)
        ],
        FileKind.TIME_INDEX: lambda data: [
            {"timestamp": one.timestamp_ms, "offset": one.offset} for one in TimeIndex.decode(data, base)
        ],
        FileKind.TXN_INDEX: lambda data: to_json(decode_txn_index(data)),
        FileKind.SNAPSHOT: lambda data: to_json(decode_producer_snapshot(data)),
    }
    return by_kind.get(segment.kind)


def _offsets(data: bytes) -> Rows:
    return [
        {"topic": topic, "partition": partition, "offset": offset}
        for (topic, partition), offset in checkpoints.decode_offsets(data).items()
    ]


_BY_NAME: Final[dict[str, Callable[[bytes], Rows]]] = {
    names.RECOVERY_POINTS: _offsets,
    names.LOG_STARTS: _offsets,
    names.CLEANER_OFFSETS: _offsets,
    names.HIGH_WATERMARKS: _offsets,
    names.LEADER_EPOCHS: lambda data: to_json(checkpoints.decode_leader_epochs(data)),
    names.PARTITION_METADATA: lambda data: [{"topicId": checkpoints.format_uuid(checkpoints.decode_topic_id(data))}],
    names.META_PROPERTIES: lambda data: [dict(checkpoints.decode_meta_properties(data))],
    names.CLEAN_SHUTDOWN: lambda data: [{"brokerEpoch": checkpoints.decode_clean_shutdown(data)}],
}
