"""A new directory that is made under another name and takes its own when it is complete."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from mqstore import errors
from mqstore.files import copying, durable
from mqstore.files.whole import mode_of


class Stage:
    """Use as a context manager; what is not put in place is removed on leaving.

    Attributes:
        root: where to make the directory's content.
    """

    def __init__(self, output: Path, source: Path | None = None) -> None:
        """Raises UsageError when ``output`` is not new or empty, or one of the two lies inside the other."""
        self._output = Path(os.path.abspath(output))
        self._source = source
        mode = mode_of(self._output)
        if mode and not (stat.S_ISDIR(mode) and not durable.list_directory(self._output)):
            raise errors.UsageError("the output directory is in use", path=output, hint="give a new directory")
        places = [Path(os.path.realpath(one)) for one in (self._output, source) if one is not None]
        if len(places) == 2 and (places[0].is_relative_to(places[1]) or places[1].is_relative_to(places[0])):
            raise errors.UsageError(
                "the output and the source lie inside each other", path=output, hint="name a directory outside of it"
            )
        self.root = self._output.with_name(f".{self._output.name}.partial")
        self._scratch = self._output.with_name(f".{self._output.name}.scratch")

    def __enter__(self) -> Stage:
        self._clean()
        durable.make_directories(self.root)
        return self

    def scratch(self) -> Path:
        """A directory beside ``root``, on the same file system, for what must not be in the result however late it is
        written; it is removed on leaving."""
        durable.make_directories(self._scratch)
        return self._scratch

    def put_in_place(self) -> None:
        """Give the directory its name; from now on it is there after a crash, too."""
        if mode_of(self._output):
            durable.remove_directory(self._output)
        durable.rename(self.root, self._output)
        durable.sync_directory(self._output.parent)

    def __exit__(self, kind: object, value: object, trace: object) -> None:
        self._clean()
        if isinstance(value, errors.MqstoreError) and value.path is not None and self._source is not None:
            path = Path(value.path)
            if path.is_relative_to(self.root) and mode_of(copied := self._source / path.relative_to(self.root)):
                value.path = str(copied)  # the copy is gone, and the fault is the original's

    def _clean(self) -> None:
        for directory in (self.root, self._scratch):
            copying.remove_tree(directory)
