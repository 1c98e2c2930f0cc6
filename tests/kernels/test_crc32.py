from __future__ import annotations

import random
import re
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mqstore.kernels
from mqstore.kernels.pure.crc import PartialSums

DATA = random.Random(1).randbytes(70_000)


def test_every_length_and_alignment_equals_zlib(native: Any) -> None:
    ways = native.crc32_ways()
    assert "table" in ways
    for way, crc32 in ways.items():
        for start in range(17):
            for size in [*range(700), 4095, 4096, 65535 - start]:
                part = memoryview(DATA)[start : start + size]
                assert crc32(part, size) == zlib.crc32(part, size), (way, start, size)


def test_the_function_equals_zlib(kernels: Any) -> None:
    for size in (0, 1, 15, 16, 17, 1024, 65536, 70_000):
        for value in (0, 1, 0xFFFFFFFF, -1):
            assert kernels.crc32(DATA[:size], value) == zlib.crc32(DATA[:size], value)


def test_it_continues_over_parts(kernels: Any) -> None:
    value = 0
    for start in range(0, len(DATA), 997):
        value = kernels.crc32(memoryview(DATA)[start : start + 997], value)
    assert value == zlib.crc32(DATA)


@pytest.mark.parametrize("data", [b"", bytearray(b"abc"), memoryview(b"123456789")])
def test_any_buffer_is_taken(kernels: Any, data: Any) -> None:
    assert kernels.crc32(data) == zlib.crc32(data)


def test_what_is_no_buffer_is_refused(kernels: Any) -> None:
    with pytest.raises(TypeError):
        kernels.crc32("text")


@given(st.integers(0, 9000), st.integers(0, 40_000), st.integers(0, 30_000))
def test_sums_of_parts(start: int, begin: int, size: int) -> None:
    begin += start
    sums = PartialSums(memoryview(DATA), start)
    end = min(begin + size, len(DATA))
    assert sums.crc32(begin, end) == zlib.crc32(DATA[begin:end])


def test_the_folding_constants_follow_from_the_polynomial() -> None:
    header = (Path(mqstore.kernels.__file__).parent / "crc32.h").read_text()
    constants = re.findall(r"#define MQ_CRC_X(\d+) 0x([0-9A-F]+)ll", header)
    assert len(constants) == 8
    for power, value in constants:
        remainder = 1
        for _ in range(int(power)):
            remainder <<= 1
            if remainder >> 32:
                remainder ^= 0x104C11DB7
        assert int(f"{remainder:032b}"[::-1], 2) << 1 == int(value, 16), power
