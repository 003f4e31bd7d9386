"""Checks producers that append to a coordinator's partition within a transaction. PURE.

The log knows its producers, but a runtime has records queued that are not in the log yet. A producer is checked
against the state at the end of that queue:

    in the log: 7 at epoch 3, in a transaction | queued: its marker | 7 at epoch 3 again? only when verified

A producer's first records in a transaction have to be registered with the transaction coordinator, or the transaction
would never end (KIP-890). The verifying request holds a `Verification` meanwhile; a marker that comes in between voids
it.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from ottla.coordination.markers import TransactionMarker
from ottla.errors import InvalidProducerEpoch, InvalidTxnState, TransactionCoordinatorFenced
from ottla.ids import ProducerIdAndEpoch
from ottla.records.batch import MAX_PRODUCER_EPOCH


class ProducerStateEntry(NamedTuple):
    """What a partition knows of a producer; a coordinator epoch of -1: no marker has been written for it."""

    epoch: int
    coordinator_epoch: int
    in_transaction: bool


class Verification:
    """A verification with the transaction coordinator under way; compared by identity.

    `implicit`: the request adds the partition to the transaction (second generation, where each transaction has an
    epoch of its own).
    """

    __slots__ = ("implicit", "producer")

    def __init__(self, producer: ProducerIdAndEpoch, *, implicit: bool) -> None:
        self.producer = producer
        self.implicit = implicit

    def outlives(self, marker: TransactionMarker) -> bool:
        """The marker that ends one transaction of the second generation bears the epoch of the next one, which may
        have been begun already. Any other marker may have ended the very transaction that is being asked about."""
        return self.implicit and self.producer.epoch == marker.producer_epoch


NOT_REQUIRED: Final = Verification(ProducerIdAndEpoch(-1, -1), implicit=False)
"""For brokers configured not to verify (`transaction.partition.verification.enable`)."""


class Producers:
    """The producers of one partition, as of the last batch that is queued."""

    __slots__ = ("_in_log", "_queued", "_verifying")

    def __init__(self, in_log: Callable[[int], ProducerStateEntry | None]) -> None:
        """`in_log` returns the log's state of a producer id."""
        self._in_log = in_log
        self._queued: dict[int, tuple[object, ProducerStateEntry]] = {}
        """By producer id: its last queued batch, and how the producer stands after it."""
        self._verifying: dict[int, set[Verification]] = {}

    def state_entry(self, producer_id: int) -> ProducerStateEntry | None:
        """The newest state of a producer, queued batches included; None: unknown."""
        queued = self._queued.get(producer_id)
        return self._in_log(producer_id) if queued is None else queued[1]

    def begin_verification(self, producer: ProducerIdAndEpoch, *, implicit: bool) -> Verification | None:
        """None if the producer has records in an open transaction here: there is nothing to verify.

        Raises InvalidProducerEpoch.
        """
        if self._has_open_transaction(producer):
            return None
        begun = Verification(producer, implicit=implicit)
        self._verifying.setdefault(producer.producer_id, set()).add(begun)
        return begun

    def end_verification(self, verification: Verification) -> None:
        """It has served its purpose, or failed."""
        producer_id = verification.producer.producer_id
        pending = self._verifying.get(producer_id)
        if pending is not None:
            pending.discard(verification)
            if not pending:
                del self._verifying[producer_id]

    def check(self, producer: ProducerIdAndEpoch, verification: Verification | None) -> None:
        """May its records be appended? Raises InvalidProducerEpoch, InvalidTxnState."""
        if self._has_open_transaction(producer) or verification is NOT_REQUIRED:
            return
        if verification not in self._verifying.get(producer.producer_id, ()):
            raise InvalidTxnState(f"producer {producer.producer_id} has no transaction that its records belong to")

    def check_marker(self, marker: TransactionMarker) -> None:
        """Raises InvalidProducerEpoch, TransactionCoordinatorFenced for a marker of the past."""
        state_entry = self.state_entry(marker.producer_id)
        if state_entry is None:
            return
        _check_epoch(state_entry, marker.producer_id, marker.producer_epoch)
        if (
            marker.bears_next_epoch
            and state_entry.in_transaction
            and marker.producer_epoch == state_entry.epoch != MAX_PRODUCER_EPOCH
        ):
            raise InvalidProducerEpoch(
                f"a marker for producer {marker.producer_id} has epoch {state_entry.epoch}, which its open transaction "
                "has: it belongs to the transaction before"
            )
        if marker.coordinator_epoch < state_entry.coordinator_epoch:
            raise TransactionCoordinatorFenced(
                f"a marker for producer {marker.producer_id} comes from coordinator epoch {marker.coordinator_epoch}, "
                f"already at {state_entry.coordinator_epoch}"
            )

    def _has_open_transaction(self, producer: ProducerIdAndEpoch) -> bool:
        state_entry = self.state_entry(producer.producer_id)
        if state_entry is None:
            return False
        _check_epoch(state_entry, producer.producer_id, producer.epoch)
        return state_entry.in_transaction and state_entry.epoch == producer.epoch

    # --- what has been decided ---

    def appended(self, producer: ProducerIdAndEpoch, batch: object) -> None:
        """Records of the producer are in this queued batch."""
        state_entry = self.state_entry(producer.producer_id)
        coordinator_epoch = -1 if state_entry is None else state_entry.coordinator_epoch
        after = ProducerStateEntry(producer.epoch, coordinator_epoch, in_transaction=True)
        self._queued[producer.producer_id] = batch, after

    def ended(self, marker: TransactionMarker, batch: object) -> None:
        """This queued batch ends the producer's transaction."""
        after = ProducerStateEntry(marker.producer_epoch, marker.coordinator_epoch, in_transaction=False)
        self._queued[marker.producer_id] = batch, after
        for verification in list(self._verifying.get(marker.producer_id, ())):
            if not verification.outlives(marker):
                self.end_verification(verification)

    def written(self, producer_id: int, batch: object) -> None:
        """The batch is in the log."""
        queued = self._queued.get(producer_id)
        if queued is not None and queued[0] is batch:
            del self._queued[producer_id]


def _check_epoch(state_entry: ProducerStateEntry, producer_id: int, epoch: int) -> None:
    if epoch < state_entry.epoch:
        raise InvalidProducerEpoch(f"producer {producer_id} has epoch {epoch}, already at {state_entry.epoch}")
