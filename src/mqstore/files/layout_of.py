"""Whose a directory clearly is, told from the names in it before a writer makes anything there.

A directory that says nothing, an empty or a foreign one, is nobody's: every writer may begin in it.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from mqstore import errors
from mqstore.files.whole import mode_of

_ROCKETMQ = ("commitlog", "consumequeue")
_META_PROPERTIES = "meta.properties"
_PARTITION = re.compile(r"[a-zA-Z0-9._-]+-[0-9]{1,10}", re.ASCII)
_SEGMENT = re.compile(r"[0-9]{20}\.(log|index|timeindex)", re.ASCII)


def is_rocketmq_store(path: Path) -> bool:
    """Whether ``path`` holds the log or the queues of a RocketMQ store (docs/format/directory.md)."""
    return any(stat.S_ISDIR(mode_of(path / name)) for name in _ROCKETMQ)


def is_kafka_partition(path: Path) -> bool:
    """Whether ``path`` holds segments (docs/format/kafka-directory.md), or bears a partition's name where those lie."""
    if _PARTITION.fullmatch(path.absolute().name) and is_kafka_data_directory(path.absolute().parent):
        return True
    return not _has_meta_properties(path) and _has_segments(path)


def is_kafka_data_directory(path: Path) -> bool:
    """Whether ``path`` has a ``meta.properties``, or directories of partitions with segments in them."""
    return _has_meta_properties(path) or any(
        _PARTITION.fullmatch(name) is not None and _has_segments(path / name) for name in _names_in(path)
    )


def _has_meta_properties(path: Path) -> bool:
    return stat.S_ISREG(mode_of(path / _META_PROPERTIES))


def _has_segments(path: Path) -> bool:
    return any(_SEGMENT.fullmatch(name) for name in _names_in(path))


def refuse_for_kafka(path: Path) -> None:
    """Raise UsageError for a partition's directory, and for one that is a RocketMQ store and no data directory."""
    if is_kafka_partition(path):
        raise errors.UsageError(
            "this is a partition's directory", path=path, expected="a data directory",
            hint=f"give the data directory, perhaps {path.absolute().parent}",
        )  # fmt: skip
    if is_rocketmq_store(path) and not is_kafka_data_directory(path):
        raise errors.UsageError(
            "this directory is a RocketMQ store", path=path, expected="a Kafka data directory, or a new one",
            hint="mqstore.open writes to it; give Kafka's log a directory of its own",
        )  # fmt: skip


def refuse_for_rocketmq(path: Path) -> None:
    """Raise UsageError for a directory of Kafka's that is no RocketMQ store."""
    if not is_rocketmq_store(path) and (is_kafka_partition(path) or is_kafka_data_directory(path)):
        raise errors.UsageError(
            "this directory is Kafka's", path=path, expected="a RocketMQ store, or a new directory",
            hint="mqstore.kafka.open writes to a data directory; give the store a directory of its own",
        )  # fmt: skip


def _names_in(path: Path) -> list[str]:
    """The names in a directory; none of what is no directory, or cannot be listed: whoever needs it tells why."""
    try:
        return os.listdir(path)
    except OSError:
        return []
