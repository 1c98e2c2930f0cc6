"""The derived files of a store held against its log, in parallel: every record, every unit, every index entry.

Tasks go through the store and tell whether all is as it should be. If it is not, one more task checks the store as
``mqstore check`` does and names what is wrong, so that both find the same.
"""

from __future__ import annotations

import functools
import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mqstore import errors
from mqstore.files.inventory import ProblemKind
from mqstore.files.lock import is_locked
from mqstore.findings import Finding
from mqstore.layout.delay import parse_delay_levels
from mqstore.layout.index import index_keys, key_hash
from mqstore.spark.jobs.audit_parts import (
    IndexAudit,
    IndexPart,
    QueuesPart,
    SplitAudit,
    SplitWork,
    audit_part,
    queues_are_odd,
)
from mqstore.spark.jobs.clock import Clock
from mqstore.spark.jobs.log_shares import check_split_bytes, plan_splits
from mqstore.spark.jobs.queue_files import JoinedRanges, Kinds, QueueRanges
from mqstore.spark.stores import StoreRef, one_store
from mqstore.spark.tasks import Progress, cores, run_tasks
from mqstore.store.check import CheckSummary, check_small_files, check_store
from mqstore.store.config import StoreConfig, given_config
from mqstore.store.delay_levels import delay_levels_of
from mqstore.store.index_reader import IndexFileReader
from mqstore.store.multi_dispatch import find_multi_dispatch
from mqstore.store.queue_states import not_rebuilt_meanwhile
from mqstore.store.view import StoreView

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MOST_FINDINGS: Final = 1000
_QUEUES_PER_TASK: Final = 500


@dataclass(frozen=True)
class AuditResult:
    """What an audit counted.

    Attributes:
        records, log_bytes: in the log, every record checked by its checksum.
        units: those that the log's records ask for.
        units_in_queues: those that the queues hold.
        wrong_units: units asked for that the queues do not hold as they should be.
        keys, keys_in_index: those that the log's records have, None where its files overlap or there are none, and
            those that the index holds.
        findings: what ``mqstore check`` finds, the first thousand of it.
        summary: what ``mqstore check`` counts, findings that are no notes among it.
        seconds: how long it took.
        stage_seconds: the same by stage: scan, that is going through the store in tasks, and check, naming what is
            wrong with it.
    """

    records: int
    log_bytes: int
    units: int
    units_in_queues: int
    wrong_units: int
    keys: int | None
    keys_in_index: int
    findings: list[Finding]
    summary: CheckSummary
    seconds: float
    stage_seconds: dict[str, float] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong; notes do not count."""
        return not self.summary.findings


def audit(
    spark: SparkSession,
    source: str | os.PathLike[str],
    *,
    split_bytes: int | None = None,
    config: StoreConfig | None = None,
    on_progress: Progress | None = None,
) -> AuditResult:
    """Check every record of a store, and its queues, its index and its small files against them.

    The store is only read. What is wrong is named by one task that goes through the whole store, so that takes longer
    than finding that nothing is.

    Args:
        spark: the session; its workers must see ``source``.
        source: a store.
        split_bytes: how much of the log one task takes; left out, 64 MiB to 1 GiB, by the log and the cores.
        config: the store's delay levels, where they are neither RocketMQ's nor noted in it.
        on_progress: called with (tasks done, tasks in all) while the log is gone through, which is most of the work.

    Raises:
        NotAStoreError, StoreIOError: it could not be looked at.
        StoreLockedError, CorruptFileError: a rebuild in place is going on, or was broken off.
    """
    clock = Clock()
    paths = one_store(source)
    check_split_bytes(split_bytes)
    levels = delay_levels_of(paths, None if config is None else given_config(config).message_delay_level)
    with not_rebuilt_meanwhile(paths), StoreView(paths.root) as view:
        scan = _scan(spark, view, levels, split_bytes, on_progress)
        is_odd = _is_odd(spark, view, scan)
        clock.note("scan")
        findings, summary = _name(spark, levels, paths.root) if is_odd else ([], scan.summary(view))
        view.log.trust_to(view.min_physical_offset + summary.log_bytes)
        units_in_queues = sum(queue.count for queue in view.queues())
    clock.note("check")
    return AuditResult(
        records=sum(one.found.records for one in scan.splits) if scan.splits else summary.records,
        log_bytes=summary.log_bytes,
        units=sum(one.found.units for one in scan.splits) if scan.splits else summary.units,
        units_in_queues=units_in_queues,
        wrong_units=sum(one.wrong_units for one in scan.splits),
        keys=sum(one.found.keys for one in scan.splits) if scan.splits else None,
        keys_in_index=scan.keys_in_index,
        findings=findings,
        summary=summary,
        seconds=clock.seconds,
        stage_seconds=clock.stages,
    )


class _Scan(NamedTuple):
    """What the tasks told of the parts of a store.

    Attributes:
        files: the index files, the first of which begins at ``begin``.
        keys_in_index: how many entries they have.
        indexes: what they hold.
        splits: what the splits of the log hold, the last of which ends at ``log_end`` if all of them are sound.
        joined: the queues by the log.
    """

    files: list[IndexFileReader]
    begin: int
    keys_in_index: int
    indexes: list[IndexAudit]
    splits: list[SplitAudit]
    log_end: int
    joined: JoinedRanges

    def summary(self, view: StoreView) -> CheckSummary:
        """What a check counts of a store in which nothing is wrong."""
        return CheckSummary(
            records=sum(one.found.records for one in self.splits),
            log_bytes=view.log_end - view.min_physical_offset,
            queues=len(list(view.paths.list_queues())),
            units=sum(queue.count for queue in view.queues()),
            index_entries=self.keys_in_index,
        )


def _scan(
    spark: SparkSession, view: StoreView, delay_levels: str, split_bytes: int | None, on_progress: Progress | None
) -> _Scan:
    files = _index_files(view)
    begin = files[0].entry(1).physical_offset if files and files[0].header.index_count > 1 else -1
    indexes = [IndexPart(file.path, file.geometry, begin, view.min_physical_offset) for file in files]
    splits = []
    if not _overlap(view):
        store = StoreRef(str(view.path), "")
        splits = plan_splits(store, split_bytes, cores=cores(spark), fail_on_data_loss=False, trust_note=True)
    work = SplitWork(Kinds(delay_levels, find_multi_dispatch(view.paths)), begin)
    joined = JoinedRanges()

    def take(result: IndexAudit | SplitAudit) -> None:
        if isinstance(result, SplitAudit):
            joined.take(result.found)

    parts = [*indexes, *splits]
    found: list[Any] = run_tasks(spark, functools.partial(audit_part, work), parts, on_progress, take)
    log_end = splits[-1].end if splits else view.min_physical_offset
    keys = sum(file.header.index_count - 1 for file in files)
    return _Scan(files, begin, keys, found[: len(indexes)], found[len(indexes) :], log_end, joined)


def _is_odd(spark: SparkSession, view: StoreView, scan: _Scan) -> bool:
    """Whether a check would find something. If it would not, ``view`` knows where the log ends."""
    if _overlap(view) or scan.joined.irregular or any(one.odd for one in scan.splits):
        return True
    view.log.trust_to(scan.log_end)  # before anything asks for it, which takes going through the last files
    odd = _is_odd_beside_log(view) or _headers_are_odd(view, scan.files) or view.log.is_damaged_at(view.log_end)
    odd = odd or _index_is_odd(view, scan.begin, scan.splits, scan.indexes, view.log_end)
    return odd or any(_queues(spark, view, scan.joined.ranges))


def _is_odd_beside_log(view: StoreView) -> bool:
    """Whether a check would find something in the list of log files, or in the small files."""
    small: list[Finding] = []
    check_small_files(view, small.append)
    return bool(small or view.log.inventory.problems or is_locked(view.paths.lock))


def _overlap(view: StoreView) -> bool:
    """Whether files of the log overlap, so that it cannot be divided."""
    inventory = view.log.inventory
    kinds = {problem.kind for problem in inventory.problems}
    too_long = any(entry.length > inventory.size_bytes for entry in inventory.entries)
    return too_long or bool(kinds & {ProblemKind.DUPLICATE, ProblemKind.OVERLAP})


def _index_files(view: StoreView) -> list[IndexFileReader]:
    """The index files; none if one of them is broken, which a check tells."""
    try:
        files = view.index_files()
        for file in files:
            _ = file.header
    except errors.CorruptFileError:
        return []
    return files


def _headers_are_odd(view: StoreView, files: list[IndexFileReader]) -> bool:
    """Whether a check would find something in the header of an index file, but for the number of its slots."""

    def store_time(physical_offset: int) -> int | None:
        record = view.log.record_at(physical_offset)
        return None if record is None else record.store_timestamp_ms

    header = None
    try:
        for file in files:
            header = file.checked_header(header, store_time)
    except errors.CorruptFileError:
        return True
    return False


def _index_is_odd(view: StoreView, begin: int, audits: list[SplitAudit], index: list[IndexAudit], log_end: int) -> bool:
    """Whether the entries are not the keys of the log, in the order of the log."""
    if not index:
        return bool(list(view.paths.index.glob("*")))  # one that is broken; no index at all is no fault
    ends = [offset for one in index for offset in (one.first_offset, one.last_offset) if offset is not None]
    if any(one.odd for one in index) or ends != sorted(ends) or (ends and ends[-1] >= log_end):
        return True
    if sum(one.key_sum for one in audits) % (1 << 64) != sum(one.key_sum for one in index) % (1 << 64):
        return True
    # The oldest file may begin between two keys of a record: of that one some may be missing.
    held = Counter(number for one in index for number in one.first_hashes)
    if not held or begin < view.min_physical_offset:
        return False
    record = view.message_at(begin)
    return record is None or bool(held - Counter(key_hash(record.topic, key) for key in index_keys(record)))


def _queues(spark: SparkSession, view: StoreView, ranges: QueueRanges) -> list[bool]:
    """Whether queues are odd, by some of them."""
    listed = [(*key, ranges[key][1] if key in ranges else None) for key in view.paths.list_queues()]
    parts = [
        QueuesPart(str(view.path), view.min_physical_offset, listed[first : first + _QUEUES_PER_TASK])
        for first in range(0, len(listed), _QUEUES_PER_TASK)
    ]
    if len(parts) <= 1:  # done sooner than handed to a task
        return [queues_are_odd(part) for part in parts]
    return run_tasks(spark, queues_are_odd, parts)


def _name(spark: SparkSession, delay_levels: str, path: Path) -> tuple[list[Finding], CheckSummary]:
    """What is wrong, by a task that checks the whole store."""
    return run_tasks(spark, functools.partial(_check, delay_levels), [str(path)])[0]


def _check(delay_levels: str, path: str) -> tuple[list[Finding], CheckSummary]:
    """Runs in a task."""
    findings: list[Finding] = []

    def report(finding: Finding) -> None:
        if len(findings) < _MOST_FINDINGS:
            findings.append(finding)

    with StoreView(path) as view:
        summary = check_store(view, report, delay_levels=parse_delay_levels(delay_levels))
    return findings, summary
