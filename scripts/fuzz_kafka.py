"""Feed the compiled kernels for Kafka's batches with damaged logs, and compare them with the plain ones.

    python scripts/fuzz_kafka.py [--rounds 300000] [--seed 1] [--compare 10]

Every round damages a small log of random batches (or takes random bytes) and reads it in all ways. One round in
``--compare`` is read by the plain kernels as well, and must give the same. What must not happen besides a difference: a
crash, a hang, an exception that is none of the package's own. For reading outside the buffer, build with
``MQSTORE_SANITIZE=1`` and run with ``PYTHONMALLOC=malloc`` and the sanitizer's library loaded first. It prints the seed
of the round that went wrong.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from kernels.kafka_support import contents, damaged_log, headers_of, random_log
from mqstore.errors import UsageError
from mqstore.kernels import _native, pure
from mqstore.kernels.kafka_api import IndexState

LOGS = 500


def read_all(kernels: Any, log: bytes, chance: random.Random) -> list[Any]:
    """Everything that the kernels tell of a log, in a range and with options of chance."""
    start, end = sorted((chance.choice([0, 0, chance.randint(0, len(log))]), chance.randint(len(log) // 2, len(log))))
    batches = kernels.kafka_batches(
        log, start, end, check_crc=chance.random() < 0.2, max_batches=chance.choice([1, 2, 99])
    )
    told: list[Any] = [contents(batches)]
    row = 0
    while row < batches.count:
        records = kernels.kafka_batch_records(log, batches, row, batches.count)
        told += [contents(records), headers_of(kernels.kafka_headers(log, records, 0, records.count))]
        row = records.next_row + 1
    run = kernels.kafka_index(batches, 0, batches.count, chance.choice([0, 100]), IndexState())
    told += [run.rows.tolist(), run.times_ms.tolist(), run.time_offsets.tolist(), run.state]
    alone = kernels.kafka_records(
        log, start, end, base_offset=chance.choice([0, 2**63 - 1]), last_offset=2**63 - 1,
        base_timestamp_ms=chance.choice([0, -1, 2**63 - 1]), count=chance.choice([0, 1, 3, 2**31 - 1]),
    )  # fmt: skip
    told.append(contents(alone))
    told.append(headers_of(kernels.kafka_headers(log, alone, 0, alone.count)))
    told.append(_on_another_buffer(kernels, log, batches, chance))
    return told


def _on_another_buffer(kernels: Any, log: bytes, batches: Any, chance: random.Random) -> Any:
    """The same rows, but the bytes have changed since: refused or read, never worse."""
    other = damaged_log(chance, log)
    bodies = None
    if chance.random() < 0.5:
        bodies = sorted(chance.randint(0, len(other)) for _ in range(batches.count + 1))
    try:
        records = kernels.kafka_batch_records(other, batches, 0, batches.count, bodies=bodies)
        return contents(records), headers_of(
            kernels.kafka_headers(damaged_log(chance, other), records, 0, records.count)
        )
    except UsageError as error:
        return error.message


def fuzz(rounds: int, seed: int, compare: int) -> Counter[str]:
    """Run all rounds; how the walks over batches ended. Raises RuntimeError at a difference."""
    chance = random.Random(seed)
    logs = [random_log(chance) for _ in range(min(LOGS, rounds))]
    ends: Counter[str] = Counter()
    for number in range(rounds):
        own = seed * 1_000_003 + number
        chance = random.Random(own)
        log = chance.choice(logs)
        log = chance.randbytes(chance.randint(0, 300)) if chance.random() < 0.05 else damaged_log(chance, log)
        try:
            told = read_all(_native, log, random.Random(own))
            same = number % compare != 0 or told == read_all(pure, log, random.Random(own))
        except Exception:
            print(f"round {number} of seed {seed}, log {log.hex()}", file=sys.stderr)
            raise
        if not same:
            raise RuntimeError(f"the kernels differ in round {number} of seed {seed}, log {log.hex()}")
        ends[told[0]["stop"].name if told[0]["damage"] is None else told[0]["damage"].name] += 1
    return ends


def main(words: list[str] | None = None) -> None:
    """Run and report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=300_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--compare", type=int, default=10, help="compare one round in so many")
    arguments = parser.parse_args(words)
    started = time.perf_counter()
    ends = fuzz(arguments.rounds, arguments.seed, arguments.compare)
    found = ", ".join(f"{name} {count}" for name, count in ends.most_common())
    print(f"{arguments.rounds} rounds in {time.perf_counter() - started:.0f} s: {found}")


if __name__ == "__main__":
    main()
