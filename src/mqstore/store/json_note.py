"""Reading the small JSON notes that a store keeps in its root."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from mqstore import errors
from mqstore.files.whole import read_whole

T = TypeVar("T")


def load_note(path: Path, what: str, parse: Callable[[Any], T], *, expected: str, hint: str) -> T | None:
    """The note at ``path`` as ``parse`` makes it of the JSON value there; None when there is none.

    Args:
        path: where it lies.
        what: names it in errors.
        parse: may fail in any way that values of other types and texts of other forms bring about.
        expected: what it should look like, for the error.
        hint: what to do without it, for the error.

    Raises:
        CorruptConfigError: it is no JSON, however it is none, or ``parse`` cannot use it.
        CorruptFileError: it is no regular file, or one beyond all measure.
        StoreIOError: it could not be read.
    """
    data = read_whole(path, what)
    if data is None:
        return None
    try:
        return parse(json.loads(data))
    except (errors.UsageError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise errors.CorruptConfigError(
            f"the {what} cannot be read", path=path, expected=expected, found=str(error), hint=hint
        ) from error
