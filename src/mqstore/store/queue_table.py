"""All queues of a running store, found by name and made when their first message comes."""

from __future__ import annotations

import logging

from mqstore.files.pool import FilePool
from mqstore.store.consume_queue import ConsumeQueue
from mqstore.store.paths import StorePaths, is_directory_name

_log = logging.getLogger(__name__)


class QueueTable:
    """All queues of a store, by topic and queue id."""

    def __init__(self, paths: StorePaths, pool: FilePool, file_size: int, ext_file_size: int | None = None) -> None:
        """``ext_file_size``: the size of ext files, which every queue then keeps; None is that none does."""
        self._paths = paths
        self._pool = pool
        self._file_size = file_size
        self._ext_file_size = ext_file_size
        self._queues: dict[tuple[str, int], ConsumeQueue] = {}
        self._of_topic: dict[str, dict[int, ConsumeQueue]] = {}
        self._refused: set[str] = set()

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue, or None when there is none."""
        return self._queues.get((topic, queue_id))

    def get_or_create(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue, made if need be; None for a topic or id that no directory can be named after."""
        queue = self._queues.get((topic, queue_id))
        if queue is not None:
            return queue
        if not is_directory_name(topic) or queue_id < 0:
            if topic not in self._refused:
                self._refused.add(topic)
                _log.warning(
                    "records of topic %r, queue %d are in no queue: no directory can bear that name",
                    topic,
                    queue_id,
                )
            return None
        directory = self._paths.queue(topic, queue_id)
        queue = ConsumeQueue(topic, queue_id, directory, self._pool, self._file_size)
        if self._ext_file_size is not None:
            queue.enable_ext(self._ext_file_size)
        self._queues[topic, queue_id] = queue
        # A new dict, because other threads may be going through the old one.
        self._of_topic[topic] = {**self._of_topic.get(topic, {}), queue_id: queue}
        return queue

    def remove(self, queue: ConsumeQueue) -> None:
        """Know ``queue`` no more; its next message makes it anew."""
        del self._queues[queue.topic, queue.queue_id]
        rest = {number: one for number, one in self._of_topic[queue.topic].items() if one is not queue}
        if rest:
            self._of_topic[queue.topic] = rest
        else:
            del self._of_topic[queue.topic]

    def all(self) -> list[ConsumeQueue]:
        """Every queue, ordered by topic and id."""
        return [queue for _, queue in sorted(self._queues.copy().items())]  # others may come and go meanwhile

    def of_topic(self, topic: str) -> list[ConsumeQueue]:
        """The queues of one topic, ordered by id."""
        queues = self._of_topic.get(topic, {})
        return [queues[queue_id] for queue_id in sorted(queues)]
