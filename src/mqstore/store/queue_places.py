"""Which queues the rows of a table go to, and their next offsets, as numbers side by side."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from mqstore.kernels.store_api import LogTail, RowColumns


@dataclass
class Rows:
    """A table that may be put: every row of it was measured.

    Attributes:
        columns: the rows.
        topics: their topics, in the order of their numbers.
        queue_counts: by topic, how many queues take turns; 64 bits each.
        most_queues: how many queues a topic has at the most.
        host: the store's own host, of every record.
        largest: bytes of the largest record.
        left: bytes of the records that are not put yet.
    """

    columns: RowColumns
    topics: Sequence[str]
    queue_counts: array[int]
    most_queues: int
    host: bytes
    largest: int
    left: int


class QueuePlaces:
    """Next queue offsets and turns of a table's topics, taken from the log's tail; it must be locked meanwhile.

    Attributes:
        base: by topic, where its queue 0 is in ``next_offsets``.
        next_offsets: next offset by queue, of all topics.
        turns: by topic, how many messages have taken a turn.
    """

    def __init__(self, rows: Rows, tail: LogTail) -> None:
        width = rows.most_queues
        self._topics = rows.topics
        self._width = width
        self.base = array("q", range(0, len(rows.topics) * width, width))
        self.turns = array("q", [tail.turns.get(topic, 0) for topic in rows.topics])
        self.next_offsets = array("q", bytes(8 * len(rows.topics) * width))
        for base, topic in zip(self.base, rows.topics, strict=True):
            known = tail.next_offsets.get(topic, ())[:width]
            self.next_offsets[base : base + len(known)] = array("q", known)
        self._before = self.next_offsets[:]

    def note(self, tail: LogTail) -> None:
        """Have the tail go on from here."""
        for number, topic in enumerate(self._topics):
            start, end = self.base[number], self.base[number] + self._width
            offsets = self.next_offsets[start:end]
            if offsets == self._before[start:end]:
                continue
            tail.turns[topic] = self.turns[number]
            queues = tail.next_offsets.setdefault(topic, [])
            used = max(queue for queue, offset in enumerate(offsets) if offset != self._before[start + queue]) + 1
            queues.extend([0] * (used - len(queues)))
            for queue in range(used):
                queues[queue] = offsets[queue]
