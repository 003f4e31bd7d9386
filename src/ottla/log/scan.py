"""Walking a `.log` file batch by batch, in bulk: for recovery, inspection and compaction, never for serving reads."""

from collections.abc import Iterator
from struct import unpack_from
from typing import Final

from ottla.errors import CorruptMessage
from ottla.log.fs import File
from ottla.records.batch import CHECKED_FROM, HEADER, HEADER_SIZE, LENGTH_OVERHEAD, MAGIC_AT, MAGIC_V2, BatchHeader
from ottla.records.checksum import crc32c

_HEADER_CHUNK_BYTES: Final = 16 * 1024
_CRC_CHUNK_BYTES: Final = 1 << 20


class InvalidBatch(CorruptMessage):
    """No intact batch lies at `position` of a file."""

    def __init__(self, path: str, position: int, problem: str) -> None:
        super().__init__(f"corrupt batch in {path} at position {position}: {problem}")
        self.position = position
        self.problem = problem


def scan(file: File, path: str, start: int, end: int, *, check_crc: bool) -> Iterator[BatchHeader]:
    """Headers of the batches in [start, end) of the file; `path` is for messages.

    With `check_crc` all bytes are read and checked, otherwise only headers are looked at. Raises InvalidBatch at the
    first batch that is torn, malformed or has a wrong CRC; OSError.
    """
    position = start
    chunk_bytes = _CRC_CHUNK_BYTES if check_crc else _HEADER_CHUNK_BYTES
    unpack = HEADER.unpack_from
    while position < end:
        if end - position < HEADER_SIZE:
            raise InvalidBatch(path, position, f"{end - position} bytes are too few for a header")
        chunk = memoryview(file.read(position, min(chunk_bytes, end - position)))
        at, available = 0, len(chunk)
        if available < HEADER_SIZE:
            raise InvalidBatch(path, position, "the file ends within a header")
        while at + HEADER_SIZE <= available:
            header = BatchHeader(position + at, *unpack(chunk, at))
            length = header.batch_length
            if header.magic != MAGIC_V2 or length < HEADER_SIZE - LENGTH_OVERHEAD or header.last_offset_delta < 0:
                raise InvalidBatch(path, position + at, f"it claims magic {header.magic} and {length} bytes")
            following = at + length + LENGTH_OVERHEAD
            if position + following > end:
                raise InvalidBatch(path, position + at, f"it claims {length} bytes, the file ends before")
            if check_crc:
                if following > available:
                    if at:
                        break
                    chunk = memoryview(file.read(position, following))
                    available = len(chunk)
                    if available < following:
                        raise InvalidBatch(path, position, f"it claims {length} bytes, the file ends before")
                found = crc32c(chunk[at + CHECKED_FROM : following])
                if found != header.crc:
                    raise InvalidBatch(
                        path, position + at, f"its CRC is {found:08x}, it was written with {header.crc:08x}"
                    )
            yield header
            at = following
        position += at


def find_batch(file: File, start: int, end: int, *, min_offset: int) -> BatchHeader | None:
    """The first intact batch of offsets from `min_offset` on that begins in [start, end), at whatever byte; None if
    there is none. For going on behind a damaged header. Raises OSError."""
    position = start
    while end - position >= HEADER_SIZE:
        chunk = bytes(file.read(position, min(_CRC_CHUNK_BYTES, end - position)))
        magic_at = chunk.find(MAGIC_V2, MAGIC_AT)
        while magic_at >= 0:
            at = position + magic_at - MAGIC_AT
            base_offset, length = unpack_from(">qi", chunk, magic_at - MAGIC_AT)
            whole = HEADER_SIZE - LENGTH_OVERHEAD <= length <= end - at - LENGTH_OVERHEAD
            if whole and base_offset >= min_offset:
                batch = memoryview(file.read(at, length + LENGTH_OVERHEAD))
                header = BatchHeader(at, *HEADER.unpack_from(batch))
                if crc32c(batch[CHECKED_FROM:]) == header.crc:
                    return header
            magic_at = chunk.find(MAGIC_V2, magic_at + 1)
        position += max(len(chunk) - MAGIC_AT, 1)
    return None
