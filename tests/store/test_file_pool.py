"""Many files read with few descriptors: the pool closes what has not been used for longest, and nothing in use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mqstore.errors import StoreIOError
from mqstore.files.mapped_file import MappedFile
from mqstore.files.pool import FilePool
from mqstore.layout.buffers import Buffer


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    found = [tmp_path / str(number) for number in range(6)]
    for path in found:
        path.write_bytes(path.name.encode() * 10)
    return found


def open_files(directory: Path) -> list[str]:
    links = [os.path.realpath(f"/dev/fd/{fd}") for fd in os.listdir("/dev/fd")]
    return sorted(os.path.basename(link) for link in links if os.path.dirname(link) == str(directory))


def test_the_idle_file_that_was_used_first_is_closed(tmp_path: Path, paths: list[Path]) -> None:
    pool = FilePool(2)
    for path in (*paths[:3], paths[1], *paths[3:5]):
        assert pool.read(path, 0, 3) == path.name.encode() * 3
    assert open_files(tmp_path) == ["3", "4"]
    pool.read(paths[3], 0, 1)
    pool.read(paths[5], 0, 1)
    assert open_files(tmp_path) == ["3", "5"]
    pool.close()
    assert open_files(tmp_path) == []


def test_files_in_use_stay_open(tmp_path: Path, paths: list[Path]) -> None:
    pool = FilePool(1)
    with pool.descriptor(paths[0]) as first, pool.descriptor(paths[1]) as second:
        for path in paths[2:]:
            assert pool.read(path, 0, 1) == path.name.encode()
            assert open_files(tmp_path) == sorted(["0", "1", path.name])
        assert (os.pread(first, 1, 0), os.pread(second, 1, 0)) == (b"0", b"1")
    pool.read(paths[2], 0, 1)
    assert open_files(tmp_path) == ["2"]
    pool.close()


def test_a_map_is_used_while_it_is_lent(tmp_path: Path) -> None:
    pool = FilePool()
    file = MappedFile(tmp_path / "0", 8192, create=True)
    file.buffer[:3] = b"abc"

    def take(data: Buffer) -> bytes:
        return bytes(data[:3])

    assert pool.in_map(file.path, 4096, take) is None
    pool.lend(file)
    assert pool.in_map(file.path, 4096, take) == b"abc"
    assert pool.in_map(file.path, 4097, take) is None  # no room was made sure of there yet,
    assert pool.in_map(file.path, 10, len) == 4096  # and nobody gets to see what lies there
    pool.take_back(file)
    assert pool.in_map(file.path, 4096, take) is None
    pool.lend(file)
    file.close()
    assert pool.in_map(file.path, 4096, take) is None
    pool.close()


def test_a_map_outlives_its_owner_while_a_reader_is_inside(tmp_path: Path) -> None:
    file = MappedFile(tmp_path / "0", 4096, create=True)
    file.buffer[:3] = b"abc"
    with memoryview(file.buffer) as inside:
        file.close()
        assert bytes(inside[:3]) == b"abc"
    del file
    assert open_files(tmp_path) == []


def test_parts_of_a_file_one_behind_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "0"
    path.write_bytes(bytes(range(100)))
    pool = FilePool()
    target = bytearray(12)
    parts = [(90, 3), (5, 4), (90, 3), (98, 2)]
    assert pool.read_parts(path, parts, memoryview(target)) == [3, 4, 3, 2]
    assert bytes(target) == bytes([90, 91, 92, 5, 6, 7, 8, 90, 91, 92, 98, 99])
    target = bytearray(b"-" * 12)
    assert pool.read_parts(path, [(98, 4), (100, 2), (200, 2), (1, 2)], memoryview(target)) == [2, 0, 0, 2]
    assert bytes(target) == b"bc------\1\2--".replace(b"b", b"\x62").replace(b"c", b"\x63")
    # The system may give less than was asked for.
    real = os.preadv
    monkeypatch.setattr(os, "preadv", lambda fd, buffers, position: real(fd, [buffers[0][:2]], position))
    target = bytearray(5)
    assert pool.read_parts(path, [(10, 5)], memoryview(target)) == [5]
    assert bytes(target) == bytes([10, 11, 12, 13, 14])
    with pytest.raises(StoreIOError):
        pool.read_parts(tmp_path / "none", [(0, 1)], memoryview(target))
    with pytest.raises(StoreIOError):
        pool.read_parts(tmp_path, [(0, 1)], memoryview(target))
    pool.close()
