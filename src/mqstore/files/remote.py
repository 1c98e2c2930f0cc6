"""Paths in object stores and other file systems that pyarrow knows, as ``s3://bucket/stores/broker-a``.

A :class:`RemotePath` is a path like any other to those who join names, list and read; it can be told apart where a file
is opened. Options of the file system follow the URL as a query, ``?region=eu-west-1&endpoint_override=http://host:9000``,
and credentials come from where the file system takes them: for S3 the usual variables, files and roles.

``os.fspath`` gives the text from which it can be made again in another process: the query, quoted, sticks to the
bucket's name. As text a path is what may be told to anybody: the URL without credentials and query.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import re
import stat
import threading
import time
from collections import OrderedDict
from collections.abc import Generator, Iterator
from pathlib import Path, PosixPath
from typing import Any, Final
from urllib.parse import quote, unquote

from mqstore import errors

_URL: Final = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]+)://(?P<bucket>[^/?]+)(?P<key>/[^?]*)?(\?(?P<query>.*))?", re.DOTALL
)
_OWN: Final = re.compile(r"[a-z][a-z0-9+.-]+:/[^/].*", re.DOTALL)
_ANY: Final = "any"
_BLOCK_BYTES: Final = 64 << 10
_MOST_BLOCKS: Final = 256
_MOST_FILES: Final = 64
_SETTLED_NS: Final = 5_000_000_000
"""How far clocks, and what is rounded, may be apart."""


def as_path(path: str | os.PathLike[str]) -> Path:
    """A path from what a user gives: a local path, a ``file:`` URL, or another URL, as a :class:`RemotePath`."""
    text = os.fspath(path)
    if text.startswith("file:"):
        return Path(text.removeprefix("file://").removeprefix("file:"))
    match = _URL.fullmatch(text)
    if match is not None:
        name = match["bucket"] + (f"?{quote(match['query'], safe='')}" if match["query"] else "")
        return RemotePath(f"{match['scheme']}:/{name}{match['key'] or ''}")
    return RemotePath(text) if _OWN.fullmatch(text) else Path(path)


class RemotePath(PosixPath):
    """A path in a file system that pyarrow knows. There are no links; directories come and go with what is in them."""

    def __fspath__(self) -> str:
        return super().__str__()

    def __str__(self) -> str:
        return errors.shown_path(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def __eq__(self, other: object) -> bool:  # some versions of pathlib compare texts
        return self.parts == other.parts if isinstance(other, RemotePath) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.parts)

    @property
    def _place(self) -> tuple[Any, str]:
        """The file system, and the path inside it."""
        scheme, name, *inside = self.parts
        bucket, _, query = name.partition("?")
        system, root = _file_system(f"{scheme}//{bucket}", f"?{unquote(query)}" if query else "")
        return system, root + "/".join(inside)

    @property
    def address(self) -> tuple[Any, str]:
        """pyarrow's file system and the path inside it, for those who take the two."""
        return self._place

    def _info(self) -> Any:
        with _plain_errors():
            system, inside = self._place
            return system.get_file_info(inside)

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """Mode and size; the rest is 0. Raises FileNotFoundError, OSError."""
        info = self._info()
        kind = info.type.name
        if kind == "NotFound":
            raise FileNotFoundError(errno.ENOENT, "no such object", str(self))
        mode = stat.S_IFREG | 0o444 if kind == "File" else stat.S_IFDIR | 0o555
        return os.stat_result((mode, 0, 0, 1, 0, 0, info.size or 0, 0, 0, 0))

    def exists(self, *, follow_symlinks: bool = True) -> bool:
        """Whether there is anything."""
        return bool(self._info().type.name != "NotFound")

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Whether anything lies below."""
        return bool(self._info().type.name == "Directory")

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Whether this is an object."""
        return bool(self._info().type.name == "File")

    def absolute(self) -> RemotePath:
        """Itself: a URL is never relative."""
        return self

    def listing(self) -> list[tuple[RemotePath, int | None, tuple[int, int]]]:
        """What lies directly below, with lengths and what tells an object from the next of its name.

        None is the length of a directory. Raises FileNotFoundError, OSError.
        """
        from pyarrow.fs import FileSelector

        with _plain_errors():
            system, inside = self._place
            found = system.get_file_info(FileSelector(inside))
        return sorted(
            (self / one.base_name, one.size if one.is_file else None, (one.mtime_ns or 0, one.size or 0))
            for one in found
        )

    def iterdir(self) -> Generator[RemotePath, None, None]:
        """What lies directly below."""
        return (path for path, _, _ in self.listing())

    def read_bytes(self) -> bytes:
        """The whole object."""
        with _plain_errors():
            system, inside = self._place
            with system.open_input_stream(inside) as stream:
                data: bytes = stream.read()
        return data

    def write_bytes(self, data: Any) -> int:
        """Put an object, which is there as a whole or not at all."""
        with _plain_errors(), self.open_sink() as sink:
            sink.write(data)
        return len(data)

    def open_sink(self) -> Any:
        """A stream into the object, which appears when the stream is closed."""
        with _plain_errors():
            system, inside = self._place
            return system.open_output_stream(inside)

    def move_to(self, target: RemotePath) -> None:
        """Give the object another name, in the same file system. Raises FileNotFoundError, OSError."""
        if not self.exists():  # which a file system may tell in its own words
            raise FileNotFoundError(errno.ENOENT, "no such object", str(self))
        from pyarrow import ArrowNotImplementedError

        with _plain_errors():
            system, inside = self._place
            try:
                system.move(inside, target._place[1])
            except ArrowNotImplementedError:  # Azure without a hierarchical namespace; S3 does just this
                system.copy_file(inside, target._place[1])
                system.delete_file(inside)

    def remove(self) -> None:
        """Delete the object, or all that lies below; nothing is nothing to delete."""
        kind = self._info().type.name
        with _plain_errors():
            system, inside = self._place
            if kind == "File":
                system.delete_file(inside)
            elif kind == "Directory":
                system.delete_dir(inside)


@contextlib.contextmanager
def _plain_errors() -> Iterator[None]:
    """What a file system raises is an OSError, and tells URLs without their queries, where secrets may stand."""
    try:
        yield
    except (errors.MqstoreError, MemoryError):
        raise
    except FileNotFoundError as error:
        raise FileNotFoundError(errno.ENOENT, errors.without_queries(error.strerror or str(error))) from None
    except OSError as error:
        told = errors.without_queries(error.strerror or str(error))
        raise type(error)(error.errno or errno.EIO, told) from None
    except Exception as error:
        from pyarrow import ArrowException

        if not isinstance(error, ArrowException):
            raise
        raise OSError(errno.EIO, errors.without_queries(str(error))) from None


@functools.lru_cache(maxsize=32)
def _file_system(bucket: str, query: str) -> tuple[Any, str]:
    """The file system of a URL's first part, and what its paths begin with, which is the system's own affair."""
    url = f"{bucket}/{_ANY}{query}"
    shown = errors.shown_path(bucket)
    try:
        from pyarrow.fs import FileSystem
    except ImportError:
        raise errors.UsageError("URLs need pyarrow", found=shown, hint=errors.hint_extra("spark", "pyarrow")) from None
    try:
        system, inside = FileSystem.from_uri(url)
    except ValueError as error:
        raise errors.UsageError(f"no file system for this URL: {str(error).replace(url, shown)}", found=shown) from None
    except OSError as error:
        raise errors.UsageError(
            f"the file system of this URL cannot be reached: {str(error).replace(url, shown)}", found=shown,
            hint="is the network up? A query with all that the file system must know, as ?region=eu-west-1, saves "
            "asking for it",
        ) from None  # fmt: skip
    return system, inside.removesuffix(_ANY)


class RemoteFiles:
    """Objects open for reading. Small reads are answered from blocks that are kept; safe for several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._files: OrderedDict[RemotePath, Any] = OrderedDict()
        self._blocks: OrderedDict[tuple[RemotePath, int], bytes] = OrderedDict()
        self._listed: dict[RemotePath, tuple[int, int]] = {}

    def read(self, path: RemotePath, position: int, size_bytes: int) -> bytes:
        """Up to ``size_bytes`` bytes at ``position``; fewer only at the end of the object."""
        if size_bytes >= _BLOCK_BYTES:
            return self._fetch(path, position, size_bytes)
        first, last = position // _BLOCK_BYTES, (position + max(1, size_bytes) - 1) // _BLOCK_BYTES
        data = b"".join(self._block(path, number) for number in range(first, last + 1))
        return data[position - first * _BLOCK_BYTES :][:size_bytes]

    def _block(self, path: RemotePath, number: int) -> bytes:
        with self._lock:
            known = self._blocks.get((path, number))
            if known is not None:
                self._blocks.move_to_end((path, number))
                return known
        data = self._fetch(path, number * _BLOCK_BYTES, _BLOCK_BYTES)
        with self._lock:
            self._blocks[path, number] = data
            while len(self._blocks) > _MOST_BLOCKS:
                self._blocks.popitem(last=False)
        return data

    def _fetch(self, path: RemotePath, position: int, size_bytes: int) -> bytes:
        try:
            with _plain_errors():
                file = self._file(path)
                size_bytes = min(size_bytes, file.size() - position)
                data: bytes = file.read_at(size_bytes, position) if size_bytes > 0 else b""
        except OSError as error:
            raise errors.from_os_error(error, "read", path) from error
        return data

    def _file(self, path: RemotePath) -> Any:
        with self._lock:
            if path not in self._files:
                system, inside = path.address
                self._files[path] = system.open_input_file(inside)
                if len(self._files) > _MOST_FILES:  # whoever reads it now still holds it
                    self._files.popitem(last=False)
            self._files.move_to_end(path)
            return self._files[path]

    def forget(self, path: RemotePath) -> None:
        """Read anew what is read of ``path`` from now on."""
        with self._lock:
            self._files.pop(path, None)
            for block in [one for one in self._blocks if one[0] == path]:
                del self._blocks[block]

    def note(self, path: RemotePath, identity: tuple[int, int]) -> None:
        """Read anew what is read of ``path`` if it may be another object than when it was noted before."""
        if self._listed.get(path, identity) != identity:
            self.forget(path)
        # Object stores tell whole seconds: what is as young as that may be followed by another of the same time.
        is_settled = abs(time.time_ns() - identity[0]) > _SETTLED_NS
        self._listed[path] = identity if is_settled else (-1, -1)

    def close(self) -> None:
        """Let go of everything."""
        with self._lock:
            self._listed.clear()
            self._files.clear()
            self._blocks.clear()
