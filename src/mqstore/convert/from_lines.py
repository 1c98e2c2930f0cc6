"""Records from lines of JSON, as ``mqstore kafka dump --format json`` prints them, into a Kafka log.

The other way round of a dump: what was exported can be searched, corrected with an editor, and brought elsewhere
(docs/kafka.md, "Export, correct, import").
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mqstore import errors
from mqstore.convert.json_lines import JsonLines
from mqstore.convert.line_spool import LineSpool
from mqstore.convert.options import check_mapping
from mqstore.convert.partition_writer import PartitionWriter, finish_data_directory
from mqstore.files.pool import FilePool
from mqstore.files.stage import Stage
from mqstore.kafka.arguments import check_flags, check_path
from mqstore.kafka.config import KafkaConfig
from mqstore.kafka.store import open_store
from mqstore.layout.kafka.names import partition_directory_name


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

    def count(self, topic: str, partition: int) -> None:
        """Note one more record of a partition."""
        self.partitions[topic, partition] = self.partitions.get((topic, partition), 0) + 1


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
        append: ``output`` is a data directory that exists: records get the offsets that come next in it, and the time
            of the import where a line has none; else what a line says of its time holds, but where ``settings`` say
            LogAppendTime. All lines are looked at before the first is appended.
        settings: settings of the log, as :class:`mqstore.kafka.KafkaConfig` names them.

    Raises:
        UsageError: a line that is none, with its number; ``output`` is in use, or with ``append`` missing.
        MessageIllegalError: with ``append``, a record that this log does not take, with the line's number.
        StoreLockedError, DiskFullError, StoreIOError: with ``append`` the hint tells which lines are in the log.
    """
    if settings is not None:
        check_mapping("settings", settings)
    check_flags(append=append)
    config = KafkaConfig.from_mapping(dict(settings or {}))
    report = ImportReport(check_path(output))
    found = JsonLines(lines, topic)
    if append:
        if not report.output.is_dir():
            raise errors.UsageError("there is no log to append to", path=output, hint="leave append out to make one")
        _append(found, report, config)
    else:
        with Stage(report.output) as stage:
            _write(found, report, stage.root, config)
            stage.put_in_place()
    report.control_records = found.control_records
    return report


def _append(lines: JsonLines, report: ImportReport, config: KafkaConfig) -> None:
    with LineSpool(config) as spool:
        for line in lines:
            spool.add(line)
            report.count(line.topic, line.partition)
        spool.finish()
        with open_store(report.output, config=config) as log:
            spool.append_to(log)
            log.flush()


def _write(lines: JsonLines, report: ImportReport, root: Path, config: KafkaConfig) -> None:
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
            report.count(*where)
        for writer in writers.values():
            writer.close()
    finally:
        reading.close()
        writing.close()
    finish_data_directory(root, {where: writer.end_offset for where, writer in writers.items()}, config)
