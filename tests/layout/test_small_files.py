"""Delay levels, the checkpoint file and file names."""

from __future__ import annotations

from datetime import datetime

import pytest

from mqstore.errors import CorruptFileError, UsageError
from mqstore.layout import checkpoint, delay, file_names


class TestDelay:
    def test_default_table(self):
        assert len(delay.DEFAULT_DELAY_TABLE) == 18
        assert delay.DEFAULT_DELAY_TABLE[1] == 1000
        assert delay.DEFAULT_DELAY_TABLE[3] == 10_000
        assert delay.DEFAULT_DELAY_TABLE[18] == 7_200_000

    def test_units(self):
        assert delay.parse_delay_levels("2s 3m 4h 5d") == {1: 2000, 2: 180_000, 3: 14_400_000, 4: 432_000_000}

    @pytest.mark.parametrize("text", ["", "  ", "1", "s", "1S", "1s 2", "-1s", "1.5s", "1s,2s", "٣s"])
    def test_bad_tables(self, text):
        with pytest.raises(UsageError):
            delay.parse_delay_levels(text)

    def test_deliver_timestamp(self):
        assert delay.deliver_timestamp(3, 0x1A21EFFA107) == 0x1A21EFFC817
        assert delay.deliver_timestamp(99, 5) == 1005

    @pytest.mark.parametrize(
        ("text", "level"),
        [
            (None, 0),
            ("", 0),
            ("0", 0),
            ("-3", 0),
            ("3", 3),
            ("+3", 3),
            ("18", 18),
            ("25", 18),
            ("x", 0),
            ("1_0", 0),
            (" 3", 0),
            ("2147483647", 18),
            ("2147483648", 0),
            ("9" * 100, 0),
        ],
    )
    def test_level(self, text, level):
        assert delay.delay_level(text) == level


class TestCheckpoint:
    def test_round_trip(self):
        values = checkpoint.Checkpoint(1, 2, 3, 4, 5)
        data = checkpoint.encode_checkpoint(values)
        assert len(data) == 4096
        assert data[:40] == b"".join(number.to_bytes(8, "big") for number in range(1, 6))
        assert not any(data[40:])
        assert checkpoint.decode_checkpoint(data) == values

    def test_derived(self):
        assert checkpoint.Checkpoint(10_000, 9_000, 5_000).min_timestamp() == 6_000
        assert checkpoint.Checkpoint(10_000, 2_000, 0).min_timestamp() == 0

    def test_misuse(self):
        with pytest.raises(CorruptFileError):
            checkpoint.decode_checkpoint(bytes(39))
        with pytest.raises(UsageError):
            checkpoint.encode_checkpoint(checkpoint.Checkpoint(2**63))


class TestFileNames:
    def test_index_names(self):
        name = file_names.index_file_name(datetime(2026, 11, 27, 21, 43, 55, 990_999))
        assert name == "20261127214355990"
        assert file_names.is_index_file_name(name)
        assert not file_names.is_index_file_name(name + "0")
        assert not file_names.is_index_file_name("2026112721435599x")

    def test_queue_ids(self):
        assert file_names.parse_queue_id("0") == 0
        assert file_names.parse_queue_id("17") == 17
        for name in ("", "-1", "01", "x", "1 ", "٣"):
            assert file_names.parse_queue_id(name) is None
