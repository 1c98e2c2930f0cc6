"""What tasks read of a store, piece by piece: ranges of its log, messages of its queues, places of keys."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, Final

from mqstore.spark.arrays import UnitRange
from mqstore.spark.key_places import Places, read_places
from mqstore.spark.queue_reading import read_queue_split
from mqstore.spark.queue_splits import QueueSplit
from mqstore.spark.splits import Split, SplitPolicy, read_split
from mqstore.spark.stores import StoreRef
from mqstore.store.log_reader import Chunk, LogReader

Piece = Split | QueueSplit | Places
"""Something of a store that a task reads."""

LEAST_SHARE_BYTES: Final = 32 << 20
"""Less log than this is not worth a task, which looks back a quarter of it for its first record and makes files."""


def read_piece(log: LogReader, piece: Piece, policy: SplitPolicy) -> Iterator[Chunk]:
    """The records of a piece of the store that ``log`` is of; of a split also others than the wanted ones."""
    if isinstance(piece, QueueSplit):
        return read_queue_split(piece, policy)
    if isinstance(piece, Places):
        return read_places(log, piece, policy)
    return read_split(log, piece, policy)


def grouped(pieces: Sequence[Piece], max_groups: int | None) -> list[list[Piece]]:
    """Neighbouring pieces together, so that there are at most ``max_groups`` groups of about equal number."""
    size = 1 if max_groups is None else max(1, -(-len(pieces) // max_groups))
    return [list(pieces[first : first + size]) for first in range(0, len(pieces), size)]


def levelled(parts: list[list[Piece]], cores: int) -> list[list[Piece]]:
    """The same parts, the last of them cut anew, so that all cores end at about the same time.

    Of five parts on two cores the fifth would keep one core at work while the other had nothing left to do: it is cut
    into two halves. Nothing is cut where no parts are left over, where a share would be below
    :data:`LEAST_SHARE_BYTES`, or where those left over are to be read by queues or by the index.
    """
    left = len(parts) % max(1, cores)
    splits = [piece for part in parts[len(parts) - left :] for piece in part if isinstance(piece, Split)]
    size = sum(piece.end - piece.begin for piece in splits)
    shares = min(cores, size // LEAST_SHARE_BYTES)
    if shares <= left or len(splits) < sum(len(part) for part in parts[len(parts) - left :]):
        return parts
    borders = [size * number // shares for number in range(shares + 1)]
    levels = [_share(splits, low, high) for low, high in itertools.pairwise(borders)]
    return [*parts[: len(parts) - left], *levels]


def _share(splits: list[Split], low: int, high: int) -> list[Piece]:
    """What of the splits lies in [low, high) when they are laid one behind the other."""
    found: list[Piece] = []
    for split in splits:
        size = split.end - split.begin
        begin, end = max(0, low), min(size, high)
        if begin < end:
            found.append(Split(split.store, split.begin + begin, split.begin + end))
        low, high = low - size, high - size
    return found


# -- as JSON


def to_plain(piece: Piece) -> list[Any]:
    """A piece as values that JSON has."""
    return [type(piece).__name__, *piece]


def from_plain(value: list[Any]) -> Piece:
    """The other way round."""
    kind, store, *rest = value
    if kind == Split.__name__:
        return Split(StoreRef(*store), *rest)
    if kind == Places.__name__:
        return Places(StoreRef(*store), *rest)
    return QueueSplit(StoreRef(*store), [UnitRange(*one) for one in rest[0]], *rest[1:])
