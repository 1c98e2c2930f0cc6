"""CRC-32C (Castagnoli), the checksum of record batches and producer snapshots, in plain Python.

The kernels have a fast one; this one serves the small files and is the readable definition.
"""

from __future__ import annotations

from typing import Final

from mqstore.layout.buffers import Buffer

_POLYNOMIAL: Final = 0x82F63B78


def _table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return table


_TABLE: Final = _table()


def crc32c(data: Buffer, value: int = 0) -> int:
    """The checksum of ``data``, unsigned; ``value`` is that of what went before."""
    crc = value ^ 0xFFFFFFFF
    for byte in memoryview(data):
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF
