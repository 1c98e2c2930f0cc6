"""Bytes of a log that are no sound batch: how they are told, and how a reader gets behind them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mqstore import errors, kernels

if TYPE_CHECKING:
    from mqstore.kafka.segment import Segment

HINT = "mqstore kafka check lists all damage; mqstore kafka recover makes a sound copy"
_WINDOW_BYTES: Final = 1 << 20
_HEADER_BYTES: Final = 61
_MAGIC_AT: Final = 16
_LEAST_LENGTH: Final = 49


@dataclass(frozen=True)
class BatchDamage:
    """Where a reader met bytes that are no sound batch, and what is wrong with them.

    Attributes:
        path: the ``.log``.
        position: byte of it at which a batch should start.
        reason: what is wrong, in a word.
        size_bytes: how long the batch is by its own word; 0 when that cannot be believed.
    """

    path: Path
    position: int
    reason: str
    size_bytes: int = 0

    def to_error(self) -> errors.CorruptBatchError:
        """The same as an exception."""
        return errors.CorruptBatchError(
            "damaged batch in a Kafka log", path=self.path, offset=self.position, found=self.reason, hint=HINT
        )


Reporter = Callable[[BatchDamage], bool]
"""Told of each damage; True: go on behind it, False: stop there, as if the log ended."""


def raise_at_damage(damage: BatchDamage) -> bool:
    """The :data:`Reporter` of those who do not say otherwise: damage is an error."""
    raise damage.to_error()


def stop_at_damage(damage: BatchDamage) -> bool:
    """A :data:`Reporter` that lets the log end in front of the first damage."""
    return False


def next_batch(segment: Segment, position: int, size_bytes: int) -> int | None:
    """Position of the first sound batch behind ``position``; None when there is none.

    First where the damaged batch says that it ends, then wherever a batch of the present format with a right
    checksum begins, then where an index entry points.
    """
    end = segment.size_bytes
    if size_bytes > 0 and _is_batch(segment, position + size_bytes):
        return position + size_bytes
    at = position + 1
    while at + _HEADER_BYTES <= end:
        window = segment.read(at, _WINDOW_BYTES + _HEADER_BYTES)
        found = window.find(b"\2", _MAGIC_AT)
        while 0 <= found < _WINDOW_BYTES + _MAGIC_AT:
            start = found - _MAGIC_AT
            length = int.from_bytes(window[start + 8 : start + 12], "big")
            plausible = _LEAST_LENGTH <= length <= end - at - start - 12
            if plausible and _is_batch(segment, at + start):
                return _earlier_entry(segment, position, at + start)
            found = window.find(b"\2", found + 1)
        at += _WINDOW_BYTES
    return _earlier_entry(segment, position, None)


def _earlier_entry(segment: Segment, position: int, found: int | None) -> int | None:
    """The first sound batch between ``position`` and ``found`` that an index entry points at; else ``found``."""
    for entry in segment.offset_index():
        if found is not None and entry.position >= found:
            break
        if entry.position > position and _is_batch(segment, entry.position):
            return entry.position
    return found


def _is_batch(segment: Segment, position: int) -> bool:
    """Whether a whole batch with a right checksum starts at ``position``."""
    head = segment.read(position, _HEADER_BYTES)
    size = 12 + int.from_bytes(head[8:12], "big", signed=True)
    if len(head) < 17 or not 0 < size <= segment.size_bytes - position:
        return False
    buffer = segment.read(position, size)
    return int(kernels.kafka_batches(buffer, 0, len(buffer), max_batches=1, check_crc=True).count) == 1
