"""Varints and single records: limits, and what is none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layout.kafka.batches import BATCH, RECORDS, read
from mqstore.errors import UsageError
from mqstore.layout.kafka.record import RecordFields, cut, decode_headers, encode_record_fields, find_record
from mqstore.layout.kafka.varint import VARLONG_BITS, decode_varint, encode_varint

# ---- varints ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (0, "00"), (-1, "01"), (1, "02"), (63, "7e"), (-64, "7f"), (64, "8001"), (-65, "8101"), (8191, "fe7f"),
        (8192, "808001"), (2**31 - 1, "feffffff0f"), (-(2**31), "ffffffff0f"),
    ],
)  # fmt: skip
def test_varints(value: int, data: str) -> None:
    assert encode_varint(value).hex() == encode_varint(value, VARLONG_BITS).hex() == data
    assert decode_varint(bytes.fromhex(data) + b"\xff", 0, len(data) // 2) == (value, len(data) // 2)


@given(st.integers(-(2**63), 2**63 - 1))
def test_varlongs_round_trip(value: int) -> None:
    data = encode_varint(value, VARLONG_BITS)
    assert len(data) <= 10
    assert decode_varint(b"\0" + data, 1, len(data) + 1, VARLONG_BITS) == (value, len(data) + 1)


@pytest.mark.parametrize(
    ("data", "bits"),
    [
        ("", 32), ("80", 32), ("ffffffff", 32), ("ffffffff10", 32), ("ffffffffff01", 32), ("808080808000", 32),
        ("ffffffffffffffffff", 64), ("ffffffffffffffffff02", 64), ("ffffffffffffffffffff01", 64),
    ],
)  # fmt: skip
def test_varints_that_are_none(data: str, bits: int) -> None:
    with pytest.raises(ValueError, match=r"bits|end inside"):
        decode_varint(bytes.fromhex(data), 0, len(data) // 2, bits)


def test_a_varint_may_be_longer_than_it_must() -> None:
    assert decode_varint(b"\x80\x80\x80\x80\x00", 0, 5) == (0, 5)


@pytest.mark.parametrize(("value", "bits"), [(2**31, 32), (-(2**31) - 1, 32), (2**63, 64), (-(2**63) - 1, 64)])
def test_numbers_that_do_not_fit(value: int, bits: int) -> None:
    with pytest.raises(UsageError):
        encode_varint(value, bits)


# ---- records ---------------------------------------------------------------------------------------------------------

BYTES = st.one_of(st.none(), st.binary(max_size=100))
FIELDS = st.builds(
    RecordFields,
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-(2**31), 2**31 - 1),
    BYTES,
    BYTES,
    st.lists(st.tuples(st.text(max_size=10), BYTES), max_size=4).map(tuple),
)


@given(FIELDS)
def test_records_round_trip(fields: RecordFields) -> None:
    data = encode_record_fields(fields)
    framed = b"x" + data + b"x"
    places, end = find_record(framed, 1, len(data) + 1)
    assert end == len(data) + 1
    key, value = (
        cut(framed, places.key_position, places.key_size),
        cut(framed, places.value_position, places.value_size),
    )
    deltas = places.timestamp_delta_ms, places.offset_delta
    assert RecordFields(*deltas, key, value, decode_headers(framed, places)) == fields
    for end in range(len(data)):
        with pytest.raises(ValueError, match=r".+"):
            find_record(data, 0, end)


def test_null_and_empty_are_two_things() -> None:
    found = read(BATCH)
    assert found == RECORDS
    assert [(one.key, one.value) for one in found] == [(b"k", b"v"), (None, None), (b"", b"")]
    assert found[0].headers == (("h", b"1"), ("h", None))
