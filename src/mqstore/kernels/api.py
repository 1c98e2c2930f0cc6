"""What every set of kernels offers: the types they share and the functions, told once for both twins.

``mqstore.kernels.NAME`` says which twin is in use: ``"native"`` (compiled) or ``"pure"`` (plain Python, the
readable definition). Both take any object with the buffer protocol (bytes, mapped file, memoryview), look at
no byte outside the range they are given, and follow no size or number in the data before it is checked.

Outputs of the ``gather`` family are plain byte buffers in Apache Arrow's memory layout: offsets as native
32-bit integers, one bit per row for validity, lowest bit first. They can be handed to Arrow without a copy.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, NamedTuple, Protocol

from mqstore.kernels.columns import Cell, ColumnTable
from mqstore.kernels.kafka_api import KafkaKernels
from mqstore.kernels.store_api import StoreKernels
from mqstore.layout.buffers import Buffer
from mqstore.layout.record import Damage

Column = memoryview
"""Numbers of all rows: a memoryview of format ``q`` (64 bits) or ``i`` (32 bits), native byte order."""

Allocate = Callable[[int], Any]
"""Gives a writable buffer of exactly that many bytes: ``bytearray``, or an Arrow allocator."""


class Stop(enum.IntEnum):
    """Why a scan ended."""

    END = 0
    """Everything up to ``end`` was read."""
    SHORT = 1
    """The record at ``next_position`` reaches past ``end``, or fewer than 8 bytes are left."""
    FULL = 2
    """``max_records`` records were read; continue at ``next_position``."""
    BLANK = 3
    """The record at ``next_position`` is the blank that closes a log file: continue with the next file."""
    DAMAGED = 4
    """No valid record starts at ``next_position``."""


class LogColumns(ColumnTable):
    """Records found by :func:`Kernels.scan`, one row each, and how the scan ended.

    Positions count in the scanned buffer; ``own_offset`` is the record's place in the log, which it states itself. Rows
    are valid as long as the buffer keeps its bytes. Sizes of tags, keys and unique key are -1 for records without them.

    Attributes:
        count: number of rows.
        physical_offset: log offset of the buffer's byte 0, as given to the scan; -1 for a buffer of bytes from
            several places.
        next_position: where the scan ended, in the buffer.
        stop: why it ended.
        damage: what is wrong at ``next_position`` when ``stop`` is DAMAGED, otherwise None.
        blank_size: size field of the blank record when ``stop`` is BLANK, otherwise 0. Not checked against
            anything.
        short_size: when ``stop`` is SHORT, the size that the record claims to have, 0 if fewer than 8 bytes
            are left. The record's checksum was not seen: a claim larger than any message of this store is
            damage.
        capacity, arena: how the columns lie in memory; for kernels only.
    """

    def __init__(
        self,
        arena: bytearray,
        capacity: int,
        count: int,
        physical_offset: int,
        next_position: int,
        stop: int,
        damage: int = 0,
        blank_size: int = 0,
        short_size: int = 0,
    ) -> None:
        super().__init__(arena, capacity, count)
        self.physical_offset = physical_offset
        self.next_position = next_position
        self.stop = Stop(stop)
        self.damage = Damage(damage) if damage else None
        self.blank_size = blank_size
        self.short_size = short_size

    # The order of these is the order in the arena.
    position = Cell(0, "q")
    queue_offset = Cell(1, "q")
    born_timestamp_ms = Cell(2, "q")
    store_timestamp_ms = Cell(3, "q")
    prepared_transaction_offset = Cell(4, "q")
    body_position = Cell(5, "q")
    topic_position = Cell(6, "q")
    properties_position = Cell(7, "q")
    born_host_position = Cell(8, "q")
    store_host_position = Cell(9, "q")
    tags_position = Cell(10, "q")
    keys_position = Cell(11, "q")
    uniq_key_position = Cell(12, "q")
    own_offset = Cell(13, "q")

    size = Cell(0, "i")
    magic = Cell(1, "i")
    body_crc = Cell(2, "i")
    queue_id = Cell(3, "i")
    flag = Cell(4, "i")
    sys_flag = Cell(5, "i")
    reconsume_times = Cell(6, "i")
    body_size = Cell(7, "i")
    topic_size = Cell(8, "i")
    properties_size = Cell(9, "i")
    tags_size = Cell(10, "i")
    keys_size = Cell(11, "i")
    uniq_key_size = Cell(12, "i")

    def __repr__(self) -> str:
        end = f"{self.stop.name} at {self.next_position}"
        return f"LogColumns({self.count} records of a buffer at {self.physical_offset}, {end})"


COLUMN_NAMES: Final = LogColumns.COLUMN_NAMES
"""Names of its columns, first the 64-bit ones, in the order of the arena."""


class QueueRun(NamedTuple):
    """Units of one queue with consecutive queue offsets, ready to be written to its consume queue.

    ``units`` are 20 bytes each; the first has queue offset ``first_queue_offset``. The records take ``size_bytes``.
    """

    topic: bytes
    queue_id: int
    first_queue_offset: int
    units: bytes
    min_store_timestamp_ms: int
    max_store_timestamp_ms: int
    size_bytes: int


INDEX_KEY: Final = struct.Struct(">iqq")
"""A key that is to be filed in an index file: its hash as filed, physical offset and store time in ms of its record."""


PLACE: Final = struct.Struct("=5q")
"""Where a record should be: its physical offset, size, queue offset, the number of its queue among those that it is
given with, and its position in a buffer."""


class IndexSlots(NamedTuple):
    """What the entries of an index file say its slots must hold.

    ``slots`` is the slot area of the file; ``entries`` entries were gone through, ``used`` slots are not empty, and the
    last entry is of the record at ``end_physical_offset``. ``bad`` is the first entry that contradicts those before it,
    at which the walk ended; 0 when there is none.
    """

    slots: bytearray
    entries: int
    used: int
    end_physical_offset: int
    bad: int


PreparedMessage = tuple[bytes, Buffer, bytes, int, int, int, int, bytes, bytes, int, int, int]
"""A message as :func:`Kernels.put_batch` takes it: topic, body, properties, queue_id, flag, sys_flag,
born_timestamp_ms, born_host, store_host, reconsume_times, prepared_transaction_offset, magic. These are the
last arguments of :func:`Kernels.put_message`: all that is known before the place in the log is."""


class Strings(NamedTuple):
    """A string or binary column in Arrow's layout. ``validity`` is None when no row is null."""

    offsets: Any
    data: Any
    validity: Any


class StringLists(NamedTuple):
    """A list<string> column in Arrow's layout; ``list_offsets`` count in the strings of ``offsets``."""

    list_offsets: Any
    offsets: Any
    data: Any
    validity: Any


class StringMaps(NamedTuple):
    """A map<string, string> column in Arrow's layout; rows without properties are empty maps, not null."""

    list_offsets: Any
    name_offsets: Any
    name_data: Any
    value_offsets: Any
    value_data: Any


class Kernels(KafkaKernels, StoreKernels, Protocol):
    """The functions of this package. They release the interpreter lock while they work on large inputs.

    All raise UsageError for positions, ranges or rows that lie outside what was given, and BufferError or
    TypeError for objects that are no contiguous (where needed: writable) buffers.
    """

    NAME: str
    """``"native"`` or ``"pure"``."""
    MessageFields: type[Any]
    """The class that :class:`mqstore.Message` is made of, quick to construct and to take apart."""

    def crc32(self, data: Buffer, value: int = 0, /) -> int:
        """CRC-32 of ``data``, continuing ``value``; equals ``zlib.crc32``."""

    def scan(
        self,
        buffer: Buffer,
        position: int,
        end: int,
        physical_offset: int,
        *,
        max_records: int = 65536,
        check_crc: bool = True,
    ) -> LogColumns:
        """Read records from ``position`` on until one of the reasons in :class:`Stop`.

        A record counts when it is wholly valid by the rules of :class:`~mqstore.layout.record.Damage`
        (docs/format/commit-log.md). It is SHORT rather than damaged when it reaches past ``end`` and as much
        as can be seen of magic, size and own offset is right.

        Args:
            buffer: bytes of the log; nothing outside [position, end) is looked at.
            physical_offset: log offset of the buffer's byte 0: a record at position p must say
                ``physical_offset + p``.
            max_records: stop after this many.
            check_crc: whether bodies are checked against their checksums.
        """

    def scan_at(
        self, buffer: Buffer, places: Buffer, queues: Sequence[tuple[bytes, int]], *, check_crc: bool = True
    ) -> tuple[LogColumns, bytearray]:
        """The records at given places of a buffer, which may hold bytes from all over the log.

        A record counts when :meth:`scan` would count it, and it is all that its place says: nothing outside of the
        bytes of its place is looked at.

        Args:
            buffer: holds the records.
            places: one :data:`PLACE` behind the other, in any order, overlapping or not.
            queues: topics and numbers of the queues that they are of.
            check_crc: whether bodies are checked against their checksums.

        Returns the records in the order of their places, and a byte for each place: 1 where the record is, 0 where a
        place lies outside the buffer or holds no such record. ``stop`` means nothing here.
        """

    def resync(self, buffer: Buffer, position: int, end: int, physical_offset: int) -> int:
        """First position in [position, end) where a record starts, or -1.

        A record that lies inside the range must be wholly valid including its checksum, so headers that are
        part of a message's body are passed over; of one that reaches past ``end``, magic, size and own offset
        must be right, which takes 36 bytes. The time taken grows with the range only, whatever the bytes are.
        """

    def queue_runs(
        self, buffer: Buffer, columns: LogColumns, start: int, stop: int, delay_ms: Sequence[int]
    ) -> list[QueueRun]:
        """Queue units of the rows [start, stop), collected into runs of consecutive queue offsets.

        Runs come in the order of their first rows; a queue whose offsets jump or step back starts a new run.
        Prepared and rollback records have no unit. The code of a unit is the hash of the tags; in the
        schedule topic it is the time in ms at which a record with property DELAY is due
        (docs/format/consume-queue.md).

        Args:
            delay_ms: delay in ms by level, level 0 unused; higher levels count as the last. A memoryview of
                format ``q``, or any sequence. Shorter than two: nothing is delayed.
        """

    def index_put(
        self,
        index_buffer: Any,
        hash_slots: int,
        max_entries: int,
        buffer: Buffer,
        columns: LogColumns,
        row: int,
        key: int,
        stop: int,
    ) -> tuple[int, int]:
        """File the keys of the rows [row, stop) in an index file (docs/format/index-file.md).

        Every row's unique key comes first, then the parts of its property KEYS; rollback records have no
        keys. Nothing is skipped because it was there before.

        Args:
            index_buffer: the whole index file, writable.
            hash_slots, max_entries: its dimensions.
            row, key: where to begin: key number ``key`` of row ``row``.

        Returns (stop, 0) when all is done. Otherwise (row, key) of the first key that found the file full; a
        row also counts as "found it full" when it has no keys, because the original takes a new file then,
        too.
        """

    def index_keys(self, buffer: Buffer, columns: LogColumns, row: int, stop: int) -> bytes:
        """The keys of the rows [row, stop), each as :data:`INDEX_KEY`, in the order in which :meth:`index_put` files
        them.
        """

    def index_entries(self, head: Any, hash_slots: int, keys: Buffer) -> bytes:
        """The entries that keys get in an index file, for keys that :meth:`index_keys` gave: as :meth:`index_put` files
        them. They belong behind the entries that the header counts; how many a file takes is the caller's to know.

        Args:
            head: header and slots of the file, writable, which are brought up to date; entries are not looked at.
            hash_slots: how many slots the file has.
            keys: one :data:`INDEX_KEY` behind the other.
        """

    def index_slots(
        self, entries: Buffer, hash_slots: int, log_end: int, after: IndexSlots | None = None
    ) -> IndexSlots:
        """Build the slots of an index file from its entries, up to the first of a record at or behind ``log_end``.

        Every entry must lead on to the newest one before it in its slot, and be of the same record as the entry before
        it or a later one.

        Args:
            entries: entries of the file, one behind the other: from number 1 on, or from behind those of ``after``.
            hash_slots: how many slots the file has.
            after: what a former call gave of the entries in front of these; its ``slots`` are gone on with.
        """

    def put_message(
        self,
        buffer: Any,
        position: int,
        limit: int,
        physical_offset: int,
        queue_offset: int,
        store_timestamp_ms: int,
        topic: bytes,
        body: Buffer,
        properties: bytes,
        queue_id: int,
        flag: int,
        sys_flag: int,
        born_timestamp_ms: int,
        born_host: bytes,
        store_host: bytes,
        reconsume_times: int,
        prepared_transaction_offset: int,
        magic: int,
        /,
    ) -> int:
        """Write one record at ``position`` of a mapped log file; its size, or 0 when it does not fit.

        It fits when 8 bytes stay free between it and ``limit``; nothing is written otherwise. The bytes are
        those of :func:`~mqstore.layout.record.encode_record`, and so are the errors.

        Args:
            physical_offset: log offset of the buffer's byte 0; the record will say ``physical_offset +
                position``.
        """

    def put_batch(
        self,
        buffer: Any,
        position: int,
        limit: int,
        physical_offset: int,
        store_timestamp_ms: int,
        queue_offsets: Sequence[int],
        messages: Sequence[PreparedMessage],
        start: int = 0,
        /,
    ) -> list[int]:
        """Write ``messages[start:]`` one behind the other until one does not fit; the sizes of those written.

        Message i gets queue offset ``queue_offsets[i]``. When a message is refused with an error, those
        before it were written, but nothing tells a reader that they count: go on as if the call had not been
        made.
        """

    def select_units(
        self, units: Buffer, tag_codes: Collection[int] | None = None, min_physical_offset: int = 0
    ) -> memoryview:
        """Numbers (format ``i``) of the 20-byte units that point at a record and match.

        Unwritten units and pre-blank fillers never match. ``tag_codes`` are the signed 32-bit hashes of the
        tags asked for, None for all; only the low 32 bits of a unit's code are compared, so do not give them
        for the schedule topic. Bytes behind the last whole unit are ignored.
        """

    def find_property(
        self, buffer: Buffer, columns: LogColumns, name: bytes, start: int, stop: int
    ) -> tuple[memoryview, memoryview]:
        """Places of the values of property ``name`` in rows [start, stop): positions and sizes, -1 without
        it.
        """

    def gather(
        self,
        buffer: Buffer,
        positions: Column,
        sizes: Column,
        start: int,
        stop: int,
        *,
        utf8: bool = False,
        allocate: Allocate | None = None,
    ) -> Strings:
        """The bytes at the places of rows [start, stop) as one column; rows with a negative size are null.

        Args:
            utf8: replace malformed UTF-8 by U+FFFD as Java does, so that the data is valid.
            allocate: makes the buffers returned (default: bytearrays).

        Raises OverflowError when the column would hold 2 GiB or more: take fewer rows. So do all below.
        """

    def split_keys(
        self, buffer: Buffer, columns: LogColumns, start: int, stop: int, *, allocate: Allocate | None = None
    ) -> StringLists:
        """The user keys of each row: property KEYS split at blanks, empty parts dropped; null without it."""

    def properties_map(
        self, buffer: Buffer, columns: LogColumns, start: int, stop: int, *, allocate: Allocate | None = None
    ) -> StringMaps:
        """The properties of each row: of several with one name the last value, at the place of the first."""

    def host_text(
        self,
        buffer: Buffer,
        columns: LogColumns,
        start: int,
        stop: int,
        *,
        store: bool = False,
        allocate: Allocate | None = None,
    ) -> Strings:
        """Born hosts (``store``: store hosts) as :func:`~mqstore.layout.hosts.decode_host` writes them."""

    def msg_id_text(
        self, buffer: Buffer, columns: LogColumns, start: int, stop: int, *, allocate: Allocate | None = None
    ) -> Strings:
        """The offset message ids (docs/format/message-id.md)."""

    def ms_to_us(self, column: Column, start: int, stop: int, *, allocate: Allocate | None = None) -> Any:
        """Times in ms as times in µs, 64 bits each; what does not fit becomes the least or greatest number."""
