"""The string hash that tags, keys and property maps are stored under."""

from __future__ import annotations

import struct


def java_hash(text: str) -> int:
    """Return the hash that Java gives ``text``: a signed 32-bit integer, 0 for the empty string.

    It runs over UTF-16 code units, so a character outside the basic plane counts as two
    (docs/format/properties.md).
    """
    data = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for unit in struct.unpack(f">{len(data) // 2}H", data):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value
