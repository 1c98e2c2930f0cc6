"""Errors as Spark shows them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from mqstore.errors import MqstoreError, UsageError


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


@contextmanager
def refusing(what: str) -> Iterator[None]:
    """Raise UsageError with the message ``what`` where Spark finds fault with a table or with a value in it.

    What else may go wrong in Spark, such as a lost executor, stays as it is.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import AnalysisException, ArithmeticException, DateTimeException, NumberFormatException

    try:
        yield
    except (AnalysisException, ArithmeticException, DateTimeException, NumberFormatException) as error:
        raise UsageError(what, found=_reason(str(error))) from error
    except Py4JJavaError as error:  # some faults reach Python in Java's words only
        if "[DATA_SOURCE_NOT_FOUND]" not in str(error):
            raise
        raise UsageError(what, found=_reason(str(error))) from error


def _reason(text: str) -> str:
    """What Spark has to say itself, without the places in its code."""
    found = re.search(r"\[[A-Z_.]+\] (.*)", text)
    line = text.strip().split("\n", 1)[0] if found is None else found[1]
    return re.sub(r" SQLSTATE: \w+$", "", line)
