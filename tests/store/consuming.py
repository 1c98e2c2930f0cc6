"""What tests of consumers share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mqstore
from mqstore import Message, Store
from store.support import open_small


def open_wide(path: Path, **settings: Any) -> Store:
    """Files large enough for the properties of retries."""
    return open_small(path, mapped_file_size_commit_log=65536, mapped_file_size_consume_queue=2000, **settings)


def put_numbers(store: Store, count: int, topic: str = "orders", **fields: Any) -> None:
    for number in range(count):
        store.put(Message(topic, b"%d" % number, **fields))
    store.wait_dispatched()


def take(consumer: mqstore.Consumer, count: int) -> list[bytes]:
    """Bodies of the next ``count`` messages, acknowledged."""
    found = []
    for _ in range(count):
        message = consumer.get(timeout_s=5)
        consumer.ack(message)
        found.append(message.body)
    return found


def bodies(store: Store, topic: str) -> list[bytes]:
    store.wait_dispatched()
    return [message.body for message in store.get(topic, 0).messages]
