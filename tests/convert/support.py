"""Records and messages in forms that compare across layouts."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mqstore import Record as Message
from mqstore.kafka import Record

SIZES: dict[str, Any] = {
    "mapped_file_size_commit_log": 1 << 20,
    "mapped_file_size_consume_queue": 2000,
    "max_hash_slot_num": 100,
    "max_index_num": 700,
}
"""Several files of every kind from some thousand messages."""


def golden_copy(golden_kafka: Path, target: Path) -> Path:
    """The golden data directory without its crash image."""
    ignore = shutil.ignore_patterns("crash-0", "DUMP", "EXPECTED*")
    return Path(shutil.copytree(golden_kafka, target, ignore=ignore))


def plain(records: Iterable[Record]) -> list[tuple[Any, ...]]:
    """What a consumer sees of records; batches of magic 2 know two kinds of time only."""
    return [
        (one.offset, one.timestamp_ms, max(0, one.timestamp_type), one.key, one.value, one.headers) for one in records
    ]


def members(message: Message) -> tuple[Any, ...]:
    """All of a message but its place in the log."""
    return message._replace(physical_offset=0)
