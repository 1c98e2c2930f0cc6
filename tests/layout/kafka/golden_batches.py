"""Golden segments, and what Kafka's classes say about their batches and records."""

from __future__ import annotations

import base64
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DIRECTORIES = (
    "plain-0", "codecs-0", "legacyv0-0", "legacyv1-0", "mixed-0", "txn-0", "compacted-0", "recovered-0",
)  # fmt: skip
"""All of which there are expectations: all but the crash image."""
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
TIMESTAMP_TYPES = {"NoTimestampType": -1, "CreateTime": 0, "LogAppendTime": 1}

Rows = dict[str, list[dict[str, Any]]]


def log_files(golden: Path, directory: str) -> list[tuple[int, bytes]]:
    """Base offset and bytes of every segment's log."""
    return [(int(path.stem), path.read_bytes()) for path in sorted((golden / directory).glob("*.log"))]


def expected_batches(expected: Rows, directory: str, segment: int) -> list[dict[str, Any]]:
    """The batches of a segment in order."""
    return [row for row in expected["batch"] if (row["dir"], row["segment"]) == (directory, segment)]


def expected_records(expected: Rows, directory: str, segment: int) -> dict[int, list[dict[str, Any]]]:
    """The records of a segment's batches by the batches' positions."""
    found: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in expected["record"]:
        if (row["dir"], row["segment"]) == (directory, segment):
            found[row["batchPosition"]].append(row)
    return found


def unbase64(text: str | None) -> bytes | None:
    """Bytes of a Base64 text; None stays None."""
    return None if text is None else base64.b64decode(text)


def sound_batches(golden: Path, expected: Rows, directory: str) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Log and expectation of every batch that is sound."""
    for base, log in log_files(golden, directory):
        for row in expected_batches(expected, directory, base):
            if row["valid"]:
                yield log, row
