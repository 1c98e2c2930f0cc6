"""Which sources a compiled module was built from.

The module and the Python around it are one: the columns of a scan lie in memory as both agreed when it was built. The
build compiles the mark of its sources in, and an import compares it with the sources that lie there. It loads nothing
of this package: the build runs it by itself.
"""

from __future__ import annotations

import zlib
from pathlib import Path

BUILT_FROM = "built_from.pxi"
"""The file in ``native/`` by which the build hands the mark to the compiler."""


def mark(directory: Path) -> str | None:
    """The mark of the sources in ``directory``: eight hexadecimal digits, None where there are none (a wheel)."""
    if not (directory / "_native.pyx").exists():
        return None
    paths = [*directory.glob("*.pyx"), *directory.glob("*.h"), *directory.glob("native/*.pxi")]
    value = 0
    for path in sorted(path for path in paths if path.name != BUILT_FROM):
        value = zlib.crc32(path.name.encode() + b"\0" + path.read_bytes(), value)
    return f"{value:08x}"


def write_mark(directory: Path) -> None:
    """Leave the mark of the sources in ``directory`` where :file:`_native.pyx` includes it.

    The file changes only with the mark, and then is the newest of the sources: the compiler takes them anew even when
    what changed has an old date.
    """
    path = directory / "native" / BUILT_FROM
    text = f'BUILT_FROM = "{mark(directory)}"\n'
    if not path.exists() or path.read_text("utf-8") != text:
        path.write_text(text, "utf-8")
