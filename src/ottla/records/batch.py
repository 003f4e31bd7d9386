"""PURE. Views over the headers of record batches, format 2 (magic 2); never opens the records.

One batch, all integers big-endian (KIP-98, "Message Format")::

     0  base_offset            int64   outside the CRC, written by the leader
     8  batch_length           int32   bytes that follow this field
    12  partition_leader_epoch int32   outside the CRC, written by the leader
    16  magic                  int8    2
    17  crc                    uint32  CRC-32C of everything from byte 21
    21  attributes             int16   0-2 compression, 3 timestamp type, 4 transactional, 5 control,
                                       6 base timestamp holds the delete horizon (KIP-534)
    23  last_offset_delta      int32
    27  base_timestamp         int64   ms
    35  max_timestamp          int64   ms
    43  producer_id            int64   -1: none
    51  producer_epoch         int16
    53  base_sequence          int32
    57  record_count           int32
    61  records
"""

from collections.abc import Iterator
from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from ottla.errors import CorruptMessage, UnsupportedForMessageFormat
from ottla.records.checksum import crc32c

Buffer = bytes | bytearray | memoryview
"""What batches are read from; a memoryview is one of plain bytes."""

HEADER_SIZE: Final = 61
LENGTH_OVERHEAD: Final = 12
"""Bytes of a batch that `batch_length` does not count."""
MAGIC_V2: Final = 2
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
MAX_PRODUCER_EPOCH: Final = 32_767
NO_SEQUENCE: Final = -1
NO_TIMESTAMP: Final = -1
NO_LEADER_EPOCH: Final = -1

COMPRESSION_MASK: Final = 0x07
LOG_APPEND_TIME_FLAG: Final = 0x08
TRANSACTIONAL_FLAG: Final = 0x10
CONTROL_FLAG: Final = 0x20
DELETE_HORIZON_FLAG: Final = 0x40

BASE_OFFSET: Final = Struct(">q")
LENGTH: Final = Struct(">i")
LEADER_EPOCH_AT: Final = 12
MAGIC_AT: Final = 16
CRC: Final = Struct(">I")
CRC_AT: Final = 17
CHECKED_FROM: Final = 21
"""The CRC covers a batch from this byte to its end."""
ATTRIBUTES: Final = Struct(">h")
ATTRIBUTES_AT: Final = 21
MAX_TIMESTAMP: Final = Struct(">q")
MAX_TIMESTAMP_AT: Final = 35
RECORD_COUNT: Final = Struct(">i")
RECORD_COUNT_AT: Final = 57
HEADER: Final = Struct(">qiibIhiqqqhii")


class Compression(IntEnum):
    """Codec ids as they stand in a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class BatchHeader(NamedTuple):
    """The header of one batch, and where in its buffer or file the batch begins (`position`, bytes)."""

    position: int
    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """Size of the whole batch, header included."""
        return self.batch_length + LENGTH_OVERHEAD

    @property
    def end_position(self) -> int:
        return self.position + self.batch_length + LENGTH_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record; wraps from 2^31-1 to 0. -1 without a producer id."""
        if self.base_sequence < 0:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & 0x7FFF_FFFF

    @property
    def compression(self) -> Compression:
        """Codec of the records. Raises CorruptMessage for an id that no codec has."""
        try:
            return Compression(self.attributes & COMPRESSION_MASK)
        except ValueError:
            raise CorruptMessage(f"unknown compression id {self.attributes & COMPRESSION_MASK}") from None

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME_FLAG)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_FLAG)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_FLAG)

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    @property
    def delete_horizon_ms(self) -> int | None:
        """When the tombstones in the batch may go (KIP-534); None if compaction has not set it."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_FLAG else None


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`; of its values, only magic and length are checked.

    Raises CorruptMessage when fewer than 61 bytes are left, the length cannot hold a header or the magic is
    unknown, UnsupportedForMessageFormat for batches of format 0 and 1.
    """
    view = memoryview(buffer)
    if view.nbytes - position < HEADER_SIZE:
        raise CorruptMessage(f"{view.nbytes - position} bytes at {position} are too few for a batch header")
    header = BatchHeader(position, *HEADER.unpack_from(view, position))
    check_magic_and_length(header)
    return header


def last_batch(batches: Buffer) -> int:
    """Where the last whole batch begins; 0 if there is none. Looks at lengths alone: for what has been checked."""
    size = len(batches)
    last = position = 0
    while position + HEADER_SIZE <= size:
        following: int = position + LENGTH_OVERHEAD + LENGTH.unpack_from(batches, position + BASE_OFFSET.size)[0]
        if not position < following <= size:
            break
        last, position = position, following
    return last


def check_magic_and_length(header: BatchHeader) -> None:
    """Raises as `read_header` does."""
    if header.magic != MAGIC_V2:
        if header.magic in (0, 1):
            raise UnsupportedForMessageFormat(
                f"the batch at {header.position} has format {header.magic}; only format 2 is read and written"
            )
        raise CorruptMessage(f"the batch at {header.position} has magic {header.magic}, expected 2")
    if header.batch_length < HEADER_SIZE - LENGTH_OVERHEAD:
        raise CorruptMessage(f"the batch at {header.position} has an illegal length of {header.batch_length}")


def iter_batches(buffer: Buffer, *, allow_partial_end: bool = False) -> Iterator[BatchHeader]:
    """Headers of the batches that lie end to end in `buffer`, without checking CRCs.

    `allow_partial_end` ignores an incomplete last batch, as fetch responses may have one. Raises CorruptMessage
    and UnsupportedForMessageFormat as `read_header` does.
    """
    view = memoryview(buffer)
    size = view.nbytes
    position = 0
    while position < size:
        if size - position < HEADER_SIZE:
            if allow_partial_end:
                return
            raise CorruptMessage(f"{size - position} bytes at {position} are too few for a batch header")
        header = BatchHeader(position, *HEADER.unpack_from(view, position))
        check_magic_and_length(header)
        end = header.end_position
        if end > size:
            if allow_partial_end:
                return
            raise CorruptMessage(
                f"the batch at {position} claims {header.size_bytes} bytes, only {size - position} are there"
            )
        yield header
        position = end


def crc_of(batch: memoryview) -> int:
    """CRC-32C of what a batch's CRC covers; `batch` is exactly one batch."""
    return crc32c(batch[CHECKED_FROM:])


def is_intact(buffer: Buffer, header: BatchHeader) -> bool:
    """Whether the bytes of `header`'s batch in `buffer` still have the CRC that they were sent with."""
    view = memoryview(buffer)
    return crc32c(view[header.position + CHECKED_FROM : header.end_position]) == header.crc


def seal(batch: bytearray | memoryview) -> None:
    """Writes the CRC of one whole batch into its header, in place."""
    CRC.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[CHECKED_FROM:]))
