"""Fences producers of a transactional id by producer id and epoch. PURE.

The current producer is the one with the highest epoch of the current producer id; all others are fenced. The epoch
grows

    when a producer starts (it names no epoch), which fences its predecessor;
    when a producer continues after an error: it names its epoch, and may retry if the response was lost (KIP-360);
    when the coordinator aborts a transaction on its own account, to fence the producer's late records;
    with every end of a transaction of the second generation, to fence late records of the last one (KIP-890).

The highest epoch is never given to a client, so that one more is always left to fence it. When a producer id
has used up its epochs, another id takes over at epoch 0.
"""

from enum import Enum, auto
from typing import Final

from ottla.coordination.markers import EPOCH_PER_TRANSACTION
from ottla.ids import ProducerIdAndEpoch
from ottla.records.batch import MAX_PRODUCER_EPOCH as MAX_EPOCH
from ottla.transactions.records import NO_EPOCH, Transaction

LAST_EPOCH_OF_CLIENTS: Final = MAX_EPOCH - 1


def is_exhausted(epoch: int) -> bool:
    """May a client have no epoch above this one?"""
    return epoch >= LAST_EPOCH_OF_CLIENTS


class Init(Enum):
    """What InitProducerId comes to for a transactional id at rest."""

    BUMP = auto()
    ROTATE = auto()
    """Another producer id, at epoch 0."""
    REPEAT = auto()
    """The answer that was lost."""
    FENCED = auto()


def next_for(transaction: Transaction, expected: ProducerIdAndEpoch | None) -> Init:
    """`expected` is the id and epoch the producer claims, None for one that has just started."""
    current = transaction.producer_epoch
    if expected is None:
        return Init.ROTATE if is_exhausted(current) else Init.BUMP
    if expected.producer_id != transaction.producer_id:
        lost_rotation = expected.producer_id == transaction.previous_producer_id and is_exhausted(expected.epoch)
        return Init.REPEAT if lost_rotation and expected.epoch == transaction.last_producer_epoch else Init.FENCED
    if expected.epoch == current:
        return Init.ROTATE if is_exhausted(current) else Init.BUMP
    if expected.epoch == transaction.last_producer_epoch != NO_EPOCH:
        # It was aborted by the coordinator at the last epoch it could have: the epoch above is not for clients.
        return Init.ROTATE if current == MAX_EPOCH else Init.REPEAT
    return Init.FENCED


class End(Enum):
    """Which EndTxn of the second generation this is."""

    CURRENT = auto()
    RETRY = auto()
    """A repeat of the request that brought the transaction into its present state."""
    FENCED = auto()
    UNKNOWN_ID = auto()


def end_of(transaction: Transaction, producer: ProducerIdAndEpoch) -> End:
    """For a transaction that is not being ended right now.

    Each such end takes the producer to another epoch, so one that comes with the epoch before is a retry; unless the
    transaction was one of the first generation, whose producer has got its epoch by fencing the one that asks. (Kafka
    takes that for a retry as well, and gives the fenced producer its successor's epoch.)
    """
    has_ended = transaction.state.is_complete and transaction.client_version >= EPOCH_PER_TRANSACTION
    if producer == (transaction.previous_producer_id, LAST_EPOCH_OF_CLIENTS) and transaction.producer_epoch == 0:
        return End.RETRY if has_ended else End.FENCED
    if producer.producer_id != transaction.producer_id:
        return End.UNKNOWN_ID
    if producer.epoch == transaction.producer_epoch:
        return End.CURRENT
    # A producer that was aborted at the last client epoch cannot continue: the next epoch is not for clients.
    if has_ended and producer.epoch + 1 == transaction.producer_epoch <= LAST_EPOCH_OF_CLIENTS:
        return End.RETRY
    return End.FENCED
