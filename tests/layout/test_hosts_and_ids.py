"""Host fields and message ids; the vectors were printed by the classes of 4.9.8."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.errors import UsageError
from mqstore.layout import hosts, message_id


class TestHosts:
    @pytest.mark.parametrize(
        ("text", "data"),
        [
            ("127.0.0.1:12345", "7f00000100003039"),
            ("10.0.0.9:10911", "0a00000900002a9f"),
            ("0:0:0:0:0:0:0:1:10911", "0000000000000000000000000000000100002a9f"),
            ("fe80:0:0:0:d006:6a44:a00b:ffe2:4721", "fe80000000000000d0066a44a00bffe200001271"),
        ],
    )
    def test_both_ways(self, text, data):
        assert hosts.encode_host(text).hex() == data
        assert hosts.decode_host(bytes.fromhex(data)) == text

    def test_other_spellings(self):
        assert hosts.encode_host("[::1]:1") == hosts.encode_host("0:0:0:0:0:0:0:1:1")

    @pytest.mark.parametrize("text", ["", "localhost:1", "1.2.3.4", "1.2.3.4:", "1.2.3.4:65536", "1.2.3.4:-1", ":1"])
    def test_refused(self, text):
        with pytest.raises(UsageError):
            hosts.encode_host(text)

    def test_wrong_size(self):
        with pytest.raises(UsageError):
            hosts.decode_host(b"1234567")

    @given(st.binary(min_size=4, max_size=4) | st.binary(min_size=16, max_size=16), st.integers(0, 65535))
    def test_round_trip(self, address, port):
        data = address + port.to_bytes(4, "big")
        assert hosts.encode_host(hosts.decode_host(data)) == data


class TestMessageIds:
    @pytest.mark.parametrize(
        ("host", "offset", "text"),
        [
            ("10.0.0.9:10911", 169, "0A00000900002A9F00000000000000A9"),
            ("127.0.0.1:10091", 1024, "7F0000010000276B0000000000000400"),
            ("0:0:0:0:0:0:0:1:10911", 671, "0000000000000000000000000000000100002A9F000000000000029F"),
        ],
    )
    def test_both_ways(self, host, offset, text):
        assert message_id.encode_message_id(hosts.encode_host(host), offset) == text
        assert message_id.decode_message_id(text) == (host, offset)
        assert message_id.decode_message_id(text.lower()) == (host, offset)

    @pytest.mark.parametrize(
        "text", ["", "7F", "g" * 32, "7F0000010000276B" + "F" * 16, " " * 32, "0" * 33, "٣" * 32, "0" * 10**6]
    )
    def test_refused(self, text):
        with pytest.raises(UsageError):
            message_id.decode_message_id(text)

    def test_cannot_be_made(self):
        with pytest.raises(UsageError):
            message_id.encode_message_id(b"123", 0)
        with pytest.raises(UsageError):
            message_id.encode_message_id(bytes(8), -1)
