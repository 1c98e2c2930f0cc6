"""Making a damaged commit log walkable again without moving a single sound record.

Every record knows its own place, so nothing can be taken out of a log; but what is damaged can be covered. A damaged
stretch becomes one *filler*: a sound record marked as rolled back, which no queue and no index ever shows. A missing
file becomes a file that says at its start that nothing follows. At most the damaged records themselves are lost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mqstore import errors
from mqstore.files import durable
from mqstore.files.inventory import ProblemKind
from mqstore.files.pool import FilePool
from mqstore.layout.constants import BLANK_SIZE, HOST_V4_SIZE, SysFlag
from mqstore.layout.record import encode_blank, encode_record, record_size
from mqstore.store.log_reader import LogDamage, LogReader

FILLER_TOPIC = b"MQSTORE_SALVAGED"
_MAX_MISSING_FILES = 4096
_NO_HOST = bytes(HOST_V4_SIZE)
_FILLER_OVERHEAD = record_size(0, len(FILLER_TOPIC), 0)


@dataclass(frozen=True, slots=True)
class Loss:
    """A stretch of the log that held nothing sound and was covered: [begin, end), physical offsets."""

    path: Path
    begin: int
    end: int
    reason: str


def salvage_log(directory: Path, on_loss: Callable[[Loss], None]) -> None:
    """Cover all damage in the commit log in ``directory``, in place: give it a copy.

    Damage at the very end is left to recovery, which cuts it off.

    Raises:
        DiskFullError, StoreIOError: a file could not be written.
    """
    _complete_files(directory, on_loss)
    reader = LogReader([directory])
    pool = FilePool(writable=True)
    pending: list[LogDamage] = []

    def note(damage: LogDamage) -> bool:
        pending.append(damage)
        return True

    previous_ms = 0
    try:
        for chunk in reader.scan(on_damage=note):
            for damage in pending:
                cover = _Cover(pool, reader.inventory.size_bytes, damage, previous_ms)
                on_loss(cover.write([chunk.physical_offset + position for position in chunk.columns.position]))
            pending.clear()
            previous_ms = chunk.columns.store_timestamp_ms[-1]
    finally:
        pool.close()
        reader.close()


def _complete_files(directory: Path, on_loss: Callable[[Loss], None]) -> None:
    """Give every file its full length and every hole between files a closed file."""
    inventory = LogReader([directory]).inventory
    size = inventory.size_bytes
    for problem in inventory.problems:
        if problem.kind in (ProblemKind.EMPTY, ProblemKind.WRONG_SIZE):
            length = problem.path.stat().st_size
            durable.set_file_end(problem.path, min(length, size), size)
    starts = {entry.start for entry in inventory.entries}
    missing = (inventory.end - inventory.start) // (size or 1) - len(starts)
    if missing > _MAX_MISSING_FILES:
        raise errors.CorruptFileError(
            "more commit log files are missing than can be made up for",
            path=inventory.entries[-1].path,
            expected=f"at most {_MAX_MISSING_FILES}",
            found=missing,
            hint="if this file belongs to another store, move it away",
        )
    for start in range(inventory.start, inventory.end, size or 1):
        if start not in starts:
            path = directory / f"{start:020d}"
            durable.write_new_file(path, size, encode_blank(size))
            on_loss(Loss(path, start, start + size, "file missing"))
    durable.sync_directory(directory)


@dataclass(frozen=True)
class _Cover:
    """Covers one damaged stretch; ``size_bytes`` is that of the log's files."""

    pool: FilePool
    size_bytes: int
    damage: LogDamage
    store_timestamp_ms: int

    def write(self, sound_offsets: list[int]) -> Loss:
        """Cover everything up to the first of ``sound_offsets`` that leaves room for a filler, or the file's rest."""
        begin = self.damage.physical_offset
        file_start = begin - begin % self.size_bytes
        file_end = file_start + self.size_bytes
        fitting = (at for at in sound_offsets if begin + _FILLER_OVERHEAD <= at < file_end)
        end = next(fitting, file_end)
        data = encode_blank(file_end - begin) if end == file_end else self._filler(begin, end - begin)
        if file_end - begin >= BLANK_SIZE:
            with self.pool.descriptor(self.damage.path) as fd:
                durable.write_at(fd, data, begin - file_start, self.damage.path)
                durable.sync_file(fd, self.damage.path)
        return Loss(self.damage.path, begin, end, self.damage.damage.name)

    def _filler(self, physical_offset: int, size_bytes: int) -> bytes:
        """A record of exactly ``size_bytes`` that takes no part in anything."""
        return encode_record(
            topic=FILLER_TOPIC,
            body=bytes(size_bytes - _FILLER_OVERHEAD),
            properties=b"",
            queue_id=0,
            flag=0,
            queue_offset=0,
            physical_offset=physical_offset,
            sys_flag=SysFlag.TRANSACTION_ROLLBACK,
            born_timestamp_ms=self.store_timestamp_ms,
            born_host=_NO_HOST,
            store_timestamp_ms=self.store_timestamp_ms,
            store_host=_NO_HOST,
        )
