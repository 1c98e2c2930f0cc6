"""The header of a batch in any of the three formats (docs/format/kafka-batch.md, kafka-message-set.md).

Messages of the old formats are batches of one, or of several when compressed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, NamedTuple
from zlib import crc32

from mqstore.errors import UsageError
from mqstore.layout.buffers import Buffer
from mqstore.layout.constants import INT_MAX, LONG_MAX
from mqstore.layout.kafka import constants as c
from mqstore.layout.kafka.constants import Codec, TimestampType
from mqstore.layout.kafka.crc32c import crc32c
from mqstore.layout.kafka.damage import Damage, damaged

_PREFIX: Final = struct.Struct(">qi")
HEAD_V2: Final = struct.Struct(">qiibIhiqqqhii")
"""The whole header of the present format."""
HEADS_OLD: Final = {c.MAGIC_V0: struct.Struct(">qiIbb"), c.MAGIC_V1: struct.Struct(">qiIbbq")}
"""Offset, length, checksum, magic, attributes, and in format 1 the timestamp."""

_MESSAGE_CHECKED_FROM: Final = 16

Checksum = Callable[[Buffer], int]
"""Computes CRC-32C: the plain :func:`~mqstore.layout.kafka.crc32c.crc32c`, or the kernels' fast one."""


class BatchHeader(NamedTuple):
    """What a batch says before its records, for all three formats.

    ``position`` is its place in the buffer it was read from, ``size`` its bytes. Without a value in its format a field
    is -1. A compressed message of the old formats tells neither its first offset nor how many it holds: there
    ``base_offset`` equals ``last_offset`` and ``record_count`` is -1. ``base_timestamp_ms`` is what the records' times
    are relative to; where the attributes say so it is at the same time the delete horizon.
    """

    position: int
    size: int
    magic: int
    base_offset: int
    last_offset: int
    leader_epoch: int
    crc: int
    attributes: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def codec(self) -> Codec:
        """How the records are compressed."""
        return Codec(self.attributes & c.CODEC_MASK)

    @property
    def timestamp_type(self) -> TimestampType:
        """Whose times the records bear; NONE in format 0."""
        if self.magic == c.MAGIC_V0:
            return TimestampType.NONE
        return TimestampType(self.attributes & c.LOG_APPEND_TIME_BIT != 0)

    @property
    def is_wrapper(self) -> bool:
        """Whether it is a compressed message of an old format, which does not tell its first offset."""
        return self.magic < c.MAGIC_V2 and self.attributes & c.CODEC_MASK != 0

    @property
    def is_transactional(self) -> bool:
        """Whether it belongs to a transaction of its producer."""
        return self.magic >= c.MAGIC_V2 and self.attributes & c.TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        """Whether it holds control records, which no consumer gets to see."""
        return self.magic >= c.MAGIC_V2 and self.attributes & c.CONTROL_BIT != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """From when on compaction may drop its tombstones and markers; None when that is not settled."""
        if self.magic >= c.MAGIC_V2 and self.attributes & c.DELETE_HORIZON_BIT:
            return self.base_timestamp_ms
        return None

    @property
    def end_position(self) -> int:
        """Where the next batch begins, in the same buffer."""
        return self.position + self.size


def decode_header(buffer: Buffer, position: int = 0, end: int | None = None) -> BatchHeader:
    """The header of the batch at ``position``; its checksum is not looked at (:func:`check_batch` does that).

    Raises CorruptBatchError when none of the rules up to COUNT may be broken, and one is: ``found`` is a
    :class:`~mqstore.layout.kafka.damage.Damage`, ``offset`` the position. Raises UsageError when the position is
    outside the buffer. Nothing at or behind ``end`` (default: the buffer's end) is looked at.
    """
    limit = len(buffer) if end is None else end
    if not 0 <= position <= limit <= len(buffer):
        raise UsageError("the position lies outside the buffer", offset=position, found=f"{limit} of {len(buffer)}")
    left = limit - position
    if left < c.PREFIX_AND_MAGIC_SIZE:
        damaged(Damage.SHORT, position, f"{c.PREFIX_AND_MAGIC_SIZE} bytes", f"{left} bytes")
    offset, length = _PREFIX.unpack_from(buffer, position)
    magic = buffer[position + c.MAGIC_POSITION]
    if not any(buffer[position : position + c.PREFIX_AND_MAGIC_SIZE]):
        damaged(Damage.UNWRITTEN, position)
    if magic not in c.MIN_LENGTHS:
        damaged(Damage.MAGIC, position, "0, 1 or 2", f"magic {magic}")
    if not c.MIN_LENGTHS[magic] <= length <= INT_MAX - c.PREFIX_SIZE:
        damaged(Damage.LENGTH, position, f"at least {c.MIN_LENGTHS[magic]}", f"a length of {length}")
    size = c.PREFIX_SIZE + length
    if size > left:
        damaged(Damage.SHORT, position, f"{size} bytes", f"{left} bytes")
    if magic == c.MAGIC_V2:
        return _decode_head_v2(buffer, position, size)
    return _decode_head_old(buffer, position, size, magic, offset)


def _decode_head_v2(buffer: Buffer, position: int, size: int) -> BatchHeader:
    fields = HEAD_V2.unpack_from(buffer, position)
    offset, _, epoch, magic, crc, attributes, last_delta, base_ms, max_ms, producer, producer_epoch, sequence, n = (
        fields
    )
    if offset < 0 or last_delta < 0 or offset > LONG_MAX - last_delta:
        damaged(Damage.OFFSETS, position, "an offset and a delta of 0 or more", f"{offset} and {last_delta}")
    room = (size - c.BATCH_HEADER_SIZE) // c.MIN_RECORD_SIZE
    if n < 0 or (n > room and not attributes & c.CODEC_MASK):
        damaged(Damage.COUNT, position, f"0 to {room}", f"a number of {n} records")
    return BatchHeader(
        position, size, magic, offset, offset + last_delta, epoch, crc, attributes, base_ms, max_ms, producer,
        producer_epoch, sequence, n,
    )  # fmt: skip


def _decode_head_old(buffer: Buffer, position: int, size: int, magic: int, offset: int) -> BatchHeader:
    _, _, crc, _, attributes, *times = HEADS_OLD[magic].unpack_from(buffer, position)
    if offset < 0:
        damaged(Damage.OFFSETS, position, "an offset of 0 or more", offset)
    timestamp = times[0] if times else c.NO_TIMESTAMP
    count = c.UNKNOWN_COUNT if attributes & c.CODEC_MASK else 1
    return BatchHeader(
        position, size, magic, offset, offset, c.NO_LEADER_EPOCH, crc, attributes, timestamp, timestamp,
        c.NO_PRODUCER_ID, c.NO_PRODUCER_EPOCH, c.NO_SEQUENCE, count,
    )  # fmt: skip


def check_batch(buffer: Buffer, header: BatchHeader, checksum: Checksum = crc32c) -> None:
    """Raises CorruptBatchError (CRC) unless the batch has its checksum; ``checksum`` is for the present format."""
    with memoryview(buffer) as view:
        if header.magic == c.MAGIC_V2:
            found = checksum(view[header.position + c.CHECKED_FROM : header.end_position])
        else:
            found = crc32(view[header.position + _MESSAGE_CHECKED_FROM : header.end_position])
    if found != header.crc:
        damaged(Damage.CRC, header.position, f"{header.crc:#010x}", f"{found:#010x}")
