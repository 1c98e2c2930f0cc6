"""Putting a cleaned segment in the place of those it was made from, so that a crash leaves the old ones or the new.

The steps, each on the device before the next begins: ``.cleaned`` files complete; renamed to ``.swap``, the log first;
the old segments renamed to ``.deleted``; ``.swap`` stripped, the log first. What a crash leaves of it,
:mod:`mqstore.kafka.leftovers` undoes (while a ``.cleaned`` is left) or completes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mqstore import errors
from mqstore.files import durable
from mqstore.kafka.clean_segment import CleanedFiles
from mqstore.kafka.leftovers import complete_swaps
from mqstore.kafka.segment import Segment
from mqstore.kafka.stock import take_partition_stock
from mqstore.layout.kafka.names import FileStage

if TYPE_CHECKING:
    from mqstore.kafka.partition_log import PartitionLog


def remove_broken_off(directory: Path) -> None:
    """Remove what an earlier cleaning of this process left before it replaced anything; the removal is durable.

    It must be gone before the first ``.swap``: one beside it would be taken for broken off as well, and removed after
    a crash, when the segments it stands for are gone already.

    Raises:
        StoreIOError: that cleaning broke off while it put a segment in place: only a start of the writer finishes it.
    """
    stock = take_partition_stock(directory)
    complete = complete_swaps(stock)
    if complete:
        raise errors.StoreIOError(
            "an earlier cleaning broke off while it put a segment in place",
            path=directory / complete[0].name,
            hint="close the store and open it again: that finishes it",
        )
    # What shows that the others are broken off goes last.
    for stage in (FileStage.SWAP, FileStage.CLEANED):
        found = [file for file in stock.leftovers if file.stage is stage]
        for file in found:
            durable.remove_file(directory / file.name)
        if found:
            durable.sync_directory(directory)


def swap_in(log: PartitionLog, old: Sequence[Segment], cleaned: CleanedFiles) -> tuple[Segment, list[Path]]:
    """Make ``cleaned`` the segment that stands for ``old``; it, and the files that are to be removed later."""
    directory = log.directory
    for kind in cleaned.kinds:
        durable.rename(cleaned.path(kind), cleaned.path(kind, FileStage.SWAP))
    durable.sync_directory(directory)
    with log.lock:
        removed = [path for segment in old for path in log.mark_deleted(segment, with_snapshot=segment is not old[0])]
        durable.sync_directory(directory)
        for kind in cleaned.kinds:
            durable.rename(cleaned.path(kind, FileStage.SWAP), cleaned.path(kind, FileStage.LIVE))
        durable.sync_directory(directory)
        segment = log.replace_segments(list(old), cleaned.base_offset)
    return segment, removed
