"""The checkpoint file: how far the store's files were known to be flushed (docs/format/checkpoint.md)."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from mqstore.errors import CorruptFileError, UsageError
from mqstore.layout.buffers import Buffer
from mqstore.layout.constants import CHECKPOINT_SIZE

__all__ = [
    "CHECKPOINT",
    "CHECKPOINT_SIZE",
    "SAFETY_MARGIN_MS",
    "Checkpoint",
    "decode_checkpoint",
    "encode_checkpoint",
]

CHECKPOINT: Final = struct.Struct(">qqqqq")
SAFETY_MARGIN_MS: Final = 3000
"""Recovery distrusts the last seconds before a checkpoint."""


class Checkpoint(NamedTuple):
    """Times in ms since the epoch, 0 when never noted; the two offsets are written by 5.x only."""

    physic_msg_timestamp_ms: int = 0
    logics_msg_timestamp_ms: int = 0
    index_msg_timestamp_ms: int = 0
    master_flushed_offset: int = 0
    confirm_phy_offset: int = 0

    def min_timestamp(self) -> int:
        """Time in ms up to which log and consume queues are complete for certain, at least 0."""
        return max(0, min(self.physic_msg_timestamp_ms, self.logics_msg_timestamp_ms) - SAFETY_MARGIN_MS)


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """The whole file, 4096 bytes. Raises UsageError when a value does not fit 64 bits."""
    try:
        return CHECKPOINT.pack(*checkpoint).ljust(CHECKPOINT_SIZE, b"\0")
    except struct.error as error:
        raise UsageError("a value does not fit the checkpoint", found=str(tuple(checkpoint))) from error


def decode_checkpoint(buffer: Buffer) -> Checkpoint:
    """Read a checkpoint file; what lies behind the fields is not looked at.

    Raises CorruptFileError when the file is shorter than its fields. The values are hints: nothing proves
    them.
    """
    if len(buffer) < CHECKPOINT.size:
        raise CorruptFileError(
            "the checkpoint file is too short",
            expected=f"{CHECKPOINT_SIZE} bytes",
            found=len(buffer),
            hint="remove it: recovery then reads the whole log",
        )
    return Checkpoint._make(CHECKPOINT.unpack_from(buffer, 0))
