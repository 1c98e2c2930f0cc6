"""Which files a queue of files consists of, over one directory or several, and what is wrong with them.

A queue of files is a set of equal-sized files, each named by its start offset: 20 decimal digits
(docs/format/directory.md). Taking stock never changes anything and never stops at the first fault: the faults are
returned as problems, and the caller decides which of them it can live with.
"""

from __future__ import annotations

import enum
import errno
import functools
import itertools
import os
import stat
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from mqstore import errors
from mqstore.files.remote import RemotePath

NAME_DIGITS = 20
_MAX_START = (1 << 63) - 1
_LEAST_SIZE = 20
"""No file is made for less: that is a unit of a queue, and records are larger."""

Identity = tuple[int, int]
"""Device and number of a file; of an object, when it was written and its size."""


class ProblemKind(enum.Enum):
    """What can be wrong with a queue of files."""

    FOREIGN = "a name that is no start offset"
    MISPLACED = "a start offset at which no file begins"
    NOT_A_FILE = "something else than a file under the name of one"
    EMPTY = "a file of length 0"
    WRONG_SIZE = "a file of another length"
    DUPLICATE = "the same start offset in two directories"
    HOLE = "a hole between files"
    OVERLAP = "files that overlap"


_HINTS = {
    ProblemKind.NOT_A_FILE: errors.HINT_FOREIGN,
    ProblemKind.MISPLACED: errors.HINT_FOREIGN,
    ProblemKind.DUPLICATE: errors.HINT_DOUBLE,
}


@dataclass(frozen=True)
class Problem:
    """One fault of an inventory: its kind, the path concerned and the facts."""

    kind: ProblemKind
    path: Path
    expected: object = None
    found: object = None

    def to_error(self, hint: str | None = None) -> errors.CorruptFileError:
        """This fault as an exception; ``hint`` is for what somebody has not just to move away."""
        return errors.CorruptFileError(
            self.kind.value, path=self.path, expected=self.expected, found=self.found, hint=_HINTS.get(self.kind, hint)
        )


@dataclass(frozen=True)
class FileEntry:
    """One file: its start offset in the queue, its path and its length on disk in bytes.

    ``identity`` tells the file from another that is given its name later, where whoever lists is to know that.
    """

    start: int
    path: Path
    length: int
    identity: Identity | None = None


@dataclass
class Inventory:
    """Files in order of their start offsets, the size each of them should have, and the problems met, in that order.

    What begins where none of the files can, is a problem and none of the entries. Never changed: who lists again makes
    another.
    """

    entries: list[FileEntry]
    size_bytes: int
    problems: list[Problem] = field(default_factory=list)

    @property
    def start(self) -> int:
        """Start offset of the first file, 0 when there is none."""
        return self.entries[0].start if self.entries else 0

    @property
    def end(self) -> int:
        """Offset just past the last file's full size, 0 when there is none."""
        return self.entries[-1].start + self.size_bytes if self.entries else 0

    @functools.cached_property
    def _starts(self) -> list[int]:
        return [entry.start for entry in self.entries]

    def find(self, offset: int) -> FileEntry | None:
        """The file that holds ``offset``, or None."""
        index = bisect_right(self._starts, offset) - 1
        if index < 0:
            return None
        entry = self.entries[index]
        return entry if offset < entry.start + self.size_bytes else None

    def end_of(self, entry: FileEntry) -> int:
        """Offset just past a file's bytes; of one that is longer than it should be, where the next begins, which has
        what lies there.
        """
        index = bisect_right(self._starts, entry.start)
        end = entry.start + entry.length
        return min(end, self._starts[index]) if index < len(self._starts) else end

    def has_others_than(self, before: Inventory) -> bool:
        """Whether other files have come to bear names that were there ``before``: what was learnt of them is void."""
        known = {entry.start: entry.identity for entry in before.entries}
        return any(known.get(entry.start, entry.identity) != entry.identity for entry in self.entries)


def take_inventory(directories: Iterable[Path], size_bytes: int | None = None) -> Inventory:
    """List the files of all ``directories``.

    Args:
        directories: where to look; one that does not exist counts as empty.
        size_bytes: the size that every file should have. None: found out, from the distance of names where there
            are two files, else from the length of the only one.

    Raises:
        StoreIOError: a directory could not be read. That is not the same as an empty one.
    """
    entries: list[FileEntry] = []
    problems: list[Problem] = []
    for directory in directories:
        for path, length, identity in _list_files(directory):
            if not _is_start_offset(path.name):
                if length is not None:
                    expected = f"20 digits, at most {_MAX_START:020d}"
                    problems.append(Problem(ProblemKind.FOREIGN, path, expected, path.name))
            elif length is None:
                problems.append(Problem(ProblemKind.NOT_A_FILE, path, expected="a regular file"))
            else:
                entries.append(FileEntry(int(path.name), path, length, identity))
    entries.sort(key=lambda entry: entry.start)
    size = size_bytes if size_bytes is not None else infer_size(entries)
    strays = _find_strays(entries, size, size_bytes is not None)
    problems += (Problem(ProblemKind.MISPLACED, one.path, f"a multiple of {size}", one.start) for one in strays)
    entries = [one for one in entries if one not in strays] if strays else entries
    problems.extend(_find_problems(entries, size))
    problems.sort(key=lambda problem: problem.path.name)
    return Inventory(entries, size, problems)


def identity_of(path: Path) -> Identity | None:
    """What tells the file from the next of its name; None of an object, or where nothing is."""
    if isinstance(path, RemotePath):
        return None
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def infer_size(entries: list[FileEntry]) -> int:
    """The common size of ``entries`` (ordered by start), 0 when there is nothing to tell it from."""
    gaps = [b.start - a.start for a, b in itertools.pairwise(entries) if b.start > a.start]
    longest = max((entry.length for entry in entries), default=0)
    if not gaps or not _LEAST_SIZE <= min(gaps) <= longest:
        return longest
    return min(gaps) if min(gaps) == longest else _size_of_most(entries, min(gaps))


def _size_of_most(entries: list[FileEntry], least_gap: int) -> int:
    """``least_gap``, unless most of ``entries`` are longer, by one length, and lie as such files do, among strays."""
    ((length, count),) = Counter(one.length for one in entries).most_common(1)
    if length <= least_gap or count * 2 <= len(entries):
        return least_gap
    starts = [one.start for one in entries if one.length == length]
    return length if all((start - starts[0]) % length == 0 for start in starts) else least_gap


def _find_strays(entries: list[FileEntry], size_bytes: int, is_known: bool) -> list[FileEntry]:
    """Files that do not begin at a multiple of the size, as most do.

    Where one length is all that tells the size, it may be that of a file that was cut short: then only those that begin
    inside another are strays for certain.
    """
    strays = [one for one in entries if one.start % size_bytes] if size_bytes else []
    if len(strays) * 2 > len(entries):
        return []
    if strays and not is_known and sum(one.length == size_bytes for one in entries if one not in strays) < 2:
        inside = (one for before, one in itertools.pairwise(entries) if one.start < before.start + before.length)
        return [one for one in inside if one in strays]
    return strays


def _is_start_offset(name: str) -> bool:
    return len(name) == NAME_DIGITS and name.isascii() and name.isdigit() and int(name) <= _MAX_START


_Listed = tuple[Path, int | None, Identity | None]


def _list_files(directory: Path) -> list[_Listed]:
    """Everything in ``directory`` with length and identity; None is the length of what is no regular file."""
    try:
        if isinstance(directory, RemotePath):
            return list(directory.listing())
        with os.scandir(directory) as scan:
            names = [item.name for item in scan]
        return [found for name in names if (found := _look_at(directory / name)) is not None]
    except FileNotFoundError:
        return []
    except OSError as error:
        if isinstance(error, errors.MqstoreError):
            raise
        raise errors.from_os_error(error, "list directory", directory) from error


def _look_at(path: Path) -> _Listed | None:
    try:
        status = os.stat(path)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            raise errors.from_os_error(error, "look at path", path) from error
        try:
            os.lstat(path)
        except FileNotFoundError:
            return None  # removed since it was listed
        return path, None, None  # a link that leads nowhere
    length = status.st_size if stat.S_ISREG(status.st_mode) else None
    return path, length, (status.st_dev, status.st_ino)


def _find_problems(entries: list[FileEntry], size_bytes: int) -> list[Problem]:
    """Of each file first what is wrong in front of it."""
    problems = []
    for before, after in itertools.pairwise(entries):
        gap = after.start - before.start
        if gap == 0:
            problems.append(Problem(ProblemKind.DUPLICATE, after.path, "one file of this name", before.path))
        elif gap > size_bytes:
            problems.append(
                Problem(
                    ProblemKind.HOLE,
                    after.path,
                    f"a file at {before.start + size_bytes}",
                    f"next at {after.start}, behind {before.path}",
                )
            )
        elif gap < size_bytes:
            problems.append(
                Problem(
                    ProblemKind.OVERLAP,
                    after.path,
                    before.start + size_bytes,
                    f"{after.start}, behind {before.path}",
                )
            )
    for entry in entries:
        if entry.length == 0:
            problems.append(Problem(ProblemKind.EMPTY, entry.path, size_bytes, 0))
        elif entry.length != size_bytes:
            problems.append(Problem(ProblemKind.WRONG_SIZE, entry.path, size_bytes, entry.length))
    return problems
