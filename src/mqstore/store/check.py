"""Everything that is wrong with a store, found by reading it.

The log is the evidence. Every record is validated whole; from the sound ones it follows what each queue and the index
must hold, and what the files hold is compared with that. A check reads only, never stops at the first finding, and
answers nothing that it did not look at.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

from mqstore import errors
from mqstore.files.inventory import Problem, ProblemKind
from mqstore.files.lock import is_locked
from mqstore.files.pool import FilePool
from mqstore.findings import REOPEN, Finding, Severity
from mqstore.kernels.api import QueueRun
from mqstore.layout import delay
from mqstore.layout.constants import INT_MAX, QUEUE_UNIT_SIZE, SCHEDULE_TOPIC
from mqstore.layout.queue_ext import is_ext_address
from mqstore.layout.queue_unit import QueueUnit, iter_units
from mqstore.store.check_index import IndexCheck
from mqstore.store.dispatch import MAX_QUEUE_OFFSET, delay_array
from mqstore.store.log_reader import Chunk, LogDamage
from mqstore.store.multi_dispatch import queue_runs
from mqstore.store.overlooked import DERIVED, log_file_finding, queue_file_finding
from mqstore.store.paths import is_directory_name
from mqstore.store.queue_reader import QueueReader
from mqstore.store.queue_states import not_rebuilt_meanwhile
from mqstore.store.salvage import FILLER_TOPIC
from mqstore.store.view import StoreView

_T = TypeVar("_T")
_LATE_UNITS = 100_000
_LATE_S = 30.0
"""A writer may be that long behind its log with building queues."""
_LOOK_AGAIN_S = 0.05
Report = Callable[[Finding], None]
_NOT_DUE = "none needed; a rebuild would give them the times of the store's levels, which mqstore adopt notes"


@dataclass
class CheckSummary:
    """What a check looked at, and how much of it was sound.

    Attributes:
        records, log_bytes: what the log holds.
        queues: how many have a directory, also those of which the log has no message any more.
        units: how many of its messages' units were compared.
        index_entries: how many the index has.
        findings: errors and warnings; notes do not count.
    """

    records: int = 0
    log_bytes: int = 0
    queues: int = 0
    units: int = 0
    index_entries: int = 0
    findings: int = 0


def _has_lost_note(wrong: tuple[int, tuple[int, ...], tuple[int, ...]]) -> bool:
    """Whether a unit points at its message, and all that is wrong is that its ext unit is gone: no reader minds."""
    _, right, found = wrong
    return right[:2] == found[:2] and is_ext_address(found[2])


def _is_due_by_another_table(wrong: tuple[int, tuple[int, ...], tuple[int, ...]]) -> bool:
    """Whether all that a waiting message's unit has otherwise is the delay, in whole seconds as every delay is.

    The levels were others when it came, and it is delivered when its unit says. No flipped bit looks like that, and no
    tags code, which has 32 bits.
    """
    _, right, found = wrong
    return right[:2] == found[:2] and found[2] > INT_MAX and (found[2] - right[2]) % 1000 == 0


def check_store(
    view: StoreView,
    report: Report,
    *,
    delay_levels: Mapping[int, int] | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> CheckSummary:
    """Check all of the store that ``view`` looks at.

    Args:
        view: the store.
        report: called with every finding.
        delay_levels: the delay table of the store's broker, in ms by level; None is the one that the store notes.
        on_progress: called with the bytes of log read and the bytes there are.

    Raises:
        StoreIOError: something could not be read, so that nothing can be said.
        StoreLockedError, CorruptFileError: a rebuild in place is going on, or was broken off.
    """
    levels = view.delay_table if delay_levels is None else delay_levels
    with not_rebuilt_meanwhile(view.paths):
        return _Check(view, report, levels, on_progress).run()


def check_small_files(view: StoreView, report: Report) -> None:
    """The part of a check that looks at the checkpoint and at the settings."""
    _Check(view, report, delay.DEFAULT_DELAY_TABLE, None).small_files()


@dataclass
class _QueueState:
    """What the log has told of one queue so far."""

    reader: QueueReader
    begin: int
    next_offset: int
    missing: int = 0
    wrong: list[tuple[int, tuple[int, ...], tuple[int, ...]]] = field(default_factory=list)


class _Check:
    def __init__(
        self,
        view: StoreView,
        report: Report,
        delay_levels: Mapping[int, int],
        on_progress: Callable[[int, int], None] | None,
    ) -> None:
        self._view = view
        self._report = report
        self._delay_ms = delay_array(delay_levels)
        self._on_progress = on_progress
        self._pool = FilePool()
        self._queues: dict[tuple[str, int], _QueueState] = {}
        self.summary = CheckSummary()
        self._beside_writer = is_locked(view.paths.lock)
        self._patience_end_s: float | None = None
        self._end = view.min_physical_offset

    def run(self) -> CheckSummary:
        _ = self._view.multi_dispatch  # a note that cannot be read is told of a log without records as well
        self._index = IndexCheck(self._view, self._finding, beside_writer=self._beside_writer)
        for problem in self._view.log.inventory.problems:
            self._log_file(problem)
        self._walk_log()
        for state in self._queues.values():
            self._conclude(state)
        self._unknown_queues()
        self._index.finish(self._end)
        self.summary.index_entries = self._index.entries
        self.summary.queues = len(list(self._view.paths.list_queues()))
        self.small_files()
        self._pool.close()
        return self.summary

    def small_files(self) -> None:
        self._checkpoint()
        self._settings()

    def _finding(
        self,
        severity: Severity,
        area: str,
        path: object,
        offset: int | None,
        message: str,
        expected: object = None,
        found: object = None,
        repair: str = DERIVED,
    ) -> None:
        self._add(Finding(severity, area, str(path), offset, message, expected, found, repair))

    def _add(self, finding: Finding) -> None:
        self.summary.findings += finding.severity is not Severity.NOTE
        self._report(finding)

    # -- log

    def _log_file(self, problem: Problem) -> None:
        if problem.kind is ProblemKind.EMPTY and self._beside_writer:
            return  # a file that the writer is just making
        self._add(log_file_finding(problem))

    def _walk_log(self) -> None:
        start = self._view.min_physical_offset
        total = max(1, self._view.log.inventory.end - start)
        self._lost_from: LogDamage | None = None
        for chunk in self._chunks():
            self._conclude_damage(chunk.physical_offset + chunk.columns.position[0])
            self._end = chunk.end_offset
            self.summary.records += chunk.columns.count
            self.summary.log_bytes = self._end - start
            for run, _ in queue_runs(chunk, self._delay_ms, self._view.multi_dispatch):
                self._run(run)
            self._index.put(chunk)
            if self._on_progress is not None:
                self._on_progress(self._end - start, total)
        self._conclude_damage(None)

    def _chunks(self) -> Iterator[Chunk]:
        """The log as it is now: a check does not run after a writer, but it goes on behind damage to the last file."""
        files_end = self._view.log.inventory.end
        end = self._view.log_end
        if self._beside_writer and self._index.filed_to:
            # What is not dispatched yet is not missing: look at the records that were when the check began.
            yield from self._view.scan_columns(None, min(end, self._index.filed_to), on_damage=self._damage)
            return
        yield from self._view.scan_columns(None, end, on_damage=self._damage)
        if self._view.log.is_damaged_at(end):
            yield from self._view.scan_columns(end, files_end, on_damage=self._damage)

    def _damage(self, damage: LogDamage) -> bool:
        self._conclude_damage(damage.physical_offset)
        self._lost_from = damage
        return True

    def _conclude_damage(self, resumed_at: int | None) -> None:
        """Report the damage met last, now that it is known where sound records go on."""
        damage, self._lost_from = self._lost_from, None
        if damage is None:
            return
        if resumed_at is None:
            message, repair = "damaged record at the end of the log", REOPEN
        else:
            message = f"damaged record; {resumed_at - damage.physical_offset} bytes up to the next sound one are lost"
            repair = "mqstore rebuild STORE --output NEW --salvage"
        self._finding(
            Severity.ERROR,
            "log",
            damage.path,
            damage.physical_offset,
            message,
            "a sound record",
            damage.damage.name,
            repair,
        )

    # -- queues

    def _run(self, run: QueueRun) -> None:
        topic = run.topic.decode("utf-8", "replace")
        if not is_directory_name(topic) or run.queue_id < 0 or not 0 <= run.first_queue_offset <= MAX_QUEUE_OFFSET:
            self._finding(
                Severity.ERROR,
                "queue",
                self._view.paths.consume_queue,
                None,
                "a record that no queue can hold",
                "a topic fit for a directory, queue id and offset not negative",
                f"{topic!r}, {run.queue_id}, {run.first_queue_offset}",
                "none: the record stays out of all queues",
            )
            return
        state = self._queues.get((topic, run.queue_id))
        if state is None:
            directory = self._view.paths.queue(topic, run.queue_id)
            reader = QueueReader(topic, run.queue_id, directory, self._pool)
            state = _QueueState(reader, run.first_queue_offset, run.first_queue_offset)
            self._queues[topic, run.queue_id] = state
            self._queue_files(reader)
        if run.first_queue_offset != state.next_offset:
            self._finding(
                Severity.NOTE if self._is_salvaged else Severity.ERROR,
                "queue",
                state.reader.directory,
                run.first_queue_offset,
                "queue offsets in the log do not follow each other",
                state.next_offset,
                run.first_queue_offset,
                "none: the records between are not in the log",
            )
        self._compare(state, run)
        state.next_offset = run.first_queue_offset + len(run.units) // QUEUE_UNIT_SIZE

    @cached_property
    def _is_salvaged(self) -> bool:
        """Whether lost stretches of the log were covered by a salvage, so that gaps are no news."""
        for chunk in self._view.scan_columns():
            columns, buffer = chunk.columns, chunk.buffer
            for start, size in zip(columns.topic_position, columns.topic_size, strict=True):
                if buffer[start : start + size] == FILLER_TOPIC:
                    return True
        return any(blank.physical_offset in self._file_starts for blank in self._view.blanks())

    @cached_property
    def _file_starts(self) -> set[int]:
        return {entry.start for entry in self._view.log.inventory.entries}

    def _queue_files(self, reader: QueueReader) -> None:
        for problem in reader.inventory.problems:
            if problem.kind is ProblemKind.EMPTY and self._beside_writer:
                continue
            self._add(queue_file_finding(problem))

    def _compare(self, state: _QueueState, run: QueueRun) -> None:
        offset, units = run.first_queue_offset, run.units
        while units:
            stored = state.reader.units(offset, len(units) // QUEUE_UNIT_SIZE)
            size = len(stored) or state.reader.room_without_file(offset) * QUEUE_UNIT_SIZE
            part, units = units[:size], units[size:]
            count = len(part) // QUEUE_UNIT_SIZE
            self.summary.units += count
            if not stored:
                state.missing += count
            elif stored != part:
                self._compare_units(state, offset, part, stored)
            offset += count

    def _compare_units(self, state: _QueueState, offset: int, expected: bytes, stored: bytes) -> None:
        for number, (right, unit) in enumerate(zip(iter_units(expected), iter_units(stored), strict=True)):
            if right == unit:
                continue
            if unit.is_written:
                state.wrong.append((offset + number, tuple(right), tuple(unit)))
            else:
                state.missing += 1

    def _conclude(self, state: _QueueState) -> None:
        """Report what was found of a queue, its stretches summed up."""
        reader = state.reader
        if state.missing and self._beside_writer:
            self._look_again(state)
        if state.missing:
            self._finding(
                Severity.ERROR,
                "queue",
                reader.directory,
                None,
                f"{state.missing} messages are missing from the queue",
                f"units for offsets {state.begin} to {state.next_offset - 1}",
                f"{state.missing} not written",
            )
        self._conclude_wrong(state)
        unit_behind = reader.unit(state.next_offset)
        if unit_behind is not None and unit_behind.is_written and not self._is_newer(unit_behind):
            self._finding(
                Severity.WARNING,
                "queue",
                reader.directory,
                state.next_offset,
                "units behind the queue's last message",
                "unwritten space",
                tuple(unit_behind),
                REOPEN,
            )

    def _conclude_wrong(self, state: _QueueState) -> None:
        """Report the units that are not as they should be, by what that means for readers."""
        noted, other, wrong = [], [], []
        for one in state.wrong:
            if _has_lost_note(one):
                noted.append(one)
            elif state.reader.topic == SCHEDULE_TOPIC and _is_due_by_another_table(one):
                other.append(one)
            else:
                wrong.append(one)
        for severity, units, said, repair in (
            (Severity.WARNING, noted, "the notes of {} units are lost, so that readers look at the messages", DERIVED),
            (Severity.NOTE, other, "{} delayed messages are due by other delay levels than the store's", _NOT_DUE),
            (Severity.ERROR, wrong, "{} units do not point at their messages", DERIVED),
        ):
            if units:
                offset, right, unit = units[0]
                said = said.format(len(units)) + "; the first is shown"
                self._finding(severity, "queue", state.reader.directory, offset, said, right, unit, repair)

    def _look_again(self, state: _QueueState) -> None:
        """Beside a writer, units that were missing may only have been late: count those that still are in a while."""
        if state.missing > _LATE_UNITS:
            return
        missing = list(range(max(state.begin, state.next_offset - _LATE_UNITS), state.next_offset))
        if self._patience_end_s is None:  # one for all queues
            self._patience_end_s = time.monotonic() + _LATE_S
        while True:
            state.reader.refresh()
            units = ((offset, state.reader.unit(offset)) for offset in missing)
            missing = [offset for offset, unit in units if unit is None or not unit.is_written]
            if not missing or time.monotonic() >= self._patience_end_s:
                break
            time.sleep(_LOOK_AGAIN_S)
        state.missing = len(missing)

    def _is_newer(self, unit: QueueUnit) -> bool:
        """Whether a unit belongs to a record that was written while the check went on."""
        return unit.physical_offset >= self._end and self._view.message_at(unit.physical_offset) is not None

    def _unknown_queues(self) -> None:
        """Queues of which the log holds no record: their messages expired, or their units point nowhere."""
        for topic, queue_id in self._view.paths.list_queues():
            if (topic, queue_id) in self._queues:
                continue
            reader = QueueReader(topic, queue_id, self._view.paths.queue(topic, queue_id), self._pool)
            self._queue_files(reader)
            end = reader.find_end(self._view.min_physical_offset)
            unit = reader.unit(end)
            if unit is not None and unit.is_written and not self._is_newer(unit):
                self._finding(
                    Severity.WARNING,
                    "queue",
                    reader.directory,
                    end,
                    "units that point at no message of the queue",
                    "unwritten space",
                    tuple(unit),
                    REOPEN,
                )

    # -- the rest

    def _checkpoint(self) -> None:
        path = self._view.paths.checkpoint
        try:
            checkpoint = self._view.checkpoint
        except errors.CorruptFileError as error:
            self._finding(
                Severity.WARNING, "checkpoint", path, None, error.message, error.expected, error.found, REOPEN
            )
            return
        if min(checkpoint) < 0:
            self._finding(
                Severity.WARNING,
                "checkpoint",
                path,
                None,
                "a negative value",
                ">= 0",
                tuple(checkpoint),
                REOPEN,
            )

    def _settings(self) -> None:
        settings = self._view.settings
        for read in (lambda: settings.topics, lambda: settings.groups, lambda: settings.delay_offsets):
            self._try_settings(read)
        for row in self._try_settings(self._view.progress) or []:
            if row.max_offset is not None and row.consumer_offset > row.max_offset:
                self._finding(
                    Severity.NOTE,
                    "config",
                    self._view.paths.config / "consumerOffset.json",
                    row.consumer_offset,
                    f"group {row.group} is ahead of queue {row.topic}/{row.queue_id}",
                    f"at most {row.max_offset}",
                    row.consumer_offset,
                    "commit an offset inside the queue",
                )

    def _try_settings(self, read: Callable[[], _T]) -> _T | None:
        """What ``read`` gives; None, and a finding, when the file is damaged."""
        try:
            return read()
        except errors.CorruptConfigError as error:
            self._finding(
                Severity.ERROR,
                "config",
                error.path,
                None,
                error.message,
                error.expected,
                error.found,
                error.hint or "",
            )
            return None
