"""The records of `__transaction_state`, in Kafka's format. PURE.

    key     int16 0       | transactional id
    value   int16 0 or 1  | the state of the transactional id, or null: the id is forgotten

Version 1 has tagged fields; it is written once `transaction.version` is 1 (KIP-890). Ottla fills in two of Kafka's that
Kafka itself leaves out, the previous and the next producer id, and adds one of its own, the previous epoch: without
them a new coordinator could not distinguish the retry of a request from a fenced producer. Kafka skips
unknown tags.

Source: TransactionLogKey and TransactionLogValue among the coordinator records of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from ottla.errors import CorruptMessage
from ottla.ids import PartitionId, ProducerId, TopicName, TopicPartition, TransactionalId
from ottla.protocol.errors import MalformedMessage, UnsupportedVersion
from ottla.protocol.primitives import Int8, Int16, Int32, Int64
from ottla.protocol.schema import Message, Struct, message, since, struct
from ottla.protocol.versioned import decode_versioned, encode_versioned, version_of
from ottla.transactions.states import EMPTY, TransactionState

LAST_EPOCH_TAG: Final = 10_000
"""Far from the tags that Kafka counts up from 0."""


@message(versions=(0, 0))
class TransactionLogKey(Message):
    """Key of a record in `__transaction_state`."""

    transactional_id: str


@message(versions=(0, 1), flexible=1)
class TransactionLogValue(Message):
    """A transactional id's producer and its transaction; times in milliseconds."""

    producer_id: Int64
    previous_producer_id: Int64 = since(1, tag=0, default=-1, ignorable=True)
    next_producer_id: Int64 = since(1, tag=1, default=-1, ignorable=True)
    producer_epoch: Int16
    next_producer_epoch: Int16 = since(1, tag=3, default=-1, ignorable=True)
    transaction_timeout_ms: Int32
    transaction_status: Int8
    transaction_partitions: list[TransactionLogPartitions] | None
    transaction_last_update_timestamp_ms: Int64
    transaction_start_timestamp_ms: Int64
    client_transaction_version: Int16 = since(1, tag=2, default=0, ignorable=True)
    last_producer_epoch: Int16 = since(1, tag=LAST_EPOCH_TAG, default=-1, ignorable=True)


@struct
class TransactionLogPartitions(Struct):
    """Partitions of a topic in a transaction."""

    topic: str
    partition_ids: list[Int32]


NO_ID: Final = ProducerId(-1)
NO_EPOCH: Final = -1
NEVER: Final = -1


class Transaction(NamedTuple):
    """The state of a transactional id; times in milliseconds since the epoch.

    `last_producer_epoch` is the producer's previous epoch, -1 if the coordinator took it away.
    `next_producer_id` takes over when the transaction has ended and its epochs are used up. `client_version` is the
    `transaction.version` of the transaction: 2 for the second generation of the protocol, else 0.
    """

    state: TransactionState
    producer_id: ProducerId
    producer_epoch: int
    timeout_ms: int
    updated_ms: int
    started_ms: int = NEVER
    partitions: frozenset[TopicPartition] = frozenset()
    last_producer_epoch: int = NO_EPOCH
    previous_producer_id: ProducerId = NO_ID
    next_producer_id: ProducerId = NO_ID
    client_version: int = 0


class TransactionChanged(NamedTuple):
    """The new state of a transactional id."""

    transactional_id: TransactionalId
    transaction: Transaction


class TransactionForgotten(NamedTuple):
    """The tombstone of a transactional id."""

    transactional_id: TransactionalId


TransactionRecord: TypeAlias = TransactionChanged | TransactionForgotten

_KEY: Final = 0
FLEXIBLE_SINCE_FEATURE: Final = 1


class TransactionRecordFormat:
    """A `ottla.coordination.state_machine.RecordFormat` for `TransactionRecord`."""

    __slots__ = ("_transaction_version",)

    def __init__(self, transaction_version: Callable[[], int]) -> None:
        """`transaction_version`: the cluster's level of that feature as it is now."""
        self._transaction_version = transaction_version

    def encode(self, record: TransactionRecord) -> tuple[bytes, bytes | None]:
        """Key and value of a record; the value is None for a tombstone."""
        key = encode_versioned(TransactionLogKey(transactional_id=record.transactional_id), _KEY)
        if isinstance(record, TransactionForgotten):
            return key, None
        version = 1 if self._transaction_version() >= FLEXIBLE_SINCE_FEATURE else 0
        return key, encode_versioned(_value(record.transaction), version)

    def decode(self, key: bytes, value: bytes | None) -> TransactionRecord | None:
        """Raises `CorruptMessage`."""
        try:
            if version_of(key) != _KEY:
                return None
            transactional_id = TransactionalId(decode_versioned(TransactionLogKey, key).transactional_id)
            if value is None:
                return TransactionForgotten(transactional_id)
            return TransactionChanged(transactional_id, _transaction(decode_versioned(TransactionLogValue, value)))
        except (MalformedMessage, UnsupportedVersion, ValueError) as error:
            raise CorruptMessage(f"a record in the log of the transaction coordinator: {error}") from error


def _value(transaction: Transaction) -> TransactionLogValue:
    by_topic: dict[TopicName, list[int]] = {}
    for topic, partition in sorted(transaction.partitions):
        by_topic.setdefault(topic, []).append(partition)
    partitions = [TransactionLogPartitions(topic=topic, partition_ids=ids) for topic, ids in by_topic.items()]
    return TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state,
        transaction_partitions=None if transaction.state is EMPTY else partitions,
        transaction_last_update_timestamp_ms=transaction.updated_ms,
        transaction_start_timestamp_ms=transaction.started_ms,
        client_transaction_version=transaction.client_version,
        last_producer_epoch=transaction.last_producer_epoch,
    )


def _transaction(value: TransactionLogValue) -> Transaction:
    return Transaction(
        state=TransactionState(value.transaction_status),
        producer_id=ProducerId(value.producer_id),
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        updated_ms=value.transaction_last_update_timestamp_ms,
        started_ms=value.transaction_start_timestamp_ms,
        partitions=frozenset(
            TopicPartition(TopicName(taken.topic), PartitionId(partition))
            for taken in value.transaction_partitions or ()
            for partition in taken.partition_ids
        ),
        last_producer_epoch=value.last_producer_epoch,
        previous_producer_id=ProducerId(value.previous_producer_id),
        next_producer_id=ProducerId(value.next_producer_id),
        client_version=value.client_transaction_version,
    )
