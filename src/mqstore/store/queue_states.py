"""Reading queues beside a rebuild in place, which moves the old ones aside and makes them anew.

Until the new queues reach as far as the old ones, these say where the messages are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from mqstore import errors
from mqstore.files.inventory import Identity, identity_of
from mqstore.files.pool import FilePool
from mqstore.store.paths import StorePaths
from mqstore.store.queue_reader import QueueReader

_ResultT = TypeVar("_ResultT")


def old_queues(paths: StorePaths) -> StorePaths | None:
    """The same store with its old queues, while a rebuild keeps them, or one that was killed has left them."""
    aside = paths.aside
    return None if identity_of(aside.consume_queue) is None else aside


def old_reader(old: StorePaths | None, topic: str, queue_id: int, pool: FilePool) -> QueueReader | None:
    """Reader of the old state of a queue that is made anew, if there is such."""
    if old is None or identity_of(old.queue(topic, queue_id)) is None:
        return None
    return QueueReader(topic, queue_id, old.queue(topic, queue_id), pool)


def while_queues_stay(paths: StorePaths, read: Callable[[], _ResultT]) -> _ResultT:
    """What ``read`` gives, or raises, done anew when the queues were moved meanwhile."""
    while True:
        before = _directories(paths)
        try:
            result = read()
        except errors.MqstoreError:
            if _directories(paths) == before:
                raise
        else:
            if _directories(paths) == before:
                return result


def _directories(paths: StorePaths) -> tuple[Identity | None, Identity | None]:
    return identity_of(paths.consume_queue), identity_of(paths.aside.consume_queue)
