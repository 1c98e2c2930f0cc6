"""What a mapped file keeps in memory."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mqstore.files.mapped_file import MappedFile

MIB = 1 << 20


def resident_file_bytes() -> int:
    status = Path("/proc/self/status").read_text()
    return sum(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith(("RssFile", "RssShmem")))


@pytest.mark.skipif(sys.platform != "linux", reason="asks the Linux kernel what is resident")
def test_pages_that_are_let_go_are_kept_by_the_file_alone(tmp_path: Path) -> None:
    file = MappedFile(tmp_path / "f", 64 * MIB, create=True)
    file.reserve(64 * MIB)
    before = resident_file_bytes()
    for place in range(0, 64 * MIB, 4096):
        file.buffer[place : place + 2] = b"xy"
    assert resident_file_bytes() - before > 60 * MIB
    file.let_go(MIB + 1, 63 * MIB + 1)
    assert resident_file_bytes() - before < 4 * MIB
    assert file.buffer[MIB : MIB + 2] == file.buffer[40 * MIB : 40 * MIB + 2] == b"xy"
    for begin, end in ((5, 4), (1, 4095), (0, 0)):
        file.let_go(begin, end)
    file.sync()
    file.close()
    data = (tmp_path / "f").read_bytes()
    assert [data[place : place + 2] for place in (0, 2 * MIB, 64 * MIB - 4096)] == [b"xy"] * 3
