"""The small text files of a Kafka data directory (docs/format/kafka-checkpoints.md)."""

from __future__ import annotations

import base64
import json
import re
import uuid
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Final, NamedTuple

from mqstore.errors import CorruptFileError
from mqstore.layout.constants import INT_MAX, LONG_MAX

VERSION: Final = 0
_TOPIC_ID_LENGTH: Final = 22


class EpochEntry(NamedTuple):
    """The leader epoch that begins at ``start_offset``."""

    epoch: int
    start_offset: int


TopicPartition = tuple[str, int]
"""A topic and the number of one of its partitions."""


def decode_leader_epochs(data: bytes) -> list[EpochEntry]:
    """The entries of ``leader-epoch-checkpoint``; none of an empty file.

    Raises CorruptFileError for anything that is no such file; epochs ascend, start offsets too.
    """
    entries = [
        EpochEntry(_number(epoch, INT_MAX), _number(start_offset, LONG_MAX))
        for epoch, start_offset in _entries(data, "leader epoch checkpoint", 2)
    ]
    for before, after in pairwise(entries):
        if after.epoch <= before.epoch or after.start_offset < before.start_offset:
            raise CorruptFileError("leader epochs are out of order", expected=f"after {tuple(before)}", found=after)
    return entries


def encode_leader_epochs(entries: Iterable[EpochEntry]) -> bytes:
    """The content of ``leader-epoch-checkpoint``."""
    return _encode([f"{entry.epoch} {entry.start_offset}" for entry in entries])


def decode_offsets(data: bytes) -> dict[TopicPartition, int]:
    """The offsets by topic and partition of one of the four ``*-offset-checkpoint`` files; none of an empty file.

    Raises CorruptFileError for anything that is no such file.
    """
    offsets = {}
    for topic, partition, offset in _entries(data, "offset checkpoint", 3):
        offsets[topic, _number(partition, INT_MAX)] = _number(offset, LONG_MAX)
    return offsets


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """The content of one of the four ``*-offset-checkpoint`` files."""
    return _encode([f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()])


def decode_topic_id(data: bytes) -> uuid.UUID:
    """The topic id of ``partition.metadata``. Raises CorruptFileError when the file is none of version 0."""
    found = re.fullmatch(r"version:\s*(\d+)\s*\ntopic_id:\s*(\S+)\s*", _text(data, "partition.metadata"))
    if found is None or found[1] != str(VERSION):
        raise CorruptFileError(
            "partition.metadata is not as it should be", expected="version: 0, topic_id", found=repr(data[:80])
        )
    return parse_uuid(found[2])


def encode_topic_id(topic_id: uuid.UUID) -> bytes:
    """The content of ``partition.metadata``."""
    return f"version: {VERSION}\ntopic_id: {format_uuid(topic_id)}\n".encode()


def parse_uuid(text: str) -> uuid.UUID:
    """The 16 bytes that Kafka writes as 22 characters of URL-safe base64. Raises CorruptFileError for other text."""
    if len(text) == _TOPIC_ID_LENGTH and re.fullmatch(r"[\w-]+", text, re.ASCII):
        return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))
    raise CorruptFileError("no id of Kafka's", expected="22 characters of base64", found=repr(text))


def format_uuid(value: uuid.UUID) -> str:
    """The 22 characters that Kafka writes for ``value``."""
    return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")


def decode_clean_shutdown(data: bytes) -> int:
    """The broker epoch of ``.kafka_cleanshutdown``; -1 when it holds none: older brokers leave the file empty."""
    try:
        epoch = json.loads(data)["brokerEpoch"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return -1
    return epoch if isinstance(epoch, int) and not isinstance(epoch, bool) else -1


def encode_clean_shutdown(broker_epoch: int = -1) -> bytes:
    """The content of ``.kafka_cleanshutdown``."""
    return f'{{"version":0,"brokerEpoch":{broker_epoch}}}'.encode()


def decode_meta_properties(data: bytes) -> dict[str, str]:
    """The pairs of ``meta.properties``: Java properties of plain keys and values.

    Raises CorruptFileError when it has no ``version``.
    """
    pairs = {}
    for line in _text(data, "meta.properties").splitlines():
        line = line.strip()
        if line and line[0] not in "#!":
            name, _, value = line.partition("=")
            pairs[name.strip()] = value.strip()
    if "version" not in pairs:
        raise CorruptFileError("meta.properties names no version", expected="version=0 or 1", found=sorted(pairs))
    return pairs


def encode_meta_properties(pairs: Mapping[str, str]) -> bytes:
    """The content of ``meta.properties``."""
    return "".join(f"{name}={value}\n" for name, value in pairs.items()).encode()


def _encode(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in (str(VERSION), str(len(lines)), *lines)).encode()


def _entries(data: bytes, what: str, width: int) -> list[list[str]]:
    """The words of each entry line: a version, a count and so many lines of ``width`` words."""
    lines = [line.split() for line in _text(data, what).splitlines() if line.strip()]
    if not lines:
        return []
    if lines[0] != [str(VERSION)]:
        raise CorruptFileError(f"{what} of an unknown version", expected=VERSION, found=" ".join(lines[0])[:40])
    entries = lines[2:]
    if len(lines) < 2 or len(lines[1]) != 1 or _number(lines[1][0], INT_MAX) != len(entries):
        found = " ".join(" ".join(words) for words in lines[1:2])[:40]
        raise CorruptFileError(f"{what} does not hold as many entries as it says", expected=len(entries), found=found)
    if any(len(words) != width for words in entries):
        raise CorruptFileError(f"{what} holds a line that is no entry", expected=f"{width} words a line")
    return entries


def _text(data: bytes, what: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise CorruptFileError(f"{what} is no text", found=repr(data[:40])) from None


def _number(word: str, most: int) -> int:
    if not re.fullmatch(r"[0-9]{1,19}", word, re.ASCII) or int(word) > most:
        raise CorruptFileError("not a number a checkpoint can hold", expected=f"0 to {most}", found=word[:40])
    return int(word)
