"""Batches of a coordinator's log that take long to look through: the event loop leaves these to a thread.

A coordinator of Ottla writes small batches, and none that is compressed; a log that genuine brokers have written may
have any (`offsets.topic.compression.codec`).
"""

from typing import Final

from ottla.records.batch import (
    COMPRESSION_MASK,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    BatchHeader,
    Buffer,
    iter_batches,
    read_header,
    seal,
)
from ottla.records.record import unpack_records

LARGE_BYTES: Final = 512 << 10
"""A batch of this size has thousands of records, which take more than ten milliseconds."""


def takes_long(chunk: Buffer, position: int) -> bool:
    """Whether the batch at `position` is compressed, or large."""
    header = read_header(chunk, position)
    return bool(header.attributes & COMPRESSION_MASK) or header.size_bytes > LARGE_BYTES


def has_compressed(chunk: Buffer) -> bool:
    """Whether any batch of the chunk is compressed. Raises CorruptMessage."""
    return any(header.attributes & COMPRESSION_MASK for header in iter_batches(chunk))


def unpacked(chunk: Buffer) -> bytes:
    """The batches of the chunk, uncompressed. Raises CorruptMessage."""
    return b"".join(_unpacked(chunk, header) for header in iter_batches(chunk))


def _unpacked(chunk: Buffer, header: BatchHeader) -> Buffer:
    if not header.attributes & COMPRESSION_MASK:
        return memoryview(chunk)[header.position : header.end_position]
    records = unpack_records(chunk, header)
    batch = bytearray(HEADER_SIZE)
    length = HEADER_SIZE - LENGTH_OVERHEAD + len(records)
    attributes = header.attributes & ~COMPRESSION_MASK
    HEADER.pack_into(batch, 0, *header._replace(batch_length=length, attributes=attributes)[1:])
    batch += records
    seal(batch)
    return batch
