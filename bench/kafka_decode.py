"""Measure reading Kafka's record batches beside aiokafka and kafka-python, on the same bytes, in the same run.

    python bench/kafka_decode.py [--rounds 7] [--megabytes 64] [--quick]

Segments of uncompressed batches of 16 KiB lie in memory; records have values of 100 B or 1 KiB, keys of 8 bytes and no
headers. Here every record becomes a row of columns (offset, timestamp, places of key, value and headers), or of Arrow
buffers with the bytes of keys and values. The others make one Python object of each record; its offset, timestamp, key
and value are read. Rounds alternate. Results are medians with the lowest and highest round, and the ratio of medians to
the faster of the others; they go to ``bench/results/`` as JSON and Markdown.
"""

from __future__ import annotations

import argparse
import importlib
import json
import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from mqstore import kernels
from mqstore.bench.machine import machine
from mqstore.kernels.kafka_api import BatchStop, RecordStop
from mqstore.layout.kafka.batch import assemble_batch

ROOT = Path(__file__).resolve().parent.parent
BATCH_BYTES = 16 << 10
CHUNK_BYTES = 1 << 20
SLOW_SHARE = 16
"""kafka-python gets one part in so many: it is that slow."""

Read = Callable[[bytes, bool], int]
"""Reads a segment, checking checksums or not; the number of records."""


def make_segment(value_bytes: int, size_bytes: int) -> tuple[bytes, int]:
    """A segment of about ``size_bytes``, and how many records it has."""
    chance = random.Random(7)
    batches: list[bytes] = []
    offset = size = 0
    per_batch = max(1, BATCH_BYTES // (value_bytes + 18))
    keys = [chance.randbytes(8) for _ in range(per_batch)]
    values = [chance.randbytes(value_bytes) for _ in range(per_batch)]
    deltas = [3 * number + chance.randrange(3) for number in range(per_batch)]
    body = bytes(kernels.kafka_encode(keys, values, None, deltas))
    while size < size_bytes:
        batch = assemble_batch(
            body,
            record_count=per_batch,
            last_offset_delta=per_batch - 1,
            base_timestamp_ms=1_700_000_000_000 + offset,
            max_timestamp_ms=1_700_000_000_000 + offset + deltas[-1],
            attributes=0,
            base_offset=offset,
            leader_epoch=0,
            checksum=kernels.crc32c,
        )
        batches.append(batch)
        offset += per_batch
        size += len(batch)
    return b"".join(batches), offset


def to_columns(data: bytes, check_crc: bool) -> int:
    """Columns of numbers and places, a megabyte of log at a time."""
    return sum(records.count for _, records in _chunks(data, check_crc))


def to_arrow(data: bytes, check_crc: bool) -> int:
    """The same, and keys and values copied into Arrow's buffers."""
    count = 0
    for view, records in _chunks(data, check_crc):
        kernels.gather(view, records.key_position, records.key_size, 0, records.count)
        kernels.gather(view, records.value_position, records.value_size, 0, records.count)
        count += records.count
    return count


def _chunks(data: bytes, check_crc: bool) -> Any:
    position = 0
    while position < len(data):
        end = min(position + CHUNK_BYTES, len(data))
        batches = kernels.kafka_batches(data, position, end, check_crc=check_crc)
        if batches.count == 0 or batches.stop not in (BatchStop.END, BatchStop.SHORT):
            raise RuntimeError(f"the segment is not sound: {batches}")
        records = kernels.kafka_batch_records(data, batches, 0, batches.count)
        if records.stop is not RecordStop.END:
            raise RuntimeError(f"the segment is not sound: {records}")
        yield data, records
        position = batches.next_position


def with_objects(package: str) -> Read | None:
    """One Python object for each record, by the ``MemoryRecords`` of another client; None when it is not installed."""
    try:
        memory_records = importlib.import_module(f"{package}.record.memory_records").MemoryRecords
    except ImportError:
        return None

    def read(data: bytes, check_crc: bool) -> int:
        count = 0
        records = memory_records(data)
        while (batch := records.next_batch()) is not None:
            if check_crc and not batch.validate_crc():
                raise RuntimeError("the segment is not sound")
            for record in batch:
                _ = record.offset, record.timestamp, record.key, record.value
                count += 1
        return count

    return read


def ways() -> dict[str, Read]:
    """What is measured: ours first."""
    others = {name: with_objects(package) for name, package in (("aiokafka", "aiokafka"), ("kafka-python", "kafka"))}
    found: dict[str, Read] = {"mqstore, columns": to_columns, "mqstore, Arrow": to_arrow}
    for name, read in others.items():
        if read is None:
            print(f"no {name} beside: it is not installed", file=sys.stderr)
        else:
            found[name] = read
    return found


@dataclass
class Result:
    """All rounds of one row, in records a second, by way."""

    name: str
    record_bytes: float
    rates: dict[str, list[float]] = field(default_factory=dict)


def measure_all(arguments: argparse.Namespace) -> list[Result]:
    """Run all rounds."""
    results = []
    for value_bytes in (100, 1024):
        data, count = make_segment(value_bytes, arguments.megabytes << 20)
        part, part_count = make_segment(value_bytes, (arguments.megabytes << 20) // SLOW_SHARE)
        for check_crc in (False, True):
            name = f"{value_bytes} B values, CRC {'checked' if check_crc else 'not checked'}"
            result = Result(name, len(data) / count)
            for _ in range(arguments.rounds):
                for way, read in ways().items():
                    given, expected = (part, part_count) if way == "kafka-python" else (data, count)
                    started = time.perf_counter()
                    found = read(given, check_crc)
                    elapsed = time.perf_counter() - started
                    if found != expected:
                        raise RuntimeError(f"{way} found {found} of {expected} records")
                    result.rates.setdefault(way, []).append(found / elapsed)
            print(name, file=sys.stderr)
            results.append(result)
    return results


def ratio(result: Result) -> float | None:
    """Our columns by the faster of the others; None without any."""
    others = [statistics.median(rates) for way, rates in result.rates.items() if not way.startswith("mqstore")]
    return statistics.median(result.rates["mqstore, columns"]) / max(others) if others else None


def report(results: list[Result], arguments: argparse.Namespace) -> str:
    """The results as Markdown."""
    names = list(results[0].rates)
    lines = [
        f"# Reading record batches, measured on {datetime.now(timezone.utc):%Y-%m-%d}",
        "",
        f"{machine()}; kernels {kernels.NAME}; uncompressed batches of 16 KiB, segments of {arguments.megabytes} MiB",
        f"in memory, {arguments.rounds} rounds, alternating. Medians, thousands of records a second (lowest to",
        "highest), and megabytes of log; ratio: our columns by the faster of the others. kafka-python computes CRC-32C",
        "in Python unless a package for it is installed.",
        "",
        "| | " + " | ".join(names) + " | ratio |",
        "|---|" + "---|" * (len(names) + 1),
    ]
    for result in results:
        cells = [spread(result.rates[name], result.record_bytes) for name in names]
        found = ratio(result)
        lines.append("| " + " | ".join([result.name, *cells, "no peer" if found is None else f"{found:.1f}"]) + " |")
    return "\n".join(lines) + "\n"


def spread(rates: list[float], record_bytes: float) -> str:
    """Median with the extremes, and the same in megabytes."""
    middle = statistics.median(rates)
    low, high = min(rates) / 1000, max(rates) / 1000
    return f"{middle / 1000:,.0f} ({low:,.0f} to {high:,.0f}), {middle * record_bytes / 1e6:,.0f} MB"


def main(words: list[str] | None = None) -> list[Result]:
    """Measure, print and keep the report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--megabytes", type=int, default=64)
    parser.add_argument("--output", type=Path, default=ROOT / "bench" / "results")
    parser.add_argument("--quick", action="store_true", help="one small round, to see that everything runs")
    arguments = parser.parse_args(words)
    if arguments.quick:
        arguments.rounds, arguments.megabytes = 1, 1
    results = measure_all(arguments)
    text = report(results, arguments)
    print(text)
    arguments.output.mkdir(parents=True, exist_ok=True)
    (arguments.output / "kafka-decode.md").write_text(text, encoding="utf-8")
    kept = [{"name": result.name, "recordBytes": result.record_bytes, "rates": result.rates} for result in results]
    (arguments.output / "kafka-decode.json").write_text(json.dumps(kept, indent=1), encoding="utf-8")
    return results


if __name__ == "__main__":
    main()
