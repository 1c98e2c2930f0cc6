"""Names of the directories and files of a Kafka data directory (docs/format/kafka-directory.md)."""

from __future__ import annotations

import enum
import re
from typing import Final, NamedTuple

from mqstore.errors import UsageError
from mqstore.layout.constants import INT_MAX, LONG_MAX

METADATA_TOPIC: Final = "__cluster_metadata"
"""The topic in which a KRaft controller keeps its log; a reader may treat it like any other."""
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
LOCK: Final = ".lock"
META_PROPERTIES: Final = "meta.properties"
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"
CLEANER_OFFSETS: Final = "cleaner-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"

_REPLACED: Final = {
    CLEAN_SHUTDOWN, META_PROPERTIES, RECOVERY_POINTS, LOG_STARTS, CLEANER_OFFSETS, HIGH_WATERMARKS, LEADER_EPOCHS,
    PARTITION_METADATA,
}  # fmt: skip
_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}", re.ASCII)
_PARTITION: Final = re.compile(r"(.+)-(0|[1-9][0-9]{0,9})", re.ASCII)
_SUFFIXED: Final = re.compile(r"(.+)\.([0-9a-f]{32})-(delete|future|stray)", re.ASCII)
_STEM: Final = re.compile(r"([0-9]{20})(\.[a-z]+)(\.deleted|\.cleaned|\.swap)?", re.ASCII)
_SNAPSHOT: Final = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint", re.ASCII)


class PartitionState(str, enum.Enum):
    """What the name of a partition directory says about it."""

    LIVE = "live"
    DELETE = "delete"
    """Deleted; its files are removed a minute later."""
    FUTURE = "future"
    """A copy under way from another data directory."""
    STRAY = "stray"
    """Of a topic that the cluster no longer knew."""


class PartitionName(NamedTuple):
    """A partition directory's name, taken apart. The topic of a suffixed name may have been cut."""

    topic: str
    partition: int
    state: PartitionState = PartitionState.LIVE


class FileKind(str, enum.Enum):
    """The kinds of file that share a segment's stem, by suffix."""

    LOG = ".log"
    OFFSET_INDEX = ".index"
    TIME_INDEX = ".timeindex"
    TXN_INDEX = ".txnindex"
    SNAPSHOT = ".snapshot"
    """Producer state; its stem is the offset up to which it goes, not always that of a segment."""


class FileStage(str, enum.Enum):
    """The second suffix of a file that is on its way in or out."""

    LIVE = ""
    DELETED = ".deleted"
    """To be removed; a loader does it."""
    CLEANED = ".cleaned"
    """Being written by the cleaner; a loader removes it."""
    SWAP = ".swap"
    """A complete replacement; a loader finishes the renaming."""


class SegmentFile(NamedTuple):
    """The name of one file of a partition directory, taken apart."""

    offset: int
    kind: FileKind
    stage: FileStage = FileStage.LIVE

    @property
    def name(self) -> str:
        """The name itself."""
        return f"{self.offset:020d}{self.kind.value}{self.stage.value}"


def is_topic_name(name: str) -> bool:
    """Whether a topic can bear this name: 1 to 249 of ``a-z A-Z 0-9 . _ -``, not ``.`` or ``..``."""
    return _TOPIC.fullmatch(name) is not None and name not in (".", "..")


def check_topic_name(name: str) -> str:
    """Give ``name`` back; UsageError when no topic can bear it."""
    given: object = name
    if not isinstance(given, str) or not is_topic_name(given):
        raise UsageError("no topic can have this name", expected="1 to 249 of a-z A-Z 0-9 . _ -", found=repr(name))
    return name


def partition_directory_name(topic: str, partition: int) -> str:
    """Name of the directory of a partition. Raises UsageError for names and numbers that none can have."""
    check_topic_name(topic)
    number: object = partition
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= INT_MAX:
        raise UsageError("no such partition number", expected=f"0 to {INT_MAX}", found=repr(partition))
    return f"{topic}-{partition}"


def parse_partition_directory(name: str) -> PartitionName | None:
    """What a directory name stands for; None when it is no partition's.

    The number stands behind the *last* dash: a topic may itself hold dashes and end in digits.
    """
    state = PartitionState.LIVE
    suffixed = _SUFFIXED.fullmatch(name)
    if suffixed is not None:
        name, state = suffixed[1], PartitionState(suffixed[3])
    match = _PARTITION.fullmatch(name)
    if match is None or not is_topic_name(match[1]) or int(match[2]) > INT_MAX:
        return None
    return PartitionName(match[1], int(match[2]), state)


def segment_file_name(offset: int, kind: FileKind, stage: FileStage = FileStage.LIVE) -> str:
    """Name of a segment's file: its base offset in 20 digits and the suffixes.

    Raises UsageError for offsets below 0 and above 2**63 - 1.
    """
    if not 0 <= offset <= LONG_MAX:
        raise UsageError("a segment cannot start at this offset", expected=f"0..{LONG_MAX}", found=offset)
    return SegmentFile(offset, kind, stage).name


def is_temporary(name: str) -> bool:
    """Whether a file was to replace one of a data directory, and its writer was stopped before it did.

    A broker calls it ``NAME.tmp``, this package ``.NAME.XXXXXXXX.tmp`` as well. Other names on ``.tmp`` are somebody's.
    """
    plain = name.removesuffix(".tmp")
    if plain == name:
        return False
    inner = plain[1:].rpartition(".")[0] if plain.startswith(".") else ""
    return any(one in _REPLACED or _is_derived(one) for one in (plain, inner))


def _is_derived(name: str) -> bool:
    file = parse_segment_file(name)
    return file is not None and file.kind is not FileKind.LOG


def parse_segment_file(name: str) -> SegmentFile | None:
    """What a file name in a partition directory stands for; None when it belongs to no segment."""
    match = _STEM.fullmatch(name)
    if match is None or (offset := int(match[1])) > LONG_MAX:
        return None
    try:
        return SegmentFile(offset, FileKind(match[2]), FileStage(match[3] or ""))
    except ValueError:
        return None


def parse_metadata_snapshot(name: str) -> tuple[int, int] | None:
    """Offset and epoch that a KRaft snapshot (``<offset>-<epoch>.checkpoint``) is named after, or None."""
    match = _SNAPSHOT.fullmatch(name)
    return None if match is None else (int(match[1]), int(match[2]))
