"""The old queues and index, kept under other names by a rebuild in place until the new ones are complete.

With them goes the note that they are complete, which knows the sizes of files as well. It is the first to go and the
last to come back, and it is the first to be removed when the new ones are complete: so its name tells, whatever was
killed in between, whether what lies aside is whole. A store without a note gets an empty one in its place.

While the note is there, a directory aside is the old one, and where none is aside the old one has not been moved yet,
or is back already: so readers know which is which (``queue_states``). A directory that was missing is empty there.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from mqstore.files import copying, durable
from mqstore.files.held import Held
from mqstore.files.whole import mode_of
from mqstore.store.multi_dispatch import find_multi_dispatch, save_multi_dispatch
from mqstore.store.paths import StorePaths


def move_aside(paths: StorePaths) -> None:
    """Put queues and index out of the way of new ones; without those, opening the locked store builds them."""
    save_multi_dispatch(paths.root, find_multi_dispatch(paths))  # queues may tell it, and they go
    note = paths.aside.dispatch_checkpoint
    if mode_of(paths.dispatch_checkpoint):
        durable.rename(paths.dispatch_checkpoint, note)
    elif not mode_of(note):
        durable.replace_file(note, b"")
    paths.sync()
    for directory, aside in paths.before_rebuild:
        if mode_of(directory):
            durable.rename(directory, aside)
        elif aside != paths.aside.consume_queue_ext:  # which only some stores have
            durable.make_directories(aside)
    paths.sync()


def put_back(paths: StorePaths) -> None:
    """In a locked store, what was moved aside takes the place of what was begun; nothing where nothing is aside.

    What lies aside of new ones that are complete may be half removed; the rest of it is.
    """
    note = paths.aside.dispatch_checkpoint
    left = [(directory, aside) for directory, aside in paths.before_rebuild if mode_of(aside)]
    if not left and not mode_of(note):
        return
    if mode_of(paths.dispatch_checkpoint) and not mode_of(note):
        drop_aside(paths)
        return
    durable.remove_file(paths.dispatch_checkpoint)  # it would call the old queues complete, for the new ones
    paths.sync()
    for directory, aside in left:
        copying.remove_tree(directory)
        if aside.is_dir() and not any(aside.iterdir()):
            copying.remove_tree(aside)  # it was missing, or might as well have been
        else:
            durable.rename(aside, directory)
    paths.sync()
    if mode_of(note):
        if note.stat().st_size:
            durable.rename(note, paths.dispatch_checkpoint)
        else:
            durable.remove_file(note)
        paths.sync()


def call_complete(paths: StorePaths) -> None:
    """Queues and index are complete, and noted to be: from now on they count, and what lies aside waits for removal."""
    if mode_of(paths.aside.dispatch_checkpoint):
        durable.remove_file(paths.aside.dispatch_checkpoint)
        paths.sync()


def drop_aside(paths: StorePaths) -> None:
    """Remove what lies aside, and what tasks have left: queues and index are complete, and noted to be."""
    call_complete(paths)
    if left := _left(paths):
        with ThreadPoolExecutor(len(left)) as pool:  # the system lets go of a large file one page after the other
            list(pool.map(copying.remove_tree, left))


@contextmanager
def dropping_aside(paths: StorePaths) -> Iterator[None]:
    """In a locked store, have nothing lie aside behind the block, which makes queues and index complete.

    Where they are complete and noted to be, what lies aside only waits for its removal, and goes while the block runs.
    If the block fails before they are complete, it stays, as it may be put back. The block must not look at it.

    Raises:
        StoreIOError: it could not be removed.
    """
    if mode_of(paths.aside.dispatch_checkpoint) or not mode_of(paths.dispatch_checkpoint) or not _left(paths):
        yield
        drop_aside(paths)
        return
    with Held() as held:
        beside = ThreadPoolExecutor(1)
        held.callback(beside.shutdown)
        held.callback(beside.shutdown)  # twice: an interrupt while the first waits must not leave the thread at work
        dropped = beside.submit(drop_aside, paths)
        yield
        dropped.result()


def _left(paths: StorePaths) -> list[Path]:
    trees = *(aside for _, aside in paths.before_rebuild), paths.rebuild_scratch
    return [tree for tree in trees if mode_of(tree)]
