"""Putting a cleaned segment in the place of those it was made from, so that a crash leaves the old ones or the new.

The steps, each on the device before the next begins: ``.cleaned`` files complete; renamed to ``.swap``, the log first;
the old segments renamed to ``.deleted``; ``.swap`` stripped, the log first. What a crash leaves of it,
:mod:`mqstore.kafka.leftovers` undoes (while a ``.cleaned`` is left) or completes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mqstore.files import durable
from mqstore.kafka.clean_segment import CleanedFiles
from mqstore.kafka.segment import Segment
from mqstore.layout.kafka.names import FileStage

if TYPE_CHECKING:
    from mqstore.kafka.partition_log import PartitionLog


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
