"""Records from lines of JSON, as ``mqstore kafka dump --format json`` prints them, into a Kafka log.

The other way round of a dump: what was exported can be searched, corrected with an editor, and brought elsewhere
(docs/kafka.md, "Export, correct, import").
"""

from __future__ import annotations

import base64
import binascii
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from mqstore import errors
from mqstore.convert.partition_writer import PartitionWriter, finish_data_directory
from mqstore.files.pool import FilePool
from mqstore.files.stage import Stage
from mqstore.kafka.config import KafkaConfig
from mqstore.kafka.message import KafkaMessage
from mqstore.kafka.store import open_store
from mqstore.layout.constants import INT_MAX, LONG_MAX
from mqstore.layout.kafka.constants import NO_TIMESTAMP, TimestampType
from mqstore.layout.kafka.names import is_topic_name, partition_directory_name
from mqstore.layout.kafka.record import Header, Record

_AT_A_TIME: Final = 500
_TIMESTAMP_TYPES: Final = {
    "NoTimestampType": TimestampType.CREATE_TIME,  # of magic 0; batches of magic 2 say CreateTime, -1
    "CreateTime": TimestampType.CREATE_TIME,
    "LogAppendTime": TimestampType.LOG_APPEND_TIME,
}
_MEMBERS: Final = frozenset(
    {
        "topic", "partition", "offset", "timestamp", "timestampType", "key", "keyText", "value", "valueText", "headers",
        "batchBaseOffset", "sequence", "controlType", "coordinatorEpoch", "decoded",
    }
)  # fmt: skip
"""What a line may hold; of it sequence, batch and what was decoded are not brought along."""


@dataclass
class ImportReport:
    """What an import did.

    Attributes:
        output: the data directory.
        partitions: records by topic and partition.
        control_records: lines with control records, which were left out: a broker writes them, for its transactions.
    """

    output: Path
    partitions: dict[tuple[str, int], int] = field(default_factory=dict)
    control_records: int = 0

    @property
    def records(self) -> int:
        """How many records were written."""
        return sum(self.partitions.values())


class _Line(NamedTuple):
    number: int
    topic: str
    partition: int
    record: Record
    """Its offset is -1 where the line has none."""


def from_lines(
    lines: Iterable[str | bytes],
    output: str | os.PathLike[str],
    *,
    topic: str | None = None,
    append: bool = False,
    settings: dict[str, Any] | None = None,
) -> ImportReport:
    """Write the records of ``lines`` into a Kafka log.

    A line is a JSON object with ``key``, ``value`` (base64, or null) or ``keyText``, ``valueText``, and where they
    matter ``topic``, ``partition`` (0 without), ``offset``, ``timestamp`` in ms, ``timestampType`` and ``headers``.

    Args:
        lines: text, or UTF-8; empty ones are passed over.
        output: a new data directory, in which records keep their offsets; it is there when all lines are written, and
            not before.
        topic: the topic of all records, whatever the lines say.
        append: ``output`` is a data directory that exists: records get the offsets that come next in it. What was put
            before a bad line stays.
        settings: settings of the log, as :class:`mqstore.kafka.KafkaConfig` names them.

    Raises:
        UsageError: a line that is none, with its number; ``output`` is in use, or with ``append`` missing.
        StoreLockedError, DiskFullError, StoreIOError.
    """
    config = KafkaConfig.from_mapping(dict(settings or {}))
    report = ImportReport(Path(output))
    found = _parsed(lines, topic, report)
    if append:
        if not report.output.is_dir():
            raise errors.UsageError("there is no log to append to", path=output, hint="leave append out to make one")
        _append(found, report, config)
        return report
    with Stage(report.output) as stage:
        _write(found, report, stage.root, config)
        stage.put_in_place()
    return report


def _append(lines: Iterator[_Line], report: ImportReport, config: KafkaConfig) -> None:
    waiting: list[KafkaMessage] = []
    with open_store(report.output, config=config) as log:
        for line in lines:
            record = line.record
            time_ms = None if record.timestamp_ms == NO_TIMESTAMP else record.timestamp_ms
            waiting.append(
                KafkaMessage(line.topic, record.value, record.key, record.headers, time_ms, partition=line.partition)
            )
            if len(waiting) == _AT_A_TIME:
                log.put_batch(waiting)
                waiting = []
            _count(report, line)
        if waiting:
            log.put_batch(waiting)
        log.flush()


def _write(lines: Iterator[_Line], report: ImportReport, root: Path, config: KafkaConfig) -> None:
    writers: dict[tuple[str, int], PartitionWriter] = {}
    reading, writing = FilePool(), FilePool(writable=True)
    try:
        for line in lines:
            where = line.topic, line.partition
            writer = writers.get(where)
            if writer is None:
                writer = PartitionWriter(root / partition_directory_name(*where), config, reading, writing)
                writers[where] = writer
            record = line.record
            if record.offset < 0:
                record = record._replace(offset=writer.end_offset)
            if record.offset < writer.end_offset:
                raise errors.UsageError(
                    f"line {line.number}: offsets of a partition must ascend",
                    expected=f"{writer.end_offset} or more",
                    found=record.offset,
                    hint="a line without an offset gets the next one",
                )
            writer.append(record)
            _count(report, line)
        for writer in writers.values():
            writer.close()
    finally:
        reading.close()
        writing.close()
    finish_data_directory(root, {where: writer.end_offset for where, writer in writers.items()}, config)


def _count(report: ImportReport, line: _Line) -> None:
    where = line.topic, line.partition
    report.partitions[where] = report.partitions.get(where, 0) + 1


# -- lines


def _parsed(lines: Iterable[str | bytes], topic: str | None, report: ImportReport) -> Iterator[_Line]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            if not isinstance(row, dict):
                raise ValueError("not an object")
            if "controlType" in row:
                report.control_records += 1
                continue
            yield _line(number, row, topic)
        except (ValueError, RecursionError) as error:
            if isinstance(error, errors.MqstoreError):
                raise
            raise errors.UsageError(f"line {number} is no record: {error}", hint=_HINT) from None


_HINT: Final = "one JSON object a line, as mqstore kafka dump --format json prints them"


def _line(number: int, row: dict[str, Any], topic: str | None) -> _Line:
    """The record of one line; ValueError where it is none."""
    unknown = sorted(row.keys() - _MEMBERS)
    if unknown:
        raise ValueError(f"unknown member {unknown[0]!r}")
    name = topic if topic is not None else row.get("topic")
    if not isinstance(name, str) or not is_topic_name(name):
        raise ValueError(f"no topic can be called {name!r}" if name is not None else "no topic is named")
    if "value" not in row and "valueText" not in row:
        raise ValueError("no value; null is one")
    kind = row.get("timestampType", "CreateTime")
    if not isinstance(kind, str) or kind not in _TIMESTAMP_TYPES:
        raise ValueError(f"no such timestampType: {kind!r}")
    record = Record(
        _number(row, "offset", -1, 0, LONG_MAX - 1),
        _number(row, "timestamp", NO_TIMESTAMP, -(1 << 63), LONG_MAX),
        _TIMESTAMP_TYPES[kind],
        _data(row, "key"),
        _data(row, "value"),
        tuple(_headers(row.get("headers", []))),
    )
    return _Line(number, name, _number(row, "partition", 0, 0, INT_MAX), record)


def _number(row: dict[str, Any], name: str, default: int, least: int, most: int) -> int:
    value = row.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not (value == default or least <= value <= most):
        raise ValueError(f"{name} is {value!r}")
    return value


def _data(row: dict[str, Any], name: str) -> bytes | None:
    """Bytes from base64, or from text under a name that says so."""
    text = row.get(f"{name}Text")
    if text is not None:
        if not isinstance(text, str) or name in row:
            raise ValueError(f"{name}Text is {text!r}" if name not in row else f"{name} and {name}Text are both there")
        return text.encode()
    text = row.get(name)
    if text is None:
        return None
    if not isinstance(text, str):
        raise ValueError(f"{name} is {text!r}")
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"{name} is no base64: {error}") from None


def _headers(rows: Any) -> Iterator[Header]:
    if not isinstance(rows, list):
        raise ValueError("headers are no list")
    for row in rows:
        if not isinstance(row, dict) or not isinstance(row.get("key"), str):
            raise ValueError(f"no header: {row!r}")
        row["key"].encode()  # half a surrogate pair is no text
        if unknown := row.keys() - {"key", "value", "valueText"}:
            raise ValueError(f"unknown member {min(unknown)!r} of a header")
        yield row["key"], _data(row, "value")
