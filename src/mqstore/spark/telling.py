"""Errors as Spark shows them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from mqstore.errors import MqstoreError


@contextmanager
def telling() -> Iterator[None]:
    """Put an error's hint into its text: of an exception from Python, Spark shows the text alone."""
    try:
        yield
    except MqstoreError as error:
        if error.hint and not re.search(r"\(hint: .*\)$", error.message):
            error.message = f"{error.message} (hint: {error.hint})"
            error.args = (error.message,)
        raise
