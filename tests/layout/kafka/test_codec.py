"""Codecs of batches: what other writers make, what is cut or damaged, and what would become too much."""

from __future__ import annotations

import gzip
import random
import struct
import sys
import tracemalloc
import zlib
from typing import Any

import cramjam
import lz4.block
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from mqstore.errors import UsageError
from mqstore.layout.kafka.codec import (
    InflateError,
    InflateLimitError,
    compress,
    decompress,
    default_limit,
    is_allowed,
)
from mqstore.layout.kafka.constants import Codec
from mqstore.layout.kafka.xxhash32 import xxhash32

CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
TEXT = b"".join(b"line %d of something that repeats\n" % number for number in range(4000))
NOISE = random.Random(5).randbytes(100_000)
XERIAL = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)


def cases() -> list[tuple[Codec, int]]:
    return [(codec, magic) for magic in (0, 1, 2) for codec in CODECS if is_allowed(codec, magic)]


@pytest.mark.parametrize(("codec", "magic"), cases())
@pytest.mark.parametrize("data", [b"", b"a", TEXT, NOISE, bytes(70_000)], ids=["none", "one", "text", "noise", "zeros"])
def test_what_goes_in_comes_out(codec: Codec, magic: int, data: bytes) -> None:
    packed = compress(codec, data, magic=magic)
    assert decompress(codec, packed, magic=magic) == data
    assert decompress(codec, memoryview(packed), magic=magic, limit_bytes=len(data)) == data
    if data:
        with pytest.raises(InflateLimitError):
            decompress(codec, packed, magic=magic, limit_bytes=len(data) - 1)


@given(st.sampled_from(cases()), st.binary(max_size=3000))
def test_any_bytes_round_trip(case: tuple[Codec, int], data: bytes) -> None:
    codec, magic = case
    assert decompress(codec, compress(codec, data, magic=magic), magic=magic, limit_bytes=len(data)) == data


def test_no_codec_changes_nothing() -> None:
    assert compress(Codec.NONE, memoryview(b"abc")) == decompress(Codec.NONE, bytearray(b"abc")) == b"abc"
    with pytest.raises(InflateLimitError):
        decompress(Codec.NONE, b"abc", limit_bytes=2)


@pytest.mark.parametrize(("codec", "magic"), cases())
@pytest.mark.parametrize("data", [b"a", TEXT[:3000]], ids=["one", "text"])
def test_every_truncation_is_found(codec: Codec, magic: int, data: bytes) -> None:
    packed = compress(codec, data, magic=magic)
    for end in range(len(packed)):
        # A framed snappy stream has no end of its own: whole blocks are a stream.
        if codec is Codec.SNAPPY and end == len(XERIAL):
            assert decompress(codec, packed[:end], magic=magic) == b""
            continue
        with pytest.raises(InflateError):
            pytest.fail(f"cut at {end}: {decompress(codec, packed[:end], magic=magic)!r}")


@pytest.mark.parametrize(("codec", "magic"), cases())
def test_what_follows_is_found(codec: Codec, magic: int) -> None:
    packed = compress(codec, TEXT, magic=magic)
    for more in (b"\0", b"more"):
        with pytest.raises(InflateError):
            decompress(codec, packed + more, magic=magic)
    if codec not in (Codec.GZIP, Codec.SNAPPY):
        with pytest.raises(InflateError, match="follows"):
            decompress(codec, packed + packed, magic=magic)


@pytest.mark.parametrize(("codec", "magic"), cases())
def test_flipped_bits_never_do_worse_than_an_error(codec: Codec, magic: int) -> None:
    packed = compress(codec, TEXT[:2000], magic=magic)
    for bit in range(8 * len(packed)):
        changed = bytearray(packed)
        changed[bit >> 3] ^= 1 << (bit & 7)
        try:
            assert len(decompress(codec, changed, magic=magic, limit_bytes=10_000)) <= 10_000
        except (InflateError, InflateLimitError):
            continue


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("data", [b"", b"\1", b"x" * 40, b"\xff" * 40, NOISE[:500]])
def test_what_is_no_such_data(codec: Codec, data: bytes) -> None:
    with pytest.raises(InflateError):
        pytest.fail(f"{decompress(codec, data)!r}")


# ---- what others write -----------------------------------------------------------------------------------------


def test_several_gzip_members() -> None:
    assert decompress(Codec.GZIP, gzip.compress(b"one ") + gzip.compress(b"two")) == b"one two"
    with pytest.raises(InflateLimitError):
        decompress(Codec.GZIP, gzip.compress(b"one ") + gzip.compress(b"two"), limit_bytes=6)
    with pytest.raises(InflateError):
        decompress(Codec.GZIP, zlib.compress(b"another wrapping"))


def test_one_bare_snappy_block() -> None:
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT))) == TEXT


def test_framed_snappy_has_blocks_of_32_kib() -> None:
    packed = compress(Codec.SNAPPY, TEXT)
    assert packed.startswith(XERIAL)
    position, sizes = len(XERIAL), []
    while position < len(packed):
        (size,) = struct.unpack_from(">i", packed, position)
        sizes.append(len(bytes(cramjam.snappy.decompress_raw(packed[position + 4 : position + 4 + size]))))
        position += 4 + size
    assert sizes == [32768] * (len(TEXT) // 32768) + [len(TEXT) % 32768]


@pytest.mark.parametrize("size", [0, -1, 2**31 - 1, -(2**31), 7])
def test_framed_snappy_with_odd_lengths(size: int) -> None:
    block = bytes(cramjam.snappy.compress_raw(b"abc"))
    with pytest.raises(InflateError):
        decompress(Codec.SNAPPY, XERIAL + struct.pack(">i", size) + block)


def test_lz4_frames_are_those_of_the_format() -> None:
    frame = compress(Codec.LZ4, TEXT)
    told = lz4.frame.get_frame_info(frame)
    assert (told["block_size"], told["block_linked"], told["content_checksum"], told["block_checksum"]) == (
        65536, False, False, False,
    )  # fmt: skip
    assert told["content_size"] == 0
    assert lz4.frame.decompress(frame) == TEXT


def test_lz4_of_the_oldest_format_has_a_wrong_header_checksum() -> None:
    right, wrong = compress(Codec.LZ4, TEXT), compress(Codec.LZ4, TEXT, magic=0)
    assert [place for place in range(len(right)) if right[place] != wrong[place]] == [6]
    assert right[6] == xxhash32(right[4:6]) >> 8 & 0xFF
    assert wrong[6] == xxhash32(right[:6]) >> 8 & 0xFF
    with pytest.raises(RuntimeError):
        lz4.frame.decompress(wrong)
    with pytest.raises(InflateError):
        decompress(Codec.LZ4, wrong, magic=1)
    assert decompress(Codec.LZ4, wrong, magic=0) == decompress(Codec.LZ4, right, magic=0) == TEXT


def test_lz4_with_its_size_and_linked_blocks() -> None:
    frame = lz4.frame.compress(TEXT, store_size=True, block_linked=True, content_checksum=True)
    for magic in (0, 1, 2):
        assert decompress(Codec.LZ4, frame, magic=magic) == TEXT


def test_zstd_with_and_without_its_size() -> None:
    for has_size in (True, False):
        frame = zstandard.ZstdCompressor(write_content_size=has_size, write_checksum=True).compress(TEXT)
        assert decompress(Codec.ZSTD, frame) == TEXT
        with pytest.raises(InflateLimitError):
            decompress(Codec.ZSTD, frame, limit_bytes=len(TEXT) - 1)
    assert zstandard.get_frame_parameters(compress(Codec.ZSTD, TEXT)).content_size == zstandard.CONTENTSIZE_UNKNOWN


def test_zstd_that_claims_to_be_empty_or_immense() -> None:
    frame = bytearray(zstandard.ZstdCompressor(write_content_size=True).compress(b"x" * 300))
    assert frame[4] >> 6 == 1  # the size takes two bytes, of size - 256
    wide = bytes([*frame[:4], frame[4] | 0xC0]) + struct.pack("<Q", 1 << 60) + bytes(frame[7:])
    assert zstandard.get_frame_parameters(wide).content_size == 1 << 60
    with pytest.raises(InflateLimitError):
        decompress(Codec.ZSTD, wide)
    empty = bytes([*frame[:4], frame[4] | 0xC0]) + struct.pack("<Q", 0) + bytes(frame[7:])
    with pytest.raises(InflateError):
        decompress(Codec.ZSTD, empty)


# ---- limits ----------------------------------------------------------------------------------------------------


def bombs() -> dict[str, tuple[Codec, int, bytes]]:
    """A few kilobytes that would become 256 MiB."""
    size = 256 << 20
    member = zlib.compressobj(wbits=31)
    packed = b"".join(member.compress(bytes(1 << 20)) for _ in range(size >> 20)) + member.flush()
    block = bytes(cramjam.snappy.compress_raw(bytes(32768)))
    frame = lz4.frame.LZ4FrameCompressor(block_size=lz4.frame.BLOCKSIZE_MAX4MB)
    whole = frame.begin() + b"".join(frame.compress(bytes(1 << 20)) for _ in range(size >> 20)) + frame.flush()
    stream = zstandard.ZstdCompressor().compressobj()
    thin = b"".join(stream.compress(bytes(1 << 20)) for _ in range(size >> 20)) + stream.flush()
    return {
        "gzip": (Codec.GZIP, 2, packed),
        "snappy": (Codec.SNAPPY, 2, XERIAL + (struct.pack(">i", len(block)) + block) * (size >> 15)),
        "snappy claim": (Codec.SNAPPY, 2, b"\xff\xff\xff\xff\x0f" + bytes(100)),
        "lz4": (Codec.LZ4, 1, whole),
        "zstd": (Codec.ZSTD, 2, thin),
    }


BOMBS = bombs()


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_are_stopped_at_the_limit(name: str) -> None:
    codec, magic, packed = BOMBS[name]
    limit = 1 << 20
    tracemalloc.start()
    try:
        with pytest.raises(InflateLimitError):
            decompress(codec, packed, magic=magic, limit_bytes=limit)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * limit + 3 * len(packed)


def test_the_default_limit_grows_with_what_goes_in() -> None:
    assert default_limit(100) == 16 << 20
    assert default_limit(1 << 20) == 64 << 20
    with pytest.raises(InflateLimitError):
        decompress(Codec.GZIP, BOMBS["gzip"][2])


@pytest.mark.parametrize("codec", [Codec.UNKNOWN_5, Codec.UNKNOWN_6, Codec.UNKNOWN_7])
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_unknown_codecs_are_refused(codec: Codec, magic: int) -> None:
    for call in (compress, decompress):
        with pytest.raises(UsageError, match="does not exist"):
            call(codec, b"", magic=magic)


@pytest.mark.parametrize("magic", [0, 1])
def test_zstd_is_too_young_for_the_old_formats(magic: int) -> None:
    for call in (compress, decompress):
        with pytest.raises(UsageError, match="does not exist"):
            call(Codec.ZSTD, b"", magic=magic)


@pytest.mark.parametrize(
    ("codec", "module"), [(Codec.SNAPPY, "cramjam"), (Codec.LZ4, "lz4.frame"), (Codec.ZSTD, "zstandard")]
)
def test_a_missing_library_is_named(codec: Codec, module: str, monkeypatch: Any) -> None:
    packed = compress(codec, TEXT)
    monkeypatch.setitem(sys.modules, module, None)
    for call, data in ((compress, TEXT), (decompress, packed)):
        with pytest.raises(UsageError, match=module.partition(".")[0]) as caught:
            call(codec, data)
        assert "'.[kafka]'" in (caught.value.hint or "")


@given(st.binary(max_size=15))
def test_the_hash_of_headers_equals_a_librarys(data: bytes) -> None:
    """An lz4 frame's content checksum is this very hash of what is in it."""
    frame = lz4.frame.compress(data, content_checksum=True)
    assert xxhash32(data) == int.from_bytes(frame[-4:], "little")
