"""PURE. The records inside a batch of format 2: decoded, encoded, and located without decoding.

One record, lengths and deltas as zig-zag varints::

    length | attributes int8 (unused) | timestamp_delta varlong | offset_delta varint
           | key_length (-1: null) key | value_length (-1: null) value
           | header_count { key_length key value_length (-1: null) value }
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from ottla.errors import CorruptMessage, InvalidRecord
from ottla.records.batch import (
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_FLAG,
    MAGIC_V2,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    Buffer,
    Compression,
    read_header,
    seal,
)
from ottla.records.compression import MAX_UNCOMPRESSED_BYTES, compress, decompress

_MIN_RECORD_BYTES: Final = 7
"""The shortest record: length, attributes, two deltas, two null lengths and a header count, one byte each."""

Headers = tuple[tuple[str, bytes | None], ...]


_LONGEST_VARINT_BYTES: Final = 10
_NO_KEY: Final = 1
"""The varint of a length of -1."""


class Record(NamedTuple):
    """One record. Header keys that are not UTF-8 survive a round trip as surrogate escapes."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class RecordSlice(NamedTuple):
    """Where one record lies in the unpacked records of a batch (length prefix included), and its outline."""

    start: int
    end: int
    offset_delta: int
    timestamp_delta: int
    key: bytes | None
    has_value: bool


def read_varint(view: Buffer, position: int) -> tuple[int, int]:
    """The zig-zag varint at `position` and the position after it. Raises IndexError past the end, and
    CorruptMessage for more than ten bytes."""
    shift = 0
    value = 0
    while True:
        byte = view[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
        if shift > 63:
            raise CorruptMessage("a varint of more than ten bytes")


def append_varint(out: bytearray, value: int) -> None:
    """Appends `value` as a zig-zag varint (int64 range)."""
    rest = ((value << 1) ^ (value >> 63)) & 0xFFFF_FFFF_FFFF_FFFF
    while rest >= 0x80:
        out.append((rest & 0x7F) | 0x80)
        rest >>= 7
    out.append(rest)


def unpack_records(batch: Buffer, header: BatchHeader, max_bytes: int = MAX_UNCOMPRESSED_BYTES) -> bytes | memoryview:
    """The records of the batch at `header.position` in `batch`, end to end and uncompressed."""
    view = memoryview(batch)[header.position + HEADER_SIZE : header.end_position]
    return decompress(header.compression, view, max_bytes)


def iter_slices(records: Buffer, record_count: int) -> Iterator[RecordSlice]:
    """Outlines of `record_count` unpacked records. Raises CorruptMessage when they are malformed or not
    exactly that many."""
    view = memoryview(records)
    size = view.nbytes
    if record_count < 0 or record_count * _MIN_RECORD_BYTES > size:
        raise CorruptMessage(f"{record_count} records do not fit {size} bytes")
    position = 0
    try:
        for _ in range(record_count):
            start = position
            length, position = read_varint(view, position)
            end = position + length
            if length < 0 or end > size:
                raise CorruptMessage(f"a record of {length} bytes at {start} does not fit its batch")
            timestamp_delta, position = read_varint(view, position + 1)
            offset_delta, position = read_varint(view, position)
            key, position = _read_bytes(view, position, end)
            value_length, position = read_varint(view, position)
            if value_length > end - position:
                raise CorruptMessage(f"a value of {value_length} bytes at {position} does not fit its record")
            yield RecordSlice(start, end, offset_delta, timestamp_delta, key, value_length >= 0)
            position = end
    except IndexError:
        raise CorruptMessage("a batch ends within a record") from None
    if position != size:
        raise CorruptMessage(f"{size - position} bytes are left after the last record of a batch")


def decode_records(
    batch: Buffer, header: BatchHeader | None = None, max_bytes: int = MAX_UNCOMPRESSED_BYTES
) -> Iterator[Record]:
    """The records of one batch (at `header.position`, or at the start of `batch` without a header).

    Raises CorruptMessage when they are malformed or unpack to more than `max_bytes`.
    """
    header = header or read_header(batch)
    records = memoryview(unpack_records(batch, header, max_bytes))
    fixed_timestamp = header.max_timestamp if header.attributes & LOG_APPEND_TIME_FLAG else None
    for piece in iter_slices(records, header.record_count):
        value, headers = _decode_tail(records, piece)
        timestamp = header.base_timestamp + piece.timestamp_delta if fixed_timestamp is None else fixed_timestamp
        yield Record(header.base_offset + piece.offset_delta, timestamp, piece.key, value, headers)


def decode_values(batch: Buffer, header: BatchHeader) -> list[bytes | None]:
    """The values of the records of one batch, for logs whose records have neither keys nor headers: as with
    `decode_records`, five times as fast. Raises as that does."""
    records = bytes(unpack_records(batch, header))
    values = _plain_values(records, header.record_count)
    return [record.value for record in decode_records(batch, header)] if values is None else values


def _plain_values(records: bytes, count: int) -> list[bytes | None] | None:
    """None where a record has a key or headers, or anything is wrong."""
    values: list[bytes | None] = []
    position, size = 0, len(records)
    if not 0 <= count * _MIN_RECORD_BYTES <= size:
        return None
    try:
        for _ in range(count):
            length, position = read_varint(records, position)
            end = position + length
            for _ in range(2):  # the attributes and the time; the offset
                position += 1
                begin = position
                while records[position] >= 0x80:
                    position += 1
                if position - begin >= _LONGEST_VARINT_BYTES:
                    return None
            if records[position + 1] != _NO_KEY:
                return None
            length, position = read_varint(records, position + 2)
            if length < 0 or position + length + 1 != end or records[end - 1]:
                return None
            values.append(records[position : end - 1])
            position = end
    except (IndexError, CorruptMessage):
        return None
    return values if position == size else None


def _decode_tail(records: memoryview, piece: RecordSlice) -> tuple[bytes | None, Headers]:
    """Value and headers of a record whose outline is known."""
    end = piece.end
    try:
        _, position = read_varint(records, piece.start)
        _, position = read_varint(records, position + 1)
        _, position = read_varint(records, position)
        key_length, position = read_varint(records, position)
        value, position = _read_bytes(records, position + max(key_length, 0), end)
        count, position = read_varint(records, position)
        if not 0 <= count <= end - position:
            raise CorruptMessage(f"a record with {count} headers in {end - position} bytes")
        headers: list[tuple[str, bytes | None]] = []
        for _ in range(count):
            name, position = _read_bytes(records, position, end)
            if name is None:
                raise CorruptMessage("a record header without a key")
            header_value, position = _read_bytes(records, position, end)
            headers.append((name.decode("utf-8", "surrogateescape"), header_value))
    except IndexError:
        raise CorruptMessage("a batch ends within a record") from None
    if position != end:
        raise CorruptMessage(f"{end - position} bytes are left after the headers of a record")
    return value, tuple(headers)


def _read_bytes(view: memoryview, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = read_varint(view, position)
    if length < 0:
        return None, position
    if length > end - position:
        raise CorruptMessage(f"a field of {length} bytes at {position} does not fit its record")
    return bytes(view[position : position + length]), position + length


def append_record(out: bytearray, offset_delta: int, timestamp_delta: int, record: Record) -> None:
    """Appends one encoded record; the deltas stand for the record's own offset and timestamp."""
    body = bytearray(1)
    append_varint(body, timestamp_delta)
    append_varint(body, offset_delta)
    _append_bytes(body, record.key)
    _append_bytes(body, record.value)
    append_varint(body, len(record.headers))
    for name, value in record.headers:
        _append_bytes(body, name.encode("utf-8", "surrogateescape"))
        _append_bytes(body, value)
    append_varint(out, len(body))
    out += body


def _append_bytes(out: bytearray, value: bytes | None) -> None:
    if value is None:
        out.append(1)  # the varint of -1
    else:
        append_varint(out, len(value))
        out += value


def encode_batch(
    records: Iterable[Record],
    *,
    base_offset: int | None = None,
    last_offset: int | None = None,
    compression: Compression = Compression.NONE,
    compression_level: int | None = None,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    log_append_time_ms: int | None = None,
    delete_horizon_ms: int | None = None,
) -> bytearray:
    """One batch of the given records, whose offsets ascend.

    `base_offset` is the first record's offset unless given, `last_offset` the last one's: compaction keeps a
    batch's ends when records at its ends are gone. `log_append_time_ms` marks the batch as stamped by the
    broker, `delete_horizon_ms` writes the horizon (KIP-534). Raises InvalidRecord when there is nothing to
    take the base offset from.
    """
    rows = list(records)
    if base_offset is None:
        if not rows:
            raise InvalidRecord("a batch without records needs a base offset")
        base_offset = rows[0].offset
    if last_offset is None:
        last_offset = rows[-1].offset if rows else base_offset
    base_timestamp = rows[0].timestamp_ms if rows else NO_TIMESTAMP
    max_timestamp = max((row.timestamp_ms for row in rows), default=NO_TIMESTAMP)
    attributes = int(compression)
    if transactional:
        attributes |= TRANSACTIONAL_FLAG
    if control:
        attributes |= CONTROL_FLAG
    if log_append_time_ms is not None:
        attributes |= LOG_APPEND_TIME_FLAG
        max_timestamp = log_append_time_ms
    if delete_horizon_ms is not None:
        attributes |= DELETE_HORIZON_FLAG
        base_timestamp = delete_horizon_ms
    body = bytearray()
    for row in rows:
        append_record(body, row.offset - base_offset, row.timestamp_ms - base_timestamp, row)
    payload = compress(compression, body, compression_level) if compression else body
    batch = bytearray(HEADER_SIZE)
    HEADER.pack_into(
        batch,
        0,
        base_offset,
        HEADER_SIZE - LENGTH_OVERHEAD + len(payload),
        leader_epoch,
        MAGIC_V2,
        0,
        attributes,
        last_offset - base_offset,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        len(rows),
    )
    batch += payload
    seal(batch)
    return batch
