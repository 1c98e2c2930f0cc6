"""The hash that checks an lz4 frame's header, for inputs shorter than 16 bytes, which is all a header has."""

from __future__ import annotations

from typing import Final

_PRIMES: Final = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1)
_MASK: Final = 0xFFFFFFFF


def xxhash32(data: bytes) -> int:
    """XXH32 of fewer than 16 bytes with seed 0, unsigned."""
    value = _PRIMES[4] + len(data)
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        value = value + int.from_bytes(data[at : at + 4], "little") * _PRIMES[2] & _MASK
        value = _rotated(value, 17) * _PRIMES[3] & _MASK
    for byte in data[whole:]:
        value = value + byte * _PRIMES[4] & _MASK
        value = _rotated(value, 11) * _PRIMES[0] & _MASK
    value = (value ^ value >> 15) * _PRIMES[1] & _MASK
    value = (value ^ value >> 13) * _PRIMES[2] & _MASK
    return value ^ value >> 16


def _rotated(value: int, bits: int) -> int:
    return value << bits & _MASK | value >> 32 - bits
