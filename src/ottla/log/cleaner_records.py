"""Outlines of a batch's records, quickly: compaction looks at every key of a log twice.

`ottla.records.record.iter_slices` gives the same, one record at a time and three times slower; a test holds them equal.
"""

from ottla.errors import CorruptMessage
from ottla.log.scan import InvalidBatch
from ottla.records.batch import BatchHeader, Buffer
from ottla.records.record import append_varint, read_varint, unpack_records

Outline = tuple[int, int, int, int, bytes | None, bool]
"""Start and end in the unpacked records (length prefix included), offset delta, timestamp delta (ms), key, and whether
there is a value."""


def read_outlines(path: str, header: BatchHeader, batch: Buffer) -> tuple[bytes, list[Outline]]:
    """The unpacked records of `batch`, which `header` was read from, and their outlines.

    Raises InvalidBatch, naming the file at `path`.
    """
    try:
        records = bytes(unpack_records(batch, header._replace(position=0)))
        return records, outlines(records, header.record_count)
    except CorruptMessage as problem:
        raise InvalidBatch(path, header.position, str(problem)) from problem


def outlines(records: bytes, record_count: int) -> list[Outline]:
    """Outlines of all records. Raises CorruptMessage when they are malformed or not exactly `record_count`.

    Varints of one and two bytes are decoded in place, which nearly all are.
    """
    found: list[Outline] = []
    append = found.append
    size = len(records)
    position = 0
    try:
        for _ in range(record_count):
            start = position
            # length
            byte = records[position]
            position += 1
            if byte >= 0x80:
                second = records[position]
                if second < 0x80:
                    byte = (byte & 0x7F) | second << 7
                    position += 1
                else:
                    length, position = read_varint(records, start)
                    byte = length << 1
            end = position + (byte >> 1)
            if byte & 1 or byte < 0 or end > size:
                raise CorruptMessage(f"a record at {start} does not fit its batch")
            position += 1  # attributes
            # timestamp delta
            byte = records[position]
            if byte < 0x80:
                position += 1
                timestamp_delta = (byte >> 1) ^ -(byte & 1)
            else:
                timestamp_delta, position = read_varint(records, position)
            # offset delta
            byte = records[position]
            if byte < 0x80:
                position += 1
                offset_delta = (byte >> 1) ^ -(byte & 1)
            elif (second := records[position + 1]) < 0x80:
                position += 2
                byte = (byte & 0x7F) | second << 7
                offset_delta = (byte >> 1) ^ -(byte & 1)
            else:
                offset_delta, position = read_varint(records, position)
            # key
            byte = records[position]
            if byte == 1:
                position += 1
                key = None
            else:
                if byte < 0x80:
                    position += 1
                    length = (byte >> 1) ^ -(byte & 1)
                else:
                    length, position = read_varint(records, position)
                if length < 0:
                    key = None
                else:
                    key = records[position : position + length]
                    position += length
            # value: only whether it is there
            byte = records[position]
            if byte < 0x80:
                length = (byte >> 1) ^ -(byte & 1)
                position += 1
            elif (second := records[position + 1]) < 0x80:
                position += 2
                byte = (byte & 0x7F) | second << 7
                length = (byte >> 1) ^ -(byte & 1)
            else:
                length, position = read_varint(records, position)
            if position + length > end:
                raise CorruptMessage(f"a field at {position} does not fit its record")
            append((start, end, offset_delta, timestamp_delta, key, length >= 0))
            position = end
    except IndexError:
        raise CorruptMessage("a batch ends within a record") from None
    if position != size or record_count < 0:
        raise CorruptMessage(f"{size - position} bytes are left after {record_count} records of a batch")
    return found


def rebased(records: bytes, chosen: list[Outline], shift_ms: int) -> bytearray:
    """The chosen records, with `shift_ms` added to their timestamp deltas."""
    out = bytearray()
    for start, end, _, timestamp_delta, _, _ in chosen:
        _, attributes_at = read_varint(records, start)
        _, rest_at = read_varint(records, attributes_at + 1)
        body = bytearray(records[attributes_at : attributes_at + 1])
        append_varint(body, timestamp_delta + shift_ms)
        body += records[rest_at:end]
        append_varint(out, len(body))
        out += body
    return out
