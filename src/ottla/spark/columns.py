"""Record batches as they come from a broker, turned into Arrow columns without a Python object per field.

    records of a fetch    |header|rec|rec|rec|...|header|rec|...
                             |    `--- decoded together (`chunk`, `decoding`): one pass in C
                             `-------- judged one by one: CRC, transactions, markers (`collect`)

Source: the record format of KIP-98, see `ottla.records.batch` and `ottla.records.record`.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from ottla.errors import CorruptMessage
from ottla.records.batch import BatchHeader, is_intact, iter_batches
from ottla.records.control import decode_end_transaction
from ottla.records.record import read_varint
from ottla.spark.chunk import Chunk, Positions, numbers
from ottla.spark.decoding import decode

_HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


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


def as_record_batches(
    chunk: Chunk, topic: str, partition: int, first: int, end: int, schema: pa.Schema, max_rows: int
) -> Iterator[pa.RecordBatch]:
    """The records of a chunk from `first` to `end` - 1 as columns of `schema` (see `ottla.spark.schema`).

    Raises CorruptMessage when a record does not fit its batch.
    """
    rows = decode(chunk, first, end)
    if rows is None:
        return
    count = len(rows.offsets)
    columns: dict[str, Any] = {
        "key": lambda: rows.keys,
        "value": lambda: rows.values,
        "topic": lambda: _repeated(topic, count),
        "partition": lambda: numbers(np.full(count, partition, np.int32)),
        "offset": lambda: numbers(rows.offsets),
        "timestamp": lambda: rows.micros,
        "timestampType": lambda: numbers(rows.kinds),
        "headers": lambda: _headers(chunk.payload, rows.header_at, count),
    }
    arrays = [columns[field.name]().cast(field.type) for field in schema]
    whole = pa.RecordBatch.from_arrays(arrays, schema=schema)
    for row in range(0, count, max_rows):
        yield whole.slice(row, max_rows)


def _repeated(text: str, count: int) -> pa.Array:
    encoded = text.encode()
    bounds = np.arange(count + 1, dtype=np.int32) * np.int32(len(encoded))
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(bounds), pa.py_buffer(encoded * count)])


def _headers(payload: memoryview, header_at: Positions | None, count: int) -> pa.Array:
    """Lists of name and value; null where a record has none. The one column that is built record by record, for those
    records that have any."""
    if header_at is None:
        return pa.nulls(count, _HEADERS)
    found: list[list[dict[str, Any]] | None] = [None] * count
    for row in np.flatnonzero(header_at >= 0).tolist():
        headers, position = read_varint(payload, int(header_at[row]))
        found[row] = _headers_at(payload, position, headers)
    return pa.array(found, _HEADERS)


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
