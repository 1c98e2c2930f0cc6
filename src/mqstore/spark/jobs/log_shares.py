"""How a log is shared out among the tasks of a job that goes through all of it."""

from __future__ import annotations

from typing import Final

from mqstore.layout.constants import LONG_MAX
from mqstore.layout.record import Record
from mqstore.spark.log_end import readable_end
from mqstore.spark.pieces import levelled
from mqstore.spark.splits import Split, check_files, open_log, split_ranges
from mqstore.spark.stores import StoreRef
from mqstore.store.arguments import check_whole
from mqstore.store.checkpoint import note_on_log
from mqstore.store.file_faults import refuse_log_files
from mqstore.store.log_reader import LogReader

_TASKS_IF_UNTOLD: Final = 16
_LEAST_SPLIT_BYTES: Final = 64 << 20
_MOST_SPLIT_BYTES: Final = 1 << 30


def check_split_bytes(split_bytes: int | None) -> None:
    """Raise UsageError for a size that cannot be."""
    if split_bytes is not None:
        check_whole("split_bytes", split_bytes, 1, LONG_MAX)


def split_bytes_for_cores(log_bytes: int, cores: int | None) -> int:
    """How much of a log of ``log_bytes`` a task takes where so many run at the same time, or nobody knows how many.

    Each core gets one task, or as many of a gigabyte as there are: that is gone through in less than a second, so that
    more and smaller ones would cost more than is waited for the slowest.
    """
    share = -(-log_bytes // (cores or _TASKS_IF_UNTOLD))
    return min(_MOST_SPLIT_BYTES, max(_LEAST_SPLIT_BYTES, share))


def plan_splits(
    store: StoreRef,
    split_bytes: int | None = None,
    *,
    cores: int | None = None,
    fail_on_data_loss: bool = True,
    trust_note: bool = False,
) -> list[Split]:
    """The splits of one store, in log order: together they hold every record once.

    Args:
        store: the store.
        split_bytes: how much of the log a split has at most; left out, what suits the log and the cores, and the last
            ones are so cut that all cores end together.
        cores: how many tasks run at the same time, None where nobody knows.
        fail_on_data_loss: whether it is an error, told in front of all damaged records, when files of the log do not
            follow each other, as at a start of the store.
        trust_note: look for the log's end only behind the last record that the store has noted, as opening it does. If
            the log is sound up to there, which whoever reads all of it finds out, that is the same end, found sooner.

    Raises:
        CorruptFileError: log files overlap, or, under ``fail_on_data_loss``, one is missing or has a wrong length.
        UsageError: the splits would be too many.
    """
    log = open_log(store)
    try:
        if fail_on_data_loss:
            refuse_log_files(log.inventory)
        check_files(log, fail_on_data_loss)
        end = readable_end(log, _noted_record(store, log) if trust_note else None)
        size = split_bytes or split_bytes_for_cores(end - log.min_offset, cores)
        splits = split_ranges(store, log, [(log.min_offset, end)], size)
    finally:
        log.close()
    if split_bytes is not None or cores is None:
        return splits
    return [piece for part in levelled([[one] for one in splits], cores) for piece in part if isinstance(piece, Split)]


def _noted_record(store: StoreRef, log: LogReader) -> Record | None:
    """The last record of the log by the store's own note, if it is so near the end that nothing else is as soon."""
    note = note_on_log(store.paths.dispatch_checkpoint, log)
    if note is None or not log.inventory.entries or note.record_offset < log.inventory.entries[-2:][0].start:
        return None
    return log.record_at(note.record_offset)
