"""Stored text as the original reads it."""

from __future__ import annotations

import re
from typing import Final

_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_REPLACEMENT: Final = "\ufffd".encode()


def decode_text(raw: bytes) -> str:
    """Decode UTF-8 as Java does: malformed bytes become U+FFFD.

    Java and Python agree on how many U+FFFD stand for malformed bytes, except that an encoded surrogate,
    whole or cut short, is one to Java and two or three to Python.
    """
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return _SURROGATE.sub(_REPLACEMENT, raw).decode("utf-8", "replace")
