"""Where a micro-batch ends, for every source of streams: what has come, what may have been lost, what fits a limit.

Both sources use these functions, each with keys of its own: ``kafkalog`` has offsets by partition, ``rocketmq`` by the
queue of a broker.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from mqstore.errors import CorruptFileError
from mqstore.spark.option_values import HINT_LOST

_log = logging.getLogger(__name__)

KeyT = TypeVar("KeyT")


def lost(what: str, expected: str, fail_on_data_loss: bool) -> None:
    """Data that should be there is not: an error, or a warning where the read shall go on.

    Raises:
        CorruptFileError: under failOnDataLoss.
    """
    if fail_on_data_loss:
        raise CorruptFileError(f"data may have been lost: {what}", expected=expected, hint=HINT_LOST)
    _log.warning("going on although data may have been lost: %s; expected %s", what, expected)


class Losses:
    """Tells of what has gone, once for as long as that lasts, or raises where the read shall not go on."""

    def __init__(self, fail_on_data_loss: bool) -> None:
        self._fail_on_data_loss = fail_on_data_loss
        self._before: set[str] = set()
        self._now: set[str] = set()

    def look_again(self) -> None:
        """What is not reported from now on until the next look is over."""
        self._before, self._now = self._now, set()

    def report(self, what: str, expected: str) -> None:
        """As :func:`lost`."""
        if what not in self._before:
            lost(what, expected, self._fail_on_data_loss)
        self._now.add(what)


def reachable(
    latest: Mapping[KeyT, int],
    start: Mapping[KeyT, int],
    ceiling: Mapping[KeyT, int] | None,
    report: Callable[[str, str], None],
    name: Callable[[KeyT], str],
) -> dict[KeyT, int]:
    """The furthest that a batch may end which begins at ``start``.

    What has gone keeps the offset where it was left: should it come back, nothing of it is read a second time.

    Args:
        latest: where everything ends now.
        start: where the last batch ended.
        ceiling: an end that was fixed before, if the stream ends there.
        report: told of what has gone, and of what ends in front of where it had been.
        name: how a key is called in a report.
    """
    for key in start:
        if key not in latest:
            report(f"{name(key)} is gone", name(key))
    ends = dict(latest)
    if ceiling is not None:
        ends = {key: min(end, ceiling[key]) for key, end in ends.items() if key in ceiling}
    for key, offset in start.items():
        if key in ends and ends[key] < offset and (ceiling is None or ceiling[key] >= offset):
            report(f"{name(key)} ends at {ends[key]}", f"offset {offset}")
        ends[key] = max(ends.get(key, offset), offset)
    return ends


@contextlib.contextmanager
def noted_offsets(offsets: object, expected: str) -> Iterator[None]:
    """What is in a checkpoint is taken apart inside: it may be damaged, or that of a stream of another source.

    Raises:
        CorruptFileError: it is no note of offsets.
    """
    try:
        yield
    except (AttributeError, TypeError, ValueError):
        raise CorruptFileError(
            "the checkpoint has no offsets of such a stream", expected=expected, found=repr(offsets)[:200],
            hint="a stream of another source needs a checkpoint of its own",
        ) from None  # fmt: skip


def noted_offset(offset: object) -> int:
    """An offset of a checkpoint; raises TypeError for what is none."""
    if type(offset) is not int or offset < 0:
        raise TypeError(offset)
    return offset


def share_out(waiting: Mapping[KeyT, int], limit: int, turn: int = 0) -> dict[KeyT, int]:
    """How much of what waits each may have: ``limit`` together, in proportion.

    What is left over by rounding goes first to those whose part would be nothing, so that none waits for ever; ``turn``
    says which of them is the first.
    """
    total = sum(waiting.values())
    if total <= limit:
        return dict(waiting)
    shares = {key: count * limit // total for key, count in waiting.items()}
    left = limit - sum(shares.values())
    for key in _in_turn([key for key in waiting if waiting[key] and not shares[key]], turn) + sorted(
        (key for key in waiting if shares[key]), key=lambda key: -waiting[key]
    ):
        if not left:
            break
        shares[key] += 1
        left -= 1
    return shares


def _in_turn(keys: list[KeyT], turn: int) -> list[KeyT]:
    first = turn % len(keys) if keys else 0
    return keys[first:] + keys[:first]
