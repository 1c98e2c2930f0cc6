"""What a running store asks of the kernels: to put messages at the log's end, to get them from a queue or by key."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from mqstore.layout.buffers import Buffer
from mqstore.layout.record import Record

if TYPE_CHECKING:
    from mqstore.kernels.api import LogColumns


class LogTail(Protocol):
    """Where a commit log ends, and the window of mapped memory behind that in which records may be put.

    The store has one. Its lock-free :meth:`put` serves ordinary messages of known topics; whatever is out of the
    ordinary (a topic's first message, delay, transactions, other hosts, the end of the window, anything illegal) it
    leaves to the plain path, which defines what is right and works on the same numbers.

    Attributes:
        end_offset: physical offset at which the next record goes.
        last_timestamp_ms: store time of the newest record.
        last_record_offset: physical offset of the newest record, -1 when there is none.
        is_open: whether :meth:`put` may write. The plain path clears it while it holds the log's lock.
        max_body: bytes a body may have; may be changed at any time.
        plain_property: messages with this property are left to the plain path; None is none.
        queue_counts: known topics, and how many queues each has for writing.
        next_offsets: next queue offset by topic and queue id; topics are never removed from it.
        turns: by topic, how many messages that named no queue have been given one in turn.
    """

    end_offset: int
    last_timestamp_ms: int
    last_record_offset: int
    is_open: bool
    max_body: int
    plain_property: str | None
    queue_counts: dict[str, int]
    next_offsets: dict[str, list[int]]
    turns: dict[str, int]

    def attach(self, buffer: Any, start: int, /) -> None:
        """Make ``buffer``, whose byte 0 is at physical offset ``start``, the window; nothing is writable yet."""

    def allow(self, writable_to: int, /) -> None:
        """Records may be written up to this physical offset, which lies in the window."""

    def detach(self) -> None:
        """Let go of the window, so that it can be unmapped."""

    def put(self, message: Any, /) -> Any:
        """Write one message and give its result, or None when it is left to the plain path and nothing changed."""

    def put_batch(self, messages: list[Any], /) -> list[Any] | None:
        """Write all messages, or None when one of them is left to the plain path and nothing changed."""


TextColumn = tuple[Any, Any, Any]
"""A string or binary column as Arrow's large kinds have it: 64-bit offsets, data, and a bit for each row that is not
null, or None when none is."""


class RowColumns(NamedTuple):
    """Messages as columns, ready for the log. Columns of numbers are buffers of native 32-bit integers.

    ``size`` is the number of rows; ``topic_of`` are numbers of ``topics``; ``queue_of`` is -1 where the topic's queues
    take turns; ``keys`` are the keys of a row parted by blanks. ``keys_first`` is the order of KEYS and TAGS in a
    properties string.
    """

    size: int
    topics: TextColumn
    topic_of: Any
    queue_of: Any
    body: TextColumn
    tags: TextColumn | None
    keys: TextColumn | None
    keys_first: bool


class StoreKernels(Protocol):
    """The functions behind ``put``, ``get`` and ``query``; a part of :class:`mqstore.kernels.api.Kernels`."""

    def log_tail(
        self, message_type: type, result_type: type, put_ok: object, store_host: bytes, max_body: int, /
    ) -> LogTail:
        """A :class:`LogTail`.

        Args:
            message_type: the only class whose objects :meth:`LogTail.put` takes, one made of ``MessageFields``.
            result_type: the named tuple of 8 fields that it returns.
            put_ok: the status in it.
            store_host: address and port of this store, 8 or 20 bytes; also the host of messages that name none.
            max_body: bytes a body may have at first.
        """

    def measure_rows(
        self, columns: RowColumns, max_body: int, max_queue: int, hosts_size: int, /
    ) -> tuple[int, int, int]:
        """The first row that :meth:`put_rows` cannot put, -1 if it can put all; all bytes and the most bytes of those
        before it.

        That is a row without a body or with one longer than ``max_body``, of no topic or of a queue above
        ``max_queue``, or with tags or keys that are empty or would not read back as they are.

        Args:
            hosts_size: bytes of the two host fields of a record together.
        """

    def put_rows(
        self,
        buffer: Any,
        position: int,
        limit: int,
        physical_offset: int,
        store_timestamp_ms: int,
        host: bytes,
        columns: RowColumns,
        start: int,
        stop: int,
        queue_base: Any,
        queue_counts: Any,
        turns: Any,
        next_offsets: Any,
        /,
    ) -> tuple[int, int, int]:
        """Write the rows [start, stop) as records one behind the other, as long as they fit; measured before.

        Args:
            buffer, position, limit, physical_offset: where to, as for :meth:`put_batch`.
            store_timestamp_ms: their store time and born time.
            host: both hosts.
            queue_base: by topic, where its queue 0 is in ``next_offsets``; 64 bits each, as are the next three.
            queue_counts: by topic, how many queues take turns; a row that names a higher one makes it more.
            turns: by topic, how many messages have taken a turn; counted up.
            next_offsets: next queue offsets; counted up.

        Returns the first row that was not written, the position behind the last one that was, and its own, -1 if none.
        """

    def unit_span(
        self,
        units: Buffer,
        first: int,
        most: int,
        tag_codes: Collection[int] | None,
        gap_bytes: int,
        span_bytes: int,
        /,
    ) -> tuple[int, int] | None:
        """Where the records of the next ``most`` wanted units lie: [start, end) of the log, None if there are none.

        Ends in front of a unit whose record is not among the next ``gap_bytes`` behind the one before, or would make
        the range longer than ``span_bytes``.
        """

    def take_messages(
        self,
        units: Buffer,
        first: int,
        queue_offset: int,
        data: Buffer,
        data_offset: int,
        topic: bytes,
        queue_id: int,
        tags: Collection[bytes] | None,
        tag_codes: Collection[int],
        most: int,
        most_bytes: int,
        messages: list[Record],
        record_type: type[Record],
        /,
    ) -> tuple[int, int]:
        """Append to ``messages`` the records of the next units, for as long as nothing is out of the ordinary.

        Args:
            units: raw units, and ``first`` the number of the one to begin with.
            queue_offset: queue offset of that one.
            data: bytes of the log from ``data_offset`` on.
            topic, queue_id: the queue; a record that names another is left to the caller.
            tags: the tags wanted, in UTF-8, and ``tag_codes`` their hashes; None is all messages.
            most, most_bytes: how many messages there may be, and how many bytes of records may be added.

        Returns how many units were dealt with and how many bytes of records were added. The next unit is one whose
        record does not lie in ``data``, is damaged or not what the unit says, or whose tag is not ASCII, unless a
        limit was reached.
        """

    def scan_units(
        self,
        units: Buffer,
        first: int,
        queue_offset: int,
        data: Buffer,
        data_offset: int,
        topic: bytes,
        queue_id: int,
        /,
    ) -> LogColumns:
        """The records of the units from ``first`` on as columns, for as long as nothing is out of the ordinary.

        Arguments as of :meth:`take_messages`. The unit behind the last row is one whose record does not lie in
        ``data``, is damaged or not what the unit says. ``stop`` means nothing here.
        """

    def key_hash(self, topic: bytes, key: bytes, /) -> int:
        """The number that a key is filed under, of topic and key in UTF-8: :func:`mqstore.layout.index.key_hash`."""

    def index_find(
        self,
        source: int | Buffer,
        end: int,
        hash_slots: int,
        max_entries: int,
        key_hash: int,
        number: int,
        most: int,
        begin_ms: int,
        end_ms: int,
        /,
    ) -> tuple[list[int], int] | None:
        """Physical offsets filed under ``key_hash`` in an index file, newest entry first (docs/format/index-file.md).

        These are candidates: other keys can have the same hash, and the file knows times only to the second, so that
        entries up to 999 ms older than ``begin_ms`` are among them.

        Args:
            source: descriptor of the file, or its bytes in memory, of which only those before ``end`` are looked at.
            hash_slots, max_entries: its dimensions.
            number: entry to begin with, 0 for the newest of the hash's slot.
            most: how many entries are looked at, 64 at the most.

        Returns the offsets and the entry to go on with, 0 at the end of the chain. None when the header is broken, a
        number leads nowhere or not back, or the file cannot be read: the plain path can tell which.
        """

    def record_with_key(
        self,
        source: int | Buffer,
        end: int,
        position: int,
        room: int,
        physical_offset: int,
        topic: bytes,
        key: bytes,
        begin_ms: int,
        end_ms: int,
        record_type: type[Record],
        /,
    ) -> Record | Literal[False] | None:
        """The record at ``position`` of a log file, if it is of ``topic``, bears ``key`` and is of the time window.

        Args:
            source, end: the file, as for :meth:`index_find`.
            room: bytes from ``position`` to the file's end.
            topic, key: ASCII; other text may be mended on reading, which is left to the plain path.
            begin_ms, end_ms: store times, both inclusive.

        Returns False for a sound record that is not wanted, None when there is no sound record or it is larger than
        8 MiB: the plain path can tell.
        """
