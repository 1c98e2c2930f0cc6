"""Why bytes are no sound batch, and the error that says so."""

from __future__ import annotations

import enum
from typing import NoReturn

from mqstore.errors import CorruptBatchError


class Damage(enum.IntEnum):
    """The rules of a batch. They are tried in this order; the first to fail is the reason."""

    SHORT = 1
    """Fewer than 17 bytes are left, or the length reaches past the end."""
    UNWRITTEN = 2
    """The first 17 bytes are zero: space that was reserved and never written."""
    MAGIC = 3
    """No known format."""
    LENGTH = 4
    """The length is less than the smallest of this format, or more than any segment holds."""
    OFFSETS = 5
    """A negative offset, or a last offset before the first."""
    COUNT = 6
    """A negative number of records, or more than the bytes can hold."""
    CRC = 7
    """The bytes do not have the stored checksum."""
    CODEC = 8
    """Compressed by no known codec, or by one that this format cannot have."""
    INFLATE = 9
    """The compressed bytes cannot be inflated."""
    TOO_LARGE = 10
    """Inflating them gives more than the limit."""
    RECORD = 11
    """A record's lengths contradict each other, its batch's end, or the number of records."""
    RECORD_OFFSET = 12
    """A record's offset lies outside its batch's."""
    WRAPPER = 13
    """A compressed message that holds none, another compressed one, or one of the present format."""

    def __str__(self) -> str:
        return self.name

    def __format__(self, spec: str) -> str:
        return format(self.name, spec)


def damaged(reason: Damage, position: int, expected: object = None, found: object = None) -> NoReturn:
    """Raises CorruptBatchError for the batch at ``position``: ``found`` is ``reason``, with more about it if known."""
    message = "no sound batch" if found is None else f"no sound batch: {found} was found"
    raise CorruptBatchError(message, offset=position, expected=expected, found=reason)
