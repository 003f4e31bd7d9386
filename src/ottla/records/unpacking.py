"""PURE. The four codecs chunk by chunk: what is held at a time is bounded, whatever a batch unpacks to.

`unpacked` yields what a batch's records unpack to in chunks of at most `CHUNK_BYTES` (snappy: a block, which unpacks to
at most 22 times its size). A `Packer` takes chunks and gives the codec's form, which is `compress`'s.

Accepted is what Kafka's Java clients read, for they would stop where it is anything else: lz4 as one frame of
independent blocks; gzip and zstd as one or several; snappy as in `ottla.records.compression`.
"""

import zlib
from collections.abc import Iterator
from struct import error
from typing import Any, Final

from ottla.errors import CorruptMessage, MessageTooLarge
from ottla.records.batch import Buffer, Compression
from ottla.records.compression import (
    INT32_BE,
    LZ4_BLOCK_BYTES,
    LZ4_HEADER,
    LZ4_MAGIC,
    UINT32_LE,
    XERIAL_BLOCK_BYTES,
    XERIAL_HEADER,
    XERIAL_MAGIC,
    lz4_block,
    snappy_block,
)

CHUNK_BYTES: Final = 64 * 1024
MAX_UNPACKED_BYTES: Final = 256 << 20
"""What a batch may unpack to at most: a bomb is refused before it has cost a second."""
_INPUT_BYTES: Final = 16 * 1024
_MAX_FRAMES: Final = 1024
"""Frames without contents cost time and yield nothing; no producer sends many."""
_SNAPPY_RATIO: Final = 22
"""Three bytes stand for 64 at most."""
_LZ4_INDEPENDENT_BLOCKS: Final = 0x20
_ZSTD_LEVEL: Final = 3
_MOST_IDLE: Final = 4
_idle_zstd: Final[list[Any]] = []
"""Compressors between two batches: to set up a new one takes as long as to compress 20 KB. Only those of
the default level are kept: at the highest levels one holds hundreds of megabytes."""


def unpacked(codec: Compression, payload: Buffer, max_bytes: int = MAX_UNPACKED_BYTES) -> Iterator[Buffer]:
    """What `payload` unpacks to, in chunks, some of which may be empty.

    Raises CorruptMessage when it is malformed, ends early or has bytes left, MessageTooLarge when it comes to more than
    `max_bytes`: producers split such a batch.
    """
    view = memoryview(payload).cast("B")
    chunks = _UNPACKED[codec](view)
    room = max_bytes
    for chunk in chunks:
        room -= len(chunk)
        if room < 0:
            raise MessageTooLarge(
                f"records compressed with {codec.name.lower()} exceed {max_bytes} bytes when unpacked"
            )
        yield chunk


def _plain(view: memoryview) -> Iterator[Buffer]:
    for start in range(0, view.nbytes, CHUNK_BYTES):
        yield view[start : start + CHUNK_BYTES]


def _gzip(view: memoryview) -> Iterator[Buffer]:
    try:
        yield from _members(view, lambda: _GzipMember(), "gzip", _MAX_FRAMES)
    except zlib.error as problem:
        raise CorruptMessage(f"records compressed with gzip cannot be unpacked: {problem}") from problem


class _GzipMember:
    """zlib's decompressor with the interface of those of zstd and lz4."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(wbits=31)

    def decompress(self, data: Buffer, max_length: int) -> bytes:
        return self._member.decompress(self._member.unconsumed_tail or data, max_length)

    @property
    def needs_input(self) -> bool:
        return not self._member.unconsumed_tail

    @property
    def eof(self) -> bool:
        return self._member.eof

    @property
    def unused_data(self) -> bytes:
        return self._member.unused_data


def _zstd(view: memoryview) -> Iterator[Buffer]:
    zstd = _zstd_module()
    try:
        yield from _members(view, zstd.ZstdDecompressor, "zstd", _MAX_FRAMES)
    except zstd.ZstdError as problem:
        raise CorruptMessage(f"records compressed with zstd cannot be unpacked: {problem}") from problem


def _zstd_module() -> Any:
    try:
        from compression import zstd  # type: ignore[import-not-found, unused-ignore] # of Python 3.14
    except ImportError:
        from backports import zstd
    return zstd


def _lz4(view: memoryview) -> Iterator[Buffer]:
    import lz4.frame

    if view.nbytes > 4 and bytes(view[:4]) == LZ4_MAGIC and not view[4] & _LZ4_INDEPENDENT_BLOCKS:
        raise CorruptMessage("records compressed with lz4 are of blocks that depend on each other")
    try:
        yield from _members(view, lz4.frame.LZ4FrameDecompressor, "lz4", 1)
    except RuntimeError as problem:
        raise CorruptMessage(f"records compressed with lz4 cannot be unpacked: {problem}") from problem


def _members(view: memoryview, decompressor: Any, codec: str, max_members: int) -> Iterator[Buffer]:
    """What one or several frames unpack to. The input is handed over in small pieces, as the rest of each is copied."""
    position = 0
    for _ in range(max_members):
        member = decompressor()
        while not member.eof:
            piece: Buffer = b""
            if member.needs_input:
                piece = view[position : position + _INPUT_BYTES]
                if not piece:
                    raise CorruptMessage(f"records compressed with {codec} end too early")
                position += len(piece)
            yield member.decompress(piece, CHUNK_BYTES)
        position -= len(member.unused_data or b"")
        if position == view.nbytes:
            return
    raise CorruptMessage(f"records compressed with {codec} have bytes left after their end")


def _snappy(view: memoryview) -> Iterator[Buffer]:
    if bytes(view[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
        yield snappy_block(view, _SNAPPY_RATIO * view.nbytes)
        return
    if view.nbytes < len(XERIAL_HEADER):
        raise CorruptMessage("records compressed with snappy end within their framing")
    position = len(XERIAL_HEADER)
    while position < view.nbytes:
        try:
            (length,) = INT32_BE.unpack_from(view, position)
        except error:
            raise CorruptMessage("records compressed with snappy end within a block's length") from None
        position += INT32_BE.size
        if length < 0 or position + length > view.nbytes:
            raise CorruptMessage(f"a snappy block of {length} bytes does not fit its batch")
        yield snappy_block(view[position : position + length], _SNAPPY_RATIO * length)
        position += length


_UNPACKED: Final = {
    Compression.NONE: _plain,
    Compression.GZIP: _gzip,
    Compression.SNAPPY: _snappy,
    Compression.LZ4: _lz4,
    Compression.ZSTD: _zstd,
}


class Packer:
    """Compresses chunks one after the other, to at most `max_bytes`; `level` as in Kafka's compression.*.level."""

    def __init__(self, codec: Compression, level: int | None, max_bytes: int) -> None:
        self._codec = codec
        self._level = level
        self._max_bytes = max_bytes
        self._out = bytearray()
        self._rest = bytearray()
        self._block_bytes = 0
        self._stream: Any = None
        match codec:
            case Compression.GZIP:
                self._stream = zlib.compressobj(-1 if level is None else level, wbits=31)
            case Compression.ZSTD:
                self._stream = _zstd_compressor(_ZSTD_LEVEL if level is None else level)
            case Compression.LZ4:
                self._out += LZ4_HEADER
                self._block_bytes = LZ4_BLOCK_BYTES
            case Compression.SNAPPY:
                self._out += XERIAL_HEADER
                self._block_bytes = XERIAL_BLOCK_BYTES

    def feed(self, chunk: Buffer) -> None:
        """Compress the next chunk. Raises MessageTooLarge when that makes too much of it."""
        if self._stream is not None:
            self._add(self._stream.compress(chunk))
        elif not self._block_bytes:
            self._add(chunk)
        else:
            self._rest += chunk
            whole = len(self._rest) - len(self._rest) % self._block_bytes
            self._add_blocks(whole)
            del self._rest[:whole]

    def finish(self) -> bytearray:
        """All that was fed, compressed. Raises MessageTooLarge."""
        if self._stream is not None:
            self._add(self._stream.flush())
            if self._codec is Compression.ZSTD and self._level in (None, _ZSTD_LEVEL) and len(_idle_zstd) < _MOST_IDLE:
                _idle_zstd.append(self._stream)  # its frame has ended
            self._stream = None
        self._add_blocks(len(self._rest))
        if self._codec is Compression.LZ4:
            self._add(UINT32_LE.pack(0))
        return self._out

    def _add_blocks(self, end: int) -> None:
        with memoryview(self._rest) as rest:
            for start in range(0, end, self._block_bytes or 1):
                with rest[start : min(start + self._block_bytes, end)] as block:
                    self._add(lz4_block(block, self._level) if self._codec is Compression.LZ4 else _xerial_block(block))

    def _add(self, piece: Buffer) -> None:
        self._out += piece
        if len(self._out) > self._max_bytes:
            raise MessageTooLarge(
                f"a batch of more than {self._max_bytes} bytes after compression with {self._codec.name.lower()} "
                "exceeds max.message.bytes"
            )


def _zstd_compressor(level: int) -> Any:
    """A compressor at the beginning of a frame. One whose batch is refused midway is not used again."""
    try:
        if level == _ZSTD_LEVEL:
            return _idle_zstd.pop()
    except IndexError:
        pass
    return _zstd_module().ZstdCompressor(level)


def _xerial_block(plain: memoryview) -> bytes:
    import cramjam

    block = bytes(cramjam.snappy.compress_raw(plain))
    return INT32_BE.pack(len(block)) + block
