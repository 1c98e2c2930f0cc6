"""Host fields: an address and a port as records hold them (docs/format/commit-log.md)."""

from __future__ import annotations

import ipaddress
import re
import struct
from functools import lru_cache
from typing import Final

from mqstore.errors import UsageError
from mqstore.layout.constants import HOST_V4_SIZE, HOST_V6_SIZE

HOST_V4: Final = struct.Struct(">4Bi")
HOST_V6: Final = struct.Struct(">8Hi")

_PORT: Final = re.compile(r"[0-9]{1,5}", re.ASCII)


def encode_host(host: str) -> bytes:
    """Encode ``"1.2.3.4:10911"``, ``"0:0:0:0:0:0:0:1:10911"`` or ``"[::1]:10911"`` into 8 or 20 bytes.

    Raises UsageError for anything that is no numeric address with a port from 0 to 65535; names are not
    looked up.
    """
    given: object = host
    if not isinstance(given, str):
        raise UsageError("a host is text", found=repr(host), hint="for example 127.0.0.1:10911")
    address_text, _, port_text = host.rpartition(":")
    if not _PORT.fullmatch(port_text) or int(port_text) > 0xFFFF:
        raise UsageError("a host needs a port from 0 to 65535", found=repr(host), hint="for example 127.0.0.1:10911")
    if address_text.startswith("[") and address_text.endswith("]"):
        address_text = address_text[1:-1]
    try:
        address = ipaddress.ip_address(address_text)
    except ValueError:
        raise UsageError(
            "a host needs a numeric address",
            found=repr(host),
            hint="for example 127.0.0.1:10911 or [::1]:10911",
        ) from None
    return address.packed + int(port_text).to_bytes(4, "big")


@lru_cache(maxsize=1024)
def decode_host(data: bytes) -> str:
    """Text of a host field of 8 or 20 bytes: ``"1.2.3.4:10911"``, or eight hexadecimal groups and the port.

    IPv6 text is neither shortened nor bracketed, as the original prints it. Raises UsageError for other
    lengths.
    """
    if len(data) == HOST_V4_SIZE:
        return "{:d}.{:d}.{:d}.{:d}:{:d}".format(*HOST_V4.unpack(data))
    if len(data) == HOST_V6_SIZE:
        return "{:x}:{:x}:{:x}:{:x}:{:x}:{:x}:{:x}:{:x}:{:d}".format(*HOST_V6.unpack(data))
    raise UsageError("a host field has 8 or 20 bytes", expected="8 or 20", found=len(data))
