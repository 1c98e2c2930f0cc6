"""Control records: what brokers write between the records of producers (docs/format/kafka-batch.md)."""

from __future__ import annotations

import enum
import struct
from typing import Final

from mqstore.errors import CorruptBatchError, UsageError
from mqstore.layout.kafka import constants as c
from mqstore.layout.kafka.batch import encode_batch
from mqstore.layout.kafka.constants import TimestampType
from mqstore.layout.kafka.crc32c import crc32c
from mqstore.layout.kafka.header import Checksum
from mqstore.layout.kafka.record import Record

_KEY: Final = struct.Struct(">hh")
_END_TRANSACTION: Final = struct.Struct(">hi")
_VERSION: Final = 0


class ControlType(enum.IntEnum):
    """What a control record tells. Readers pass over types that they do not know."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


def decode_control_key(key: bytes | None) -> ControlType | int:
    """The type in a control record's key; a plain number when it is none of the known.

    Later versions of the key may be longer. Raises CorruptBatchError when there is no key, or a shorter one, or one
    with a negative version.
    """
    if key is None or len(key) < _KEY.size:
        found = "no key" if key is None else f"{len(key)} bytes"
        raise CorruptBatchError("no key of a control record", expected=f"at least {_KEY.size} bytes", found=found)
    version, kind = _KEY.unpack_from(key)
    if version < 0:
        raise CorruptBatchError("no key of a control record", expected="a version of 0 or more", found=version)
    try:
        return ControlType(kind)
    except ValueError:
        return int(kind)


def decode_end_transaction(value: bytes | None) -> int:
    """The epoch of the transaction's coordinator in the value of an ABORT or COMMIT.

    Raises CorruptBatchError when there is no value, or a shorter one, or one with a negative version.
    """
    if value is None or len(value) < _END_TRANSACTION.size:
        found = "no value" if value is None else f"{len(value)} bytes"
        raise CorruptBatchError(
            "no end of a transaction", expected=f"at least {_END_TRANSACTION.size} bytes", found=found
        )
    version, epoch = _END_TRANSACTION.unpack_from(value)
    if version < 0:
        raise CorruptBatchError("no end of a transaction", expected="a version of 0 or more", found=version)
    return int(epoch)


def encode_control_key(kind: ControlType) -> bytes:
    """The key of a control record."""
    return _KEY.pack(_VERSION, kind)


def encode_end_transaction_marker(
    *,
    commit: bool,
    offset: int,
    timestamp_ms: int,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int = 0,
    leader_epoch: int = c.NO_LEADER_EPOCH,
    checksum: Checksum = crc32c,
) -> bytes:
    """The batch of one record, 78 bytes, that ends a transaction of ``producer_id`` at ``offset``.

    Raises UsageError when a number does not fit.
    """
    try:
        value = _END_TRANSACTION.pack(_VERSION, coordinator_epoch)
    except struct.error as error:
        raise UsageError("the coordinator's epoch does not fit", found=coordinator_epoch) from error
    record = Record(
        offset,
        timestamp_ms,
        TimestampType.CREATE_TIME,
        encode_control_key(ControlType.COMMIT if commit else ControlType.ABORT),
        value,
    )
    return encode_batch(
        [record],
        base_offset=offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
        checksum=checksum,
    )
