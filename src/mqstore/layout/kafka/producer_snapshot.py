"""The state of the producers of a partition, ``.snapshot`` (docs/format/kafka-producer-snapshot.md)."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from mqstore.errors import CorruptFileError
from mqstore.layout.buffers import Buffer
from mqstore.layout.kafka.crc32c import crc32c

VERSION: Final = 1
ENTRY: Final = struct.Struct(">qhiqiqiq")
ENTRY_SIZE: Final = ENTRY.size
_HEAD: Final = struct.Struct(">hIi")
_CHECKED_FROM: Final = 6


class ProducerEntry(NamedTuple):
    """What a partition knows of one producer.

    ``last_sequence`` and ``last_offset`` are -1 while only markers were seen of its epoch; ``offset_delta`` is the last
    batch's last offset less its first. ``timestamp_ms`` is the largest of the last batch, or the marker's.
    ``coordinator_epoch`` is -1 without a marker, ``current_txn_first_offset`` -1 outside a transaction.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int
    coordinator_epoch: int
    current_txn_first_offset: int


def decode_producer_snapshot(buffer: Buffer) -> list[ProducerEntry]:
    """The producers of a whole file.

    Raises CorruptFileError for an unknown version (later releases may write others, with other entries), a wrong
    checksum, or a length that does not fit the number of entries.
    """
    data = memoryview(buffer)
    if len(data) < 2 or (version := struct.unpack_from(">h", data)[0]) != VERSION:
        found = "nothing" if len(data) < 2 else version
        raise CorruptFileError("a producer snapshot of an unknown version", expected=VERSION, found=found)
    if len(data) < _HEAD.size:
        raise CorruptFileError("a producer snapshot ends too early", expected=_HEAD.size, found=len(data))
    _, crc, count = _HEAD.unpack_from(data)
    if crc != (computed := crc32c(data[_CHECKED_FROM:])):
        raise CorruptFileError(
            "wrong checksum in a producer snapshot", expected=f"{crc:#010x}", found=f"{computed:#010x}"
        )
    if count < 0 or len(data) != _HEAD.size + count * ENTRY_SIZE:
        expected = f"{count} entries of {ENTRY_SIZE} bytes"
        raise CorruptFileError("a producer snapshot has the wrong length", expected=expected, found=len(data))
    return list(map(ProducerEntry._make, ENTRY.iter_unpack(data[_HEAD.size :])))


def encode_producer_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """The bytes of a whole file."""
    packed = [ENTRY.pack(*entry) for entry in entries]
    body = struct.pack(">i", len(packed)) + b"".join(packed)
    return struct.pack(">hI", VERSION, crc32c(body)) + body
