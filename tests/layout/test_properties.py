"""Properties: parsing, writing, the order of a Java HashMap (printed by Java 21), and the checksum of 5.x."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.errors import MessageIllegalError, UsageError
from mqstore.layout import properties, properties_crc
from mqstore.layout.constants import MAGIC_V2
from mqstore.layout.hosts import encode_host
from mqstore.layout.record import decode_record, encode_record

NAMES = st.text(st.characters(exclude_characters="\0\1\2", codec="utf-8"), min_size=1, max_size=6)
VALUES = st.text(st.characters(exclude_characters="\0\2", codec="utf-8"), min_size=1, max_size=6)


class TestParse:
    @pytest.mark.parametrize(
        ("raw", "parsed"),
        [
            (b"", {}),
            (b"a\x01b", {"a": "b"}),
            (b"a\x01b\x02", {"a": "b"}),
            (b"a\x01b\x02c\x01d", {"a": "b", "c": "d"}),
            # What the classes of 5.x made of this odd string.
            (b"a\x01b\x02c\x01\x02\x01d\x02e\x02x\x01y\x01z\x02a\x01q", {"a": "q", "x": "y\x01z"}),
            (b"\x02\x02a\x01b\x02\x02", {"a": "b"}),
            (b"\x01\x01\x01", {}),
        ],
    )
    def test_vectors(self, raw, parsed):
        assert properties.parse(raw) == parsed
        assert properties.parse(raw.decode()) == parsed

    def test_malformed_text(self):
        assert properties.parse(b"a\x01\xff") == {"a": "\ufffd"}

    def test_order_is_that_of_first_mention(self):
        assert list(properties.parse(b"b\x011\x02a\x012\x02b\x013")) == ["b", "a"]

    @given(st.dictionaries(NAMES, VALUES, max_size=5), st.booleans())
    def test_reads_back(self, pairs, trailing):
        raw = properties.encode(pairs, trailing_separator=trailing)
        assert properties.parse(raw) == pairs
        assert properties.defect(raw) is None
        assert raw.endswith(b"\x02") == (trailing and bool(pairs)) or not trailing


class TestEncode:
    def test_both_habits(self):
        pairs = {"a": "b", "c": None, "d": "e"}
        assert properties.encode(pairs) == b"a\x01b\x02d\x01e"
        assert properties.encode(pairs, trailing_separator=True) == b"a\x01b\x02d\x01e\x02"
        assert properties.encode([("x", "1"), ("x", "2")]) == b"x\x011\x02x\x012"
        assert properties.encode({}, trailing_separator=True) == b""

    @pytest.mark.parametrize(
        "pair",
        [
            ("", "v"),
            ("n", ""),
            ("n\x01", "v"),
            ("n\x02", "v"),
            ("n\0", "v"),
            ("n", "v\x02"),
            ("n", "v\0"),
            ("n", "\ud800"),
            ("\udfff", "v"),
            ("n", "v" * 32766),
        ],
    )
    def test_what_would_not_read_back(self, pair):
        with pytest.raises(MessageIllegalError):
            properties.encode([pair])

    def test_largest(self):
        assert len(properties.encode({"n": "v" * 32765})) == 32767


class TestAppend:
    @pytest.mark.parametrize(
        ("raw", "more", "joined"),
        [
            (b"", b"", b""),
            (b"a\x01b", b"", b"a\x01b"),
            (b"", b"a\x01b", b"a\x01b"),
            (b"a\x01b", b"c\x01d", b"a\x01b\x02c\x01d"),
            (b"a\x01b\x02", b"c\x01d\x02", b"a\x01b\x02c\x01d\x02"),
        ],
    )
    def test_one_separator(self, raw, more, joined):
        assert properties.append(raw, more) == joined

    def test_too_large(self):
        with pytest.raises(MessageIllegalError):
            properties.append(b"a" * 20000, b"b" * 20000)


class TestDefect:
    @pytest.mark.parametrize("raw", [b"", b"a\x01b", b"\x02\x02", b"a\x01", b"\x01b", b"a\x01b\x01c\x02"])
    def test_none(self, raw):
        assert properties.defect(raw) is None

    @pytest.mark.parametrize("raw", [b"a", b"a\x01b\x02c", b"a\x01b\0", b"\0", b"a\x01b\x02\0\x02"])
    def test_some(self, raw):
        assert properties.defect(raw)


def test_split_keys():
    assert properties.split_keys("k1  k2 ") == ["k1", "k2"]
    assert properties.split_keys("a\tb a\tb") == ["a\tb", "a\tb"]
    assert properties.split_keys(None) == properties.split_keys("") == properties.split_keys(" ") == []


class TestMapOrder:
    """Inserted, then iterated by java.util.HashMap."""

    def test_forty_names(self):
        inserted = (
            "DISMQ H LX QBIS X JQIS 咉NAYUS WDT MSYTW Q MHQ M IJ AJZ Z OO L匶 NSPA TBNCHS SY剼Y WF 合Q QL V MWYLOT "
            "RT ZEPA E U L HJH华 仞 ZLZNRK VV X 刘N JIVTSK 倌 SE S"
        )
        iterated = (
            "VV RT 合Q E H LX L 倌 M WF Q AJZ MSYTW NSPA SE JQIS S U V MHQ X Z QL QBIS 仞 OO IJ WDT JIVTSK L匶 "
            "HJH华 DISMQ SY剼Y ZLZNRK TBNCHS ZEPA MWYLOT 咉NAYUS 刘N"
        )
        assert properties.java_map_order(inserted.split()) == iterated.split()

    def test_first_capacity_128(self):
        inserted = [f"p{number * number * 7919}" for number in range(30)]
        iterated = (
            "p31676 p4189151 p506816 p2288591 p2027264 p641439 p126704 p2858759 p5772951 p5353244 p791900 p285084 "
            "p6208496 p1338311 p7919 p71271 p0 p197975 p4561344 p4949375 p3167600 p388031 p2565756 p958199 "
            "p1552124 p1140336 p3492279 p3832796 p6659879 p1781775"
        )
        assert properties.java_map_order(inserted, 128) == iterated.split()

    def test_nine_colliding_names_enlarge_the_table(self):
        pair = ("Aa", "BB")
        names = ["".join(pair[number >> bit & 1] for bit in range(4)) for number in range(9)]
        ordered = properties.java_map_order([*names, "zz", "TAGS", "KEYS"])
        assert [name for name in ordered if name in names] == names
        assert ordered == ["zz", *names, "KEYS", "TAGS"]

    @given(st.lists(NAMES, max_size=60))
    def test_is_a_permutation(self, names):
        ordered = properties.java_map_order(names)
        assert sorted(ordered) == sorted(set(names))


class TestRecordChecksum:
    """The 20 bytes were written by MessageDecoder.createCrc32 of 5.x."""

    @pytest.mark.parametrize(
        ("value", "data"),
        [
            (907060870, "5f5f435243333223013037383036303730393002"),
            (0, "5f5f435243333223013030303030303030303002"),
            (2147483647, "5f5f435243333223013734363338343734313202"),
        ],
    )
    def test_vectors(self, value, data):
        assert properties_crc.crc_property(value).hex() == data
        assert properties_crc.stored_crc(bytes.fromhex(data)) == value

    def sealed(self, user: bytes) -> bytes:
        host = encode_host("10.0.0.9:10911")
        return properties_crc.seal(
            encode_record(
                topic=b"TopicTest", body=b"hello", properties=properties_crc.reserve(user), queue_id=0, flag=0,
                queue_offset=0, physical_offset=0, sys_flag=0, born_timestamp_ms=0, born_host=host,
                store_timestamp_ms=1, store_host=host, magic=MAGIC_V2,
            )
        )  # fmt: skip

    @pytest.mark.parametrize("user", [b"", b"a\x01b", b"a\x01b\x02"])
    def test_covers_every_bit(self, user):
        data = self.sealed(user)
        assert properties_crc.is_intact(data)
        record = decode_record(data)
        assert record.properties["__CRC32#"][::-1].isdigit()
        assert record.properties_raw.startswith(user)
        for bit in range(8 * len(data)):
            flipped = bytearray(data)
            flipped[bit // 8] ^= 1 << bit % 8
            assert properties_crc.is_intact(flipped) is not True

    def test_none_is_not_zero(self):
        assert properties_crc.is_intact(b"a record without checksum") is None
        assert properties_crc.stored_crc(properties_crc.crc_property(0)) == 0
        assert properties_crc.is_intact(b"") is None

    def test_misuse(self):
        with pytest.raises(UsageError):
            properties_crc.seal(b"a record without room for a checksum")
        for value in (-1, 2**31):
            with pytest.raises(UsageError):
                properties_crc.crc_property(value)
        with pytest.raises(MessageIllegalError):
            properties_crc.reserve(b"a\x01" + b"b" * 32760)
