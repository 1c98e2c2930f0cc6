"""Queue units, index entries and places in the log as NumPy arrays: how they lie in files, and how they are counted."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

UNIT: Final = np.dtype([("physicalOffset", ">i8"), ("storeSize", ">i4"), ("tagsCode", ">i8")])
ENTRY: Final = np.dtype([("keyHash", ">i4"), ("physicalOffset", ">i8"), ("seconds", ">i4"), ("previous", ">i4")])

PLACE: Final = np.dtype([(name, np.int64) for name in ("begin", "size", "queue_offset", "range", "position")])
"""A wanted record: :data:`mqstore.kernels.PLACE`, its queue being that of a range of a split."""

Wanted = Any
"""A NumPy array of :data:`PLACE`, in the order of the log."""

Numbers = Any
"""A NumPy array of whole numbers."""


class UnitRange(NamedTuple):
    """Units [begin, end) of one queue."""

    topic: str
    queue_id: int
    begin: int
    end: int
