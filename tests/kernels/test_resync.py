from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Any

import pytest

from kernels.support import BASE, V6, expected_records, log_files, make_log, message
from mqstore.layout import constants as c
from mqstore.layout.record import encode_record


@pytest.mark.parametrize("name", ["basic", "v5-basic"])
def test_from_any_byte_to_the_next_record(kernels: Any, golden: Path, name: str) -> None:
    starts = [record["commitLogOffset"] for record in expected_records(golden / name)]
    for base, log in log_files(golden / name):
        here = [start - base for start in starts if base <= start < base + len(log)]
        for previous, start in zip([-1, *here[:40]], here[:40], strict=False):
            for position in {previous + 1, (previous + start) // 2 + 1, start - 1, start} - {-1}:
                assert kernels.resync(log, position, len(log), base) == start
        assert kernels.resync(log, here[-1] + 1, len(log), base) == -1


def test_every_position_of_a_small_log(kernels: Any) -> None:
    records = [message(), message(born_host=V6), message(magic=c.MAGIC_V2, topic=b"t" * 200)]
    log = make_log(*records)
    starts = [0, len(make_log(records[0])), len(make_log(*records[:2]))]
    for position in range(len(log) + 1):
        expected = min((start for start in starts if start >= position), default=-1)
        assert kernels.resync(log, position, len(log), BASE) == expected


def test_forged_headers_in_bodies_are_passed_over(kernels: Any) -> None:
    """A body that holds whole records which claim the very place where they lie, but are not quite valid."""
    body_start = 88
    forged = bytearray()
    for number in range(60):
        place = BASE + body_start + len(forged)
        fake = bytearray(make_log(message(), base=place))
        fake[(5, 8, 84, 93, 104, 109)[number % 6]] ^= 0x21
        forged += fake + b"\xda\xa3\x20\xa7" * (number % 3)
    outer = message(body=bytes(forged), queue_offset=1)
    log = make_log(outer, message(queue_offset=2))
    behind = len(make_log(outer))
    assert forged.count(b"\xda\xa3\x20\xa7") == 50 + 60
    for position in range(1, behind, 13):
        assert kernels.resync(log, position, len(log), BASE) == behind
    assert kernels.resync(log, 0, len(log), BASE) == 0


def test_copies_of_records_from_elsewhere_are_passed_over(kernels: Any) -> None:
    copies = make_log(*[message(queue_offset=number) for number in range(5)], base=0)
    outer = message(body=copies)
    log = make_log(outer, message())
    assert kernels.resync(log, 1, len(log), BASE) == len(make_log(outer))


def test_a_record_past_the_end_needs_its_head(kernels: Any) -> None:
    log = b"x" * 10 + make_log(message(), base=BASE + 10)
    assert kernels.resync(log, 0, 10 + 36, BASE) == 10
    assert kernels.resync(log, 0, 10 + 35, BASE) == -1
    assert kernels.resync(log, 0, 10 + 36, BASE + 1) == -1
    struct.pack_into(">i", changed := bytearray(log), 10, 2**31 - 1)
    assert kernels.resync(changed, 0, len(changed), BASE) == 10
    struct.pack_into(">i", changed, 10, 90)
    assert kernels.resync(changed, 0, len(changed), BASE) == -1


def nested_forgeries(size: int, step: int) -> bytes:
    """One body of ``size`` bytes full of headers, each of which claims a record that reaches up to the common end.

    Lengths, own offsets and checksums of all of them are right; only the properties at the end are damaged. Reading
    every such body for its checksum would take time that grows with the square of the size.
    """
    tail = b"\x01T" + struct.pack(">h", 3) + b"xyz"
    log = bytearray(size) + tail
    for place in range((size - 200) // step * step, -1, -step):
        record = encode_record(
            **message(body=bytes(log[place + 88 : size]), topic=b"T", properties=b""), physical_offset=BASE + place
        )
        log[place : place + 88] = record[:88]
        struct.pack_into(">i", log, place, len(log) - place)
    return bytes(log)


def test_nested_forgeries_cost_no_more_than_their_bytes(native: Any, pure: Any) -> None:
    log = nested_forgeries(1 << 18, 1024)
    for place in range(0, (1 << 18) - 200, 1024):
        size = struct.unpack_from(">i", log, place)[0]
        crc = zlib.crc32(log[place + 88 : place + size - 7]) & 0x7FFFFFFF
        assert (place + size, crc) == (len(log), struct.unpack_from(">i", log, place + 8)[0])
    behind = make_log(message(), base=BASE + len(log))
    for kernels in (native, pure):
        assert kernels.resync(log, 0, len(log), BASE) == -1
        assert kernels.resync(log + behind, 0, len(log + behind), BASE) == len(log)


def test_large_bodies_are_checked(kernels: Any) -> None:
    """Bodies beyond the size up to which the checksum is taken directly."""
    large = message(body=bytes(range(256)) * 300)
    log = b"\xda\xa3" * 300 + make_log(large, base=BASE + 600)
    assert kernels.resync(log, 0, len(log), BASE) == 600
    damaged = bytearray(log)
    damaged[50_000] ^= 1
    assert kernels.resync(damaged, 0, len(log), BASE) == -1
    assert kernels.resync(damaged, 0, len(log) - 1, BASE) == 600


def test_nothing_but_first_bytes_of_magic_codes(kernels: Any) -> None:
    assert kernels.resync(b"\xda" * 100_000, 0, 100_000, 0) == -1
    assert kernels.resync(b"\xda\xa3\x20" * 30_000, 0, 90_000, 0) == -1


def test_the_empty_range(kernels: Any) -> None:
    assert kernels.resync(b"", 0, 0, 0) == -1
    assert kernels.resync(make_log(message()), 30, 30, BASE) == -1
