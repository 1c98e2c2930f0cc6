"""The derived files of a store held against its log, in parallel: every record, every unit, the number of keys."""

from __future__ import annotations

import functools
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from mqstore import errors
from mqstore.files.pool import FilePool
from mqstore.kernels.api import QueueRun
from mqstore.layout.constants import QUEUE_UNIT_SIZE
from mqstore.spark.jobs.queue_files import QueueKey, SplitUnits, runs_of
from mqstore.spark.jobs.tasks import Progress, run_tasks
from mqstore.spark.option_values import DEFAULT_SPLIT_BYTES
from mqstore.spark.splits import Split, plan_splits
from mqstore.spark.stores import StoreRef
from mqstore.store.config import StoreConfig
from mqstore.store.paths import StorePaths, is_directory_name
from mqstore.store.queue_reader import QueueReader
from mqstore.store.view import StoreView, check_is_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MOST_FINDINGS = 1000
_MOST_FINDINGS_PER_SPLIT = 100


class AuditFinding(NamedTuple):
    """One disagreement.

    ``kind`` is ``damaged-record``, ``wrong-unit`` (units of a queue that are not those of the log), ``extra-units`` (a
    queue that claims more messages than the log holds) or ``missing-keys`` / ``extra-keys`` (in the whole index).
    """

    kind: str
    topic: str | None
    queue_id: int | None
    offset: int | None
    message: str


@dataclass(frozen=True)
class AuditResult:
    """What an audit counted.

    Attributes:
        records, log_bytes: in the log, every record checked by its checksum.
        units: those that the log's records ask for.
        units_in_queues: those that the queues hold.
        wrong_units: units asked for that the queues do not hold as they should be.
        keys, keys_in_index: those that the log's records have, and those that the index holds.
        findings: the first thousand disagreements.
        seconds: how long it took.
    """

    records: int
    log_bytes: int
    units: int
    units_in_queues: int
    wrong_units: int
    keys: int
    keys_in_index: int
    findings: list[AuditFinding]
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether everything agrees."""
        return not self.findings


@dataclass
class _SplitAudit:
    found: SplitUnits
    wrong_units: int = 0
    findings: list[AuditFinding] = field(default_factory=list)


def audit(
    spark: SparkSession,
    source: str | os.PathLike[str],
    *,
    split_bytes: int = DEFAULT_SPLIT_BYTES,
    config: StoreConfig | None = None,
    on_progress: Progress | None = None,
) -> AuditResult:
    """Check every record of a store, and its queues and the number of its index entries against them.

    The store is only read; let it be closed, or what is written meanwhile may count on one side only.

    Args:
        spark: the session; its workers must see ``source``.
        source: a store.
        split_bytes: how much of the log one task takes.
        config: the store's delay levels, where they are not RocketMQ's.
        on_progress: called with (tasks done, tasks in all).

    Raises:
        NotAStoreError, CorruptFileError, StoreIOError: it could not be looked at.
    """
    started = time.monotonic()
    path = Path(source).absolute()
    check_is_store(StorePaths(path))
    levels = (config or StoreConfig()).message_delay_level
    splits = plan_splits(StoreRef(str(path), ""), split_bytes)
    audits = run_tasks(spark, functools.partial(_audit_split, levels), splits, on_progress)
    findings = [finding for one in audits for finding in one.findings]
    ends = _ends(audits)
    keys = sum(one.found.keys for one in audits)
    with StoreView(path) as view:
        queues = view.queues()
        keys_in_index = sum(file.header.index_count - 1 for file in view.index_files())
        log_bytes = view.log_end - view.min_physical_offset
    for queue in queues:
        end = ends.get((queue.topic, queue.queue_id), queue.min_offset)
        if queue.max_offset > end:
            message = f"queue ends at {queue.max_offset}, its last message in the log is {end - 1}"
            findings.append(AuditFinding("extra-units", queue.topic, queue.queue_id, end, message))
    if keys_in_index != keys:
        kind = "missing-keys" if keys_in_index < keys else "extra-keys"
        message = f"the log has {keys} keys, the index {keys_in_index}"
        findings.append(AuditFinding(kind, None, None, None, message))
    return AuditResult(
        records=sum(one.found.records for one in audits),
        log_bytes=log_bytes,
        units=sum(one.found.units for one in audits),
        units_in_queues=sum(queue.count for queue in queues),
        wrong_units=sum(one.wrong_units for one in audits),
        keys=keys,
        keys_in_index=keys_in_index,
        findings=findings[:_MOST_FINDINGS],
        seconds=time.monotonic() - started,
    )


def _ends(audits: list[_SplitAudit]) -> dict[QueueKey, int]:
    ends: dict[QueueKey, int] = {}
    for one in audits:
        for key, (_, end) in one.found.ranges.items():
            ends[key] = max(end, ends.get(key, 0))
    return ends


def _audit_split(delay_levels: str, split: Split) -> _SplitAudit:
    """Runs in a task."""
    result = _SplitAudit(SplitUnits())
    pool = FilePool()
    readers: dict[QueueKey, QueueReader] = {}
    try:
        for key, run in runs_of(split, delay_levels, result.found):
            if not is_directory_name(key[0]) or key[1] < 0:
                continue
            result.found.note_run(key, run)
            if key not in readers:
                readers[key] = QueueReader(*key, split.store.paths.queue(*key), pool)
            _compare(result, readers[key], run)
    except errors.CorruptRecordError as error:
        result.findings.append(AuditFinding("damaged-record", None, None, error.offset, str(error)))
    finally:
        pool.close()
    return result


def _compare(result: _SplitAudit, queue: QueueReader, run: QueueRun) -> None:
    """Hold the units of a run against those in the queue's files."""
    count = len(run.units) // QUEUE_UNIT_SIZE
    held = _read(queue, run.first_queue_offset, count)
    if held == run.units:
        return
    for number in range(count):
        place = slice(number * QUEUE_UNIT_SIZE, (number + 1) * QUEUE_UNIT_SIZE)
        if held[place] != run.units[place]:
            result.wrong_units += 1
            if len(result.findings) < _MOST_FINDINGS_PER_SPLIT:
                offset = run.first_queue_offset + number
                message = f"unit is {held[place].hex() or 'missing'}, the log says {run.units[place].hex()}"
                result.findings.append(AuditFinding("wrong-unit", queue.topic, queue.queue_id, offset, message))


def _read(queue: QueueReader, offset: int, count: int) -> bytes:
    """The units from ``offset`` on, over the borders of files; fewer where a file is missing."""
    data = b""
    while len(data) < count * QUEUE_UNIT_SIZE:
        done = len(data) // QUEUE_UNIT_SIZE
        more = queue.units(offset + done, count - done)
        if not more:
            break
        data += more
    return data
