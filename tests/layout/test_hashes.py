"""Hashes and tags; the values were printed by Java 21."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.errors import UsageError
from mqstore.layout import index
from mqstore.layout.java_hash import java_hash
from mqstore.layout.tags import TagExpression, low_32_bits, tags_code
from mqstore.layout.text import decode_text


class TestHashes:
    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ("", 0),
            ("a", 97),
            ("TagA", 2598919),
            ("Aa", 2112),
            ("BB", 2112),
            ("polygenelubricants", -(2**31)),
            ("\U0001f600", 1772899),
            ("标签", 857175),
            ("AaTopic#BB", -10606476),
            ("BBTopic#BB", -10606476),
            ("AaTopic#Aa", -10606476),
        ],
    )
    def test_java_hash(self, text, value):
        assert java_hash(text) == value

    def test_key_hash(self):
        assert index.key_hash("TopicTest", "7F00000100000") == 0x6C746642
        assert index.key_hash("TopicTest", "k0") == 0x0029E6A7
        assert index.key_hash("TopicTest", "kk") == 0x0029E6E2
        assert index.key_hash("AaTopic", "BB") == 10606476

    def test_key_hash_of_smallest_integer_is_zero(self):
        assert java_hash("T#jllgvmc") == -(2**31)
        assert index.key_hash("T", "jllgvmc") == 0

    @given(st.text())
    def test_hash_is_that_of_the_definition(self, text):
        value = 0
        data = text.encode("utf-16-be", "surrogatepass")
        for at in range(0, len(data), 2):
            value = (31 * value + int.from_bytes(data[at : at + 2], "big")) % 2**32
        assert java_hash(text) % 2**32 == value
        assert -(2**31) <= java_hash(text) < 2**31


class TestTags:
    def test_code(self):
        assert tags_code(None) == tags_code("") == 0
        assert tags_code("TagA") == 0x27A807
        assert tags_code("polygenelubricants") == -(2**31)

    @pytest.mark.parametrize("expression", [None, "", "*"])
    def test_all(self, expression):
        everything = TagExpression.parse(expression)
        assert not everything.tags
        assert everything.matches(None)
        assert everything.matches("x")
        assert everything.matches_code(0)

    def test_some(self):
        some = TagExpression.parse(" paid ||refunded|| ")
        assert some.tags == {"paid", "refunded"}
        assert some.matches("paid")
        assert not some.matches("paid ")
        assert not some.matches(None)
        assert not some.matches("")
        assert some.matches_code(java_hash("refunded"))
        assert not some.matches_code(0)

    def test_code_is_compared_in_its_low_half(self):
        some = TagExpression.parse("polygenelubricants")
        assert some.matches_code(-(2**31))
        assert some.matches_code(2**31)
        assert low_32_bits(2**32 + 5) == 5

    def test_colliding_tags_share_a_code_only(self):
        some = TagExpression.parse("Aa")
        assert some.matches_code(tags_code("BB"))
        assert not some.matches("BB")

    def test_star_among_tags_is_a_tag(self):
        assert TagExpression.parse("a || *").tags == {"a", "*"}

    @pytest.mark.parametrize("expression", ["||", "  ", " || || "])
    def test_no_tag(self, expression):
        with pytest.raises(UsageError):
            TagExpression.parse(expression)

    def test_blanks_inside_stay(self):
        assert TagExpression.parse("\ta b\u00a0||c").tags == {"a b\u00a0", "c"}


def test_text_is_read_as_java_reads_it():
    raw = b"a\xed\xa0\x80b\xff\xe2\x82c\xed\xa0"
    assert decode_text(raw) == "a\ufffdb\ufffd\ufffdc\ufffd"
    assert decode_text("标签\U0001f600".encode()) == "标签\U0001f600"
