"""PURE. `ottla.records._native` in Python, for where it could not be compiled; a test holds the two equal.

The scanner keeps the bytes of a record that a chunk cuts off, where the compiled one keeps only where it stands.
"""

from typing import Final

from ottla.records.batch import NO_TIMESTAMP, Buffer

MAX_FAULTS: Final = 1024

_LENGTH, _VARINT, _OFFSET, _FIELD, _HEADERS, _HEADER_KEY, _REST_OF_RECORD, _REST_OF_BATCH, _ENDS_EARLY = range(1, 10)
_NO_KEY, _TIMESTAMP = 1, 2
_MAX_COUNT: Final = 0x7FFF_FFFF
_INT64: Final = 1 << 64

Findings = tuple[int, int, int, int, tuple[tuple[int, int], ...]]


class _Malformed(Exception):
    """`args[0]` is the problem."""


class Scanner:
    """Walks the records of a batch chunk by chunk."""

    def __init__(self, count: int, base_timestamp: int, earliest: int, latest: int, needs_key: bool, /) -> None:
        if not 0 <= count <= _MAX_COUNT:
            raise ValueError("a count of records is 0 to 2147483647")
        self._count = count
        self._base_timestamp = base_timestamp
        self._earliest = earliest
        self._latest = latest
        self._needs_key = needs_key
        self._rest = bytearray()
        self._needed = 1
        self._problem = 0
        self._done = 0
        self._max_timestamp = NO_TIMESTAMP
        self._faults = 0
        self._named: list[tuple[int, int]] = []

    def feed(self, chunk: Buffer, /) -> bool:
        """Walk the next chunk; False once there is a problem."""
        if self._problem:
            return False
        rest = self._rest
        rest += chunk
        if len(rest) < self._needed:
            return True
        position = 0
        try:
            while self._done < self._count:
                begins = position
                try:
                    length, position = _varint(rest, position, 32)
                except IndexError:
                    position, self._needed = begins, len(rest) - begins + 1
                    break
                if length < 0:
                    raise _Malformed(_LENGTH)
                if position + length > len(rest):
                    position, self._needed = begins, position + length - begins
                    break
                self._record(rest, position, position + length)
                position += length
                self._done += 1
            else:
                self._needed = 1
                if position < len(rest):
                    raise _Malformed(_REST_OF_BATCH)
        except _Malformed as problem:
            self._problem = problem.args[0]
        del rest[:position]
        return not self._problem

    def finish(self) -> Findings:
        """The problem and faults found so far."""
        if not self._problem and self._done < self._count:
            self._problem = _ENDS_EARLY
        return self._problem, self._done, self._max_timestamp, self._faults, tuple(self._named)

    def _record(self, records: bytearray, position: int, end: int) -> None:
        try:
            delta, position = _varint(records, position + 1, 64)
            timestamp = (self._base_timestamp + delta + (_INT64 >> 1)) % _INT64 - (_INT64 >> 1)
            offset_delta, position = _varint(records, position, 32)
            if offset_delta != self._done:
                raise _Malformed(_OFFSET)
            length, position = _varint(records, position, 32)
            if length < 0 and self._needs_key:
                self._note(_NO_KEY)
            elif timestamp != NO_TIMESTAMP and not self._earliest <= timestamp <= self._latest:
                self._note(_TIMESTAMP)
            position = _skip(position, length, end)
            length, position = _varint(records, position, 32)
            position = _skip(position, length, end)
            headers, position = _varint(records, position, 32)
            if not 0 <= headers <= end - position:
                raise _Malformed(_FIELD if position > end else _HEADERS)
            for _ in range(headers):
                length, position = _varint(records, position, 32)
                if length < 0:
                    raise _Malformed(_HEADER_KEY)
                position = _skip(position, length, end)
                length, position = _varint(records, position, 32)
                position = _skip(position, length, end)
        except IndexError:
            raise _Malformed(_FIELD) from None
        if position != end:
            raise _Malformed(_REST_OF_RECORD)
        self._max_timestamp = max(self._max_timestamp, timestamp)

    def _note(self, fault: int) -> None:
        if self._faults < MAX_FAULTS:
            self._named.append((self._done, fault))
        self._faults += 1


def scan(records: Buffer, count: int, base_timestamp: int, earliest: int, latest: int, needs_key: bool, /) -> Findings:
    """Walk all records of a batch."""
    scanner = Scanner(count, base_timestamp, earliest, latest, needs_key)
    scanner.feed(records)
    return scanner.finish()


def _skip(position: int, length: int, end: int) -> int:
    following = position + max(length, 0)
    if following > end:
        raise _Malformed(_FIELD)
    return following


def _varint(records: bytearray, position: int, width: int) -> tuple[int, int]:
    """A zig-zag varint of at most `width` bits, and the position after it. Raises IndexError past the end."""
    byte = records[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    bits = byte & 0x7F
    shift = 7
    while True:
        position += 1
        byte = records[position]
        if shift + 7 > width and byte >> (width - shift):
            raise _Malformed(_VARINT)
        bits |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (bits >> 1) ^ -(bits & 1), position + 1
        shift += 7
