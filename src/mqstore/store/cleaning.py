"""Queues that nobody needs any more: all their messages have expired, or their topic was deleted.

Records stay in the log until they expire, as RocketMQ has it: a rebuild of the queues of a deleted topic brings them
back while the log still holds its records (docs/operations.md).
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from mqstore.layout.constants import HALF_TOPIC, LMQ_PREFIX, OP_HALF_TOPIC, SCHEDULE_TOPIC
from mqstore.store.engine import Engine
from mqstore.store.message import QueueInfo

_KEPT = (SCHEDULE_TOPIC, HALF_TOPIC, OP_HALF_TOPIC)


def expired_queues(queues: Iterable[QueueInfo]) -> list[QueueInfo]:
    """Those whose messages are all gone with the log's old files; those that the store works with itself stay."""
    return [one for one in queues if one.max_offset > 0 and one.count == 0 and one.topic not in _KEPT]


def unused_queues(queues: Iterable[QueueInfo], topics: Container[str]) -> list[QueueInfo]:
    """Those whose topic is not among the known ``topics``; those that the store works with itself stay."""
    return [
        one
        for one in queues
        if one.topic not in topics and one.topic not in _KEPT and not one.topic.startswith(LMQ_PREFIX)
    ]


def remove_queues(engine: Engine, queues: list[QueueInfo]) -> None:
    """Remove the files of ``queues``, and note that they are gone.

    Raises:
        StoreIOError: one could not be removed; the next open builds it, and what went before it, from the log.
    """
    for one in queues:
        queue = engine.queues.find(one.topic, one.queue_id)
        if queue is not None:
            engine.dispatcher.forget(queue)
            queue.destroy()
    for topic in {one.topic for one in queues}:
        if not engine.queues.of_topic(topic):
            engine.topic_counts.forget(topic)
    engine.note_removed_queues()
