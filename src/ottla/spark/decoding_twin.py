"""The twin of `_columns.c` in Python and numpy, for where that has not been compiled.

    |rec|rec|rec|...    only the length of a record shows where the next one begins: a loop in Python
     ^   ^   ^          the fields of all records at once: varints by numpy, bytes taken out by Arrow

A column of keys or values is an Arrow array over the fetched bytes whose odd elements are what lies between, and `take`
of the even ones copies them together. It takes 0.1 to 0.3 us for each record more than the code in C.
"""

from struct import Struct
from struct import error as StructError  # noqa: N812 - its own name is too general
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ottla.errors import CorruptMessage
from ottla.records.batch import BatchHeader
from ottla.records.record import read_varint
from ottla.spark.chunk import LATEST_MILLIS, Chunk, Positions, Rows, numbers

_NULL: Final = -1
_CREATE_TIME: Final = 0
_LOG_APPEND_TIME: Final = 1
_NO_TIMESTAMP_TYPE: Final = -1


def decode(chunk: Chunk, first: int, end: int) -> Rows | None:
    """As `ottla.spark.decoding.decode`."""
    counts = [header.record_count for header in chunk.headers]
    fields = _fields(chunk)
    offsets = fields.offset_delta + np.repeat([header.base_offset for header in chunk.headers], counts)
    begin, stop = np.searchsorted(offsets, (first, end))
    if begin >= stop:
        return None
    rows = slice(int(begin), int(stop))
    payload = pa.py_buffer(chunk.payload)
    timestamps, kinds = _timestamps(chunk.headers, counts, fields.timestamp_delta)
    return Rows(
        offsets[rows],
        _micros(timestamps[rows], kinds[rows] == _NO_TIMESTAMP_TYPE),
        kinds[rows],
        _bytes_at(payload, fields.key_at[rows], fields.key_size[rows]),
        _bytes_at(payload, fields.value_at[rows], fields.value_size[rows]),
        fields.header_at[rows],
    )


class _Fields(NamedTuple):
    """One element per record; a size of -1 is null, and so is the place of headers that are not there."""

    timestamp_delta: Positions
    offset_delta: Positions
    key_at: Positions
    key_size: Positions
    value_at: Positions
    value_size: Positions
    header_at: Positions


def _record_starts(chunk: Chunk) -> Positions:
    """Where the length of each record lies. Raises CorruptMessage when records do not fill their batch."""
    payload = b"".join((chunk.payload, b"\0"))  # so that there are two bytes at the last position
    starts: list[int] = []
    for header, start, end in zip(chunk.headers, chunk.starts, chunk.ends, strict=True):
        starts += _walk(payload, start, header, header.record_count, end)
    return np.array(starts, np.int64)


def _walk(payload: bytes, position: int, header: BatchHeader, count: int, end: int) -> list[int]:
    steps, pair_at = _STEPS, _PAIR.unpack_from
    starts: list[int] = []
    add = starts.append
    try:
        for _ in range(count):
            add(position)
            step = steps[pair_at(payload, position)[0]]
            if not step:
                size, behind = read_varint(payload, position)
                if size < 0:
                    raise CorruptMessage(f"a record of the batch at offset {header.base_offset} has a negative length")
                step = behind - position + size
            position += step
    except (IndexError, StructError):
        raise CorruptMessage("a batch claims more records than it holds") from None
    if position != end:
        raise CorruptMessage(f"the records of the batch at offset {header.base_offset} do not fill it")
    return starts


def _step_of(pair: int) -> int:
    """How far the next record is, from the first two bytes of a record; 0 if they do not say."""
    low, high = pair & 0xFF, pair >> 8
    if low < 0x80:
        return 0 if low & 1 else 1 + (low >> 1)
    size = low & 0x7F | high << 7
    return 0 if high >= 0x80 or size & 1 else 2 + (size >> 1)


_STEPS: Final = [_step_of(pair) for pair in range(1 << 16)]
_PAIR: Final = Struct("<H")


def _fields(chunk: Chunk) -> _Fields:
    """Raises CorruptMessage when a record does not fit its batch."""
    data = np.frombuffer(chunk.payload, np.uint8)
    starts = _record_starts(chunk)
    try:
        size, position = _varints(data, starts)
        ends = position + size
        timestamp_delta, position = _varints(data, position + 1)  # behind the attributes, which mean nothing yet
        offset_delta, position = _varints(data, position)
        key_size, key_at = _varints(data, position)
        value_size, value_at = _varints(data, key_at + np.maximum(key_size, 0))
        behind_value = value_at + np.maximum(value_size, 0)
        headers, behind = _varints(data, behind_value)
    except IndexError:
        raise CorruptMessage("a record is cut off") from None
    if (behind > ends).any():
        raise CorruptMessage("a record is longer than its declared length")
    if min(key_size.min(), value_size.min()) < _NULL:
        raise CorruptMessage("a key or a value has a negative length")
    header_at = np.where(headers > 0, behind_value, -1)
    return _Fields(timestamp_delta, offset_delta, key_at, key_size, value_at, value_size, header_at)


def _varints(data: npt.NDArray[np.uint8], position: Positions) -> tuple[Positions, Positions]:
    """The zigzag varints at these positions, and the positions behind them. Raises IndexError at the end of data."""
    byte = data[position].astype(np.int64)
    value = byte & 0x7F
    position = position + 1
    longer = np.flatnonzero(byte >= 0x80)
    shift = 7
    while longer.size:
        byte = data[position[longer]].astype(np.int64)
        value[longer] |= (byte & 0x7F) << shift
        position[longer] += 1
        longer = longer[byte >= 0x80]
        shift += 7
    return (value >> 1) ^ -(value & 1), position


def _timestamps(
    headers: list[BatchHeader], counts: list[int], deltas: Positions
) -> tuple[Positions, npt.NDArray[np.int32]]:
    """Milliseconds and kinds. In a batch with the time of the log's append, all records have that one."""
    base = np.repeat([header.base_timestamp for header in headers], counts)
    kinds = np.repeat(
        np.array([_LOG_APPEND_TIME if header.is_log_append_time else _CREATE_TIME for header in headers], np.int32),
        counts,
    )
    stamps = base + deltas
    if kinds.any():
        appended = np.repeat([header.max_timestamp for header in headers], counts)
        stamps = np.where(kinds == _LOG_APPEND_TIME, appended, stamps)
    kinds[stamps < 0] = _NO_TIMESTAMP_TYPE
    return stamps, kinds


def _micros(millis: Positions, is_none: npt.NDArray[np.bool_]) -> pa.Array:
    """Null as well where the producer gave a time that is too far for microseconds."""
    is_null = is_none | (millis > LATEST_MILLIS)
    return numbers(np.where(is_null, 0, millis) * 1_000, is_null)


def _bytes_at(payload: pa.Buffer, position: Positions, size: Positions) -> pa.Array:
    """The bytes at these ascending, disjoint positions; null where the size is -1.

    positions   v1        v2              offsets   v1 v1+s1 v2 v2+s2 v2+s2
    payload   ..[---].....[----]...       elements   [value] [gap] [value] [nothing]
    """
    count = len(position)
    is_null = size < 0
    if is_null.all():
        return pa.nulls(count, pa.binary())
    bounds = np.empty(2 * count + 1, np.int32)
    bounds[0 : 2 * count : 2] = position
    bounds[1 : 2 * count : 2] = position + np.maximum(size, 0)
    bounds[2 * count] = bounds[2 * count - 1]
    stretches = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(bounds), payload])
    return stretches.take(numbers(np.arange(0, 2 * count, 2, dtype=np.int32), is_null))
