"""Offset message ids: where a record lies, as text (docs/format/message-id.md)."""

from __future__ import annotations

import re
from typing import Final

from mqstore.errors import UsageError
from mqstore.layout.constants import HOST_V4_SIZE, HOST_V6_SIZE, LONG_MAX
from mqstore.layout.hosts import decode_host

_HEX: Final = re.compile(r"[0-9A-Fa-f]+", re.ASCII)
_SIZES: Final = {2 * (HOST_V4_SIZE + 8): HOST_V4_SIZE, 2 * (HOST_V6_SIZE + 8): HOST_V6_SIZE}


def encode_message_id(store_host: bytes, physical_offset: int) -> str:
    """Id of the record at ``physical_offset`` on the broker with this host field: 32 or 56 hexadecimal
    digits.

    Raises UsageError when the host has not 8 or 20 bytes or the offset is negative or too large.
    """
    if len(store_host) not in (HOST_V4_SIZE, HOST_V6_SIZE):
        raise UsageError("a host field has 8 or 20 bytes", expected="8 or 20", found=len(store_host))
    if not 0 <= physical_offset <= LONG_MAX:
        raise UsageError("the physical offset is out of range", expected=f"0..{LONG_MAX}", found=physical_offset)
    return f"{store_host.hex()}{physical_offset:016x}".upper()


def decode_message_id(message_id: str) -> tuple[str, int]:
    """Split an id into (host text, physical offset).

    Raises UsageError when the text is no id of this kind; the ids that clients make (``UNIQ_KEY``) look
    alike, so an id may decode to an offset at which no record starts.
    """
    host_size = _SIZES.get(len(message_id))
    if host_size is None or _HEX.fullmatch(message_id) is None:
        raise UsageError("no offset message id", expected="32 or 56 hexadecimal digits", found=repr(message_id[:80]))
    data = bytes.fromhex(message_id)
    offset = int.from_bytes(data[host_size:], "big", signed=True)
    if offset < 0:
        raise UsageError("the message id holds a negative offset", found=repr(message_id))
    return decode_host(data[:host_size]), offset
