"""Batch bodies, as the clients of 4.9.8 and 5.x encode them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.errors import DamageError, MessageIllegalError, UsageError
from mqstore.layout import batch

I32 = st.integers(-(2**31), 2**31 - 1)


class TestBatchBody:
    FOUR = (
        "00000033 00000000 00000000 00000000 00000002 4230 001b 4b455953 01 6b30 02 57414954 01 74727565"
        "02 54414753 01 54616741"
    )
    FIVE = (
        "00000034 00000000 00000000 00000007 00000002 4230 001c 4b455953 01 6b31 02 57414954 01 74727565"
        "02 54414753 01 54616741 02"
    )

    def test_body_of_a_4_9_client(self):
        data = bytes.fromhex(self.FOUR * 2)
        element = batch.BatchElement(0, b"B0", b"KEYS\x01k0\x02WAIT\x01true\x02TAGS\x01TagA")
        assert batch.decode_batch(data) == [element, element]
        assert batch.encode_batch([element, element]) == data

    def test_body_of_a_5_x_client(self):
        data = bytes.fromhex(self.FIVE * 2)
        element = batch.BatchElement(7, b"B0", b"KEYS\x01k1\x02WAIT\x01true\x02TAGS\x01TagA\x02")
        assert batch.decode_batch(data) == [element, element]
        assert batch.encode_batch([element, element]) == data

    @given(st.lists(st.builds(batch.BatchElement, I32, st.binary(max_size=40), st.binary(max_size=40)), max_size=5))
    def test_round_trip(self, elements):
        assert batch.decode_batch(batch.encode_batch(elements)) == elements

    def test_every_cut_is_damage(self):
        data = bytes.fromhex(self.FIVE)
        for size in range(1, len(data)):
            with pytest.raises(DamageError):
                batch.decode_batch(data[:size])

    @given(st.binary(max_size=80))
    def test_noise(self, data):
        try:
            elements = batch.decode_batch(data)
        except DamageError:
            return
        assert sum(22 + len(e.body) + len(e.properties_raw) for e in elements) == len(data)

    def test_limits(self):
        with pytest.raises(MessageIllegalError):
            batch.encode_batch([batch.BatchElement(0, b"", bytes(32768))])
        with pytest.raises(UsageError):
            batch.encode_batch([batch.BatchElement(2**31, b"", b"")])
