"""What the options of all sources have in common: how values are written, and how a wrong one is refused."""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, TypeGuard

from mqstore.errors import UsageError
from mqstore.layout.constants import INT_MAX, LONG_MAX
from mqstore.store.arguments import as_list, check_path, check_texts

DEFAULT_SPLIT_BYTES: Final = 256 << 20

LEAST_SPLIT_BYTES: Final = 1 << 10
"""What ``minPartitions`` makes no smaller splits than: one with less than a few records is not worth a task."""

MOST_SPLITS: Final = 1_000_000

EARLIEST: Final = -2
"""In offset JSON, as in Spark's Kafka source: the first message."""
LATEST: Final = -1
"""In offset JSON: the end."""

SUBSCRIPTIONS: Final = ("subscribe", "subscribePattern", "assign")
"""The options that choose topics or queues, of which one may be given."""

STRATEGY: Final = "startingOffsetsByTimestampStrategy"
STRATEGIES: Final = ("error", "latest")
"""What a stream does where nothing is as new as its starting timestamp."""

HINT_LOST: Final = "failOnDataLoss=false reads what is left"
"""What to do where data that should be there is not."""

_MEANT: Final = {"topic": "subscribe", "topics": "subscribe", "queue": "assign", "queues": "assign"}
"""What is meant by names that are nothing like those that we have."""

_DELAY: Final = re.compile(r"\s*(\d{1,12})\s*(ms|s|m|min|h|d)\s*")
_MOST_DIGITS: Final = 19
_JOB_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def by_name(
    given: Mapping[str, object],
    names: Sequence[str],
    *,
    others: Collection[str] = (),
    refused: Collection[str] = (),
    page: str = "docs/spark.md",
) -> dict[str, str]:
    """The options under their documented names; Spark compares them without regard to case.

    Args:
        given: the options as Spark gives them: to those of the user it adds no more than ``path`` and ``paths``.
        names: every option that there is.
        others: names that are passed over without a word; one that ends with a dot stands for all that begin with it.
        refused: names that other sources have and this one does not.
        page: where the options are told.

    Raises:
        UsageError: a refused name, or any other: a misspelt option must not be without effect.
    """
    known = {name.lower(): name for name in names}
    barred = {name.lower() for name in refused}
    passed_over = {name.lower() for name in others}
    prefixes = tuple(name for name in passed_over if name.endswith("."))
    options = {}
    for name, value in given.items():
        lower = str(name).lower()
        if lower in known:
            options[known[lower]] = _text(name, value)
            continue
        if lower in barred:
            raise UsageError(f"option {name} is one that this source does not have", hint=f"see {page}")
        near = difflib.get_close_matches(lower, known, n=1, cutoff=0.8)
        if lower in passed_over or (lower.startswith(prefixes) and not near):
            continue
        meant = known[near[0]] if near else _MEANT.get(lower)
        hint = f"did you mean {meant}?" if meant in names else f"the options are in {page}"
        raise UsageError(f"unknown option {name}", hint=hint)
    return options


def refuse(options: Mapping[str, str], names: Sequence[str], where: str) -> None:
    """Raise UsageError for options that make no sense ``where``."""
    for name in names:
        if name in options:
            raise UsageError(f"option {name} makes no sense in {where}")


def _text(name: str, value: object) -> str:
    """A value as Spark would pass it on: a job is given its options by a program, which may well give a number."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return str(value)
    if not isinstance(value, str):
        raise bad(name, "text, a number or a truth value", repr(value)[:80])
    return value


def check_one_subscription(options: Mapping[str, str]) -> None:
    """Raise UsageError when more than one option chooses topics."""
    chosen = [name for name in SUBSCRIPTIONS if name in options]
    if len(chosen) > 1:
        raise UsageError(
            "options that exclude each other", found=", ".join(chosen), hint=f"give one of {', '.join(chosen)}"
        )


def min_partitions(options: Mapping[str, str]) -> int:
    """Into how many parts a read is to be divided at least; no more than Spark could plan."""
    found = whole(options, "minPartitions") or 1
    if found > MOST_SPLITS:
        raise bad("minPartitions", f"{MOST_SPLITS} or less", str(found))
    return found


def paths(options: Mapping[str, str], what: str) -> tuple[str, ...]:
    """What ``load`` was given; UsageError, which names ``what`` is missing, for nothing."""
    # load() with a list gives its paths as JSON.
    found = _from_json(options["paths"]) if "paths" in options else names(options.get("path", ""), "path")
    if not found:
        raise no_paths(what)
    return tuple(found)


def listed_paths(source: Any) -> str:
    """Option ``paths`` for a path, a glob or a URL, or several; UsageError for what is none of them."""
    found = [source] if isinstance(source, (str, bytes, os.PathLike)) else as_list("paths of stores", source)
    if not found:
        raise UsageError("no store to read", found=repr(source)[:80], hint="name one or more in source")
    for path in found:
        check_path(path)
    return json.dumps([os.fspath(path) for path in found])


def no_paths(what: str) -> UsageError:
    """The error where a query says nothing of what is to be read."""
    return UsageError(
        f"no {what} to read",
        hint='load("DIRECTORY"), or option path; Spark hands on options of CREATE TEMPORARY VIEW, and not those '
        "of CREATE TABLE",
    )


def _from_json(text: str) -> list[str]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list) or not all(isinstance(one, str) and one for one in found):
        raise bad("paths", 'JSON such as ["one", "another"]', text)
    return found


def names(text: str, name: str) -> list[str]:
    """Names separated by commas; at least one, but for ``path``."""
    values = [value for part in text.split(",") if (value := part.strip())]
    if not values and name != "path":
        raise bad(name, "names separated by commas", text)
    return values


def listed(name: str, values: str | Iterable[str]) -> list[str]:
    """Names that a program gives: with commas between them in one text, or one by one.

    Raises:
        UsageError: one of them is not text.
    """
    found = values.split(",") if isinstance(values, str) else as_list(name, values)
    for one in found:
        check_texts(**{f"one of {name}": one})
    return [text for one in found if (text := one.strip())]


def chosen(known: Sequence[str], wanted: Iterable[str] | None) -> list[str]:
    """The wanted columns of ``known`` under their own names, all for None; Spark compares them without regard to case.

    Raises:
        UsageError: a column is not there, or asked for twice.
    """
    by_lower = {name.lower(): name for name in known}
    if wanted is None:
        return list(known)
    for name in wanted:
        if name.lower() not in by_lower:
            hint = "onCorruptRecord=keep brings it" if name.lower() == "corruptreason" else None
            raise UsageError("no such column", expected=", ".join(known), found=name, hint=hint)
    found = [by_lower[name.lower()] for name in wanted]
    if len(set(found)) < len(found):
        raise UsageError("a column is asked for twice", found=", ".join(found))
    return found


def pattern(text: str, name: str) -> str:
    """A regular expression."""
    try:
        re.compile(text)
    except re.error as error:
        raise bad(name, "a regular expression", f"{text!r}: {error}") from None
    return text


def json_object(name: str, text: str, example: str) -> dict[str, Any]:
    """A JSON object."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise bad(name, f"JSON such as {example}", text)
    return value


def assigned(text: str) -> frozenset[tuple[str, int]]:
    """Topics with numbers, as ``{"orders": [0, 1]}``."""
    example = '{"orders": [0, 1]}'
    found: set[tuple[str, int]] = set()
    for topic, numbers in json_object("assign", text, example).items():
        if not isinstance(numbers, list) or not all(is_long(one, 0) and one <= INT_MAX for one in numbers):
            raise bad("assign", f"JSON such as {example}", text)
        found.update((topic, one) for one in numbers)
    return frozenset(found)


def is_long(value: object, least: int) -> TypeGuard[int]:
    """Whether a JSON value is a whole number, ``least`` or more, that fits where offsets and times are kept."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= LONG_MAX


def is_queue_number(text: str) -> bool:
    """Whether the name of a JSON value is the number of a queue or a partition."""
    return text.isdecimal() and len(text) <= _MOST_DIGITS and int(text) <= INT_MAX


def whole(options: Mapping[str, str], name: str, least: int = 1) -> int | None:
    """A whole number, ``least`` or more; None without the option."""
    if name not in options:
        return None
    text = options[name].strip()
    if not text.isdecimal() or len(text) > _MOST_DIGITS or not least <= int(text) <= LONG_MAX:
        raise bad(name, f"a whole number, {least} or more and {LONG_MAX} or less", text[:80])
    return int(text)


def truth(options: Mapping[str, str], name: str, default: bool) -> bool:
    """``true`` or ``false``."""
    return word(options, name, ("true", "false"), str(default).lower()) == "true"


def word(options: Mapping[str, str], name: str, words: tuple[str, ...], default: str | None = None) -> str:
    """One of ``words``, of which the first is the default unless another is given."""
    text = options.get(name, default or words[0]).strip().lower()
    if text not in words:
        raise bad(name, " or ".join(words), text)
    return text


def check_job_id(name: object) -> None:
    """Raise UsageError for a name that cannot be part of a file name: what a job sets aside lies under it."""
    if not isinstance(name, str) or not _JOB_ID.fullmatch(name):
        raise UsageError("a job's name cannot be part of a file name", expected="letters, digits, . _ -", found=name)


def delay_ms(options: Mapping[str, str], name: str, default: str) -> int:
    """A length of time such as ``15m``, in ms."""
    text = options.get(name, default)
    found = _DELAY.fullmatch(text.lower())
    if found is None:
        raise bad(name, "a length of time such as 500ms, 30s, 15m, 1h", text)
    return int(found[1]) * _UNITS_MS[found[2]]


def interval_ms(options: Mapping[str, str], name: str) -> int | None:
    """A length of time in ms between two of something; 0 for never, written as 0 or less; None if it is not given."""
    if name not in options or re.fullmatch(r"\s*(-\d+|0)\s*", options[name]):
        return 0 if name in options else None
    return delay_ms(options, name, "")


def bad(name: str, expected: str, found: str) -> UsageError:
    """The error for a value that is none."""
    return UsageError(f"option {name} has a value that cannot be meant", expected=expected, found=found)
