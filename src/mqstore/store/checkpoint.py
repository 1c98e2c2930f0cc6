"""The notes a store keeps on how far its files are known to be good.

``checkpoint`` is RocketMQ's own (docs/format/checkpoint.md), written so that a real broker recovers right.
``mqstore-dispatch.json`` is ours: the log offset up to which every queue and the index were complete and on the device.
Both are hints. Recovery checks what they say against the files and does without them when they are missing or wrong.
``mqstore-progress.json`` says how far the log went when progress was saved, so that a log that has lost its end on the
border of a record, where no damage tells of it, is known to have lost it.
"""

from __future__ import annotations

import json
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mqstore import errors
from mqstore.files import durable
from mqstore.files.whole import read_whole
from mqstore.layout.checkpoint import CHECKPOINT_SIZE, Checkpoint, decode_checkpoint, encode_checkpoint
from mqstore.layout.record import Record
from mqstore.store.dispatch import Dispatched
from mqstore.store.index_reader import Geometry

if TYPE_CHECKING:
    from mqstore.store.log_reader import LogReader

_VERSION = 1
_MAX_SIZE = 1 << 40
_UNREADABLE = (
    errors.MqstoreError, ValueError, ArithmeticError, LookupError, TypeError, AttributeError, RecursionError,
)  # fmt: skip


@dataclass(frozen=True)
class FileSizes:
    """Lengths of a store's files in bytes, and the shape of its index files."""

    commit_log: int
    consume_queue: int
    index: Geometry


@dataclass(frozen=True)
class DispatchCheckpoint:
    """The derived files were complete for the records before ``log_offset``.

    ``record_*`` describe the last of those records, to tell this log from another one of the same length.
    """

    log_offset: int
    record_offset: int
    record_size: int
    record_crc: int
    record_timestamp_ms: int
    queue_ranges: dict[tuple[str, int], tuple[int, int]]
    index_name: str | None
    index_count: int
    sizes: FileSizes

    @classmethod
    def of(cls, moment: Dispatched, record: Record | None, sizes: FileSizes) -> DispatchCheckpoint:
        """The note for a moment of dispatch whose last record is ``record``."""
        return cls(
            moment.log_offset,
            moment.last_record_offset,
            0 if record is None else record.total_size,
            0 if record is None else record.body_crc,
            0 if record is None else record.store_timestamp_ms,
            moment.queue_ranges,
            moment.index_name,
            moment.index_count,
            sizes,
        )

    def to_json(self) -> bytes:
        """The file's content."""
        queues: dict[str, dict[str, list[int]]] = {}
        for (topic, queue_id), (begin, end) in sorted(self.queue_ranges.items()):
            queues.setdefault(topic, {})[str(queue_id)] = [begin, end]
        content: dict[str, Any] = {
            "version": _VERSION,
            "logOffset": self.log_offset,
            "lastRecord": {
                "offset": self.record_offset,
                "size": self.record_size,
                "bodyCRC": self.record_crc,
                "storeTimestamp": self.record_timestamp_ms,
            },
            "fileSizes": {
                "commitLog": self.sizes.commit_log,
                "consumeQueue": self.sizes.consume_queue,
                "hashSlots": self.sizes.index.hash_slots,
                "indexEntries": self.sizes.index.max_entries,
            },
            "index": {"file": self.index_name, "count": self.index_count},
            "queues": queues,
        }
        content["crc32"] = _checksum(content)
        return json.dumps(content, indent=1).encode()

    @classmethod
    def from_json(cls, data: bytes) -> DispatchCheckpoint:
        """The file's content read back; ValueError, KeyError or TypeError when it is not of this form."""
        content = json.loads(data)
        if content["version"] != _VERSION:
            raise ValueError("another version")
        if content.pop("crc32") != _checksum(content):
            raise ValueError("not as it was written")
        last, index, sizes = content["lastRecord"], content["index"], content["fileSizes"]
        ranges = {
            (topic, int(queue_id)): (_count(begin), _count(end))
            for topic, queues in content["queues"].items()
            for queue_id, (begin, end) in queues.items()
        }
        name = index["file"]
        if name is not None and not isinstance(name, str):
            raise TypeError("index file name")
        return cls(
            _count(content["logOffset"]),
            int(last["offset"]),
            int(last["size"]),
            int(last["bodyCRC"]),
            int(last["storeTimestamp"]),
            ranges,
            name,
            _count(index["count"]),
            FileSizes(
                _size(sizes["commitLog"]),
                _size(sizes["consumeQueue"]),
                Geometry(_size(sizes["hashSlots"]), _size(sizes["indexEntries"])),
            ),
        )

    def describes(self, record: Record | None) -> bool:
        """Whether ``record``, read at ``record_offset``, is the one noted."""
        if record is None:
            return self.record_offset < 0
        noted = (self.record_size, self.record_crc, self.record_timestamp_ms)
        return noted == (record.total_size, record.body_crc, record.store_timestamp_ms)


def _checksum(content: dict[str, Any]) -> int:
    """A note with one wrong digit could end a queue too early, so it counts only when it is whole."""
    return zlib.crc32(json.dumps(content, sort_keys=True).encode())


def _count(value: Any) -> int:
    if not isinstance(value, int) or value < 0:
        raise ValueError("not a count")
    return value


def _size(value: Any) -> int:
    if not 0 < _count(value) <= _MAX_SIZE:
        raise ValueError("not a size")
    return int(value)


def load_dispatch_checkpoint(path: Path) -> DispatchCheckpoint | None:
    """The note at ``path``; None when it is missing or cannot be made sense of, which costs time and no data."""
    try:
        data = read_whole(path, "note of dispatch")
        return None if data is None else DispatchCheckpoint.from_json(data)
    except _UNREADABLE:
        return None


def note_on_log(path: Path, log: LogReader) -> DispatchCheckpoint | None:
    """The note at ``path`` if it speaks of this log: the last record that it knows is where it says; else None.

    Raises:
        StoreIOError: the log could not be read.
    """
    note = load_dispatch_checkpoint(path)
    if note is None or note.log_offset < log.min_offset:
        return None
    if note.record_offset >= log.min_offset or note.record_offset < 0:
        record = log.record_at(note.record_offset) if note.record_offset >= 0 else None
        if not note.describes(record):
            return None
    return note


class ProgressNote:
    """How far the log went, and was on the device, when progress was saved: a log that ends before has lost its end.

    One that cannot be made sense of is beyond every log: doubt costs time, and trust could cost messages. Without one
    nothing is said, as in a store that no version with notes of this kind has run, or a broker alone.

    Attributes:
        log_offset: what it says.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.log_offset = _load_progress_note(path)

    def reach(self, log_offset: int) -> None:
        """Before progress is saved: the log is on the device up to ``log_offset``."""
        if log_offset > self.log_offset:
            self._put(log_offset)

    def settle(self, log_end: int) -> None:
        """Progress has been brought back to a log that ends at ``log_end``."""
        if log_end < self.log_offset:
            self._put(log_end)

    def _put(self, log_offset: int) -> None:
        content = {"version": _VERSION, "logOffset": log_offset}
        content["crc32"] = _checksum(content)
        durable.replace_file(self._path, json.dumps(content).encode())
        self.log_offset = log_offset


def _load_progress_note(path: Path) -> int:
    try:
        data = read_whole(path, "note of progress")
        if data is None:
            return 0
        content = json.loads(data)
        if content.pop("crc32") != _checksum(content) or content["version"] != _VERSION:
            raise ValueError("not as it was written")
        return _count(content["logOffset"])
    except _UNREADABLE:
        return sys.maxsize


def load_checkpoint(path: Path) -> Checkpoint:
    """RocketMQ's checkpoint; all zeros when the file is missing.

    Raises:
        CorruptFileError: it is shorter than its fields, or no file at all.
        StoreIOError: it could not be read.
    """
    data = read_whole(path, "checkpoint")
    if data is None:
        return Checkpoint()
    try:
        return decode_checkpoint(data)
    except errors.CorruptFileError as error:
        error.path = str(path)
        raise


def checkpoint_or_zeros(path: Path) -> Checkpoint:
    """As :func:`load_checkpoint`, with a damaged file counting as a missing one: it is a hint, never evidence."""
    try:
        return load_checkpoint(path)
    except errors.CorruptFileError:
        return Checkpoint()


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Put ``checkpoint`` in place, 4096 bytes, at once or not at all."""
    data = encode_checkpoint(checkpoint)
    durable.replace_file(path, data.ljust(CHECKPOINT_SIZE, b"\0"))
