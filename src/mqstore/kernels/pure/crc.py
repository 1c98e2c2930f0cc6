"""CRC-32, and the checksums of many parts of one buffer in time that does not depend on their sizes."""

from __future__ import annotations

import zlib
from typing import Final

from mqstore.layout.buffers import Buffer

_POLYNOMIAL: Final = 0xEDB88320
_ONE: Final = 0x80000000
_STEP: Final = 4096


def crc32(data: Buffer, value: int = 0, /) -> int:
    """See :meth:`mqstore.kernels.api.Kernels.crc32`."""
    return zlib.crc32(data, value)


def _times(a: int, b: int) -> int:
    """Product of two polynomials modulo the CRC's own; the highest power is in bit 0."""
    product = 0
    power = _ONE
    while power:
        if a & power:
            product ^= b
        b = (b >> 1) ^ (_POLYNOMIAL if b & 1 else 0)
        power >>= 1
    return product


def after_zeros(value: int, count: int) -> int:
    """What a checksum contributes to that of the same bytes with ``count`` more behind them."""
    power = _ONE >> 8
    while count:
        if count & 1:
            value = _times(power, value)
        power = _times(power, power)
        count >>= 1
    return value


class PartialSums:
    """Checksums of parts of a buffer from ``start`` on.

    The checksum of [a, b) follows from those of [start, a) and [start, b), which are kept at every 4 KiB as
    far as anybody asked: parts may overlap as they like, no byte is read more than a few times.
    """

    def __init__(self, view: memoryview, start: int) -> None:
        self._view = view
        self._start = start
        self._sums = [0]

    def _up_to(self, position: int) -> int:
        whole, rest = divmod(position - self._start, _STEP)
        while len(self._sums) <= whole:
            at = self._start + (len(self._sums) - 1) * _STEP
            self._sums.append(zlib.crc32(self._view[at : at + _STEP], self._sums[-1]))
        return zlib.crc32(self._view[position - rest : position], self._sums[whole])

    def crc32(self, begin: int, end: int) -> int:
        """CRC-32 of the bytes [begin, end)."""
        return self._up_to(end) ^ after_zeros(self._up_to(begin), end - begin)
