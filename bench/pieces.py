"""Where the time of single calls goes: the pieces of put, get and query, each by itself, on one thread.

    python bench/pieces.py [--rounds 40] [--directory DIR]

The pieces overlap with what calls them: the difference is the Python in between. A round repeats a piece some hundred
times; medians over the rounds with the lowest and highest, µs. The results go to ``bench/results/pieces.json`` and
``pieces.md``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mqstore import Message, Store, kernels
from mqstore.bench import machine
from mqstore.bench.store_work import TOPIC, fill, open_bench_store
from mqstore.layout.constants import LONG_MAX
from mqstore.layout.record import Record
from mqstore.store.key_lookup import KeyQuery

ROOT = Path(__file__).resolve().parent.parent
COUNT = 50_000
KEY = "777"
AT = 1000
Pieces = dict[str, tuple[Callable[[], object], int]]
"""What is called, and for how many messages."""


def message() -> Message:
    """A message as the benchmark puts it."""
    return Message(TOPIC, b"x" * 100, tags="bench", properties={"UNIQ_KEY": "1234"}, queue_id=0)


def putting(store: Store) -> Pieces:
    """Pieces of ``put`` and ``put_batch``, 100 B."""
    one, many = message(), [message() for _ in range(32)]
    tail = store._putting._tail
    return {
        "put, with making the message": (lambda: store.put(message()), 1),
        "  making the message": (message, 1),
        "  put": (lambda: store.put(one), 1),
        "    into the log (kernel)": (lambda: tail.put(one), 1),
        "put_batch of 32, with making the messages": (lambda: store.put_batch([message() for _ in range(32)]), 32),
        "    all into the log (kernel)": (lambda: tail.put_batch(many), 32),
    }


def getting(store: Store) -> Pieces:
    """Pieces of ``get``, 1 KiB, 32 messages."""
    queue = store._engine.queues.find(TOPIC, 0)
    assert queue is not None
    units = queue.units(AT, 32)
    span = kernels.unit_span(units, 0, 32, None, 16 << 10, 1 << 20)
    assert span is not None
    data = store.log.read(span[0], span[1] - span[0])
    assert data is not None

    def take() -> object:
        return kernels.take_messages(units, 0, AT, data, span[0], TOPIC.encode(), 0, None, (), 32, 1 << 20, [], Record)

    return {
        "get of 32": (lambda: store.get(TOPIC, 0, AT), 32),
        "  reading the units": (lambda: queue.units(AT, 32), 32),
        "  where the records lie (kernel)": (lambda: kernels.unit_span(units, 0, 32, None, 16 << 10, 1 << 20), 32),
        "  reading the records": (lambda: store.log.read(span[0], span[1] - span[0]), 32),
        "  making the messages (kernel)": (take, 32),
        "get_table of 8,192, 5 columns": (lambda: store.get_table(TOPIC, 0, AT, 8192, COLUMNS), 8192),
    }


COLUMNS = ("queueOffset", "tags", "keys", "body", "storeTimestamp")


def querying(store: Store) -> Pieces:
    """Pieces of ``query``, 1 KiB."""
    file = store._engine.index_files()[-1]
    query = KeyQuery(TOPIC, KEY, 0, LONG_MAX)
    number = kernels.key_hash(TOPIC.encode(), KEY.encode())
    (place,) = file.candidates(number, 0, LONG_MAX)
    return {
        "query": (lambda: store.query(TOPIC, KEY, max_messages=32), 1),
        "  what is asked for, as a tuple": (lambda: KeyQuery(*query), 1),
        "  chain in the index (kernel and call)": (lambda: file.candidates(number, 0, LONG_MAX), 1),
        "  record (kernel and call)": (
            lambda: store.log.record_with_key(place, TOPIC.encode(), KEY.encode(), 0, LONG_MAX), 1,
        ),
        "    finding its file": (lambda: store.log.entry_at(place), 1),
    }  # fmt: skip


def measure(pieces: Pieces, rounds: int, settle: Callable[[], object]) -> dict[str, list[float]]:
    """µs a message of each piece, in each round; the pieces take turns."""
    found: dict[str, list[float]] = {}
    for _ in range(rounds):
        for name, (call, messages) in pieces.items():
            repeats = max(1, 500 // messages)
            settle()
            started = time.perf_counter()
            for _ in range(repeats):
                call()
            found.setdefault(name, []).append((time.perf_counter() - started) / repeats / messages * 1e6)
    return found


def report(results: dict[str, Any]) -> str:
    """The pieces as a table."""
    lines = ["# Where the time of single calls goes", "", f"{results['machine']}; kernels {kernels.NAME}."]
    lines += ["Pieces further in are part of what stands before them. Medians of the rounds, µs a message.", ""]
    lines += ["| | median | lowest | highest |", "|---|---:|---:|---:|"]
    for name, times in results["pieces"].items():
        shown = "&nbsp;" * (len(name) - len(name.lstrip())) + name.strip()
        lines.append(f"| {shown} | {statistics.median(times):.2f} | {min(times):.2f} | {max(times):.2f} |")
    return "\n".join(lines) + "\n"


def main(words: list[str] | None = None) -> dict[str, Any]:
    """Measure, print and keep the report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--directory", type=Path, help="where the stores go; default: the temporary directory")
    parser.add_argument("--output", type=Path, default=ROOT / "bench" / "results")
    arguments = parser.parse_args(words)
    pieces: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="mqstore-bench-", dir=arguments.directory) as scratch:
        fill(Path(scratch, "filled"), COUNT)
        for directory, named in (("put", putting), ("filled", getting), ("filled", querying)):
            with open_bench_store(Path(scratch, directory)) as store:
                if directory == "put":
                    store.put(message())
                pieces |= measure(named(store), arguments.rounds, store.wait_dispatched)
    results = {"machine": machine.machine(), "pieces": pieces}
    text = report(results)
    print(text)
    arguments.output.mkdir(parents=True, exist_ok=True)
    (arguments.output / "pieces.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    (arguments.output / "pieces.md").write_text(text, encoding="utf-8")
    return results


if __name__ == "__main__":
    main()
