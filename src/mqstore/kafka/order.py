"""Whether offsets ascend: no checksum covers a batch's base offset, so that only its neighbours tell of a wrong one."""

from __future__ import annotations

from typing import Final, Generic, TypeVar

ItemT = TypeVar("ItemT")

OUT_OF_ORDER: Final = "base offset out of order"


class OffsetOrder(Generic[ItemT]):
    """Watches batches that are shown to it one after the other.

    Attributes:
        end_offset: one past the last offset of the newest batch that may be right; the floor before there is one.
    """

    def __init__(self, floor: int = 0) -> None:
        """``floor``: the least offset that can be right, a segment's base offset."""
        self._before = floor - 1
        self._last: ItemT | None = None
        self.end_offset = floor

    def odd_one(self, item: ItemT, base_offset: int, last_offset: int) -> ItemT | None:
        """The batch whose offset is wrong: ``item``, or the one before it; None when both may be right."""
        if base_offset <= self._before:
            return item
        odd = None
        if self._last is not None:
            if base_offset < self.end_offset:
                odd = self._last
            else:
                self._before = self.end_offset - 1
        self._last, self.end_offset = item, last_offset + 1
        return odd
