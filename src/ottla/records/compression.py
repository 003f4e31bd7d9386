"""PURE. The four codecs of record batches: gzip, snappy, lz4, zstd; every output bounded.

gzip is zlib's; the others come from `cramjam`, imported when first needed. Kafka's forms:

- snappy: "xerial" framing (magic ``82 'SNAPPY' 00``, two int32 versions, then int32-prefixed raw blocks), which
  the Java client writes; librdkafka and others send one raw snappy block. Both are read, xerial is written.
- lz4: the frame format with independent blocks, which is all that Kafka's Java reader accepts.
- zstd: one or several frames.
"""

import zlib
from struct import Struct, error
from typing import Any, Final

from ottla.errors import CorruptMessage
from ottla.records.batch import Buffer, Compression

MAX_UNCOMPRESSED_BYTES: Final = 256 << 20
"""The largest decompressed size of a batch unless the caller sets another: larger ones are refused (zip bombs)."""

XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
XERIAL_HEADER: Final = XERIAL_MAGIC + b"\x00\x00\x00\x01" * 2
XERIAL_BLOCK_BYTES: Final = 32 * 1024
INT32_BE: Final = Struct(">i")
UINT32_LE: Final = Struct("<I")

LZ4_BLOCK_BYTES: Final = 64 * 1024
LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
# FLG 0x60: version 1, independent blocks, no checksums; BD 0x40: blocks of 64 KB; 0x82: xxh32 of both, byte 1
LZ4_HEADER: Final = LZ4_MAGIC + b"\x60\x40\x82"
_LZ4_UNCOMPRESSED_BLOCK: Final = 0x8000_0000
_LZ4_FAST_LEVEL: Final = 2
"""Levels above this one mean lz4's high-compression mode."""


def compress(codec: Compression, payload: Buffer, level: int | None = None) -> bytes:
    """`payload` in the codec's form; `level` as in Kafka's compression.*.level, None for the codec's default."""
    match codec:
        case Compression.NONE:
            return bytes(payload)
        case Compression.GZIP:
            return zlib.compress(payload, -1 if level is None else level, wbits=31)
        case Compression.SNAPPY:
            return _compress_snappy(payload)
        case Compression.LZ4:
            return _compress_lz4(payload, level)
        case Compression.ZSTD:
            import cramjam

            return bytes(cramjam.zstd.compress(payload, 3 if level is None else level))


def decompress(codec: Compression, payload: Buffer, max_bytes: int = MAX_UNCOMPRESSED_BYTES) -> bytes | memoryview:
    """The bytes that `compress` was given. Raises CorruptMessage when they are malformed or exceed `max_bytes`."""
    match codec:
        case Compression.NONE:
            return memoryview(payload)
        case Compression.GZIP:
            return _decompress_gzip(payload, max_bytes)
        case Compression.SNAPPY:
            return _decompress_snappy(memoryview(payload).cast("B"), max_bytes)
        case Compression.LZ4:
            import cramjam

            return _decompress_growing(cramjam.lz4.decompress_into, payload, max_bytes, "lz4")
        case Compression.ZSTD:
            import cramjam

            return _decompress_growing(cramjam.zstd.decompress_into, payload, max_bytes, "zstd")


def _too_large(codec: str, max_bytes: int) -> CorruptMessage:
    return CorruptMessage(f"records compressed with {codec} exceed {max_bytes} bytes when unpacked")


def _decompress_gzip(payload: Buffer, max_bytes: int) -> bytes:
    parts: list[bytes] = []
    rest: Buffer = payload
    room = max_bytes
    try:
        while True:
            member = zlib.decompressobj(wbits=31)
            part = member.decompress(rest, room + 1)
            if len(part) > room:
                raise _too_large("gzip", max_bytes)
            parts.append(part)
            room -= len(part)
            if not member.eof:
                raise CorruptMessage("records compressed with gzip end too early")
            rest = member.unused_data
            if not rest:
                return parts[0] if len(parts) == 1 else b"".join(parts)
    except zlib.error as problem:
        raise CorruptMessage(f"records compressed with gzip cannot be unpacked: {problem}") from problem


def _compress_snappy(payload: Buffer) -> bytes:
    import cramjam

    view = memoryview(payload).cast("B")
    parts = [XERIAL_HEADER]
    for start in range(0, view.nbytes, XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + XERIAL_BLOCK_BYTES]))
        parts.append(INT32_BE.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


def _decompress_snappy(view: memoryview, max_bytes: int) -> bytes | memoryview:
    if bytes(view[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
        return snappy_block(view, max_bytes)
    if view.nbytes < len(XERIAL_HEADER):
        raise CorruptMessage("records compressed with snappy end within their framing")
    parts: list[bytes | memoryview] = []
    room = max_bytes
    position = len(XERIAL_HEADER)
    while position < view.nbytes:
        try:
            (length,) = INT32_BE.unpack_from(view, position)
        except error:
            raise CorruptMessage("records compressed with snappy end within a block's length") from None
        position += 4
        if length < 0 or position + length > view.nbytes:
            raise CorruptMessage(f"a snappy block of {length} bytes does not fit its batch")
        part = snappy_block(view[position : position + length], room)
        room -= len(part)
        parts.append(part)
        position += length
    return b"".join(parts)


def snappy_block(block: memoryview, max_bytes: int) -> memoryview:
    """What a raw block unpacks to. Raises CorruptMessage, before anything is allocated for more than `max_bytes`."""
    import cramjam

    try:
        length = cramjam.snappy.decompress_raw_len(block)
        if length > max_bytes:
            raise _too_large("snappy", max_bytes)
        out = bytearray(length)
        written = cramjam.snappy.decompress_raw_into(block, out)
    except cramjam.DecompressionError as problem:
        raise CorruptMessage(f"records compressed with snappy cannot be unpacked: {problem}") from problem
    return memoryview(out)[:written]


def _compress_lz4(payload: Buffer, level: int | None) -> bytes:
    view = memoryview(payload).cast("B")
    blocks = [lz4_block(view[start : start + LZ4_BLOCK_BYTES], level) for start in range(0, len(view), LZ4_BLOCK_BYTES)]
    return b"".join([LZ4_HEADER, *blocks, UINT32_LE.pack(0)])


def lz4_block(plain: memoryview, level: int | None) -> bytes:
    """A block of a frame with its length, compressed unless that makes it longer."""
    import cramjam

    if (level or 0) > _LZ4_FAST_LEVEL:
        packed = cramjam.lz4.compress_block(plain, mode="high_compression", compression=level, store_size=False)
    else:
        packed = cramjam.lz4.compress_block(plain, store_size=False)
    block = bytes(packed)
    if len(block) < plain.nbytes:
        return UINT32_LE.pack(len(block)) + block
    return UINT32_LE.pack(plain.nbytes | _LZ4_UNCOMPRESSED_BLOCK) + bytes(plain)


def _decompress_growing(decompress_into: Any, payload: Buffer, max_bytes: int, codec: str) -> memoryview:
    """Unpacks into a buffer that doubles until it holds all; cramjam's own growing buffer knows no limit."""
    import cramjam

    view = memoryview(payload).cast("B")
    if not view.nbytes:
        raise CorruptMessage(f"records compressed with {codec} are empty")
    size = min(max(view.nbytes * 4, 4096), max_bytes)
    while True:
        out = bytearray(size)
        try:
            return memoryview(out)[: decompress_into(view, out)]
        except cramjam.DecompressionError as problem:
            if "whole buffer" not in str(problem):
                raise CorruptMessage(f"records compressed with {codec} cannot be unpacked: {problem}") from problem
        if size >= max_bytes:
            raise _too_large(codec, max_bytes)
        size = min(size * 4, max_bytes)
