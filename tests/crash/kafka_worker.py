"""The process that is killed: ``kafka_worker.py DIRECTORY SEED FLUSH_MESSAGES``; see worker.py."""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

from crash.kafka_workload import Workload


def tell(*words: Any) -> None:
    """One line, in one write."""
    os.write(1, json.dumps(words).encode() + b"\n")


def main(directory: str, seed: str, flush_messages: int) -> None:
    """Open and work until killed; a second thread puts at the same time."""
    workload = Workload(Path(directory), f"{seed}/0", tell, flush_messages=flush_messages)
    tell("open")
    helper = Workload.__new__(Workload)
    helper.__dict__.update(workload.__dict__)
    helper._seed, helper._rng = f"{seed}/1", type(workload._rng)(f"{seed}/1")

    def put() -> None:
        while True:
            helper.store = workload.store
            try:
                with workload.calm:
                    helper._put()
            except Exception as error:
                # The other thread closes the store now and then.
                if type(error).__name__ != "StoreClosedError":
                    raise

    threading.Thread(target=put, daemon=True).start()
    while True:
        workload.step()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
