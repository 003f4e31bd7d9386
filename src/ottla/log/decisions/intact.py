"""PURE: which of the batches that were read are intact, and may follow each other."""

from struct import Struct
from typing import Final

from ottla.records.batch import (
    CHECKED_FROM,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC_V2,
    Buffer,
    last_batch,
    read_header,
)
from ottla.records.checksum import crc32c

WALK: Final = Struct(">qiibIhi")
"""The first 27 bytes of a header: enough to step from batch to batch."""


def intact_prefix(data: Buffer) -> tuple[int, str]:
    """How many bytes of `data`, from the start of one, are intact batches; and what is wrong behind them."""
    view = memoryview(data)
    at, size = 0, len(data)
    problem = ""
    expected = before = 0
    gap = False
    """Whether offsets are missing before the batch at `before`: it may be one whose base offset, which is outside its
    CRC, has been damaged. The batch after it decides."""
    while at < size:
        if size - at < HEADER_SIZE:
            problem = "the file ends within a batch header"
            break
        base, length, _, magic, crc, _, delta = WALK.unpack_from(view, at)
        end = at + length + LENGTH_OVERHEAD
        if magic != MAGIC_V2 or end > size or length < HEADER_SIZE - LENGTH_OVERHEAD:
            problem = f"it claims magic {magic} and {length} bytes"
            break
        found = crc32c(view[at + CHECKED_FROM : end])
        if found != crc:
            problem = f"its CRC is {found:08x}, it was written with {crc:08x}"
            break
        if at and base < expected:
            problem = f"it begins at offset {base}, after {expected - 1}"
            break
        gap = at > 0 and base > expected
        expected = base + delta + 1
        before, at = at, end
    return (before if gap else at), problem  # what lies behind a gap is to be read on its own, when it is looked for


def follows(data: Buffer, before: Buffer) -> bool:
    """Whether batches may follow those before: as in `intact_prefix`, the first one behind a gap does only if the one
    behind it vouches for its base offset."""
    first, expected = read_header(data), read_header(before, last_batch(before)).next_offset
    return first.base_offset == expected or (first.base_offset > expected and first.size_bytes < len(data))
