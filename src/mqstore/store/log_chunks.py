"""What reading a commit log gives: stretches of sound records, and what lies between them that is none."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from mqstore import errors
from mqstore.kernels.api import LogColumns, Stop
from mqstore.layout.record import Damage, Record, decode_record


@dataclass(frozen=True)
class Chunk:
    """Records as columns, which refer to ``buffer``.

    Of a stretch of the log, ``physical_offset`` is where the buffer's byte 0 lies. It is -1 where records were read at
    places of their own (:meth:`~mqstore.kernels.api.Kernels.scan_at`): then only their columns say where they lie.
    """

    buffer: bytes
    physical_offset: int
    columns: LogColumns

    @property
    def end_offset(self) -> int:
        """Physical offset just past the last record of a stretch of the log."""
        return self.physical_offset + self.columns.next_position

    @property
    def last_record_offset(self) -> int:
        """Physical offset of the last record."""
        return int(self.columns.own_offset[self.columns.count - 1])

    def records(self) -> Iterator[Record]:
        """The records decoded, for code that is in no hurry."""
        for position in self.columns.position:
            record = decode_record(self.buffer, position, check_crc=False)
            assert isinstance(record, Record)
            yield record


@dataclass(frozen=True)
class LogDamage:
    """Where a scan met bytes that are no record, and what is wrong with them."""

    path: Path
    physical_offset: int
    damage: Damage

    def to_error(self) -> errors.CorruptRecordError:
        """The same as an exception."""
        return errors.CorruptRecordError(
            "damaged record in the commit log",
            path=self.path,
            offset=self.physical_offset,
            found=self.damage.name,
            hint=errors.HINT_SALVAGE,
        )


Reporter = Callable[["LogDamage"], bool]
"""Told of each damage; True: look for the next sound record behind it, False: stop there."""


def stop_at_damage(damage: LogDamage) -> bool:
    """A :data:`Reporter` that ends the scan in front of the first damage."""
    return False


def starting_before(columns: LogColumns, limit: int) -> LogColumns:
    """Leave out the records that start at or after buffer position ``limit``."""
    count = bisect_left(columns.position, limit, 0, columns.count)
    if count == columns.count:
        return columns
    stopped_at = columns.position[count]
    return LogColumns(columns.arena, columns.capacity, count, columns.physical_offset, stopped_at, Stop.FULL)
