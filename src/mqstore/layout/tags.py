"""Tags: their codes in consume queue units and the expressions that subscribe to them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from mqstore.errors import UsageError
from mqstore.layout.java_hash import java_hash

ALL_TAGS: Final = "*"

# Java's trim(), unlike str.strip(), takes every character up to the blank and nothing else.
_TRIMMED: Final = "".join(map(chr, range(0x21)))


@lru_cache(maxsize=4096)
def _cached_hash(tags: str) -> int:
    return java_hash(tags)


def tags_code(tags: str | None) -> int:
    """Code of a message's whole tag string for its queue unit: its hash, 0 without tags.

    The unit holds it sign-extended to 64 bits (docs/format/consume-queue.md).
    """
    return _cached_hash(tags) if tags else 0


def low_32_bits(code: int) -> int:
    """The part of a 64-bit code that is compared with a tag's hash, as a signed 32-bit integer."""
    return ((code + 0x8000_0000) & 0xFFFF_FFFF) - 0x8000_0000


@dataclass(frozen=True, slots=True)
class TagExpression:
    """A subscription: every message, or those that carry one of a set of tags.

    Attributes:
        tags: the tags asked for; empty when all messages match.
        codes: their hashes, signed 32-bit.
    """

    tags: frozenset[str]
    codes: frozenset[int]

    @classmethod
    def parse(cls, expression: str | None) -> TagExpression:
        """Parse ``"a || b"``; None, the empty string and ``"*"`` stand for all messages.

        A ``*`` beside other tags is an ordinary tag, as it is for the broker. Raises UsageError when the text
        names no tag at all, for example ``"||"``.
        """
        if expression is not None and not isinstance(expression, str):
            raise UsageError("a tag expression is text", found=repr(expression), hint='for example "a || b"')
        if expression is None or expression in ("", ALL_TAGS):
            return cls(frozenset(), frozenset())
        tags = frozenset(tag for part in expression.split("||") if (tag := part.strip(_TRIMMED)))
        if not tags:
            raise UsageError("the tag expression names no tag", found=repr(expression), hint='use "*" for all messages')
        return cls(tags, frozenset(map(tags_code, tags)))

    def matches_code(self, code: int) -> bool:
        """Whether a unit with this tags code may match; different tags can share a code, so check the message
        too.
        """
        return not self.tags or low_32_bits(code) in self.codes

    def matches(self, tags: str | None) -> bool:
        """Whether a message with these tags matches; one without tags matches only when all do."""
        return not self.tags or tags in self.tags
