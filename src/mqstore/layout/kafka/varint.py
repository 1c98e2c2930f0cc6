"""Variable-length integers: seven bits a byte, lowest first, of the zigzag form of a signed number.

Zigzag puts small negative numbers beside small positive ones: 0, -1, 1, -2 become 0, 1, 2, 3.
"""

from __future__ import annotations

from typing import Final

from mqstore.errors import UsageError
from mqstore.layout.buffers import Buffer

VARINT_BITS: Final = 32
VARLONG_BITS: Final = 64


def decode_varint(buffer: Buffer, position: int, end: int, bits: int = VARINT_BITS) -> tuple[int, int]:
    """The number at ``position`` and the position behind it.

    Raises ValueError when it does not end before ``end``, or does not fit ``bits`` bits: at most 5 bytes for 32 bits,
    10 for 64.
    """
    raw = shift = 0
    while position < end:
        byte = buffer[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if raw >> bits:
            raise ValueError(f"a number of more than {bits} bits")
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), position
        shift += 7
        if shift >= bits:
            raise ValueError(f"a number of more than {bits} bits")
    raise ValueError("the bytes end inside a number")


def encode_varint(value: int, bits: int = VARINT_BITS) -> bytes:
    """The shortest bytes of ``value``. Raises UsageError when it does not fit ``bits`` bits."""
    if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise UsageError(f"a number does not fit {bits} bits", found=value)
    raw = value << 1 if value >= 0 else ~(value << 1)
    encoded = bytearray()
    while raw >= 0x80:
        encoded.append(raw & 0x7F | 0x80)
        raw >>= 7
    encoded.append(raw)
    return bytes(encoded)
