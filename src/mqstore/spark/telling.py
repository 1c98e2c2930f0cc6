"""Errors between Spark and us: ours as Spark shows them, and Spark's about a table as ours."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import unquote

from mqstore.errors import MqstoreError, StoreIOError, UsageError

_UNREADABLE = re.compile(r"\[FAILED_READ_FILE[A-Z_.]*\] .*?reading file (?:file:)?(.+?)\. ")


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

    A file of the table that cannot be read is a StoreIOError. What else may go wrong in Spark, such as a lost executor,
    stays as it is.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import (
        AnalysisException,
        ArithmeticException,
        DateTimeException,
        IllegalArgumentException,
        NumberFormatException,
        PySparkException,
    )

    faults = (
        AnalysisException, ArithmeticException, DateTimeException, IllegalArgumentException, NumberFormatException,
    )  # fmt: skip
    try:
        yield
    except faults as error:
        raise UsageError(what, found=_reason(str(error))) from error
    except (Py4JJavaError, PySparkException) as error:  # some faults reach Python in Java's words only
        text = str(error)
        if unreadable := _UNREADABLE.search(text):
            causes = re.findall(r"Caused by: [\w.]+: (.*)", text)
            raise StoreIOError(
                "Spark could not read a file of the table",
                path=unquote(unreadable[1]),
                found=causes[-1] if causes else None,
                hint="look at the file and who may read it, or leave it out",
            ) from error
        if "[DATA_SOURCE_NOT_FOUND]" not in text:
            raise
        raise UsageError(what, found=_reason(text)) from error


def _reason(text: str) -> str:
    """What Spark has to say itself, without the places in its code."""
    found = re.search(r"\[[A-Z_.]+\] (.*)", text)
    line = text.strip().split("\n", 1)[0] if found is None else found[1]
    return re.sub(r" SQLSTATE: \w+$", "", line)
