"""Compressing the records of a batch, and inflating them with a bound on the result (docs/format/kafka-batch.md).

gzip is Python's own; the others need the packages of the extra ``kafka``, loaded at their first use.
"""

from __future__ import annotations

import importlib
import struct
import zlib
from typing import Any, Final

from mqstore.errors import UsageError, hint_extra
from mqstore.layout.buffers import Buffer
from mqstore.layout.kafka.constants import MAGIC_V0, MAGIC_V2, Codec
from mqstore.layout.kafka.damage import Damage, damaged
from mqstore.layout.kafka.xxhash32 import xxhash32

LEAST_LIMIT_BYTES: Final = 16 << 20
"""What may always come out of a batch."""
LIMIT_RATIO: Final = 64
"""And so many times the bytes that went in, where that is more."""

_GZIP: Final = 31
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEAD: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_CHUNK_LENGTH: Final = struct.Struct(">i")
_SNAPPY_CHUNK: Final = 32 << 10
_ZSTD_BLOCK_HEAD: Final = 3
_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_CONTENT_SIZE_BIT: Final = 0x08
_LZ4_DICTIONARY_BIT: Final = 0x01


class InflateError(ValueError):
    """The bytes are not what their codec makes."""


class InflateLimitError(ValueError):
    """The result would be larger than the limit."""


def default_limit(size_bytes: int) -> int:
    """How many bytes ``size_bytes`` compressed ones may become: 64 times as many, but always 16 MiB.

    Nothing but its contents tells how large a batch becomes, and a few bytes can be made to become very many.
    """
    return max(LEAST_LIMIT_BYTES, LIMIT_RATIO * size_bytes)


def compress(codec: Codec, data: Buffer, *, magic: int = MAGIC_V2) -> bytes:
    """``data`` as a batch of format ``magic`` holds it. Raises UsageError for a codec that it cannot have, or that is
    not installed.
    """
    if codec is Codec.NONE:
        return bytes(data)
    _check_codec(codec, magic)
    if codec is Codec.GZIP:
        packer = zlib.compressobj(wbits=_GZIP)
        return packer.compress(data) + packer.flush()
    if codec is Codec.SNAPPY:
        return _compress_snappy(data)
    if codec is Codec.LZ4:
        return _compress_lz4(data, magic)
    made: bytes = _library("zstandard").ZstdCompressor(write_content_size=False).compress(data)
    return made


def decompress(codec: Codec, data: Buffer, *, magic: int = MAGIC_V2, limit_bytes: int | None = None) -> bytes:
    """What was compressed, at most ``limit_bytes`` (default: :func:`default_limit`).

    Raises:
        InflateError: the bytes are cut off, damaged, or something follows them.
        InflateLimitError: it would be more than the limit. No more memory than the limit was taken to find out.
        UsageError: an unknown codec, one that format ``magic`` cannot have, or one that is not installed.
    """
    limit = default_limit(len(data)) if limit_bytes is None else limit_bytes
    if codec is Codec.NONE:
        found = bytes(data)
    else:
        _check_codec(codec, magic)
        found = {
            Codec.GZIP: _inflate_gzip,
            Codec.SNAPPY: _inflate_snappy,
            Codec.LZ4: _inflate_lz4_v0 if magic == MAGIC_V0 else _inflate_lz4,
            Codec.ZSTD: _inflate_zstd,
        }[codec](bytes(data), limit)
    if len(found) > limit:
        _too_large(limit)
    return found


def inflate(codec: Codec, data: Buffer, *, position: int, magic: int, limit_bytes: int | None = None) -> bytes:
    """What the compressed ``data`` of the batch at ``position`` becomes.

    Raises CorruptBatchError with the reason CODEC, INFLATE or TOO_LARGE, UsageError when the codec is not installed.
    """
    if not is_allowed(codec, magic):
        damaged(Damage.CODEC, position, f"a codec of format {magic}", f"codec {int(codec)}")
    try:
        return decompress(codec, data, magic=magic, limit_bytes=limit_bytes)
    except InflateLimitError as error:
        damaged(Damage.TOO_LARGE, position, "a smaller batch", error)
    except InflateError as error:
        damaged(Damage.INFLATE, position, f"{codec.name.lower()} data", error)


def is_allowed(codec: Codec, magic: int) -> bool:
    """Whether a batch of format ``magic`` can be compressed so: the old ones never by zstd, none by unknown codecs."""
    return codec <= (Codec.ZSTD if magic == MAGIC_V2 else Codec.LZ4)


def _check_codec(codec: Codec, magic: int) -> None:
    if not is_allowed(codec, magic):
        raise UsageError(f"codec {codec.name.lower()} does not exist in message format {magic}", found=int(codec))


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise UsageError(f"this codec needs the package {package}", hint=hint_extra("kafka", package)) from error


def _too_large(limit: int) -> None:
    raise InflateLimitError(f"more than {limit} bytes come out")


def _inflate_gzip(data: bytes, limit: int) -> bytes:
    """One member or several, as Java reads them."""
    parts: list[bytes] = []
    left = limit
    while data or not parts:
        member = zlib.decompressobj(_GZIP)
        try:
            parts.append(member.decompress(data, left + 1))
        except zlib.error as error:
            raise InflateError(str(error)) from error
        left -= len(parts[-1])
        if left < 0:
            _too_large(limit)
        if not member.eof:
            raise InflateError("the gzip stream is cut off")
        data = member.unused_data
    return b"".join(parts)


def _compress_snappy(data: Buffer) -> bytes:
    """The framing of Java's snappy library: a head, then blocks of 32 KiB with their lengths."""
    pack = _library("cramjam").snappy.compress_raw
    parts = [_XERIAL_HEAD]
    for start in range(0, len(data), _SNAPPY_CHUNK):
        block = bytes(pack(bytes(data[start : start + _SNAPPY_CHUNK])))
        parts += (_CHUNK_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _inflate_snappy(data: bytes, limit: int) -> bytes:
    """With the framing of Java's library, or without: some producers write one bare block."""
    if not data.startswith(_XERIAL_MAGIC):
        return _inflate_snappy_block(data, limit)
    if len(data) < len(_XERIAL_HEAD):
        raise InflateError("the snappy stream is cut off")
    parts = []
    left, position = limit, len(_XERIAL_HEAD)
    while position < len(data):
        if len(data) - position < _CHUNK_LENGTH.size:
            raise InflateError("the snappy stream is cut off")
        (size,) = _CHUNK_LENGTH.unpack_from(data, position)
        position += _CHUNK_LENGTH.size
        if not 0 < size <= len(data) - position:
            raise InflateError(f"a snappy block of {size} bytes where {len(data) - position} are left")
        parts.append(_inflate_snappy_block(data[position : position + size], left))
        left -= len(parts[-1])
        position += size
    return b"".join(parts)


def _inflate_snappy_block(block: bytes, limit: int) -> bytes:
    if _snappy_size(block) > limit:
        _too_large(limit)
    cramjam = _library("cramjam")
    try:
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise InflateError(str(error)) from error


def _snappy_size(block: bytes) -> int:
    """What a block says it becomes: its first bytes, seven bits each, lowest first."""
    size = 0
    for index, byte in enumerate(block[:5]):
        size |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return size
    raise InflateError("a snappy block without a size")


def _compress_lz4(data: Buffer, magic: int) -> bytes:
    frames = _library("lz4.frame")
    frame: bytes = frames.compress(
        data, block_size=frames.BLOCKSIZE_MAX64KB, block_linked=False, content_checksum=False, store_size=False
    )
    return _with_header_checksum(frame, 0) if magic == MAGIC_V0 else frame


def _inflate_lz4_v0(data: bytes, limit: int) -> bytes:
    """The oldest format's checksum of the frame's header is wrong, because it begins with the frame's magic number."""
    return _inflate_lz4(_with_header_checksum(data, len(_LZ4_MAGIC)), limit)


def _with_header_checksum(frame: bytes, checked_from: int) -> bytes:
    """The frame with the checksum of its header taken from byte ``checked_from`` on: 4 is right."""
    flags = frame[4] if len(frame) > 4 else 0
    end = 6 + (8 if flags & _LZ4_CONTENT_SIZE_BIT else 0) + (4 if flags & _LZ4_DICTIONARY_BIT else 0)
    if not frame.startswith(_LZ4_MAGIC) or len(frame) <= end:
        raise InflateError("no lz4 frame")
    return frame[:end] + bytes([xxhash32(frame[checked_from:end]) >> 8 & 0xFF]) + frame[end + 1 :]


def _inflate_lz4(data: bytes, limit: int) -> bytes:
    frame = _library("lz4.frame").LZ4FrameDecompressor()
    try:
        found: bytes = frame.decompress(data, max_length=limit + 1)
    except RuntimeError as error:
        raise InflateError(str(error)) from error
    if len(found) > limit:
        _too_large(limit)
    if not frame.eof or frame.unused_data:
        raise InflateError("the lz4 frame is cut off" if not frame.eof else "something follows the lz4 frame")
    return found


def _inflate_zstd(data: bytes, limit: int) -> bytes:
    """Frames of a stream do not say their size; where one does, it is believed only up to the limit."""
    zstandard = _library("zstandard")
    try:
        told = zstandard.get_frame_parameters(data)
        end = _zstd_frame_end(data, zstandard.frame_header_size(data), told.has_checksum)
        if end != len(data):
            # The library would pass over what follows a frame.
            raise InflateError("the zstd frame is cut off" if end > len(data) else "something follows the zstd frame")
        unknown = (zstandard.CONTENTSIZE_UNKNOWN, zstandard.CONTENTSIZE_ERROR)
        if told.content_size not in unknown and told.content_size > limit:
            _too_large(limit)
        if told.content_size == 0:
            # And it would believe this, whatever the frame has.
            if zstandard.ZstdDecompressor().stream_reader(data).read(1):
                raise InflateError("a zstd frame of no bytes has some")
            return b""
        return bytes(zstandard.ZstdDecompressor().decompress(data, max_output_size=max(limit, 1)))
    except zstandard.ZstdError as error:
        if _gives_more(data, limit):
            _too_large(limit)
        raise InflateError(str(error)) from error


def _zstd_frame_end(data: bytes, position: int, has_checksum: bool) -> int:
    """Where a frame ends: behind the last of its blocks, each of which tells its size in three bytes."""
    is_last = False
    while not is_last:
        head = int.from_bytes(data[position : position + _ZSTD_BLOCK_HEAD], "little")
        is_last = position + _ZSTD_BLOCK_HEAD >= len(data) or bool(head & 1)
        is_run = head >> 1 & 3 == 1
        position += _ZSTD_BLOCK_HEAD + (1 if is_run else head >> 3)
    return position + (4 if has_checksum else 0)


def _gives_more(data: bytes, limit: int) -> bool:
    """Whether a zstd frame, which one cannot tell from a cut one before, gives more than ``limit`` bytes."""
    zstandard = _library("zstandard")
    try:
        return len(zstandard.ZstdDecompressor().stream_reader(data).read(limit + 1)) > limit
    except zstandard.ZstdError:
        return False
