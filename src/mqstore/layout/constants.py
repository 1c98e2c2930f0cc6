"""Numbers and names that the store format fixes. Their meaning is told in ``docs/format/``."""

from __future__ import annotations

from typing import Final

# --- commit log (docs/format/commit-log.md) -------------------------------------------------------

MAGIC_V1: Final = -626843481
"""0xDAA320A7: a record whose topic length takes one byte."""
MAGIC_V2: Final = -626843477
"""0xDAA320AB: a record whose topic length takes two bytes; written by 5.x only."""
MAGIC_BLANK: Final = -875286124
"""0xCBD43194: the rest of this file holds no record."""

SIZE_POSITION: Final = 0
MAGIC_POSITION: Final = 4
BODY_CRC_POSITION: Final = 8
QUEUE_ID_POSITION: Final = 12
FLAG_POSITION: Final = 16
QUEUE_OFFSET_POSITION: Final = 20
PHYSICAL_OFFSET_POSITION: Final = 28
SYS_FLAG_POSITION: Final = 36
BORN_TIMESTAMP_POSITION: Final = 40
BORN_HOST_POSITION: Final = 48

HOST_V4_SIZE: Final = 8
"""Four address bytes and a port of four bytes."""
HOST_V6_SIZE: Final = 20
"""Sixteen address bytes and a port of four bytes."""

BLANK_SIZE: Final = 8
"""Bytes that are written of a blank record; also the space that must stay free behind every record."""
MIN_RECORD_SIZE: Final = 91
"""Size of a v1 record with IPv4 hosts and neither body, topic nor properties."""
CRC_MASK: Final = 0x7FFFFFFF
"""Stored checksums have their top bit cleared."""


class SysFlag:
    """Bits of the field SYSFLAG."""

    COMPRESSED: Final = 0x1
    MULTI_TAGS: Final = 0x2
    TRANSACTION_NOT: Final = 0x0
    TRANSACTION_PREPARED: Final = 0x4
    TRANSACTION_COMMIT: Final = 0x8
    TRANSACTION_ROLLBACK: Final = 0xC
    TRANSACTION_MASK: Final = 0xC
    BORN_HOST_V6: Final = 0x10
    STORE_HOST_V6: Final = 0x20
    NEED_UNWRAP: Final = 0x40
    INNER_BATCH: Final = 0x80
    COMPRESSION_LZ4: Final = 0x100
    COMPRESSION_ZSTD: Final = 0x200
    COMPRESSION_ZLIB: Final = 0x300
    COMPRESSION_MASK: Final = 0x700


# --- limits ---------------------------------------------------------------------------------------

MAX_TOPIC_SIZE_V1: Final = 127
"""Bytes of UTF-8; the length is one signed byte."""
MAX_TOPIC_SIZE_V2: Final = 32767
"""What the two-byte length could hold; brokers stop at 255."""
MAX_PROPERTIES_SIZE: Final = 32767
"""Bytes of UTF-8; the length is a signed 16-bit integer."""
DEFAULT_MAX_MESSAGE_SIZE: Final = 4 * 1024 * 1024
"""Default limit for the body of one message and for the body of a batch."""
RECORD_OVERHEAD_LIMIT: Final = 65536
"""A record may be this much larger than the configured message size."""
INT_MAX: Final = 0x7FFFFFFF
LONG_MAX: Final = 0x7FFFFFFFFFFFFFFF
LONG_MIN: Final = -LONG_MAX - 1

MAX_QUEUES: Final = 65_536
"""How many queues a topic can have here; a broker sets no limit of its own."""

# --- topics and groups ----------------------------------------------------------------------------

SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
"""Holds delayed messages: queue id = delay level - 1."""
RETRY_PREFIX: Final = "%RETRY%"
DLQ_PREFIX: Final = "%DLQ%"
LMQ_PREFIX: Final = "%LMQ%"
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_HALF_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TRANS_CHECK_MAX_TIME_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
TRANSACTION_GROUP: Final = "CID_RMQ_SYS_TRANS"
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"

# --- property names (docs/format/properties.md) ---------------------------------------------------

PROPERTY_KEYS: Final = "KEYS"
PROPERTY_TAGS: Final = "TAGS"
PROPERTY_UNIQ_KEY: Final = "UNIQ_KEY"
PROPERTY_WAIT: Final = "WAIT"
PROPERTY_DELAY: Final = "DELAY"
PROPERTY_REAL_TOPIC: Final = "REAL_TOPIC"
PROPERTY_REAL_QID: Final = "REAL_QID"
PROPERTY_RETRY_TOPIC: Final = "RETRY_TOPIC"
PROPERTY_TRAN_MSG: Final = "TRAN_MSG"
PROPERTY_PGROUP: Final = "PGROUP"
PROPERTY_TRANSACTION_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
PROPERTY_CHECK_IMMUNITY_TIME: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
PROPERTY_TRAN_PREPARED_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
PROPERTY_TRANSACTION_ID: Final = "__transactionId__"
PROPERTY_ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
PROPERTY_RECONSUME_TIME: Final = "RECONSUME_TIME"
PROPERTY_MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
PROPERTY_CLUSTER: Final = "CLUSTER"
PROPERTY_INNER_MULTI_DISPATCH: Final = "INNER_MULTI_DISPATCH"
PROPERTY_INNER_MULTI_QUEUE_OFFSET: Final = "INNER_MULTI_QUEUE_OFFSET"
PROPERTY_INNER_NUM: Final = "INNER_NUM"
PROPERTY_INNER_BASE: Final = "INNER_BASE"
PROPERTY_DLQ_ORIGIN_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
PROPERTY_DLQ_ORIGIN_MESSAGE_ID: Final = "DLQ_ORIGIN_MESSAGE_ID"
PROPERTY_CRC32: Final = "__CRC32#"

TAG_OF_OP_MESSAGES: Final = "d"
"""Tag of the records in :data:`OP_HALF_TOPIC` that close a half message."""

# --- delay levels ---------------------------------------------------------------------------------

DEFAULT_DELAY_LEVELS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
UNKNOWN_LEVEL_DELAY_MS: Final = 1000
"""Delay of a level that the table does not list."""

# --- derived files --------------------------------------------------------------------------------

QUEUE_UNIT_SIZE: Final = 20
DEFAULT_COMMIT_LOG_FILE_SIZE: Final = 1024 * 1024 * 1024
DEFAULT_QUEUE_FILE_SIZE: Final = 300_000 * QUEUE_UNIT_SIZE
DEFAULT_HASH_SLOTS: Final = 5_000_000
DEFAULT_INDEX_ENTRIES: Final = 20_000_000
CHECKPOINT_SIZE: Final = 4096
PAGE_SIZE: Final = 4096
