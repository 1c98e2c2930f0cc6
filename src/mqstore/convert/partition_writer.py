"""Writing one new partition: batches out of records, segments out of batches, and the checkpoints of the directory."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Final

from mqstore.files import durable
from mqstore.files.pool import FilePool
from mqstore.kafka.active_segment import ActiveSegment
from mqstore.kafka.config import KafkaConfig
from mqstore.kernels.kafka_batch import encode_batch
from mqstore.layout.constants import INT_MAX, LONG_MAX, LONG_MIN
from mqstore.layout.kafka import checkpoints, names
from mqstore.layout.kafka.batch import decode_header
from mqstore.layout.kafka.checkpoints import EpochEntry
from mqstore.layout.kafka.constants import NO_TIMESTAMP, Codec, TimestampType
from mqstore.layout.kafka.record import Record

_RECORD_OVERHEAD_BYTES: Final = 24
_MAX_RECORDS: Final = 65_536
_LEADER_EPOCH: Final = 0


class PartitionWriter:
    """Appends records with the offsets that they have, ascending. Use as a context manager.

    Attributes:
        end_offset: one past the last record.
    """

    def __init__(self, directory: Path, config: KafkaConfig, reading: FilePool, writing: FilePool) -> None:
        self._directory = directory
        self._config = config
        self._reading = reading
        self._writing = writing
        self._codec = codec_of(config)
        self._segment: ActiveSegment | None = None
        self._waiting: list[Record] = []
        self._waiting_bytes = 0
        self._first_offset: int | None = None
        self.end_offset = 0

    def append(self, record: Record) -> None:
        """Append one record; its offset must be at least :attr:`end_offset`.

        Raises:
            DiskFullError, StoreIOError: it could not be written.
        """
        size = _RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"")
        size += sum(len(name) + len(value or b"") + 4 for name, value in record.headers)
        if self._waiting and not self._fits(record, size):
            self._flush()
        self._waiting.append(record)
        self._waiting_bytes += size
        self.end_offset = record.offset + 1

    def start_at(self, offset: int) -> None:
        """Begin the log at ``offset``, with an empty segment, where no record is to come."""
        self._segment = self._roll(offset)
        self.end_offset = offset

    def _fits(self, record: Record, size_bytes: int) -> bool:
        """Whether the record can be in one batch with those that wait."""
        first = self._waiting[0]
        return (
            self._waiting_bytes + size_bytes <= self._config.batch_size
            and len(self._waiting) < _MAX_RECORDS
            and fits_time(record, first)
            and record.offset - first.offset <= INT_MAX
        )

    def _flush(self) -> None:
        if not self._waiting:
            return
        first = self._waiting[0]
        stamped = first.timestamp_type == TimestampType.LOG_APPEND_TIME
        batch = encode_batch(
            self._waiting,
            base_offset=first.offset,
            offset_deltas=[record.offset - first.offset for record in self._waiting],
            codec=self._codec,
            leader_epoch=_LEADER_EPOCH,
            timestamp_type=TimestampType(first.timestamp_type),
            log_append_time_ms=first.timestamp_ms if stamped else NO_TIMESTAMP,
        )
        header = decode_header(batch)
        segment = self._segment
        if segment is None or segment.must_roll(len(batch), header.max_timestamp_ms, header.last_offset):
            segment = self._roll(first.offset)
        segment.append(batch, header)
        self._waiting, self._waiting_bytes = [], 0

    def _roll(self, base_offset: int) -> ActiveSegment:
        if self._segment is None:
            durable.make_directories(self._directory)
            self._first_offset = base_offset
        else:
            self._finish_segment(self._segment)
        self._segment = ActiveSegment.create(self._directory, base_offset, self._reading, self._writing, self._config)
        return self._segment

    def _finish_segment(self, segment: ActiveSegment) -> None:
        segment.finish()
        for path in sorted(self._directory.glob(f"{segment.base_offset:020d}.*")):
            durable.sync_path(path)
            self._writing.forget(path)
            self._reading.forget(path)

    def close(self) -> None:
        """Write what waits and make the partition durable."""
        self._flush()
        if self._segment is None:
            return
        self._finish_segment(self._segment)
        epochs = [EpochEntry(_LEADER_EPOCH, self._first_offset or 0)]
        durable.replace_file(self._directory / names.LEADER_EPOCHS, checkpoints.encode_leader_epochs(epochs))
        durable.sync_directory(self._directory)


def fits_time(record: Record, first: Record) -> bool:
    """Whether the record can be in the batch that ``first`` begins, by what it says of its time."""
    if record.timestamp_type != first.timestamp_type:
        return False
    if first.timestamp_type == TimestampType.LOG_APPEND_TIME:
        return record.timestamp_ms == first.timestamp_ms
    return LONG_MIN <= record.timestamp_ms - first.timestamp_ms <= LONG_MAX  # a batch holds the difference


def codec_of(config: KafkaConfig) -> Codec:
    """The codec that ``compression_type`` names; ``producer`` is none."""
    name = config.compression_type.upper()
    return Codec[name] if name in Codec.__members__ else Codec.NONE


def finish_data_directory(root: Path, ends: dict[tuple[str, int], int], config: KafkaConfig) -> None:
    """Write what a broker leaves in a data directory that it has closed."""
    pairs = {
        "version": "1",
        "cluster.id": checkpoints.format_uuid(uuid.uuid4()),
        "node.id": str(config.node_id),
        "directory.id": checkpoints.format_uuid(uuid.uuid4()),
    }
    durable.replace_file(root / names.META_PROPERTIES, checkpoints.encode_meta_properties(pairs))
    for name in (names.RECOVERY_POINTS, names.HIGH_WATERMARKS):
        durable.replace_file(root / name, checkpoints.encode_offsets(ends))
    durable.replace_file(root / names.LOG_STARTS, checkpoints.encode_offsets({}))
    durable.replace_file(root / names.CLEAN_SHUTDOWN, checkpoints.encode_clean_shutdown())
