"""Units of the three kinds of queue file; the vectors are bytes of a 4.9.8 store."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.errors import CorruptFileError, UsageError
from mqstore.layout import batch_queue_unit, queue_ext, queue_unit
from mqstore.layout.queue_unit import PRE_BLANK, QueueUnit
from mqstore.layout.tags import tags_code

I64 = st.integers(-(2**63), 2**63 - 1)
I32 = st.integers(-(2**31), 2**31 - 1)


class TestQueueUnits:
    def test_vectors(self):
        data = bytes.fromhex("0000000000000000000000a9000000000027a80700000000000000a9000000a9000000000027a807")
        units = [QueueUnit(0, 169, tags_code("TagA")), QueueUnit(169, 169, tags_code("TagA"))]
        assert list(queue_unit.iter_units(data)) == units
        assert queue_unit.encode_units(units) == data
        assert queue_unit.decode_unit(data, 20) == units[1]
        assert units[0].end_offset == units[1].physical_offset

    def test_code_is_sign_extended(self):
        unit = QueueUnit(0, 1, tags_code("polygenelubricants"))
        assert queue_unit.encode_unit(unit)[12:].hex() == "ffffffff80000000"

    def test_kinds(self):
        assert PRE_BLANK.is_pre_blank
        assert not PRE_BLANK.is_written
        assert queue_unit.encode_unit(PRE_BLANK).hex() == "00000000000000007fffffff0000000000000000"
        assert not QueueUnit(0, 0, 0).is_written
        assert not QueueUnit(-1, 1, 0).is_written
        assert QueueUnit(0, 1, 0).is_written

    @given(st.lists(st.builds(QueueUnit, I64, I32, I64), max_size=20), st.integers(0, 20))
    def test_round_trip(self, units, lead):
        data = bytes(lead) + queue_unit.encode_units(units)
        for buffer in (data, bytearray(data), memoryview(data)):
            assert list(queue_unit.iter_units(buffer, lead)) == units

    @pytest.mark.parametrize(("position", "end"), [(-1, 20), (0, 41), (0, 19), (30, 20), (1, 40)])
    def test_ranges(self, position, end):
        with pytest.raises(UsageError):
            queue_unit.iter_units(bytes(40), position, end)

    def test_misuse(self):
        with pytest.raises(UsageError):
            queue_unit.decode_unit(bytes(39), 20)
        with pytest.raises(UsageError):
            queue_unit.encode_unit(QueueUnit(0, 2**31, 0))


class TestBatchQueueUnits:
    def test_layout(self):
        unit = batch_queue_unit.BatchQueueUnit(1, 2, 3, 4, 5, 6)
        data = batch_queue_unit.encode_batch_unit(unit)
        assert data.hex() == (
            "0000000000000001000000020000000000000003000000000000000400000000000000050006ffffffff00000000"
        )
        assert batch_queue_unit.decode_batch_unit(b"x" + data, 1) == unit
        assert unit.is_written
        assert unit.next_queue_offset == 11
        assert [unit.holds(offset) for offset in (4, 5, 10, 11)] == [False, True, True, False]
        assert not batch_queue_unit.decode_batch_unit(bytes(46)).is_written

    def test_misuse(self):
        with pytest.raises(UsageError):
            batch_queue_unit.decode_batch_unit(bytes(46), 1)
        with pytest.raises(UsageError):
            batch_queue_unit.encode_batch_unit(batch_queue_unit.BatchQueueUnit(1, 2, 3, 4, 5, 2**15))


class TestQueueExt:
    UNITS = (
        ("0017000000000027a80700000174876e80000003800102", b"\x80\x01\x02"),
        ("0014000000000027a80700000174876e80000000", b""),
    )

    @pytest.mark.parametrize(("data", "bitmap"), UNITS)
    def test_vectors(self, data, bitmap):
        unit = queue_ext.ExtUnit(tags_code("TagA"), 1_600_000_000_000, bitmap)
        assert queue_ext.encode_ext_unit(unit).hex() == data
        assert queue_ext.decode_ext_unit(b"?" + bytes.fromhex(data), 1) == unit

    def test_addresses(self):
        assert queue_ext.address_of(0) == -(2**63)
        assert queue_ext.address_of(23) == -(2**63) + 23
        assert queue_ext.offset_of(-(2**63) + 46) == 46
        assert queue_ext.is_ext_address(-(2**31) - 1)
        for code in (-(2**31), 0, 2**31 - 1, 1_795_815_835_979):
            assert not queue_ext.is_ext_address(code)
            with pytest.raises(UsageError):
                queue_ext.offset_of(code)
        with pytest.raises(UsageError):
            queue_ext.address_of(-1)
        with pytest.raises(UsageError):
            queue_ext.address_of(2**63)

    @pytest.mark.parametrize("data", [b"", b"\0", bytes(30), queue_ext.END_MARKER, queue_ext.END_MARKER + b"rest"])
    def test_no_unit_follows(self, data):
        assert queue_ext.decode_ext_unit(data) is None

    @pytest.mark.parametrize(
        "data",
        [
            "01",
            "0014",
            "0013000000000027a80700000174876e80000000",
            "0014000000000027a80700000174876e80000001ff",
            "0015000000000027a80700000174876e80000001",
            "7fff000000000027a80700000174876e80007feb",
            "0014000000000027a80700000174876e8000ffff",
            "8000000000000027a80700000174876e80000000",
        ],
    )
    def test_damage(self, data):
        with pytest.raises(CorruptFileError):
            queue_ext.decode_ext_unit(bytes.fromhex(data))

    def test_limits(self):
        assert queue_ext.fits(20, 24)
        assert not queue_ext.fits(21, 24)
        with pytest.raises(UsageError):
            queue_ext.encode_ext_unit(queue_ext.ExtUnit(0, 0, bytes(32748)))
        with pytest.raises(UsageError):
            queue_ext.encode_ext_unit(queue_ext.ExtUnit(2**63, 0, b""))
        with pytest.raises(UsageError):
            queue_ext.decode_ext_unit(b"", 1)

    @given(st.builds(queue_ext.ExtUnit, I64, I64, st.binary(max_size=100)), st.binary(max_size=9))
    def test_round_trip(self, unit, rest):
        data = queue_ext.encode_ext_unit(unit)
        assert len(data) == unit.size_bytes
        assert queue_ext.decode_ext_unit(data + rest) == unit
