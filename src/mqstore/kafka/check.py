"""Checking a Kafka log: everything that is wrong with it, not only the first; nothing is changed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from mqstore import errors
from mqstore.files.whole import mode_of, read_whole
from mqstore.findings import Finding, Severity
from mqstore.kafka.check_derived import SNAPSHOT, DerivedCheck, check_snapshot
from mqstore.kafka.check_log import REOPEN, LogCheck
from mqstore.kafka.leftovers import SwapSegment
from mqstore.kafka.partition_view import PartitionView
from mqstore.kafka.producer_state import ProducerStates
from mqstore.kafka.segment import Segment
from mqstore.kafka.stock import PartitionStock, odd_partition_error, take_data_directory_stock
from mqstore.kafka.transactions import load_snapshot
from mqstore.kafka.view import KafkaView
from mqstore.layout.kafka import names
from mqstore.layout.kafka.checkpoints import EpochEntry, TopicPartition, decode_offsets
from mqstore.layout.kafka.names import FileKind, FileStage

Report = Callable[[Finding], None]

_INDEXES = (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TXN_INDEX)

_TEMPORARY = "left by a writer that was stopped while it replaced a small file, or is at it now"
_REMOVED_AT_START = "the next start of a writer removes it"


def check(path: str | os.PathLike[str]) -> list[Finding]:
    """Everything that is wrong with a data directory, a partition's directory or a segment.

    Raises:
        NotAStoreError: nothing of Kafka's at ``path``.
    """
    with KafkaView(path) as view:
        return check_view(view)


def check_view(view: KafkaView, report: Report | None = None) -> list[Finding]:
    """Check what ``view`` looks at; each finding is also told to ``report`` as it is made."""
    found: list[Finding] = []

    def add(finding: Finding) -> None:
        found.append(finding)
        if report is not None:
            report(finding)

    # Before the logs: what a writer notes of them meanwhile lies behind the ends that are found.
    checkpoints = _read_checkpoints(view, add) if view.is_data_directory else {}
    ends: dict[TopicPartition, tuple[int, int]] = {}
    for partition in view.partitions():
        try:
            ends[partition.topic, partition.partition] = _PartitionCheck(partition, add).run()
        except errors.MqstoreError as error:
            path = error.path or str(partition.directory)
            add(
                Finding(
                    Severity.ERROR, "log", path, error.offset, f"could not be checked: {error.message}",
                    error.expected, error.found, error.hint or "look at the path",
                )
            )  # fmt: skip
    if view.is_data_directory:
        _check_data_directory(view, checkpoints, ends, add)
    return found


class _PartitionCheck:
    """One check of one partition."""

    def __init__(self, partition: PartitionView, report: Report) -> None:
        self._partition = partition
        self._report = report

    def run(self) -> tuple[int, int]:
        """Check it; the offsets it starts and ends at."""
        stock = self._partition.stock
        self._names(stock)
        segments = self._partition.raw_segments()
        epochs = self._epochs()
        first = segments[0].base_offset if segments else 0
        states = load_snapshot(stock, first, first)
        walk = LogCheck(self._report, states, epochs, first == 0 or stock.has(first, FileKind.SNAPSHOT))
        for number, segment in enumerate(segments):
            is_last = number == len(segments) - 1 and (not stock.logs or stock.logs[-1] == segment.base_offset)
            is_complete = first == 0 and not walk.has_holes and walk.end_offset == segment.base_offset
            self._snapshot(stock, segment.base_offset, states, is_complete)
            try:
                facts = walk.check(segment, is_last)
            except errors.StoreIOError as error:
                self._add(
                    Severity.ERROR, "log", segment.path(), f"could not be read: {error.message}", repair=error.hint
                )
                continue
            DerivedCheck(self._report, facts, is_last, _pending(stock, segment)).check()
        end = max(walk.end_offset, segments[-1].base_offset if segments else 0)
        for offset in stock.files[FileKind.SNAPSHOT]:
            if offset not in stock.logs:
                self._snapshot(stock, offset, states, is_complete=first == 0 and offset == end and not walk.has_holes)
        holds_end = not segments or not stock.logs or segments[-1].base_offset >= stock.logs[-1]
        self._metadata(epochs if holds_end else [], end)  # a segment by itself ends before the log does
        return first, end

    def _add(
        self, severity: Severity, area: str, path: Path, message: str, expected: object = None, found: object = None,
        repair: str | None = None,
    ) -> None:  # fmt: skip
        self._report(Finding(severity, area, str(path), None, message, expected, found, repair or "look at the path"))

    def _names(self, stock: PartitionStock) -> None:
        for path in stock.odd:
            self._add(Severity.ERROR, "log", path, "something else than a file under the name of one",
                      repair=errors.HINT_FOREIGN)  # fmt: skip
        for path in stock.foreign:
            self._add(Severity.NOTE, "log", path, "a name that belongs to no segment", repair="move it away")
        for path in stock.temporaries:
            self._add(Severity.NOTE, "log", path, _TEMPORARY, repair=_REMOVED_AT_START)
        for file in stock.leftovers:
            path = stock.directory / file.name
            self._add(Severity.NOTE, "log", path, "left by a deletion or a cleaning",
                      repair="the next start of a writer finishes it")  # fmt: skip
        for kind in _INDEXES:
            for base in stock.files[kind]:
                if base not in stock.logs:
                    self._add(Severity.WARNING, "index", stock.path(base, kind), "an index without a log",
                              repair="the next start of a writer removes it")  # fmt: skip
        if not stock.logs:
            self._add(Severity.NOTE, "log", stock.directory, "a partition without segments",
                      repair="the next start of a writer makes one")  # fmt: skip

    def _epochs(self) -> list[EpochEntry] | None:
        try:
            found = self._partition.leader_epochs
        except errors.DamageError as error:
            path = self._partition.directory / names.LEADER_EPOCHS
            self._add(Severity.WARNING, "checkpoint", path, error.message, error.expected, error.found,
                      "the next start of a writer makes it anew from the log")  # fmt: skip
            return None
        has_file = mode_of(self._partition.directory / names.LEADER_EPOCHS) != 0
        return found if has_file else None

    def _metadata(self, epochs: list[EpochEntry] | None, end: int) -> None:
        for entry in epochs or []:
            if entry.start_offset > end:
                self._add(Severity.WARNING, "checkpoint", self._partition.directory / names.LEADER_EPOCHS,
                          "a leader epoch begins behind the end of the log", f"<= {end}", tuple(entry),
                          REOPEN)  # fmt: skip
        try:
            _ = self._partition.topic_id
        except errors.DamageError as error:
            self._add(Severity.WARNING, "config", self._partition.directory / names.PARTITION_METADATA, error.message,
                      error.expected, error.found, "copy the file of another partition of the topic")  # fmt: skip

    def _snapshot(self, stock: PartitionStock, offset: int, states: ProducerStates, is_complete: bool) -> None:
        if not stock.has(offset, FileKind.SNAPSHOT):
            return
        path = stock.path(offset, FileKind.SNAPSHOT)
        try:
            data = read_whole(path, "producer snapshot")
        except errors.MqstoreError as error:
            self._add(Severity.WARNING, "producers", path, error.message, error.expected, error.found, SNAPSHOT)
            return
        check_snapshot(self._report, str(path), data, states, is_complete)


def _pending(stock: PartitionStock, segment: Segment) -> set[FileKind]:
    """The kinds of a segment's files that a cleaning has yet to give their names; its log has its own already."""
    if isinstance(segment, SwapSegment):
        return set()
    return {file.kind for file in stock.leftovers if (file.offset, file.stage) == (segment.base_offset, FileStage.SWAP)}


def _what_is(path: Path) -> str:
    return f"a link to {os.readlink(path)}" if path.is_symlink() else "something else"


_CHECKPOINTS = {
    names.RECOVERY_POINTS: (Severity.WARNING, "a recovery point behind the end of the log"),
    names.LOG_STARTS: (Severity.ERROR, "a log start behind the end of the log: all records are taken for deleted"),
    names.CLEANER_OFFSETS: (Severity.WARNING, "a cleaner offset behind the end of the log"),
    names.HIGH_WATERMARKS: (Severity.WARNING, "a high watermark behind the end of the log"),
}


def _read_checkpoints(view: KafkaView, report: Report) -> dict[str, dict[TopicPartition, int]]:
    """The offsets that the checkpoints note, by file name; one that cannot be read is reported and left out."""
    found = {}
    for name in _CHECKPOINTS:
        path = view.path / name
        try:
            data = read_whole(path, name)
            found[name] = {} if data is None else decode_offsets(data)
        except errors.MqstoreError as error:
            worst = Severity.ERROR if name == names.LOG_STARTS else Severity.WARNING
            report(Finding(worst, "checkpoint", str(path), None, error.message, error.expected, error.found,
                           "remove it: a writer goes on without"))  # fmt: skip
    return found


def _check_data_directory(
    view: KafkaView,
    checkpoints: dict[str, dict[TopicPartition, int]],
    ends: dict[TopicPartition, tuple[int, int]],
    report: Report,
) -> None:
    for name, offsets in checkpoints.items():
        path, (severity, message) = view.path / name, _CHECKPOINTS[name]
        for where, offset in offsets.items():
            topic_partition = f"{where[0]}-{where[1]}"
            if where not in ends:
                known = {(one.topic, one.partition) for one in view.partitions()} | view.odd_partitions().keys()
                if where not in known:
                    report(Finding(Severity.NOTE, "checkpoint", str(path), None,
                                   "an entry of a partition that is not here", None, topic_partition,
                                   "nothing needs to be done"))  # fmt: skip
            elif offset > ends[where][1]:
                report(Finding(severity, "checkpoint", str(path), None, f"{message}: {topic_partition}",
                               f"<= {ends[where][1]}", offset, "the next start of a writer sets it right"))  # fmt: skip
    try:
        _ = view.meta_properties
    except errors.MqstoreError as error:
        report(Finding(Severity.WARNING, "config", str(view.path / names.META_PROPERTIES), None, error.message,
                       error.expected, error.found, "restore it: a broker does not start without"))  # fmt: skip
    if view.was_aborted:
        report(Finding(Severity.NOTE, "checkpoint", str(view.path), None, "open for writing, or not stopped cleanly",
                       None, None, "the next start of a writer recovers it"))  # fmt: skip
    for path in view.odd_partitions().values():
        odd = odd_partition_error(path)
        report(Finding(Severity.ERROR, "log", str(path), None, odd.message, "a directory", _what_is(path),
                       odd.hint or "look at the path"))  # fmt: skip
    for path in take_data_directory_stock(view.path).temporaries:
        report(Finding(Severity.NOTE, "checkpoint", str(path), None, _TEMPORARY, None, None, _REMOVED_AT_START))
    for directory, state in view.suspended_partitions():
        report(Finding(Severity.NOTE, "log", str(directory), None, f"a partition that is set aside: {state.value}",
                       None, None, "nothing needs to be done"))  # fmt: skip
