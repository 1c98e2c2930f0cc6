"""Where jobs put files: a local or shared directory, or an object store. Names and bytes reach the device."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from mqstore import errors
from mqstore.files import copying, durable
from mqstore.files.remote import RemotePath
from mqstore.files.whole import mode_of
from mqstore.spark.stores import StoreRef, check_outside
from mqstore.store.arguments import check_path

DEFAULT_TARGET_FILE_BYTES: Final = 128 << 20

_ATTEMPTS: Final = 10


def put(path: Path, data: bytes) -> None:
    """Make the file ``path``, or replace it: what is there is the old content or the new."""
    if isinstance(path, RemotePath):
        with _told("write file", path):
            path.write_bytes(data)
        return
    for attempts_left in reversed(range(_ATTEMPTS)):
        durable.make_directories(path.parent)
        try:
            durable.replace_file(path, data)
            return
        except errors.StoreIOError as error:  # another job found the directory while nothing was in it
            if not attempts_left or not isinstance(error.__cause__, FileNotFoundError):
                raise


def put_once(path: Path, data: bytes) -> None:
    """Make the file ``path`` unless another attempt was faster; never a part of it.

    An object store has no such operation: there the last of several attempts at the same moment stays, as good as any.
    """
    if isinstance(path, RemotePath):
        if not mode_of(path):
            put(path, data)
        return
    own = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    durable.replace_file(own, data)
    try:
        os.link(own, path)
    except FileExistsError:
        pass
    finally:
        own.unlink()


def check_page(report: object, stores: Iterable[StoreRef]) -> Path | None:
    """Where a job's page is to be written, None for no page.

    Raises:
        UsageError: that cannot be a file of its own.
        StoreIOError, DiskFullError: it could not be written.
    """
    if report is None:
        return None
    page = check_path(report).absolute()
    if isinstance(page, RemotePath) or page.is_dir():
        raise errors.UsageError("a report is a file on this machine", found=page, hint="give a file's path")
    check_outside(stores, page, "report")
    durable.check_can_create(page)
    return page


def check_can_create(path: Path) -> None:
    """Raise StoreIOError or DiskFullError where ``path`` could not be made; an object store is not asked."""
    if not isinstance(path, RemotePath):
        durable.check_can_create(path)


def move(path: Path, target: Path) -> None:
    """Give a finished file its final name. Raises FileNotFoundError, StoreIOError."""
    try:
        if isinstance(path, RemotePath) and isinstance(target, RemotePath):
            path.move_to(target)
        else:
            durable.make_directories(target.parent)
            os.replace(path, target)
    except (FileNotFoundError, errors.MqstoreError):
        raise
    except OSError as error:
        raise errors.from_os_error(error, "move file", path) from error


@contextlib.contextmanager
def _told(action: str, path: Path) -> Iterator[None]:
    """Errors of the system are those of this package."""
    try:
        yield
    except errors.MqstoreError:
        raise
    except OSError as error:
        raise errors.from_os_error(error, action, path) from error


def sync_names(paths: Iterable[Path]) -> None:
    """Make the names of files durable that were moved."""
    for directory in {path.parent for path in paths if not isinstance(path, RemotePath)}:
        durable.sync_directory(directory)


def remove_tree(path: Path) -> None:
    """Remove all that lies below ``path``; nothing is nothing to remove. Raises StoreIOError."""
    if isinstance(path, RemotePath):
        with _told("remove what is below", path):
            path.remove()
    else:
        copying.remove_tree(path)


def remove_if_empty(directory: Path) -> None:
    """Remove a directory in which nothing is but what a killed job has left of :func:`put`."""
    if not isinstance(directory, RemotePath):
        durable.remove_temporaries(directory)
        with contextlib.suppress(OSError):  # there is something in it, or it is in nobody's way
            directory.rmdir()


def remove_file(path: Path) -> None:
    """Remove a file; one that is gone is no error. Raises StoreIOError."""
    with _told("remove file", path):
        if isinstance(path, RemotePath):
            path.remove()
        else:
            path.unlink(missing_ok=True)


def remove_temporaries(directory: Path) -> None:
    """Remove what killed jobs have left of :func:`put` in ``directory``; in an object store they leave nothing."""
    if not isinstance(directory, RemotePath):
        durable.remove_temporaries(directory)


def names(directory: Path) -> list[str]:
    """What lies directly below ``directory``, in order; none when there is no such directory.

    Raises:
        StoreIOError: it could not be looked into.
    """
    try:
        return sorted(path.name for path in directory.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise errors.from_os_error(error, "list the directory", directory) from error


def open_sink(path: Path) -> Any:
    """A file of pyarrow's to write to."""
    import pyarrow as pa

    if isinstance(path, RemotePath):
        return path.open_sink()
    path.parent.mkdir(parents=True, exist_ok=True)
    return pa.OSFile(str(path), "wb")


def begin_sync(path: Path, sink: Any, begin: int, end: int) -> None:
    """Let the device begin with [begin, end) of an open file, so that :func:`finish` has less to wait for."""
    if not isinstance(path, RemotePath):
        durable.begin_sync(sink.fileno(), begin, end - begin)


def finish(path: Path) -> int:
    """Make the bytes of a file durable that has been written; its length."""
    if not isinstance(path, RemotePath):
        durable.sync_path(path)
    return path.stat().st_size
