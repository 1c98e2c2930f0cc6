"""A log that is copied by the tasks that go through it, so that it is read once and written while Python works.

A file that others follow is written to no more, whoever has it: each task writes its part straight to the copy, and
doing it twice changes nothing. The last file goes on in the store that gets the copy, so no attempt that comes late may
write to it: it is copied as a whole, under a name of the attempt's own.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from mqstore.files import copying, durable
from mqstore.files.whole import mode_of
from mqstore.spark.jobs.queue_files import SplitUnits
from mqstore.spark.splits import Split
from mqstore.spark.stores import StoreRef
from mqstore.store.cutting import cut_file


class FileCopy(NamedTuple):
    """A file of the log and its copy.

    Attributes:
        source, target: the two; ``target`` is not there.
        start: physical offset of the file's begin.
        size_bytes: length of the log's files.
        end: where the copied log is to end, None for where this one does.
    """

    source: Path
    target: Path
    start: int
    size_bytes: int
    end: int | None = None


class CopiedSplit(NamedTuple):
    """A split, and the part of its file that is copied with it."""

    split: Split
    file: FileCopy
    begin: int
    end: int


Part = FileCopy | CopiedSplit | Split


@dataclass
class LogCopy:
    """The log of ``store``, and those of its files that are copied while it is gone through."""

    store: StoreRef
    files: list[FileCopy] = field(default_factory=list)
    _shared: list[FileCopy] = field(default_factory=list)

    def begin(self, splits: Sequence[Split]) -> list[Part]:
        """What :func:`do_part` is to do in tasks; the files that are copied as a whole come first.

        Raises:
            CorruptFileError, DiskFullError, StoreIOError: a copy could not be begun.
        """
        whole: list[Part] = []
        last = max((one.start for one in self.files), default=0)
        if self.files:  # a store that was opened since these were listed may have begun others, which are not copied
            splits = [one for one in splits if one.begin < last + self.files[-1].size_bytes]
        parts: dict[Split, Part] = {split: split for split in splits}
        for file in self.files:
            mine = [one for one in splits if file.start <= one.begin < file.start + file.size_bytes]
            if file.start == last or not mine or mine[0].begin != file.start:
                whole.append(file)
                continue
            copying.begin_copy(file.source, file.target)
            self._shared.append(file)
            borders = [*(one.begin - file.start for one in mine), file.size_bytes]
            for split, (begin, end) in zip(mine, itertools.pairwise(borders), strict=True):
                parts[split] = CopiedSplit(split, file, begin, end)
        return [*whole, *parts.values()]

    def end(self) -> None:
        """Make the copies complete and their names durable, once all parts are done."""
        for file in self._shared:
            copying.copy_times(file.source, file.target)
        for directory in {one.target.parent for one in self.files}:
            durable.sync_directory(directory)


def do_part(build: Callable[[Split], SplitUnits], scratch: Path, part: Part) -> SplitUnits:
    """Runs in a task: copy what is to be copied, build what is to be built."""
    if isinstance(part, FileCopy):
        return copy_whole(scratch, part)
    if isinstance(part, Split):
        return build(part)
    copying.copy_range(part.file.source, part.file.target, part.begin, part.end)
    found = build(part.split)
    durable.sync_path(part.file.target)
    return found


def copy_whole(scratch: Path, file: FileCopy) -> SplitUnits:
    """Runs in a task: copy a file under a name of the attempt's own first, so that running twice does no harm.

    The first attempt to be done counts: when a later one is, the copy may be in use.
    """
    if mode_of(file.target):
        return SplitUnits()
    own = scratch / f"{file.target.name}-{uuid.uuid4().hex}"
    copying.copy_file(file.source, own)
    if file.end is not None and file.end < file.start + file.size_bytes:
        cut_file(own, file.size_bytes, file.start, file.end)
    if mode_of(file.target):
        durable.remove_file(own)
    else:
        durable.rename(own, file.target)
    return SplitUnits()
