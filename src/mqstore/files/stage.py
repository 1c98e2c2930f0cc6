"""A new directory that is made under another name and takes its own when it is complete.

The other name is always the same, so that what a kill left is found and removed. The directory is locked meanwhile: a
second build into one output would otherwise remove the first one's, or have its own half put in place by it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from mqstore import errors
from mqstore.files import copying, durable
from mqstore.files.directory_lock import DirectoryLocks
from mqstore.files.remote import RemotePath, as_path
from mqstore.files.whole import mode_of

_ATTEMPTS: Final = 100


class Stage:
    """Use as a context manager; what is not put in place is removed on leaving.

    Entering raises StoreLockedError while another build into the same output is under way, and UsageError when one has
    ended since. Errors name the output, or the original of what was copied, and not the other name.

    Attributes:
        root: where to make the directory's content.
    """

    def __init__(
        self, output: Path, source: Path | None = None, elsewhere: Mapping[str, Sequence[Path]] | None = None
    ) -> None:
        """Begin nothing yet.

        Args:
            output: the directory's own name.
            source: what it is made of; files of the same place in both are original and copy.
            elsewhere: directories of the source that lie outside of it, by the name that the copy has of them.

        Raises:
            UsageError: ``output`` is a URL, or not new or empty, or one of the two lies inside the other.
        """
        if isinstance(as_path(output), RemotePath):
            raise errors.UsageError("this is made in a directory on this machine", path=output)
        self._given = output
        self._output = Path(os.path.abspath(output))
        self._source = source
        self._elsewhere = elsewhere or {}
        self._check_is_new()
        places = [Path(os.path.realpath(one)) for one in (self._output, source) if one is not None]
        if len(places) == 2 and (places[0].is_relative_to(places[1]) or places[1].is_relative_to(places[0])):
            raise errors.UsageError(
                "the output and the source lie inside each other", path=output, hint="name a directory outside of it"
            )
        self.root = self._output.with_name(f".{self._output.name}.partial")
        self._scratch = self._output.with_name(f".{self._output.name}.scratch")
        self._locks = DirectoryLocks()
        self._is_placed = False

    def __enter__(self) -> Stage:
        try:
            self._take_root()
        except errors.MqstoreError as error:
            self._name_what_was_given(error)
            raise
        try:
            self._check_is_new()
            copying.remove_tree(self._scratch)
            copying.remove_below(self.root)
        except BaseException:
            self._clean()
            raise
        return self

    def _check_is_new(self) -> None:
        mode = mode_of(self._output)
        if mode and not (stat.S_ISDIR(mode) and not durable.list_directory(self._output)):
            raise errors.UsageError("the output directory is in use", path=self._output, hint="give a new directory")

    def _take_root(self) -> None:
        """Make the directory, or take over what a killed build left, and lock it."""
        for _ in range(_ATTEMPTS):
            try:
                durable.make_directories(self.root)
                self._locks.acquire(self.root)
            except errors.StoreLockedError as error:
                self._locks.release()
                raise self._busy(error.found) from None
            except errors.StoreIOError as error:
                if not isinstance(error.__cause__, FileNotFoundError):
                    raise
            if self._locks.holds(self.root):
                return
            self._locks.release()  # a build that ended just now has removed or renamed what was opened
        raise self._busy("other builds begin and end all the time, or a link is in the way")

    def _busy(self, found: object) -> errors.StoreLockedError:
        return errors.StoreLockedError(
            "another build into this output is under way", path=self.root, found=found,
            hint="wait until it has ended, or give another output directory",
        )  # fmt: skip

    def scratch(self) -> Path:
        """A directory beside ``root``, on the same file system, for what must not be in the result however late it is
        written; it is removed on leaving."""
        durable.make_directories(self._scratch)
        return self._scratch

    def put_in_place(self) -> None:
        """Give the directory its name; from now on it is there after a crash, too.

        What is beside it goes first: once the name is taken, no other build comes that would find what a kill left.
        """
        copying.remove_tree(self._scratch)
        if mode_of(self._output):
            durable.remove_directory(self._output)
        durable.rename(self.root, self._output)
        self._is_placed = True
        durable.sync_directory(self._output.parent)

    def __exit__(self, kind: object, value: object, trace: object) -> None:
        self._clean()
        if isinstance(value, errors.MqstoreError):
            self._name_what_was_given(value)

    def _name_what_was_given(self, error: errors.MqstoreError) -> None:
        """The copy is gone: what is wrong in it is wrong in the original, what could not be done was to the output."""
        is_ours = isinstance(error, (errors.StoreIOError, errors.NotWritableError, errors.StoreLockedError))
        source = None if is_ours else self._source
        if error.path is not None:
            error.path = str(self._place_given(Path(error.path), source))
        for name in ("message", "expected", "found", "hint"):
            text = str(getattr(error, name))
            told = text.replace(str(self.root), str(source or self._given))
            told = told.replace(str(self._scratch), str(self._given))
            if told != text:
                setattr(error, name, told)

    def _place_given(self, path: Path, source: Path | None) -> Path:
        if path.is_relative_to(self._scratch):
            return self._given
        if not path.is_relative_to(self.root):
            return path
        place = path.relative_to(self.root)
        if source is not None:
            directories = self._elsewhere.get(place.parts[0], ()) if place.parts else ()
            for original in (source / place, *(one.joinpath(*place.parts[1:]) for one in directories)):
                if mode_of(original):
                    return original
        return self._given / place

    def _clean(self) -> None:
        """Remove what is ours, and only then let another build begin."""
        try:
            copying.remove_tree(self._scratch)
            if not self._is_placed:
                copying.remove_tree(self.root)
        finally:
            self._locks.release()
