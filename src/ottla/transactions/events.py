"""The requests of the transaction machine, its replies, and the work it gives the coordinator. PURE.

An event with a `fresh_producer_id` first comes without one; the reply `NEEDS_PRODUCER_ID` requests it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from ottla.coordination.markers import TransactionMarker
from ottla.coordination.state_machine import Request
from ottla.errors import ErrorCode
from ottla.ids import ProducerId, ProducerIdAndEpoch, TopicPartition, TransactionalId
from ottla.transactions.records import NO_EPOCH, NO_ID, Transaction


@dataclass(slots=True, eq=False)
class InitProducer(Request["Granted | NeedsProducerId"]):
    """A producer with this id starts, or with `expected` goes on after an error (KIP-360)."""

    transactional_id: TransactionalId
    timeout_ms: int
    expected: ProducerIdAndEpoch | None = None
    fresh_producer_id: ProducerId | None = None


@dataclass(slots=True, eq=False)
class AddPartitions(Request[ErrorCode]):
    """The producer is about to write there. `client_version`: 2 for the second generation of clients, else 0."""

    transactional_id: TransactionalId
    producer: ProducerIdAndEpoch
    partitions: frozenset[TopicPartition]
    client_version: int = 0


@dataclass(slots=True, eq=False)
class VerifyPartitions(Request[Mapping[TopicPartition, ErrorCode]]):
    """Are these in the producer's ongoing transaction (KIP-890)? Answered with an error per partition."""

    transactional_id: TransactionalId
    producer: ProducerIdAndEpoch
    partitions: frozenset[TopicPartition]


@dataclass(slots=True, eq=False)
class EndTransaction(Request["Granted | NeedsProducerId"]):
    """Commit or abort; answered as soon as that is decided for good. `client_version` as in `AddPartitions`."""

    transactional_id: TransactionalId
    producer: ProducerIdAndEpoch
    committed: bool
    client_version: int = 0
    fresh_producer_id: ProducerId | None = None


@dataclass(slots=True, eq=False)
class MarkersWritten(Request[None]):
    """Every partition knows of the end of the transaction with this producer id and epoch."""

    transactional_id: TransactionalId
    producer: ProducerIdAndEpoch


@dataclass(slots=True, eq=False)
class DescribeTransaction(Request[Transaction | None]):
    """Answered with a `Transaction`, or None if the id is not known."""

    transactional_id: TransactionalId


@dataclass(slots=True, eq=False)
class ListTransactions(Request["list[TransactionListing]"]):
    """Answered with every `TransactionListing`."""


TransactionEvent: TypeAlias = (
    InitProducer
    | AddPartitions
    | VerifyPartitions
    | EndTransaction
    | MarkersWritten
    | DescribeTransaction
    | ListTransactions
)


class NeedsProducerId(NamedTuple):
    """Ask again with a producer id that was never given out."""


NEEDS_PRODUCER_ID: Final = NeedsProducerId()


class Granted(NamedTuple):
    """Answer to `InitProducer` and `EndTransaction`: an error, or the id and epoch the producer goes on with; both -1
    where a client of the first generation has ended a transaction, which leaves it what it had."""

    error: ErrorCode
    producer_id: ProducerId = NO_ID
    producer_epoch: int = NO_EPOCH


class TransactionListing(NamedTuple):
    """A transaction in ListTransactions."""

    transactional_id: TransactionalId
    transaction: Transaction


class SendMarkers(NamedTuple):
    """Send each of the partitions the transaction's outcome, then report `MarkersWritten`; the coordinator fills in
    its own epoch."""

    transactional_id: TransactionalId
    producer: ProducerIdAndEpoch
    committed: bool
    partitions: frozenset[TopicPartition]
    transaction_version: int = 0

    def marker(self, coordinator_epoch: int) -> TransactionMarker:
        return TransactionMarker(*self.producer, coordinator_epoch, self.committed, self.transaction_version)
