"""The records of one batch of a segment, and errors that say where it lies."""

from __future__ import annotations

from mqstore import errors, kernels
from mqstore.kafka.damage import HINT
from mqstore.kafka.segment import Segment
from mqstore.kernels.kafka_batch import decode_records
from mqstore.layout.kafka.batch import BatchHeader
from mqstore.layout.kafka.header import check_batch
from mqstore.layout.kafka.record import Record


def records_of(segment: Segment, position: int, header: BatchHeader, buffer: bytes) -> list[Record]:
    """The records of the batch at ``position`` of the segment's ``.log``, its checksum checked.

    Raises:
        CorruptBatchError: with the file, and the place in it.
        UsageError: the library of its codec is missing.
    """
    try:
        return decode_records(buffer, header)
    except errors.CorruptBatchError as error:
        raise _with_place(error, segment, position, header) from error


def no_records_of(segment: Segment, position: int, header: BatchHeader, buffer: bytes) -> list[Record]:
    """No records, of a batch that is nevertheless sound; raises as :func:`records_of` where it is not."""
    try:
        check_batch(buffer, header, kernels.crc32c)
    except errors.CorruptBatchError as error:
        raise _with_place(error, segment, position, header) from error
    return []


def _with_place(
    error: errors.CorruptBatchError, segment: Segment, position: int, header: BatchHeader
) -> errors.CorruptBatchError:
    return errors.CorruptBatchError(
        f"damaged batch in a Kafka log, offsets {header.base_offset} to {header.last_offset}: {error.message}",
        path=segment.path(),
        offset=position,
        expected=error.expected,
        found=error.found,
        hint=HINT,
    )
