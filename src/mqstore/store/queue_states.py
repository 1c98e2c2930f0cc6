"""Reading queues and index beside a rebuild in place, which moves the old ones aside and makes them anew.

Until the new queues reach as far as the old ones, these say where the messages are; so it is with the index. A rebuild
that was killed leaves both states behind, and another program may then build the queues and go on with them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path, PosixPath
from typing import TypeVar

from mqstore import errors
from mqstore.files.inventory import Identity, identity_of
from mqstore.files.lock import is_locked
from mqstore.files.pool import FilePool
from mqstore.store.index_reader import IndexFileReader
from mqstore.store.paths import StorePaths
from mqstore.store.queue_reader import QueueReader

_ResultT = TypeVar("_ResultT")

State = tuple[Identity | None, ...]
"""Where queues and index lie, new and old; another one after every step of a rebuild."""
Look = Callable[[StorePaths], State]


def old_queues(paths: StorePaths) -> StorePaths | None:
    """The same store with its old queues, while a rebuild keeps them, or one that was killed has left them."""
    aside = paths.aside
    return None if identity_of(aside.consume_queue) is None else aside


def old_reader(old: StorePaths | None, topic: str, queue_id: int, pool: FilePool) -> QueueReader | None:
    """Reader of the old state of a queue that is made anew, if there is such."""
    if old is None or identity_of(old.queue(topic, queue_id)) is None:
        return None
    return QueueReader(topic, queue_id, old.queue(topic, queue_id), pool)


def reader_up_to(paths: StorePaths, topic: str, queue_id: int, end: int, pool: FilePool) -> QueueReader:
    """The queue as it is, or as it was while a rebuild in place has not got as far as offset ``end`` again."""
    reader = QueueReader(topic, queue_id, paths.queue(topic, queue_id), pool)
    before = old_reader(old_queues(paths), topic, queue_id, pool)
    if before is not None:
        last, was = reader.unit(end - 1), before.unit(end - 1)
        if (last is None or not last.is_written) and was is not None and was.is_written:
            return before
    return reader


def is_rebuilt(paths: StorePaths) -> bool:
    """Whether a rebuild in place is going on, or was broken off: new queues and index may be half made."""
    note = paths.moved_by_rebuild[-1]
    return os.access(note, os.F_OK) if type(note) is PosixPath else identity_of(note) is not None


def list_states(paths: StorePaths) -> list[tuple[str, int]]:
    """Every queue, by topic and id, also beside a rebuild in place: then those that there were.

    Raises:
        StoreLockedError, CorruptFileError: these do not tell, as some had been lost.
        StoreIOError: a directory could not be read.
    """
    listed, old = list(paths.list_queues()), old_queues(paths)
    if old is None or not is_rebuilt(paths):
        return listed
    before = list(old.list_queues())
    if not before or not set(listed) <= set(before):
        raise could_not_look(paths)
    return before


def find_queue(
    paths: StorePaths, topic: str, queue_id: int, log_end: int, pool: FilePool
) -> tuple[QueueReader, int] | None:
    """A queue and where it ends, also beside a rebuild in place: then as it was, unless it goes further now.

    None is that there is no such queue, and was none.

    Raises:
        StoreLockedError, CorruptFileError: there was none, and the rebuild may just make it.
    """
    found = None
    if paths.has_queue(topic, queue_id):
        reader = QueueReader(topic, queue_id, paths.queue(topic, queue_id), pool)
        found = reader, reader.find_end(log_end)
    old = old_queues(paths)
    if old is None or not is_rebuilt(paths):
        return found
    before = old_reader(old, topic, queue_id, pool)
    if before is None:
        if found is not None or not any(old.list_queues()):
            raise could_not_look(paths)
        return None
    old_end = before.find_end(log_end)
    return found if found is not None and found[1] > old_end else (before, old_end)


def find_index(paths: StorePaths, files_of: Callable[[StorePaths], list[IndexFileReader]]) -> list[IndexFileReader]:
    """The index files, also beside a rebuild in place: then those that there were, unless the index goes further now.

    Raises:
        StoreLockedError, CorruptFileError: there were none, and the rebuild may just make them.
    """
    old = paths.aside
    if not is_rebuilt(paths) or identity_of(old.index) is None:
        return files_of(paths)
    before = files_of(old)
    if not before:
        raise could_not_look(paths)
    try:
        found = files_of(paths)
        return found if _reach(found) > _reach(before) else before
    except errors.CorruptFileError:  # new ones that are being made; of old ones a query tells
        return before


def _reach(files: list[IndexFileReader]) -> int:
    """The place in the log of the newest entry, -1 without one."""
    headers = (file.header for file in reversed(files))
    return next((header.end_physical_offset for header in headers if header.index_count > 1), -1)


def could_not_look(paths: StorePaths) -> errors.MqstoreError:
    """The error for who asks for what only the new queues or the new index can tell, while they are half made."""
    kind = errors.StoreLockedError if is_locked(paths.lock) else errors.CorruptFileError
    return kind(
        "could not look: queues and index are being rebuilt in place, or that was broken off",
        path=paths.root,
        found=paths.aside.dispatch_checkpoint.name,
        hint="try again when the rebuild is over; if none is running, mqstore.open ends it. Until then the log tells "
        "everything: from_log=True, --from-log",
    )


@contextlib.contextmanager
def not_rebuilt_meanwhile(paths: StorePaths) -> Iterator[None]:
    """Raise as :func:`could_not_look` if queues and index may be half made at the begin, or are moved inside."""
    before = state_of(paths)
    if is_rebuilt(paths):
        raise could_not_look(paths)
    yield
    if any(was not in (None, now) for was, now in zip(before, state_of(paths), strict=True)) or is_rebuilt(paths):
        raise could_not_look(paths)


def while_queues_stay(paths: StorePaths, read: Callable[[], _ResultT], look: Look | None = None) -> _ResultT:
    """What ``read`` gives, or raises, done anew when queues or index were moved meanwhile; ``look`` is what tells."""
    return in_one_state(paths, read, look)[0]


def in_one_state(paths: StorePaths, read: Callable[[], _ResultT], look: Look | None = None) -> tuple[_ResultT, State]:
    """The same, with the state in which it was read."""
    look = look or state_of
    while True:
        before = look(paths)
        try:
            result = read()
        except errors.MqstoreError:
            if look(paths) == before:
                raise
        else:
            if look(paths) == before:
                return result, before


def state_of(paths: StorePaths) -> State:
    """The state at this moment. The note goes before the old files do, which are removed one by one."""
    return tuple(map(identity_of, paths.moved_by_rebuild))


def state_for_queues(paths: StorePaths) -> State:
    """As much of :func:`state_of` as matters to who reads queues as :func:`find_queue` gives them, and no index."""
    return _state_for(paths, paths.moved_by_rebuild[0])


def state_for_index(paths: StorePaths) -> State:
    """As much of :func:`state_of` as matters to who reads the index as :func:`find_index` gives it, and no queue."""
    return _state_for(paths, paths.moved_by_rebuild[4])


def _state_for(paths: StorePaths, directory: Path) -> State:
    """Where ``directory`` is, and all of the state while a rebuild has its note aside.

    The note is aside in front of the first step and until the last. Where it is not, nobody reads what lies aside, and
    the directory is as it was at a look before if it is the same one: a rebuild between would have made another while
    the old one still lay aside. The directory is looked at first: it may be a new one that is not complete as long as
    the note is there.
    """
    there = identity_of(directory)
    return state_of(paths) if is_rebuilt(paths) else (there,)
