"""Batches as a share group sees them: which may be delivered, and a batch of some of its records only. PURE."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ottla.records.batch import (
    COMPRESSION_MASK,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    Buffer,
    iter_batches,
    seal,
)
from ottla.share.partition import Acquired, Fetched


class Aborted(NamedTuple):
    """A producer's transaction that did not happen: from its first record to its marker, both inclusive."""

    producer_id: int
    first_offset: int
    last_offset: int


def fetched_batch(header: BatchHeader, aborted: Sequence[Aborted]) -> Fetched:
    """What a share group may have of a batch; `aborted` are the transactions that it is not to see."""
    deliverable = not header.is_control and not (
        header.attributes & TRANSACTIONAL_FLAG
        and any(
            gone.producer_id == header.producer_id and gone.first_offset <= header.base_offset <= gone.last_offset
            for gone in aborted
        )
    )
    return Fetched(header.base_offset, header.last_offset, deliverable)


def batches_with(records: Buffer, acquired: Sequence[Acquired]) -> Buffer:
    """The batches of `records` in which something was acquired, as they lie; `acquired` is in order of offset."""
    view = memoryview(records)
    chosen = list(_with_acquired(iter_batches(view), acquired))
    if not chosen:
        return b""
    begin, end = chosen[0].position, chosen[-1].end_position
    if sum(header.size_bytes for header in chosen) == end - begin:
        return view[begin:end]
    return b"".join(view[header.position : header.end_position] for header in chosen)


def _with_acquired(headers: Iterable[BatchHeader], acquired: Sequence[Acquired]) -> Iterator[BatchHeader]:
    ranges = iter(acquired)
    current = next(ranges, None)
    for header in headers:
        while current is not None and current.last < header.base_offset:
            current = next(ranges, None)
        if current is None:
            return
        if current.first <= header.last_offset:
            yield header


def batch_of(header: BatchHeader, records: Sequence[Buffer]) -> bytearray:
    """A batch with some of the records of another, each as it stands there, uncompressed and with its length.

    It begins and ends at the same offsets, as batches do that were compacted, so the records' deltas stay right.
    """
    size = sum(len(record) for record in records)
    batch = bytearray(HEADER_SIZE)
    HEADER.pack_into(
        batch,
        0,
        *header._replace(
            batch_length=HEADER_SIZE - LENGTH_OVERHEAD + size,
            attributes=header.attributes & ~COMPRESSION_MASK,
            record_count=len(records),
        )[1:],
    )
    batch += b"".join(records)
    seal(batch)
    return batch
