"""The errors of mqstore: one small tree, the same everywhere.

::

    MqstoreError
    ├── UsageError            an argument, option or configuration value that cannot be meant (also a ValueError)
    ├── NotAStoreError        the path is no store directory, or none of the kind asked for
    ├── DamageError           bytes on disk contradict the format
    │   ├── CorruptRecordError    one commit log record
    │   ├── CorruptBatchError     one record batch of a Kafka log
    │   ├── CorruptFileError      a whole file: length, name, header, order, a hole between files
    │   └── CorruptConfigError    a settings file of which no good copy is left
    ├── StoreLockedError      another process has the store open for writing (retriable)
    ├── StoreClosedError      the object was closed, or belongs to the parent of a fork
    ├── NotWritableError      the store does not take messages now: disk full, damaged, read-only
    │   └── DiskFullError         no space left; everything acknowledged stays readable (retriable)
    ├── MessageIllegalError   the message breaks a limit of the format
    │   ├── OutOfOrderSequenceError   sequence numbers of a Kafka producer leave a gap
    │   └── ProducerFencedError       a newer epoch of a Kafka producer has been seen
    └── StoreIOError          the operating system refused an operation

"There is no such message" is never an error: look-ups answer ``None`` or an empty result for that. An error
means the store *could not look*, or must not go on.

Example::

    try:
        store = mqstore.open("data")
    except mqstore.StoreLockedError as error:
        print(error, error.hint)
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import threading
from collections.abc import Iterator
from typing import Any, Final

_SECRETS: Final = re.compile(
    r"(?P<scheme>(?!file:)[a-z][a-z0-9+.-]+:)"
    r"(?://(?:(?P<user>[^/?@:]*)(?::[^/?@]*)?@)?(?P<place>[^?]*)(?:\?.*)?"
    r"|/(?:(?P<bucket_user>[^/?@:]*)(?::[^/?@]*)?@)?(?P<bucket>[^/?]*)(?:\?[^/]*)?(?P<key>/.*)?)",
    re.DOTALL,
)
"""A URL, or the text of a :class:`~mqstore.files.remote.RemotePath`, whose query sticks to the bucket."""

_QUERIES: Final = re.compile(r"(?<=://)(?:[^\s/?@]*@)?([^\s?'\"]*)(?:\?[^\s'\"]*)?")

_CONTAINER_FIRST: Final = ("abfs:", "abfss:")
"""Where the container stands in the place of a user: ``abfss://container@account.dfs.core.windows.net/key``."""


class MqstoreError(Exception):
    """Base of all errors raised on purpose by this package.

    Attributes:
        message: one sentence on what went wrong.
        path: file or directory concerned, as :func:`shown_path` tells it, or None.
        offset: byte offset concerned (physical offset for commit log records, file offset otherwise), or None.
        expected: what the format or the caller asks for, or None.
        found: what was there instead, or None.
        hint: what to do about it, or None.
        retriable: True when the same call may succeed later without anybody changing the store.
    """

    retriable = False

    def __init__(
        self,
        message: str,
        *,
        path: str | os.PathLike[str] | None = None,
        offset: int | None = None,
        expected: object = None,
        found: object = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.path = None if path is None else shown_path(path)
        self.offset = offset
        self.expected = expected
        self.found = found
        self.hint = hint

    def __str__(self) -> str:
        parts = [self.message]
        if self.path is not None:
            parts.append(f"path {self.path}")
        if self.offset is not None:
            parts.append(f"offset {self.offset}")
        if self.expected is not None:
            parts.append(f"expected {self.expected}")
        if self.found is not None:
            parts.append(f"found {self.found}")
        return "; ".join(parts)

    def __reduce__(self) -> tuple[Any, ...]:
        # Keyword-only attributes do not survive the default pickling; errors cross process borders on Spark.
        return (_rebuild, (type(self), self.message, self.details()))

    def details(self) -> dict[str, Any]:
        """The attributes as a dict, for JSON output; values that are None are left out."""
        names = ("path", "offset", "expected", "found", "hint")
        return {name: value for name in names if (value := getattr(self, name)) is not None}


def shown_path(path: str | os.PathLike[str]) -> str:
    """``path`` as people and logs get it: of a URL without credentials and query, where secrets may stand."""
    text = os.fsdecode(path)
    remote = _SECRETS.fullmatch(text)
    if remote is None:
        return text
    user = remote["user"] or remote["bucket_user"] if remote["scheme"] in _CONTAINER_FIRST else None
    container = f"{user}@" if user else ""
    return f"{remote['scheme']}//{container}{remote['place'] or ''}{remote['bucket'] or ''}{remote['key'] or ''}"


def without_queries(text: str) -> str:
    """``text`` with its URLs without credentials and queries, where secrets may stand."""
    return _QUERIES.sub(r"\1", text)


def _rebuild(kind: type[MqstoreError], message: str, details: dict[str, Any]) -> MqstoreError:
    return kind(message, **details)


class UsageError(MqstoreError, ValueError):
    """An argument, option or configuration value cannot be meant."""


class NotAStoreError(MqstoreError):
    """The path is missing, is no directory, or holds nothing of the store kind asked for."""


class DamageError(MqstoreError):
    """Bytes on disk contradict the format."""


class CorruptRecordError(DamageError):
    """A commit log record is damaged; ``offset`` is its physical offset, ``found`` the reason."""


class CorruptBatchError(DamageError):
    """A record batch of a Kafka log is damaged; ``offset`` is its position in the file, ``found`` the reason."""


class CorruptFileError(DamageError):
    """A file as a whole is damaged: wrong length, foreign name, broken header, or a hole between files."""


class CorruptConfigError(DamageError):
    """A settings file and its ``.bak`` are both unreadable; starting empty would lose what they held."""


class StoreLockedError(MqstoreError):
    """Another process (or this one) has the store open for writing."""

    retriable = True


class StoreClosedError(MqstoreError):
    """The store was closed, or was opened before a fork and belongs to the parent process."""


class NotWritableError(MqstoreError):
    """The store does not accept messages in its present state."""


class DiskFullError(NotWritableError):
    """No space left on the device; nothing of the refused message was kept."""

    retriable = True


class MessageIllegalError(MqstoreError, ValueError):
    """A message breaks a limit of the format or of the configuration."""


class OutOfOrderSequenceError(MessageIllegalError):
    """The sequence numbers of an idempotent producer leave a gap: something it sent before has not arrived."""


class ProducerFencedError(MessageIllegalError):
    """A newer epoch of the producer has been seen: another one has taken its place."""


class StoreIOError(MqstoreError, OSError):
    """The operating system refused an operation on a file of the store."""


HINT_MEMORY = "raise the limit of address space (ulimit -v) or the memory of the container, or ask for less"
HINT_SALVAGE = "mqstore check lists all damage; mqstore rebuild STORE --output NEW --salvage makes a sound copy"
HINT_DOUBLE = "compare the two files and move the one away that is blank or older"
HINT_FOREIGN = "something lies at this path that no store puts there: move it away"


def hint_extra(extra: str, package: str) -> str:
    """The hint for a package that is missing: mqstore is on no index, so its extras are installed from a checkout."""
    return f"the extra {extra} brings {package}; in a checkout of mqstore: pip install '.[{extra}]'"


_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_FOREIGN = frozenset({errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ELOOP, errno.EINVAL, errno.ESPIPE, errno.ENXIO})


def start_thread(thread: threading.Thread) -> None:
    """Start ``thread``; StoreIOError where the system has none to give, which Python tells by a bare RuntimeError."""
    try:
        thread.start()
    except (RuntimeError, MemoryError) as error:
        raise no_thread(thread.name, error) from error


def no_thread(name: str, error: BaseException) -> StoreIOError:
    """The error for ``error``, with which the start of a thread has failed."""
    return StoreIOError(
        f"could not start thread {name}: {error}",
        hint="raise the limit of threads (ulimit -u, the container's pids) or of address space (ulimit -v)",
    )


@contextlib.contextmanager
def naming_the_limit(action: str, path: object) -> Iterator[None]:
    """Within this block memory that cannot be had is a StoreIOError."""
    try:
        yield
    except MemoryError as error:
        raise StoreIOError(f"not enough memory to {action}", path=str(path), hint=HINT_MEMORY) from error


def from_os_error(error: OSError, action: str, path: str | os.PathLike[str]) -> MqstoreError:
    """Turn ``error``, met while doing ``action`` on ``path``, into the fitting error of this tree.

    Full devices and exceeded quotas become :class:`DiskFullError`, everything else :class:`StoreIOError` with a
    hint for the causes that an operator can mend.
    """
    if error.errno in _FULL:
        return DiskFullError(
            f"no space left while trying to {action}",
            path=path,
            hint="free space on the device, then try again",
        )
    hint = "look at the path and the state of its device, then try again"
    if error.errno in (errno.EACCES, errno.EPERM):
        hint = f"give user {os.getuid()} permission on this path, or run as its owner"
    elif error.errno == errno.EROFS:
        hint = "the file system is mounted read-only: use mqstore.inspect to read the store"
    elif error.errno == errno.EMFILE:
        hint = "raise the limit of open files (ulimit -n)"
    elif error.errno == errno.ENOMEM:
        hint = "raise vm.max_map_count or the address-space limit (ulimit -v)"
    elif error.errno == errno.EFBIG:
        hint = (
            "raise the limit of file sizes (ulimit -f), or use smaller files: "
            "mapped_file_size_commit_log of a store, segment_bytes of a Kafka log"
        )
    elif error.errno in _FOREIGN:
        hint = HINT_FOREIGN
    reason = without_queries(error.strerror or str(error))
    return StoreIOError(f"could not {action}: {reason}", path=path, hint=hint)
