"""Record batches as they come from a broker, turned into Arrow columns without a Python object per field.

    records of a fetch    |header|rec|rec|rec|...|header|rec|...
                                  ^   ^   ^           ^               where records start: the one loop over records
                                  the fields of all records at once: varints by numpy, bytes taken out by Arrow

Only the length of a record shows where the next one begins, so finding the starts is a loop in Python (0.05 to 0.2 us
per record). All that follows works on whole columns: a column of keys or values is an Arrow array over the fetched
bytes whose odd elements are what lies between, and `take` of the even ones copies them together.

Source: the record format of KIP-98, see `ottla.records.batch` and `ottla.records.record`.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby
from struct import Struct
from struct import error as StructError  # noqa: N812 - its own name is too general
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ottla.errors import CorruptMessage
from ottla.records.batch import HEADER_SIZE, BatchHeader, Compression, is_intact, iter_batches
from ottla.records.compression import decompress
from ottla.records.control import decode_end_transaction
from ottla.records.record import read_varint

Positions = npt.NDArray[np.int64]

_CREATE_TIME: Final = 0
_LOG_APPEND_TIME: Final = 1
_NO_TIMESTAMP_TYPE: Final = -1
_NULL: Final = -1
_MICROS_PER_MILLI: Final = 1_000
LATEST_MILLIS: Final = (1 << 63) // 1_000 - 1
"""The largest timestamp in ms that Spark's timestamps, which count microseconds, can hold."""
_ABREAST: Final = 32
"""So many batches and more are walked abreast: a step of all costs as much as so many records one after the other."""


class Aborted(NamedTuple):
    """A transaction of `producer_id` that was aborted; its first record in this partition is at `first_offset`."""

    producer_id: int
    first_offset: int


class Visible:
    """Which batches a reader of committed records is shown. Give it the batches in the order of their offsets.

    A marker ends what its producer had open, so the next transaction of the same producer is judged anew.
    """

    def __init__(self, aborted: Iterable[Aborted]) -> None:
        self._to_come = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
        self._open: set[int] = set()

    def shows(self, header: BatchHeader, records: memoryview) -> bool:
        """Whether the batch has records to show. Raises CorruptMessage for a control batch that is malformed."""
        while self._to_come and self._to_come[-1].first_offset <= header.last_offset:
            self._open.add(self._to_come.pop().producer_id)
        if header.is_control:
            if decode_end_transaction(records, header) is not None:
                self._open.discard(header.producer_id)
            return False
        return not (header.is_transactional and header.producer_id in self._open)


class Chunk(NamedTuple):
    """Batches to decode together: `payload` holds their uncompressed records, `starts` where those of each begin."""

    payload: memoryview
    headers: list[BatchHeader]
    starts: list[int]
    ends: list[int]


def collect(
    records: memoryview, first: int, end: int, visible: Visible | None, *, check_crcs: bool = True
) -> tuple[list[BatchHeader], int]:
    """The batches of a fetch with records from `first` to `end` - 1, and the offset to fetch next.

    `visible` None shows all but control records. Raises CorruptMessage for a batch whose CRC does not fit.
    """
    wanted: list[BatchHeader] = []
    next_offset = first
    for header in iter_batches(records, allow_partial_end=True):
        if header.base_offset >= end:
            next_offset = max(next_offset, end)
            break
        if header.last_offset < first:
            continue
        next_offset = header.next_offset
        if check_crcs and not is_intact(records, header):
            raise CorruptMessage(f"the batch at offset {header.base_offset} has a wrong CRC")
        shown = visible.shows(header, records) if visible is not None else not header.is_control
        if shown and header.record_count > 0:
            wanted.append(header)
    return wanted, min(next_offset, end)


def chunks(records: memoryview, headers: list[BatchHeader], max_bytes: int) -> Iterator[Chunk]:
    """The batches in pieces to decode at a time: uncompressed ones all together where they lie, of compressed ones so
    many that more than `max_bytes` are unpacked only if a single batch has them.

    Raises CorruptMessage when a batch cannot be unpacked.
    """
    for is_plain, group in groupby(headers, lambda header: header.compression is Compression.NONE):
        if is_plain:
            plain = list(group)
            starts = [header.position + HEADER_SIZE for header in plain]
            yield Chunk(records, plain, starts, [header.end_position for header in plain])
        else:
            yield from _uncompressed(records, group, max_bytes)


def _uncompressed(records: memoryview, headers: Iterable[BatchHeader], max_bytes: int) -> Iterator[Chunk]:
    parts: list[bytes | memoryview] = []
    whole = Chunk(memoryview(b""), [], [], [])
    size = 0
    for header in headers:
        part = decompress(header.compression, records[header.position + HEADER_SIZE : header.end_position])
        if parts and size + len(part) > max_bytes:
            yield whole._replace(payload=_joined(parts))
            parts, whole, size = [], Chunk(memoryview(b""), [], [], []), 0
        whole.headers.append(header)
        whole.starts.append(size)
        size += len(part)
        whole.ends.append(size)
        parts.append(part)
        del part  # it may be large, and the next one is unpacked while it is held
    yield whole._replace(payload=_joined(parts))


def _joined(parts: list[bytes | memoryview]) -> memoryview:
    return memoryview(parts[0] if len(parts) == 1 else b"".join(parts))


def as_record_batches(
    chunk: Chunk, topic: str, partition: int, first: int, end: int, schema: pa.Schema, max_rows: int
) -> Iterator[pa.RecordBatch]:
    """The records of a chunk from `first` to `end` - 1 as columns of `schema` (see `ottla.spark.schema`).

    Raises CorruptMessage when a record does not fit its batch.
    """
    counts = [header.record_count for header in chunk.headers]
    fields = _fields(chunk)
    offsets = fields.offset_delta + np.repeat([header.base_offset for header in chunk.headers], counts)
    begin, stop = np.searchsorted(offsets, (first, end))
    if begin == stop:
        return
    rows = slice(int(begin), int(stop))
    columns = _columns(chunk, counts, fields, offsets, rows, schema, topic, partition)
    whole = pa.RecordBatch.from_arrays(columns, schema=schema)
    for row in range(0, whole.num_rows, max_rows):
        yield whole.slice(row, max_rows)


class _Fields(NamedTuple):
    """One element per record; a size of -1 is null."""

    timestamp_delta: Positions
    offset_delta: Positions
    key_at: Positions
    key_size: Positions
    value_at: Positions
    value_size: Positions


def _record_starts(chunk: Chunk) -> Positions:
    """Where the length of each record lies, batch by batch.

    Only its length shows where the next record begins: a walk. Many small batches, as Java's client makes them, are
    walked abreast, a step of all at once; few large ones record by record. Raises CorruptMessage when records do not
    fill their batch.
    """
    counts = np.array([header.record_count for header in chunk.headers])
    firsts = np.cumsum(counts) - counts
    starts = np.empty(counts.sum(), np.int64)
    position, done = np.array(chunk.starts, np.int64), np.zeros_like(counts)
    if len(counts) >= _ABREAST:
        walked = _walk_abreast(chunk, counts, firsts, starts)
        if walked is not None:
            position, done = walked
    payload = b""
    for number in np.flatnonzero((done < counts) | (position != chunk.ends)).tolist():
        payload = payload or b"".join((chunk.payload, b"\0"))  # so that there are two bytes at the last position
        first, header = firsts[number], chunk.headers[number]
        rest = _walk(payload, int(position[number]), header, counts[number] - done[number], chunk.ends[number])
        starts[first + done[number] : first + counts[number]] = rest
    return starts


def _walk_abreast(
    chunk: Chunk, counts: Positions, firsts: Positions, starts: Positions
) -> tuple[Positions, Positions] | None:
    """Fill in `starts` as long as there is more than one record to find per step; gives the position that each batch
    has come to, and how many of its records that are.

    None if a record is longer than two bytes can say, or does not fit: the other walk knows what to do.
    """
    data = np.frombuffer(chunk.payload, np.uint8)
    pairs = np.ndarray(max(0, data.size - 1), "<u2", data, strides=(1,))  # the two bytes at every position
    longest_first = np.argsort(-counts, kind="stable")
    steps = int(counts[longest_first[_ABREAST - 1]])
    with_more = len(counts) - np.searchsorted(counts[longest_first[::-1]], np.arange(steps), side="right")
    position, slot = np.array(chunk.starts, np.int64)[longest_first], firsts[longest_first]
    try:
        for step, batches in enumerate(with_more.tolist()):
            here = position[:batches]
            starts[slot[:batches] + step] = here
            here += _STEPS[pairs[here]]
    except IndexError:
        return None
    done = np.minimum(counts, steps)
    if (starts[slot + done[longest_first] - 1] == position).any():
        return None
    reached = np.empty_like(position)
    reached[longest_first] = position
    return reached, done


def _walk(payload: bytes, position: int, header: BatchHeader, count: int, end: int) -> list[int]:
    steps, pair_at = _STEPS_LIST, _PAIR.unpack_from
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


_STEPS_LIST: Final = [_step_of(pair) for pair in range(1 << 16)]
_STEPS: Final = np.array(_STEPS_LIST, np.int64)
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
    except IndexError:
        raise CorruptMessage("a record is cut off") from None
    if ((value_at + np.maximum(value_size, 0)) > ends).any():
        raise CorruptMessage("a record is longer than its declared length")
    if min(key_size.min(), value_size.min()) < _NULL:
        raise CorruptMessage("a key or a value has a negative length")
    return _Fields(timestamp_delta, offset_delta, key_at, key_size, value_at, value_size)


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


def _columns(
    chunk: Chunk,
    counts: list[int],
    fields: _Fields,
    offsets: Positions,
    rows: slice,
    schema: pa.Schema,
    topic: str,
    partition: int,
) -> list[pa.Array]:
    payload = pa.py_buffer(chunk.payload)
    row_count = rows.stop - rows.start
    timestamps, kinds = _timestamps(chunk.headers, counts, fields.timestamp_delta)
    columns: dict[str, Any] = {
        "key": lambda: _bytes_at(payload, fields.key_at[rows], fields.key_size[rows]),
        "value": lambda: _bytes_at(payload, fields.value_at[rows], fields.value_size[rows]),
        "topic": lambda: _repeated(topic, row_count),
        "partition": lambda: _numbers(np.full(row_count, partition, np.int32)),
        "offset": lambda: _numbers(offsets[rows]),
        "timestamp": lambda: _micros(timestamps[rows], kinds[rows] == _NO_TIMESTAMP_TYPE),
        "timestampType": lambda: _numbers(kinds[rows]),
        "headers": lambda: _headers(chunk.payload, fields, rows),
    }
    return [columns[field.name]().cast(field.type) for field in schema]


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
    return _numbers(np.where(is_null, 0, millis) * _MICROS_PER_MILLI, is_null)


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
    return stretches.take(_numbers(np.arange(0, 2 * count, 2, dtype=np.int32), is_null))


def _numbers(
    values: npt.NDArray[np.int64] | npt.NDArray[np.int32], is_null: npt.NDArray[np.bool_] | None = None
) -> pa.Array:
    """An array over the memory of `values`. `pa.array` would import pandas first, in every new worker."""
    known = None
    if is_null is not None and is_null.any():
        known = pa.py_buffer(np.packbits(~is_null, bitorder="little"))
    kind = pa.int64() if values.dtype == np.int64 else pa.int32()
    return pa.Array.from_buffers(kind, len(values), [known, pa.py_buffer(values)])


def _repeated(text: str, count: int) -> pa.Array:
    encoded = text.encode()
    bounds = np.arange(count + 1, dtype=np.int32) * np.int32(len(encoded))
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(bounds), pa.py_buffer(encoded * count)])


def _headers(payload: memoryview, fields: _Fields, rows: slice) -> pa.Array:
    """Lists of name and value; null where a record has none. The one column that is built record by record, for those
    records that have any."""
    behind_value = fields.value_at[rows] + np.maximum(fields.value_size[rows], 0)
    counts, position = _varints(np.frombuffer(payload, np.uint8), behind_value)
    found: list[list[dict[str, Any]] | None] = [None] * len(counts)
    for row in np.flatnonzero(counts > 0).tolist():
        found[row] = _headers_at(payload, int(position[row]), int(counts[row]))
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    return pa.array(found, kind)


def _headers_at(payload: memoryview, position: int, count: int) -> list[dict[str, Any]]:
    headers = []
    for _ in range(count):
        size, position = read_varint(payload, position)
        # the broker looks at no name; Java's decoder, and so Spark's own source, puts U+FFFD for what is not UTF-8
        name = str(payload[position : position + size], "utf-8", "replace")
        position += size
        size, position = read_varint(payload, position)
        value = None if size < 0 else bytes(payload[position : position + size])
        position += max(size, 0)
        headers.append({"key": name, "value": value})
    return headers
