"""Finding out, at open, where the log ends and making every derived file agree with it.

One path serves every start, clean or not: take stock of the files, walk the log from the last point known to be good,
cut what is torn off its end, dispatch what the derived files lack, and erase what they claim beyond it. Derived files
never count as evidence about the log. Each step can be broken off by a crash and done again with the same outcome.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from mqstore import errors
from mqstore.files import copying, durable
from mqstore.files.stage import Stage
from mqstore.files.whole import mode_of
from mqstore.layout.constants import MAGIC_BLANK
from mqstore.layout.multi_dispatch import offset_in
from mqstore.layout.record import Damage, Record
from mqstore.store import checkpoint as notes
from mqstore.store.checkpoint import DispatchCheckpoint, FileSizes
from mqstore.store.consume_queue import ConsumeQueue
from mqstore.store.dispatch import Dispatched, Dispatcher
from mqstore.store.file_faults import check_log_files, mend_queue_files
from mqstore.store.index_reader import list_index_files
from mqstore.store.index_writer import IndexWriter, check_full, cut_back
from mqstore.store.log_reader import LogDamage, LogReader
from mqstore.store.paths import StorePaths
from mqstore.store.queue_table import QueueTable

_log = logging.getLogger(__name__)

Progress = Callable[[int, int], None]
"""Called now and then with the bytes of log walked so far and the bytes there are to walk."""


@dataclass
class LogEnd:
    """Where the log ends: the offset, and the newest record before it (-1 and 0 when there is none)."""

    offset: int
    last_record_offset: int = -1
    last_timestamp_ms: int = 0


class Recovery:
    """One recovery of one store; :meth:`run` does it."""

    def __init__(
        self,
        paths: StorePaths,
        log: LogReader,
        queues: QueueTable,
        index: IndexWriter | None,
        sizes: FileSizes,
        dispatcher: Dispatcher,
        on_progress: Progress | None = None,
    ) -> None:
        self._paths = paths
        self._log = log
        self._queues = queues
        self._index = index
        self._sizes = sizes
        self._geometry = sizes.index
        self._dispatcher = dispatcher
        self._on_progress = on_progress
        self.queues_behind_note: list[ConsumeQueue] = []
        self._crashed = mode_of(paths.abort) != 0
        self._damage: LogDamage | None = None
        self._has_begun = False
        self._has_queues = False
        self._held_note: DispatchCheckpoint | None = None
        self._has_scan_note = False
        self._synced_to = 0
        self._next_note_s = time.monotonic() + _NOTE_INTERVAL_S

    def run(self) -> LogEnd:
        """Bring the store into the state in which it can be appended to; the end of its log.

        Raises:
            CorruptFileError: commit log files are missing, doubled or of a wrong length.
            CorruptRecordError: a damaged record with sound ones behind it, which no crash explains: cutting there
                would throw messages away that had been safe.
        """
        check_log_files(self._log)
        note = notes.note_on_log(self._paths.dispatch_checkpoint, self._log)
        scanned = notes.note_on_log(self._paths.scan_note, self._log)
        known = max((one for one in (note, scanned) if one is not None), key=lambda one: one.log_offset, default=None)
        self._synced_to = self._log.min_offset if known is None else known.log_offset
        if self._crashed and note is None:  # a broker notes progress and does not sync the log before
            self._doubt_progress()
        end = self._find_end(note, known)  # raises before the log is changed
        if self._damage is not None or self._is_noted_beyond(end.offset):
            self._doubt_progress()
        self._cut_log(end)
        self._sync_log()
        self._begin_dispatch(note)
        self._dispatch_to(end.offset)
        self._finish_derived()
        if note is not None:
            self.queues_behind_note = [one for one in self._queues.all() if _ends_behind(one, note.log_offset)]
        if scanned is not None or self._has_scan_note:
            durable.remove_file(self._paths.scan_note)
        return end

    def _is_noted_beyond(self, end: int) -> bool:
        """Whether the log once went further, by a note that is no more trusted for that."""
        note = notes.load_dispatch_checkpoint(self._paths.dispatch_checkpoint)
        noted = 0 if note is None else note.log_offset
        return max(noted, notes.ProgressNote(self._paths.progress_note).log_offset) > end

    def _doubt_progress(self) -> None:
        """What was done last may be gone with the log's end; this stays known when the start is broken off."""
        durable.replace_file(self._paths.progress_in_doubt, b"")

    def _begin_dispatch(self, note: DispatchCheckpoint | None) -> None:
        """Once: make the derived files ready for what they lack."""
        if self._has_begun:
            return
        self._has_begun = True
        dispatched = self._prepare_derived(note)
        self._dispatcher.offset = self._log.min_offset if dispatched is None else dispatched.log_offset
        if dispatched is not None:
            self._dispatcher.last_record_offset = dispatched.record_offset
            self._dispatcher.last_timestamp_ms = dispatched.record_timestamp_ms

    def _keep_progress(self, note: DispatchCheckpoint | None, sound: LogEnd) -> None:
        """Dispatch what has been found sound, and note it: a start that is broken off then goes on from here.

        A container that is killed when it has not come up in time would otherwise begin anew for ever. An index that
        has to be built from the whole log stays until the log is known to be sound: it may be all there is to find
        messages behind damage by. Until then only the place is noted to which the log was walked.
        """
        if time.monotonic() < self._next_note_s:
            return
        if self._has_begun or not list_index_files(self._paths.index) or self._note_that_holds(note) is not None:
            self._begin_dispatch(note)
            self._dispatch_to(sound.offset)
            self._note_dispatched()
        else:
            self._note_scanned(sound)

    def _note_scanned(self, sound: LogEnd) -> None:
        self._sync_log()  # what the next start will not look at again must be on the device
        moment = Dispatched(sound.offset, sound.last_record_offset, sound.last_timestamp_ms, {}, None, 1)
        made = DispatchCheckpoint.of(moment, self._log.record_at(sound.last_record_offset), self._sizes)
        durable.replace_file(self._paths.scan_note, made.to_json())
        self._has_scan_note = True
        self._synced_to = sound.offset
        self._next_note_s = time.monotonic() + _NOTE_INTERVAL_S

    def _note_dispatched(self) -> None:
        self._sync_log()
        self._sync_derived()
        moment = self._dispatcher.snapshot()
        made = DispatchCheckpoint.of(moment, self._log.record_at(moment.last_record_offset), self._sizes)
        durable.replace_file(self._paths.dispatch_checkpoint, made.to_json())
        self._synced_to = moment.log_offset
        self._next_note_s = time.monotonic() + _NOTE_INTERVAL_S

    def _prepare_derived(self, note: DispatchCheckpoint | None) -> DispatchCheckpoint | None:
        """Bring queues and index to the state of the note and return it, or to one to build on from the log's start."""
        note = self._note_that_holds(note)
        return note if self._prepare_index(note) else None

    def _note_that_holds(self, note: DispatchCheckpoint | None) -> DispatchCheckpoint | None:
        """The note if the queues are as it says, else None; they are open then, which is done once."""
        if not self._has_queues:
            self._has_queues = True
            sound = self._load_queues(note)
            if note is not None and not (sound and self._queues_hold(note)):
                note = None
                self._load_queues(None)
            self._held_note = note
        return self._held_note

    def _load_queues(self, note: DispatchCheckpoint | None) -> bool:
        """Open every queue that has a directory, ending where the note says or where its old units end.

        False when files had to be mended, so that units may be missing anywhere.
        """
        log_min = self._log.min_offset
        sound = True
        for topic, queue_id in self._paths.list_queues():
            queue = self._queues.get_or_create(topic, queue_id)
            if queue is None:
                continue
            sound &= not mend_queue_files(queue)
            queue.compare_before_write = True
            queue.max_offset = (
                queue.find_end(log_min) if note is None else note.queue_ranges.get((topic, queue_id), (0, 0))[1]
            )
            queue.min_offset = queue.find_min(log_min, queue.max_offset)
        return sound

    def _queues_hold(self, note: DispatchCheckpoint) -> bool:
        """Whether every queue of the note still ends in a unit that points at the right record."""
        for (topic, queue_id), (begin, end) in note.queue_ranges.items():
            queue = self._queues.find(topic, queue_id)
            if (
                queue is None
                or queue.first_offset > begin
                or not self._last_unit_holds(queue, end)
                or _begins_behind_damage(queue)
            ):
                _log.info("queue %s/%d is not as noted: building all queues from the log", topic, queue_id)
                return False
        return True

    def _last_unit_holds(self, queue: ConsumeQueue, end: int) -> bool:
        if end == 0:
            return True
        unit = queue.unit(end - 1)
        if unit is None or unit.size_bytes <= 0:
            return False
        if unit.physical_offset < self._log.min_offset:
            return True
        record = self._log.record_at(unit.physical_offset, unit.size_bytes)
        return record is not None and offset_in(record, queue.topic, queue.queue_id) == end - 1

    def _prepare_index(self, note: DispatchCheckpoint | None) -> bool:
        """Bring the index to the state of the note; False when it has to be built from the whole log."""
        if self._index is None:
            return True
        files = list_index_files(self._paths.index)
        if note is not None and self._cut_index_to(note):
            self._index.open_last(note.log_offset)
            return True
        if files:
            _log.info("building the index from the log")
            for path in files:
                durable.remove_file(path)
            durable.sync_directory(self._paths.index)
        self._index.open_last(self._log.min_offset)
        return False

    def _cut_index_to(self, note: DispatchCheckpoint) -> bool:
        files = list_index_files(self._paths.index)
        later = [path for path in files if note.index_name is None or path.name > note.index_name]
        for path in later:
            durable.remove_file(path)
        if note.index_name is None:
            return True
        path = self._paths.index / note.index_name
        if path not in files:
            return False
        try:
            previous = check_full(files[: files.index(path)], self._geometry, self._store_time)
            header = cut_back(path, self._geometry, note.log_offset, previous, self._store_time)
            return header.index_count == note.index_count
        except (errors.CorruptFileError, OSError) as error:
            _log.info("index file %s is not as noted: %s", path, error)
            return False

    def _store_time(self, physical_offset: int) -> int | None:
        """Store time of the record at ``physical_offset`` in ms, None when none is there."""
        record = self._log.record_at(physical_offset)
        return None if record is None else record.store_timestamp_ms

    def _find_end(self, note: DispatchCheckpoint | None, known: DispatchCheckpoint | None) -> LogEnd:
        """Check every record behind what is ``known`` to be sound; where that ends."""
        start = self._log.min_offset
        end = LogEnd(start)
        if known is not None:
            start = known.log_offset
            end = LogEnd(start, known.record_offset, known.record_timestamp_ms)
        for chunk in self._log.scan(start, on_damage=self._note_damage):
            end = LogEnd(
                chunk.end_offset,
                chunk.last_record_offset,
                max(end.last_timestamp_ms, *chunk.columns.store_timestamp_ms),
            )
            self._tell_progress(end.offset, start)
            self._keep_progress(note, end)
        if self._damage is not None:
            self._judge(self._damage, note, end)
        end.offset = self._end_behind_closed_files(end.offset)
        return end

    def _dispatch_to(self, end: int) -> None:
        """Give the derived files what they lack."""
        start = self._dispatcher.offset
        while self._dispatcher.offset < end:
            self._dispatcher.run_to(min(end, self._dispatcher.offset + _STEP_BYTES))
            self._tell_progress(self._dispatcher.offset, start)
            if time.monotonic() >= self._next_note_s:
                self._note_dispatched()

    def _tell_progress(self, offset: int, start: int) -> None:
        if self._on_progress is not None:
            self._on_progress(offset - start, max(0, self._log.inventory.end - start))

    def _note_damage(self, damage: LogDamage) -> bool:
        self._damage = damage
        return False

    def _end_behind_closed_files(self, offset: int) -> int:
        """Step over blank records: the log goes on in the next file if there is one."""
        while (entry := self._log.entry_at(offset)) is not None:
            head = self._log.read(offset, 8)
            following = entry.start + self._log.inventory.size_bytes
            if head is None or head[4:] != _BLANK_MAGIC or self._log.entry_at(following) is None:
                break
            offset = following
        return offset

    def _judge(self, damage: LogDamage, note: DispatchCheckpoint | None, end: LogEnd) -> None:
        """Allow cutting the log at ``damage``, which is its ``end``, or raise.

        A power cut may keep a later page and lose an earlier one, so sound records behind a torn one are no surprise
        after a crash, if they are younger than the last sync can be. What is cut off then is set aside, not lost.
        """
        sound = self._sound_record_behind(damage)
        if sound is None:
            return
        if damage.damage is Damage.UNWRITTEN and sound.store_timestamp_ms < end.last_timestamp_ms:
            return  # a broker cut the log there once, without erasing what lay behind
        if self._crashed and self._may_be_unsynced(sound, note):
            self._set_aside(damage)
            return
        raise errors.CorruptRecordError(
            "a damaged record in the middle of the commit log",
            path=damage.path,
            offset=damage.physical_offset,
            expected=f"a record, as the next one at {sound.physical_offset}",
            found=damage.damage.name,
            hint="opening would cut off all later messages; read it with mqstore dump, or make a sound copy with "
            "mqstore rebuild STORE --output NEW --salvage",
        )

    def _may_be_unsynced(self, sound: Record, note: DispatchCheckpoint | None) -> bool:
        """Whether a power cut explains damage in front of the record ``sound``."""
        flushed_ms = notes.checkpoint_or_zeros(self._paths.checkpoint).physic_msg_timestamp_ms
        if note is None and sound.store_timestamp_ms < flushed_ms:
            return False
        newest_ms = sound.store_timestamp_ms
        for chunk in self._log.scan(sound.physical_offset, on_damage=lambda damage: True):
            newest_ms = max(newest_ms, *chunk.columns.store_timestamp_ms)
        return newest_ms - sound.store_timestamp_ms <= _UNSYNCED_WINDOW_MS

    def _set_aside(self, damage: LogDamage) -> None:
        """Copy the log files from the damaged one on to where they are found again; nothing may be cut before."""
        inventory = self._log.inventory
        files = [one.path for one in inventory.entries if one.start + inventory.size_bytes > damage.physical_offset]
        aside = self._paths.root / "cut-off" / f"{damage.physical_offset:020d}"
        number = 0
        # A log that was cut here before and has grown again must not hide behind what was set aside then.
        while aside.exists() and not copying.holds_copies(aside, files):
            number += 1
            aside = aside.with_name(f"{damage.physical_offset:020d}.{number}")
        if not aside.exists():
            with Stage(aside) as stage:  # a copy that is broken off must not be taken for one
                for path in files:
                    copying.copy_file(path, stage.root / path.name)
                durable.sync_directory(stage.root)
                stage.put_in_place()
        _log.warning(
            "the log is cut at offset %d (%s) although sound records lie behind; its files as they were are in %s",
            damage.physical_offset,
            damage.damage.name,
            aside,
        )

    def _sound_record_behind(self, damage: LogDamage) -> Record | None:
        found = self._log.record_behind(damage.physical_offset + 1)
        return None if found is None else self._log.record_at(found)

    def _cut_log(self, end: LogEnd) -> None:
        """Make the log's end final: nothing behind it may ever be taken for a record again."""
        inventory = self._log.inventory
        for entry in inventory.entries:
            if entry.start + inventory.size_bytes <= end.offset:
                continue
            if entry.start > end.offset:
                _log.info("removing commit log file %s, which lies behind the log's end", entry.path)
                self._log.remove_file(entry.path)
                continue
            durable.set_file_end(entry.path, end.offset - entry.start, inventory.size_bytes)
        self._log.refresh()

    def _sync_log(self) -> None:
        """After a crash of the process alone the log may still be in the page cache only."""
        if not self._crashed:
            return
        for entry in self._log.inventory.entries:
            if entry.start + self._log.inventory.size_bytes > self._synced_to:
                durable.sync_path(entry.path)
                durable.sync_directory(entry.path.parent)

    def _finish_derived(self) -> None:
        """Erase units beyond each queue's end and find where each begins."""
        log_min = self._log.min_offset
        for queue in self._queues.all():
            if queue.cut(queue.max_offset):
                _log.info(
                    "erased units behind offset %d of queue %s/%d",
                    queue.max_offset,
                    queue.topic,
                    queue.queue_id,
                )
            queue.min_offset = queue.find_min(log_min, queue.max_offset)
            queue.compare_before_write = False
        self._sync_derived()

    def _sync_derived(self) -> None:
        for queue in self._queues.all():
            queue.sync()
        if self._index is not None:
            self._index.sync()


_STEP_BYTES = 256 << 20
_NOTE_INTERVAL_S = 10.0
"""How much of a long recovery is done again at most when it is broken off."""
_UNSYNCED_WINDOW_MS = 10_000
"""A running store syncs its log far more often: records that are older than newer ones by this much were synced."""
_BLANK_MAGIC = MAGIC_BLANK.to_bytes(4, "big", signed=True)


def _ends_behind(queue: ConsumeQueue, physical_offset: int) -> bool:
    last = queue.unit(queue.max_offset - 1) if queue.max_offset > queue.min_offset else None
    return last is not None and last.physical_offset >= physical_offset


def _begins_behind_damage(queue: ConsumeQueue) -> bool:
    """Whether the unit in front of the queue's first is neither of an expired message nor a filler."""
    before = queue.unit(queue.min_offset - 1) if queue.min_offset > queue.first_offset else None
    return before is not None and not before.is_written and not before.is_pre_blank
