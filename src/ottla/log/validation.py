"""What a batch must satisfy before a leader appends it, and the few cases in which its bytes are changed.

Records are opened only if the topic needs it: keys of compacted topics, `message.timestamp.before.max.ms`, and
recompression. In all other cases the header tells enough, and the producer's bytes go to the file as they came.
"""

from struct import pack_into

from crc32c import crc32c

from ottla.config.log import FOREVER_MS, LogConfig, TimestampType
from ottla.errors import CorruptMessage, InvalidRecord, InvalidTimestamp, MessageTooLarge
from ottla.log.producer_state import Origin
from ottla.records.batch import (
    ATTRIBUTES_AT,
    CHECKED_FROM,
    CRC_AT,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_FLAG,
    MAGIC_V2,
    MAX_TIMESTAMP_AT,
    NO_TIMESTAMP,
    BatchHeader,
    Compression,
    check_magic_and_length,
)
from ottla.records.record import decode_records, encode_batch, iter_slices, unpack_records

_COMPRESSION_BY_NAME = {
    "none": Compression.NONE,
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}


def check_batch(records: memoryview, header: BatchHeader, config: LogConfig, origin: Origin, now_ms: int) -> None:
    """Whether the batch at `header.position` in `records` may be appended by the leader of a topic of this `config`.

    Raises CorruptMessage, UnsupportedForMessageFormat, MessageTooLarge, InvalidRecord, InvalidTimestamp.
    """
    if header.magic != MAGIC_V2 or header.batch_length < HEADER_SIZE - LENGTH_OVERHEAD:
        check_magic_and_length(header)
    size = header.batch_length + LENGTH_OVERHEAD
    if size > config.max_message_bytes:
        raise MessageTooLarge(f"a batch of {size} bytes exceeds max.message.bytes, which is {config.max_message_bytes}")
    position = header.position
    if crc32c(records[position + CHECKED_FROM : position + size]) != header.crc:
        raise CorruptMessage(f"the CRC of a batch of {size} bytes is not {header.crc:08x}, with which it was sent")
    attributes = header.attributes
    if attributes & 0x07 > Compression.ZSTD:
        raise InvalidRecord(f"compression id {attributes & 0x07} is not known")
    if origin is Origin.CLIENT:
        count = header.record_count
        if count <= 0 or header.last_offset_delta != count - 1:
            raise InvalidRecord(f"{count} records in a batch of {header.last_offset_delta + 1} offsets")
        if header.is_control:
            raise InvalidRecord("clients may not write control records")
        if header.producer_id >= 0 and header.base_sequence < 0:
            raise InvalidRecord(f"producer {header.producer_id} sent the sequence {header.base_sequence}")
    if config.message_timestamp_type is TimestampType.CREATE_TIME:
        if attributes & LOG_APPEND_TIME_FLAG:
            raise InvalidTimestamp("producers may not mark a batch as stamped with the time of its append")
        latest = header.max_timestamp
        if latest != NO_TIMESTAMP:
            if latest - now_ms > config.message_timestamp_after_max_ms:
                raise InvalidTimestamp(
                    f"timestamp {latest} lies more than {config.message_timestamp_after_max_ms} ms in the future"
                )
            if config.message_timestamp_before_max_ms != FOREVER_MS:
                _check_not_too_old(records, header, now_ms, config.message_timestamp_before_max_ms)
    if config.compact and not header.is_control:
        _check_keys(records, header)


def _check_not_too_old(records: memoryview, header: BatchHeader, now_ms: int, before_max_ms: int) -> None:
    earliest_allowed = now_ms - before_max_ms
    for piece in iter_slices(unpack_records(records, header), header.record_count):
        timestamp = header.base_timestamp + piece.timestamp_delta
        if timestamp < earliest_allowed and timestamp != NO_TIMESTAMP:
            raise InvalidTimestamp(f"timestamp {timestamp} lies more than {before_max_ms} ms in the past")


def _check_keys(records: memoryview, header: BatchHeader) -> None:
    for piece in iter_slices(unpack_records(records, header), header.record_count):
        if piece.key is None:
            raise InvalidRecord("a compacted topic takes no record without a key")


def target_compression(header: BatchHeader, config: LogConfig) -> Compression | None:
    """The codec to rewrite the batch with; None if it may stay as it is."""
    if config.compression_type == "producer" or header.is_control:
        return None
    target = _COMPRESSION_BY_NAME[config.compression_type]
    return None if target == header.attributes & 0x07 else target


def recompress(records: memoryview, header: BatchHeader, target: Compression, config: LogConfig) -> bytearray:
    """The batch again, with its records compressed by `target`. Raises CorruptMessage, MessageTooLarge."""
    level = {
        Compression.GZIP: config.compression_gzip_level,
        Compression.LZ4: config.compression_lz4_level,
        Compression.ZSTD: config.compression_zstd_level,
    }.get(target)
    batch = encode_batch(
        decode_records(records, header),
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        compression=target,
        compression_level=level,
        leader_epoch=header.leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
    )
    if len(batch) > config.max_message_bytes:
        raise MessageTooLarge(
            f"a batch of {len(batch)} bytes after compression with {target.name.lower()} exceeds max.message.bytes, "
            f"which is {config.max_message_bytes}"
        )
    return batch


def stamp_append_time(records: memoryview, header: BatchHeader, now_ms: int) -> None:
    """Marks the batch in place as appended at `now_ms`; its records keep their own times, unseen from now on."""
    position = header.position
    pack_into(">h", records, position + ATTRIBUTES_AT, header.attributes | LOG_APPEND_TIME_FLAG)
    pack_into(">q", records, position + MAX_TIMESTAMP_AT, now_ms)
    pack_into(">I", records, position + CRC_AT, crc32c(records[position + CHECKED_FROM : header.end_position]))


def read_assigned(records: memoryview, position: int) -> BatchHeader:
    """The header at `position`, which is known to be sound."""
    return BatchHeader(position, *HEADER.unpack_from(records, position))
