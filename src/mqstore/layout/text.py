"""Stored text as the original reads it."""

from __future__ import annotations

import re
from typing import Final

from mqstore.layout.constants import LONG_MAX

_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_REPLACEMENT: Final = "\ufffd".encode()
_LONG_DIGITS: Final = len(str(LONG_MAX))


def decode_text(raw: bytes) -> str:
    """Decode UTF-8 as Java does: malformed bytes become U+FFFD.

    Java and Python agree on how many U+FFFD stand for malformed bytes, except that an encoded surrogate,
    whole or cut short, is one to Java and two or three to Python.
    """
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return _SURROGATE.sub(_REPLACEMENT, raw).decode("utf-8", "replace")


def whole(text: str) -> int | None:
    """The number that a property or body writes in ASCII digits; None for any other text, and for more than a long.

    Whoever puts messages chooses such text. Thousands of digits, which ``int`` refuses, must stop nobody who reads it.
    """
    digits = text.lstrip("0") or text[-1:]
    if not (digits.isascii() and digits.isdigit()) or len(digits) > _LONG_DIGITS:
        return None
    number = int(digits)
    return number if number <= LONG_MAX else None
