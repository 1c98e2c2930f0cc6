"""The bloom filter by which brokers note which SQL subscriptions a message passes.

Its bits lie in consume queue extensions (docs/format/consume-queue-ext.md), the positions of each
subscription in ``consumerFilter.json`` (docs/format/config-json.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from mqstore.errors import UsageError

_MASK: Final = 0xFFFF_FFFF_FFFF_FFFF
_C1: Final = 0x87C3_7B91_1142_53D5
_C2: Final = 0x4CF5_AD43_2745_937F


@dataclass(frozen=True, slots=True)
class BloomFilter:
    """A filter of ``bit_count`` bits in which each subscription sets ``hash_count`` of them."""

    hash_count: int
    bit_count: int

    @classmethod
    def sized(cls, error_percent: int = 20, subscriptions: int = 32) -> BloomFilter:
        """The filter that a broker makes for an error rate of 1 to 99 percent and a number of subscriptions.

        The defaults are the broker's. Raises UsageError for values outside these ranges.
        """
        if not 1 <= error_percent <= 99 or subscriptions < 1:
            raise UsageError(
                "no such bloom filter", expected="1..99 percent", found=f"{error_percent}, {subscriptions}"
            )
        hashes = math.ceil(math.log(error_percent / 100) / math.log(0.5))
        bits = math.ceil(subscriptions * math.log2(math.e) * math.log2(100 / error_percent))
        return cls(hashes, (bits + 7) // 8 * 8)

    def positions(self, group: str, topic: str) -> list[int]:
        """The bits of the subscription of ``group`` to ``topic``, in the order of ``bitPos``."""
        value = murmur3_low(f"{group}#{topic}".encode("utf-8", "replace"))
        first, second = _signed(value), _signed(value >> 32)
        combined = (_signed(first + index * second) for index in range(1, self.hash_count + 1))
        return [(~number if number < 0 else number) % self.bit_count for number in combined]

    def set_bits(self, bitmap: bytearray, positions: list[int]) -> None:
        """Set the bits of one subscription. Raises UsageError when the bitmap has another size than the
        filter.
        """
        self._check_size(bitmap)
        for position in positions:
            bitmap[position // 8] |= 1 << position % 8

    def may_match(self, bitmap: bytes, positions: list[int]) -> bool:
        """False only when a message with this bitmap did not pass the subscription with these bits.

        Raises UsageError when the bitmap has another size than the filter.
        """
        self._check_size(bitmap)
        return all(bitmap[position // 8] >> position % 8 & 1 for position in positions)

    def _check_size(self, bitmap: bytes | bytearray) -> None:
        if 8 * len(bitmap) != self.bit_count:
            raise UsageError("a bitmap of another size", expected=self.bit_count, found=8 * len(bitmap))


def _signed(number: int) -> int:
    """The low 32 bits as a signed integer."""
    return ((number + 0x8000_0000) & 0xFFFF_FFFF) - 0x8000_0000


def murmur3_low(data: bytes) -> int:
    """The low 64 bits of the 128-bit murmur3 hash (x64 form, seed 0) of ``data``, unsigned."""
    h1 = h2 = 0
    whole = len(data) - len(data) % 16
    for at in range(0, whole, 16):
        h1 ^= _mix_first(int.from_bytes(data[at : at + 8], "little"))
        h1 = (_rotated(h1, 27) + h2) * 5 + 0x52DC_E729 & _MASK
        h2 ^= _mix_second(int.from_bytes(data[at + 8 : at + 16], "little"))
        h2 = (_rotated(h2, 31) + h1) * 5 + 0x3849_5AB5 & _MASK
    h1 ^= _mix_first(int.from_bytes(data[whole : whole + 8], "little")) ^ len(data)
    h2 ^= _mix_second(int.from_bytes(data[whole + 8 :], "little")) ^ len(data)
    h1 = h1 + h2 & _MASK
    h2 = h2 + h1 & _MASK
    return _finished(h1) + _finished(h2) & _MASK


def _mix_first(k: int) -> int:
    return _rotated(k * _C1 & _MASK, 31) * _C2 & _MASK


def _mix_second(k: int) -> int:
    return _rotated(k * _C2 & _MASK, 33) * _C1 & _MASK


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & _MASK


def _finished(value: int) -> int:
    for factor in (0xFF51_AFD7_ED55_8CCD, 0xC4CE_B9FE_1A85_EC53):
        value = (value ^ value >> 33) * factor & _MASK
    return value ^ value >> 33
