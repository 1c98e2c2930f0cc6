"""A Kafka data directory, a partition or a segment looked at from outside: read-only, without the lock."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from mqstore import errors
from mqstore.files.pool import FilePool
from mqstore.files.whole import mode_of, read_whole
from mqstore.findings import Finding
from mqstore.kafka.arguments import check_limits, check_offset, check_path, check_place, check_time
from mqstore.kafka.damage import Reporter, raise_at_damage
from mqstore.kafka.lookup import OffsetTime
from mqstore.kafka.message import GetResult, Isolation
from mqstore.kafka.partition_view import PartitionView
from mqstore.kafka.stats import PartitionStats, partition_stats
from mqstore.kafka.stock import odd_partition_error, take_data_directory_stock, take_partition_stock
from mqstore.layout.kafka import names
from mqstore.layout.kafka.checkpoints import TopicPartition, decode_meta_properties, decode_offsets
from mqstore.layout.kafka.names import PartitionState
from mqstore.layout.kafka.producer_snapshot import ProducerEntry
from mqstore.layout.kafka.txn_index import AbortedTransaction
from mqstore.status import GetMessageStatus

ContentT = TypeVar("ContentT")

_log = logging.getLogger(__name__)
_HINT = "give a data directory, a partition's directory (topic-0), or a segment's .log"


class KafkaView:
    """A Kafka log read from its files as they are at each call.

    Nothing is written, locked or mapped. Beside a running broker the view follows it; after a crash it ends where the
    last whole batch ends. Use it as a context manager, or call :meth:`close`.

    Attributes:
        path: what was given.
        is_data_directory: whether that is a whole data directory. The log start offsets that were raised by deleting
            records are noted there, so that a partition's directory alone begins at its first segment.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Look at ``path``: a data directory, a partition's directory, or one file of a segment.

        Raises:
            NotAStoreError: there is no such path, or nothing of Kafka's there.
            StoreIOError: it could not be read.
        """
        self.path = check_path(path)
        self._pool = FilePool()
        self._partitions: dict[TopicPartition, PartitionView] = {}
        self._odd: dict[TopicPartition, Path] = {}
        self._warned: set[Path] = set()
        self.is_data_directory = False
        mode = mode_of(self.path)
        if stat.S_ISREG(mode):
            self._look_at_segment()
        elif stat.S_ISDIR(mode):
            self._look_at_directory()
        else:
            problem = "neither a directory nor a file" if mode else "no such directory or file"
            raise errors.NotAStoreError(problem, path=self.path, hint=_HINT)

    def _look_at_segment(self) -> None:
        parsed = names.parse_segment_file(self.path.name)
        if parsed is None:
            raise errors.NotAStoreError(
                "not a file of a Kafka segment", path=self.path, expected="20 digits and .log", hint=_HINT
            )
        self._add_single(self.path.absolute().parent, only=parsed.offset)

    def _look_at_directory(self) -> None:
        if names.parse_partition_directory(self.path.absolute().name) or self._holds_segments():
            self._add_single(self.path)
            return
        self.is_data_directory = True
        self._refresh()
        known = (names.META_PROPERTIES, names.RECOVERY_POINTS, names.HIGH_WATERMARKS, names.CLEAN_SHUTDOWN)
        if not self._partitions and not self._odd and not any(mode_of(self.path / name) for name in known):
            raise errors.NotAStoreError(
                "no Kafka log in this directory",
                path=self.path,
                expected="directories named topic-0, or meta.properties",
                hint=_HINT,
            )

    def _holds_segments(self) -> bool:
        stock = take_partition_stock(self.path)
        return bool(stock.logs or stock.odd_logs)

    def _add_single(self, directory: Path, only: int | None = None) -> None:
        name = names.parse_partition_directory(directory.absolute().name)
        topic, partition = (directory.absolute().name, 0) if name is None else name[:2]
        self._partitions[topic, partition] = PartitionView(topic, partition, directory, self._pool, only=only)

    def _refresh(self) -> None:
        if not self.is_data_directory:
            return
        found = take_data_directory_stock(self.path)
        self._odd = found.odd
        for path in [*found.foreign, *found.odd.values()]:
            if path not in self._warned:
                self._warned.add(path)
                kind = "a directory that is no partition's" if path in found.foreign else "a partition's that is none"
                _log.warning("passing over %s: %s", kind, path)
        for where in [where for where in self._partitions if where not in found.partitions]:
            self._partitions.pop(where).forget()  # or files that come back under these names were not seen
        for where, directory in found.partitions.items():
            if where not in self._partitions:
                self._partitions[where] = PartitionView(
                    *where, directory, self._pool, start_offset=partial(self._checkpointed_start, where)
                )

    def _checkpointed_start(self, where: TopicPartition) -> int:
        return self.checkpoint(names.LOG_STARTS).get(where, 0)

    # -- what there is

    def topics(self) -> dict[str, list[int]]:
        """The partitions' numbers by topic, both in order."""
        self._refresh()
        found: dict[str, list[int]] = {}
        for topic, partition in self._partitions:
            found.setdefault(topic, []).append(partition)
        return found

    def partitions(self) -> list[PartitionView]:
        """All partitions, ordered by topic and number."""
        self._refresh()
        return [self._partitions[where] for where in sorted(self._partitions)]

    def find_partition(self, topic: str, partition: int = 0) -> PartitionView | None:
        """One partition; None when there is none of this name.

        Raises:
            CorruptFileError: something else than a directory bears its name, as a link that leads nowhere.
        """
        check_place(topic, partition)
        if (topic, partition) not in self._partitions:
            self._refresh()
            if (topic, partition) in self._odd:
                raise odd_partition_error(self._odd[topic, partition])
        return self._partitions.get((topic, partition))

    def partition(self, topic: str, partition: int = 0) -> PartitionView:
        """One partition.

        Raises:
            UsageError: there is none of this name.
        """
        found = self.find_partition(topic, partition)
        if found is None:
            raise errors.UsageError(
                "no such partition", expected="one of topics()", found=f"{topic}-{partition}", hint="see topics()"
            )
        return found

    def odd_partitions(self) -> dict[TopicPartition, Path]:
        """What bears the name of a partition and is no directory: nobody can tell what was there."""
        self._refresh()
        return dict(self._odd)

    def refuse_odd_partitions(self, wants: Callable[[str, int], bool] = lambda topic, partition: True) -> None:
        """Raise CorruptFileError where there is any of those wanted: for who must have all or nothing."""
        for where, path in self.odd_partitions().items():
            if wants(*where):
                raise odd_partition_error(path)

    def suspended_partitions(self) -> list[tuple[Path, PartitionState]]:
        """Directories of partitions that are deleted, moved here, or stray."""
        if not self.is_data_directory:
            return []
        return [(path, name.state) for path, name in take_data_directory_stock(self.path).others]

    @property
    def was_aborted(self) -> bool:
        """Whether the log is being written now or was left without a clean stop."""
        return self.is_data_directory and mode_of(self.path / names.CLEAN_SHUTDOWN) == 0

    def checkpoint(self, name: str) -> dict[TopicPartition, int]:
        """One of the four ``*-offset-checkpoint`` files; empty when it is missing.

        Raises:
            CorruptFileError: it is damaged.
        """
        return self._read_small(name, decode_offsets, {})

    def _read_small(self, name: str, decode: Callable[[bytes], ContentT], nothing: ContentT) -> ContentT:
        path = self.path / name
        data = read_whole(path, name) if self.is_data_directory else None
        try:
            return nothing if data is None else decode(data)
        except errors.CorruptFileError as error:
            error.path, error.hint = str(path), "restore it, or remove it to go on without"
            raise

    @property
    def meta_properties(self) -> dict[str, str]:
        """The pairs of ``meta.properties``; empty when it is missing."""
        return self._read_small(names.META_PROPERTIES, decode_meta_properties, {})

    # -- records

    def get(
        self,
        topic: str,
        partition: int = 0,
        offset: int = 0,
        max_messages: int = 32,
        *,
        max_bytes: int = 1 << 20,
        isolation: str | Isolation = Isolation.READ_UNCOMMITTED,
        on_damage: Reporter = raise_at_damage,
    ) -> GetResult:
        """Records of one partition from ``offset`` on.

        Args:
            topic: the topic.
            partition: the partition.
            offset: offset of the first record wanted.
            max_messages: how many at most.
            max_bytes: size of keys and values at most, unless the first record alone is larger.
            isolation: ``read_committed`` leaves out what was aborted and ends at the last stable offset.
            on_damage: told of each damaged batch; True passes over it.

        Returns the records with a status that says why there are no more, and the offset to go on from: it counts
        what was looked at, so that a call which finds nothing still moves on.

        Raises:
            UsageError: an argument cannot be meant.
            CorruptBatchError: a damaged batch, unless ``on_damage`` says otherwise.
            CorruptFileError: something else than a file lies in place of a ``.log`` that is needed.
            StoreIOError: the files could not be read.
        """
        check_limits(max_messages, max_bytes)
        check_offset("offset", offset)
        Isolation.parse(isolation)
        found = self.find_partition(topic, partition)
        if found is None:
            return GetResult(GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0)
        return found.get(
            offset, max_messages=max_messages, max_bytes=max_bytes, isolation=isolation, on_damage=on_damage
        )

    def min_offset(self, topic: str, partition: int = 0) -> int:
        """The partition's log start offset; 0 when there is no such partition."""
        found = self.find_partition(topic, partition)
        return 0 if found is None else found.log_start_offset

    def max_offset(self, topic: str, partition: int = 0) -> int:
        """The partition's log end offset; 0 when there is no such partition."""
        found = self.find_partition(topic, partition)
        return 0 if found is None else found.log_end_offset

    def offset_at(self, topic: str, partition: int, timestamp_ms: int | str) -> OffsetTime | None:
        """Offset and timestamp of the first record, in log order, that is not older than ``timestamp_ms``.

        ``"earliest"`` and ``"latest"`` give where the log starts and ends, with timestamp -1; ``"max_timestamp"`` the
        first record with the largest timestamp. None when there is no such record, or no such partition.
        """
        check_time(timestamp_ms)
        found = self.find_partition(topic, partition)
        return None if found is None else found.offset_at(timestamp_ms)

    def aborted_transactions(
        self, topic: str, partition: int = 0, start: int | None = None, end: int | None = None
    ) -> list[AbortedTransaction]:
        """The aborted transactions with records from offset ``start`` to ``end`` (exclusive)."""
        return self.partition(topic, partition).aborted_transactions(start, end)

    def producers(self, topic: str, partition: int = 0) -> list[ProducerEntry]:
        """What the partition's log tells of its producers, up to its end."""
        return self.partition(topic, partition).producers()

    # -- state

    def stats(self) -> list[PartitionStats]:
        """Figures of every partition, ordered by topic and number. Reads every batch's header."""
        return [partition_stats(partition) for partition in self.partitions()]

    def check(self) -> list[Finding]:
        """Everything that is wrong, partition by partition; nothing is changed."""
        from mqstore.kafka.check import check_view

        return check_view(self)

    def close(self) -> None:
        """Close the files."""
        self._pool.close()

    def __enter__(self) -> KafkaView:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
