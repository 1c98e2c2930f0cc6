"""Numbers that Kafka's record batches and message sets fix (docs/format/kafka-batch.md, kafka-message-set.md)."""

from __future__ import annotations

import enum
from typing import Final

MAGIC_V0: Final = 0
"""Messages without timestamps."""
MAGIC_V1: Final = 1
"""Messages with timestamps."""
MAGIC_V2: Final = 2
"""Record batches, the present format."""

PREFIX_SIZE: Final = 12
"""Offset and length, in front of every batch and message; the length counts what follows them."""
MAGIC_POSITION: Final = 16
PREFIX_AND_MAGIC_SIZE: Final = 17
"""So many bytes tell the format and where the next batch begins."""

BATCH_HEADER_SIZE: Final = 61
"""A batch without records."""
CHECKED_FROM: Final = 21
"""First byte that the checksum of a batch covers: offset, length, leader epoch and magic lie before it."""
MIN_LENGTHS: Final = {MAGIC_V0: 14, MAGIC_V1: 22, MAGIC_V2: BATCH_HEADER_SIZE - PREFIX_SIZE}
"""Least value of the length field, by magic."""
MIN_RECORD_SIZE: Final = 7
"""A record with neither key nor value nor headers, its own length included."""

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40

NO_TIMESTAMP: Final = -1
NO_LEADER_EPOCH: Final = -1
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
UNKNOWN_COUNT: Final = -1
"""The number of records in a compressed message of the old formats, which only its contents tell."""


class Codec(enum.IntEnum):
    """How the records of a batch are compressed. The last three numbers belong to no codec so far."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4
    UNKNOWN_5 = 5
    UNKNOWN_6 = 6
    UNKNOWN_7 = 7


class TimestampType(enum.IntEnum):
    """Whose time a record bears: nobody's, its producer's, or that of the broker when it was appended."""

    NONE = -1
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1
