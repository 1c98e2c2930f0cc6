"""What every set of kernels offers for Kafka's record batches: types and functions, told once for both twins.

The rules of a batch are those of :class:`~mqstore.layout.kafka.damage.Damage`, in that order
(docs/format/kafka-batch.md, kafka-message-set.md).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from mqstore.kernels.columns import Cell, ColumnTable
from mqstore.layout.buffers import Buffer
from mqstore.layout.kafka.damage import Damage


class BatchStop(enum.IntEnum):
    """Why a walk over batches ended."""

    END = 0
    """Everything up to ``end`` was read."""
    SHORT = 1
    """The batch at ``next_position`` reaches past ``end``, or fewer than 17 bytes are left."""
    FULL = 2
    """``max_batches`` batches were read; continue at ``next_position``."""
    PADDING = 3
    """Zeros at ``next_position``: space that was reserved and never written."""
    DAMAGED = 4
    """No sound batch starts at ``next_position``."""


class BatchColumns(ColumnTable):
    """Batches found by :func:`KafkaKernels.kafka_batches`, one row each, and how the walk ended.

    Columns are the fields of :class:`~mqstore.layout.kafka.header.BatchHeader`; see there for what old formats leave
    open: ``base_offset`` equals ``last_offset`` and ``record_count`` is -1 in a compressed message of formats 0 and 1.

    Attributes:
        count: number of rows.
        next_position: where the walk ended, in the buffer.
        stop: why it ended.
        damage: what is wrong at ``next_position`` when ``stop`` is DAMAGED or PADDING (UNWRITTEN), otherwise None.
    """

    # The order of these is the order in the arena.
    position = Cell(0, "q")
    base_offset = Cell(1, "q")
    last_offset = Cell(2, "q")
    base_timestamp_ms = Cell(3, "q")
    max_timestamp_ms = Cell(4, "q")
    producer_id = Cell(5, "q")
    crc = Cell(6, "q")

    size = Cell(0, "i")
    magic = Cell(1, "i")
    attributes = Cell(2, "i")
    leader_epoch = Cell(3, "i")
    record_count = Cell(4, "i")
    producer_epoch = Cell(5, "i")
    base_sequence = Cell(6, "i")

    def __init__(
        self, arena: bytearray, capacity: int, count: int, next_position: int, stop: int, damage: int = 0
    ) -> None:
        super().__init__(arena, capacity, count)
        self.next_position = next_position
        self.stop = BatchStop(stop)
        self.damage = Damage(damage) if damage else None

    def __repr__(self) -> str:
        return f"BatchColumns({self.count} batches, {self.stop.name} at {self.next_position})"


class RecordStop(enum.IntEnum):
    """Why a walk over the records of batches ended."""

    END = 0
    """All batches asked for were read."""
    PACKED = 1
    """The batch of row ``next_row`` is compressed: inflate it, read it by itself, continue behind it."""
    DAMAGED = 2
    """The records of row ``next_row`` are not sound; none of them is among the rows."""


class RecordColumns(ColumnTable):
    """Records found by :func:`KafkaKernels.kafka_records` or ``kafka_batch_records``, one row each.

    Positions count in the buffer that was read. ``key_size`` and ``value_size`` are -1 where there is none. The
    ``headers_count`` headers of a record, if any, are ``headers_size`` bytes at ``headers_position``, already found
    sound. ``batch_row`` is the row of the record's batch.

    Attributes:
        count: number of rows.
        next_row: the row of the first batch whose records are not among the rows.
        stop: why the walk ended.
        damage: what is wrong with the batch of ``next_row`` when ``stop`` is DAMAGED, otherwise None.
    """

    # The order of these is the order in the arena.
    offset = Cell(0, "q")
    timestamp_ms = Cell(1, "q")
    key_position = Cell(2, "q")
    value_position = Cell(3, "q")
    headers_position = Cell(4, "q")

    key_size = Cell(0, "i")
    value_size = Cell(1, "i")
    headers_size = Cell(2, "i")
    headers_count = Cell(3, "i")
    batch_row = Cell(4, "i")

    def __init__(self, arena: bytearray, capacity: int, count: int, next_row: int, stop: int, damage: int = 0) -> None:
        super().__init__(arena, capacity, count)
        self.next_row = next_row
        self.stop = RecordStop(stop)
        self.damage = Damage(damage) if damage else None

    def __repr__(self) -> str:
        return f"RecordColumns({self.count} records, {self.stop.name} at row {self.next_row})"


class HeaderLists(NamedTuple):
    """A list<struct<name: string, value: binary>> column in Arrow's layout; records without headers are empty lists.

    ``list_offsets`` count in headers. ``value_validity`` is None when every header has a value.
    """

    list_offsets: Any
    name_offsets: Any
    name_data: Any
    value_offsets: Any
    value_data: Any
    value_validity: Any


class IndexState(NamedTuple):
    """What an index knows between two runs of batches; the default is that of an empty segment.

    ``bytes_since`` were written since the last indexed batch began. ``largest_ms`` is the largest timestamp so far and
    ``largest_offset`` the last offset of the batch that has it; ``indexed_ms`` is the time of the last time entry.
    """

    bytes_since: int = 0
    largest_ms: int = -1
    largest_offset: int = -1
    indexed_ms: int = -1


class IndexRun(NamedTuple):
    """The entries that a run of batches gets: rows with an offset entry; timestamps and offsets of time entries."""

    rows: memoryview
    times_ms: memoryview
    time_offsets: memoryview
    state: IndexState


class KafkaKernels(Protocol):
    """The functions for Kafka's batches. Errors and buffers are as for all kernels."""

    def crc32c(self, data: Buffer, value: int = 0, /) -> int:
        """CRC-32C of ``data``, continuing ``value``."""

    def kafka_batches(
        self, buffer: Buffer, position: int, end: int, *, max_batches: int = 65536, check_crc: bool = True
    ) -> BatchColumns:
        """Walk over batches from ``position`` on until one of the reasons in :class:`BatchStop`.

        Records are not looked at, and a batch of an unknown codec is a sound one. A batch is SHORT rather than damaged
        when it reaches past ``end`` and its magic and length are right.

        Args:
            buffer: bytes of a log; nothing outside [position, end) is looked at.
            max_batches: stop after this many.
            check_crc: whether checksums are compared.
        """

    def kafka_records(
        self,
        buffer: Buffer,
        position: int,
        end: int,
        *,
        base_offset: int,
        last_offset: int,
        base_timestamp_ms: int,
        count: int,
        log_append_time_ms: int | None = None,
        batch_row: int = 0,
    ) -> RecordColumns:
        """The ``count`` records that fill [position, end): those of one batch of format 2, inflated if need be.

        Args:
            base_offset, last_offset, base_timestamp_ms: of the batch.
            log_append_time_ms: the time of all records, when their timestamps are the broker's: the batch's largest.
            batch_row: what the column of that name shall say.
        """

    def kafka_batch_records(
        self, buffer: Buffer, batches: BatchColumns, start: int, stop: int, *, bodies: Sequence[int] | None = None
    ) -> RecordColumns:
        """The records of the rows [start, stop), up to the first that is compressed or not sound.

        Messages of formats 0 and 1 are records, too.

        Args:
            buffer: the one that the batches were found in; with ``bodies`` another one.
            bodies: where the inflated records of each row begin in ``buffer``, and in the end where the last ones end:
                one number more than there are rows, none smaller than the one before. All rows must be of format 2.
                A memoryview of format ``q``, or any sequence.
        """

    def kafka_headers(
        self,
        buffer: Buffer,
        records: RecordColumns,
        start: int,
        stop: int,
        *,
        allocate: Callable[[int], Any] | None = None,
    ) -> HeaderLists:
        """The headers of the rows [start, stop); malformed UTF-8 in names becomes U+FFFD.

        Raises OverflowError when a column would hold 2 GiB or more: take fewer rows.
        """

    def kafka_encode(
        self,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        headers: Sequence[Sequence[tuple[str, bytes | None]]] | None,
        timestamp_deltas_ms: Sequence[int],
        offset_deltas: Sequence[int] | None = None,
    ) -> bytearray:
        """The records of one batch of format 2, one behind the other and not compressed.

        :func:`~mqstore.layout.kafka.batch.assemble_batch` makes a batch of them.

        Args:
            headers: of each record in order; None when no record has any.
            offset_deltas: offsets less the base offset; None for 0, 1, 2 and so on.

        Raises UsageError when the sequences differ in length or a number does not fit, MessageIllegalError when a
        record or all together are too large, TypeError for keys and values that are neither bytes nor None.
        """

    def kafka_index(
        self, batches: BatchColumns, start: int, stop: int, interval_bytes: int, state: IndexState
    ) -> IndexRun:
        """The index entries that the rows [start, stop) get by the rule for rebuilding (docs/format/kafka-index.md).

        A batch gets an offset entry (its last offset and position) when more than ``interval_bytes`` were written since
        the last such batch began; a time entry with it when the largest timestamp has grown.
        """
