"""What a partition remembers of its producers: sequences for deduplication, epochs, ongoing transactions (KIP-98).

Snapshots (`<offset>.snapshot`) hold the state as of that offset, in Kafka's format, big-endian::

    version int16 (1) | crc uint32 (CRC-32C of what follows) | count int32 | entries:
    producer_id int64 | epoch int16 | last_sequence int32 | last_offset int64 | offset_delta int32
    | timestamp int64 | coordinator_epoch int32 | current_txn_first_offset int64 (-1: none)
"""

from collections import deque
from collections.abc import Iterable
from enum import Enum
from struct import Struct
from typing import Final, NamedTuple

from ottla.errors import (
    CorruptMessage,
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequence,
    TransactionCoordinatorFenced,
)
from ottla.log.transaction_index import AbortedTransaction
from ottla.records.batch import MAX_PRODUCER_EPOCH, NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP, BatchHeader
from ottla.records.checksum import crc32c
from ottla.records.control import EndTransaction

REMEMBERED_BATCHES: Final = 5
_MAX_SEQUENCE: Final = 2**31 - 1
_SNAPSHOT_VERSION: Final = 1
_PREFIX: Final = Struct(">hI")
_COUNT: Final = Struct(">i")
_ENTRY: Final = Struct(">qhiqiqiq")


class Origin(Enum):
    """The source of an append, which decides about its checks."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    REPLICATION = "replication"


class ProducedBatch(NamedTuple):
    """One batch that a producer has written here."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp_ms: int


def produced(header: BatchHeader) -> ProducedBatch:
    """The remembered part of a batch."""
    return ProducedBatch(
        header.base_sequence, header.last_sequence, header.base_offset, header.last_offset, header.max_timestamp
    )


class ProducerEntry:
    """One producer's state in one partition."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "last_sequence",
        "last_timestamp_ms",
        "producer_id",
        "silent_since_ms",
        "transaction_first_offset",
    )

    def __init__(self, producer_id: int, epoch: int = NO_PRODUCER_EPOCH) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.coordinator_epoch = -1
        self.last_timestamp_ms: int = NO_TIMESTAMP
        self.silent_since_ms: int | None = None
        """On the clock of `remove_expired`; None if it has written since the last check."""
        self.last_sequence: int = NO_SEQUENCE
        self.transaction_first_offset: int | None = None
        self.batches: deque[ProducedBatch] = deque(maxlen=REMEMBERED_BATCHES)

    def set_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.epoch = epoch
            self.last_sequence = NO_SEQUENCE
            self.batches.clear()


class Verification:
    """A query to the transaction coordinator whether a producer's transaction includes this partition (KIP-890).

    `implicit`: asking adds the partition to the transaction, as the second generation of clients does.
    """

    __slots__ = ("began_ms", "epoch", "implicit", "lowest_sequence")

    def __init__(self, epoch: int, first_sequence: int, began_ms: int, *, implicit: bool) -> None:
        self.epoch = epoch
        self.lowest_sequence = first_sequence
        """The lowest of all waiting batches: no later one may be written first, or the earlier could never follow."""
        self.began_ms = began_ms
        self.implicit = implicit

    def also_for(self, epoch: int, first_sequence: int) -> None:
        """Another batch of the producer waits."""
        if epoch > self.epoch or (epoch == self.epoch and first_sequence < self.lowest_sequence):
            self.epoch, self.lowest_sequence = epoch, first_sequence


class CompletedTransaction(NamedTuple):
    """A transaction that a marker has ended; `last_offset` is the marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_abort: bool


class ProducerState:
    """The producers of one partition as of `end_offset`."""

    __slots__ = ("_ongoing", "_unreplicated", "_verifications", "end_offset", "producers")

    def __init__(self, end_offset: int = 0) -> None:
        self.producers: dict[int, ProducerEntry] = {}
        self.end_offset = end_offset
        """All batches before this offset are accounted for."""
        self._ongoing: dict[int, int] = {}
        """Producer ids of open transactions, by their first offset."""
        self._unreplicated: dict[int, int] = {}
        """Markers' offsets of ended transactions that the high watermark has not passed, by first offset."""
        self._verifications: dict[int, Verification] = {}
        """Under way, or failed with the producer expected to try again; by producer id."""

    def find_duplicate(self, header: BatchHeader) -> ProducedBatch | None:
        """The same batch among the producer's last five."""
        entry = self.producers.get(header.producer_id)
        if entry is None or entry.epoch != header.producer_epoch:
            return None
        first = header.base_sequence
        if first == entry.last_sequence + 1:
            return None
        last = header.last_sequence
        for batch in entry.batches:
            if batch.first_sequence == first and batch.last_sequence == last:
                return batch
        return None

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        """Has the producer written here in this epoch, with no marker behind it?"""
        entry = self.producers.get(producer_id)
        return entry is not None and entry.transaction_first_offset is not None and entry.epoch == epoch

    def begin_verification(self, header: BatchHeader, now_ms: int, *, implicit: bool) -> Verification | None:
        """To be passed to `check_transaction` with the batch, once the coordinator has agreed; None if the producer's
        transaction has reached this partition before. Raises InvalidProducerEpoch.

        The next batch or marker of the producer voids it: what the coordinator has answered may be about a transaction
        that has ended meanwhile.
        """
        producer_id, epoch, sequence = header.producer_id, header.producer_epoch, header.base_sequence
        entry = self.producers.get(producer_id)
        if entry is not None:
            self._check_epoch(entry, epoch, header.base_offset)
        if self.has_open_transaction(producer_id, epoch):
            return None
        found = self._verifications.get(producer_id)
        if found is None:
            found = self._verifications[producer_id] = Verification(epoch, sequence, now_ms, implicit=implicit)
        else:
            found.also_for(epoch, sequence)
        return found

    def check_transaction(self, header: BatchHeader, verification: Verification | None, *, required: bool) -> None:
        """Whether a client's transactional batch belongs to a transaction that its coordinator knows of.

        Raises InvalidProducerEpoch, InvalidTxnState; OutOfOrderSequence for a batch that an earlier one should precede.
        """
        producer_id = header.producer_id
        entry = self.producers.get(producer_id)
        if entry is not None:
            self._check_epoch(entry, header.producer_epoch, header.base_offset)
        under_way = self._verifications.get(producer_id)
        is_verified = verification is not None and verification is under_way
        if required and not is_verified and not self.has_open_transaction(producer_id, header.producer_epoch):
            raise InvalidTxnState(f"producer {producer_id} has no transaction that its records belong to")
        if under_way is None:
            return
        first = header.base_sequence
        unknown = entry is None or not entry.batches
        if first > under_way.lowest_sequence or (first and under_way.implicit and unknown):
            raise OutOfOrderSequence(
                f"producer {producer_id} sent sequence {first} before {0 if unknown else under_way.lowest_sequence}"
            )

    def check(self, header: BatchHeader, origin: Origin) -> None:
        """Whether a data batch may follow what the producer has written before.

        Raises InvalidProducerEpoch, OutOfOrderSequence, InvalidTxnState. A producer that is not known may begin
        with any sequence: retention may have taken what it wrote before.
        """
        entry = self.producers.get(header.producer_id)
        if entry is None or origin is Origin.REPLICATION:
            return
        self._check_epoch(entry, header.producer_epoch, header.base_offset)
        first = header.base_sequence
        if origin is Origin.CLIENT and entry.epoch != NO_PRODUCER_EPOCH:
            if header.producer_epoch != entry.epoch:
                if first != 0:
                    raise OutOfOrderSequence(
                        f"producer {header.producer_id} begins epoch {header.producer_epoch} with sequence {first}, "
                        f"not 0 (current epoch {entry.epoch})"
                    )
            elif first != entry.last_sequence + 1 and not (first == 0 and entry.last_sequence == _MAX_SEQUENCE):
                raise OutOfOrderSequence(
                    f"producer {header.producer_id} sent sequence {first} after {entry.last_sequence}"
                )
        if entry.transaction_first_offset is not None and not header.is_transactional:
            raise InvalidTxnState(
                f"producer {header.producer_id} wrote outside its transaction that began at offset "
                f"{entry.transaction_first_offset}"
            )

    def check_marker(
        self, header: BatchHeader, marker: EndTransaction, origin: Origin, *, bears_next_epoch: bool = False
    ) -> None:
        """Raises InvalidProducerEpoch, TransactionCoordinatorFenced for a marker of the past.

        With `bears_next_epoch` (KIP-1228) a marker of the open transaction's own epoch is one: it ended the
        transaction before. The last epoch there is may be borne by both.
        """
        entry = self.producers.get(header.producer_id)
        if entry is None or origin is Origin.REPLICATION:
            return
        self._check_epoch(entry, header.producer_epoch, header.base_offset)
        if (
            bears_next_epoch
            and entry.transaction_first_offset is not None
            and header.producer_epoch == entry.epoch != MAX_PRODUCER_EPOCH
        ):
            raise InvalidProducerEpoch(
                f"a marker for producer {entry.producer_id} has epoch {entry.epoch}, which its open transaction has: "
                "it belongs to the transaction before"
            )
        if entry.coordinator_epoch > marker.coordinator_epoch:
            raise TransactionCoordinatorFenced(
                f"a marker for producer {header.producer_id} comes from coordinator epoch "
                f"{marker.coordinator_epoch}, already at {entry.coordinator_epoch}"
            )

    def _check_epoch(self, entry: ProducerEntry, epoch: int, offset: int) -> None:
        if epoch < entry.epoch:
            raise InvalidProducerEpoch(
                f"producer {entry.producer_id} at offset {offset} has epoch {epoch}, already at {entry.epoch}"
            )

    def add(self, header: BatchHeader) -> None:
        """Takes in a data batch that is in the log."""
        producer_id = header.producer_id
        entry = self.producers.get(producer_id)
        if entry is None:
            entry = self.producers[producer_id] = ProducerEntry(producer_id, header.producer_epoch)
        elif entry.epoch != header.producer_epoch:
            entry.set_epoch(header.producer_epoch)
        entry.batches.append(produced(header))
        entry.last_sequence = header.last_sequence
        entry.last_timestamp_ms = header.max_timestamp
        entry.silent_since_ms = None
        if header.is_transactional:
            self._verifications.pop(producer_id, None)
            if entry.transaction_first_offset is None:
                entry.transaction_first_offset = header.base_offset
                self._ongoing[header.base_offset] = producer_id

    def end_transaction(self, header: BatchHeader, marker: EndTransaction) -> CompletedTransaction | None:
        """Takes in a marker that is in the log; None if it ended no transaction with records here."""
        entry = self.producers.get(header.producer_id)
        if entry is None:
            entry = self.producers[header.producer_id] = ProducerEntry(header.producer_id, header.producer_epoch)
        first = entry.transaction_first_offset
        entry.set_epoch(header.producer_epoch)
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp_ms = marker.timestamp_ms
        entry.silent_since_ms = None
        entry.transaction_first_offset = None
        verification = self._verifications.get(header.producer_id)
        if verification is not None and not (verification.implicit and verification.epoch == header.producer_epoch):
            # A marker of the second generation bears the epoch of the next transaction, which may have begun already.
            del self._verifications[header.producer_id]
        if first is None:
            return None
        return CompletedTransaction(header.producer_id, first, header.base_offset, marker.is_abort)

    def complete(self, transaction: CompletedTransaction) -> AbortedTransaction | None:
        """Closes it; for an aborted one, what the transaction index has to say of it."""
        self._ongoing.pop(transaction.first_offset, None)
        self._unreplicated[transaction.first_offset] = transaction.last_offset
        if not transaction.is_abort:
            return None
        stable = min(self._ongoing, default=transaction.last_offset + 1)
        return AbortedTransaction(transaction.producer_id, transaction.first_offset, transaction.last_offset, stable)

    @property
    def has_markers(self) -> bool:
        """Whether a transaction of any of these producers has ended in the partition."""
        return any(entry.coordinator_epoch >= 0 for entry in self.producers.values())

    @property
    def open_transactions(self) -> int:
        """How many transactions are open in the partition."""
        return len(self._ongoing)

    def late_transactions(self, now_ms: int, longest_ms: int) -> int:
        """How many transactions are open whose producer has been silent for longer than that, as `remove_expired` has
        seen: timestamps of records may be of long ago."""
        producers = (self.producers.get(producer_id) for producer_id in self._ongoing.values())
        return sum(
            each is not None and each.silent_since_ms is not None and now_ms - each.silent_since_ms > longest_ms
            for each in producers
        )

    def first_unstable_offset(self) -> int | None:
        """Where the first transaction begins that is open, or ended only above the high watermark."""
        if not self._ongoing and not self._unreplicated:
            return None
        return min(*self._ongoing, *self._unreplicated, 2**63 - 1)

    def high_watermark_moved(self, high_watermark: int) -> None:
        """Forgets ended transactions whose marker is below."""
        if self._unreplicated:
            self._unreplicated = {
                first: marker for first, marker in self._unreplicated.items() if marker >= high_watermark
            }

    def remove_expired(self, now_ms: int, expiration_ms: int) -> int:
        """Forgets producers that have been silent for `expiration_ms` outside a transaction; how many. `now_ms` is of a
        clock that does not jump.

        Timestamps are the client's: records of long ago, or of a time to come, do not show how long it has been
        silent. (Kafka uses only them, and forgets the writer of old records at its next check.)
        Abandoned verifications expire, too.
        """
        self._verifications = {
            producer_id: found
            for producer_id, found in self._verifications.items()
            if abs(now_ms - found.began_ms) < expiration_ms
        }
        expired: list[int] = []
        for producer_id, entry in self.producers.items():
            if entry.silent_since_ms is None:
                is_likely = now_ms - expiration_ms < entry.last_timestamp_ms <= now_ms
                entry.silent_since_ms = entry.last_timestamp_ms if is_likely else now_ms
            elif entry.transaction_first_offset is None and now_ms - entry.silent_since_ms >= expiration_ms:
                expired.append(producer_id)
        for producer_id in expired:
            del self.producers[producer_id]
        return len(expired)

    def clear(self, end_offset: int) -> None:
        """Forgets all."""
        self.producers.clear()
        self._ongoing.clear()
        self._unreplicated.clear()
        self._verifications.clear()
        self.end_offset = end_offset

    # --- snapshots ---------------------------------------------------------------------------------------------

    def encode(self) -> bytes:
        """The content of a snapshot file at `end_offset`."""
        rows = bytearray(_COUNT.pack(len(self.producers)))
        for entry in self.producers.values():
            last = entry.batches[-1] if entry.batches else None
            rows += _ENTRY.pack(
                entry.producer_id,
                entry.epoch,
                last.last_sequence if last else NO_SEQUENCE,
                last.last_offset if last else -1,
                last.last_offset - last.first_offset if last else 0,
                entry.last_timestamp_ms,
                entry.coordinator_epoch,
                -1 if entry.transaction_first_offset is None else entry.transaction_first_offset,
            )
        return _PREFIX.pack(_SNAPSHOT_VERSION, crc32c(rows)) + rows

    def load(self, entries: Iterable[ProducerEntry], end_offset: int) -> None:
        """Replaces the state by a snapshot's."""
        self.clear(end_offset)
        for entry in entries:
            self.producers[entry.producer_id] = entry
            if entry.transaction_first_offset is not None:
                self._ongoing[entry.transaction_first_offset] = entry.producer_id


def decode_snapshot(data: bytes) -> list[ProducerEntry]:
    """The producers in a snapshot file. Raises CorruptMessage when it is not what was written."""
    if len(data) < _PREFIX.size + _COUNT.size:
        raise CorruptMessage(f"a producer snapshot of {len(data)} bytes")
    version, crc = _PREFIX.unpack_from(data)
    if version != _SNAPSHOT_VERSION:
        raise CorruptMessage(f"a producer snapshot of version {version}, only 1 is known")
    body = data[_PREFIX.size :]
    if crc32c(body) != crc:
        raise CorruptMessage("a producer snapshot whose CRC is wrong")
    (count,) = _COUNT.unpack_from(body)
    rows = body[_COUNT.size :]
    if count < 0 or count * _ENTRY.size != len(rows):
        raise CorruptMessage(f"a producer snapshot of {count} entries in {len(rows)} bytes")
    entries: list[ProducerEntry] = []
    for row in _ENTRY.iter_unpack(rows):
        producer_id, epoch, sequence, offset, delta, timestamp_ms, coordinator_epoch, first_offset = row
        entry = ProducerEntry(producer_id, epoch)
        entry.last_timestamp_ms = timestamp_ms
        entry.coordinator_epoch = coordinator_epoch
        entry.transaction_first_offset = first_offset if first_offset >= 0 else None
        if offset >= 0:
            entry.last_sequence = sequence
            first_sequence = (sequence - delta) & _MAX_SEQUENCE
            entry.batches.append(ProducedBatch(first_sequence, sequence, offset - delta, offset, timestamp_ms))
        entries.append(entry)
    return entries
