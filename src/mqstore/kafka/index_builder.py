"""When a batch gets index entries: one rule for appending, recovery, rebuilding and cleaning.

See docs/format/kafka-index.md. Asked once per batch; where every append is one batch this gives, byte for byte, the
indexes of a running broker.
"""

from __future__ import annotations

from mqstore.layout.kafka.offset_index import OffsetEntry, OffsetIndex
from mqstore.layout.kafka.time_index import TimeEntry, TimeIndex


class IndexBuilder:
    """Both indexes of one segment while it grows.

    Attributes:
        offsets: the offset index so far.
        times: the time index so far.
        largest: the largest timestamp so far, with the last offset of its batch; time -1 without timestamps.
    """

    def __init__(self, base_offset: int, interval_bytes: int) -> None:
        self.offsets = OffsetIndex(base_offset)
        self.times = TimeIndex(base_offset)
        self.largest = TimeEntry(-1, base_offset)
        self._interval_bytes = interval_bytes
        self._bytes_since = 0

    def resume(self, offsets: OffsetIndex, times: TimeIndex, largest: TimeEntry) -> None:
        """Go on behind entries that were made before; the distance to the next one counts from here, as in a broker."""
        self.offsets, self.times, self.largest = offsets, times, largest

    def add(self, position: int, size_bytes: int, last_offset: int, max_timestamp_ms: int) -> None:
        """Note the batch at ``position`` and make the entries it gets."""
        if max_timestamp_ms > self.largest.timestamp_ms:
            self.largest = TimeEntry(max_timestamp_ms, last_offset)
        if self._bytes_since > self._interval_bytes:
            self.offsets.append(OffsetEntry(last_offset, position))
            self.finish()
            self._bytes_since = 0
        self._bytes_since += size_bytes

    def finish(self) -> None:
        """Add the largest timestamp to the time index if it is not there."""
        if self.largest.timestamp_ms > self.times.last.timestamp_ms:
            self.times.append(self.largest)
