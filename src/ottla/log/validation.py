"""What a batch must satisfy before a leader appends it, and the few cases in which its bytes are changed.

Every record that a client sends is walked (`ottla.records.structure`), a compressed one as it is unpacked: what is
acknowledged can be read. The producer's bytes go to the file as they came, unless the topic has a compression of its
own, or the largest timestamp in the header is not that of the records, which is corrected, as in Kafka.

    prepare_batches   checks at once
    Examination       checks in steps, in any thread, what might take long

What coordinators write was encoded here and is not walked.
"""

import time
from collections.abc import Generator
from struct import Struct, pack_into
from typing import Final, NamedTuple

from ottla.config.log import LogConfig, TimestampType
from ottla.errors import CorruptMessage, InvalidRecord, InvalidTimestamp, MessageTooLarge, OttlaError
from ottla.log.producer_state import Origin
from ottla.records.batch import (
    ATTRIBUTES_AT,
    CHECKED_FROM,
    COMPRESSION_MASK,
    CONTROL_FLAG,
    CRC_AT,
    DELETE_HORIZON_FLAG,
    HEADER,
    HEADER_SIZE,
    LEADER_EPOCH_AT,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_FLAG,
    MAGIC_V2,
    MAX_TIMESTAMP_AT,
    NO_LEADER_EPOCH,
    BatchHeader,
    Compression,
    check_magic_and_length,
    seal,
)
from ottla.records.checksum import crc32c
from ottla.records.structure import PROBLEM_TEXTS, Fault, Findings, Problem, Scanner, scan
from ottla.records.unpacking import Packer, unpacked

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
MAX_RECORDS: Final = 1_000_000
"""The most records in one batch, as in the largest of librdkafka's: a reader holds all of them in memory."""
_INT64_MAX: Final = (1 << 63) - 1
_ANY_TIME: Final = (-_INT64_MAX - 1, _INT64_MAX)


class CheckedBatches(NamedTuple):
    """Batches that a leader may append."""

    headers: list[BatchHeader]
    """With offsets from 0 on, and without a leader epoch."""
    rewritten: memoryview | None
    """The bytes to append in place of the checked ones, if the topic has another compression."""

    def placed(self, next_offset: int, leader_epoch: int) -> list[BatchHeader]:
        """The headers with the offsets that the batches get at the end of a log."""
        return [
            header._replace(base_offset=next_offset + header.base_offset, leader_epoch=leader_epoch)
            for header in self.headers
        ]


def prepare_batches(
    records: memoryview, next_offset: int, leader_epoch: int, config: LogConfig, origin: Origin, now_ms: int
) -> tuple[memoryview, list[BatchHeader]]:
    """The batches in `records`, checked, with the offsets that they are to get; these are not written into them yet.

    Recompressed if the topic asks for it, else the same bytes. Raises as `check_header`; InvalidRecord and
    InvalidTimestamp for records that are not as they should be, InvalidRecord for no batch at all, and for what a
    client may not send: several batches (KIP-98), a base offset other than 0.
    """
    headers = _headers(records, next_offset, leader_epoch, config, origin)
    if config.compression_type == "producer":
        if origin is not Origin.CLIENT:
            return records, headers
        header = headers[0]
        if not header.attributes & COMPRESSION_MASK:
            return records, [_walked(records, header, config, now_ms)]
    steps = _checked(records, headers, config, origin, now_ms)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            checked: CheckedBatches = end.value
            return records if checked.rewritten is None else checked.rewritten, checked.headers


class Examination:
    """The check of one partition's batches, which may be long. In one thread at a time.

    A largest timestamp that is not that of the records is corrected in `records`, IN PLACE.
    """

    def __init__(self, records: memoryview, config: LogConfig, now_ms: int) -> None:
        self.result: CheckedBatches | OttlaError | None = None
        """None until it has come to an end."""
        self._steps = self._examine(records, config, now_ms)

    def go_on(self, max_bytes: int, seconds: float) -> int:
        """Unpack about this many bytes, or for this long; returns their number. `result` shows whether that was all."""
        unpacked_bytes = 0
        deadline = time.monotonic() + seconds
        try:
            while unpacked_bytes < max_bytes:
                unpacked_bytes += next(self._steps)
                if time.monotonic() >= deadline:
                    break
        except StopIteration as end:
            self.result = end.value
        except OttlaError as error:
            self.result = error
        return unpacked_bytes

    @staticmethod
    def _examine(records: memoryview, config: LogConfig, now_ms: int) -> Generator[int, None, CheckedBatches]:
        headers = _headers(records, 0, NO_LEADER_EPOCH, config, Origin.CLIENT)
        return (yield from _checked(records, headers, config, Origin.CLIENT, now_ms))


def _headers(
    records: memoryview, next_offset: int, leader_epoch: int, config: LogConfig, origin: Origin
) -> list[BatchHeader]:
    """The headers of the batches in `records`, checked; at least one."""
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
        check_header(records, header, config, origin)
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
    return headers


def _cut_off(problem: str, origin: Origin) -> InvalidRecord | CorruptMessage:
    """A client that sends half a batch has no other half to send: it is not asked to try again."""
    return InvalidRecord(problem) if origin is Origin.CLIENT else CorruptMessage(problem)


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


def check_header(records: memoryview, header: BatchHeader, config: LogConfig, origin: Origin) -> None:
    """Whether the header of the batch at `header.position` in `records` lets a leader append it, its records aside.

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
    if attributes & COMPRESSION_MASK > Compression.ZSTD:
        raise InvalidRecord(f"compression id {attributes & COMPRESSION_MASK} is not known")
    if origin is not Origin.CLIENT:
        return
    count = header.record_count
    if count <= 0 or header.last_offset_delta != count - 1:
        raise InvalidRecord(f"{count} records in a batch of {header.last_offset_delta + 1} offsets")
    if count > MAX_RECORDS:
        raise MessageTooLarge(f"a batch of {count} records; {MAX_RECORDS} may be in one")
    if attributes & (CONTROL_FLAG | DELETE_HORIZON_FLAG):
        if attributes & CONTROL_FLAG:
            raise InvalidRecord("clients may not write control records")
        raise InvalidRecord("clients may not set a delete horizon")
    if header.producer_id >= 0 and header.base_sequence < 0:
        raise InvalidRecord(f"producer {header.producer_id} sent the sequence {header.base_sequence}")
    if attributes & LOG_APPEND_TIME_FLAG and config.message_timestamp_type is TimestampType.CREATE_TIME:
        raise InvalidTimestamp("producers may not mark a batch as stamped with the time of its append")


# --- records -------------------------------------------------------------------------------------------------------


def _checked(
    records: memoryview, headers: list[BatchHeader], config: LogConfig, origin: Origin, now_ms: int
) -> Generator[int, None, CheckedBatches]:
    """Checks the records of all batches; yields, now and then, how many bytes it has unpacked since."""
    pieces: list[bytearray | memoryview] = []
    checked: list[BatchHeader] = []
    position = 0
    rewritten = False
    for header in headers:
        target = target_compression(header, config)
        piece: bytearray | memoryview | None = None
        found = header
        if target is not None:
            packer = Packer(target, _level(target, config), config.max_message_bytes - HEADER_SIZE)
            max_timestamp = yield from _walked_unpacked(records, header, config, now_ms, packer)
            piece = _rebuilt(header, target, packer.finish(), max_timestamp)
            found = BatchHeader(0, *HEADER.unpack_from(piece))
            rewritten = True
        elif origin is not Origin.CLIENT:
            pass
        elif header.attributes & COMPRESSION_MASK:
            max_timestamp = yield from _walked_unpacked(records, header, config, now_ms, None)
            found = _with_max_timestamp(records, header, config, max_timestamp)
        else:
            found = _walked(records, header, config, now_ms)
        pieces.append(records[header.position : header.end_position] if piece is None else piece)
        checked.append(found._replace(position=position))
        position += len(pieces[-1])
    if not rewritten:
        return CheckedBatches(checked, None)
    return CheckedBatches(checked, memoryview(pieces[0] if len(pieces) == 1 else bytearray(b"".join(pieces))))


def _walked(records: memoryview, header: BatchHeader, config: LogConfig, now_ms: int) -> BatchHeader:
    """The header of an uncompressed batch, whose records are as they should be."""
    bounds = _bounds(config, now_ms)
    found = scan(
        records[header.position + HEADER_SIZE : header.end_position],
        header.record_count,
        header.base_timestamp,
        *bounds,
        config.compact,
    )
    if found[0] or found[3]:
        raise _refusal(header, found, bounds)
    if found[2] == header.max_timestamp:
        return header
    return _with_max_timestamp(records, header, config, found[2])


def _walked_unpacked(
    records: memoryview, header: BatchHeader, config: LogConfig, now_ms: int, packer: Packer | None
) -> Generator[int, None, int]:
    """The largest timestamp of the records, which are as they should be; they also go through the `packer`."""
    bounds = _bounds(config, now_ms)
    scanner = Scanner(header.record_count, header.base_timestamp, *bounds, config.compact)
    payload = records[header.position + HEADER_SIZE : header.end_position]
    try:
        for chunk in unpacked(header.compression, payload):
            if not scanner.feed(chunk):
                break
            if packer is not None:
                packer.feed(chunk)
            yield len(chunk)
    except CorruptMessage as problem:
        # Sent like this, as its CRC shows: CORRUPT_MESSAGE would have the client send it again and again.
        raise InvalidRecord(str(problem)) from problem
    found = scanner.finish()
    if found[0] or found[3]:
        raise _refusal(header, found, bounds)
    return found[2]


def _bounds(config: LogConfig, now_ms: int) -> tuple[int, int]:
    """The earliest and the latest timestamp that a record may have, ms."""
    if config.message_timestamp_type is TimestampType.LOG_APPEND_TIME:
        return _ANY_TIME
    return now_ms - config.message_timestamp_before_max_ms, min(
        now_ms + config.message_timestamp_after_max_ms, _INT64_MAX
    )


def _refusal(header: BatchHeader, found: Findings, bounds: tuple[int, int]) -> OttlaError:
    problem, number, _, faults, named = found
    if problem:
        count = header.record_count
        return InvalidRecord(f"record {number} of a batch of {count} {PROBLEM_TEXTS[Problem(problem)]}")
    texts = {
        Fault.NO_KEY: "a compacted topic takes no record without a key",
        Fault.TIMESTAMP: f"its timestamp is not within {bounds[0]} to {bounds[1]}",
    }
    records = tuple((record, texts[Fault(fault)]) for record, fault in named)
    first = f"record {records[0][0]}: {records[0][1]}"
    summary = f"{faults} of {header.record_count} records are refused, and all of their batch with them; {first}"
    refused = InvalidTimestamp if any(fault == Fault.TIMESTAMP for _, fault in named) else InvalidRecord
    return refused(summary, records)


def _with_max_timestamp(records: memoryview, header: BatchHeader, config: LogConfig, max_timestamp: int) -> BatchHeader:
    """The header with the largest timestamp that its records have; corrected in `records`, too."""
    if max_timestamp == header.max_timestamp or config.message_timestamp_type is TimestampType.LOG_APPEND_TIME:
        return header
    position = header.position
    pack_into(">q", records, position + MAX_TIMESTAMP_AT, max_timestamp)
    crc = crc32c(records[position + CHECKED_FROM : header.end_position])
    pack_into(">I", records, position + CRC_AT, crc)
    return header._replace(max_timestamp=max_timestamp, crc=crc)


def target_compression(header: BatchHeader, config: LogConfig) -> Compression | None:
    """The codec to rewrite the batch with; None if it may stay as it is."""
    if config.compression_type == "producer" or header.is_control:
        return None
    target = _COMPRESSION_BY_NAME[config.compression_type]
    return None if target == header.attributes & 0x07 else target


def _level(target: Compression, config: LogConfig) -> int | None:
    match target:
        case Compression.GZIP:
            return config.compression_gzip_level
        case Compression.LZ4:
            return config.compression_lz4_level
        case Compression.ZSTD:
            return config.compression_zstd_level
    return None


def _rebuilt(header: BatchHeader, target: Compression, payload: bytearray, max_timestamp: int) -> bytearray:
    """The batch with other bytes of the same records."""
    batch = bytearray(HEADER_SIZE)
    attributes = header.attributes & ~COMPRESSION_MASK | target
    length = HEADER_SIZE - LENGTH_OVERHEAD + len(payload)
    HEADER.pack_into(
        batch, 0, *header._replace(batch_length=length, attributes=attributes, max_timestamp=max_timestamp)[1:]
    )
    batch += payload
    seal(batch)
    return batch


def stamp_append_time(records: memoryview, header: BatchHeader, now_ms: int) -> None:
    """Marks the batch in place as appended at `now_ms`; its records keep their own times, unseen from now on."""
    position = header.position
    pack_into(">h", records, position + ATTRIBUTES_AT, header.attributes | LOG_APPEND_TIME_FLAG)
    pack_into(">q", records, position + MAX_TIMESTAMP_AT, now_ms)
    pack_into(">I", records, position + CRC_AT, crc32c(records[position + CHECKED_FROM : header.end_position]))
