"""Finds the records of a partition that a member of a share group could acquire now, and acquires them.

A look reads the log and changes no visible state; `take` acquires, in the same turn of the loop. A read that would
wait for a disk, or takes long to unpack, is a `SlowRead`: run it in a thread, then look again.

With `share.delivery.order=key` the keys have to be known: batches are unpacked, and kept a while, since a batch is
delivered a few records at a time. Only the records acquired are sent, in a batch of their own.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from ottla.log.cleaner_records import outlines
from ottla.log.partition_log import PartitionLog
from ottla.log.reader import ColdRead
from ottla.records.batch import BatchHeader, Buffer, iter_batches
from ottla.records.record import unpack_records
from ottla.share.batches import Aborted, batch_of, batches_with, fetched_batch
from ottla.share.partition import Acquired, Fetched, SharePartition

if TYPE_CHECKING:
    from ottla.replication.partition import Partition

CHUNK_BYTES: Final = 64 * 1024
"""How much of the log is looked through for keys at a time; also the most that is unpacked on the loop."""

KEPT_BYTES: Final = 2 << 20
RECORD_OUTLINE_BYTES: Final = 150
INT_MAX: Final = 2**31 - 1
MANY_RECORDS: Final = 2_000
"""Largest number of records of a batch that is unpacked on the loop."""


class Terms(NamedTuple):
    """What a request for records asks for. `max_bytes` is for this partition; the first batch is given however large
    it is if `at_least_one`."""

    member: str
    until: float
    """When locks on what is acquired expire, in seconds of the broker's monotonic clock."""
    max_records: int
    batch_size: int
    max_bytes: int
    at_least_one: bool
    committed_only: bool
    strictly: bool = False
    """Not one record more than `max_records` (KIP-1206)."""


class Taken(NamedTuple):
    """Records given to a member: the batches they are in, and which they are."""

    records: Buffer
    acquired: list[Acquired]


class Look(Protocol):
    """Something that can be acquired, in this turn of the loop."""

    @property
    def size_bytes(self) -> int: ...

    def take(self, max_records: int) -> Taken:
        """Acquire up to about so many records."""
        ...


class SlowRead(NamedTuple):
    """Something to do before a look can be had: `run` in a thread, then `keep` on the loop with what it returned."""

    run: Callable[[], Any]
    keep: Callable[[Any], object] = bool


def look(machine: SharePartition, replica: "Partition", kept: "KeptBatches", terms: Terms) -> "Look | SlowRead | None":
    """What there is for a member; None if there is nothing. Raises what reading a log raises."""
    log = replica.log
    machine.move_start(log.log_start_offset)
    bound = log.last_stable_offset if terms.committed_only else log.high_watermark
    if machine.is_key_ordered:
        while isinstance(found := _look_by_key(machine, log, kept, terms, bound), _Lost):
            pass
        return found
    offset = machine.next_offset()
    if offset is None or offset >= bound:
        return None
    result = log.read(offset, terms.max_bytes, upper_bound=bound, min_one_message=terms.at_least_one)
    if isinstance(result, ColdRead):
        return SlowRead(result.run)
    if not len(result.data):
        return None
    aborted = _aborted(log, offset, bound) if terms.committed_only else ()
    return _Batches(machine, offset, result.data, aborted, terms)


def _aborted(log: PartitionLog, offset: int, bound: int) -> list[Aborted]:
    return [
        Aborted(gone.producer_id, gone.first_offset, gone.last_offset)
        for gone in log.aborted_transactions(offset, bound)
    ]


class _Batches:
    """Whole batches, from the first offset that is available."""

    def __init__(
        self, machine: SharePartition, offset: int, records: Buffer, aborted: Sequence[Aborted], terms: Terms
    ) -> None:
        self._machine = machine
        self._offset = offset
        self._records = records
        self._aborted = aborted
        self._terms = terms

    @property
    def size_bytes(self) -> int:
        return len(self._records)

    def take(self, max_records: int) -> Taken:
        terms = self._terms
        acquired = self._machine.acquire(
            terms.member,
            self._offset,
            (fetched_batch(header, self._aborted) for header in iter_batches(self._records)),
            until=terms.until,
            max_records=max_records,
            batch_size=INT_MAX if terms.strictly else terms.batch_size,  # as in Kafka: one range, not split
            strictly=terms.strictly,
        )
        return Taken(batches_with(self._records, acquired), acquired)


# -- in the order of keys ----------------------------------------------------------------------------------------------


class KeptBatch(NamedTuple):
    """A batch, unpacked: where each of its records lies, in the order of their offsets."""

    header: BatchHeader
    fetched: Fetched
    records: bytes
    keyed: list[tuple[int, bytes | None]]
    """Offset and key of each record."""
    places: list[tuple[int, int]]
    """Start and end of each record in `records`."""

    @property
    def size_bytes(self) -> int:
        return len(self.records) + RECORD_OUTLINE_BYTES * len(self.places)

    def record(self, offset: int) -> bytes | None:
        """One record as it stands in its batch; None if there is none at this offset."""
        at = bisect_left(self.keyed, offset, key=_offset)
        if at == len(self.keyed) or self.keyed[at][0] != offset:
            return None
        start, end = self.places[at]
        return self.records[start:end]


def _offset(record: tuple[int, bytes | None]) -> int:
    return record[0]


class KeptBatches:
    """Batches of one partition that were unpacked not long ago; those with the lowest offsets go first."""

    __slots__ = ("_batches", "_first_offsets", "_size_bytes")

    def __init__(self) -> None:
        self._first_offsets: list[int] = []
        self._batches: dict[int, KeptBatch] = {}
        self._size_bytes = 0

    def find(self, offset: int) -> KeptBatch | None:
        """The batch that holds `offset`, if it is kept."""
        at = bisect_right(self._first_offsets, offset)
        if not at:
            return None
        found = self._batches[self._first_offsets[at - 1]]
        return found if offset <= found.header.last_offset else None

    def keep(self, batch: KeptBatch) -> None:
        """Keep a batch for the next reads; beyond KEPT_BYTES, others are dropped."""
        first = batch.header.base_offset
        before = self._batches.get(first)
        if before is None:
            self._first_offsets.insert(bisect_left(self._first_offsets, first), first)
        self._size_bytes += batch.size_bytes - (before.size_bytes if before is not None else 0)
        self._batches[first] = batch
        while self._size_bytes > KEPT_BYTES and len(self._first_offsets) > 1:
            # The highest were read last, but one that was read just now stays in any case.
            lowest = self._first_offsets.pop(1 if self._first_offsets[0] == first else 0)
            self._size_bytes -= self._batches.pop(lowest).size_bytes

    def clear(self) -> None:
        """Drop all batches."""
        self._first_offsets.clear()
        self._batches.clear()
        self._size_bytes = 0


class _Lost:
    """All that could have been delivered has been compacted away since its keys were learnt."""


LOST: Final = _Lost()


def _look_by_key(
    machine: SharePartition, log: PartitionLog, kept: KeptBatches, terms: Terms, bound: int
) -> "Look | SlowRead | _Lost | None":
    ready = machine.ready(terms.max_records)
    while len(ready) < terms.max_records and (unknown := machine.unknown_from()) is not None and unknown < bound:
        batch = kept.find(unknown) or _unpack(log, kept, terms, unknown, bound)
        if isinstance(batch, SlowRead):
            return batch
        if batch is None:
            break
        ready += machine.learn(batch.fetched, batch.keyed)
    chosen: list[tuple[KeptBatch, int, bytes]] = []
    size = 0
    lost_some = False
    for offset in ready[: terms.max_records]:
        if offset >= bound:
            break
        batch = kept.find(offset) or _unpack(log, kept, terms, offset, bound)
        if isinstance(batch, SlowRead):
            if chosen:
                break  # what is at hand goes out first: a slow read may take the place of what was kept for it
            return batch
        record = batch.record(offset) if batch is not None else None
        if batch is None or record is None:
            machine.not_there(offset)
            lost_some = True
            continue
        if size + len(record) > terms.max_bytes and (chosen or not terms.at_least_one):
            break
        size += len(record)
        chosen.append((batch, offset, record))
    if lost_some and not chosen:
        return LOST  # it is the turn of those that follow in their keys
    return _Records(machine, chosen, size, terms) if chosen else None


class _Records:
    """Records one by one, each with the batch that it is from."""

    def __init__(
        self, machine: SharePartition, chosen: list[tuple[KeptBatch, int, bytes]], size_bytes: int, terms: Terms
    ) -> None:
        self._machine = machine
        self._chosen = chosen
        self._terms = terms
        self.size_bytes = size_bytes

    def take(self, max_records: int) -> Taken:
        chosen = self._chosen[:max_records]
        acquired = self._machine.acquire_ready(
            self._terms.member,
            [offset for _, offset, _ in chosen],
            until=self._terms.until,
            batch_size=self._terms.batch_size,
        )
        batches = [
            batch_of(header, [record for _, _, record in found])
            for header, found in groupby(chosen, key=lambda one: one[0].header)
        ]
        return Taken(b"".join(batches), acquired)


def _unpack(log: PartitionLog, kept: KeptBatches, terms: Terms, offset: int, bound: int) -> KeptBatch | SlowRead | None:
    """The batch that holds `offset`, or the next, with as many after it as a chunk has; None if there is none."""
    result = log.read(offset, CHUNK_BYTES, upper_bound=bound, min_one_message=True)
    if isinstance(result, ColdRead):
        return SlowRead(result.run)
    data = result.data
    if not len(data):
        return None
    aborted = _aborted(log, offset, bound) if terms.committed_only else ()

    def keep(batches: list[KeptBatch]) -> KeptBatch:
        for batch in reversed(batches):  # the first is wanted now, so it is kept last
            kept.keep(batch)
        return batches[0]

    # A chunk that is larger than that is one batch.
    if len(data) > CHUNK_BYTES or any(header.record_count > MANY_RECORDS for header in iter_batches(data)):
        return SlowRead(lambda: _unpacked(data, aborted), keep)
    return keep(_unpacked(data, aborted))


def _unpacked(data: Buffer, aborted: Sequence[Aborted]) -> list[KeptBatch]:
    return [_unpacked_batch(data, header, fetched_batch(header, aborted)) for header in iter_batches(data)]


def _unpacked_batch(data: Buffer, header: BatchHeader, fetched: Fetched) -> KeptBatch:
    if not fetched.deliverable:
        return KeptBatch(header, fetched, b"", [], [])
    records = bytes(unpack_records(data, header))
    found = outlines(records, header.record_count)
    base = header.base_offset
    return KeptBatch(
        header,
        fetched,
        records,
        [(base + delta, key) for _, _, delta, _, key, _ in found],
        [(start, end) for start, end, _, _, _, _ in found],
    )
