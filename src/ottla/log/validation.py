"""What a batch must satisfy before a leader appends it, and the few cases in which its bytes are changed.

Records are opened only if the topic needs it: keys of compacted topics, `message.timestamp.before.max.ms`, and
recompression. In all other cases the header tells enough, and the producer's bytes go to the file as they came.
"""

from struct import Struct, pack_into
from typing import Final

from ottla.config.log import FOREVER_MS, LogConfig, TimestampType
from ottla.errors import CorruptMessage, InvalidRecord, InvalidTimestamp, MessageTooLarge
from ottla.log.producer_state import Origin
from ottla.records.batch import (
    ATTRIBUTES_AT,
    CHECKED_FROM,
    CRC_AT,
    HEADER,
    HEADER_SIZE,
    LEADER_EPOCH_AT,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_FLAG,
    MAGIC_V2,
    MAX_TIMESTAMP_AT,
    NO_TIMESTAMP,
    BatchHeader,
    Compression,
    check_magic_and_length,
)
from ottla.records.checksum import crc32c
from ottla.records.record import decode_records, encode_batch, iter_slices, unpack_records

_pack_offset: Final = Struct(">q").pack_into
_pack_epoch: Final = Struct(">i").pack_into

_COMPRESSION_BY_NAME: Final = {
    "none": Compression.NONE,
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}


def prepare_batches(
    records: memoryview, next_offset: int, leader_epoch: int, config: LogConfig, origin: Origin, now_ms: int
) -> tuple[memoryview, list[BatchHeader]]:
    """The batches in `records`, checked, with the offsets that they are to get; nothing is written into them yet.

    Recompressed if the topic asks for it, else the same bytes. Raises as `check_batch`; InvalidRecord for no batch
    at all, and for what a client may not send: several batches (KIP-98), a base offset other than 0.
    """
    size = records.nbytes
    headers: list[BatchHeader] = []
    position = 0
    while position < size:
        if size - position < HEADER_SIZE:
            raise _cut_off(f"{size - position} bytes are too few for a batch header", origin)
        sent_offset, length, _, *rest = HEADER.unpack_from(records, position)
        header = BatchHeader(position, next_offset, length, leader_epoch, *rest)
        end = position + length + LENGTH_OVERHEAD
        if origin is Origin.CLIENT and header.magic < MAGIC_V2:
            raise InvalidRecord(f"a batch of format {header.magic}; produce requests hold batches of format {MAGIC_V2}")
        if end > size:
            raise _cut_off(f"a batch claims {length + LENGTH_OVERHEAD} bytes, {size - position} were sent", origin)
        check_batch(records, header, config, origin, now_ms)
        if origin is Origin.CLIENT:
            if sent_offset:
                raise InvalidRecord(f"the base offset of a batch that is produced should be 0, not {sent_offset}")
            if end != size:
                raise InvalidRecord("a produce request may hold one batch for each partition, not several")
        headers.append(header)
        next_offset += header.last_offset_delta + 1
        position = end
    if not headers:
        raise InvalidRecord("no record batch was sent")
    if config.compression_type != "producer":
        return _recompress(records, headers, config)
    return records, headers


def _cut_off(problem: str, origin: Origin) -> InvalidRecord | CorruptMessage:
    """A client that sends half a batch has no other half to send: it is not asked to try again."""
    return InvalidRecord(problem) if origin is Origin.CLIENT else CorruptMessage(problem)


def _recompress(
    records: memoryview, headers: list[BatchHeader], config: LogConfig
) -> tuple[memoryview, list[BatchHeader]]:
    targets = [target_compression(header, config) for header in headers]
    if all(target is None for target in targets):
        return records, headers
    out = bytearray()
    rewritten: list[BatchHeader] = []
    for header, target in zip(headers, targets, strict=True):
        position = len(out)
        if target is None:
            out += records[header.position : header.end_position]
            rewritten.append(header._replace(position=position))
        else:
            out += recompress(records, header, target, config)
            rewritten.append(BatchHeader(position, *HEADER.unpack_from(out, position)))
    return memoryview(out), rewritten


def assign(
    records: memoryview, headers: list[BatchHeader], leader_epoch: int, append_time_ms: int | None
) -> list[BatchHeader]:
    """Writes offsets, leader epoch and, if given, the time of the append into the batches, IN PLACE."""
    for header in headers:
        _pack_offset(records, header.position, header.base_offset)
        _pack_epoch(records, header.position + LEADER_EPOCH_AT, leader_epoch)
    if append_time_ms is None:
        return headers
    for header in headers:
        stamp_append_time(records, header, append_time_ms)
    return [header._replace(max_timestamp=append_time_ms) for header in headers]


def check_batch(records: memoryview, header: BatchHeader, config: LogConfig, origin: Origin, now_ms: int) -> None:
    """Whether the batch at `header.position` in `records` may be appended by the leader of a topic of this `config`.

    Raises CorruptMessage, UnsupportedForMessageFormat, MessageTooLarge, InvalidRecord, InvalidTimestamp.
    """
    if header.magic != MAGIC_V2 or header.batch_length < HEADER_SIZE - LENGTH_OVERHEAD:
        check_magic_and_length(header)
    size = header.batch_length + LENGTH_OVERHEAD
    if size > config.max_message_bytes and (origin is Origin.CLIENT or not header.is_control):
        # A marker is taken whatever its size: without it its transaction would never end.
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
