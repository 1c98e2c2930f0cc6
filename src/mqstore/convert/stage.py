"""A new directory that is made under another name and takes its own when it is complete."""

from __future__ import annotations

import os
from pathlib import Path

from mqstore import errors
from mqstore.files import copying, durable


class Stage:
    """Use as a context manager; what is not put in place is removed on leaving.

    Attributes:
        root: where to make the directory's content.
    """

    def __init__(self, output: Path) -> None:
        """Raises UsageError when ``output`` exists and is not an empty directory."""
        self._output = Path(os.path.abspath(output))
        if self._output.exists() and (not self._output.is_dir() or any(self._output.iterdir())):
            raise errors.UsageError("the output directory is in use", path=output, hint="give a new directory")
        self.root = self._output.with_name(f".{self._output.name}.partial")

    def __enter__(self) -> Stage:
        copying.remove_tree(self.root)
        durable.make_directories(self.root)
        return self

    def put_in_place(self) -> None:
        """Give the directory its name; from now on it is there after a crash, too."""
        if self._output.exists():
            self._output.rmdir()
        self.root.rename(self._output)
        durable.sync_directory(self._output.parent)

    def __exit__(self, kind: object, value: object, trace: object) -> None:
        copying.remove_tree(self.root)
