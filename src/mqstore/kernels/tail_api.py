"""What the end of a commit log offers to those who put messages."""

from __future__ import annotations

from typing import Any, Protocol


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
        queue_counts: known topics, and how many queues each has for writing.
        next_offsets: next queue offset by topic and queue id; topics are never removed from it.
        turns: by topic, how many messages that named no queue have been given one in turn.
    """

    end_offset: int
    last_timestamp_ms: int
    last_record_offset: int
    is_open: bool
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
