"""SQL92 expressions: the grammar, three truth values, and RocketMQ's own rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore import UsageError, sql

A7 = {"a": "7", "b": "x", "TAGS": "paid"}


@pytest.mark.parametrize(
    ("text", "properties", "passes"),
    [
        ("a > 5", A7, True),
        ("A > 5", A7, False),  # names keep their case, keywords do not
        ("a >= 7 and a <= 7 AND NOT (a <> 7)", A7, True),
        ("a = '7' AND b = 'x'", A7, True),
        ("TAGS = 'paid'", A7, True),
        ("a = 7L", A7, True),
        ("a = 7.0", A7, True),
        ("a > .5 AND a > 6e0", A7, True),
        ("a = 7 -- the rest is a comment", A7, True),
        ("a /* here */ = 7", A7, True),
        ("b = 'it''s'", {"b": "it's"}, True),
        # A property that is no number where one is needed.
        ("b > 5", A7, False),
        ("NOT b > 5 OR a = 7", A7, None),
        ("a = 5", {"a": "5.0"}, False),
        ("a = 5.0", {"a": "5.0"}, True),
        ("a > b", {"a": "10", "b": "9"}, True),
        # Missing properties.
        ("c = 7", A7, False),
        ("c <> 7", A7, False),
        ("7 = c", A7, False),
        ("7 <> c", A7, True),
        ("c = d", A7, True),
        ("c <> d", A7, False),
        ("c IS NULL AND a IS NOT NULL", A7, True),
        ("c IN ('x')", A7, False),
        ("c NOT IN ('x')", A7, False),
        ("b NOT IN ('y', 'z')", A7, True),
        ("c > 1 OR a = 7", A7, True),
        ("a = 8 OR c > 1", A7, False),
        ("NOT (c > 1)", A7, False),
        # Text is no truth.
        ("a", {"a": "true"}, False),
        ("NOT a", {"a": "true"}, True),
        ("a = TRUE", {"a": "true"}, True),
        ("a = FALSE", {"a": "no"}, True),
        ("TRUE", {}, True),
        ("FALSE OR TRUE", {}, True),
        ("a BETWEEN 1 AND 7", A7, True),
        ("a NOT BETWEEN 1 AND 6", A7, True),
        ("c NOT BETWEEN 1 AND 6", A7, False),
        ("a BETWEEN 1 AND 7 AND b = 'x'", A7, True),
        ("-a < 3", A7, False),  # minus makes nothing of text
        ("a > -3", A7, True),
    ],
)
def test_what_passes(text: str, properties: dict[str, str], passes: bool | None) -> None:
    if passes is None:
        with pytest.raises(UsageError):
            sql(text)
    else:
        assert sql(text).matches(properties) is passes


@pytest.mark.parametrize(
    "text",
    [
        "",
        "'x'",
        "5",
        "NULL",
        "a = NULL",
        "a > 'x'",
        "a > TRUE",
        "a BETWEEN 5 AND 1",
        "a BETWEEN 'x' AND 'y'",
        "a BETWEEN (1 = 'x') AND 2",
        "a BETWEEN 1 AND (TRUE = 'x')",
        "a IN ()",
        "a IN (5)",
        "5 IN ('x')",
        "a != 5",
        "a + 1 > 2",
        "a LIKE 'x%'",
        "a > 5 b",
        "a >",
        "(a > 5",
        "a = 99999999999999999999",
        "a > 1 = TRUE",
        "'x",
        "NOT a > 1",
        "\0",
    ],
)
def test_what_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        sql(text)


LETTERS = "ab19.' ()<>=-+,/*\nANDORNOTINISULBETWE"


@given(st.text(alphabet=LETTERS, max_size=40), st.dictionaries(st.sampled_from("ab"), st.text(max_size=5)))
def test_any_text_is_an_expression_or_refused(text: str, properties: dict[str, str]) -> None:
    try:
        expression = sql(text)
    except UsageError:
        return
    assert expression.matches(properties) in (True, False)


def test_deep_nesting_is_no_trouble() -> None:
    assert sql("(" * 3000 + "a = 1" + ")" * 3000).matches({"a": "1"})
    with pytest.raises(UsageError, match="nested"):
        sql("NOT " * 16_000 + "(a = 1)")
    with pytest.raises(UsageError, match="too long"):
        sql("NOT " * 20_000 + "(a = 1)")


@pytest.mark.parametrize("text", ["AND = 1", "a = OR", "in IN ('x')", "a > 1 and IS NULL", "Between = 'x'", "NOT = 2"])
def test_a_key_word_is_no_property(text: str) -> None:
    with pytest.raises(UsageError, match="not an SQL92 expression"):
        sql(text)


def test_names_that_begin_as_key_words_are_properties() -> None:
    assert sql("android = 1 AND Order_ = 'x' AND nothing IS NULL").matches({"android": "1", "Order_": "x"})
