"""The process that is killed: ``worker.py DIRECTORY SEED MODE``. It tells on standard output what it was promised.

A line is written before a message is put and after it was acknowledged, so that whoever reads knows at the moment of
death what may be there and what must be.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
from pathlib import Path
from queue import Empty
from typing import Any

import mqstore
from crash.workload import FAR_MS, SETTINGS, TOPICS
from mqstore import Message, Store

THREADS = 3


def tell(*words: Any) -> None:
    """One line, in one write: lines of several threads do not mix."""
    os.write(1, json.dumps(words).encode() + b"\n")


def produce(store: Store, seed: int, thread: int) -> None:
    rng = random.Random(f"{seed}/{thread}")
    number = 0
    while True:
        messages = []
        for _ in range(rng.choice([1, 1, 1, rng.randrange(1, 6)])):
            number += 1
            body = f"{seed}/{thread}/{number}:" + "x" * rng.randrange(200)
            tell("try", body)
            messages.append(
                Message(
                    rng.choice(TOPICS),
                    body.encode(),
                    tags=rng.choice([None, "a"]),
                    keys=[f"{seed}-{thread}-{number}"],
                    delay_level=rng.choice([0, 0, 0, 1]),
                )
            )
        results = [store.put(messages[0])] if len(messages) == 1 else store.put_batch(messages)
        for message, result in zip(messages, results, strict=True):
            body = bytes(message.body).decode()
            tell("put", result.topic, result.queue_id, result.queue_offset, body, result.physical_offset)


def consume(store: Store, seed: int) -> None:
    rng = random.Random(f"{seed}/consumer")
    consumer = store.consumer("group", "orders", auto_commit=False)
    while True:
        for _ in range(rng.randrange(1, 8)):
            try:
                message = consumer.get(timeout_s=0.05)
            except Empty:
                break
            if rng.random() < 0.1:
                consumer.nack(message)
            else:
                consumer.ack(message)
        consumer.commit()
        for queue in store.queues("orders"):
            offset = store.committed_offset("group", "orders", queue.queue_id)
            if offset is not None:
                tell("commit", queue.queue_id, offset)


def main(directory: str, seed: int, mode: str) -> None:
    """Open, work in all ways at once, close now and then; until killed."""
    rng = random.Random(f"{seed}/main")
    with mqstore.open(Path(directory), **SETTINGS, flush_disk_type=mode) as store:
        tell("open")
        for thread in range(THREADS):
            threading.Thread(target=produce, args=(store, seed, thread), daemon=True).start()
        threading.Thread(target=consume, args=(store, seed), daemon=True).start()
        pause = threading.Event()
        while True:
            pause.wait(rng.random() * 0.2)
            if rng.random() < 0.2:
                tell("expire", store.log_end + 4096)  # a message that is delivered meanwhile may begin a file
                store.expire(FAR_MS)
            else:
                store.flush()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
