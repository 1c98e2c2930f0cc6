"""Small Kafka logs and damage, for the tests of this folder."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import mqstore.kafka as kafka
from mqstore.findings import Finding, Severity
from mqstore.kafka import KafkaMessage, KafkaStore
from mqstore.kafka.view import KafkaView
from mqstore.layout.kafka import names
from mqstore.layout.kafka.names import FileKind
from mqstore.layout.kafka.record import Record

SMALL: dict[str, Any] = {
    "segment_bytes": 2000,
    "segment_index_bytes": 400,
    "index_interval_bytes": 150,
    "file_delete_delay_ms": 0,
}
"""Segments of some twenty records, so that every border is met."""
TOPIC = "t"


def open_small(path: Path, **settings: Any) -> KafkaStore:
    return kafka.open(path, **{**SMALL, **settings})


def message(number: int, size: int = 40, **fields: Any) -> KafkaMessage:
    fields = {"topic": TOPIC, "timestamp_ms": 1_000_000 + number, **fields}
    return KafkaMessage(value=value_of(number, size), **fields)


def value_of(number: int, size: int = 40) -> bytes:
    return f"{number}:".encode().ljust(size, b"x")


def fill(path: Path, count: int, **settings: Any) -> None:
    """Put ``count`` messages, each a batch of its own, and close the store."""
    with open_small(path, **settings) as store:
        for number in range(count):
            store.put(message(number, key=f"k{number % 7}".encode()))


def partition_of(path: Path) -> Path:
    return path / f"{TOPIC}-0"


def log_files(path: Path) -> list[Path]:
    return sorted(partition_of(path).glob("*.log"))


def read_all(log: KafkaView | KafkaStore, topic: str = TOPIC, partition: int = 0, **options: Any) -> list[Record]:
    """Everything a consumer gets that polls from the start to the end."""
    offset, found = log.min_offset(topic, partition), []
    while True:
        result = log.get(topic, partition, offset, 17, **options)
        found += result.messages
        if result.next_offset <= offset:
            return found
        offset = result.next_offset


def values(path: Path) -> list[bytes | None]:
    with kafka.inspect(path) as view:
        return [record.value for record in view.partition(TOPIC).records()]


def mark_crashed(path: Path, *, forget_recovery_points: bool = True) -> None:
    """Make the directory look as after a crash."""
    (path / names.CLEAN_SHUTDOWN).unlink(missing_ok=True)
    if forget_recovery_points:
        (path / names.RECOVERY_POINTS).unlink(missing_ok=True)


def overwrite(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def flip(path: Path, position: int, bit: int = 0) -> None:
    data = path.read_bytes()
    overwrite(path, position, bytes([data[position] ^ 1 << bit]))


def tree(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()
    }


def copy_of(source: Path, target: Path) -> Path:
    return Path(shutil.copytree(source, target))


def bad(found: Iterable[Finding]) -> list[str]:
    """Messages of the findings that are worse than notes."""
    return [one.message for one in found if one.severity is not Severity.NOTE]


def batch_positions(log: Path) -> list[int]:
    with kafka.inspect(log) as view:
        return [place.position for place in view.partitions()[0].batches()]


def files_of(directory: Path, kind: FileKind) -> list[Path]:
    return sorted(path for path in directory.iterdir() if path.suffix == kind.value)
