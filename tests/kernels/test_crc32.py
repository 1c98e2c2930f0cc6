from __future__ import annotations

import importlib
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


@pytest.mark.parametrize(("kind", "polynomial"), [("CRC", 0x104C11DB7), ("CRC32C", 0x11EDC6F41)])
def test_the_folding_constants_follow_from_the_polynomial(kind: str, polynomial: int) -> None:
    header = (Path(mqstore.kernels.__file__).parent / "crc32.h").read_text()
    constants = re.findall(rf"#define MQ_{kind}_X(\d+) 0x([0-9A-F]+)ll", header)
    assert len(constants) == 8
    for power, value in constants:
        remainder = 1
        for _ in range(int(power)):
            remainder <<= 1
            if remainder >> 32:
                remainder ^= polynomial
        assert int(f"{remainder:032b}"[::-1], 2) << 1 == int(value, 16), power


# ---- CRC-32C ---------------------------------------------------------------------------------------------------

# Published: the check value of "123456789", and those for iSCSI of 32 bytes of zeros, of ones, rising and falling.
PUBLISHED = [
    (b"", 0),
    (b"123456789", 0xE3069283),
    (bytes(32), 0x8A9136AA),
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
    (bytes(reversed(range(32))), 0x113FDB5C),
]


@pytest.mark.parametrize(("data", "value"), PUBLISHED)
def test_crc32c_of_published_examples(kernels: Any, native: Any, data: bytes, value: int) -> None:
    assert kernels.crc32c(data) == value
    assert {way(data) for way in native.crc32_ways(castagnoli=True).values()} == {value}


def test_crc32c_is_the_same_in_every_way(native: Any, pure: Any) -> None:
    ways = native.crc32_ways(castagnoli=True)
    assert ways.keys() == native.crc32_ways().keys()
    for start in range(17):
        running = pure.crc32c(DATA[start : start + 300], start)
        for size in [*range(300, 700), 4095, 4096, 9000]:
            part = memoryview(DATA)[start : start + size]
            found = {way(part, start) for way in ways.values()}
            assert len(found) == 1, (start, size)
            if size == 300:
                assert found == {running}
    for size in range(300):
        assert {way(DATA[:size]) for way in ways.values()} == {pure.crc32c(DATA[:size])}


def test_crc32c_continues_over_parts(kernels: Any) -> None:
    value = 0
    for start in range(0, 9970, 997):
        value = kernels.crc32c(memoryview(DATA)[start : start + 997], value)
    assert value == kernels.crc32c(DATA[:9970])


def test_crc32c_equals_another_library(kernels: Any) -> None:
    crc = importlib.import_module("aiokafka.record._crc32c")
    for size in (0, 1, 61, 4096, 5000):
        assert kernels.crc32c(DATA[:size]) == crc.crc(DATA[:size])


@pytest.mark.parametrize("data", [bytearray(b"123456789"), memoryview(b"123456789")])
def test_crc32c_takes_any_buffer_and_nothing_else(kernels: Any, data: Any) -> None:
    assert kernels.crc32c(data, -1) == kernels.crc32c(bytes(data), 0xFFFFFFFF)
    with pytest.raises(TypeError):
        kernels.crc32c("text")
