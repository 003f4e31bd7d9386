"""PURE. The newest record of each key in a coordinator's log, as compaction would leave it.

A coordinator that takes a partition over reads its whole log, of which nearly all has been superseded: a group commits
the same few offsets for months. To build each record and apply it costs 10 µs; to find its key, 1 µs. So the keys are
gathered first, and only the newest record of each is applied, in the order of the log.

Records of a transaction count when it commits, at the offset at which they stand; those of one that has not ended are
kept beside the others, as `ottla.groups.offsets.committed` keeps them.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from ottla.coordination.state_machine import NO_PRODUCER_ID
from ottla.errors import CorruptMessage
from ottla.records.batch import (
    COMPRESSION_MASK,
    CONTROL_FLAG,
    HEADER_SIZE,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    read_header,
)
from ottla.records.control import decode_end_transaction
from ottla.records.record import decode_records, read_varint, unpack_records

_SPECIAL: Final = COMPRESSION_MASK | TRANSACTIONAL_FLAG | CONTROL_FLAG
_Newest = dict[bytes, tuple[int, bytes | None]]


class KeptRecord(NamedTuple):
    """`producer_id` is that of an open transaction, or -1; `value` None is a tombstone."""

    offset: int
    producer_id: int
    key: bytes
    value: bytes | None


class NewestRecords:
    """Fed with a log's chunks of whole batches, in their order."""

    __slots__ = ("_newest", "_pending")

    def __init__(self) -> None:
        self._newest: _Newest = {}
        self._pending: dict[int, _Newest] = {}
        """By producer id, the records of its open transaction."""

    def take(self, chunk: bytes, position: int, max_bytes: int) -> tuple[int, int]:
        """Takes in batches from `position` on, until they are `max_bytes` or the chunk ends.

        Returns the position behind the last one, and the offset behind it. Raises CorruptMessage.
        """
        stop = min(position + max_bytes, len(chunk))
        next_offset = 0
        while position < stop:
            header = read_header(chunk, position)
            if header.attributes & _SPECIAL:
                self._take_special(chunk, header)
            elif self._pending:
                self._take_beside_transactions(chunk, header)
            else:
                _gather(chunk, position + HEADER_SIZE, header.end_position, header, self._newest)
            position = header.end_position
            next_offset = header.next_offset
        return position, next_offset

    def _take_special(self, chunk: bytes, header: BatchHeader) -> None:
        """A batch that is compressed, or part of a transaction, or its end."""
        if header.is_control:
            marker = decode_end_transaction(chunk, header)
            if marker is not None:
                self._end_transaction(header.producer_id, committed=not marker.is_abort)
            return
        if header.is_transactional:
            newest = self._pending.setdefault(header.producer_id, {})
        elif self._pending:
            self._take_beside_transactions(chunk, header)
            return
        else:
            newest = self._newest
        records = bytes(unpack_records(chunk, header))
        _gather(records, 0, len(records), header, newest)

    def _take_beside_transactions(self, chunk: bytes, header: BatchHeader) -> None:
        """A tombstone takes away what is pending under its key, too."""
        for record in decode_records(chunk, header):
            if record.key is not None:
                self._newest.pop(record.key, None)
                self._newest[record.key] = (record.offset, record.value)
                if record.value is None:
                    for pending in self._pending.values():
                        pending.pop(record.key, None)

    def _end_transaction(self, producer_id: int, *, committed: bool) -> None:
        pending = self._pending.pop(producer_id, {})
        if committed:
            newest = self._newest
            for key, record in pending.items():
                known = newest.get(key)
                if known is None or known[0] < record[0]:
                    newest.pop(key, None)
                    newest[key] = record

    def records(self) -> Iterator[KeptRecord]:
        """In the order in which they came to count; those that are pending last."""
        for key, (offset, value) in self._newest.items():
            yield KeptRecord(offset, NO_PRODUCER_ID, key, value)
        for producer_id, pending in self._pending.items():
            for key, (offset, value) in pending.items():
                yield KeptRecord(offset, producer_id, key, value)


def _gather(records: bytes, position: int, size: int, header: BatchHeader, newest: _Newest) -> None:
    """Put each record of a batch in the place of an older one with its key; `records` has them uncompressed from
    `position` to `size`. Raises CorruptMessage.

    `decode_records` gives the same result, several times slower; a test holds them equal. Varints of one and two bytes,
    which
    nearly all are, are decoded in place.
    """
    base_offset = header.base_offset
    try:
        for _ in range(header.record_count):
            byte = records[position]
            position += 1
            if byte >= 0x80:
                second = records[position]
                if second < 0x80:
                    byte = (byte & 0x7F) | second << 7
                    position += 1
                else:
                    length, position = read_varint(records, position - 1)
                    byte = length << 1
            end = position + (byte >> 1)
            position += 1  # attributes
            while records[position] >= 0x80:  # timestamp delta
                position += 1
            position += 1
            delta = records[position]
            position += 1
            if delta >= 0x80:
                delta, position = read_varint(records, position - 1)
            else:
                delta = (delta >> 1) ^ -(delta & 1)
            byte = records[position]
            position += 1
            if byte >= 0x80:
                length, position = read_varint(records, position - 1)
            else:
                length = (byte >> 1) ^ -(byte & 1)
            if length < 0:  # without a key it has no meaning
                position = end
                continue
            key_end = position + length
            key = records[position:key_end]
            byte = records[key_end]
            position = key_end + 1
            if byte >= 0x80:
                length, position = read_varint(records, key_end)
            else:
                length = (byte >> 1) ^ -(byte & 1)
            if end > size or position + length > end:
                raise CorruptMessage(f"a record in the batch at offset {base_offset} is longer than it")
            newest.pop(key, None)  # the order of a dict is that of first insertions
            newest[key] = (base_offset + delta, None if length < 0 else records[position : position + length])
            position = end
    except IndexError:
        raise CorruptMessage(f"the batch at offset {base_offset} ends within a record") from None
    if position != size:
        raise CorruptMessage(f"{size - position} bytes are left after the records of the batch at offset {base_offset}")
