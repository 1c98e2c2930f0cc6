"""What lies in a data directory and in a partition directory, told from names alone.

Taking stock changes nothing and never stops at something unexpected: what belongs to no partition or segment is
listed as such.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

from mqstore import errors
from mqstore.layout.kafka import names
from mqstore.layout.kafka.names import FileKind, FileStage, PartitionName, PartitionState, SegmentFile

_KNOWN_FILES = {names.LEADER_EPOCHS, names.PARTITION_METADATA, "quorum-state"}


@dataclass
class PartitionStock:
    """The files of one partition directory.

    Attributes:
        directory: where they lie.
        logs: base offsets of the segments, ascending.
        files: every live file that shares a stem, by kind, ascending by stem; derived files may lack their log.
        leftovers: files that are on their way in or out.
        odd: paths under a segment file's name that are no regular files.
        foreign: paths whose names mean nothing here.
        temporaries: files that were to replace a small one, whose writer was stopped before, or is at it now.
    """

    directory: Path
    files: dict[FileKind, list[int]] = field(default_factory=lambda: {kind: [] for kind in FileKind})
    leftovers: list[SegmentFile] = field(default_factory=list)
    odd: list[Path] = field(default_factory=list)
    foreign: list[Path] = field(default_factory=list)
    temporaries: list[Path] = field(default_factory=list, compare=False)

    @property
    def logs(self) -> list[int]:
        """Base offsets of the segments, ascending."""
        return self.files[FileKind.LOG]

    @property
    def odd_logs(self) -> dict[int, Path]:
        """Those of :attr:`odd` that stand where the ``.log`` of a segment should, by base offset."""
        return self._odd_logs(FileStage.LIVE)

    @property
    def odd_swaps(self) -> dict[int, Path]:
        """The same for a segment's ``.log.swap``: what it replaces may be gone already."""
        return self._odd_logs(FileStage.SWAP)

    def _odd_logs(self, stage: FileStage) -> dict[int, Path]:
        found = {}
        for path in self.odd:
            file = names.parse_segment_file(path.name)
            if file is not None and (file.kind, file.stage) == (FileKind.LOG, stage):
                found[file.offset] = path
        return found

    def path(self, offset: int, kind: FileKind, stage: FileStage = FileStage.LIVE) -> Path:
        """Where a file of this stem lies, or would."""
        return self.directory / names.segment_file_name(offset, kind, stage)

    def has(self, offset: int, kind: FileKind) -> bool:
        """Whether there is such a file."""
        return offset in self.files[kind]


@dataclass
class DataDirectoryStock:
    """What a data directory holds: live partitions, directories on their way in or out, foreign ones, temporaries.

    ``odd`` is what bears the name of a live partition and is no directory: a link that leads nowhere, or a file.
    """

    partitions: dict[tuple[str, int], Path]
    others: list[tuple[Path, PartitionName]]
    foreign: list[Path]
    temporaries: list[Path]
    odd: dict[tuple[str, int], Path] = field(default_factory=dict)


def take_partition_stock(directory: Path) -> PartitionStock:
    """List the files of a partition directory.

    Raises:
        StoreIOError: it could not be read. That is not the same as an empty one.
    """
    found = PartitionStock(directory)
    for entry in _scan(directory):
        parsed = names.parse_segment_file(entry.name)
        path = directory / entry.name
        if names.is_temporary(entry.name) and _is_file(entry):
            found.temporaries.append(path)
        elif parsed is None:
            if not _is_known(entry.name):
                found.foreign.append(path)
        elif not _is_file(entry):
            found.odd.append(path)
        elif parsed.stage is not FileStage.LIVE:
            found.leftovers.append(parsed)
        else:
            found.files[parsed.kind].append(parsed.offset)
    for stems in found.files.values():
        stems.sort()
    found.leftovers.sort()
    return found


def odd_file_error(path: Path) -> errors.CorruptFileError:
    """What is raised where a path of :attr:`PartitionStock.odd` is needed."""
    return errors.CorruptFileError(
        "something else than a file under the name of one", path=path, hint=errors.HINT_FOREIGN
    )


def odd_partition_error(path: Path) -> errors.CorruptFileError:
    """What is raised where a path of :attr:`DataDirectoryStock.odd` is needed."""
    return errors.CorruptFileError(
        "something else than a directory under the name of a partition",
        path=path,
        hint="bring back what the link leads to, or move it away",
    )


def take_data_directory_stock(path: Path) -> DataDirectoryStock:
    """List the partitions of a data directory, ordered by topic and number.

    Raises:
        StoreIOError: it could not be read.
    """
    found = DataDirectoryStock({}, [], [], [])
    for entry in _scan(path):
        name = names.parse_partition_directory(entry.name)
        if not _is_directory(entry):
            if names.is_temporary(entry.name):
                found.temporaries.append(path / entry.name)
            elif name is not None and name.state is PartitionState.LIVE:
                found.odd[name.topic, name.partition] = path / entry.name
            continue
        if name is None:
            found.foreign.append(path / entry.name)
        elif name.state is PartitionState.LIVE:
            found.partitions[name.topic, name.partition] = path / entry.name
        else:
            found.others.append((path / entry.name, name))
    found.partitions = dict(sorted(found.partitions.items()))
    return found


def _scan(directory: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as scan:
            return sorted(scan, key=lambda entry: entry.name)
    except OSError as error:
        raise errors.from_os_error(error, "list directory", directory) from error


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return stat.S_ISREG(entry.stat().st_mode)
    except OSError:
        return not entry.is_symlink()  # gone since it was listed, or a link that leads nowhere


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False  # a link that leads nowhere


def _is_known(name: str) -> bool:
    return name in _KNOWN_FILES or name.endswith(".tmp") or names.parse_metadata_snapshot(name) is not None
