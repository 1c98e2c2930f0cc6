"""The small files of a data directory that is open for writing: lock, marker, checkpoints, meta.properties."""

from __future__ import annotations

import contextlib
import logging
import os
import uuid
from collections.abc import Mapping
from pathlib import Path

from mqstore import errors
from mqstore.files import durable
from mqstore.files.whole import mode_of, read_whole
from mqstore.kafka.stock import take_data_directory_stock
from mqstore.layout.kafka import names
from mqstore.layout.kafka.checkpoints import (
    TopicPartition,
    decode_meta_properties,
    decode_offsets,
    decode_topic_id,
    encode_clean_shutdown,
    encode_meta_properties,
    encode_offsets,
    encode_topic_id,
    format_uuid,
)
from mqstore.layout.kafka.names import FileKind

_log = logging.getLogger(__name__)


class DataDirectory:
    """The files beside the partitions. Not safe for several threads: the store orders the calls."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def lock_path(self) -> Path:
        """The file that a writer locks."""
        return self.path / names.LOCK

    def has_clean_marker(self) -> bool:
        """Whether the last writer noted a clean stop."""
        return mode_of(self.path / names.CLEAN_SHUTDOWN) != 0

    def remove_clean_marker(self) -> None:
        """Remove the mark of a clean stop. From here on the directory counts as crashed."""
        if self.has_clean_marker():
            durable.remove_file(self.path / names.CLEAN_SHUTDOWN)
            durable.sync_directory(self.path)

    def set_clean_marker(self) -> None:
        """Note a clean stop: the last thing a writer does."""
        durable.replace_file(self.path / names.CLEAN_SHUTDOWN, encode_clean_shutdown())

    def remove_temporaries(self) -> None:
        """Remove what a writer left that was stopped while it replaced a small file; those of partitions are theirs."""
        for path in take_data_directory_stock(self.path).temporaries:
            _log.info("removing what a stopped writer left: %s", path)
            durable.remove_file(path)

    def load_checkpoint(self, name: str) -> dict[TopicPartition, int]:
        """One of the four ``*-offset-checkpoint`` files; empty, with a warning, when it is damaged."""
        path = self.path / name
        try:
            data = read_whole(path, name)
            return {} if data is None else decode_offsets(data)
        except errors.DamageError as error:
            _log.warning("going on without %s, which is damaged: %s", path, error)
            return {}

    def load_log_starts(self) -> dict[TopicPartition, int]:
        """The log start offsets.

        Raises:
            CorruptFileError: the file is damaged: without it, deleted records would come back.
        """
        path = self.path / names.LOG_STARTS
        data = read_whole(path, names.LOG_STARTS)
        try:
            return {} if data is None else decode_offsets(data)
        except errors.CorruptFileError as error:
            raise errors.CorruptFileError(
                error.message, path=path, expected=error.expected, found=error.found,
                hint="remove it, and records deleted through delete_records come back; or restore it",
            ) from error  # fmt: skip

    def save_checkpoint(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Write one of the four ``*-offset-checkpoint`` files, if it would change."""
        path = self.path / name
        data = encode_offsets(offsets)
        try:
            if read_whole(path, name) == data:
                return
        except errors.MqstoreError as error:
            _log.warning("writing %s anew: %s", path, error)
        durable.replace_file(path, data)

    def has_meta_properties(self) -> bool:
        """Whether there is a ``meta.properties``.

        Raises:
            CorruptFileError: there is one, and it is damaged.
        """
        path = self.path / names.META_PROPERTIES
        data = read_whole(path, names.META_PROPERTIES)
        try:
            return data is not None and bool(decode_meta_properties(data))
        except errors.CorruptFileError as error:
            error.path, error.hint = str(path), "restore it, or remove it to have a new one written"
            raise

    def save_meta_properties(self, node_id: int) -> None:
        """Write ``meta.properties`` for a new data directory."""
        pairs = {
            "version": "1",
            "node.id": str(node_id),
            "cluster.id": format_uuid(uuid.uuid4()),
            "directory.id": format_uuid(uuid.uuid4()),
        }
        durable.replace_file(self.path / names.META_PROPERTIES, encode_meta_properties(pairs))


def load_topic_id(directory: Path) -> uuid.UUID | None:
    """The topic's id by ``partition.metadata`` of a partition; None when that is missing or damaged."""
    path = directory / names.PARTITION_METADATA
    try:
        data = read_whole(path, names.PARTITION_METADATA)
        return None if data is None else decode_topic_id(data)
    except errors.DamageError as error:
        _log.warning("a topic gets a new id, its partition.metadata is damaged: %s", error)
        return None


def make_partitions(directories: Mapping[Path, uuid.UUID]) -> set[Path]:
    """Make the directories of new partitions, with an empty segment and the topic's id in ``partition.metadata``.

    A crash may leave some without some of these files. Each step is done for all before the next one: a file system
    writes what has come together at the first sync, and has little left to do at the others.

    Returns those that were not there before; the others get an id alone.
    """
    temporaries = {
        path: path.with_name(f"{path.name}.tmp") for path in (one / names.PARTITION_METADATA for one in directories)
    }
    try:
        return _make_partitions(directories, temporaries)
    except BaseException:
        with contextlib.suppress(errors.MqstoreError):
            for temporary in temporaries.values():
                durable.remove_file(temporary)
        raise


def _make_partitions(directories: Mapping[Path, uuid.UUID], temporaries: Mapping[Path, Path]) -> set[Path]:
    made = set()
    for directory, topic_id in directories.items():
        if durable.make_directory(directory):
            made.add(directory)
            for kind in (FileKind.LOG, FileKind.OFFSET_INDEX, FileKind.TIME_INDEX):
                os.close(durable.create_file(directory / names.segment_file_name(0, kind), 0))
        temporary = temporaries[directory / names.PARTITION_METADATA]
        fd = durable.create_file(temporary, 0)
        try:
            durable.write_at(fd, encode_topic_id(topic_id), 0, temporary)
        finally:
            os.close(fd)
    for path, temporary in temporaries.items():
        durable.sync_path(temporary)
        durable.rename(temporary, path)
    for directory in [*directories, *{directory.parent for directory in directories}]:
        durable.sync_directory(directory)
    return made
