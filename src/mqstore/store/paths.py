"""Where everything lies in a store directory (docs/format/directory.md)."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from mqstore import errors
from mqstore.files.durable import sync_directory
from mqstore.files.whole import mode_of
from mqstore.layout.file_names import parse_queue_id
from mqstore.store.log_places import LogPlaces, default_places, load_places

_TOPIC = re.compile(r"[%|a-zA-Z0-9_-]+")
_UNSAFE = re.compile(r"[/\x00]")


@dataclass(frozen=True)
class StorePaths:
    """The paths of one store."""

    root: Path
    given_places: LogPlaces | None = None
    """Directories of the log, if they are known from elsewhere than the store's own note."""
    derived_suffix: str = ""
    """Ends the names of what is built from the log, and of the note that it is complete."""

    @property
    def commit_log(self) -> Path:
        """Directory of the commit log files, in a store that has one only; copies of any store are such."""
        return default_places(self.root).paths[0]

    @cached_property
    def log_places(self) -> LogPlaces:
        """The directories of the commit log, as given or as the store has noted; looked up once.

        Raises:
            CorruptConfigError, StoreIOError: the note could not be read, or names a directory that is missing.
        """
        return self.given_places or load_places(self.root)

    @property
    def commit_logs(self) -> list[Path]:
        """Every directory that has files of the commit log."""
        return self.log_places.all

    @property
    def consume_queue(self) -> Path:
        """Directory of the queues: one directory a topic, one below it a queue."""
        return self.root / f"consumequeue{self.derived_suffix}"

    @property
    def consume_queue_ext(self) -> Path:
        """Directory of the queues' extension files, where there are such."""
        return self.root / f"consumequeue_ext{self.derived_suffix}"

    @cached_property
    def aside(self) -> StorePaths:
        """The same store with the old state of what is built from the log, as a rebuild keeps it meanwhile."""
        return replace(self, derived_suffix=".before-rebuild")

    @property
    def before_rebuild(self) -> list[tuple[Path, Path]]:
        """What is built from the log, each with the name that its old state has during a rebuild."""
        aside = self.aside
        return [
            (self.consume_queue, aside.consume_queue),
            (self.consume_queue_ext, aside.consume_queue_ext),
            (self.index, aside.index),
        ]

    @cached_property
    def moved_by_rebuild(self) -> tuple[Path, ...]:
        """Every path, old and new, whose state a rebuild in place changes; the note of the old state is the last."""
        return *(path for pair in self.before_rebuild for path in pair), self.aside.dispatch_checkpoint

    @property
    def rebuild_scratch(self) -> Path:
        """Where a rebuild in place by several processes makes the new state; left by one that was killed."""
        return self.root / "mqstore-rebuild"

    @property
    def index(self) -> Path:
        """Directory of the index files."""
        return self.root / f"index{self.derived_suffix}"

    @property
    def config(self) -> Path:
        """Directory of the settings files."""
        return self.root / "config"

    @property
    def checkpoint(self) -> Path:
        """The checkpoint file."""
        return self.root / "checkpoint"

    @property
    def abort(self) -> Path:
        """The file that exists while a store runs, and after it died."""
        return self.root / "abort"

    @property
    def lock(self) -> Path:
        """The file that a running store holds a lock on."""
        return self.root / "lock"

    @property
    def dispatch_checkpoint(self) -> Path:
        """Our own note of how far the derived files are known to be complete (docs/format/directory.md)."""
        return self.root / f"mqstore-dispatch.json{self.derived_suffix}"

    @property
    def scan_note(self) -> Path:
        """Our note of how far the log was found sound by a recovery that is not over."""
        return self.root / "mqstore-scan.json"

    @property
    def progress_note(self) -> Path:
        """Our note of how far the log went when progress was saved."""
        return self.root / "mqstore-progress.json"

    @property
    def progress_in_doubt(self) -> Path:
        """Exists while notes of progress may claim more than the log holds, since its end was cut off."""
        return self.root / "mqstore-progress-in-doubt"

    def queue(self, topic: str, queue_id: int) -> Path:
        """Directory of one queue.

        Raises:
            CorruptRecordError: the topic cannot be a directory name. A record may claim any topic; one that would
                lead outside the store must not be followed.
        """
        if not is_directory_name(topic):
            raise errors.CorruptRecordError(
                "topic cannot be a directory name",
                path=self.consume_queue,
                found=repr(topic),
                hint="mqstore stats lists the topics that there are",
            )
        return self.consume_queue / topic / str(queue_id)

    def list_topics(self) -> list[str]:
        """The topics that have a directory, in order; raises as :meth:`list_queues`."""
        return [path.name for path in _directories(self.consume_queue)]

    def list_queues(self) -> Iterator[tuple[str, int]]:
        """Every (topic, queue id) that has a directory, in order; directories whose name is no number are passed over.

        Raises:
            StoreIOError: a directory could not be read.
        """
        for topic in _directories(self.consume_queue):
            ids = (parse_queue_id(path.name) for path in _directories(topic))
            for queue_id in sorted(one for one in ids if one is not None):
                yield topic.name, queue_id

    def has_queue(self, topic: str, queue_id: int) -> bool:
        """Whether the queue has a directory; raises as :meth:`queue`."""
        return stat.S_ISDIR(mode_of(self.queue(topic, queue_id)))

    def looks_like_store(self) -> bool:
        """Whether anything is here that only a store has, or one whose queues a rebuild has moved aside."""
        if stat.S_ISREG(mode_of(self.checkpoint)):
            return True
        places = (self.commit_log, self.consume_queue, self.aside.consume_queue)
        return any(stat.S_ISDIR(mode_of(path)) for path in places)

    def sync(self) -> None:
        """Make the names in the root durable."""
        sync_directory(self.root)


def _directories(parent: Path) -> list[Path]:
    try:
        return sorted(path for path in parent.iterdir() if stat.S_ISDIR(mode_of(path)))
    except FileNotFoundError:
        return []
    except errors.StoreIOError:
        raise
    except OSError as error:
        raise errors.from_os_error(error, "list directory", parent) from error


def is_directory_name(topic: str) -> bool:
    """Whether a topic read from a record can name a directory below ``consumequeue``."""
    if not topic or topic in (".", "..") or _UNSAFE.search(topic):
        return False
    try:
        return len(topic.encode()) <= 255
    except UnicodeEncodeError:  # half a surrogate pair, which no text read from a record holds
        return False


def is_legal_topic(topic: str) -> bool:
    """Whether a producer may use the topic: the characters that RocketMQ's clients and brokers agree on."""
    return _TOPIC.fullmatch(topic) is not None
