"""Stored text as Java reads it."""

from __future__ import annotations

import pytest

from mqstore.layout.constants import LONG_MAX
from mqstore.layout.text import whole


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0), ("000", 0), ("17", 17), ("0" * 30 + "5", 5), (str(LONG_MAX), LONG_MAX), (str(LONG_MAX + 1), None),
        ("1" * 5000, None), ("", None), ("-1", None), ("+1", None), (" 1", None), ("1_0", None), ("٣", None),
        ("²", None),
    ],
)  # fmt: skip
def test_a_whole_number_is_ascii_digits_and_fits_a_long(text: str, number: int | None) -> None:
    assert whole(text) == number
