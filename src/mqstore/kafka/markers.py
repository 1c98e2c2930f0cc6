"""Reading the marker out of a control batch."""

from __future__ import annotations

import logging

from mqstore import errors
from mqstore.kafka.producer_state import Marker
from mqstore.layout.buffers import Buffer
from mqstore.layout.kafka.batch import BatchHeader, decode_records
from mqstore.layout.kafka.control import ControlType, decode_control_key, decode_end_transaction

_log = logging.getLogger(__name__)


def read_marker(buffer: Buffer, header: BatchHeader) -> Marker | None:
    """The end of a transaction that a batch tells, None for every other batch.

    Raises:
        CorruptBatchError: a control batch that cannot be read.
    """
    if not header.is_control or header.producer_id < 0 or not header.record_count:
        return None
    record = decode_records(buffer, header, check_crc=False)[0]
    kind = decode_control_key(record.key)
    if kind not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    return Marker(kind is ControlType.COMMIT, decode_end_transaction(record.value), record.timestamp_ms)


def marker_in_log(buffer: Buffer, header: BatchHeader) -> Marker | None:
    """:func:`read_marker` of a batch that lies in a log already: one that cannot be read ends nothing.

    It is passed over with a warning, and its transaction stays open, for readers of committed records to wait at.
    """
    try:
        return read_marker(buffer, header)
    except (errors.CorruptBatchError, errors.UsageError) as error:
        _log.warning("passing over the control batch at offset %d, its marker says nothing: %s",
                     header.base_offset, error)  # fmt: skip
        return None
