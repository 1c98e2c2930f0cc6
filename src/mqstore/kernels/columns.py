"""Rows as columns of numbers that lie in one piece of memory, for all kernels that read many things at once."""

from __future__ import annotations

from array import array
from typing import ClassVar, Final, Literal, overload

WIDE: Final = 8
NARROW: Final = 4


class Cell:
    """One column of a :class:`ColumnTable`, made a memoryview at its first use.

    ``index`` counts among the columns of the same width, 64 bits (``q``) or 32 (``i``).
    """

    def __init__(self, index: int, code: Literal["q", "i"]) -> None:
        self.index = index
        self.code = code

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Cell: ...
    @overload
    def __get__(self, instance: ColumnTable, owner: type) -> memoryview: ...
    def __get__(self, instance: ColumnTable | None, owner: type) -> memoryview | Cell:
        if instance is None:
            return self
        width = WIDE if self.code == "q" else NARROW
        start = self.index * WIDE * instance.capacity
        if self.code == "i":
            start = (instance.WIDE_COLUMNS * WIDE + self.index * NARROW) * instance.capacity
        column = memoryview(instance.arena)[start : start + width * instance.count].cast(self.code)
        instance.__dict__[self._name] = column
        return column


class ColumnTable:
    """``WIDE_COLUMNS`` columns of ``capacity`` 64-bit numbers, then ``NARROW_COLUMNS`` of as many 32-bit ones.

    Attributes:
        count: number of rows.
        capacity, arena: how the columns lie in memory; for kernels only.
    """

    WIDE_COLUMNS: ClassVar[int]
    NARROW_COLUMNS: ClassVar[int]
    COLUMN_NAMES: ClassVar[tuple[str, ...]]
    """Names of the columns, first the 64-bit ones, in the order of the arena."""

    def __init_subclass__(cls) -> None:
        cells = {name: value for name, value in vars(cls).items() if isinstance(value, Cell)}
        cls.COLUMN_NAMES = tuple(cells)
        cls.WIDE_COLUMNS = sum(cell.code == "q" for cell in cells.values())
        cls.NARROW_COLUMNS = len(cells) - cls.WIDE_COLUMNS

    def __init__(self, arena: bytearray, capacity: int, count: int) -> None:
        self.arena = arena
        self.capacity = capacity
        self.count = count

    def __len__(self) -> int:
        return self.count

    @classmethod
    def arena_of(cls, rows: list[tuple[int, ...]]) -> bytearray:
        """The memory of a table of just these rows, each with all columns in their order."""
        arena = bytearray()
        for index, column in enumerate(zip(*rows, strict=True)):
            arena += array("q" if index < cls.WIDE_COLUMNS else "i", column).tobytes()
        return arena
