"""Asks the transaction coordinator before a partition takes the first records of a transaction (KIP-890).

Clients of the first generation have added the partition beforehand, which is only verified: a late request of a
transaction that was aborted meanwhile would otherwise begin one that never ends. For
clients of the second generation the verification adds it.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from enum import Enum, auto
from typing import TYPE_CHECKING, Protocol

from ottla.errors import ErrorCode, OttlaError

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig
    from ottla.ids import ProducerIdAndEpoch, TopicPartition


class Generation(Enum):
    """What a client knows of transactions, by the version of its request."""

    FIRST = auto()
    ABORTABLE = auto()
    """It understands TRANSACTION_ABORTABLE: Produce v11, TxnOffsetCommit v4."""
    SECOND = auto()
    """It leaves adding partitions to the broker: Produce v12, TxnOffsetCommit v5."""


FIRST, ABORTABLE, SECOND = Generation.FIRST, Generation.ABORTABLE, Generation.SECOND


class Coordinator(Protocol):
    """The transaction coordinator, as it is needed here."""

    async def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: "Collection[TopicPartition]",
        *,
        verify_only: bool,
    ) -> "Mapping[TopicPartition, ErrorCode]":
        """Add the partitions to the producer's transaction, or say which of them are in it."""
        ...


class TransactionVerifier:
    """One for the broker; on the loop's thread."""

    def __init__(self, coordinator: Coordinator, settings: "Callable[[], BrokerConfig]") -> None:
        """`settings` are those that hold at the moment."""
        self._coordinator = coordinator
        self._settings = settings
        config = settings()
        self._backoff_s = config.add_partitions_to_txn_retry_backoff_ms / 1_000
        self._timeout_s = config.add_partitions_to_txn_retry_backoff_max_ms / 1_000

    @property
    def verifies(self) -> bool:
        """Whether clients of the first generation are verified at all."""
        return self._settings().transaction_partition_verification_enable

    def is_needed(self, generation: Generation) -> bool:
        return self.verifies or generation is SECOND

    async def refusals(
        self,
        transactional_id: str,
        producer: "ProducerIdAndEpoch",
        partitions: "Collection[TopicPartition]",
        generation: Generation,
    ) -> "Mapping[TopicPartition, ErrorCode]":
        """Which of the partitions may not be written to, and why.

        While the producer's last transaction is still being ended, a client of the second generation is made to wait a
        moment instead of being sent away with CONCURRENT_TRANSACTIONS.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + self._timeout_s
        while True:
            try:
                answers = await self._coordinator.add_partitions(
                    transactional_id,
                    producer.producer_id,
                    producer.epoch,
                    partitions,
                    verify_only=generation is not SECOND,
                )
            except OttlaError as error:
                answers = dict.fromkeys(partitions, error.code)
            is_busy = ErrorCode.CONCURRENT_TRANSACTIONS in answers.values()
            if not is_busy or generation is not SECOND or loop.time() >= until:
                break
            await asyncio.sleep(self._backoff_s)
        return {partition: _error_for_client(code, generation) for partition, code in answers.items() if code}


def _error_for_client(code: ErrorCode, generation: Generation) -> ErrorCode:
    """Producers expect an epoch error for fencing, and older ones know no abortable error."""
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and generation is FIRST:
        return ErrorCode.INVALID_TXN_STATE
    return code
