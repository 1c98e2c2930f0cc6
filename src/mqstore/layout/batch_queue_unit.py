"""Units of the batch consume queues of 5.x: 46 bytes for a record of many
(docs/format/batch-consume-queue.md).
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from mqstore.errors import UsageError
from mqstore.layout.buffers import Buffer

BATCH_QUEUE_UNIT: Final = struct.Struct(">qiqqqhii")
BATCH_QUEUE_UNIT_SIZE: Final = BATCH_QUEUE_UNIT.size
UNITS_PER_FILE: Final = 300_000
"""Units in a file by default; the file is named after its first byte's offset, not after message numbers."""


class BatchQueueUnit(NamedTuple):
    """One record that stands for the ``batch_size`` messages from queue offset ``message_base_offset``."""

    physical_offset: int
    size_bytes: int
    tags_code: int
    store_timestamp_ms: int
    message_base_offset: int
    batch_size: int
    compacted_offset: int = -1
    reserved: int = 0

    @property
    def is_written(self) -> bool:
        """Whether this can be a unit that a store wrote."""
        return (
            self.physical_offset >= 0 and self.size_bytes > 0 and self.message_base_offset >= 0 and self.batch_size > 0
        )

    @property
    def next_queue_offset(self) -> int:
        """Queue offset behind the unit's last message."""
        return self.message_base_offset + self.batch_size

    def holds(self, queue_offset: int) -> bool:
        """Whether the message with this queue offset is in the record."""
        return self.message_base_offset <= queue_offset < self.next_queue_offset


def encode_batch_unit(unit: BatchQueueUnit) -> bytes:
    """The 46 bytes of a unit. Raises UsageError when a value does not fit its field."""
    try:
        return BATCH_QUEUE_UNIT.pack(*unit)
    except struct.error as error:
        raise UsageError("a value does not fit a batch queue unit", found=str(tuple(unit))) from error


def decode_batch_unit(buffer: Buffer, position: int = 0) -> BatchQueueUnit:
    """The unit at ``position``. Raises UsageError when fewer than 46 bytes lie there."""
    if not 0 <= position <= len(buffer) - BATCH_QUEUE_UNIT_SIZE:
        raise UsageError("no whole unit at this position", offset=position, found=f"{len(buffer)} bytes")
    return BatchQueueUnit._make(BATCH_QUEUE_UNIT.unpack_from(buffer, position))
