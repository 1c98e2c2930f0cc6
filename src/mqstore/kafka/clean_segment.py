"""Writing a group of segments anew without what compaction removes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from mqstore import errors, kernels
from mqstore.files import durable
from mqstore.kafka.clean_filter import BatchFilter, Fate, Verdict
from mqstore.kafka.index_builder import IndexBuilder
from mqstore.kafka.records import records_of
from mqstore.kafka.segment import Segment
from mqstore.kernels.kafka_batch import encode_batch
from mqstore.layout.kafka.batch import BatchHeader, decode_header, encode_empty_batch
from mqstore.layout.kafka.names import FileKind, FileStage, segment_file_name
from mqstore.layout.kafka.txn_index import encode_txn_index

_WRITE_BYTES = 1 << 20


@dataclass
class CleanedFiles:
    """The files of a cleaned segment, all of them written, synced and named ``.cleaned``."""

    directory: Path
    base_offset: int
    modified_ns: int
    kinds: list[FileKind] = field(default_factory=lambda: [FileKind.LOG])
    records_before: int = 0
    records_after: int = 0

    def path(self, kind: FileKind, stage: FileStage = FileStage.CLEANED) -> Path:
        """Where the file of this kind lies, or would, at a stage of its way."""
        return self.directory / segment_file_name(self.base_offset, kind, stage)


def write_cleaned(group: Sequence[Segment], batches: BatchFilter, old_horizon_ms: int, interval: int) -> CleanedFiles:
    """Write one segment for ``group``.

    Args:
        group: the segments, in order.
        batches: tells what stays.
        old_horizon_ms: tombstones of the old formats go from segments that were last modified before.
        interval: bytes between index entries.

    Raises:
        CorruptBatchError: a damaged batch.
        DiskFullError, StoreIOError: something could not be read or written.
            Whatever it is, nothing stays of what was written.
    """
    done = CleanedFiles(group[0].directory, group[0].base_offset, group[-1].modified_ns)
    batches.transactions.kept_aborts.clear()
    try:
        builder = _write_log(done, group, batches, old_horizon_ms, interval)
        _write_indexes(done, builder, encode_txn_index(batches.transactions.kept_aborts))
    except BaseException:
        # It would take room on a full disk, and a later cleaning that a crash ends would be taken for broken off by it.
        with contextlib.suppress(errors.MqstoreError):
            for kind in FileKind:
                durable.remove_file(done.path(kind))
        raise
    return done


def _write_log(
    done: CleanedFiles, group: Sequence[Segment], batches: BatchFilter, old_horizon_ms: int, interval: int
) -> IndexBuilder:
    out = _Output(done.path(FileKind.LOG), IndexBuilder(done.base_offset, interval))
    try:
        for segment in group:
            keeps_old = segment.modified_ms > old_horizon_ms
            for position, header, buffer in segment.headers(check_crc=True):
                read = partial(records_of, segment, position, header, buffer)
                verdict = batches.judge(buffer, header, read, keeps_old)
                done.records_before += max(0, header.record_count)
                data = encode_verdict(buffer, header, verdict)
                if data:
                    out.add(data)
                    done.records_after += max(0, decode_header(data).record_count)
        out.finish()
    finally:
        out.close()
    return out.builder


def encode_verdict(buffer: bytes, header: BatchHeader, verdict: Verdict) -> bytes:
    """The bytes of what is left of a batch; none of one that goes."""
    if verdict.fate is Fate.REMOVED:
        return b""
    if verdict.fate is Fate.KEPT:
        return bytes(buffer[header.position : header.end_position])
    if verdict.fate is Fate.EMPTIED:
        return encode_empty_batch(header, checksum=kernels.crc32c)
    return encode_batch(
        verdict.records,
        base_offset=header.base_offset,
        offset_deltas=[record.offset - header.base_offset for record in verdict.records],
        last_offset_delta=header.last_offset - header.base_offset,
        codec=header.codec,
        leader_epoch=header.leader_epoch,
        timestamp_type=header.timestamp_type,
        log_append_time_ms=header.max_timestamp_ms,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
        control=header.is_control,
        delete_horizon_ms=verdict.delete_horizon_ms,
    )


class _Output:
    """The log being written, with its indexes."""

    def __init__(self, path: Path, builder: IndexBuilder) -> None:
        self._path = path
        self._fd = durable.create_file(path, 0)
        self._pending = bytearray()
        self._written = 0
        self.builder = builder

    def add(self, batch: bytes) -> None:
        header = decode_header(batch)
        position = self._written + len(self._pending)
        self.builder.add(position, len(batch), header.last_offset, header.max_timestamp_ms)
        self._pending += batch
        if len(self._pending) >= _WRITE_BYTES:
            self._write()

    def _write(self) -> None:
        durable.write_at(self._fd, bytes(self._pending), self._written, self._path)
        self._written += len(self._pending)
        self._pending.clear()

    def finish(self) -> None:
        self._write()
        durable.sync_file(self._fd, self._path)
        self.builder.finish()

    def close(self) -> None:
        os.close(self._fd)


def _write_indexes(done: CleanedFiles, builder: IndexBuilder, aborted: bytes) -> None:
    contents = {FileKind.OFFSET_INDEX: builder.offsets.encode(), FileKind.TIME_INDEX: builder.times.encode()}
    if aborted:
        contents[FileKind.TXN_INDEX] = aborted
    for kind, data in contents.items():
        durable.write_new_file(done.path(kind), len(data), data)
        done.kinds.append(kind)
    os.utime(done.path(FileKind.LOG), ns=(done.modified_ns, done.modified_ns))
    durable.sync_directory(done.directory)
