"""Rows of Arrow columns into a log file: both kernels write the same, and neither leaves its buffers."""

from __future__ import annotations

from array import array
from typing import Any

import pyarrow as pa
import pytest

from mqstore.errors import UsageError
from mqstore.store.table import MessageTable

ROWS = [
    {
        "topic": "ABC"[number % 3],
        "body": bytes(number * 29 % 1500),
        "tags": [None, "x", "Größe"][number % 3],
        "keys": [None, ["k1"], ["a", "日本"], []][number % 4],
        "queueId": [None, 0, 11][number % 5 % 3],
    }
    for number in range(100)
]


def test_both_write_the_same_bytes(native: Any, pure: Any) -> None:
    table = MessageTable(pa.Table.from_pylist(ROWS))
    outcomes = []
    for kernels in (native, pure):
        bad, total, largest = kernels.measure_rows(table.columns, 1 << 20, 65535, 16)
        assert bad == -1
        buffer, turns, offsets = bytearray(1 << 18), array("q", [5, 6, 7]), array("q", range(36))
        base, counts = array("q", [0, 12, 24]), array("q", [4, 1, 8])
        place = (buffer, 100, 60000, 1 << 40, 1234567890123, b"\x7f\0\0\x01\0\0\x2a\x9f")
        stop, end, last = kernels.put_rows(*place, table.columns, 3, 100, base, counts, turns, offsets)
        assert 3 < stop < 100
        assert end <= 60000 - 8
        outcomes.append((bytes(buffer), list(turns), list(offsets), stop, end, last, total, largest))
        for arguments in ((100, 3), (-1, 3), (3, 101)):
            with pytest.raises(UsageError):
                kernels.put_rows(*place, table.columns, *arguments, base, counts, turns, offsets)
        with pytest.raises(UsageError):
            kernels.put_rows(*place, table.columns, 0, 100, base, array("q", [0, 0, 0]), turns, offsets)
        with pytest.raises(UsageError):
            kernels.put_rows(*place, table.columns, 0, 100, base, counts, turns, array("q", [0]))
        for broken in (
            {"body": (b"\0" * 8 * 100, b"", None)},
            {"body": (array("q", [0] * 100 + [1]), b"", None)},
            {"tags": (array("q", [5] + [4] * 100), b"x" * 9, None)},
            {"topic_of": b"\0" * 399},
        ):
            with pytest.raises(UsageError):
                kernels.measure_rows(table.columns._replace(**broken), 1 << 20, 65535, 16)
    assert outcomes[0] == outcomes[1]
