"""Batches of a fetch that are decoded together, and what decoding them gives."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ottla.records.batch import HEADER_SIZE, BatchHeader, Compression
from ottla.records.compression import decompress

Positions = npt.NDArray[np.int64]

LATEST_MILLIS: Final = (1 << 63) // 1_000 - 1
"""The largest timestamp in ms that Spark's timestamps, which count microseconds, can hold."""


class Chunk(NamedTuple):
    """Batches to decode together: `payload` holds their uncompressed records, `starts` where those of each begin."""

    payload: memoryview
    headers: list[BatchHeader]
    starts: list[int]
    ends: list[int]


class Rows(NamedTuple):
    """One element per record: `micros` since 1970 are null without a timestamp, `kinds` are Spark's `timestampType`.

    `header_at` is where in the payload a record's headers are counted, -1 if it has none; None if no record has any.
    """

    offsets: Positions
    micros: pa.Array
    kinds: npt.NDArray[np.int32]
    keys: pa.Array
    values: pa.Array
    header_at: Positions | None


def numbers(
    values: npt.NDArray[np.int64] | npt.NDArray[np.int32], is_null: npt.NDArray[np.bool_] | None = None
) -> pa.Array:
    """An array over the memory of `values`. `pa.array` would import pandas first, in every new worker."""
    known = None
    if is_null is not None and is_null.any():
        known = pa.py_buffer(np.packbits(~is_null, bitorder="little"))
    kind = pa.int64() if values.dtype == np.int64 else pa.int32()
    return pa.Array.from_buffers(kind, len(values), [known, pa.py_buffer(values)])


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
