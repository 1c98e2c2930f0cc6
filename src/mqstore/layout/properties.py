"""The properties of a message: the string stored in its record, and the map it stands for.

Grammar, rules for odd input and the order of writing: docs/format/properties.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from mqstore.errors import MessageIllegalError
from mqstore.layout.constants import MAX_PROPERTIES_SIZE
from mqstore.layout.java_hash import java_hash
from mqstore.layout.text import decode_text

NAME_VALUE_SEPARATOR: Final = "\x01"
PROPERTY_SEPARATOR: Final = "\x02"

_TREEIFY_LENGTH: Final = 9
_TREEIFY_MIN_CAPACITY: Final = 64


def parse(raw: bytes | str) -> dict[str, str]:
    """The map that a properties string stands for, in stored order.

    Malformed UTF-8 becomes U+FFFD. Segments without a name or without a value are ignored, of several with
    one name the last wins, as in the original; :func:`defect` tells whether that drops anything.
    """
    text = raw if isinstance(raw, str) else decode_text(raw)
    found: dict[str, str] = {}
    for segment in text.split(PROPERTY_SEPARATOR):
        name, separator, value = segment.partition(NAME_VALUE_SEPARATOR)
        if separator and name and value:
            found[name] = value
    return found


def defect(raw: bytes) -> str | None:
    """What is wrong with a stored properties string, or None.

    A NUL byte, or a non-empty segment without a separator between name and value, is never written by a
    working store: it shows that the end of a record did not reach the disk.
    """
    if b"\x00" in raw:
        return f"NUL byte at {raw.index(0)}"
    for segment in raw.split(b"\x02"):
        if segment and b"\x01" not in segment:
            return "segment without separator between name and value"
    return None


def split_keys(keys: str | None) -> list[str]:
    """The non-empty parts of the property KEYS, whose separator is one blank."""
    return [key for key in keys.split(" ") if key] if keys else []


def encode(
    properties: Mapping[str, str | None] | Iterable[tuple[str, str | None]],
    *,
    trailing_separator: bool = False,
) -> bytes:
    """The string to store for ``properties``, in the order given; pairs with value None are left out.

    4.9 writes no separator behind the last pair, 5.x does (``trailing_separator``); every reader takes both.
    Give the names in :func:`java_map_order` to write the bytes that a broker would. Raises
    MessageIllegalError for names or values that would not read back, and when the result exceeds 32,767
    bytes.
    """
    items = properties.items() if isinstance(properties, Mapping) else properties
    parts = [_encode_pair(name, value) for name, value in items if value is not None]
    raw = b"\x02".join(parts) + (b"\x02" if trailing_separator and parts else b"")
    return check_size(raw)


def _encode_pair(name: str, value: str) -> bytes:
    if not name or not value:
        raise MessageIllegalError(
            "a property with an empty name or value is lost on reading", found=f"{name!r}={value!r}"
        )
    if any(mark in name for mark in "\x00\x01\x02") or any(mark in value for mark in "\x00\x02"):
        raise MessageIllegalError(
            "a property holds a reserved character",
            found=f"{name!r}={value!r}",
            hint="names must not hold U+0000, U+0001 or U+0002, values neither U+0000 nor U+0002",
        )
    try:
        return f"{name}\x01{value}".encode()
    except UnicodeEncodeError as error:
        raise MessageIllegalError("a property is no valid Unicode", found=f"{name!r}={value!r}") from error


def check_size(raw: bytes) -> bytes:
    """Return ``raw``; raises MessageIllegalError when it exceeds the 32,767 bytes that a record can hold."""
    if len(raw) > MAX_PROPERTIES_SIZE:
        raise MessageIllegalError(
            "the properties are too large", expected=f"at most {MAX_PROPERTIES_SIZE} bytes", found=len(raw)
        )
    return raw


def append(raw: bytes, more: bytes) -> bytes:
    """Two properties strings joined by one separator, as a batch adds its own properties to those of an
    element.

    Raises MessageIllegalError when the result exceeds 32,767 bytes.
    """
    if raw and more and not raw.endswith(b"\x02"):
        return check_size(raw + b"\x02" + more)
    return check_size(raw + more)


def java_map_order(names: Iterable[str], capacity: int = 16) -> list[str]:
    """The distinct ``names`` in the order in which a Java HashMap filled in this order iterates.

    ``capacity`` is the table's first size, a power of two: 16 in general, 128 for maps that the 5.x parser
    made. Nine and more colliding names in a table of 64 and more slots may come in another order in Java,
    which then keeps them in a tree.
    """
    buckets: list[list[str]] = [[] for _ in range(capacity)]
    count = 0
    for name in names:
        bucket = buckets[_spread_hash(name) & (len(buckets) - 1)]
        if name in bucket:
            continue
        bucket.append(name)
        if len(bucket) >= _TREEIFY_LENGTH and len(buckets) < _TREEIFY_MIN_CAPACITY:
            buckets = _doubled(buckets)
        count += 1
        if count > len(buckets) * 3 // 4:
            buckets = _doubled(buckets)
    return [name for bucket in buckets for name in bucket]


def _spread_hash(name: str) -> int:
    unsigned = java_hash(name) & 0xFFFFFFFF
    return unsigned ^ (unsigned >> 16)


def _doubled(buckets: list[list[str]]) -> list[list[str]]:
    larger: list[list[str]] = [[] for _ in range(2 * len(buckets))]
    for bucket in buckets:
        for name in bucket:
            larger[_spread_hash(name) & (len(larger) - 1)].append(name)
    return larger
